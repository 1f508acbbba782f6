"""What the policies share that backfill by requested times."""
