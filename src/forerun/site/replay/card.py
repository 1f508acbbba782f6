"""How well a replay reproduces its own history, and how sure it is which policy made it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.site.cases import Case
from forerun.site.history import F64
from forerun.site.replay.calibration import Calibration, Candidate
from forerun.site.replay.play import REPLAYS, OneStep, one_step, policy_name, replayed, shaken, with_holds
from forerun.site.replay.scores import (
    CLASS_WAIT,
    MEAN_WAIT,
    WaitClass,
    errors_of,
    log10_errors,
    main_case,
    mean_of,
    scored,
)

#: further limits of the report card
UTILISATION: Final = 0.08
F1: Final = 0.50
HELD: Final = 0.20
LOG10: Final = 0.85
LOG10_ALL: Final = 0.45


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of the report card.

    Parameters
    ----------
    what : the figure.
    value : measured.
    limit : what it may be.
    at_most : whether the limit is a maximum.
    """

    what: str
    value: float
    limit: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        """Whether the limit is met."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit


@dataclass(frozen=True, slots=True)
class ReportCard:
    """The report card of a replay.

    Parameters
    ----------
    past : what the first part says: with which policy the log is replayed, and why the last part is not answered for.
    tried : as `past` has them, also on a log that the chosen one made, where that was asked.
    named : the policy that the log shows it had; None: it does not show one.
    lines : the figures on the last part.
    classes : waits by class, of the main pool.
    history_s, replay_s : mean wait of jobs that are not held.
    spread_s : standard deviation of the latter over replays whose submissions differ by up to two minutes.
    jobs : how many those are.
    held_share, held_waiting : share of jobs that are held, and of all waiting that is theirs.
    step : of the policy, one decision at a time on the last part.
    """

    past: Calibration
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
    def policy(self) -> BackfillPolicy:
        """With which the log is replayed."""
        return self.past.policy

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the last part is not answered for; none: it is."""
        return tuple(f"{one.reason}: {one.evidence}" for one in self.past.refusals)

    @property
    def missed(self) -> tuple[Line, ...]:
        """Limits that are not met."""
        return tuple(line for line in self.lines if not line.met)

    @property
    def alike(self) -> tuple[BackfillPolicy, ...]:
        """Policies that the log cannot tell apart: that of the replay first, then those like the best."""
        best = self.tried[0].step
        return (
            self.policy,
            *(one.policy for one in self.tried if one.step.like(best) and one.policy != self.policy),
        )


def report_card(
    cases: Sequence[Case],
    past: Calibration,
    until_s: float,
    *,
    identify: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[ReportCard, tuple[Case, ...], tuple[F64, ...]]:
    """Score the last part of a log.

    Returns the card, the cases with their held jobs marked, and the starts of each pool, replayed from the end of the
    first part on.

    Parameters
    ----------
    cases : of each pool; the one with the most node-seconds is the main one.
    past : what the first part says; the policy that is asked who is held is that with the best one-step F1 there.
    until_s : where the last part ends.
    identify : whether the policies are also tried on a log that the chosen one made.
    progress : is called with what is being done.
    """
    place = list(cases).index(main_case(cases))
    policy, calibrated_s = past.policy, past.at_s
    ranked = past.tried
    cases = tuple(with_holds(case, ranked[0].policy, past.system.held_after_s) for case in cases)
    main = cases[place]
    best = ranked[0].step
    named = ranked[0].policy if best.f1 >= F1 and not any(one.step.like(best) for one in ranked[1:]) else None
    if identify:
        progress(f"a log of {policy_name(policy)}")
        own = _own_log(main, replayed(main, policy))
        ranked = tuple(
            replace(one, own=one_step(own, one.policy, past.from_s, calibrated_s).f1) for one in ranked
        )
    progress(f"{policy_name(policy)}, {REPLAYS} replays")
    later = tuple(replace(case, begin_s=calibrated_s) for case in cases)
    starts = tuple(replayed(case, policy) for case in later)
    last = scored(main, starts[place], calibrated_s, until_s)
    step = one_step(main, policy, calibrated_s, until_s)
    wait_s = main.wait_s
    part = (main.submit_s >= calibrated_s) & (main.submit_s < until_s) & main.started
    held_share = float(main.held[part].mean()) if part.any() else 0.0
    held_waiting = float(wait_s[part & main.held].sum() / max(wait_s[part].sum(), 1.0))
    found = errors_of(main, starts[place], last, calibrated_s, until_s)
    mean, used = found.waits.error, found.used
    means_s = [mean_of(replayed(one, policy) - one.submit_s, last) for one in shaken(later[place])]
    errors = np.concatenate(
        [
            log10_errors(case, start_s, scored(case, start_s, calibrated_s, until_s))
            for case, start_s in zip(later, starts, strict=True)
        ]
    )
    lines = (
        Line("error of the mean wait", mean, MEAN_WAIT),
        Line("error of the mean wait, worst class", found.worst, CLASS_WAIT),
        Line("error of daily utilisation", used, UTILISATION),
        Line("one-step F1", step.f1, F1, at_most=False),
        Line("share of jobs held", held_share, HELD),
        Line("log10 error of waits", found.log10, LOG10),
        Line("log10 error of waits, all pools", float(errors.mean()) if len(errors) else 0.0, LOG10_ALL),
    )
    card = ReportCard(
        past=past,
        tried=ranked,
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
