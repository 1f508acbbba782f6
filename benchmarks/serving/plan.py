"""How long plans take: the exact search and the greedy minimiser on 96 settings, processor time, after compiling.

    python benchmarks/serving/plan.py [--json]

Every plan is first counted again by the domain's engine. The greedy runs twice: remembering stages, as here, and
simulating the whole pipeline for each candidate, as its authors do. Exit code 1 if a plan is wrong or a floor is missed:
exact total at most the (remembering) greedy's, none over 20 times its greedy, median under 100 ms, none over 1 s.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from forerun.replication.inferline import published
from forerun.replication.inferline.legacy_gamma import LegacyGamma
from forerun.replication.inferline.planner import image_space
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.inputs.pipeline import Edge, Pipeline, Service, Stage
from forerun.serving.plan.exact import Found, cheapest
from forerun.serving.plan.greedy import Steps, greedy
from forerun.serving.plan.space import Space
from forerun.serving.plan.stage_runs import StageRuns
from forerun.serving.policies.greedy import Greedy

QUERIES = 20_000
ORDER = ("Inception", "ResNet", "KSVM", "LogReg")


def settings() -> list[Space]:
    """Four rates, three burstinesses, four objectives, two price lists; 20,000 queries, 200 may miss."""
    found = []
    unit_prices = published()["notebook"]["prices_per_replica"]
    for rate in (20, 50, 100, 200):
        for scv in (0.1, 1.0, 4.0):
            process = LegacyGamma(rate_rps=float(rate), scv=scv, gamma_seed=9000 + 10 * rate + round(scv))
            arrivals = process.arrivals_ms(0, n=QUERIES)
            for slo_ms in (200.0, 350.0, 500.0, 1000.0):
                space = image_space(arrivals, slo_ms, 200)
                units = tuple(
                    tuple(replace(offer, price=unit_prices[offer.hardware]) for offer in offers)
                    for offers in space.offers
                )
                found += [space, space.under(offers=units)]
    return found


def timed(make: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds, and what was made."""
    begin = time.process_time()
    made = make()
    return time.process_time() - begin, made


def whole_pipelines(space: Space) -> Steps:
    """The greedy with nothing remembered between candidates."""
    return greedy(space, lambda candidate: StageRuns(space, space.traffic).misses(candidate), ORDER)


def remembered(space: Space) -> Steps:
    """The greedy on stages that are simulated once."""
    return greedy(space, StageRuns(space, space.traffic).misses, ORDER)


def holds(space: Space, found: Found) -> bool:
    """Whether the simulator counts the same misses."""
    if found.configuration is None:
        return True
    stages = tuple(
        Stage(name, tuple(Edge(p) for p in parents), 1, 1, Service(np.array([0.0, 1.0])), Greedy())
        for name, parents in zip(space.names, space.parents)
    )
    pipeline = space.pipeline(found.configuration, Pipeline(stages))
    run = simulate_stagewise(pipeline, space.traffic.arrivals_ms, space.slo_ms, record="counts")
    return run.misses == found.misses[0] <= space.allowed


def main() -> int:
    """Measure, print, judge."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    spaces = settings()
    cheapest(spaces[0])
    exact, kept, whole, wrong = [], [], [], 0
    for space in spaces:
        seconds, found = timed(lambda space=space: cheapest(space))
        exact.append(seconds)
        wrong += not holds(space, found)
        kept.append(timed(lambda space=space: remembered(space))[0])
        whole.append(timed(lambda space=space: whole_pipelines(space))[0])
    figures = {
        "settings": len(spaces),
        "wrong_plans": wrong,
        "exact_median_ms": 1e3 * float(np.median(exact)),
        "exact_max_ms": 1e3 * max(exact),
        "exact_total_s": sum(exact),
        "greedy_total_s": sum(kept),
        "greedy_whole_pipelines_total_s": sum(whole),
        "exact_over_greedy_total": sum(exact) / sum(kept),
        "exact_over_greedy_worst": max(a / b for a, b in zip(exact, kept)),
    }
    print(
        json.dumps(figures, indent=1)
        if given.json
        else "\n".join(f"{k:32} {v:.4g}" for k, v in figures.items())
    )
    good = (
        wrong == 0
        and figures["exact_median_ms"] < 100
        and figures["exact_max_ms"] < 1000
        and figures["exact_over_greedy_total"] <= 1
        and figures["exact_over_greedy_worst"] <= 20
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
