"""The question of a spot run, the parameters that may change its answer, and other orders of simultaneous events."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from forerun.core.domain import Answer, Explainer, Orders, Untied, WhatIf
from forerun.core.registry import member_name
from forerun.core.result.run import Result, SavedRun
from forerun.core.rng import stream
from forerun.spot.engine.membership import Instant, Membership
from forerun.spot.engine.run import run
from forerun.spot.inputs import prepare
from forerun.spot.policies.restart import Restart
from forerun.spot.policy import deadline_rules
from forerun.spot.reserved.scenario import Cluster
from forerun.spot.scenario import Scenario
from forerun.spot.scenario.processes import Poisson, Tick
from forerun.spot.summary.summarize import summarize

HALF = 0.5
_REBUILD: Final = ("job.reconfig_s", "pause to rebuild pipelines")
_WRITE: Final = ("job.write_s", "time a write takes")
#: the times that a recovery policy reads
_PAUSES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = defaultdict(
    lambda: (_REBUILD, _WRITE),
    oobleck=(("policy.pause_s", "pause after a loss"),),
    bamboo=(("policy.local_s", "pause to deal out stages anew"),),
    parcae=(("policy.regroup_s", "pause to regroup"), ("policy.copy_s", "copy of a lost stage")),
)
#: a hair, in s: far below any step, far above the rounding of instants up to some years
HAIR_S = 1e-6


class SpotExplainer(Explainer[Scenario]):
    """The spot domain's question, its what-if parameters and its other orders of events."""

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """Whether the deadline is likely met, the goal reached, or at least half of the time useful."""
        if "done_by_deadline" in summary:
            return Answer(
                "Is the job done by its deadline in 95 of 100 histories?", summary["done_by_deadline"] >= 0.95
            )
        if "met_deadline" in summary:
            return Answer("Is the deadline met?", bool(summary["met_deadline"]))
        if "finished_share" in summary:
            return Answer("Does the job finish in 95 of 100 histories?", summary["finished_share"] >= 0.95)
        if "finish_h" in summary:
            return Answer("Does the job finish?", summary["finish_h"] is not None)
        return Answer("Is at least half of the time useful?", summary["useful_share"] >= HALF)

    def what_ifs(self, scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """Growth rule, on-demand nodes, deadline, checkpoints, rates of removals, times of pauses.

        Those that could change the answer: more of what helps where it is a no, less where it is a yes.
        """
        yes = self.answer(run.summary).holds
        depth, nodes, goal = scenario.job.depth, scenario.on_demand_nodes, scenario.goal
        less = (0.9, 0.75, 0.5, 0.25)
        more = (1.1, 1.25, 1.5, 2.0, 4.0)
        parameters = []

        def scaled(path: str, now: float, shares: tuple[float, ...], meaning: str) -> None:
            parameters.append(WhatIf(path, now, tuple(now * share for share in shares), meaning))

        cluster = scenario.fleet if isinstance(scenario.fleet, Cluster) else None
        if cluster is not None:
            spares = tuple(
                dict.fromkeys(min(cluster.job_nodes, cluster.spares + more) for more in (1, 4, 16, 64))
            )
            if not yes:
                parameters.append(WhatIf("fleet.spares", cluster.spares, spares, "spare nodes"))
        elif isinstance(scenario.policy, Restart):  # the other recoveries have a growth of their own
            rule = member_name(type(scenario.growth))
            rules = ("hazard_drain", "lazy", "lazy2", "drain", "immediate")
            others = tuple(other for other in rules if other != rule)
            parameters.append(WhatIf("growth", rule, others, "growth rule"))
        if scenario.deadline is not None:
            rule = member_name(type(scenario.deadline.rule))
            others = tuple(name for name in deadline_rules().names() if name != rule)
            parameters.append(WhatIf("deadline.rule", rule, others, "deadline rule"))
        elif cluster is None and (not yes or nodes):
            most = nodes + depth * scenario.job.max_pipelines
            steps = range(nodes - depth, -1, -depth) if yes else range(nodes + depth, most + 1, depth)
            parameters.append(WhatIf("on_demand_nodes", nodes, tuple(steps), "nodes that never vanish"))
        shares = more if yes else less
        if isinstance(scenario.fleet, Poisson | Tick):
            rate = scenario.fleet.removals_per_min
            scaled("fleet.removals_per_min", rate, shares, "removals a minute")
        for path, meaning in _PAUSES[member_name(type(scenario.policy))]:
            section, _, name = path.partition(".")
            now = getattr(getattr(scenario, section), name)
            if now > 0 and (path != "job.reconfig_s" or scenario.job.load_s == 0 or yes):
                scaled(path, now, shares, meaning)
        if goal.deadline_s:
            turns = (0.9, 0.75, 0.6, 0.5) if yes else (1.1, 1.25, 1.5, 2.0, 3.0)
            scaled("goal.deadline_s", goal.deadline_s, turns, "deadline in s")
        return tuple(parameters)

    def orders(self, scenario: Scenario) -> Orders | Untied:
        """Changes of one history's fleet before or after steps and checkpoints of their instant, losses and gains apart."""
        if isinstance(scenario.fleet, Cluster):
            return Untied("failures of a reserved cluster, whose instants coincide by chance only")
        if scenario.trials:
            one = "`--set trials=0` has one, with other orders"
            return Untied(f"many random histories, whose instants coincide by chance only; {one}")
        if scenario.deadline is not None:
            return Untied("the fleet is what the rule chose to rent, decided between the instants")
        what = (
            "changes of the fleet come before or after what else is at their instant, losses and gains apart"
        )
        return Orders(what, lambda number: _simulate_in(scenario, number))


def _simulate_in(scenario: Scenario, number: int) -> Result:
    """The scenario's one history with its simultaneous events in order `number`."""
    inputs = prepare(scenario)
    fleet = permuted(inputs.history(0), scenario.seed, number)
    home = replace(inputs.home, recorded=fleet)
    return summarize(run(replace(inputs, markets=(home, *inputs.markets[1:]))))


def permuted(fleet: Membership, seed: int, number: int) -> Membership:
    """The fleet with each instant moved by a hair or not at all; what is lost and gained at one comes apart.

    The first instant stays: the fleet begins with it. A node that goes and comes at one instant keeps that order.
    Where instants are closer than a few hairs, the fleet is returned as it is.

    Parameters
    ----------
    fleet : one history.
    seed : of the scenario, for the draws.
    number : of the order: in order 0 all gains follow their losses, in the others either may come first.
    """
    draws = stream(seed, "ties", number)
    moved: list[Instant] = []
    for at, instant in enumerate(fleet.instants):
        shift, gains_first = int(draws.integers(-1, 2)), bool(draws.random() < 0.5) and number > 0
        if at == 0:
            moved.append(instant)
            continue
        t_s = instant.t_s + shift * HAIR_S
        lost, gained = Instant(t_s, instant.removed, ()), Instant(t_s, (), instant.added)
        if not instant.removed or not instant.added:
            moved.append(Instant(t_s, instant.removed, instant.added))
        elif gains_first and not set(instant.removed) & set(instant.added):
            moved += [gained, Instant(t_s + HAIR_S, lost.removed, ())]
        else:
            moved += [lost, Instant(t_s + HAIR_S, (), gained.added)]
    if any(later.t_s <= earlier.t_s for earlier, later in itertools.pairwise(moved)):
        # Recorded instants closer than a few hairs have an order of their own, which is not ours to change.
        return fleet
    return Membership(tuple(moved), fleet.names)
