"""Figures of stages that serve language models, what a reader should know of them, and their confidence intervals."""
