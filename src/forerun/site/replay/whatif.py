"""What would have been otherwise: the replay with one thing changed, beside the replay, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np

from forerun.cluster.inputs.setting import Window
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.scenario import Limit, Otherwise
from forerun.core.rng import stream
from forerun.site.cases import Case, case_of, setting_of
from forerun.site.files import declared
from forerun.site.history import F64, I64, History
from forerun.site.machine import Declared, System
from forerun.site.replay.play import CANDIDATES, ON_NODES, policy_name, replayed
from forerun.site.replay.replay import Replay
from forerun.site.replay.scores import scored

_FORTNIGHT_S: Final = 14 * 86_400.0
_DRAWS: Final = 1000
#: nodes that a change takes are away for longer than any replay
_LONG_S: Final = 3650 * 86_400.0
_CONFIDENCE: Final = 0.95
#: a change below so many times the error of the reproduction is not distinguished from that error
_ERRORS: Final = 2.0
#: an interval from fewer stretches says little
_STRETCHES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """One or several things that are otherwise.

    Parameters
    ----------
    policy : instead of the replay's (default: its own).
    nodes : more or fewer nodes of the main pool (default 0).
    without_window : number of an outage that does not happen, from 1 (default 0: all do).
    running_per_user : how many jobs a user may run at once; 0: any number (default None: as many as found).
    """

    policy: BackfillPolicy | None = None
    nodes: int = 0
    without_window: int = 0
    running_per_user: int | None = None

    @property
    def what(self) -> str:
        """In words."""
        parts = [] if self.policy is None else [f"policy {policy_name(self.policy)}"]
        if self.nodes:
            parts.append(f"{self.nodes:+d} nodes")
        if self.without_window:
            parts.append(f"without outage {self.without_window}")
        if self.running_per_user is not None:
            limit = self.running_per_user
            parts.append(
                f"at most {limit} running jobs a user" if limit else "no limit of running jobs a user"
            )
        return ", ".join(parts)

    def of(self, case: Case, log: History, system: System) -> Case:
        """A pool with the change, jobs and holds as they were. log, system: of which the case is."""
        if isinstance(system, Declared):
            case = self._declared(case, log, system)
            windows = [one for at, one in enumerate(case.windows, 1) if at != self.without_window]
            return replace(case, setting=replace(case.setting, maintenance=tuple(windows)))
        pool, setting = case.pool, case.setting
        if self.nodes:
            pool = pool.with_nodes(self.nodes)
        if self.running_per_user is not None:
            pool = msgspec.structs.replace(pool, running_per_user=self.running_per_user)
        if pool != case.pool:
            setting = setting_of(log.of(case.rows), pool, system)
        more = pool.gpus - case.pool.gpus
        windows = [
            # of most GPUs leaves as many as it did; of some, those
            replace(window, gpus=window.gpus + (more if 2 * window.gpus > case.pool.gpus else 0))
            for number, window in enumerate(case.windows, 1)
            if number != self.without_window
        ]
        return replace(case, pool=pool, setting=replace(setting, maintenance=tuple(windows)))

    def _declared(self, case: Case, log: History, system: Declared) -> Case:
        """The jobs of a site with other nodes, like those that it has most of, and another limit."""
        scenario, most = system.inputs.scenario, max(case.pool.parts, key=lambda one: one.nodes)
        if self.nodes > 0:
            more = Otherwise(more_nodes={most.partitions.partition(",")[0]: self.nodes})
            scenario = scenario.with_(machines=scenario.machines.with_(otherwise=more))
        if self.running_per_user:
            scenario = scenario.with_(limits=(Limit(per=("user",), jobs=self.running_per_user),))
        if scenario != system.inputs.scenario:
            changed = declared(scenario, log)
            setting = case_of(log, changed, 0).setting
            case = replace(case, pool=changed.pools[0], setting=setting)
        if self.nodes < 0:
            size, types = case.setting.cluster.node_gpus(), case.setting.cluster.node_types()
            alike = [
                node
                for node, one in enumerate(types)
                if (size[node], one) == (most.gpus_per_node, most.gpu_type)
            ]
            gone = tuple(alike[self.nodes :])
            away = Window(0.0, log.last_s + _LONG_S, int(size[list(gone)].sum()), 0.0, nodes=gone)
            case = replace(case, setting=replace(case.setting, maintenance=(*case.windows, away)))
        return case


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a change does to the mean wait of jobs that are not held, in seconds.

    Parameters
    ----------
    change : what was changed, in words.
    verdict : `shorter`, `longer` or `cannot tell`.
    why : the reason for the verdict.
    replay_s, changed_s, difference_s : mean wait in the replay, with the change, and that less the former, under the
        replay's own policy.
    low_s, high_s : 95 % interval of the difference over policies that the log cannot tell apart and resampled fortnights.
    reproduction_error_s : by how much the replay misses the mean wait of history; no less than its replays differ.
    jobs, fortnights : how many there are.
    policies : those that the log cannot tell apart.
    """

    change: str
    verdict: str
    why: str
    replay_s: float
    changed_s: float
    difference_s: float
    low_s: float
    high_s: float
    reproduction_error_s: float
    jobs: int
    fortnights: int
    policies: tuple[str, ...]


