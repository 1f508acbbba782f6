"""Readers of tables of trainings and of power."""
