"""Replays out of time: for every part of a log, what came before chooses machine and policy, and the part scores them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.summary.past import Beside
from forerun.core.errors import InputError
from forerun.core.version import VERSION
from forerun.site.history import History
from forerun.site.inference import with_outages
from forerun.site.machine import System
from forerun.site.replay.calibration import (
    Refusal,
    Stretch,
    calibrated,
    check_requests,
    usual_s,
    worst_of,
)
from forerun.site.replay.play import policy_name
from forerun.site.replay.scores import CLASS, CLASS_WAIT, MEAN_WAIT

#: a split has a past of so many times its own length at least, and is scored if the log has so much of it
_PAST: Final = 0.5
_WHOLE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a log that is scored, and what the log said before it.

    Parameters
    ----------
    name, from_s, until_s : of the part, in seconds from the log's origin.
    policy : that the past chose.
    past_mean, past_worst : errors of its replays of the past: of the mean wait, and of its worst class.
    refusals : why the part is not answered for; none: it is.
    rows : waits of the part: of all jobs, then of each class; none: no job can be scored.
    """

    name: str
    from_s: float
    until_s: float
    policy: str
    past_mean: float
    past_worst: float
    refusals: tuple[Refusal, ...]
    rows: tuple[Beside, ...]

    @property
    def mean(self) -> float:
        """Error of the mean wait."""
        return abs(self.rows[0].off) if self.rows else np.nan

    @property
    def worst(self) -> float:
        """Error of the worst class."""
        return worst_of(self.rows) if self.rows else np.nan

    @property
    def near(self) -> bool:
        """Whether both are within their limits."""
        return self.mean <= MEAN_WAIT and self.worst <= CLASS_WAIT


@dataclass(frozen=True, slots=True)
class BackTest:
    """The splits of a log, in order.

    Parameters
    ----------
    source, sha256 : the log.
    splits : all that its length allows.
    """

    source: str
    sha256: str
    splits: tuple[Split, ...]

    @property
    def why(self) -> str:
        """The result in a sentence."""
        scored = [one for one in self.splits if one.rows]
        answered = [one for one in scored if not one.refusals]
        refused = [one for one in scored if one.refusals]
        near = sum(one.near for one in answered)
        text = (
            f"{len(answered)} of {len(scored)} parts of the log are answered for, {near} of them within {MEAN_WAIT:.0%} of "
            f"the mean wait and {CLASS_WAIT:.0%} of its worst class"
        )
        if refused:
            text += f"; of the {len(refused)} refused, {sum(one.near for one in refused)} would have been"
        return text

    def data(self) -> dict[str, Any]:
        """The content of a measurement file, which `forerun report` shows."""
        return {
            "format": "forerun.measurement/1",
            "domain": "cluster",
            "forerun": VERSION,
            "what": "replay",
            "answer": self.why,
            "notes": [
                "machine, policy and refusal are from before each part; its own outages are as they were",
                "classes are partitions, else pools and sizes of jobs; errors are relative to the recorded mean wait",
            ],
            "log": self.source,
            "log digest": self.sha256,
            "splits": [_row(one) for one in self.splits],
            "classes": [
                {
                    "split": one.name,
                    "jobs of": row.name,
                    "jobs": row.jobs,
                    "recorded_mean_h": row.recorded_mean_s / 3600,
                    "replayed_mean_h": row.simulated_mean_s / 3600,
                    "off": row.off,
                }
                for one in self.splits
                for row in one.rows[1:]
            ],
        }


def _row(one: Split) -> dict[str, Any]:
    whole = one.rows[0] if one.rows else None
    return {
        "split": one.name,
        "jobs": 0 if whole is None else whole.jobs,
        "policy": one.policy,
        "recorded_mean_h": None if whole is None else whole.recorded_mean_s / 3600,
        "replayed_mean_h": None if whole is None else whole.simulated_mean_s / 3600,
        "off": None if whole is None else whole.off,
        "worst class": None if whole is None else one.worst,
        "past": _known(one.past_mean),
        "past worst class": _known(one.past_worst),
        "refused": ", ".join(refusal.reason for refusal in one.refusals),
        "evidence": "; ".join(refusal.evidence for refusal in one.refusals),
    }


def _known(error: float) -> float | None:
    return error if np.isfinite(error) else None


def back_test(
    log: History,
    *,
    system: System | None = None,
    off: Collection[str] = (),
    candidates: Sequence[BackfillPolicy] = (),
    every_s: float = 0.0,
    progress: Callable[[str], None] = lambda _: None,
) -> BackTest:
    """Replay every part of a log from history at its beginning, with machine and policy from what came before.

    Parameters
    ----------
    log : the history.
    system, off : as for `replay_log`.
    candidates : policies that are tried (default: those that the main pool may have).
    every_s : length of a part (default 0: calendar months on the log's clock).
    progress : is called with what is being done.

    Raises InputError for a log without requested times, and for one that is too short to be divided.
    """
    check_requests(log)
    parts = list(_parts(log, every_s))
    if not parts:
        what = "is too short to be divided: each part has a past of half its length; --every 7d makes shorter parts"
        raise InputError.at(log.source or "the log", what)
    splits = []
    for name, from_s, until_s in parts:
        past = calibrated(
            log,
            from_s,
            until_s - from_s,
            system=system,
            off=off,
            candidates=candidates,
            progress=lambda what, name=name: progress(f"{name}: {what}"),  # type: ignore[misc]
        )
        progress(f"{name}: replaying it")
        machine = with_outages(log, past.system, system, off)
        beside = Stretch.of(log, machine, from_s, until_s).beside(past.policy)
        scored = beside if beside and beside[0].jobs >= CLASS else ()
        best = past.chosen
        name_of = policy_name(best.policy)
        splits.append(Split(name, from_s, until_s, name_of, best.mean, best.worst, past.refusals, scored))
    return BackTest(log.source, log.sha256, tuple(splits))


def _parts(log: History, every_s: float) -> Iterator[tuple[str, float, float]]:
    """The parts of a log: their names, and from when to when, in seconds from its origin."""
    begin_s, end_s = log.complete_from_s, log.complete_until_s - usual_s(log)
    place = ZoneInfo(log.clock)
    first = datetime.fromtimestamp(begin_s + log.origin_s, place).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    edges = [first.replace(day=1) if not every_s else first]
    while edges[-1].timestamp() - log.origin_s < end_s:
        last = edges[-1]
        edges.append(
            last + timedelta(seconds=every_s) if every_s else (last + timedelta(days=32)).replace(day=1)
        )
    for this, then in pairwise(edges):
        from_s, until_s = (edge.timestamp() - log.origin_s for edge in (this, then))
        enough = from_s - begin_s >= _PAST * (until_s - from_s) and end_s - from_s >= _WHOLE * (
            until_s - from_s
        )
        if enough:
            yield (f"{this:%Y-%m-%d}" if every_s else f"{this:%Y-%m}"), from_s, min(until_s, end_s)
