"""Scenarios: everything a run depends on, as data, read strictly and resolved fully."""
