"""What planners of all rooms share: the plan they return, and the file it is kept in."""
