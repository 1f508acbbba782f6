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

from forerun.core.measure.progress import StepProgress, Tell
from forerun.core.rng import stream
from forerun.core.study.estimate import duration
from forerun.serving.inputs.pipeline import Floats, Law, Service
from forerun.serving.inputs.profile import Profile, Row
from forerun.serving.measure.testbed import Served, Testbed

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
    """What batches took at one stage.

    Parameters
    ----------
    model, hardware : as the profile calls them.
    in_place_ms : times by batch size, with all stages busy; a measurement that was stopped lacks some sizes.
    alone_ms : times by batch size, with all other stages at rest.
    """

    model: str
    hardware: str
    in_place_ms: Mapping[int, Floats] = field(repr=False)
    alone_ms: Mapping[int, Floats] = field(repr=False)

    def rows(self) -> list[dict[str, Any]]:
        """One record per batch size: the profile's columns and more."""
        records = []
        for size, alone in sorted(self.alone_ms.items()):
            values = self.in_place_ms.get(size, alone)
            mean_ms, alone_ms = float(values.mean()), float(alone.mean())
            records.append(
                {
                    "model": self.model,
                    "hardware": self.hardware,
                    "batch": size,
                    "samples": len(values),
                    "mean_ms": mean_ms,
                    "p99_ms": float(np.quantile(values, 0.99)),
                    "throughput_qps": size * 1e3 / mean_ms,
                    "alone_mean_ms": alone_ms,
                    "in_place_over_alone": mean_ms / alone_ms if size in self.in_place_ms else None,
                }
            )
        return records

    def service(self, most: int, key: int, *, alone: bool = False) -> Service:
        """Service times drawn from what was measured.

        A size between two measured ones takes the values of the nearest, scaled to the mean between.

        Parameters
        ----------
        most : largest batch that a time is needed for.
        key : of the stage's stream of draws.
        alone : take the times with all other stages at rest (default: those in place, where a size has them).
        """
        measured = self.alone_ms if alone else {**self.alone_ms, **self.in_place_ms}
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


@dataclass
class Taken:
    """What has been measured so far, so that it is there if the measurement is interrupted.

    Parameters
    ----------
    alone : by stage, (batch size, ms from handing over to the answer) with all other stages at rest.
    together : the same with all stages busy at once.
    """

    alone: list[Served]
    together: list[Served]

    @classmethod
    def of(cls, stages: int) -> Taken:
        """Nothing yet."""
        return cls([[] for _ in range(stages)], [[] for _ in range(stages)])

    def measured(self, hardware: Sequence[str], names: Sequence[str], *, least: int = 1) -> list[Measured]:
        """Every stage of which something is known.

        Parameters
        ----------
        hardware, names : by stage, as the profile calls them.
        least : times of a size in place; those with fewer are taken alone (default: 1).
        """
        known = []
        for name, machine, many, few in zip(names, hardware, self.together, self.alone):
            in_place = {size: times for size, times in _by_size(many).items() if len(times) >= least}
            if few:
                known.append(Measured(name, machine, in_place, _by_size(few)))
        return known


def profiled(
    testbed: Testbed,
    hardware: Sequence[str],
    names: Sequence[str],
    samples: int,
    seed: int,
    tell: Tell,
    *,
    taken: Taken | None = None,
) -> list[Measured]:
    """Measure every stage of a testbed, in place and alone.

    Parameters
    ----------
    hardware, names : by stage, as the profile calls them.
    samples : of each batch size, at least.
    seed : of the order in which batch sizes come.
    tell : is given the progress in words.
    taken : keeps what is measured, also if this is interrupted.
    """
    stages = testbed.pipeline.stages
    taken = Taken.of(len(stages)) if taken is None else taken
    lists = []
    for stage in stages:
        each = np.repeat(sizes_to_measure(stage.max_batch), samples)
        lists.append(stream(seed, "profile", stage.name).permutation(each).tolist())
    expected_s = _expected_s(testbed, lists)
    batches = sum(map(len, lists))
    tell(f"{batches:,} batches alone and as many together: about {duration(sum(expected_s))} in all")
    steps = StepProgress(tell, expected_s)

    def watch(served: Sequence[Served], asked: Sequence[Sequence[int]]) -> None:
        done, most = min(
            ((len(one), len(sizes)) for one, sizes in zip(served, asked)), key=lambda pair: pair[0] / pair[1]
        )
        steps.at(min(1.0, done / most), f"{done:,} of {most:,} batches")

    for s, stage in enumerate(stages):
        steps.begin(f"{stage.name} alone")
        testbed.exercise(
            lists,
            [LOAD] * len(stages),
            [s],
            served=taken.alone,
            watch=lambda s=s: watch([taken.alone[s]], [lists[s]]),  # type: ignore[misc]
        )
    steps.begin("all stages at once")
    testbed.exercise(
        lists,
        _loads(_carried(testbed, taken.alone)),
        served=taken.together,
        watch=lambda: watch(taken.together, lists),
    )
    return taken.measured(hardware, names)


def _carried(testbed: Testbed, alone: Sequence[Served]) -> list[float]:
    """By stage, the queries that its replicas carry in a ms."""
    return [
        stage.replicas * sum(size for size, _ in served) / sum(took_ms for _, took_ms in served)
        for stage, served in zip(testbed.pipeline.stages, alone)
    ]


def _loads(carried: Sequence[float]) -> list[float]:
    """How busy stages are together. In a pipeline all stages meet the same queries: one that is faster rests longer, and
    finds its caches colder."""
    return [max(LEAST_LOAD, LOAD * min(carried) / own) for own in carried]


def _expected_s(testbed: Testbed, lists: Sequence[Sequence[int]]) -> list[float]:
    """How long each stage takes alone, and all at once, from one batch of each size, which is not counted."""
    stages = testbed.pipeline.stages
    sizes = [sizes_to_measure(stage.max_batch) for stage in stages]
    tried = [testbed.exercise(sizes, [1.0] * len(stages), [s])[s] for s in range(len(stages))]
    busy_s = []
    for stage, served, sizes_asked in zip(stages, tried, lists):
        took_ms = {size: float(np.mean(times)) for size, times in _by_size(served).items()}
        busy_s.append(sum(took_ms[size] for size in sizes_asked) / stage.replicas / 1e3)
    loads = _loads(_carried(testbed, tried))
    return [*(one / LOAD for one in busy_s), max(one / load for one, load in zip(busy_s, loads))]


def profile_of(measured: Sequence[Measured], name: str) -> Profile:
    """The service times measured in place, as the serving domain reads them."""
    rows = {
        (each.model, each.hardware): [
            Row(row["batch"], row["p99_ms"], row["throughput_qps"]) for row in each.rows()
        ]
        for each in measured
    }
    return Profile(rows, name)


def write_profile(
    measured: Sequence[Measured], environment: Mapping[str, Any], path: Path, *, stopped: str = ""
) -> None:
    """Write the profile as CSV, with where it was measured in comments.

    Parameters
    ----------
    measured : by stage; of stages with one model on one hardware the first counts.
    environment : properties of the machine, by name.
    stopped : how far a measurement that was stopped is (empty: it was not).
    """
    lines = [
        "# measured in place by `forerun measure serving`: all stages busy at once, times as a queue sees them"
    ]
    if stopped:
        lines = [f"# measured by `forerun measure serving`, {stopped}; times as a queue sees them"]
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
    by_size: dict[int, list[float]] = {}
    for size, took_ms in served:
        by_size.setdefault(size, []).append(took_ms)
    return {size: np.array(values) for size, values in by_size.items()}
