"""How fast a training program of the user is on each count of slots, and what it costs to change that count."""
