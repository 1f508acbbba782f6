"""Arrival processes, one a file."""
