"""GPU-cluster schedulers on real job logs."""
