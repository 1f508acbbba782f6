"""Intervals of a policy's savings: what covers a new deployment in the true world, and what does not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.errors import ForerunError
from forerun.core.result.stats import mean_interval
from forerun.energy.engine.batch import Work, run_many
from forerun.energy.inputs.resampling import resampled_workload
from forerun.energy.inputs.workload import Workload
from forerun.energy.policies.fixed import Fixed
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import Pair
from forerun.energy.policy.rules import Rules
from forerun.energy.summary.savings import of_attempts, reference

from ..conftest import cases

SPEC = Pair(batch_size=PruningGts(), limit=Jit())
RECURRENCES, TRIALS, RECORDED = 24, 16, 5
POWER = {
    size: {250.0: (seconds, 225.0), 125.0: (1.3 * seconds, 119.0)}
    for size, seconds in ((8, 30.0), (16, 20.0), (32, 16.0))
}


def savings(workload: Workload, seeds: range) -> list[float]:
    """Energy saved against the default in one run a seed; runs in which the policy fails are left out."""
    found = []
    against = reference(workload, 0.5)
    for seed in seeds:
        try:
            (log,) = run_many(
                Work(workload, SPEC, eta=0.5, beta=2.0, rules=Rules(), recurrences=RECURRENCES), [seed]
            )
        except ForerunError:
            continue
        found.append(of_attempts(log, RECURRENCES, against).energy)
    return found


def coverage(make_toy: Callable[..., Workload], worlds: int, trials: int) -> tuple[int, dict[str, int]]:
    """Worlds with log-normal epochs of a log-sd between 0.05 and 0.3, of which five runs a size were recorded.

    How many had a deployment, which meets the true law; and in how many of those each interval contained it.
    """
    rng = np.random.default_rng(0)
    covered = {"seeds": 0, "two-level": 0}
    deployments = 0
    for _ in range(worlds):
        law = {size: (rng.normal(3.2, 0.15) + 0.5 * (size == 32), rng.uniform(0.05, 0.3)) for size in POWER}

        def world(runs: int, law: dict[int, tuple[float, float]] = law) -> Workload:
            paths = {
                size: [max(1, round(math.exp(rng.normal(*of)))) for _ in range(runs)]
                for size, of in law.items()
            }
            return make_toy(paths, POWER, default=32, max_epochs=400, rules=Rules())

        recorded, true = world(RECORDED), world(100)
        deployed = savings(true, range(7, 8))
        if not deployed:
            continue
        deployments += 1
        both = [
            value
            for number in range(trials)
            for value in savings(resampled_workload(recorded, rng), range(number, number + 1))
        ]
        for name, values in (("seeds", savings(recorded, range(trials))), ("two-level", both)):
            covered[name] += min(values) <= deployed[0] <= max(values)
    return deployments, covered


def test_two_levels_cover_a_new_deployment_and_seeds_alone_do_not(make_toy: Callable[..., Workload]) -> None:
    """Of a few worlds; `benchmarks/energy/intervals.py` counts many more, with more runs each."""
    deployments, covered = coverage(make_toy, worlds := cases(14, 24), TRIALS)
    assert deployments >= 0.8 * worlds
    assert covered["two-level"] >= 0.8 * deployments
    assert covered["seeds"] <= 0.75 * deployments


EPOCH_J = {32: 104.0 * 171.0, 64: 80.0 * 188.0}
VARIANTS = ("default", Fixed(batch_size=32))


def write_job(folder: Path, epochs: dict[int, list[int]]) -> Path:
    """A scenario of a job that is trained eight times, with these recorded epochs by batch size."""
    runs = [f"{size},{at},{one}" for size, recorded in epochs.items() for at, one in enumerate(recorded)]
    (folder / "train.csv").write_text("\n".join(["batch_size,run,target_epoch", *runs]) + "\n")
    power = "batch_size,power_limit,time_per_epoch,average_power\n32,200,104,171\n64,200,80,188\n"
    (folder / "power.csv").write_text(power)
    (folder / "s.yaml").write_text(
        "domain: energy\njob: {max_epochs: 400, default_batch_size: 64}\n"
        "trace: {train: train.csv, power: {a: power.csv}}\npolicy: default\neta: 1\nrecurrences: 8\n"
    )
    return folder / "s.yaml"


def compared_worlds(folder: Path, worlds: int, seeds: int) -> dict[str, float]:
    """Of worlds with log-normal epochs, of which 4, 5 or 8 runs a size were recorded: the share in which an interval of
    `forerun.compare` contains the true difference of two batch sizes, beside Student's t over seeds of the record."""
    rng = np.random.default_rng(3)
    held = {"answered": 0, "compare": 0, "Student's t over seeds": 0}
    for _ in range(worlds):
        law = {size: (rng.normal(3.2, 0.15), rng.uniform(0.05, 0.3)) for size in EPOCH_J}
        count = int(rng.choice([4, 5, 8]))
        epochs = {size: np.maximum(1, np.round(np.exp(rng.normal(*of, 50_000)))) for size, of in law.items()}
        each = {size: float(many.mean()) * EPOCH_J[size] for size, many in epochs.items()}
        recorded = {size: many[:count].astype(int).tolist() for size, many in epochs.items()}
        scenario = forerun.load(write_job(folder, recorded))
        found = forerun.compare(scenario, VARIANTS, objective="energy_j", seeds=seeds)
        interval = next(one.difference_interval for one in found.standings if one.difference is not None)
        truth = 8 * (each[32] - each[64])
        held["answered"] += interval is not None
        held["compare"] += interval is not None and interval.low <= truth <= interval.high
        picks = [rng.choice(recorded[size], (seeds, 8)).sum(axis=1) * EPOCH_J[size] for size in (32, 64)]
        student = mean_interval(picks[0] - picks[1])
        held["Student's t over seeds"] += student.low <= truth <= student.high
    return {name: number / worlds for name, number in held.items()}


