"""Real runners: what machines really do, as profiles and as answers beside the predictions."""
