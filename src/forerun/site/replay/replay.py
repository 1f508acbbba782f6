"""A log replayed from beginning to end: what it has, what is inferred, and the report card."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.core.errors import InputError, Problem
from forerun.core.result.numbers import shown_instant
from forerun.site.cases import Case, case_of
from forerun.site.history import F64, History
from forerun.site.inference import infer
from forerun.site.machine import Finding, System, pool_of
from forerun.site.replay.card import ReportCard, main_case, report_card
from forerun.site.replay.play import candidates_of, policy_name

#: where the part of a log ends on which everything is inferred, if that is not said
FIRST_PART = 0.6
#: the last waits of a log are cut short; jobs are scored that came earlier by this quantile of waits, and this at most
_USUAL = 0.95
_MARGIN_S = 7 * 86_400.0
_FEW = 200
#: share of the node time of its jobs that may be beyond what a pool has: rows of a log overlap now and then
_OVER = 0.05


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
    name = log.source or "the log"
    if np.isnan(log.requested_s).all():
        what = (
            "has no requested times, so neither backfilling nor what would change it can be replayed; "
            "where a column has another name or number: --columns requested_s=6"
        )
        raise InputError.at(name, what)
    begin_s, end_s = log.complete_from_s, log.complete_until_s
    waited = log.wait_s[log.started & (log.submit_s >= begin_s)]
    if len(waited) < _FEW:
        raise InputError.at(
            name, f"{len(waited)} jobs started while the log is complete; at least {_FEW} are needed"
        )
    until_s = max(end_s - min(float(np.quantile(waited, _USUAL)), _MARGIN_S), begin_s)
    calibrated_s = begin_s + FIRST_PART * (end_s - begin_s)
    if calibrate_until_s is not None:
        calibrated_s = calibrate_until_s - log.origin_s
    if not begin_s < calibrated_s < until_s:
        what = f"ends outside of what can be scored, {begin_s + log.origin_s:.0f} to {until_s + log.origin_s:.0f}"
        raise InputError.at("--calibrate-until", what)
    progress("inferring the machine")
    system, findings = infer(log, calibrated_s, given=system, off=off)
    overlaps = _overlaps(log, system)
    cases = tuple(case_of(log, system, number) for number in range(len(system.pools)))
    cases = tuple(case for case in cases if len(case))
    if not cases:
        raise InputError.at(name, "no job fits in any pool of the machine")
    card, cases, starts = report_card(
        cases,
        calibrated_s,
        until_s,
        held_after_s=system.held_after_s,
        candidates=candidates_of(system, main_case(cases).pool),
        identify=identify,
        progress=progress,
    )
    return Replay(
        log,
        system,
        (*findings, *_holds(cases, system.held_after_s, card.tried[0].policy)),
        calibrated_s,
        until_s,
        cases,
        starts,
        card,
        (*_notes(log, cases), *overlaps),
    )


def _overlaps(log: History, system: System) -> tuple[str, ...]:
    """Which pools have jobs that hold more nodes than there are. Raises InputError where mistakes of a log are no reason."""
    notes, problems = [], []
    of, from_s, until_s = pool_of(log, system.pools), log.complete_from_s, log.complete_until_s
    for number, pool in enumerate(system.pools):
        at, busy = log.of(log.started & (of == number)).busy()
        over = np.flatnonzero(busy > pool.gpus)
        if not len(over):
            continue
        spans_s = np.diff(np.clip(at, from_s, until_s), append=until_s)
        seconds, beyond = spans_s[over].sum(), float(spans_s[over] @ (busy[over] - pool.gpus))
        held = f"jobs of pool {pool.name} hold up to {busy.max()} of its {pool.gpus} {log.unit}"
        notes.append(f"{held}, for {seconds / 3600:.1f} h: rows overlap")
        if beyond > _OVER * float(spans_s @ busy):
            first = shown_instant(float(at[over][0]) + log.origin_s)
            why = "rows overlap, or --system has too few"
            held += f", more than there are for {seconds / 3600:.1f} h, first at {first}"
            problems.append(Problem(log.source or "the log", f"{held}; {why}"))
    if problems:
        raise InputError(*problems)
    return tuple(notes)


def _holds(cases: Sequence[Case], after_s: float, policy: BackfillPolicy) -> Iterator[Finding]:
    """How many jobs are held, and how much of all waiting is theirs."""
    if not after_s:
        return
    jobs, held, wait_s, theirs_s = 0, 0, 0.0, 0.0
    for case in cases:
        mine = case.submit_s >= case.begin_s
        waited_s = case.wait_s[mine]
        jobs, held = jobs + len(waited_s), held + int(case.held[mine].sum())
        wait_s, theirs_s = wait_s + float(waited_s.sum()), theirs_s + float(waited_s[case.held[mine]].sum())
    yield Finding(
        about="holds",
        what=f"{held} of {jobs} jobs held ({100 * held / max(jobs, 1):.0f} %), "
        f"with {100 * theirs_s / max(wait_s, 1):.0f} % of all waiting",
        evidence=f"each still waited {after_s / 3600:.0f} h after {policy_name(policy)} would have started it, with the "
        "machine and the queue as they were",
    )


def _notes(log: History, cases: Sequence[Case]) -> tuple[str, ...]:
    """What was repaired or left out."""
    notes = list(log.evidence)
    notes += [str(repair) for repair in log.repairs]
    none = int(np.isnan(log.requested_s).sum())
    if none:
        notes.append(f"{none} jobs without a requested time are taken to ask for the longest")
    outside = int(log.started.sum()) - sum(map(len, cases))
    if outside:
        notes.append(
            f"{outside} jobs that started are left out: no pool has nodes for them, or limits forbid them"
        )
    waiting = int((~log.started & np.isnan(log.end_s)).sum())
    gone = int((~log.started & np.isfinite(log.end_s)).sum())
    if waiting or gone:
        notes.append(f"jobs that never started are left out: {waiting} wait still, {gone} left the queue")
    return tuple(notes)
