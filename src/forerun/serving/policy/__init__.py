"""What batching policies, tuners and schedulers of language models see, and what they may decide."""
