"""The schedules of ElasticFlow's published simulator beside its own, one a file; each is discovered by being here."""
