"""Costs of language models from what was measured: tables of steps, and results of load generators.

`readers` make experiments of files: what was sent when, and the latencies seen. `replay` plays an experiment through this
project's own engine. `fitting` searches the coefficients of an iteration under which the replays are most like the
measurements, and says which of them the data support and how far off unseen experiments are.
"""
