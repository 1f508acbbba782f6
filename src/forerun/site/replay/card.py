"""How well a replay reproduces its own history, and how sure it is which policy made it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.summary.past import ALIKE_S, off
from forerun.core.rng import stream
from forerun.site.cases import Case
from forerun.site.history import F64, Mask
from forerun.site.replay.play import (
    OneStep,
    one_step,
    policy_name,
    replayed,
    with_holds,
)

_DAY_S: Final = 86_400.0
#: a class of jobs that is scored has so many
_CLASS: Final = 50
#: the first part is replayed freely from so many instants, for this share of it
_STRETCHES: Final = 3
_STRETCH: Final = 0.5
#: replays that a figure is the average of, and by how much their submissions differ at most
REPLAYS: Final = 8
_SHAKE_S: Final = 120.0
#: policies whose one-step F1 is closer than this are alike
TIE: Final = 0.05
#: limits of the report card
MEAN_WAIT: Final = 0.10
CLASS_WAIT: Final = 0.30
UTILISATION: Final = 0.08
F1: Final = 0.50
HELD: Final = 0.20
LOG10: Final = 0.85
LOG10_ALL: Final = 0.45
#: a replay beyond so many times its limit says nothing about the machine
_FAR: Final = 4.0
_LOW_F1: Final = 0.25
_HELD_FAR: Final = 0.30


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of the report card.

    Parameters
    ----------
    what : the figure.
    value : measured.
    limit : what it may be.
    at_most : whether the limit is a maximum.
    fatal : whether it is so far from the limit that the replay is rejected.
    """

    what: str
    value: float
    limit: float
    at_most: bool = True
    fatal: bool = False

    @property
    def met(self) -> bool:
        """Whether the limit is met."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one policy does on the first part of the log.

    Parameters
    ----------
    policy : the policy.
    step : one decision at a time.
    mean, worst, used, log10 : errors of the mean wait, of its worst class, of daily utilisation and of the logarithm of
        waits, each the average over free replays of three stretches.
    own : one-step F1 on a log that the chosen policy made itself of the same jobs; None: that was not asked.
    """

    policy: BackfillPolicy
    step: OneStep
    mean: float
    worst: float
    used: float
    log10: float
    own: float | None = None

    @property
    def off(self) -> float:
        """These errors against their limits on the report card, on average."""
        limits = (MEAN_WAIT, CLASS_WAIT, UTILISATION, LOG10)
        errors = (self.mean, self.worst, self.used, self.log10)
        return sum(error / limit for error, limit in zip(errors, limits, strict=True)) / len(limits)


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


