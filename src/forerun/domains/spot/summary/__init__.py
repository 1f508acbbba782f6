"""From what happened to the result: figures of the summary, tables, ledgers."""
