"""A reserved cluster in the terms of those who run it: GPUs, failures by class, repairs, spares and maintenance."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from forerun.core.scenario.numbers import NotNegative, Positive, Share, Whole
from forerun.core.scenario.spec import NamedSpec, Spec

DAY_S = 86_400.0
MOST_NODES = 200_000
#: Weibull shapes that a fit tells apart; a scenario may have `MOST_EVEN`, at which gaps vary by one in a million
MOST_SHAPE, LEAST_SHAPE, MOST_EVEN = 20.0, 0.1, 1e6
#: a time, and a rate or a time between failures, 0 where it is not given
Length: TypeAlias = Annotated[float, msgspec.Meta(gt=0, lt=1e15)]
Rarity: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1e15)]


class Constant(NamedSpec, frozen=True, kw_only=True, tag="constant"):
    """A repair that always takes as long. mean_s: its length."""

    mean_s: Positive


class Exponential(NamedSpec, frozen=True, kw_only=True, tag="exponential"):
    """A repair without memory. mean_s: its mean length."""

    mean_s: Positive


class LogNormal(NamedSpec, frozen=True, kw_only=True, tag="lognormal"):
    """A repair that usually takes hours and sometimes weeks. median_s, mean_s: of its length; the mean is the longer one."""

    median_s: Positive
    mean_s: Positive

    def problems(self) -> list[tuple[str, str]]:
        """Two times in order."""
        if self.mean_s < self.median_s:
            return [("mean_s", f"{self.mean_s:g} s is below the median of {self.median_s:g} s")]
        return []

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm: mean = median exp(sigma^2 / 2)."""
        return math.sqrt(2 * math.log(self.mean_s / self.median_s))


RepairLaw: TypeAlias = Constant | Exponential | LogNormal

MOST_BRANCHING = 0.95
SETTLED = 16.0
"""Relaxation times of a Hawkes process before the start of a history, after which its moments are exact to e^-32."""


class Hawkes(NamedSpec, frozen=True, kw_only=True, tag="hawkes"):
    """Failures that cause others: each raises the rate at once, and the rise decays exponentially (Hawkes, 1971).

    branching: failures that one causes directly, in the mean; below 1. decay_s: mean time from a failure to one that it
    causes.
    """

    branching: Annotated[float, msgspec.Meta(gt=0, le=MOST_BRANCHING)]
    decay_s: Length

    @property
    def settled_s(self) -> float:
        """How long before its start a history is simulated: relaxation times, after each of which e times less is left."""
        return SETTLED * self.decay_s / (1 - self.branching)


class ModulatedPoisson(NamedSpec, frozen=True, kw_only=True, tag="modulated"):
    """Calm and storm by turns, each for an exponential time: Poisson failures at one rate in calm, at another in storms.

    storm_factor: rate in a storm over that in calm. mean_calm_s, mean_storm_s: their lengths.
    """

    storm_factor: Annotated[float, msgspec.Meta(gt=1, le=1e6)]
    mean_calm_s: Length
    mean_storm_s: Length

    @property
    def storm_share(self) -> float:
        """Share of time that is storm."""
        return self.mean_storm_s / (self.mean_calm_s + self.mean_storm_s)

    def rates_per_s(self, mean_per_s: float) -> tuple[float, float]:
        """Failures a second in calm and in a storm. mean_per_s: of both together."""
        calm_per_s = mean_per_s / (1 - self.storm_share + self.storm_share * self.storm_factor)
        return calm_per_s, calm_per_s * self.storm_factor


Arrivals: TypeAlias = Hawkes | ModulatedPoisson

RATES = ("per_1000_node_days", "gpu_mtbf_s", "node_mtbf_s", "group_mtbf_s", "job_mtbf_s")
"""The fields that may say how often a class fails; each class has one of them."""


