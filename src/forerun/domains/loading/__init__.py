"""Training-data loading: whether it hides behind compute, and what would."""
