"""Compiled loops of the room: arrays in, arrays out. Nothing here knows scenarios, files or policies."""
