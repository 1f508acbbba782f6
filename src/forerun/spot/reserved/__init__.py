"""Clusters of reserved nodes that fail."""
