"""Batching policies, one a file; each is discovered by being here."""
