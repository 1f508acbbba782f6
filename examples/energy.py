"""Which batch size and power limit for a nightly retraining, and what does finding out cost?

Self-made measurements of a small model on two GPU types. Run: python examples/energy.py
"""

import forerun

scenario = forerun.load(forerun.demo("energy").scenario)

plan = forerun.plan(scenario).check()
print(f"with all measurements in hand: {plan.why}")

for policy in ("default", "pruning-gts", "joint"):
    learning = forerun.simulate(forerun.load(forerun.demo("energy").scenario, [f"policy={policy}"]))
    saved, interval = learning.summary["energy_saved_percent"], learning.intervals["energy_saved_percent"]
    print(
        f"{policy:12} saves {saved:5.1f} % of the energy over 60 nights, learning included "
        f"(95 %: {interval.low:.1f} to {interval.high:.1f}); cost over the best possible: "
        f"{learning.summary['cost_ratio_to_oracle']:.2f}"
    )
assert saved > 40
