"""Studies: one scenario, many variations, compared pairwise on the same randomness."""
