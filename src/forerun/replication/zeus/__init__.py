"""The published results of Zeus (NSDI 2023), regenerated with the energy domain."""
