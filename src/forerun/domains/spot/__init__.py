"""Training on preemptible instances and on clusters whose nodes fail."""
