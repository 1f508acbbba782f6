"""Fleets to tune: the reference ones, steps of load, and tuners that decide at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from forerun.serving.inputs.pipeline import Law, Pipeline
from forerun.serving.inputs.profile import ARTIFACT_PRICES_USD_PER_H, embedded_profile
from forerun.serving.policy.handover import Handover
from forerun.serving.policy.tuning import FleetView, Keep, Scale, Tuner, TunerPolicy, Tuning

from .conftest import notebook_pipeline
from .random_pipelines import random_pipeline


def handed_over(
    config: Mapping[str, Any],
    sample_ms: np.ndarray,
    slo_ms: float = 350.0,
    prices: Mapping[str, float] | None = None,
) -> Handover:
    """The four image models as configured: model -> (hardware, max batch, replicas)."""
    pipeline, profile = notebook_pipeline(dict(config)), embedded_profile()
    placed = [(name, *config[name]) for name in pipeline.names]
    costs = prices or ARTIFACT_PRICES_USD_PER_H
    return Handover(
        pipeline,
        tuple(costs[hardware] for _, hardware, _, _ in placed),
        tuple(
            next(row.throughput_qps for row in profile.rows(name, hardware) if row.batch == batch)
            for name, hardware, batch, _ in placed
        ),
        (1.0,) * 4,
        (1.0,) * 4,
        sample_ms,
        slo_ms,
        0.99,
    )


def step_of_load(
    seed: int, rate: float, ratio: float, scv: float, phase_s: float = 60.0
) -> tuple[np.ndarray, np.ndarray]:
    """A sample at `rate`, and arrivals at `rate`, `ratio` times it, and twice as long at `rate` again."""
    rng = np.random.default_rng(seed)

    def gaps(rate: float, length_s: float) -> np.ndarray:
        drawn = rng.gamma(1 / scv, scv * 1e3 / rate, size=int(1.5 * rate * length_s) + 200)
        instants = np.cumsum(drawn)
        return instants[instants < length_s * 1e3]

    sample = np.concatenate([[0.0], gaps(rate, 120.0)])
    parts = [
        gaps(rate, phase_s),
        gaps(ratio * rate, phase_s) + 1e3 * phase_s,
        gaps(rate, 2 * phase_s) + 2e3 * phase_s,
    ]
    return sample, np.concatenate(parts)


def random_fleet(seed: int) -> tuple[Handover, np.ndarray]:
    """A random pipeline handed over, with arrivals, half of them on an integer clock; no changes of its own."""
    pipeline, arrivals = random_pipeline(seed, queries=120)
    stages = tuple(
        replace(stage, capacity=(), service=replace(stage.service, law=Law.TABLE, measured_ms=()))
        for stage in pipeline.stages
    )
    bare = Pipeline(stages, seed=pipeline.seed)
    count = len(stages)
    edges = len(bare.edges)
    found = Handover(
        bare, (1.0,) * count, (10.0,) * count, (1.0,) * count, (1.0,) * edges, np.arange(5.0), 30.0, 0.9
    )
    return found, arrivals


class Erratic(Tuner, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="erratic"):
    """Decides at random, from arrivals alone: a number drawn afresh for every stage at every second instant or so."""

    seed: int = 0

    def build(self, handover: Handover, rng: np.random.Generator) -> TunerPolicy:
        return _Erratic(self.seed, self.max_replicas)


class _Erratic:
    def __init__(self, seed: int, most: int) -> None:
        self.rng, self.most = np.random.default_rng(seed), most

    def decide(self, view: FleetView) -> Tuning:
        if self.rng.random() < 0.5:
            return Keep()
        drawn = self.rng.integers(1, self.most + 1, len(view.replicas))
        return Scale(tuple(int(count) for count in drawn))


class Onlooker(Tuner, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="onlooker"):
    """Changes nothing and remembers what it saw, queues too."""

    sees: ClassVar[Literal["arrivals", "queues"]] = "queues"

    def build(self, handover: Handover, rng: np.random.Generator) -> Watching:
        return Watching(())


class Watching:
    """Follows a script, remembers every view. script: (control instant ms, replicas)."""

    def __init__(self, script: Sequence[tuple[float, tuple[int, ...]]]) -> None:
        self.script, self.views = dict(script), list[FleetView]()

    def decide(self, view: FleetView) -> Tuning:
        self.views.append(view)
        wanted = self.script.get(view.now_ms)
        return Keep() if wanted is None else Scale(wanted)
