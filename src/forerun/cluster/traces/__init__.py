"""Job traces: generated, fitted, resampled and described (`traces.TRACES`)."""
