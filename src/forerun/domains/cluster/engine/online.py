"""A policy over real jobs: it observes what they do, and answers with decisions.

`Online` drives the same rules as a simulation (`engine.rules`), by observations in place of their model of work. It does
no I/O and reads no clock: whoever drives it waits until `expected_s` or until something is observed, and then asks for
the decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forerun.domains.cluster.engine.allocator import AllocatorRules, Terms
from forerun.domains.cluster.engine.plan_ahead import PlanAheadRules
from forerun.domains.cluster.engine.promises import PromisingRules
from forerun.domains.cluster.engine.record import Record
from forerun.domains.cluster.engine.rules import AnyObservingRules, ObservingRules, Progress
from forerun.domains.cluster.engine.seats import Seats
from forerun.domains.cluster.inputs.setting import F64, Setting
from forerun.domains.cluster.policy import Allocator, Policy, Schedule
from forerun.errors import ScenarioError
from forerun.registry import member_name
from forerun.rng import stream


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy decides at one instant, as data.

    Parameters
    ----------
    now_s : the instant, in seconds of the run.
    gpus : GPUs from now on of every job that has any, by row.
    slots : which GPUs these are, by row: numbers through the cluster, ascending. A job whose number of GPUs is unchanged
        keeps its own, except where others find no room without it.
    admitted : rows admitted since the last decision.
    refused : why, by row refused since the last decision.
    late : rows so far behind their plans that no plan is in time any more, of policies that promise ends.
    """

    now_s: float
    gpus: Mapping[int, int]
    slots: Mapping[int, tuple[int, ...]]
    admitted: tuple[int, ...] = ()
    refused: Mapping[int, str] | None = None
    late: tuple[int, ...] = ()


class Online:
    """A policy at work on jobs whose progress is observed.

    Parameters
    ----------
    policy : the spec that a scenario names.
    setting : the jobs and the cluster.
    terms : placement, costs and quotas, for policies that decide through a view.
    seed : of the policy's own random numbers.

    Attributes
    ----------
    record : what was decided so far; it judges ends by the jobs' deadlines.
    """

    def __init__(self, policy: Policy, setting: Setting, terms: Terms, seed: int) -> None:
        self.setting = setting
        self.record = Record(setting)
        self.record.seeks_remedies = False
        self.rules = online_rules(policy, setting, self.record, terms, seed)
        self.rules.stop_at_each_instant()
        self.work: F64 = self.rules.work()
        together = isinstance(self.rules, PlanAheadRules)
        self.seats = Seats(setting.cluster.node_gpus(), together=together)
        self._admitted = self.record.admitted.copy()

    def expected_s(self) -> float | None:
        """The next instant at which the policy wants to decide, None if it waits for an observation."""
        return self.rules.expected_s()

    def ended(self, row: int, end_s: float) -> None:
        """Note an end; the policy acts on it at the next instant that it expects."""
        self.rules.ended(row, end_s)

    def decide(self, now_s: float, seen: Progress) -> Decision:
        """The decision at an instant, of what was observed by then. Raises PolicyError for an impossible one."""
        self.rules.act(now_s, seen)
        record = self.record
        fresh = np.flatnonzero(record.admitted != self._admitted)
        self._admitted = record.admitted.copy()
        held = np.flatnonzero(record.held)
        gpus = dict(zip(held.tolist(), record.held[held].tolist(), strict=True))
        return Decision(
            now_s,
            gpus,
            self._slots(gpus),
            tuple(fresh[record.admitted[fresh] == 1].tolist()),
            {row: record.refusals[row] for row in fresh[record.admitted[fresh] == 0].tolist()},
            self._late(),
        )

    def _slots(self, gpus: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """The GPUs of each job that has some: those of the policy's own placement, where it has one."""
        if isinstance(self.rules, AllocatorRules) and len(owner := self.rules.state.owner):
            return {row: tuple(np.flatnonzero(owner == row).tolist()) for row in gpus}
        self.seats.settle(gpus)
        return {row: tuple(self.seats.of[row].tolist()) for row in gpus}

    def _late(self) -> tuple[int, ...]:
        rows = np.flatnonzero(self.rules.late) if isinstance(self.rules, PromisingRules) else ()
        return tuple(int(row) for row in rows if self.record.end_s[row] < 0)


def online_rules(
    policy: Policy, setting: Setting, record: Record, terms: Terms, seed: int
) -> AnyObservingRules:
    """The rules of a policy that decide one instant at a time."""
    if isinstance(policy, Schedule):
        name, rules = member_name(type(policy)), policy.rules(setting, record)
        if not isinstance(rules, ObservingRules):
            raise ScenarioError.at(
                "$.policy", f"{name} decides by its own model of progress; it cannot follow real jobs"
            )
        if missing := sorted(rules.needs - setting.corrected):
            raise ScenarioError.at(
                "$.compat", f"{name} follows real jobs only with {', '.join(missing)} corrected"
            )
        return rules
    assert isinstance(policy, Allocator), policy
    return AllocatorRules(setting, record, policy, policy.build(stream(seed, "policy")), terms)
