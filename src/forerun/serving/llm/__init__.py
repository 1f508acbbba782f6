"""Stages of language models: the same parts as the domain has, once more."""
