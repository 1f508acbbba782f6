"""Readers of job logs and clusters' files."""
