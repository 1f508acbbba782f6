"""How often an interval over resamples of one log holds the difference of two schedulers on all logs of its kind.

Run as `python benchmarks/statistics/resample.py [--json] [--kinds fresh] [--seeds 10]`. Logs with heavy-tailed durations and
loads of .7 to .95 are drawn, 200 in all. Each is resampled in blocks of a day under `fifo` and `sjf` as `forerun compare`
does it, and its interval is asked whether it holds the mean difference over 100 other logs of the kind. Beside it stand
Student's t over the same seeds and the bootstrap's percentile and basic intervals. On kinds like `trial` the scale of the
interval, how much farther its far end is and the rule that refuses were chosen; `fresh` are others, and the record is of
them. Exits with 1 where fewer than 60 % of the logs are answered, or intervals hold less than 90 % or more than 97 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import forerun
from forerun.core.result.stats import mean_interval
from forerun.core.rng import stream

LOGS: Final = 25
OTHERS: Final = 100
FIGURE: Final = "jct_mean_s"
POLICIES: Final = ("fifo", "sjf")
ANSWERED_PERCENT: Final = 60.0
HELD_PERCENT: Final = (90.0, 97.0)

SCENARIO: Final = """
domain: cluster
trace: {resample: {file: log.csv}}
machines: {nodes: [{count: 4, gpus: 4}]}
policy: fifo
"""


@dataclass(frozen=True)
class Kind:
    """A kind of log. tail: the spread of the logarithm of durations, or where negative the exponent of a Pareto tail."""

    jobs_a_day: int
    days: int
    load: float
    tail: float
    day_spread: float

    @property
    def name(self) -> str:
        """In words."""
        tail = f"lognormal {self.tail:g}" if self.tail > 0 else f"Pareto {-self.tail:g}"
        return f"load {self.load:g}, {tail}, {self.days} days of {self.jobs_a_day} jobs"


KINDS: Final = {
    "trial": (
        Kind(30, 20, 0.7, 1.5, 0.0),
        Kind(60, 30, 0.8, 1.5, 0.3),
        Kind(60, 20, 0.95, 2.0, 0.2),
        Kind(30, 60, 0.85, 2.0, 0.3),
        Kind(60, 30, 0.7, -1.5, 0.0),
        Kind(60, 30, 0.9, -2.0, 0.2),
        Kind(20, 90, 0.9, 1.8, 0.0),
        Kind(80, 30, 0.95, 1.2, 0.2),
    ),
    "fresh": (
        Kind(50, 21, 0.7, 1.8, 0.2),
        Kind(40, 28, 0.75, 1.6, 0.3),
        Kind(60, 24, 0.8, 2.2, 0.1),
        Kind(45, 35, 0.85, -1.7, 0.0),
        Kind(70, 16, 0.85, 1.4, 0.2),
        Kind(40, 42, 0.9, 2.0, 0.2),
        Kind(50, 28, 0.9, -2.2, 0.3),
        Kind(60, 28, 0.95, 1.8, 0.0),
    ),
}


def write_log(path: Path, kind: Kind, rng: np.random.Generator) -> None:
    """A log of jobs of 1 to 4 GPUs that come evenly through each day; days differ in how many."""
    factors = rng.lognormal(-(kind.day_spread**2) / 2, kind.day_spread, kind.days)
    counts = [rng.poisson(kind.jobs_a_day * one) for one in factors]
    at_s = np.sort(np.concatenate([86_400 * (day + rng.random(n)) for day, n in enumerate(counts)]))
    gpus = rng.choice([1, 2, 4], len(at_s), p=[0.6, 0.25, 0.15])
    mean_s = kind.load * 16 * 86_400 / kind.jobs_a_day / 1.7  # 16 GPUs, 1.7 a job
    if kind.tail > 0:
        shape = rng.lognormal(-(kind.tail**2) / 2, kind.tail, len(at_s))
    else:
        shape = (1 + 1 / kind.tail) * (1 - rng.random(len(at_s))) ** (1 / kind.tail)
    duration_s = np.maximum(1, mean_s * shape).astype(int)
    rows = (f"j{at},{int(a)},{g},{d}" for at, (a, g, d) in enumerate(zip(at_s, gpus, duration_s)))
    path.write_text("\n".join(["job_id,submit_time,num_gpu,duration", *rows]) + "\n", encoding="utf-8")


def simulated(folder: Path) -> float:
    """The difference of the two schedulers on the log itself."""
    runs = (forerun.simulate(forerun.load(folder / "log.yaml", [f"policy={name}"])) for name in POLICIES)
    one, other = (float(run.summary[FIGURE]) for run in runs)
    return other - one


def asked(
    folder: Path, kind: Kind, seeds: int, logs: int = LOGS, others: int = OTHERS
) -> list[dict[str, Any]]:
    """What each log of a kind answers, by method: whether it holds the truth, and how wide it is against it."""
    (folder / "base.yaml").write_text(SCENARIO, encoding="utf-8")
    (folder / "log.yaml").write_text(
        SCENARIO.replace("{resample: {file: log.csv}}", "{file: log.csv}"), encoding="utf-8"
    )
    gaps = []
    for other in range(others):
        write_log(folder / "log.csv", kind, stream(61, kind.name, other))
        gaps.append(simulated(folder))
    truth = float(np.mean(gaps))
    answers = []
    for log in range(logs):
        write_log(folder / "log.csv", kind, stream(62, kind.name, log))
        comparison = forerun.compare(
            forerun.load(folder / "base.yaml"), POLICIES, objective=FIGURE, seeds=seeds
        )
        draws = {one.variant.name: np.array(one.draws) for one in comparison.standings}
        resamples = draws[POLICIES[1]] - draws[POLICIES[0]]
        ours = next(one for one in comparison.standings if one.difference is not None).difference_interval
        own, student = simulated(folder), mean_interval(resamples)
        low, high = np.quantile(resamples, [0.025, 0.975])
        ends = {
            "ours": None if ours is None else (ours.low, ours.high),
            "Student's t over the seeds": (student.low, student.high),
            "percentile": (low, high),
            "basic": (2 * own - high, 2 * own - low),
        }
        answers.append(
            {
                name: None
                if pair is None
                else (pair[0] <= truth <= pair[1], (pair[1] - pair[0]) / abs(truth))
                for name, pair in ends.items()
            }
        )
    return answers


def shares(answers: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By method, the percentage of logs that are answered, of these that hold the truth, and the median width."""
    figures = {}
    for name in answers[0]:
        known = [one[name] for one in answers if one[name] is not None]
        figures[name] = {
            "answered": 100 * len(known) / len(answers),
            "held": 100 * float(np.mean([held for held, _ in known])),
            "median width over the difference": float(np.median([width for _, width in known])),
        }
    return figures


def main() -> int:
    """Print the percentages, or their record as JSON; 1 if a floor is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kinds", choices=KINDS, default="fresh")
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    kinds = KINDS[given.kinds]
    with tempfile.TemporaryDirectory() as name:
        by_kind = {kind.name: asked(Path(name), kind, given.seeds) for kind in kinds}
    together = shares([one for answers in by_kind.values() for one in answers])
    record = {
        "logs": LOGS * len(kinds),
        "seeds": given.seeds,
        "percent": together,
        "ours by kind": {kind: shares(answers)["ours"] for kind, answers in by_kind.items()},
    }
    print(json.dumps(record, indent=None if given.json else 1))
    ours = together["ours"]
    return int(ours["answered"] < ANSWERED_PERCENT or not HELD_PERCENT[0] <= ours["held"] <= HELD_PERCENT[1])


if __name__ == "__main__":
    sys.exit(main())
