"""What the outside world does, as data: traces (sorted tables of events) and signals (values over time)."""
