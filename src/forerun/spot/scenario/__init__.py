"""The scenario of a spot run: the fleet, the job, prices, the goal, and the policies."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec

from forerun.core.scenario.checks import Checks, failing
from forerun.core.scenario.numbers import Count, NotNegative, Positive, Whole
from forerun.core.scenario.spec import Input, NamedSpec, Spec, chosen_from
from forerun.core.trace.reader import format_problems
from forerun.core.trace.steps import Steps
from forerun.spot.policies.immediate import Immediate
from forerun.spot.policies.lazy import Lazy
from forerun.spot.policies.oobleck import Oobleck
from forerun.spot.policies.restart import Restart
from forerun.spot.policies.torchft import TorchFT
from forerun.spot.policy import (
    DeadlineRule,
    GrowthRule,
    RecoveryPolicy,
    deadline_rules,
    growth_rules,
    recovery_policies,
)
from forerun.spot.reserved.scenario import Cluster
from forerun.spot.scenario.job import JobSpec
from forerun.spot.scenario.processes import Process, changes_per_h

#: nodes beside the fleet, at most, and numbers of them that a plan tries
MOST_BESIDE: Final = 100_000
Nodes: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Leaves: TypeAlias = Literal["fifo", "lifo", "random"]
"""The node that leaves where only a count is known: the oldest, the youngest, or any."""


class Recorded(NamedSpec, frozen=True, kw_only=True, tag="trace"):
    """A recorded fleet: a membership trace, or a count series turned into nodes by a rule.

    file: the recording.
    format: of the file (default: recognised by its content). options: of that format.
    strict: reject rows that would be repaired (default: no).
    leaves: the node that leaves where only a count is known, the oldest (`fifo`), the youngest (`lifo`, the default) or
    any (`random`); node-hours do not depend on it, but what happens to the job does.
    """

    file: Input
    format: str = ""
    options: dict[str, str] = {}
    strict: bool = False
    leaves: Leaves = "lifo"

    def problems(self) -> list[tuple[str, str]]:
        """A format that exists."""
        return format_problems(self.format)


Fleet: TypeAlias = Recorded | Process | Cluster

ON_CLUSTERS: Final = (Restart, Oobleck, TorchFT)
"""Recovery policies that the kernel of reserved clusters knows."""
MOST_CHANGES: Final = 1e7
MOST_STEPS: Final = 1e8
"""Changes of the fleet, and steps, of one history that can be simulated in a time worth waiting for."""
MOST_CHANGES_IN_ALL: Final = 1e10
CHANGE_S: Final = 1e-7
"""Changes over all trials, and the CPU time of one [s]: a trial without changes costs about as much as ten."""


class PriceFile(Spec, frozen=True, kw_only=True):
    """Recorded prices of one zone and machine.

    file: the recording. format: of the file (default: recognised by its content). options: of that format.
    """

    file: Input
    format: str = ""
    options: dict[str, str] = {}

    def problems(self) -> list[tuple[str, str]]:
        """A format that exists."""
        return format_problems(self.format)


class SpotPrice(Spec, frozen=True, kw_only=True):
    """What a spot node costs an hour: one number, `spot_series` over time, or a `spot_file`.

    The last known price stays.
    """

    spot_usd_per_h: NotNegative = 0.0
    spot_series: Steps | None = None
    spot_file: PriceFile | None = None

    def problems(self) -> list[tuple[str, str]]:
        """The price is given once."""
        given = [name for name in ("spot_usd_per_h", "spot_series", "spot_file") if getattr(self, name)]
        if len(given) > 1:
            return [(given[1], f"sets the price once more; {given[0]} sets it already")]
        return []

    @property
    def known(self) -> bool:
        """Whether there is a price at all."""
        return bool(self.spot_usd_per_h or self.spot_series or self.spot_file)

    @property
    def changes(self) -> bool:
        """Whether the price may change over time."""
        return bool(self.spot_series or self.spot_file)


class Prices(SpotPrice, frozen=True, kw_only=True):
    """What nodes cost, by the hour and node.

    billing_s rounds every life up to whole units (0: to the instant); minimum_s is the least that is billed.
    """

    on_demand_usd_per_h: NotNegative = 0.0
    billing_s: NotNegative = 0.0
    minimum_s: NotNegative = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """Lives are billed in units at one price only."""
        problems = super().problems()
        if (self.billing_s or self.minimum_s) and (self.spot_series or self.spot_file):
            problems.append(("billing_s", "billing units need one spot price, not one that changes"))
        return problems


class Zone(SpotPrice, frozen=True, kw_only=True):
    """Another market of spot nodes, with its own history and price."""

    name: str
    fleet: Fleet

    def problems(self) -> list[tuple[str, str]]:
        """The zone has a name."""
        return super().problems() + ([] if self.name else [("name", "is empty")])


class Deadline(Spec, frozen=True, kw_only=True):
    """Rent spot nodes, on-demand nodes or nothing, decided by a rule at every tick.

    rule: the deadline rule.
    on_demand_nodes: on-demand nodes, which are available at any time.
    tick_s: time between decisions (default 600 s).
    egress_usd: to move the job's state to another zone (default 0).
    last_word: rent on-demand nodes for good once nothing else is sure to be in time (default); off, the rule alone decides.
    by_goodput: offer a zone to the rule only while it is preferred to on-demand nodes by the expected cost of a retained
    step (default); the preference changes once what a change would have saved exceeds what it costs.
    """

    rule: Annotated[DeadlineRule, chosen_from(deadline_rules)]
    on_demand_nodes: Annotated[int, msgspec.Meta(ge=1, le=MOST_BESIDE)]
    tick_s: Positive = 600.0
    egress_usd: NotNegative = 0.0
    last_word: bool = True
    by_goodput: bool = True


class Goal(Spec, frozen=True, kw_only=True):
    """How much to compute, by when, and for how much.

    steps: to complete (default 0: run to the horizon).
    deadline_s: by when (default 0: none). budget_usd: for how much (default 0: no limit).
    certainty: the probability with which a plan must meet the deadline (default 0.95).
    """

    steps: Whole = 0
    deadline_s: NotNegative = 0.0
    budget_usd: NotNegative = 0.0
    certainty: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.95

    def problems(self) -> list[tuple[str, str]]:
        """A deadline needs something to be done by it."""
        if self.deadline_s and not self.steps:
            return [("steps", "a deadline needs the number of steps to complete by it")]
        return []


class Choices(Spec, frozen=True, kw_only=True):
    """The alternatives of a plan, besides what the scenario says.

    jobs: other shapes with their own step times, such as another depth, or other tiers of checkpoints (default: none).
    every_steps: steps between checkpoints (default: around the closed form's optimum; back to back is always tried).
    growth: growth rules (default: all of the kernel's).
    spares: spot nodes requested, or nodes of a cluster that stand by, beyond the fleet's own (default: 0).
    on_demand_nodes: numbers of nodes that never vanish (default: the scenario's).
    recovery: recovery policies beside the scenario's, on a reserved cluster (default: none).
    trials: of a candidate that stays in the race (default 4000).
    """

    added_later: ClassVar[tuple[str, ...]] = ("recovery",)

    jobs: tuple[JobSpec, ...] = ()
    every_steps: tuple[Count, ...] = ()
    growth: tuple[str, ...] = ("immediate", "lazy", "lazy2", "hazard", "drain", "hazard_drain")
    spares: tuple[Nodes, ...] = (0,)
    on_demand_nodes: tuple[Nodes, ...] = ()
    recovery: tuple[Annotated[RecoveryPolicy, chosen_from(recovery_policies)], ...] | None = None
    trials: Annotated[int, msgspec.Meta(ge=100, le=1_000_000)] = 4000

    def problems(self) -> list[tuple[str, str]]:
        """Something is tried."""
        if self.growth and self.spares:
            return []
        return [("growth", "name one rule at least, and one number of spares")]


class Scenario(Spec, frozen=True, kw_only=True):
    """An elastic training job on preemptible nodes, and how it recovers from losses.

    title: of reports. seed: of every random number (default 0).
    fleet: where the nodes come from, a recording, a process, or a reserved cluster whose nodes fail.
    job: what trains.
    policy: what a loss costs (default `restart`).
    growth: when returning nodes join, for policies that have the choice (default `immediate`).
    on_demand_nodes: nodes that never vanish and fill pipelines first (default 0).
    prices: of a node and hour. goal: steps, deadline and budget. choices: what a plan may change.
    deadline: rent what a rule chooses (default: no, train on the fleet as it is). zones: markets beside the fleet.
    horizon_s: how long to simulate (default: the length of the recording).
    trials: generated histories, with confidence intervals (default 0: one history).
    """

    domain: Literal["spot"] = "spot"
    spec_version: int = 1
    title: str = ""
    seed: Whole = 0
    fleet: Fleet
    job: JobSpec
    policy: Annotated[RecoveryPolicy, chosen_from(recovery_policies)] = Restart()
    growth: Annotated[GrowthRule, chosen_from(growth_rules)] = Immediate()
    on_demand_nodes: Annotated[int, msgspec.Meta(ge=0, le=MOST_BESIDE)] = 0
    prices: Prices = Prices()
    goal: Goal = Goal()
    deadline: Deadline | None = None
    zones: tuple[Zone, ...] = ()
    choices: Choices = Choices()
    horizon_s: NotNegative = 0.0
    trials: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0

    def problems(self) -> list[tuple[str, str]]:
        """The parts fit together."""
        problems = []
        if self.horizon_s == 0 and not isinstance(self.fleet, Recorded):
            problems.append(("horizon_s", "a generated fleet needs a horizon, such as `horizon: 6h`"))
        if self.trials and isinstance(self.fleet, Recorded):
            what = (
                "a recorded fleet is one history; trials need a process: `forerun trace fit spot FILE -o fleet.yaml` "
                "finds one like it, to use as the fleet here"
            )
            problems.append(("trials", what))
        problems += self._size_problems() + self._deadline_problems() + self._zone_problems()
        return problems + self._cluster_problems()

    def _cluster_problems(self) -> list[tuple[str, str]]:
        """A cluster is simulated for one job that fits it, restarts, and grows by a rule that its kernel knows."""
        rented = "is a reserved cluster, which no rule rents"
        problems = [
            ("zones", f"{zone.name} {rented}") for zone in self.zones if isinstance(zone.fleet, Cluster)
        ]
        if isinstance(self.fleet, Cluster):
            return [
                *problems,
                *failing([*self._reserved_job_checks(self.fleet), *self._reserved_fleet_checks(self.fleet)]),
                *self._recovery_problems(),
            ]
        what = "are planned on a reserved cluster; others are compared by `forerun compare SCENARIO --policy NAME`"
        tiers = "are simulated on a reserved cluster: fleet: {name: cluster}"
        return problems + failing(
            [
                (bool(self.job.tiers), "job.tiers", tiers),
                (bool(self.choices.recovery), "choices.recovery", what),
            ]
        )

    def _reserved_job_checks(self, cluster: Cluster) -> Checks:
        """The job fits the cluster, whose kernel knows its settings."""
        job, most = self.job, self.job.depth * self.job.max_pipelines
        nodes = f"{cluster.gpus} GPUs are {cluster.job_nodes} nodes"
        fits = f"{nodes}, and the job trains on depth x max_pipelines = {most}"
        grows = self.growth.kernel_code in (Immediate.kernel_code, Lazy.kernel_code)
        again = "on a reserved cluster a failure begins the restart again: restart"
        warm = "a run on a reserved cluster begins with all nodes ready: true"
        return [
            (most != cluster.job_nodes, "fleet.gpus", fits),
            (not grows, "growth", "on a reserved cluster is immediate or lazy"),
            (job.prep_s > 0, "job.prep_s", "is part of the repair of a class of failures here"),
            (job.reconfig_rule == "extend", "job.reconfig_rule", again),
            (not job.warm_start, "job.warm_start", warm),
        ]

    def _reserved_fleet_checks(self, cluster: Cluster) -> Checks:
        """Nodes come from the cluster alone; its repairs end within the run."""
        there = "does not go with a reserved cluster, all of which is there"
        spares = max(self.choices.spares, default=0) + cluster.spares
        many = f"with the {cluster.spares} of the fleet more than the {cluster.job_nodes} nodes of the job"
        stands_by = "a reserved cluster has spares (choices.spares)"
        paid = "nodes of a reserved cluster cost on_demand_usd_per_h"
        horizon = f"s in the mean is longer than the horizon of {self.horizon_s:g} s"
        return [
            (self.deadline is not None, "deadline", there),
            (self.on_demand_nodes > 0, "on_demand_nodes", there),
            (bool(self.choices.on_demand_nodes), "choices.on_demand_nodes", stands_by),
            (spares > cluster.job_nodes, "choices.spares", many),
            (self.prices.known, "prices.spot_usd_per_h", paid),
            *(
                (
                    one.repair.mean_s > self.horizon_s,
                    f"fleet.failures[{i}].repair",
                    f"{one.repair.mean_s:g} {horizon}",
                )
                for i, one in enumerate(cluster.failures)
                if one.repair is not None
            ),
        ]

    def _recovery_problems(self) -> list[tuple[str, str]]:
        """Recovery policies that the kernel of reserved clusters knows, and replicas for those that go on from them."""
        policies = [("policy", self.policy)]
        policies += [("choices.recovery", one) for one in self.choices.recovery or ()]
        known = "restarts from checkpoints, or its replicas go on: restart, oobleck, torchft"
        problems = []
        for name, policy in policies:
            if type(policy) not in ON_CLUSTERS:
                problems.append((name, f"a job on a reserved cluster {known}"))
            elif policy.continuation() is not None and self.job.max_pipelines < 2:
                what = "replicas go on from another one's state: job.max_pipelines of at least 2"
                problems.append((name, what))
        return problems

    def _size_problems(self) -> list[tuple[str, str]]:
        """A run that would not end in an hour is a slip in a rate, a step or the horizon."""
        problems = []
        fleets = [("fleet", self.fleet), *(("zones", zone.fleet) for zone in self.zones)]
        for name, fleet in fleets:
            changes = 0.0
            if isinstance(fleet, Cluster):
                changes = fleet.changes(self.horizon_s)
            elif not isinstance(fleet, Recorded):
                changes = changes_per_h(fleet) * self.horizon_s / 3600.0
            if not changes <= MOST_CHANGES:
                what = (
                    f"up to {changes:.2g} changes of the fleet until the horizon; at most {MOST_CHANGES:.0e} can be "
                    "simulated: lower the rates or the horizon"
                )
                problems.append((name, what))
            elif not self.trials * (changes + 10) <= MOST_CHANGES_IN_ALL:
                hours = self.trials * (changes + 10) * CHANGE_S / 3600
                what = (
                    f"{self.trials} with up to {changes:.2g} changes each take about {hours:,.1f} hours; at most "
                    f"{MOST_CHANGES_IN_ALL:.0e} changes are simulated in all, "
                    f"{int(MOST_CHANGES_IN_ALL / (changes + 10)):,} trials here"
                )
                problems.append(("trials", what))
        fastest_s = min(self.job.step_s.values(), default=math.inf)
        if fastest_s > 0 and not self.horizon_s / fastest_s <= MOST_STEPS:
            what = (
                f"{self.horizon_s / fastest_s:.2g} steps of {fastest_s:g} s until the horizon; at most {MOST_STEPS:.0e} can "
                "be simulated"
            )
            problems.append(("job.step_s", what))
        return problems

    def _zone_problems(self) -> list[tuple[str, str]]:
        """Zones are for runs that choose what to rent; those need a goal, a horizon, and the policy that restarts."""
        deadline = self.deadline
        if deadline is None:
            return [("zones", "are chosen among by a rule: set `deadline`")] if self.zones else []
        problems = []
        if not self.goal.deadline_s:
            problems.append(("goal", "a run with `deadline` needs goal.steps and goal.deadline"))
        if not self.horizon_s:
            problems.append(("horizon_s", "a run with `deadline` needs one, at or after the deadline"))
        elif self.horizon_s < self.goal.deadline_s:
            problems.append(("horizon_s", f"{self.horizon_s:g} s is before the deadline"))
        if self.on_demand_nodes:
            problems.append(("on_demand_nodes", "are rented by the rule: set deadline.on_demand_nodes"))
        if type(self.policy) is not Restart:
            problems.append(("policy", "a run with `deadline` restarts from checkpoints: policy: restart"))
        fewest = self.job.depth * self.job.min_pipelines
        if deadline.on_demand_nodes < fewest:
            shape = (
                f"a pipeline of {fewest}" if self.job.min_pipelines == 1 else f"the {fewest} of min_pipelines"
            )
            problems.append(
                ("deadline.on_demand_nodes", f"{deadline.on_demand_nodes} are fewer than {shape}")
            )
        if self.prices.billing_s or self.prices.minimum_s:
            problems.append(("prices.billing_s", "a run with `deadline` bills to the instant"))
        names = [zone.name for zone in self.zones]
        problems += [
            ("zones", f"two are named {name!r}") for name in sorted({n for n in names if names.count(n) > 1})
        ]
        if self.trials > 20_000:
            problems.append(
                ("trials", "a run with `deadline` is replayed trial by trial; at most 20000 are allowed")
            )
        if self.trials and any(isinstance(zone.fleet, Recorded) for zone in self.zones):
            problems.append(("zones", "trials need processes, not recordings"))
        return problems

    def _deadline_problems(self) -> list[tuple[str, str]]:
        """A deadline that nothing could meet is a mistake in the file, not a result."""
        goal, job = self.goal, self.job
        if not goal.deadline_s or not job.step_s or min(job.step_s.values()) <= 0:
            return []
        fastest_s = goal.steps * min(job.step_s.values())
        if goal.deadline_s >= fastest_s:
            return []
        what = (
            f"{goal.steps} steps take {fastest_s:.0f} s at least, even without a loss; the deadline is sooner"
        )
        return [("goal.deadline_s", what)]
