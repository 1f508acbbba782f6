"""Arrival processes of pipelines besides the plain ones of the core, one a file."""
