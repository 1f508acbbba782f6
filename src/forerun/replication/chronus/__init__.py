"""Chronus, as the published simulator of ElasticFlow has it for comparison: its schedule, leases and their program."""
