"""Tuners on steps of load that nobody planned for: attainment, and cost over that of somebody who knew.

    python benchmarks/serving/tuning.py            # 24 steps; a minute or two
    python benchmarks/serving/tuning.py --steps 6

Rates, ratios and burstiness are drawn; the image pipeline is planned exactly for a sample of the first rate. The clairvoyant
may change replicas only: of all pairs of replica vectors near what the two loads need (one before and after the step, one
from 5 s before it to its end), the cheapest that keeps 99 % over the run. With `--json` also what the reproduction of
InferLine's tuner finds on its own steps.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import replace

import numpy as np

from forerun.core.rng import stream
from forerun.replication.inferline.tuner import PHASE_S, SETTINGS, tuned, tuner, world
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.policies.coarse import Coarse
from forerun.serving.policies.inferline import InferLine
from forerun.serving.policies.rehearsal import Rehearsal
from forerun.serving.policy.handover import Handover
from forerun.serving.policy.tuning import Tuner

STEPS = 24
#: what the steps are drawn from: queries a second, times so much for a while, squared coefficients of variation
RATES_RPS = (50, 250)
RATIOS = (1.2, 1.7)
SCVS = (0.5, 1.0, 2.0, 4.0)

TUNERS: dict[str, Tuner] = {
    "inferline": InferLine(),
    "inferline, per model": InferLine(scale_down_rho="per_model"),
    "coarse, mean": Coarse(),
    "coarse, peak": Coarse(rate="peak"),
    "rehearsal": Rehearsal(),
    "rehearsal, headroom 1.25": Rehearsal(headroom=1.25),
}


def main() -> None:
    """Print one line a step and the totals."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=STEPS)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    steps = given.steps
    draws = stream(1, "tuning benchmark")
    kept = dict.fromkeys(TUNERS, 0)
    ratios: dict[str, list[float]] = {name: [] for name in TUNERS}
    seconds = dict.fromkeys(TUNERS, 0.0)
    for _ in range(steps):
        rate, ratio = float(draws.uniform(*RATES_RPS)), float(draws.uniform(*RATIOS))
        scv = float(draws.choice(SCVS))
        handover, arrivals = world(rate, ratio, scv)
        best = clairvoyant(handover, arrivals)
        line = f"{rate:4.0f}/s x {ratio:.2f}, scv {scv:g}: clairvoyant {best:.2f} $/h"
        for name, spec in TUNERS.items():
            begin_s = time.process_time()
            run = tuned(spec, handover, arrivals)
            seconds[name] += time.process_time() - begin_s
            kept[name] += run.missed <= 0.01
            ratios[name].append(run.usd_per_h / best)
            line += f" | {name} {1 - run.missed:.4f} {run.usd_per_h:.2f}"
        if not given.json:
            print(line, flush=True)
    if given.json:
        found = {
            name: {
                "kept": kept[name],
                "mean_cost": float(np.mean(ratios[name])),
                "most_cost": max(ratios[name]),
                "run_s": seconds[name] / steps,
            }
            for name in TUNERS
        }
        own = {row.name: row.corrected for row in tuner(lambda _: None).rows}
        print(json.dumps({"steps": steps, "tuners": found, "reproduction": {"steps": len(SETTINGS), **own}}))
        return
    for name in TUNERS:
        print(
            f"{name:26} keeps 99 % on {kept[name]} of {steps}; {np.mean(ratios[name]):.2f} times the clairvoyant's cost "
            f"(most {max(ratios[name]):.2f}); {seconds[name] / steps:.2f} s a run of four minutes"
        )


def clairvoyant(handover: Handover, arrivals: np.ndarray) -> float:
    """$ per hour of the cheapest pair of replica vectors that keeps 99 % (nan: none near what is needed does)."""
    step_ms, end_ms = 1e3 * PHASE_S, 2e3 * PHASE_S
    prices = handover.prices_usd_per_h
    length_ms = float(arrivals[-1] - arrivals[0])
    found = []
    near = [range(max(1, count - 1), count + 2) for count in handover.replicas]
    for low in itertools.product(*near):
        for more in itertools.product(range(3), repeat=len(low)):
            high = tuple(a + b for a, b in zip(low, more))
            dear = sum(p * (a * length_ms + b * (PHASE_S * 1e3 + 5000)) for p, a, b in zip(prices, low, more))
            found.append((dear / length_ms, low, high))
    for cost, low, high in sorted(found):
        stages = tuple(
            replace(stage, replicas=a, capacity=((step_ms - 5000, b), (end_ms, a)) if a != b else ())
            for stage, a, b in zip(handover.pipeline.stages, low, high)
        )
        pipeline = replace(handover.pipeline, stages=stages)
        run = simulate_stagewise(
            pipeline, arrivals, handover.slo_ms, record="counts", most_misses=len(arrivals) // 100
        )
        if run.misses <= len(arrivals) // 100:
            return cost
    return float("nan")


if __name__ == "__main__":
    main()
