"""How far a replay is from history: waits of all jobs and by class, daily utilisation, single waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.cluster.summary.past import ALIKE_S, off
from forerun.site.cases import Case
from forerun.site.history import F64, Mask

_DAY_S: Final = 86_400.0
#: a class of jobs that is scored has so many
CLASS: Final = 50
#: limits of the errors of the mean wait, and of its worst class
MEAN_WAIT: Final = 0.10
CLASS_WAIT: Final = 0.30


@dataclass(frozen=True, slots=True)
class WaitClass:
    """Waits of a class of jobs that are not held, in seconds on average.

    Parameters
    ----------
    name : of the class.
    jobs : how many.
    history_s, replay_s : what happened, and what the replay has.
    """

    name: str
    jobs: int
    history_s: float
    replay_s: float

    @property
    def error(self) -> float:
        """Relative; of classes that hardly wait, relative to a minute."""
        return abs(off(self.replay_s, self.history_s))


def main_case(cases: Sequence[Case]) -> Case:
    """The pool whose jobs hold the most node-seconds."""
    return max(cases, key=lambda case: float((case.run_s * case.gpus).sum()))


def scored(case: Case, start_s: F64, from_s: float, until_s: float) -> Mask:
    """bool[jobs]: submitted between two instants, not held, and started in history and in the replay."""
    started = case.started & np.isfinite(start_s)
    return (case.submit_s >= from_s) & (case.submit_s < until_s) & ~case.held & started


def mean_of(wait_s: F64, rows: Mask) -> float:
    return float(wait_s[rows].mean()) if rows.any() else 0.0


def log10_errors(case: Case, start_s: F64, rows: Mask) -> F64:
    ours_s = np.maximum((start_s - case.submit_s)[rows], ALIKE_S)
    real_s = np.maximum(case.wait_s[rows], ALIKE_S)
    errors: F64 = np.abs(np.log10(ours_s / real_s))
    return errors


def log10_error(case: Case, start_s: F64, rows: Mask) -> float:
    """Mean error of the decimal logarithm of waits, those below a minute taken as one."""
    return float(log10_errors(case, start_s, rows).mean()) if rows.any() else 0.0


def daily(case: Case, start_s: F64, from_s: float, until_s: float) -> F64:
    """float64[days], share of the pool's nodes in use on each whole day between two instants."""
    days = int((until_s - from_s) // _DAY_S)
    edges = from_s + _DAY_S * np.arange(days + 1)
    known = np.isfinite(start_s)
    begin_s, nodes = start_s[known], case.gpus[known]
    end_s = begin_s + case.run_s[known]
    order, done = np.argsort(begin_s), np.argsort(end_s)
    # node-seconds until an instant: those begun by then, less what is left of them
    begun = np.searchsorted(begin_s[order], edges, "right")
    ended = np.searchsorted(end_s[done], edges, "right")
    held = np.append(0.0, np.cumsum(nodes[order]))[begun] - np.append(0.0, np.cumsum(nodes[done]))[ended]
    weight = (
        np.append(0.0, np.cumsum((nodes * end_s)[done]))[ended]
        - np.append(0.0, np.cumsum((nodes * begin_s)[order]))[begun]
        + held * edges
    )
    used: F64 = np.diff(weight) / (_DAY_S * case.pool.gpus)
    return used


def utilisation_error(case: Case, start_s: F64, from_s: float, until_s: float) -> float:
    """Mean error of the share of nodes in use, by day."""
    known = np.where(np.isfinite(start_s) | (case.end_s > from_s), case.start_s, np.nan)
    ours = daily(case, np.where(np.isfinite(start_s), start_s, known), from_s, until_s)
    real = daily(case, case.start_s, from_s, until_s)
    return float(np.abs(ours - real).mean()) if len(real) else 0.0


def classes_of(case: Case, rows: Mask) -> tuple[tuple[str, Mask], ...]:
    """Narrow and wide, short and long jobs of a case, which the medians of some of them part.

    Parameters
    ----------
    case : the jobs.
    rows : whose medians; none of them: there are no classes.
    """
    if not rows.any():
        return ()
    wide = case.gpus > np.median(case.gpus[rows])
    long = case.request_s > np.median(case.request_s[rows])
    return (
        ("narrow, short", ~wide & ~long),
        ("narrow, long", ~wide & long),
        ("wide, short", wide & ~long),
        ("wide, long", wide & long),
    )


@dataclass(frozen=True, slots=True)
class Errors:
    """By how much a free replay is off: mean waits, of all and by class, daily utilisation, the logarithm of waits."""

    waits: WaitClass
    classes: tuple[WaitClass, ...]
    used: float
    log10: float

    @property
    def worst(self) -> float:
        """Of the classes."""
        return max((one.error for one in self.classes), default=0.0)


def errors_of(case: Case, start_s: F64, rows: Mask, from_s: float, until_s: float) -> Errors:
    """Of a replay of a case, of which only some jobs are scored. Classes need enough of them."""

    def waits(name: str, of: Mask) -> WaitClass:
        return WaitClass(name, int(of.sum()), mean_of(case.wait_s, of), mean_of(start_s - case.submit_s, of))

    classes = [(name, rows & mine) for name, mine in classes_of(case, rows)]
    return Errors(
        waits("all", rows),
        tuple(waits(name, of) for name, of in classes if of.sum() >= CLASS),
        utilisation_error(case, start_s, from_s, until_s),
        log10_error(case, start_s, rows),
    )
