"""The policies of the energy domain, one a file."""
