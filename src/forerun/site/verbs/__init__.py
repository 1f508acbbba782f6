"""Commands about real queues."""
