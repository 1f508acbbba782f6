"""How many nodes: the fewest with which the scenario's policy meets a share of the deadlines.

Below, the search is closed by a bound: on fewer nodes no scheduler meets so many. Above, by the policy's own runs: deadlines
met need not grow with nodes (a job that is admitted may keep out two others), so every count from the bound on is simulated
until one meets the share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from forerun.cluster.bound import ClusterBounder, checker
from forerun.cluster.bound.files import files_of
from forerun.cluster.explain import WANTED
from forerun.cluster.inputs.prepare import cluster_from, prepare
from forerun.cluster.scenario import Machines, Nodes, Scenario
from forerun.cluster.summary.past import Recorded
from forerun.core.domain import simulate
from forerun.core.errors import (
    CheckFailed,
    ForerunError,
    Infeasible,
    InputError,
    ScenarioError,
    UsageError,
    worded,
)
from forerun.core.registry import member_name
from forerun.core.result.bound import Bracket
from forerun.core.result.numbers import format_number, plain
from forerun.core.result.plan import Planner, ShownPlan
from forerun.core.result.tables import Column, Table, TableSchema

OBJECTIVES: Final = ("nodes",)
#: counts beyond the chosen one that are simulated, too, to see whether it goes on to meet the share
BEYOND: Final = 2

COUNTS: Final = TableSchema(
    "counts",
    (
        Column("nodes", "", "in the group that is planned"),
        Column("gpus", "", "GPUs of the whole cluster"),
        Column("met", "", "deadlines that the policy meets; none: not simulated"),
        Column("reached", "", "deadlines that some schedule meets"),
        Column("bound", "", "deadlines that no scheduler exceeds"),
        Column("cluster_gpu_h", "GPU-h", "of the whole cluster, to the end of the trace"),
        Column("cost_usd", "usd", "of the whole cluster, by the scenario's bill"),
        Column("verdict", "", "chosen; meets or misses the share; why it cannot be"),
    ),
    "one row a number of nodes",
)


@dataclass(frozen=True, slots=True)
class Count:
    """What is known of one number of nodes.

    Parameters
    ----------
    nodes : in the group that is planned.
    gpus : of the whole cluster.
    met : deadlines that the policy meets; None if it was not simulated or cannot be.
    reached, bound : deadlines that some schedule meets, and that none exceeds; None where the jobs cannot run at all.
    cluster_gpu_h, cost_usd : of the whole cluster until the trace ends; None without a run, and without a bill.
    says : why the jobs cannot run, or the policy cannot be simulated; empty if they can.
    """

    nodes: int
    gpus: int
    met: int | None = None
    reached: int | None = None
    bound: int | None = None
    cluster_gpu_h: float | None = None
    cost_usd: float | None = None
    says: str = ""


@dataclass(frozen=True, repr=False)
class ClusterPlan(ShownPlan):
    """The fewest nodes that do, and what is known of the others.

    Parameters
    ----------
    scenario : what was planned.
    group : the number of the group of nodes.
    share : of the deadlines that is to be met.
    deadlines : how many jobs have one.
    counts : by number of nodes, ascending.
    least : on fewer nodes no scheduler meets the share.
    chosen : the fewest nodes on which the policy does.
    certificate : proof that no scheduler meets the share on one node less than `least`; empty where none can be written.
    notes : what a reader must know.
    """

    scenario: Scenario
    group: int
    share: float
    deadlines: int
    counts: tuple[Count, ...]
    least: int
    chosen: int
    certificate: Mapping[str, Any] = field(repr=False)
    notes: tuple[str, ...]

    @property
    def wanted(self) -> int:
        """Deadlines that are to be met."""
        return wanted(self.share, self.deadlines)

    @property
    def _best(self) -> Count:
        return next(one for one in self.counts if one.nodes == self.chosen)

    @property
    def summary(self) -> dict[str, Any]:
        """Flat figures of the choice."""
        best = self._best
        met = best.met or 0
        priced = {"cost_usd": best.cost_usd} if best.cost_usd is not None else {}
        return {
            "nodes": best.nodes,
            "gpus": best.gpus,
            "deadlines": self.deadlines,
            "deadlines_wanted": self.wanted,
            "deadlines_met": met,
            "deadline_ratio": met / self.deadlines,
            "least_nodes_by_bound": self.least,
            "cluster_gpu_h": best.cluster_gpu_h,
            **priced,
            "counts_simulated": sum(one.met is not None for one in self.counts),
        }

    @property
    def why(self) -> str:
        """One sentence: what misses the share below."""
        best, policy = self._best, member_name(type(self.scenario.policy))
        verb = "is" if best.nodes == 1 else "are"
        groups = _groups(self.scenario)
        group = f" of {_names(groups)[self.group]}" if len(groups) > 1 else ""
        text = (
            f"{_nodes(best.nodes)}{group} ({best.gpus} GPUs) {verb} the fewest with which {policy} meets "
            f"{_percent(self.share)} of the deadlines: {best.met} of {self.deadlines}, {self.wanted} wanted"
        )
        if self.least < self.chosen:
            missed = (
                f"on {self.least}"
                if self.chosen == self.least + 1
                else f"on {self.least} to {self.chosen - 1}"
            )
            text += f"; it misses them {missed}"
        below = next((one for one in self.counts if one.nodes == self.least - 1), None)
        if below is None:
            return text
        if below.bound is None:
            return f"{text}; on fewer than {self.least} not all jobs can run: {below.says}"
        return f"{text}; on fewer than {self.least} no scheduler does, which meets {below.bound} at most"

    @property
    def tables(self) -> dict[str, Table]:
        """Every number of nodes that was looked at."""
        priced = any(one.cost_usd is not None for one in self.counts)
        columns = tuple(column for column in COUNTS.columns if priced or column.name != "cost_usd")
        return {
            "counts": Table.of_records(
                replace(COUNTS, columns=columns),
                self.counts,
                verdict=self._verdict,
            )
        }

    def _verdict(self, one: Count) -> str:
        if one.says:
            return one.says
        if one.nodes == self.chosen:
            return "chosen"
        if one.met is not None:
            return "meets it" if one.met >= self.wanted else "misses it"
        return "no scheduler" if one.bound is not None and one.bound < self.wanted else "not simulated"

    def data(self) -> dict[str, Any]:
        """As plain data."""
        content = {
            "summary": self.summary,
            "why": self.why,
            "notes": list(self.notes),
            "counts": [{**asdict(one), "verdict": self._verdict(one)} for one in self.counts],
        }
        return content | ({"certificate": dict(self.certificate)} if self.certificate else {})

    def check(self) -> ClusterPlan:
        """Simulate again what decides, and verify the bound below. Raises CheckFailed."""
        verify(self)
        return self


def wanted(share: float, deadlines: int) -> int:
    """The least whole number of deadlines that is such a share of all."""
    return math.ceil(share * deadlines - 1e-9)


def plan(
    scenario: Scenario, objective: str = "", *, share: float = WANTED, most_nodes: int = 0, group: str = ""
) -> ClusterPlan:
    """The fewest nodes with which the scenario's policy meets a share of the deadlines.

    Parameters
    ----------
    objective : `nodes`, the only one.
    share : of the deadlines (default 0.95).
    most_nodes : more are not tried (default 0: four times as many as the group has, and at least 8).
    group : the name of the group of nodes whose number is planned (default: the only one).

    Raises
    ------
    UsageError
        An option is wrong, or bounds do not exist for such a cluster.
    ScenarioError
        No job has a deadline.
    Infeasible
        No number of nodes does; the problem names what binds.
    """
    if objective not in ("", *OBJECTIVES):
        raise UsageError.at(
            "--objective", f"no objective named {objective!r}; known: {', '.join(OBJECTIVES)}"
        )
    if not 0 < share <= 1:
        raise UsageError.at("--share", f"is {share:g}; more than 0 and at most 1 is required, such as 0.95")
    if most_nodes < 0:
        raise UsageError.at("--most-nodes", f"is {most_nodes}; 1 or more is required")
    at = _group(scenario, group)
    return _Search(scenario, at, share, most_nodes).plan()


class _Search:
    """The search for one group of nodes."""

    def __init__(self, scenario: Scenario, group: int, share: float, most: int) -> None:
        self.scenario, self.group, self.share = scenario, group, share
        self.most = most_tried(scenario, group, most)
        self.deadlines = deadlines_of(scenario, group, self.most)
        self.wanted = wanted(share, self.deadlines)
        self.counts: dict[int, Count] = {}
        self.proof: dict[int, Bracket] = {}  # none of a count on which not all jobs can run

    def plan(self) -> ClusterPlan:
        """The bound first, then the policy's runs from there on. Raises Infeasible."""
        if self._refuted(self.most):
            raise Infeasible.at("--share", self._too_much())
        low, least = 0, self.most  # refuted, or none; not refuted
        while least - low > 1:
            middle = (low + least) // 2
            low, least = (middle, least) if self._refuted(middle) else (low, middle)
        chosen = next((nodes for nodes in range(least, self.most + 1) if self._meets(nodes)), None)
        if chosen is None:
            if all(one.met is None for one in self.counts.values()):
                simulate(
                    at_count(self.scenario, self.group, self.most)
                )  # raises why the policy runs on none of them
            raise Infeasible.at("--share", self._policy_too_weak(least))
        beyond = range(chosen + 1, min(chosen + BEYOND, self.most) + 1)
        weaker = [nodes for nodes in beyond if not self._meets(nodes)]
        below = self.proof.get(low)
        return ClusterPlan(
            self.scenario,
            self.group,
            self.share,
            self.deadlines,
            tuple(self._inherited()),
            least,
            chosen,
            (below.certificate or {}) if below is not None else {},
            tuple(self._notes(least, beyond, weaker)),
        )

    def _refuted(self, nodes: int) -> bool:
        """Whether no scheduler meets the share on so many nodes, and so on none of fewer."""
        best = None
        try:
            *_, best = ClusterBounder().search(at_count(self.scenario, self.group, nodes))
        except InputError as error:  # of fewer nodes than the most: a job is too large for them
            if nodes == self.most:
                raise
            self._keep(nodes, says=str(error).splitlines()[0])
            return True
        self.proof[nodes] = best
        self._keep(nodes, reached=int(best.reached or 0), bound=int(best.bound))
        return best.bound < self.wanted

    def _meets(self, nodes: int) -> bool:
        """Whether the policy does on so many nodes."""
        run = simulated(self.scenario, self.group, nodes)
        self._keep(nodes, **run)
        return run["met"] is not None and run["met"] >= self.wanted

    def _keep(self, nodes: int, **known: Any) -> None:
        gpus = cluster_from(at_count(self.scenario, self.group, nodes)).gpus
        self.counts[nodes] = replace(self.counts.get(nodes, Count(nodes, gpus)), **known)

    def _inherited(self) -> Iterator[Count]:
        """All counts, ascending: a schedule of fewer nodes is one of more, and a bound on more one on fewer."""
        counts = [self.counts[nodes] for nodes in sorted(self.counts)]
        above = {}
        bound = self.deadlines
        for one in reversed(counts):
            bound = above[one.nodes] = min(bound, self.deadlines if one.bound is None else one.bound)
        reached, lowest = 0, min(self.proof)
        for one in counts:
            reached = max(reached, one.reached or 0, min(one.met or 0, above[one.nodes]))
            yield replace(one, reached=reached, bound=above[one.nodes]) if one.nodes >= lowest else one

    def _too_much(self) -> str:
        best = self.proof[self.most]
        return (
            f"{_percent(self.share)} of {self.deadlines} deadlines are {self.wanted}; on {_nodes(self.most)} no scheduler "
            f"meets more than {format_number(best.bound)}{self._more()}"
        )

    def _policy_too_weak(self, least: int) -> str:
        met = [one for one in self.counts.values() if one.met is not None]
        policy = member_name(type(self.scenario.policy))
        tried = f"on {_range(least, self.most)}"
        best = max(met, key=lambda one: (one.met or 0, -one.nodes))
        return (
            f"{_percent(self.share)} of {self.deadlines} deadlines are {self.wanted}; {policy} meets {best.met} at most, on "
            f"{_nodes(best.nodes)}, tried {tried}{self._more()} or another policy; no bound forbids it from "
            f"{_nodes(least)} on"
        )

    def _more(self) -> str:
        return "; try a lower --share, a higher --most-nodes"

    def _notes(self, least: int, beyond: Sequence[int], weaker: Sequence[int]) -> Iterator[str]:
        """What was searched, what is not promised, and what the jobs are."""
        policy = member_name(type(self.scenario.policy))
        last = beyond[-1] if beyond else max(self.counts)
        yield (
            f"each of {_range(least, last)} was simulated: deadlines met need not grow with nodes, so none was skipped"
        )
        if weaker:
            met = ", ".join(f"{self.counts[nodes].met} on {nodes}" for nodes in weaker)
            yield f"{policy} misses the share again with more nodes: {met}"
        yield from self.proof[self.most].notes
        if self.scenario.trace.file is None:
            yield f"the jobs are random, those of seed {self.scenario.seed}; other seeds have others"
        known = prepare(at_count(self.scenario, self.group, self.most))
        if isinstance(known.past, Recorded) and (said := simulate(self.scenario).summary.get("caution")):
            yield str(said)
        yield from known.notes


