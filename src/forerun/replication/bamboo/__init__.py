"""The published results of Bamboo and other spot systems (NSDI 2023), regenerated with the spot domain."""
