"""A log replayed from beginning to end: what it has, what is inferred, and the report card."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.core.errors import InputError, Problem
from forerun.site.cases import Case, held_of
from forerun.site.history import F64, History
from forerun.site.inference import with_outages
from forerun.site.machine import Finding, System
from forerun.site.replay.calibration import FEW, calibrated, cases_of, check_requests, overlaps, usual_s
from forerun.site.replay.card import ReportCard, report_card
from forerun.site.replay.play import policy_name
from forerun.site.replay.scores import main_case

#: where the part of a log ends on which everything is inferred, if that is not said
FIRST_PART = 0.6


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay of a log.

    Parameters
    ----------
    log : its history.
    system : the machine, given or inferred.
    findings : what was inferred.
    calibrated_s, until_s : where the first part ends, and the last; seconds from the log's origin.
    cases : of each pool.
    starts : float64[jobs] of each pool, starts replayed from history at `calibrated_s`.
    card : how well it reproduces history.
    notes : what else to know.
    """

    log: History
    system: System
    findings: tuple[Finding, ...]
    calibrated_s: float
    until_s: float
    cases: tuple[Case, ...]
    starts: tuple[F64, ...]
    card: ReportCard
    notes: tuple[str, ...]

    @property
    def main(self) -> Case:
        """The pool whose jobs hold the most node-seconds."""
        return main_case(self.cases)

    @property
    def main_starts(self) -> F64:
        """The replayed starts of that pool."""
        return self.starts[self.cases.index(self.main)]


def replay_log(
    log: History,
    *,
    system: System | None = None,
    off: Collection[str] = (),
    calibrate_until_s: float | None = None,
    identify: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Replay:
    """Replay a log: infer its machine on the first part, choose a policy there, and score it on the last.

    Parameters
    ----------
    log : the history.
    system : the machine (default: inferred).
    off : what is not inferred, of `system.INFERRED` (default: all is).
    calibrate_until_s : where the first part ends, in seconds since 1970 on the log's clock (default: after 60 %).
    identify : whether the policies are also tried on a log that the chosen one made (default: they are).
    progress : is called with what is being done (default: nobody is).

    Raises InputError for a log without requested times, of too few jobs, or without an instant to calibrate until.
    """
    check_requests(log)
    name = log.source or "the log"
    begin_s, end_s = log.complete_from_s, log.complete_until_s
    count = int((log.started & (log.submit_s >= begin_s)).sum())
    if count < FEW:
        raise InputError.at(
            name, f"{count} jobs started while the log is complete; at least {FEW} are needed"
        )
    until_s = max(end_s - usual_s(log), begin_s)
    calibrated_s = begin_s + FIRST_PART * (end_s - begin_s)
    if calibrate_until_s is not None:
        calibrated_s = calibrate_until_s - log.origin_s
    if not begin_s < calibrated_s < until_s:
        what = f"ends outside of what can be scored, {begin_s + log.origin_s:.0f} to {until_s + log.origin_s:.0f}"
        raise InputError.at("--calibrate-until", what)
    progress("inferring the machine")
    past = calibrated(log, calibrated_s, until_s - calibrated_s, system=system, off=off, progress=progress)
    past = replace(past, system=with_outages(log, past.system, system, off))
    over = overlaps(log, past.system)
    if any(much for _, much in over):
        why = "rows overlap, or --system has too few"
        raise InputError(*(Problem(name, f"{what}; {why}") for what, much in over if much))
    card, cases, starts = report_card(
        cases_of(log, past.system), past, until_s, identify=identify, progress=progress
    )
    return Replay(
        log,
        past.system,
        (*past.findings, *_holds(cases, past.system.held_after_s, card.tried[0].policy)),
        calibrated_s,
        until_s,
        cases,
        starts,
        card,
        (*_notes(log, cases), *(f"{what}: rows overlap" for what, _ in over)),
    )


def _holds(cases: Sequence[Case], after_s: float, policy: BackfillPolicy) -> Iterator[Finding]:
    """How many jobs are held, and how much of all waiting is theirs."""
    if not after_s:
        return
    jobs, held, share = held_of(cases)
    yield Finding(
        about="holds",
        what=f"{held} of {jobs} jobs held ({held / max(jobs, 1):.0%}), with {share:.0%} of all waiting",
        evidence=f"each still waited {after_s / 3600:.0f} h after {policy_name(policy)} would have started it, with the "
        "machine and the queue as they were",
    )


def _notes(log: History, cases: Sequence[Case]) -> tuple[str, ...]:
    """What was repaired or left out."""
    notes = list(log.evidence)
    notes += [str(repair) for repair in log.repairs]
    none = int(np.isnan(log.requested_s).sum())
    if none:
        notes.append(
            f"{none} jobs without a requested time are taken to ask for the longest of their partition"
        )
    there = [int(case.started.sum()) for case in cases]
    outside = int(log.started.sum()) - sum(there)
    if outside:
        notes.append(
            f"{outside} jobs that started are left out: no pool has nodes for them, or limits forbid them"
        )
    waiting = int((~log.started & np.isnan(log.end_s)).sum())
    gone = int((~log.started & np.isfinite(log.end_s)).sum())
    if waiting or gone:
        stand = sum(map(len, cases)) - sum(there)
        where = f"stand in the queue, {stand} of them" if stand else "are left out"
        notes.append(f"jobs that never started {where}: {waiting} wait still, {gone} left the queue")
    return tuple(notes)