def simulated(scenario: Scenario, group: int, nodes: int) -> dict[str, Any]:
    """Deadlines met, GPU-hours and cost of a run on so many nodes, or why there is none."""
    try:
        summary = simulate(at_count(scenario, group, nodes)).summary
    except ForerunError as error:
        return {"met": None, "cluster_gpu_h": None, "cost_usd": None, "says": str(error).splitlines()[0]}
    return {
        "met": int(summary["deadlines_met"]),
        "cluster_gpu_h": summary["gpus"] * summary["horizon_s"] / 3600,
        "cost_usd": summary.get("cost_usd"),
    }


def verify(plan: ClusterPlan) -> str:
    """Simulate again every count from `least` to `chosen`, and verify that no scheduler does on fewer.

    Returns what was verified. Raises CheckFailed.
    """
    known = {one.nodes: one for one in plan.counts}
    for nodes in range(plan.least, plan.chosen + 1):
        one = known.get(nodes)
        again = simulated(plan.scenario, plan.group, nodes)
        if one is None or any(getattr(one, name) != value for name, value in again.items()):
            raise CheckFailed.at("plan", f"simulated again, {_nodes(nodes)} have another result than it says")
        if (again["met"] is not None and again["met"] >= plan.wanted) != (nodes == plan.chosen):
            raise CheckFailed.at(
                "plan", f"{_nodes(nodes)} meet {again['met']} deadlines of {plan.wanted} wanted"
            )
    says = f"simulated again, {known[plan.chosen].met} of {plan.deadlines} deadlines are met on {_nodes(plan.chosen)}"
    if plan.least < plan.chosen:
        says += f", and no count from {plan.least} on below meets {plan.wanted}"
    if plan.least == 1:
        return says
    return f"{says}; {_verified_below(plan)}"


