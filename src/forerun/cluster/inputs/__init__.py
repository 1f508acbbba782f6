"""What a run reads: `prepare.prepare(scenario)` turns a scenario into `prepare.Inputs`.

arrays: jobs, nodes and throughput as arrays. files: cluster specifications, job logs and throughput tables. jobs: a trace
as the jobs of a run. setting: all that a run depends on. throughput: throughput that was not measured. step_model: how
long a training step takes. step_use: steps slowed by data and power limits. costs: what changes of GPUs cost.
"""
