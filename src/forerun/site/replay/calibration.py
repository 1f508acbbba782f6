"""What the past of a log says of its policy, and whether a replay can be trusted: nothing of what is scored is looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import NO_REQUEST_S, JobLabels, Jobs
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.summary.past import PARTITION_SHARE, Beside, Past, besides, held_from_s
from forerun.core.errors import InputError
from forerun.core.result.numbers import shown_instant
from forerun.site.cases import Case, case_of, held_of
from forerun.site.history import F64, History, Mask
from forerun.site.inference import infer
from forerun.site.machine import Finding, System, pool_of
from forerun.site.replay.play import (
    OneStep,
    candidates_of,
    one_step,
    policy_name,
    replayed,
    with_holds,
)
from forerun.site.replay.rules import ruled
from forerun.site.replay.scores import CLASS, CLASS_WAIT, MEAN_WAIT, classes_of, main_case
from forerun.site.shown import ceiling, in_use, waiting_at

#: jobs that started before, at least
FEW: Final = 200
#: the past is replayed freely in so many stretches, the last ones, each as long as what is scored
_STRETCHES: Final = 4
#: jobs of the end of the past whose waits are cut short: those later than this quantile of waits, and this at most
_USUAL: Final = 0.95
_MARGIN_S: Final = 7 * 86_400.0
#: jobs that come so much later than the last start of what is scored are still there
_AFTER_S: Final = 7 * 86_400.0
#: share of the node time of its jobs that may be beyond what a pool has: rows of a log overlap now and then
_OVER: Final = 0.05
#: a machine has changed if what jobs use at most differs by more, while jobs wait that would fit for so much of the time
_CHANGED: Final = 0.05
_WAITED: Final = 0.05
#: a policy is identified from this F1 on
IDENTIFIED: Final = 0.90
#: where the past is near without the holds, they are the reason from this share of all waiting on
_HELD: Final = 0.20
#: why a log is refused
OVERLAP, TOO_FEW, CHANGED, HOLDS, UNIDENTIFIED = (
    "rows overlap",
    "too few jobs",
    "machine changed",
    "holds",
    "policy not identified",
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one policy does on the past.

    Parameters
    ----------
    policy : the policy.
    step : one decision at a time, in the main pool.
    mean, worst : errors of the mean wait and of its worst class in free replays of stretches, on average over these.
    own : one-step F1 on a log that the chosen policy made itself of the same jobs; None: that was not asked.
    """

    policy: BackfillPolicy
    step: OneStep
    mean: float
    worst: float
    own: float | None = None

    @property
    def off(self) -> float:
        """These errors against their limits, on average."""
        return 0.5 * (self.mean / MEAN_WAIT + self.worst / CLASS_WAIT)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a log is not answered for.

    Parameters
    ----------
    reason : one of those above.
    evidence : in what it shows.
    """

    reason: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the past of a log says.

    Parameters
    ----------
    from_s, at_s : from when on policies were tried, and where it ends, in seconds from the log's origin.
    system, findings : the machine, given or inferred, and what was inferred.
    policy : of those that decide like the best, that whose free replays come nearest to the limits.
    tried : all policies, the best F1 first.
    refusals : why what comes is not answered for; none: it is.
    """

    from_s: float
    at_s: float
    system: System
    findings: tuple[Finding, ...]
    policy: BackfillPolicy
    tried: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]

    @property
    def chosen(self) -> Candidate:
        """What that policy does."""
        return next(one for one in self.tried if one.policy == self.policy)


