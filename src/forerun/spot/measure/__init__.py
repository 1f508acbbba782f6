"""A small elastic training for real: timed for a profile, and run under a trace that kills its processes."""
