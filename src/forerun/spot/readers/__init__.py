"""Readers of instances and failures."""
