"""One policy a file, its paper named."""
