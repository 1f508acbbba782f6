"""Profiles of models where they will run: every stage busy at once, on the processors that they share.

A profile taken stage by stage on an idle machine is wrong as soon as stages compete for processors, caches and memory;
so both are taken, and the one in place is written. What is timed is what a queue sees: from handing a batch over to
having its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.domains.serving.model import Floats, Law, Service
from forerun.domains.serving.profile import Profile, Row
from forerun.measure.serving.testbed import Tell, Testbed
from forerun.rng import stream

#: up to this batch limit every size is measured, above it powers of two
EVERY_SIZE: Final = 8

#: share of time that the busiest stage's replicas are busy while they are measured in place
LOAD: Final = 0.6

#: a stage that is much faster than the busiest rests most of the time, but not more than this share's complement
LEAST_LOAD: Final = 0.05

#: means further apart than this are a different machine
TOLERANCE: Final = 0.10


@dataclass(frozen=True)
class Measured:
    """What batches took at one stage: by batch size the times in ms, in place and with all other stages at rest."""

    model: str
    hardware: str
    in_place_ms: Mapping[int, Floats] = field(repr=False)
    alone_ms: Mapping[int, Floats] = field(repr=False)

    def rows(self) -> list[dict[str, Any]]:
        """One record a batch size, as a profile holds it and more."""
        found = []
        for size, values in sorted(self.in_place_ms.items()):
            mean_ms, alone_ms = float(values.mean()), float(self.alone_ms[size].mean())
            found.append(
                {
                    "model": self.model,
                    "hardware": self.hardware,
                    "batch": size,
                    "samples": len(values),
                    "mean_ms": mean_ms,
                    "p99_ms": float(np.quantile(values, 0.99)),
                    "throughput_qps": size * 1e3 / mean_ms,
                    "alone_mean_ms": alone_ms,
                    "in_place_over_alone": mean_ms / alone_ms,
                }
            )
        return found

    def service(self, most: int, key: int, *, alone: bool = False) -> Service:
        """Service times drawn from what was measured, for batches up to `most`. A size between two measured ones takes the
        values of the nearest, scaled to the mean between."""
        measured = self.alone_ms if alone else self.in_place_ms
        sizes = sorted(measured)
        means = np.interp(np.arange(most + 1), sizes, [float(measured[size].mean()) for size in sizes])
        means[0] = 0.0
        values = [np.zeros(1)]
        for size in range(1, most + 1):
            near = min(sizes, key=lambda known: (abs(known - size), known))
            values.append(measured[near] * (means[size] / float(measured[near].mean())))
        return Service(means, Law.MEASURED, measured_ms=tuple(values), key=key)


def sizes_to_measure(most: int) -> tuple[int, ...]:
    """Every batch size up to eight; above, powers of two and the limit itself."""
    if most <= EVERY_SIZE:
        return tuple(range(1, most + 1))
    powers = [1 << k for k in range(most.bit_length()) if 1 << k < most]
    return (*powers, most)


def profiled(
    testbed: Testbed, hardware: Sequence[str], names: Sequence[str], samples: int, seed: int, tell: Tell
) -> list[Measured]:
    """Measure every stage of a testbed, in place and alone. names, hardware: by stage, as the profile calls them.

    samples: of each batch size, at least.
    """
    stages = testbed.pipeline.stages
    lists = []
    for stage in stages:
        each = np.repeat(sizes_to_measure(stage.max_batch), samples)
        lists.append(stream(seed, "profile", stage.name).permutation(each).tolist())
    alone: list[list[tuple[int, float]]] = []
    for s, stage in enumerate(stages):
        tell(f"{stage.name} alone")
        alone.append(testbed.exercise(lists, [LOAD] * len(stages), [s])[s])
    # In a pipeline all stages meet the same queries: one that is faster rests longer, and finds its caches colder.
    carried = [
        stage.replicas * sum(size for size, _ in served) / sum(took_ms for _, took_ms in served)
        for stage, served in zip(stages, alone)
    ]
    tell("all stages at once")
    together = testbed.exercise(lists, [max(LEAST_LOAD, LOAD * min(carried) / own) for own in carried])
    return [
        Measured(name, machine, _by_size(many), _by_size(few))
        for name, machine, many, few in zip(names, hardware, together, alone)
    ]


def profile_of(measured: Sequence[Measured], name: str) -> Profile:
    """What was measured in place, as the serving room reads it."""
    rows = {
        (each.model, each.hardware): [
            Row(row["batch"], row["p99_ms"], row["throughput_qps"]) for row in each.rows()
        ]
        for each in measured
    }
    return Profile(rows, name)


def write_profile(measured: Sequence[Measured], environment: Mapping[str, Any], path: Path) -> None:
    """The profile as CSV, with where it was measured in comments."""
    lines = [
        "# measured in place by `forerun measure serving`: all stages busy at once, times as a queue sees them"
    ]
    lines += [f"# {name}: {value}" for name, value in environment.items()]
    lines.append("model,hardware,batch,p99_ms,throughput_qps")
    written = set()
    for each in measured:
        if (each.model, each.hardware) in written:
            continue
        written.add((each.model, each.hardware))
        lines += [
            f"{row['model']},{row['hardware']},{row['batch']},{row['p99_ms']:.6g},{row['throughput_qps']:.6g}"
            for row in each.rows()
        ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _by_size(served: Sequence[tuple[int, float]]) -> dict[int, Floats]:
    found: dict[int, list[float]] = {}
    for size, took_ms in served:
        found.setdefault(size, []).append(took_ms)
    return {size: np.array(values) for size, values in found.items()}
