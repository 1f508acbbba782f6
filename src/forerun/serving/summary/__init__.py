"""From an outcome to a result: figures with confidence intervals, tables, ledgers, timeline, and why."""
