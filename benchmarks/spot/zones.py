"""What `deadline.by_goodput` costs or saves: a fleet with a deadline, with and without it, on the same histories.

    python benchmarks/spot/zones.py [--json]

First one zone at several removal rates, then settings drawn at random (prices, rates, shapes, pauses, deadlines, rules, up
to three zones). Exit code 1 if any setting costs more than 2 % more with it than without, or a deadline is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from forerun.core.result.stats import normal_quantile
from forerun.core.scenarios import loads
from forerun.spot.engine.run import on_demand_alone, zone_run
from forerun.spot.inputs import prepare

RATES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.2, 2.4)
HISTORIES: Final = 20
SETTINGS: Final = 60
HISTORIES_OF_A_SETTING: Final = 8
#: the most that a setting may cost with it, over without it
MOST: Final = 1.02
JOB: Final = """domain: spot
seed: {seed}
horizon: {horizon_h}h
fleet: {fleet}
job: {{depth: 16, max_pipelines: 4, step_s: {{16: 18, 32: 11, 48: 9, 64: 8}}, samples_per_step: 288,
      reconfig: {reconfig_s}s, prep: {prep_s}s, write: {write_s}s, stall: {stall_s}s}}
growth: {growth}
prices: {{spot_usd_per_h: {usd_per_h}, on_demand_usd_per_h: 3.06}}
goal: {{steps: {steps}, deadline: {deadline_h}h}}
deadline: {{rule: {rule}, on_demand_nodes: 32, tick: {tick_min}min, egress_usd: {egress_usd}, by_goodput: {by_goodput}}}
zones: {zones}
"""
FLEET: Final = "{{name: per_node, removal_per_node_h: {:.4g}, return_per_node_h: {:.4g}, start: {}, cap: {}}}"
USUAL: Final = {
    "seed": 1, "horizon_h": 48, "reconfig_s": 88, "prep_s": 180, "write_s": 89, "stall_s": 9, "growth": "immediate",
    "usd_per_h": 0.8, "steps": 5000, "deadline_h": 26, "rule": "uniform_progress", "tick_min": 10, "egress_usd": 2,
    "zones": "[]",
}  # fmt: skip


def costs(setting: Mapping[str, Any], histories: int) -> dict[str, Any]:
    """Mean dollars and moves with and without it, dollars on on-demand nodes alone, deadlines missed."""
    found: dict[str, Any] = {"missed": 0}
    for name, value in (("with", "true"), ("without", "false")):
        scenario = loads(JOB.format(**setting, by_goodput=value))
        inputs = prepare(scenario)
        runs = [zone_run(inputs, trial) for trial in range(histories)]
        usd = np.array([run.cost_usd for run in runs])
        found |= {
            f"{name}_usd": float(usd.mean()),
            f"{name}_se_usd": float(usd.std(ddof=1) / len(usd) ** 0.5),
            f"{name}_moves": float(np.mean([run.moves for run in runs])),
        }
        ends = [run.replay.finished_s for run in runs]
        found["missed"] += sum(end is None or end > scenario.goal.deadline_s for end in ends)
    found["on_demand_usd"] = on_demand_alone(inputs).cost_usd
    return found


def drawn(rng: random.Random) -> dict[str, Any]:
    """A setting drawn at random, whose deadline on-demand nodes from the start would keep."""

    def fleet() -> str:
        start = rng.choice((16, 32, 48, 64))
        rate = 10 ** rng.uniform(-1.3, 0.5)
        return FLEET.format(rate, rate * rng.uniform(0.5, 8), start, max(start, rng.choice((32, 48, 64))))

    steps = rng.randrange(2000, 6000)
    write_s, stall_s = rng.choice((20, 89, 200)), rng.choice((0, 3, 9))
    alone_s = steps * (11 + stall_s / math.ceil(write_s / 11)) + 1800
    deadline_h = alone_s / 3600 * rng.uniform(1.05, 2.5)
    zones = [
        f"{{name: z{i}, fleet: {fleet()}, spot_usd_per_h: {rng.uniform(0.3, 2):.3f}}}"
        for i in range(rng.choice((0, 0, 1, 2)))
    ]
    return {
        "seed": rng.randrange(10**6),
        "horizon_h": round(deadline_h + 12),
        "fleet": fleet(),
        "reconfig_s": rng.choice((30, 88, 200)),
        "prep_s": rng.choice((60, 180, 400)),
        "write_s": write_s,
        "stall_s": stall_s,
        "growth": rng.choice(("immediate", "hazard")),
        "usd_per_h": round(rng.uniform(0.3, 2), 3),
        "steps": steps,
        "deadline_h": round(deadline_h, 3),
        "rule": rng.choice(("uniform_progress", "uniform_progress", "greedy", "spot_only")),
        "tick_min": rng.choice((5, 10, 20)),
        "egress_usd": rng.choice((0, 2, 20)),
        "zones": f"[{', '.join(zones)}]",
    }


def main() -> int:
    """Print both tables; 1 if it costs money somewhere."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    rates = {f"{rate}": costs(USUAL | {"fleet": FLEET.format(rate, 2, 32, 48)}, HISTORIES) for rate in RATES}
    rng = random.Random(86)
    settings = []
    for _ in range(SETTINGS):
        setting = drawn(rng)
        settings.append(costs(setting, HISTORIES_OF_A_SETTING) | {"setting": setting})
    ratio = np.array([one["with_usd"] / one["without_usd"] for one in settings])
    found = {
        "rates": rates,
        "settings": len(settings),
        "histories of a setting": HISTORIES_OF_A_SETTING,
        "settings that cost more than 0.1 % more": int((ratio > 1.001).sum()),
        "settings that cost more than 1 % more": int((ratio > 1.01).sum()),
        "settings that cost more than 1 % less": int((ratio < 0.99).sum()),
        "worst ratio": float(ratio.max()),
        "best ratio": float(ratio.min()),
        "mean ratio": float(ratio.mean()),
        "deadlines missed": sum(one["missed"] for one in (*rates.values(), *settings)),
    }
    if as_json:
        print(json.dumps(found))
    else:
        half = normal_quantile(0.975)
        for rate, one in rates.items():
            print(
                f"{rate:>4} removals per node-hour: with ${one['with_usd']:,.0f} (±{half * one['with_se_usd']:.0f}, "
                f"{one['with_moves']:.1f} moves), without ${one['without_usd']:,.0f} (±{half * one['without_se_usd']:.0f}, "
                f"{one['without_moves']:.1f} moves), on-demand ${one['on_demand_usd']:,.0f}"
            )
        for name, value in found.items():
            if name != "rates":
                print(f"{name}: {value:.4g}")
        worst = max(settings, key=lambda one: one["with_usd"] / one["without_usd"])
        print(f"worst: {worst}")
    return int(ratio.max() > MOST or found["deadlines missed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
