"""Engines of this package, one file a mode; each is discovered by being here."""
