"""Recurring training jobs: which batch size and which GPU power limit, and what it costs to find out."""
