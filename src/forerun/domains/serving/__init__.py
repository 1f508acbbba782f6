"""Inference pipelines and language models behind queues: replicas, batch sizes, hardware."""
