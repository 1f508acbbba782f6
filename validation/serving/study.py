"""A pipeline for real at several loads, and the simulator on the same send times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forerun.core.errors import UsageError
from forerun.core.measure.progress import Tell
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.inputs.prepare import prepare
from forerun.serving.measure import study
from forerun.serving.measure.testbed import Testbed
from forerun.serving.scenario import Scenario
from validation.serving.fidelity import Judged, judge


@dataclass(frozen=True)
class Request:
    """What to run.

    Parameters
    ----------
    scenario : the pipeline, its configuration, the shape of its traffic, its objective.
    models : stage -> what its replicas compute; empty: they sleep as long as the scenario's service times say.
    samples : of every batch size in the profile (default: 40).
    loads : shares of what the busiest stage carries, a run each.
    repeats : runs of each load (default: 1).
    seconds : length of a run (default: 20).
    """

    scenario: Scenario
    models: Mapping[str, str] = field(default_factory=dict)
    samples: int = 40
    loads: tuple[float, ...] = (0.3, 0.5, 0.7, 0.9, 1.2)
    repeats: int = 1
    seconds: float = 20.0


def measure(asked: Request, tell: Tell) -> dict[str, Any]:
    """Profile the pipeline if it has models, run it at every load, and simulate the same.

    Replicas that sleep check the control: queues, batching, routing, order.

    Parameters
    ----------
    asked : what to run.
    tell : is given the progress in words.
    """
    scenario, gaps = asked.scenario, unit_gaps(asked.scenario)
    slo_ms, batch_times = scenario.slo_ms, []
    if asked.models:
        profiled = study.Request(scenario, asked.models, asked.samples)
        pipeline = study.pipeline_of(scenario, asked.models)
        models = [asked.models[name] for name in pipeline.names]
    else:
        pipeline = prepare(scenario).pipeline
        models = [""] * len(pipeline.stages)
    believed = pipeline
    with Testbed(pipeline, models) as testbed:
        if asked.models:
            measured = study.profile(profiled, testbed, tell)
            believed, slo_ms, _ = study.believed_of(profiled, pipeline, measured)
            batch_times = [record for each in measured for record in each.rows()]
        load = (asked.loads, asked.repeats, asked.seconds)
        rows = judge(testbed, believed, gaps, *load, slo_ms, scenario.seed, tell)
    return {
        "answer": _answer(rows),
        **_worst(rows),
        "fidelity": [row.record() for row in rows],
        "batch_times": batch_times,
    }


def unit_gaps(scenario: Scenario) -> Floats:
    """The trace's gaps, of mean one second."""
    arrivals = prepare(scenario).arrivals_ms
    gaps = np.diff(arrivals)
    if len(gaps) < 20 or not gaps.mean() > 0:
        raise UsageError.at(
            "$.trace", "a real run takes the shape of its traffic from it; give at least 21 queries"
        )
    unit: Floats = gaps * (1e3 / gaps.mean())
    return unit


def _worst(rows: Sequence[Judged]) -> dict[str, Any]:
    """How far predictions are off over the runs that were not disturbed, below overload."""
    good = [row for row in rows if not row.marks and row.load < 1]
    figures: dict[str, Any] = {"runs": len(rows), "runs_disturbed": sum(bool(row.marks) for row in rows)}
    if good:
        for name in ("p50", "p99"):
            errors = sorted(abs(row.error(name)) for row in good)
            figures |= {f"{name}_error_median": errors[len(errors) // 2], f"{name}_error_worst": errors[-1]}
    return figures


def _answer(rows: Sequence[Judged]) -> str:
    worst = _worst(rows)
    if "p50_error_worst" not in worst:
        return (
            f"{worst['runs_disturbed']} of {len(rows)} runs were disturbed: the model is not judged by them"
        )
    return (
        f"below overload and undisturbed, P50 is predicted within {worst['p50_error_worst']:.1%} and P99 within "
        f"{worst['p99_error_worst']:.1%} (median {worst['p99_error_median']:.1%}); {worst['runs_disturbed']} of "
        f"{worst['runs']} runs were disturbed"
    )
