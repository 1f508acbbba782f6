"""Figures of stages of language models."""
