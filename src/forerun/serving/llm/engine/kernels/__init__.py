"""Compiled parts of the engine of language models."""
