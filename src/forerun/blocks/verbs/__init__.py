"""Commands about containers of blocks."""