def _verified_below(plan: ClusterPlan) -> str:
    """That no scheduler meets the share on one node less than `least`. Raises CheckFailed."""
    nodes = plan.least - 1
    below = at_count(plan.scenario, plan.group, nodes)
    if plan.certificate:
        files = files_of(below)
        content = json.dumps(plan.certificate).encode()
        try:
            holds, text = checker.check(content, files.trace, files.tables, files.gpus, files.first)
        except (ValueError, RecursionError) as error:
            raise CheckFailed.at("certificate", str(error)) from error
        about = plan.certificate.get("objective"), plan.certificate.get("gpus")
        gpus = cluster_from(below).gpus
        if not holds or about != ("deadlines", gpus) or Fraction(plan.certificate["claim"]) >= plan.wanted:
            raise CheckFailed.at("certificate", f"does not prove that {plan.wanted} deadlines need more GPUs")
        return f"verified in exact arithmetic: {text}"
    try:
        brackets = ClusterBounder().search(below)
        bound = next((one.bound for one in brackets if one.bound < plan.wanted), None)
    except InputError:
        return f"on {_nodes(nodes)} not all jobs can run"
    if bound is None:
        raise CheckFailed.at("plan", f"it is not proved that {_nodes(nodes)} are too few for any scheduler")
    return f"bounded again, no scheduler meets more than {format_number(bound)} on {_nodes(nodes)}"


