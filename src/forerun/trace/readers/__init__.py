"""Public trace formats, one a file; each module holds one `TraceReader`."""
