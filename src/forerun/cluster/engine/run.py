"""A run: the policy's rules at work on the inputs, one instant after another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.cluster.engine import engine_of
from forerun.cluster.engine.allocator import PLACEMENTS, AllocatorRules, Terms
from forerun.cluster.engine.node_queue import NodeQueueRules
from forerun.cluster.engine.priority import PriorityRules
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import AnyRules
from forerun.cluster.inputs.arrays import I64
from forerun.cluster.inputs.prepare import Inputs
from forerun.cluster.inputs.reach import reach_of
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.observer import Observer
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.policy import Allocator, Policy, PriorityPolicy, Schedule
from forerun.cluster.scenario import Scenario
from forerun.core.rng import stream

#: what is called after each instant, with the instant in seconds
OnInstant = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened in a run, before any figure is made of it.

    inputs: what was run. record: outcomes of jobs, allocations and events. error: why the run ended early, empty if the
    policy decided nothing impossible.
    """

    inputs: Inputs
    record: Record
    error: str = ""


def run(inputs: Inputs, record: Record, observers: Sequence[Observer] = ()) -> None:
    """Simulate, writing into a record of `inputs.setting`. Touches no file.

    observers: their `instant` is called after every instant at which the policy acts. Raises PolicyError for an impossible
    decision; the record then has the run up to it.
    """
    scenario, setting = inputs.scenario, inputs.setting
    terms = terms_of(scenario, setting)
    rules = engine_of(scenario).rules(inputs.policy, setting, record, terms, scenario.seed)
    with contextlib.closing(rules):
        run_rules(rules, [_shows(observer, record) for observer in observers])


def _shows(observer: Observer, record: Record) -> OnInstant:
    return lambda now_s: observer.instant(now_s, record)


def run_rules(rules: AnyRules, on_instant: Sequence[OnInstant] = ()) -> None:
    """Advance rules from instant to instant until nothing happens any more.

    The clock, the steps of an instant and their order belong to the rules; that is all in which schedules differ here.
    Rules that advance many instants at once advance one at a time where `on_instant` is given.
    """
    if on_instant:
        rules.stop_at_each_instant()
    while (now_s := rules.play()) is not None:
        if on_instant:
            rules.flush()  # the record may be behind by a block of events
        for call in on_instant:
            call(now_s)


def rules_for(policy: Policy, setting: Setting, record: Record, terms: Terms, seed: int) -> AnyRules:
    """The rules of a policy in the default mode; parameters as of `Engine.rules`."""
    if isinstance(policy, Schedule):
        return policy.rules(setting, record)
    assert isinstance(policy, Allocator), policy
    alone = terms.quota is None and terms.penalty[1:] == (1.0,) and setting.costs is None
    everywhere = reach_of(setting.jobs, setting.cluster).is_everywhere
    again = bool(setting.failures or (setting.jobs.predecessor() >= 0).any())
    plain = alone and not again and everywhere and terms.placement == "anywhere" and setting.limits is None
    plain = plain and not setting.jobs.censored.any()
    if isinstance(policy, PriorityPolicy) and plain and not policy.backfill and not policy.round_s:
        return PriorityRules(setting, record, policy, terms)
    types = len(set(setting.cluster.node_types()))
    alike = types == 1 or not (setting.profiles or setting.profile)
    if isinstance(policy, PriorityPolicy):
        alike = types == 1 or (alike and not everywhere)
    if isinstance(policy, BackfillPolicy | PriorityPolicy) and alone and alike and policy.compiles:
        confined = terms.placement == "anywhere" and (
            policy.places or not everywhere or bool(setting.failures)
        )
        placement = "first-fit" if confined else terms.placement
        if placement != "anywhere" or not isinstance(policy.order, Multifactor):
            rule = policy.terms(PLACEMENTS.index(placement), setting.seed)._replace(
                restart_s=float(terms.restart_s), checkpoint_s=float(terms.checkpoint_s)
            )
            stops = policy.preemption if isinstance(policy, SlurmBackfill) else None
            return NodeQueueRules(setting, record, rule, policy.order, preemption=stops)
    return AllocatorRules(setting, record, policy, policy.build(stream(seed, "policy")), terms)


def terms_of(scenario: Scenario, setting: Setting) -> Terms:
    """Placement, costs and quotas of a scenario; users are numbered in the order in which they come."""
    quota: I64 | None = None
    if scenario.quota is not None:
        users = tuple(dict.fromkeys(setting.jobs.user))
        limits = [scenario.quota.gpus.get(user, scenario.quota.default) for user in users]
        quota = np.array([*limits, int(scenario.quota.borrow)], np.int64)
    return Terms(
        placement=scenario.placement,
        restart_s=scenario.costs.restart_s,
        grow_s=scenario.costs.grow_s,
        shrink_s=scenario.costs.shrink_s,
        penalty=(1.0, *scenario.multi_node_penalty),
        quota=quota,
        checkpoint_s=scenario.costs.checkpoint_s or 0.0,
    )
