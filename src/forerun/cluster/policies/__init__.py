"""Scheduling policies, one per file. The registry finds a policy by its tag; nothing is listed by hand."""
