"""Stage-by-stage simulation: arrays in, arrays out, resumable at any instant."""
