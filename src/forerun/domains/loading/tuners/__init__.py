"""Tuners, one a file."""
