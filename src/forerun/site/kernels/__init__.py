"""Compiled parts of replays."""
