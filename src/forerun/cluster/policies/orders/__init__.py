"""The orders in which backfilling policies look at waiting jobs, one a file."""
