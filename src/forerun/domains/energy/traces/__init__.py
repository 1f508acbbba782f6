"""Synthetic groups and pipelines, and the reader of measured windows."""
