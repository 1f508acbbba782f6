"""Replicas that follow the traffic: envelopes, what a tuner is handed, and the loop that asks it."""
