"""Planning pipelines: what may be chosen, what a choice costs, and who is late under it.

`space` what may be chosen; `outcomes` stages run one by one and remembered; `exact` the cheapest configuration;
`greedy`, `sweep`, `brute` the other optimisers; `certify` writes what `checker` verifies by itself; `chance`,
`throughput`, `sensitivity` ask further questions of the exact search.
"""
