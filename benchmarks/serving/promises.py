"""Whether what a plan promises with 90 % confidence holds on measurements that its costs have not seen.

    python benchmarks/serving/promises.py [--splits 4] [--json]

Measurements of others: those of `accuracy.py` (one server under loads of its own) and of `models.py` (BLIS's experiments),
below the knee. Half of a server's experiments are fitted, at random, several times. For each of the others whose client
sends when it should, the tightest limit is taken that a plan of this server for this load keeps in 29 of 32 draws of the
costs, so that nothing is to spare; towards the knee limits are tightened as those of a plan are. It holds if the measurement
is within that limit. Judged are P90 and P99 of the time to the first token and of the whole, and the mean time between
tokens. The interval of the share resamples experiments, since figures of one go together.
The files are not part of this project: `FORERUN_SHARED` names the folder that has `data/serving-llm`. Exit code 1 if the
measurements are absent, or if the share is not from 85 to 95 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from accuracy import QWEN, RATES, SHARED, hardware, trial
from models import cases, start_of

from forerun.serving.llm.calibration.calibrate import comparison, interval_errors, spread_of, stating
from forerun.serving.llm.calibration.fitting import Trial, fit
from forerun.serving.llm.calibration.knee import STEP, growth
from forerun.serving.llm.calibration.physics import Physics
from forerun.serving.llm.calibration.replay import replay
from forerun.serving.llm.inputs.model import Cost
from forerun.serving.llm.plan.confidence import WORLDS
from forerun.serving.llm.plan.draws import drawn, tightened
from forerun.serving.llm.scenario.language_model import FitRecord, Limit
from forerun.serving.scenario.limits import may_miss

CONFIDENCE: Final = 0.9
HOLDS: Final = (0.85, 0.95)
#: the figures that are judged, and a limit of each: how far a draw moves it is what the figure is off by there
LIMITS: Final = {
    "ttft_p90_ms": Limit("ttft", 1.0, 0.9),
    "ttft_p99_ms": Limit("ttft", 1.0, 0.99),
    "tpot_mean_ms": Limit("tpot", 1.0, None),
    "e2e_p90_ms": Limit("e2e", 1.0, 0.9),
    "e2e_p99_ms": Limit("e2e", 1.0, 0.99),
}
#: experiments of a server that there must be, so that each half says how far off the other is
LEAST: Final = 6


def servers() -> Iterator[tuple[str, Physics, list[Trial]]]:
    """Each server with enough experiments: its name, where fits of it begin, and the experiments below the knee."""
    sweep = [trial(QWEN, SHARED / "qwen3-14b-rate-sweep" / f"{name}.csv.gz") for name in RATES]
    yield "Qwen3-14B, rate sweep", hardware("qwen3-14b", 1), sweep
    every = cases()
    for group in dict.fromkeys(one.group for one in every):
        own = [one.trial for one in every if one.group == group]
        yield f"{group[0].split('/')[-1]}, {group[2]} x {group[1]}", start_of(group, own), own


def known(half: Sequence[Trial], start: Physics) -> tuple[Any, FitRecord]:
    """The coefficients fitted to experiments, and the record of the fit."""
    found = fit(half, start)
    left_out = []
    for one in half:
        others = [other for other in half if other is not one]
        left_out += comparison(one, fit(others, start, near=found.values).values, "left out")
    errors, _ = interval_errors(left_out, (), ())
    bare = FitRecord(experiments=len(half), prefill_tokens=0, decodes=0, kv_tokens=0, step_error=0.0)
    record = stating(bare, errors)
    return found.values, msgspec.structs.replace(record, spread=spread_of(half, found, record.step_error))


def promised(values: Any, record: FitRecord, unseen: Trial) -> dict[str, float]:
    """The tightest limit of each figure that a plan keeps with the confidence, at this load."""
    cost = Cost.of(values, record, record.spread)
    model = replace(unseen.model, cost=cost, limits=tuple(LIMITS.values()))
    load, replicas = unseen.experiment.load, unseen.replicas
    stated, above, below = (
        replay(model, replicas, load, cost.longer(factor)).figures for factor in (1.0, 1 + STEP, 1 - STEP)
    )
    seen: dict[str, list[float]] = {name: [] for name in LIMITS if name in unseen.compared}
    for number in range(1, WORLDS + 1):
        world = drawn(model, 0, number)
        moved = dict(zip(LIMITS, (limit.limit_ms for limit in world.limits)))
        figures = replay(world, replicas, load, world.cost).figures
        for name, own in seen.items():
            grows = growth(stated[name], above[name], below[name])
            own.append(figures[name] / tightened(moved[name], LIMITS[name].limit_ms, grows))
    last = WORLDS - 1 - may_miss(CONFIDENCE, WORLDS)
    return {name: sorted(own)[last] for name, own in seen.items()}


def halves(trials: Sequence[Trial], splits: int) -> Iterator[tuple[list[Trial], list[Trial]]]:
    """Random halves of some experiments, one to fit and one to judge."""
    rng = np.random.default_rng(0)
    for _ in range(splits):
        order = rng.permutation(len(trials)).tolist()
        middle = len(trials) // 2
        yield [trials[i] for i in order[:middle]], [trials[i] for i in order[middle:]]


def shares(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many promises hold, with a 90 % interval over experiments."""
    names = list(dict.fromkeys((row["server"], row["experiment"]) for row in rows))
    by = {name: [row for row in rows if (row["server"], row["experiment"]) == name] for name in names}
    inside = np.array([sum(row["holds"] for row in own) for own in by.values()], dtype=float)
    count = np.array([len(own) for own in by.values()], dtype=float)
    chosen = np.random.default_rng(1).integers(len(names), size=(2000, len(names)))
    drawn_shares = inside[chosen].sum(axis=1) / count[chosen].sum(axis=1)
    low, high = np.quantile(drawn_shares, (0.05, 0.95))
    return {
        "promises": len(rows),
        "experiments": len(names),
        "holds": round(float(inside.sum() / count.sum()), 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "room": round(float(np.median([row["promised"] / row["measured"] - 1 for row in rows])), 4),
    }


def main() -> int:
    """Fit halves, judge the others, print; 1 where too few or too many hold, or the measurements are absent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not SHARED.is_dir():
        print(f"no measurements at {SHARED}; set FORERUN_SHARED", file=sys.stderr)
        return 1
    rows: list[dict[str, Any]] = []
    for name, start, trials in servers():
        if len(trials) < LEAST:
            continue
        for split, (half, others) in enumerate(halves(trials, given.splits)):
            values, record = known(half, start)
            print(f"{name}, half {split}: {record}", file=sys.stderr, flush=True)
            for one in others:
                if one.experiment.holds_back:
                    continue
                for figure, limit_ms in promised(values, record, one).items():
                    measured = one.experiment.measured[figure]
                    rows.append(
                        {
                            "server": name,
                            "experiment": one.experiment.name,
                            "split": split,
                            "figure": figure,
                            "promised": round(limit_ms, 4),
                            "measured": round(measured, 4),
                            "holds": bool(measured <= limit_ms),
                        }
                    )
    whole = shares(rows)
    parts = {
        key: {
            value: shares([row for row in rows if row[key] == value])
            for value in dict.fromkeys(row[key] for row in rows)
        }
        for key in ("figure", "server")
    }
    figures = {"confidence": CONFIDENCE, "bar": HOLDS, "pooled": whole, **parts}
    if given.json:
        print(json.dumps(figures))
    else:
        print(f"all: {whole}")
        for title, part in parts.items():
            for name, own in part.items():
                print(f"{title} {name}: {own}")
    return int(not HOLDS[0] <= whole["holds"] <= HOLDS[1])


if __name__ == "__main__":
    sys.exit(main())
