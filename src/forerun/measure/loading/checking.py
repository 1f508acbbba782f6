"""Predictions compared with measurements, cell by cell."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.domains.loading.engine.calibration import (
    predict,
)
from forerun.domains.loading.policy import Ask, Cell, Load
from forerun.errors import UsageError
from forerun.measure.loading.answers import Answer, Job
from forerun.measure.loading.corpus import Corpus
from forerun.measure.loading.probing import measure_cell
from forerun.measure.progress import Steps

#: repeats that differ more than this from their median are noisy
NOISY: Final = 0.15
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Checked:
    """A cell measured repeatedly and predicted: medians, the least and the most, the error as a share."""

    cell: Cell
    measured_s: float
    least_s: float
    most_s: float
    predicted_s: float
    probe: bool
    spread: float = 0.0

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted_s / self.measured_s - 1

    @property
    def noisy(self) -> bool:
        """Whether a repeat is far from the median."""
        return self.spread > NOISY


def check(
    corpus: Corpus,
    job: Job,
    answered: Answer,
    cells: Sequence[Cell],
    samples: int,
    *,
    repeats: int = 3,
    progress: Progress = lambda _: None,
) -> tuple[Checked, ...]:
    """Measure cells, interleaved, and set the profile's predictions beside the medians.

    Cells whose repeats differ by more than `NOISY` are measured as often again; those that still do are marked.
    """  # fmt: skip
    if answered.profile is None:
        raise UsageError.at(corpus.name, "one probe was enough: there is no profile to check")
    totals: dict[Cell, list[float]] = {cell: [] for cell in cells}
    again: Sequence[Cell] = cells
    for turn in range(2):
        steps = Steps(progress, [0.0] * (repeats * len(again)))
        for repeat in range(repeats if again else 0):
            for cell in again:
                steps.begin(
                    f"repeat {repeat + 1} of {repeats}{' again' if turn else ''}: "
                    f"blocks of {cell.block}, {cell.threads} threads"
                )
                start = turn * repeats + repeat
                totals[cell].append(measure_cell(corpus, job, Ask(cell, samples), start).total_s)
        again = [cell for cell in cells if spread(totals[cell]) > NOISY]
    load = Load(samples, corpus.mean_bytes, job.batch, job.step_s, job.buffer_samples)
    probed = {probe.cell for probe in answered.probes[:3]}
    return tuple(
        Checked(
            cell,
            statistics.median(seconds),
            min(seconds),
            max(seconds),
            predict(answered.profile, load, cell),
            cell in probed,
            spread(seconds),
        )
        for cell, seconds in totals.items()
    )


def spread(seconds: Sequence[float]) -> float:
    """How far the middle half of repeats is from their median (of few repeats all of them), as a share."""
    middle = statistics.median(seconds)
    inner = sorted(seconds)[len(seconds) // 4 : len(seconds) - len(seconds) // 4]
    return max(abs(value / middle - 1) for value in inner)
