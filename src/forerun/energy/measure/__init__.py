"""Measuring what training takes: seconds always, joules only where a counter can be read."""
