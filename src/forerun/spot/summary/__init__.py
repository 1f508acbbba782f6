"""`summarize`: from what happened to the result, with its figures, tables, ledgers, timeline and reasons."""