@dataclass(frozen=True, slots=True)
class ReportCard:
    """The report card of a replay.

    Parameters
    ----------
    policy : with which the log is replayed: of those that the one-step F1 of the first part cannot tell apart, that
        whose free replays come nearest to the limits below there.
    tried : all of them, on the first part; the best one-step F1 first.
    named : the policy that the log shows it had; None: it does not show one.
    lines : the figures on the last part.
    classes : waits by class, of the main pool.
    history_s, replay_s : mean wait of jobs that are not held; the latter, like every figure of the free replay, the average
        of `REPLAYS` replays.
    spread_s : standard deviation of that mean over those replays, whose submissions differ by up to two minutes.
    jobs : how many those are.
    held_share, held_waiting : share of jobs that are held, and of all waiting that is theirs.
    step : of the policy, one decision at a time on the last part.
    """

    policy: BackfillPolicy
    tried: tuple[Candidate, ...]
    named: BackfillPolicy | None
    lines: tuple[Line, ...]
    classes: tuple[WaitClass, ...]
    history_s: float
    replay_s: float
    spread_s: float
    jobs: int
    held_share: float
    held_waiting: float
    step: OneStep

    @property
    def error_s(self) -> float:
        """By how much the replay misses the mean wait; no less than its replays differ."""
        return max(abs(self.replay_s - self.history_s), self.spread_s)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the replay is rejected; none if it is not."""
        return tuple(f"{line.what} is {line.value:.2f}, {_bound(line)}" for line in self.lines if line.fatal)

    @property
    def missed(self) -> tuple[Line, ...]:
        """Limits that are not met."""
        return tuple(line for line in self.lines if not line.met)

    @property
    def alike(self) -> tuple[BackfillPolicy, ...]:
        """Policies that the log cannot tell apart: that of the replay first, then those like the best."""
        best = self.tried[0].step.f1
        others = (one.policy for one in self.tried if one.step.f1 > best - TIE and one.policy != self.policy)
        return (self.policy, *others)


def _bound(line: Line) -> str:
    return f"{'at most' if line.at_most else 'at least'} {line.limit:g} is needed"


def report_card(
    cases: Sequence[Case],
    calibrated_s: float,
    until_s: float,
    *,
    held_after_s: float,
    candidates: Sequence[BackfillPolicy],
    identify: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[ReportCard, tuple[Case, ...], tuple[F64, ...]]:
    """Choose a policy on the first part, and score it on the last.

    Returns the card, the cases with their held jobs marked, and the starts of each pool, replayed from the end of the
    first part on.

    Parameters
    ----------
    cases : of each pool; the one with the most node-seconds is the main one.
    calibrated_s, until_s : where the first part ends, and the last.
    held_after_s : as of `System`; the policy that is asked who is held is that with the best one-step F1.
    candidates : policies that are tried.
    identify : whether they are also tried on a log that the chosen one made.
    progress : is called with what is being done.
    """
    place = list(cases).index(main_case(cases))
    begin_s = cases[place].begin_s
    steps: list[tuple[BackfillPolicy, OneStep]] = []
    for policy in candidates:
        progress(f"{policy_name(policy)}, one step")
        steps.append((policy, one_step(cases[place], policy, begin_s, calibrated_s)))
    ranking = sorted(steps, key=lambda one: -one[1].f1)
    cases = tuple(with_holds(case, ranking[0][0], held_after_s) for case in cases)
    main = cases[place]
    ranked = []
    for policy, step in ranking:
        progress(f"{policy_name(policy)}, free")
        ranked.append(Candidate(policy, step, *_first_part(main, policy, calibrated_s)))
    alike = [one for one in ranked if one.step.f1 > ranked[0].step.f1 - TIE]
    policy = min(alike, key=lambda one: one.off).policy
    lead = ranked[0].step.f1 - ranked[1].step.f1 if len(ranked) > 1 else 1.0
    named = ranked[0].policy if ranked[0].step.f1 >= F1 and lead >= TIE else None
    if identify:
        progress(f"a log of {policy_name(policy)}")
        own = _own_log(main, replayed(main, policy))
        ranked = [replace(one, own=one_step(own, one.policy, begin_s, calibrated_s).f1) for one in ranked]
    progress(f"{policy_name(policy)}, {REPLAYS} replays")
    later = tuple(replace(case, begin_s=calibrated_s) for case in cases)
    played = [[(one, replayed(one, policy)) for one in _shaken(case)] for case in later]
    starts = tuple(replays[0][1] for replays in played)
    last = scored(main, starts[place], calibrated_s, until_s)
    step = one_step(main, policy, calibrated_s, until_s)
    wait_s = main.wait_s
    part = (main.submit_s >= calibrated_s) & (main.submit_s < until_s)
    held_share = float(main.held[part].mean()) if part.any() else 0.0
    held_waiting = float(wait_s[part & main.held].sum() / max(wait_s[part].sum(), 1.0))
    found = _errors(main, played[place], last, calibrated_s, until_s)
    mean, used = found.waits.error, found.used
    means_s = [_mean(start_s - one.submit_s, last) for one, start_s in played[place]]
    errors = np.concatenate(
        [
            _log10(one, start_s, scored(case, replays[0][1], calibrated_s, until_s))
            for case, replays in zip(later, played, strict=True)
            for one, start_s in replays
        ]
    )
    lines = (
        Line("error of the mean wait", mean, MEAN_WAIT, fatal=mean > _FAR * MEAN_WAIT),
        Line("error of the mean wait, worst class", found.worst, CLASS_WAIT),
        Line("error of daily utilisation", used, UTILISATION, fatal=used > _FAR * UTILISATION),
        Line("one-step F1", step.f1, F1, at_most=False, fatal=step.f1 < _LOW_F1),
        Line("share of jobs held", held_share, HELD, fatal=held_share > _HELD_FAR),
        Line("log10 error of waits", found.log10, LOG10),
        Line("log10 error of waits, all pools", float(errors.mean()) if len(errors) else 0.0, LOG10_ALL),
    )
    card = ReportCard(
        policy=policy,
        tried=tuple(ranked),
        named=named,
        lines=lines,
        classes=found.classes,
        history_s=found.waits.history_s,
        replay_s=found.waits.replay_s,
        spread_s=float(np.std(means_s)),
        jobs=int(last.sum()),
        held_share=held_share,
        held_waiting=held_waiting,
        step=step,
    )
    return card, cases, starts


def _first_part(case: Case, policy: BackfillPolicy, until_s: float) -> Iterator[float]:
    """Errors of the mean wait, its worst class, utilisation and the logarithm of waits in free replays of the first part.

    Each is the average over stretches that begin from history, so that what one long wait does to a queue does not decide.
    """
    length_s = _STRETCH * (until_s - case.begin_s)
    errors = []
    for first_s in np.linspace(case.begin_s, until_s - length_s, _STRETCHES).tolist():
        last_s = first_s + length_s
        start_s = replayed(replace(case, begin_s=first_s), policy)
        rows = scored(case, start_s, first_s, last_s)
        found = _errors(case, [(case, start_s)], rows, first_s, last_s)
        errors.append((found.waits.error, found.worst, found.used, found.log10))
    yield from np.mean(errors, axis=0).tolist()


def _shaken(case: Case) -> Iterator[Case]:
    """The case, and some whose jobs come up to two minutes later, though never after they started.

    A queue amplifies such differences, so that one replay is one of many that history might as well have been.
    """
    yield case
    for number in range(1, REPLAYS):
        later_s = stream(0, "replay", "submissions", str(number)).uniform(0, _SHAKE_S, len(case))
        submit_s = np.minimum(case.submit_s + later_s, case.start_s)
        yield replace(case, submit_s=submit_s, eligible_s=np.maximum(case.eligible_s, submit_s))


def _own_log(case: Case, start_s: F64) -> Case:
    """A history of the same jobs with other starts. A job that was held comes when it is released.

    start_s: of each job; nan: as in history.
    """
    start_s = np.where(np.isfinite(start_s), start_s, case.start_s)
    never = np.full(len(case), np.inf)
    return replace(
        case,
        start_s=start_s,
        end_s=start_s + case.run_s,
        submit_s=case.since_s,
        eligible_s=np.maximum(case.eligible_s, case.released_s),
        doubted_s=never,
        held_s=never,
        released_s=-never,
    )


def main_case(cases: Sequence[Case]) -> Case:
    """The pool whose jobs hold the most node-seconds."""
    return max(cases, key=lambda case: float((case.run_s * case.gpus).sum()))


def scored(case: Case, start_s: F64, from_s: float, until_s: float) -> Mask:
    """bool[jobs]: submitted between two instants, not held, and started in the replay."""
    return (case.submit_s >= from_s) & (case.submit_s < until_s) & ~case.held & np.isfinite(start_s)


def _mean(wait_s: F64, rows: Mask) -> float:
    return float(wait_s[rows].mean()) if rows.any() else 0.0


def _log10(case: Case, start_s: F64, rows: Mask) -> F64:
    ours_s = np.maximum((start_s - case.submit_s)[rows], ALIKE_S)
    real_s = np.maximum(case.wait_s[rows], ALIKE_S)
    errors: F64 = np.abs(np.log10(ours_s / real_s))
    return errors


def log10_error(case: Case, start_s: F64, rows: Mask) -> float:
    """Mean error of the decimal logarithm of waits, those below a minute taken as one."""
    return float(_log10(case, start_s, rows).mean()) if rows.any() else 0.0


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
class _Errors:
    """By how much free replays are off: mean waits, of all and by class, daily utilisation, the logarithm of waits."""

    waits: WaitClass
    classes: tuple[WaitClass, ...]
    used: float
    log10: float

    @property
    def worst(self) -> float:
        """Of the classes."""
        return max((one.error for one in self.classes), default=0.0)


def _errors(
    case: Case, replays: Sequence[tuple[Case, F64]], rows: Mask, from_s: float, until_s: float
) -> _Errors:
    """The average over replays of a case, of which only some jobs are scored. Classes need enough of them."""

    def waits(name: str, of: Mask) -> WaitClass:
        ours_s = float(np.mean([_mean(start_s - one.submit_s, of) for one, start_s in replays]))
        return WaitClass(name, int(of.sum()), _mean(case.wait_s, of), ours_s)

    classes = [(name, rows & mine) for name, mine in classes_of(case, rows)]
    return _Errors(
        waits("all", rows),
        tuple(waits(name, of) for name, of in classes if of.sum() >= _CLASS),
        float(np.mean([utilisation_error(one, start_s, from_s, until_s) for one, start_s in replays])),
        float(np.mean([log10_error(one, start_s, rows) for one, start_s in replays])),
    )