def named_policies(replay: Replay) -> dict[str, BackfillPolicy]:
    """The policies that a change may name; an order of the kind of the replay's own has its weights."""
    tried = ON_NODES if replay.main.pool.parts else CANDIDATES
    own = (one.with_(order=replay.card.policy.order) for one in tried)
    return {policy_name(one): one for one in (*tried, *own, *replay.card.alike)}


def what_if(replay: Replay, change: Counterfactual) -> Difference:
    """The effect of a change against the replay, not against history, since the replay began.

    Raises ValueError for a change that the main pool does not have: an outage that there is none of, no nodes left, or fewer
    than a job of the log asks for.
    """
    main, card = replay.main, replay.card
    if change.without_window > len(main.windows):
        raise ValueError(f"there are {len(main.windows)} outages; {change.without_window} is none of them")
    widest = int(main.gpus.max())
    if (left := main.pool.gpus + change.nodes * main.pool.gpus_per_node) < widest:
        raise ValueError(f"{left} {replay.log.unit} are left, and a job asks for {widest}")
    changed = change.of(main, replay.log, replay.system)
    differences: list[F64] = []
    own: tuple[float, float] = (0.0, 0.0)
    rows, stretch = np.zeros(len(main), np.bool_), np.zeros(0, np.int64)
    for policy in card.alike:
        base_s = replayed(main, policy)
        other_s = replayed(changed, change.policy if change.policy is not None else policy)
        if policy == card.policy:
            rows = scored(main, base_s, main.begin_s, replay.until_s)
            stretch = ((main.submit_s[rows] - main.begin_s) // _FORTNIGHT_S).astype(np.int64)
            wait_s = base_s - main.submit_s
            own = float(wait_s[rows].mean()), float((other_s - main.submit_s)[rows].mean())
        differences.append((other_s - base_s)[rows])
    policies = tuple(policy_name(policy) for policy in card.alike)
    low_s, high_s, stretches = _interval(differences, stretch)
    verdict, why = _verdict(own[1] - own[0], low_s, high_s, stretches, replay)
    return Difference(
        change=change.what,
        verdict=verdict,
        why=why,
        replay_s=own[0],
        changed_s=own[1],
        difference_s=own[1] - own[0],
        low_s=low_s,
        high_s=high_s,
        reproduction_error_s=card.error_s,
        jobs=int(rows.sum()),
        fortnights=stretches,
        policies=policies,
    )


def _interval(differences: Sequence[F64], stretch: I64) -> tuple[float, float, int]:
    """The lowest and highest end of the policies' intervals of the mean, each over resampled stretches of the log."""
    _, of = np.unique(stretch, return_inverse=True)
    jobs = np.bincount(of).astype(np.float64)
    count = len(jobs)
    rng = stream(0, "replay", "fortnights")
    drawn = rng.integers(0, count, (_DRAWS, count)) if count else np.zeros((1, 0), np.int64)
    tail = (1 - _CONFIDENCE) / 2
    ends: list[tuple[float, float]] = []
    for difference in differences:
        sums = np.bincount(of, difference)
        means = sums[drawn].sum(1) / np.maximum(jobs[drawn].sum(1), 1.0)
        # what resampled stretches vary by too little where there are few of them
        middle = float(difference.mean()) if len(difference) else 0.0
        wider = np.sqrt(count / (count - 1)) if count > 1 else 1.0
        low, high = np.quantile(means, (tail, 1 - tail))
        ends.append((middle + wider * (float(low) - middle), middle + wider * (float(high) - middle)))
    return min(low for low, _ in ends), max(high for _, high in ends), count


def _verdict(change_s: float, low_s: float, high_s: float, stretches: int, replay: Replay) -> tuple[str, str]:
    """What can be said, and why."""
    card = replay.card
    if card.reasons:
        return "cannot tell", f"the replay does not reproduce this log: {'; '.join(card.reasons)}"
    if stretches < _STRETCHES:
        return "cannot tell", f"the log has {stretches} fortnights; at least {_STRETCHES} are needed"
    if low_s <= 0 <= high_s:
        return "cannot tell", "the interval contains zero"
    if abs(change_s) < _ERRORS * card.error_s:
        return (
            "cannot tell",
            f"the change is below twice the error of the reproduction, {card.error_s:.0f} s",
        )
    return ("shorter" if high_s < 0 else "longer"), "the interval is on one side of zero"
