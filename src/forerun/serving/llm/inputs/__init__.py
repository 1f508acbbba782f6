"""A scenario's language model with its files read and its requests' tokens resolved."""
