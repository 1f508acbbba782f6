"""The engines: `run` from inputs to an outcome; threads event by event, workers by a recursion, laws in closed form."""
