"""Loading, really measured: a store with seeded latency, clients, a loader of threads, probes and their check."""
