"""Predictions compared with measurements, cell by cell."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.core.measure.progress import StepProgress
from forerun.loading.engine.calibration import predict
from forerun.loading.measure.answers import Answer, Job
from forerun.loading.measure.corpus import Corpus
from forerun.loading.measure.probing import measure_cell
from forerun.loading.policy import Ask, Cell

#: repeats that differ more than this from their median are noisy
NOISY: Final = 0.15
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Repeats of a run beside their prediction.

    Parameters
    ----------
    seconds : of each repeat.
    predicted_s : seconds by the model.
    """

    seconds: tuple[float, ...]
    predicted_s: float

    @property
    def measured_s(self) -> float:
        """Median of the repeats."""
        return statistics.median(self.seconds)

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted_s / self.measured_s - 1

    @property
    def noisy(self) -> bool:
        """Whether repeats are far from their median."""
        return spread(self.seconds) > NOISY

    def data(self) -> dict[str, Any]:
        """Plain data."""
        return {name: getattr(self, name) for name in ("measured_s", "predicted_s", "error", "noisy")}


@dataclass(frozen=True, kw_only=True)
class Checked(Compared):
    """A cell measured repeatedly and predicted.

    Parameters
    ----------
    cell : block size and threads.
    probe : whether it was one of those that the prediction comes from.
    low_s, high_s : ends of the prediction's 95 % interval for one run.
    """

    cell: Cell
    probe: bool
    low_s: float
    high_s: float

    def data(self) -> dict[str, Any]:
        """Plain data."""
        return super().data() | {"low_s": self.low_s, "high_s": self.high_s}


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

    Parameters
    ----------
    corpus, job : as they were probed.
    answered : with the profile.
    cells : to run.
    samples : of each run.
    repeats : of each cell (default: 3).
    progress : called with a line about each run.

    Raises UsageError if there is no profile.
    """  # fmt: skip
    spans = {cell: answered.span(cell, samples) for cell in cells}
    profile = answered.profile
    assert profile is not None
    totals: dict[Cell, list[float]] = {cell: [] for cell in cells}
    again: Sequence[Cell] = cells
    for turn in range(2):
        steps = StepProgress(progress, [0.0] * (repeats * len(again)))
        for repeat in range(repeats if again else 0):
            for cell in again:
                steps.begin(
                    f"repeat {repeat + 1} of {repeats}{' again' if turn else ''}: "
                    f"blocks of {cell.block}, {cell.threads} threads"
                )
                start = turn * repeats + repeat
                totals[cell].append(measure_cell(corpus, job, Ask(cell, samples), start).total_s)
        again = [cell for cell in cells if spread(totals[cell]) > NOISY]
    load = job.work(corpus, samples)
    probed = {probe.cell for probe in answered.probes[:3]}
    return tuple(
        Checked(
            cell=cell, seconds=tuple(seconds), predicted_s=predict(profile, load, cell), probe=cell in probed,
            low_s=spans[cell].low, high_s=spans[cell].high,
        )
        for cell, seconds in totals.items()
    )  # fmt: skip


def spread(seconds: Sequence[float]) -> float:
    """How far the middle half of repeats is from their median (of few repeats all of them), as a share.

    Parameters
    ----------
    seconds : of the repeats. 0.1 says that one is 10 % above or below the median.
    """
    middle = statistics.median(seconds)
    inner = sorted(seconds)[len(seconds) // 4 : len(seconds) - len(seconds) // 4]
    return max(abs(value / middle - 1) for value in inner)
