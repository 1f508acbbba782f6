"""From a scenario's inputs to what happened: the event loop, the Monte Carlo kernel, and runs under a deadline."""
