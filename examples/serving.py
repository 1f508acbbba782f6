"""What is the cheapest pipeline of four image models that keeps its objective, and how far was the old one from it?

Measured profiles, bursty traffic. Run: python examples/serving.py
"""

import forerun

scenario = forerun.load(forerun.demo("serving").scenario)
now = forerun.simulate(scenario)
attained, interval = now.summary["attainment"], now.intervals["attainment"]
print(f"now: {attained:.1%} within the objective (95 %: {interval.low:.1%} to {interval.high:.1%})")
print(f"why: {now.why}")

plan = forerun.plan(scenario).check()  # verified by a checker that shares no code with the planner
print(f"the cheapest that keeps it: {plan.why}")
saved = plan.summary["cost_now_usd_per_h"] - plan.summary["cost_usd_per_h"]
print(
    f"it costs {plan.summary['cost_usd_per_h']:.2f} $/h, {saved:.2f} less, and keeps {plan.summary['attainment']:.1%}"
)
assert saved > 0 and plan.summary["attainment"] >= 0.99
