"""Policies of stages of language models."""
