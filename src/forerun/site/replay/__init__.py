"""A real job log, replayed: its history, what can be inferred from it, and what would have been otherwise."""
