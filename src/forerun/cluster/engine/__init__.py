"""What happens in a run: `run.run(inputs, record)` drives the policy's rules and writes a `record.Record`.

rules: the steps of an instant. online: the same rules over real jobs. seats: which GPUs jobs have. allocator: policies
that decide through a view. priority: rigid priority policies, compiled. plan_ahead, elastic, deadline_first, promises:
ElasticFlow and EDF, which plan the future of every job. leases, lease_program: Chronus' plans. known_bugs: the switches
between published and corrected behaviour. kernels: compiled loops.
"""
