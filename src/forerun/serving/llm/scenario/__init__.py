"""Records of stages of language models."""
