"""The published results of ElasticFlow (ASPLOS 2023), regenerated with the cluster domain."""