def _groups(scenario: Scenario) -> tuple[Nodes, ...]:
    """The groups of nodes, also where a file describes them."""
    if scenario.machines.file is None:
        return scenario.machines.nodes
    return tuple(
        Nodes(name=one.name, count=one.count, gpus=one.gpus, gpu_type=one.gpu_type, rack=one.rack)
        for one in cluster_from(scenario).groups
    )


def _names(groups: Sequence[Nodes]) -> list[str]:
    return [one.name or f"group{at}" for at, one in enumerate(groups)]


def _group(scenario: Scenario, name: str) -> int:
    """The number of the group of a name, or of the only one. Raises UsageError."""
    names = _names(_groups(scenario))
    if name in names:
        return names.index(name)
    if name or len(names) > 1:
        what = (
            f"no group of nodes {name!r}"
            if name
            else "there are several groups of nodes; name the one to plan"
        )
        raise UsageError.at("--group", f"{what}; known: {', '.join(names)}")
    return 0


def at_count(scenario: Scenario, group: int, nodes: int) -> Scenario:
    """The scenario with so many nodes in a group."""
    groups = list(_groups(scenario))
    groups[group] = groups[group].with_(count=nodes)
    return scenario.with_(machines=Machines(nodes=tuple(groups)))


def most_tried(scenario: Scenario, group: int, most: int) -> int:
    """The most nodes that are tried: as given, or by default."""
    return most or max(8, 4 * _groups(scenario)[group].count)