def calibrated(
    log: History,
    at_s: float,
    length_s: float,
    *,
    system: System | None = None,
    off: Collection[str] = (),
    candidates: Sequence[BackfillPolicy] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Infer the machine from what was known at an instant, choose a policy, and say whether the past is reproduced with it.

    Parameters
    ----------
    log : the history.
    at_s : the instant, on its clock.
    length_s : of what will be scored.
    system, off : as for `infer`.
    candidates : policies that are tried (default: those that the main pool may have).
    progress : is called with what is being done.

    Raises InputError where no job that started fits in any pool.
    """
    known, given = log.until(at_s), system
    system, findings = infer(known, at_s, given=given, off=off)
    main = main_case(cases_of(known, system))
    parts = _stretches(known, length_s)
    first_s = min((from_s for from_s, _ in parts), default=at_s)
    policies = tuple(candidates or candidates_of(system, main.pool))
    if given is None and main.pool.parts and "limits" not in off:
        progress("limits and tiers, on the past")
        nearest = max(policies, key=lambda one: one_step(main, one, first_s, at_s).f1)
        system, with_tiers, rules = ruled(known, system, main.pool, nearest, first_s, at_s)
        findings = (*findings, *rules)
        main = main_case(cases_of(known, system))
        if isinstance(with_tiers.order, Multifactor) and with_tiers.order != nearest.order:
            system = msgspec.structs.replace(system, order=with_tiers.order)
        policies = tuple(candidates or candidates_of(system, main.pool))
    stretches = [Stretch.of(known, system, from_s, until_s) for from_s, until_s in parts]
    found = []
    for policy in policies:
        progress(f"{policy_name(policy)}, on the past")
        step = one_step(main, policy, first_s, at_s)
        found.append(Candidate(policy, step, *_past(stretches, policy, at_s)))
    found.sort(key=lambda one: -one.step.f1)
    best = min((one for one in found if one.step.like(found[0].step)), key=lambda one: one.off)
    made = Calibration(first_s, at_s, system, findings, best.policy, tuple(found), ())
    return replace(made, refusals=tuple(_refusals(known, length_s, made, stretches)))


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a log that is replayed: the log without later jobs, the jobs of each pool, and which jobs count."""

    log: History
    cases: tuple[Case, ...]
    rows: Mask

    @classmethod
    def of(cls, log: History, system: System, from_s: float, until_s: float) -> Stretch:
        """From an instant to another, with who comes before all of its jobs have started."""
        last_s = np.nanmax(log.start_s[log.submit_s < until_s], initial=until_s)
        then = log.of(log.submit_s < last_s + _AFTER_S)
        cases = tuple(replace(case, begin_s=from_s) for case in cases_of(then, system))
        return cls(then, cases, countable(then, from_s, until_s))

    def with_holds(self, policy: BackfillPolicy, after_s: float) -> Stretch:
        """With holds as they were; see `play.with_holds`."""
        return replace(self, cases=tuple(with_holds(case, policy, after_s) for case in self.cases))

    def beside(self, policy: BackfillPolicy, until_s: float = np.inf) -> tuple[Beside, ...]:
        """Its replayed waits beside the recorded ones: of all jobs, then of each large class.

        Parameters
        ----------
        policy : with which it is replayed.
        until_s : what is known of the log ends: no wait is longer (default: all is known).
        """
        starts = [np.minimum(replayed(case, policy), until_s) for case in self.cases]
        return beside_of(self.log, self.cases, starts, self.rows)


def _past(stretches: Sequence[Stretch], policy: BackfillPolicy, at_s: float) -> tuple[float, float]:
    """Errors of the mean wait and of its worst class, on average over stretches; infinite where no job counts."""
    errors = []
    for one in stretches:
        if beside := one.beside(policy, at_s):
            errors.append((abs(beside[0].off), worst_of(beside)))
    mean, worst = np.mean(errors or [(np.inf, np.inf)], axis=0).tolist()
    return mean, worst


def check_requests(log: History) -> None:
    """Raises InputError for a log without requested times."""
    if np.isnan(log.requested_s).all():
        what = (
            "has no requested times, so neither backfilling nor what would change it can be replayed; "
            "where a column has another name or number: --columns requested_s=6"
        )
        raise InputError.at(log.source or "the log", what)


def cases_of(log: History, system: System) -> tuple[Case, ...]:
    """The jobs of each pool that has any. Raises InputError where none has."""
    cases = tuple(case_of(log, system, number) for number in range(len(system.pools)))
    if not (cases := tuple(case for case in cases if len(case))):
        raise InputError.at(log.source or "the log", "no job fits in any pool of the machine")
    return cases


def usual_s(log: History) -> float:
    """The waits of the last jobs of a log are cut short: those of so many seconds before its end."""
    waited = log.wait_s[log.started & (log.submit_s >= log.complete_from_s)]
    return min(float(np.quantile(waited, _USUAL)), _MARGIN_S) if len(waited) else 0.0


def _stretches(known: History, length_s: float) -> list[tuple[float, float]]:
    """The stretches of the past that are replayed, each as long as what is scored, or half of the past if that is short."""
    begin_s, end_s = known.complete_from_s, known.complete_until_s - usual_s(known)
    length_s = min(length_s, 0.5 * (end_s - begin_s))
    if length_s <= 0:
        return []
    count = min(_STRETCHES, max(round((end_s - begin_s) / length_s), 1))
    firsts = np.linspace(max(begin_s, end_s - count * length_s), end_s - length_s, count)
    return [(first_s, first_s + length_s) for first_s in firsts.tolist()]


def countable(log: History, from_s: float, until_s: float) -> Mask:
    """bool[jobs]: those submitted between two instants that started and were not held, as `summary.past` has it."""
    here = log.started & (log.submit_s >= from_s) & (log.submit_s < until_s)
    request_s = np.where(np.isnan(log.requested_s), NO_REQUEST_S, np.nan_to_num(log.requested_s))
    labels = JobLabels.of(len(log), partition=log.partition.texts, qos=log.qos.texts)
    jobs = Jobs.of(
        np.floor(log.submit_s),
        log.gpus,
        1,
        requested_s=request_s.astype(np.int64),
        user=log.user.texts,
        labels=labels,
    )
    past = Past(log.start_s, log.end_s, ("",) * len(log))
    return here & ~np.isfinite(held_from_s(jobs, past))


def beside_of(log: History, cases: Sequence[Case], starts: Sequence[F64], rows: Mask) -> tuple[Beside, ...]:
    """The waits of replayed jobs beside the recorded ones: of all, then of each large class.

    Classes are partitions; where the log has none, the pools, with narrow and wide, short and long jobs of the main one.

    Parameters
    ----------
    log : the history.
    cases, starts : of each pool, and when its jobs start.
    rows : bool[jobs], which jobs of the log count.
    """
    replayed_s = np.full(len(log), np.nan)
    names = np.array(log.partition.texts, dtype=object)
    by_size = len(log.partition.names) < 2
    main = main_case(cases)
    for case, start_s in zip(cases, starts, strict=True):
        replayed_s[case.rows] = start_s
        if by_size:
            names[case.rows] = case.pool.name
    rows = rows & np.isfinite(replayed_s)
    if by_size:
        for name, mine in classes_of(main, rows[main.rows]):
            names[main.rows[mine]] = name
    whole, *classes = besides(log.submit_s, log.start_s, replayed_s, rows, names.tolist()) or (None,)
    if whole is None:
        return ()
    return (whole, *(one for one in classes if one.jobs >= max(CLASS, PARTITION_SHARE * whole.jobs)))


def worst_of(rows: Sequence[Beside]) -> float:
    """The error of the worst class; of all jobs where there are none. rows: all jobs first."""
    return max(abs(one.off) for one in (rows[1:] or rows))


def overlaps(log: History, system: System) -> list[tuple[str, bool]]:
    """Pools whose jobs hold more than there is, in words, and whether that is more than mistakes of a log explain."""
    found = []
    of, from_s, until_s = pool_of(log, system.pools), log.complete_from_s, log.complete_until_s
    for number, pool in enumerate(system.pools):
        at, busy = log.of(log.started & (of == number)).busy()
        over = np.flatnonzero(busy > pool.gpus)
        if not len(over):
            continue
        spans_s = np.diff(np.clip(at, from_s, until_s), append=until_s)
        seconds, beyond = spans_s[over].sum(), float(spans_s[over] @ (busy[over] - pool.gpus))
        first = shown_instant(float(at[over][0]) + log.origin_s)
        held = (
            f"jobs of pool {pool.name} hold up to {busy.max()} of its {pool.gpus} {log.unit}, more than there are for "
            f"{seconds / 3600:.1f} h, first at {first}"
        )
        found.append((held, beyond > _OVER * float(spans_s @ busy)))
    return found


def _refusals(
    known: History, length_s: float, found: Calibration, stretches: Sequence[Stretch]
) -> list[Refusal]:
    """Why what comes is not answered for, the first reason first."""
    refusals = [Refusal(OVERLAP, what) for what, much in overlaps(known, found.system) if much]
    count = int((known.started & (known.submit_s >= known.complete_from_s)).sum())
    if count < FEW:
        refusals.append(Refusal(TOO_FEW, f"{count} jobs started before; at least {FEW} are needed"))
    if refusals:
        return refusals
    main, best = main_case(cases_of(known, found.system)), found.chosen
    if changed := _changed(known.of(main.rows), main, known.complete_until_s - length_s):
        refusals.append(Refusal(CHANGED, changed))
    unknown = len(found.tried) > 1 and best.step.f1 < IDENTIFIED
    if unknown or not _near(best.mean, best.worst):
        after_s = found.system.held_after_s
        held = [one.with_holds(best.policy, after_s) for one in stretches]
        mean, worst = _past(held, best.policy, found.at_s)
        errors = (
            f"{policy_name(best.policy)}, which comes nearest, makes the decisions of the past with F1 {best.step.f1:.2f}, "
            f"and its replays are off by {best.mean:.0%} (mean wait) and {best.worst:.0%} (worst class), "
            f"{mean:.0%} and {worst:.0%} with holds as they were"
        )
        theirs = held_of([case for one in held for case in one.cases])[2]
        matter = theirs >= _HELD or not _near(best.mean, best.worst)
        repaired = after_s > 0 and matter and _near(mean, worst)
        refusals.append(Refusal(HOLDS if repaired else UNIDENTIFIED, errors))
    return refusals


def _near(mean: float, worst: float) -> bool:
    """Whether errors of the mean wait and of its worst class are within their limits."""
    return mean <= MEAN_WAIT and worst <= CLASS_WAIT


def _changed(jobs: History, case: Case, since_s: float) -> str:
    """How a pool has changed since an instant, in words; empty: it has not.

    What is in use at most is more or less than before, and in the part with less jobs waited that the difference would fit.
    """
    begin_s, end_s = jobs.complete_from_s, jobs.complete_until_s
    if case.pool.parts or not begin_s < since_s < end_s:
        return ""
    parts = ((begin_s, since_s), (since_s, end_s))
    before, now = (ceiling(*in_use(jobs, *part))[0] for part in parts)
    if abs(now - before) <= _CHANGED * max(now, before):
        return ""
    from_s, until_s = parts[0] if before < now else parts[1]
    fits = jobs.of(jobs.gpus <= abs(now - before))
    instants = np.linspace(from_s, until_s, 1000)
    waited = float((waiting_at(fits, instants) > 0).mean())
    if waited < _WAITED:
        return ""
    return (
        f"{before} {jobs.unit} of pool {case.pool.name} were in use at most before, {now} since "
        f"{shown_instant(since_s + jobs.origin_s)}, though jobs waited that the difference would fit"
    )
