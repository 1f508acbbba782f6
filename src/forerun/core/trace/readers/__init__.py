"""Public trace formats, one a file; each module defines one `TraceReader`."""