class Failures(Spec, frozen=True, kw_only=True):
    """A class of failures: how often, what each takes, how long until somebody notices, and how long the repair takes.

    name: of the class, for tables.
    takes: a `process`, after which the job restarts on the same nodes; a `gpu`, with which its node goes to repair; a
    `node`; or a `group`, all nodes of a switch or rack (default: node).
    per_1000_node_days: failures for 1000 node-days. gpu_mtbf_s, node_mtbf_s, group_mtbf_s, job_mtbf_s: mean time between
    failures of one GPU, of one node, of one group, or of the nodes that the job needs. Exactly one of these is given.
    gap_shape: Weibull shape of the gaps between failures of the class in the whole cluster; below 1 they come in clusters
    (default 1: Poisson).
    arrivals: another law for the failures of the class in the whole cluster, whose mean rate stays: they cause others, or
    come in storms (default: none, `gap_shape` says).
    detection_s: until the job stops, such as a time-out of hanging communication (default 0: a crash).
    check_s: the failure corrupts the job silently, and the next check, one every so often, finds it (default 0: no).
    repair: time until the nodes are back, as spares; a process needs none.
    group_nodes: neighbours that form a group.
    """

    added_later: ClassVar[tuple[str, ...]] = ("arrivals",)

    name: str
    takes: Literal["process", "gpu", "node", "group"] = "node"
    per_1000_node_days: Rarity = 0.0
    gpu_mtbf_s: Rarity = 0.0
    node_mtbf_s: Rarity = 0.0
    group_mtbf_s: Rarity = 0.0
    job_mtbf_s: Rarity = 0.0
    gap_shape: Annotated[float, msgspec.Meta(ge=LEAST_SHAPE, le=MOST_EVEN)] = 1.0
    arrivals: Arrivals | None = None
    detection_s: NotNegative = 0.0
    check_s: NotNegative = 0.0
    repair: RepairLaw | None = None
    group_nodes: Whole = 0

    def problems(self) -> list[tuple[str, str]]:
        """One rate, a repair for what is taken, a group for what takes one."""
        problems, given = [], [name for name in RATES if getattr(self, name)]
        if len(given) != 1:
            what = f"{' and '.join(given)} are both given" if given else "no rate above 0 is given"
            needed = f"{what}; exactly one of {', '.join(RATES)} is needed"
            problems.append((given[1] if given else RATES[0], needed))
        if self.arrivals is not None and self.gap_shape != 1:
            problems.append(("arrivals", "says when failures come, as gap_shape does: give one of them"))
        if self.detection_s and self.check_s:
            problems.append(("check_s", "a failure is noticed after detection_s, or at a check, not both"))
        if (self.takes == "process") != (self.repair is None):
            what = (
                "a process is not repaired" if self.repair else f"how long is the repair of a {self.takes}?"
            )
            problems.append(("repair", what))
        if (self.takes == "group") != (self.group_nodes > 0):
            problems.append(("group_nodes", f"{self.group_nodes} does not go with `takes: {self.takes}`"))
        if self.takes == "group" and self.check_s:
            problems.append(
                ("check_s", "a group that fails is noticed; silent corruption is of one GPU or node")
            )
        if self.group_mtbf_s and self.takes != "group":
            problems.append(("group_mtbf_s", f"does not go with `takes: {self.takes}`"))
        return problems

    def per_node_s(self, gpus_per_node: int, job_nodes: int) -> float:
        """Failures a second and node of the cluster.

        Parameters
        ----------
        gpus_per_node : of the cluster.
        job_nodes : nodes that the job needs.
        """
        if self.per_1000_node_days:
            return self.per_1000_node_days / 1000 / DAY_S
        if self.gpu_mtbf_s:
            return gpus_per_node / self.gpu_mtbf_s
        if self.group_mtbf_s:
            return 1 / (self.group_mtbf_s * self.group_nodes)
        return 1 / self.node_mtbf_s if self.node_mtbf_s else 1 / (self.job_mtbf_s * job_nodes)


class Maintenance(Spec, frozen=True, kw_only=True):
    """Planned stops: the job saves itself, waits, and restarts. every_s: from one to the next. lasts_s: each."""

    every_s: Positive
    lasts_s: Positive

    def problems(self) -> list[tuple[str, str]]:
        """Times in order."""
        if self.lasts_s >= self.every_s:
            return [("lasts_s", f"{self.lasts_s:g} s is no less than every_s, {self.every_s:g} s")]
        return []


class Cluster(NamedSpec, frozen=True, kw_only=True, tag="cluster"):
    """A reserved cluster: nodes that fail, are repaired and come back as spares.

    gpus: of the job. gpus_per_node: of each node (default 8). spares: nodes that stand by, ready, beside those of the job
    (default 0).
    failures: the classes of failures; all nodes fail, spares as well.
    lemon_share: share of nodes that fail more often (default 0). lemon_factor: how many times as often as the others
    (default 1); the rates of the classes are means over all nodes.
    maintenance: planned stops (default: none).
    node_power_w: of a node that is not under repair, for energy (default 0: unknown).
    """

    gpus: Annotated[int, msgspec.Meta(ge=1, le=MOST_NODES * 16)]
    gpus_per_node: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    spares: Whole = 0
    failures: tuple[Failures, ...] = ()
    lemon_share: Share = 0.0
    lemon_factor: Annotated[float, msgspec.Meta(ge=1, lt=1e6)] = 1.0
    maintenance: Maintenance | None = None
    node_power_w: NotNegative = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """Whole nodes, no more spares than nodes, classes that differ in name."""
        problems = []
        if self.gpus % self.gpus_per_node:
            problems.append(("gpus", f"{self.gpus} are not whole nodes of {self.gpus_per_node} GPUs"))
        elif self.spares > self.job_nodes:
            what = f"{self.spares} is not between 0 and the {self.job_nodes} nodes of the job"
            problems.append(("spares", what))
        elif self.nodes > MOST_NODES:
            problems.append(("gpus", f"{self.nodes} nodes are more than {MOST_NODES}"))
        names = [one.name for one in self.failures]
        problems += [
            ("failures", f"two are named {name!r}") for name in sorted(set(names)) if names.count(name) > 1
        ]
        problems += [
            ("failures", f"{one.name!r} takes groups of {one.group_nodes} of {self.nodes} nodes")
            for one in self.failures
            if one.group_nodes > self.nodes
        ]
        return problems

    @property
    def job_nodes(self) -> int:
        """Nodes that the job needs."""
        return self.gpus // self.gpus_per_node

    @property
    def nodes(self) -> int:
        """Nodes in all."""
        return self.job_nodes + self.spares

    def per_node_s(self, one: Failures) -> float:
        """Failures of a class, a second and node."""
        return one.per_node_s(self.gpus_per_node, self.job_nodes)

    @property
    def job_failures_per_s(self) -> float:
        """Failures a second that hit the nodes of the job, whatever their class; a group hits with any of its nodes."""
        return math.fsum(self.per_node_s(one) * self.job_nodes for one in self.failures)

    def changes(self, horizon_s: float) -> float:
        """Failures, repairs, and changes between calm and storm, that a history has, those before its start included."""
        total = 0.0
        for one in self.failures:
            rate_per_s = self.per_node_s(one) * self.nodes
            total += rate_per_s * horizon_s * (1 + max(1, one.group_nodes))
            match one.arrivals:
                case Hawkes() as law:
                    total += rate_per_s * law.settled_s
                case ModulatedPoisson(mean_calm_s=calm_s, mean_storm_s=storm_s):
                    total += 2 * horizon_s / (calm_s + storm_s)
                case None:
                    pass
        return total
