"""How often may nodes vanish before on-demand nodes are cheaper than spot?

A 4-billion-parameter model on 64 preemptible nodes. Run: python examples/spot.py
"""

import forerun

print("removals a minute   useful   lost   $ per million samples (95 %)")
for rate in (0.02, 0.08, 0.163, 0.4):
    setting = [
        f"fleet.removals_per_min={rate}",
        f"fleet.adds_per_min={0.88 * rate}",
        "trials=400",
        "goal={}",
    ]
    result = forerun.simulate(forerun.load(forerun.demo("spot").scenario, setting)).check()
    figures, interval = result.summary, result.intervals["usd_per_million_samples"]
    print(
        f"{rate:17}   {figures['useful_share']:6.1%} {figures['lost_share']:6.1%}"
        f"   {figures['usd_per_million_samples']:7.0f} ({interval.low:.0f} to {interval.high:.0f})"
    )

scenario = forerun.load(forerun.demo("spot").scenario)
nodes = scenario.job.depth * scenario.job.max_pipelines
samples_per_h = 3600 * scenario.job.samples_per_step / scenario.job.step_s[nodes]
on_demand = 1e6 * nodes * scenario.prices.on_demand_usd_per_h / samples_per_h
print(f"all on demand: {on_demand:.0f} $ per million samples, nothing lost")
assert figures["usd_per_million_samples"] > on_demand  # at the last level it is
