"""Pollux: its schedule, how jobs train under it, its searches, and the measurements that it reads."""
