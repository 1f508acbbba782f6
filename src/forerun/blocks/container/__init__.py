"""Merged samples on disk: the container `blocks`, and WebDataset tar, and packing from one into another."""
