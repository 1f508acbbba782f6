"""Reading what a scenario names: recorded fleets and prices."""
