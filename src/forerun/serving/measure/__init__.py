"""A serving pipeline run for real: processes as replicas, a queue a stage, profiles in place, and the model beside it."""
