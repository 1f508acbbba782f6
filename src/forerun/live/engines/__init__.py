"""What carries a controller's commands out: processes of this machine, or a cluster of several."""
