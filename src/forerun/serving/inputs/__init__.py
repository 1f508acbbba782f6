"""A scenario ready to be simulated: its files read, its names resolved, its arrivals made (see `prepare`)."""
