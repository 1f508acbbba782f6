"""Batching policies, tuners and schedulers of language models, one a file; each is discovered by being here."""
