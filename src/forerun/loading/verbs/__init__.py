"""Commands about data to load."""
