"""The policies of the energy room, one a file."""
