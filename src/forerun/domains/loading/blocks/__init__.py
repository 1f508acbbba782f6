"""Merged samples on disk: the container `blocks`, WebDataset tar and MDS, and packing from one into another."""
