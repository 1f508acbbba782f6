"""Contract tests for policies of your own: derive a class, get every law.

One module per domain. A contract is a class whose methods are tests; pytest collects what derives from it. Nothing here
needs pytest: each law is a plain method that raises AssertionError with what broke, in which random setting, and when.
"""
