"""Scheduling policies, one a file. A file's class is found by its tag; nothing is listed by hand."""
