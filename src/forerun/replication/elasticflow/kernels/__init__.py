"""Compiled loops of the published schedules."""
