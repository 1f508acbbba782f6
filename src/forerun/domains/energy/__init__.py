"""Recurring training jobs: batch size and power limit."""