def deadlines_of(scenario: Scenario, group: int, most: int) -> int:
    """How many jobs have a deadline, those among them that are too large for few nodes.

    Raises ScenarioError if none has.
    """
    count = int(np.count_nonzero(prepare(at_count(scenario, group, most)).setting.jobs.has_deadline))
    if not count:
        what = (
            "no job has a deadline, and a plan is for a share of deadlines; `trace.slack: 1.5` gives each one"
        )
        raise ScenarioError.at("$.trace", what)
    return count


def _range(first: int, last: int) -> str:
    """Numbers of nodes: `3`, `3 and 4`, `3 to 9`."""
    if last <= first + 1:
        return " and ".join(map(str, dict.fromkeys((first, last))))
    return f"{first} to {last}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


class ClusterPlanner(Planner[Scenario]):
    """The planner of the cluster domain."""

    options = ("share", "most_nodes", "group")

    def plan(self, scenario: Scenario, objective: str = "", **options: Any) -> ClusterPlan:
        """See `plan`."""
        return plan(scenario, objective, **options)

    def check_plan(
        self, saved: Mapping[str, Any], scenario: Scenario, objective: str, options: Mapping[str, Any]
    ) -> str:
        """Verify a plan read from a file: what decides is simulated again, and the bound below verified.

        Brackets of counts that decide nothing are not. Raises CheckFailed.
        """
        try:
            rows = [
                {name: value for name, value in row.items() if name != "verdict"} for row in saved["counts"]
            ]
            counts = tuple(Count(**row) for row in rows)
            group = _group(scenario, options.get("group", ""))
            given = ClusterPlan(
                scenario,
                group,
                options.get("share", WANTED),
                deadlines_of(scenario, group, most_tried(scenario, group, options.get("most_nodes", 0))),
                counts,
                saved["summary"]["least_nodes_by_bound"],
                saved["summary"]["nodes"],
                saved.get("certificate", {}),
                tuple(saved["notes"]),
            )
            same = plain(given.data()) == plain(saved)
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
            raise CheckFailed.at("plan", f"is malformed: {worded(error)}") from error
        if not same:
            raise CheckFailed.at("plan", "its summary, reasons or verdicts do not follow from its counts")
        return verify(given)
