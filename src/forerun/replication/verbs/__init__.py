"""The commands about published results."""
