"""MLPerf Storage v1.0: published results of storage systems, simulated from the benchmark's own workloads."""
