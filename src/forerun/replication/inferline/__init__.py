"""The published results of InferLine (SoCC 2020), regenerated with the serving domain."""
