"""Which scheduler meets most deadlines on sixteen GPUs, and is the difference more than luck?

Two hundred drawn jobs, the same ones for every scheduler, over five seeds. Run: python examples/cluster.py
"""

import forerun

scenario = forerun.load(forerun.demo("cluster").scenario)
found = forerun.compare(scenario, policies=["ef-accessctrl", "edf", "srtf", "fifo"], seeds=5)
for standing in found.standings:
    difference = standing.difference_interval
    against = (
        f" ({difference.low:+.1%} to {difference.high:+.1%} against {found.reference})" if difference else ""
    )
    print(f"{standing.variant.name:14} meets {standing.value:.1%} of the deadlines{against}")
print(f"why: {found.why}")
assert found.standings[0].variant.name == "ef-accessctrl"
