"""Draws common-random-numbers.svg: how much narrower a difference is where both variants meet the same seeds.

    python docs/figures/common_random_numbers.py

Two batching policies of the serving demonstration at 90 queries/s, simulated on 60 seeds. For the first n seeds: half the
95 % interval of the difference of mean latencies, once paired, once as if the variants had met different seeds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import forerun
from forerun.core.catalog import demo
from forerun.core.report.images import svg
from forerun.core.result.figures import Axis, Figure
from forerun.core.result.stats import mean_interval, paired_interval

SEEDS = 60
SHOWN = (5, 10, 15, 20, 30, 40, 60)
PATIENT = "{name: timeout, delay: 5ms}"
COMMON, APART = "common seeds", "different seeds"
BATCHING, LIMIT = "configuration.ResNet.batching", "configuration.ResNet.max_batch"
RATE_RPS = 90
SETTINGS = ("trace.queries=1000", "intervals.replications=0", "record=latency")


def latencies(setting: str, rate_rps: int, first_seed: int) -> np.ndarray:
    """float64[SEEDS], ms: mean latency with a setting, on the seeds from the first on."""
    settings = [*SETTINGS, f"trace.process.rate_rps={rate_rps}", setting]
    scenarios = (forerun.load(demo("serving").scenario, settings, seed=first_seed + n) for n in range(SEEDS))
    return np.array([forerun.simulate(scenario).summary["latency_mean_ms"] for scenario in scenarios])


def half_widths(one: str, other: str, rate_rps: int) -> list[tuple[int, float, float]]:
    """(seeds, half width in ms with common seeds, with different ones) of the difference between two settings."""
    first, second, elsewhere = (
        latencies(one, rate_rps, 0),
        latencies(other, rate_rps, 0),
        latencies(other, rate_rps, 1000),
    )
    found = []
    for count in SHOWN:
        paired = paired_interval(first[:count], second[:count])
        alone = [mean_interval(values[:count]) for values in (first, elsewhere)]
        apart = np.hypot(*[(interval.high - interval.low) / 2 for interval in alone])
        found.append((count, (paired.high - paired.low) / 2, float(apart)))
    return found


def figure() -> Figure:
    """The half widths as a figure."""
    seeds, widths, names = [], [], []
    for count, common, apart in half_widths(f"{BATCHING}=greedy", f"{BATCHING}={PATIENT}", RATE_RPS):
        seeds += [count, count]
        widths += [common, apart]
        names += [COMMON, APART]
    return Figure(
        id="common-random-numbers",
        title="Common seeds make differences visible",
        kind="line",
        x=Axis("seeds", "seeds"),
        y=Axis("half", "half width of the 95 % interval", "ms"),
        data={"seeds": seeds, "half": widths, "way": names},
        series="way",
        order=(APART, COMMON),
        caption="Difference of the mean latency between greedy batching and a delay of 5 ms, serving "
        f"demonstration at {RATE_RPS} queries/s. Paired on common seeds the interval is "
        "that much narrower for the same runs.",
    )


if __name__ == "__main__":
    Path(__file__).with_name("common-random-numbers.svg").write_text(svg(figure()), encoding="utf-8")
