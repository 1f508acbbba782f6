"""How often an interval over blocks of one recorded log holds the difference of two schedulers on all logs of its kind.

Run as `python benchmarks/statistics/blocks.py [--json]`. Logs of 14 days are drawn, each is simulated under `fifo-
backfill-unreserved` and under `srtf`, and the interval that `forerun compare` gives is asked whether it holds the mean
difference over all logs of the kind. Steady: many short jobs, days alike; queues seldom outlast a day. Congested: few
long jobs, days that differ; waits come from rare queues of several days, which most logs do not contain. Exits with 1
where the interval of the share of deadlines met holds the difference of steady logs less often than 80 %.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import forerun
from forerun.cluster.domain import DOMAIN as CLUSTER
from forerun.core.rng import stream
from forerun.core.study.blocks import BlockDifference, block_difference

LOGS: Final = 80
DAYS: Final = 14
GPUS: Final = 16
DURATION_SPREAD: Final = 1.0
FIGURES: Final = ("jct_mean_s", "jct_p99_s", "deadline_ratio")
FLOOR_PERCENT: Final = 80.0


@dataclass(frozen=True)
class Kind:
    """A kind of log: jobs a day, the spread of the logarithm of a day's load, and the mean load of the cluster."""

    jobs_a_day: int
    day_spread: float
    load: float


KINDS: Final = {"steady": Kind(150, 0.1, 0.5), "congested": Kind(30, 0.4, 0.8)}

SCENARIO: Final = """
domain: cluster
trace: {file: log.csv, slack: 2}
machines: {nodes: [{count: 4, gpus: 4}]}
policy: fifo-backfill-unreserved
"""


def write_log(path: Path, kind: Kind, rng: np.random.Generator) -> None:
    """A log of jobs of 1 to 4 GPUs that come evenly through each day; days differ in how many."""
    factors = rng.lognormal(-(kind.day_spread**2) / 2, kind.day_spread, DAYS)
    counts = [rng.poisson(kind.jobs_a_day * one) for one in factors]
    at_s = np.sort(np.concatenate([86_400 * (day + rng.random(n)) for day, n in enumerate(counts)]))
    gpus = rng.choice([1, 2, 4], len(at_s), p=[0.6, 0.25, 0.15])
    mean_s = kind.load * GPUS * 86_400 / kind.jobs_a_day / 1.7  # 1.7 GPUs a job
    duration_s = mean_s * rng.lognormal(-(DURATION_SPREAD**2) / 2, DURATION_SPREAD, len(at_s))
    rows = (
        f"j{at},{int(a)},{g},{max(1, int(d))}" for at, (a, g, d) in enumerate(zip(at_s, gpus, duration_s))
    )
    path.write_text("\n".join(["job_id,submit_time,num_gpu,duration", *rows]) + "\n", encoding="utf-8")


def held(name: str, folder: Path) -> dict[str, dict[str, float]]:
    """For each figure, the percentage of intervals that hold the mean difference, and of those that leave out 0."""
    (folder / "base.yaml").write_text(SCENARIO, encoding="utf-8")
    found: dict[str, list[tuple[float, BlockDifference]]] = {figure: [] for figure in FIGURES}
    for log in range(LOGS):
        write_log(folder / "log.csv", KINDS[name], stream(51, name, log))
        scenario = forerun.load(folder / "base.yaml")
        runs = [forerun.simulate(scenario.with_(policy=policy)) for policy in _policies(folder)]
        for figure in FIGURES:
            gap = runs[1].summary[figure] - runs[0].summary[figure]
            over = block_difference(CLUSTER.units(runs[1]), CLUSTER.units(runs[0]), figure, gap)
            assert over is not None
            found[figure].append((gap, over))
    figures = {}
    for figure, each in found.items():
        truth = float(np.mean([gap for gap, _ in each]))
        inside = sum(over.interval.low <= truth <= over.interval.high for _, over in each)
        figures[figure] = {
            "held": 100 * inside / LOGS,
            "told apart": 100 * sum(over.p <= 0.05 for _, over in each) / LOGS,
            "said to be correlated": 100 * sum(over.correlated for _, over in each) / LOGS,
        }
    return figures


def _policies(folder: Path) -> list[object]:
    return [
        forerun.load(folder / "base.yaml", [f"policy={name}"]).policy
        for name in ("fifo-backfill-unreserved", "srtf")
    ]


def main() -> int:
    """Print the percentages, or their record as JSON; 1 if the floor is missed."""
    with tempfile.TemporaryDirectory() as name:
        shares = {kind: held(kind, Path(name)) for kind in KINDS}
    if "--json" in sys.argv[1:]:
        print(json.dumps({"logs": LOGS, "days": DAYS, "percent": shares}))
    else:
        for kind, figures in shares.items():
            print(f"{kind}: {figures}")
    return int(shares["steady"]["deadline_ratio"]["held"] < FLOOR_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
