"""The published results of CNDLSys (COMSNETS 2024), regenerated with the loading domain."""