def test_comparisons_count_the_recorded_runs_as_a_sample(tmp_path: Path) -> None:
    """Seeds draw from the same few recorded runs: over them alone one interval in four contains the true difference."""
    shares = compared_worlds(tmp_path, cases(8, 16), 10)
    assert shares["answered"] == 1 and shares["compare"] >= 0.8
    assert shares["Student's t over seeds"] <= 0.5


def test_more_seeds_do_not_narrow_an_interval_of_few_recorded_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first seed is the record itself; fewer than four runs of a size have no interval, one run alone is exact."""
    recorded = {32: [20, 26, 23, 30, 21], 64: [19, 24, 22, 17, 27]}
    scenario = forerun.load(write_job(tmp_path, recorded))
    widths = []
    for seeds in (10, 30):
        found = forerun.compare(scenario, VARIANTS, objective="energy_j", seeds=seeds)
        interval = next(one.difference_interval for one in found.standings if one.difference is not None)
        assert interval is not None and f"{seeds} resamples of 5 recorded runs" in found.method
        widths.append(interval.high - interval.low)
    assert widths[1] > 0.6 * widths[0]
    first = next(one.draws[0] for one in found.standings if one.variant.name == "default")
    assert first == forerun.simulate(scenario).summary["energy_j"]

    (tmp_path / "study.yaml").write_text("base: s.yaml\naxes: {policy: [default, oracle]}\nseeds: 5\n")
    store = str(tmp_path / "one.sqlite")
    assert command_line(["study", str(tmp_path / "study.yaml"), "--store", store, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert "seeds resample the recorded runs" in data["notes"][0] and data["points"][0]["intervals"]

    few = forerun.load(write_job(tmp_path, {size: runs[:3] for size, runs in recorded.items()}))
    found = forerun.compare(few, VARIANTS, objective="energy_j", seeds=5)
    assert all(
        one.p is None and one.interval is None and one.difference_interval is None for one in found.standings
    )
    assert "no interval and no p value, as some setting was recorded fewer than 4 times" in found.method
    single = forerun.load(write_job(tmp_path, {size: runs[:1] for size, runs in recorded.items()}))
    assert forerun.compare(single, VARIANTS, objective="energy_j", seeds=5).exact
