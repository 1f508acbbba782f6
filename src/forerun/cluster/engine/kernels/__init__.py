"""Compiled loops: arrays in, arrays out. Nothing here knows scenarios, files or policies."""
