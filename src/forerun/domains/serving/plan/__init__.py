"""The cheapest pipeline that keeps its objective, and proof; or the most traffic that a budget carries.

    from forerun.domains.serving.plan import plan
    print(plan(scenario).why)

What is chosen per stage: hardware it was measured on, largest batch, replicas. The scenario's own configuration is what
the plan is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from forerun.domains.serving.inputs import Inputs, prepare
from forerun.domains.serving.inputs.pipeline import SOURCE
from forerun.domains.serving.inputs.routing import draws
from forerun.domains.serving.plan import tables as plan_tables
from forerun.domains.serving.plan.checker import Rejected, check
from forerun.domains.serving.plan.space import MAX_REPLICAS, Configuration, Space, Traffic, space_of
from forerun.domains.serving.scenario import SOURCE_NAME, Scenario
from forerun.domains.serving.scenario.limits import check_traces
from forerun.domains.serving.scenario.traces import Generated
from forerun.errors import CheckFailed, Infeasible, Problem, UsageError, known_names
from forerun.result.figures import Figure
from forerun.result.plan import Planner, ShownPlan
from forerun.result.tables import Table
from forerun.rng import stream

OBJECTIVES: Final = ("cost", "throughput")
METHODS: Final = ("exact", "greedy", "sweep", "brute")

#: the largest space that is enumerated beside the exact search
BRUTE_BESIDE: Final = 20_000

#: replicas of a stage, and traces, that a plan looks at
MOST_REPLICAS: Final = 10_000
MOST_TRACES: Final = 100_000

#: fresh traces that a chance-constrained plan is tried on
FRESH: Final = 60

Method = Literal["exact", "greedy", "sweep", "brute"]


@dataclass(frozen=True, repr=False)
class ServingPlan(ShownPlan):
    """The answer. `certificate`: plain data for a checker, empty where none can be had (chance, throughput, baselines).

    traffics: what the plan must carry; `failing` of them it may miss too often.
    """

    scenario: Scenario
    space: Space = field(repr=False)
    configuration: Configuration
    misses: int
    summary: Mapping[str, Any]
    why: str
    notes: tuple[str, ...]
    tables: Mapping[str, Table] = field(repr=False)
    certificate: Mapping[str, Any] = field(repr=False, default_factory=dict)
    traffics: tuple[Traffic, ...] = field(repr=False, default=())
    failing: int = 0

    def data(self) -> dict[str, Any]:
        """As plain data (`--json`, plan files)."""
        found: dict[str, Any] = {
            "domain": "serving",
            "summary": _finite(dict(self.summary)),
            "why": self.why,
            "notes": list(self.notes),
            "configuration": self.space.named(self.configuration),
            "tables": {name: _rows(table) for name, table in self.tables.items()},
        }
        if self.certificate:
            found["certificate"] = dict(self.certificate)
        return found

    def figures(self) -> tuple[Figure, ...]:
        """What the plan's tables show, as data for the report."""
        from forerun.domains.serving.figures.plans import plan_figures

        return plan_figures(self.tables, self.scenario.slo_ms, float(self.summary["rate_rps"]))

    def scenario_planned(self) -> Scenario:
        """The scenario with the plan as its configuration, ready to be simulated."""
        placed = {
            name: self.scenario.configuration[name].with_(
                hardware=choice.hardware, max_batch=choice.max_batch, replicas=choice.replicas
            )
            for name, choice in zip(self.space.names, self.configuration)
        }
        return self.scenario.with_(configuration=placed)

    def check(self) -> ServingPlan:
        """Verify the certificate where there is one; else run the plan on its traces through the engine and count
        misses. Raises CheckFailed."""
        if self.certificate:
            check_certificate(self.certificate, self.scenario)
            return self
        counts = [_simulated_misses(self.scenario, self.space, self.configuration, t) for t in self.traffics]
        fails = sum(count > self.space.allowed for count in counts)
        if fails > self.failing:
            what = f"misses more than {self.space.allowed} queries on {fails} traces; {self.failing} may fail"
            raise CheckFailed.at("plan", what)
        return self


def plan(
    scenario: Scenario,
    objective: str = "",
    *,
    method: str = "exact",
    max_replicas: int = MAX_REPLICAS,
    every_batch: bool = False,
    budget_usd_per_h: float = 0.0,
    confidence: float = 0.0,
    traces: int = 0,
    frontier: bool = False,
) -> ServingPlan:
    """Plan a scenario's pipeline.

    objective: `cost` (default): the cheapest configuration whose misses keep the attainment; `throughput`: the highest
    rate on a grid of 2 % steps that `budget_usd_per_h` carries. method: `exact`, or a published optimiser. max_replicas:
    of one stage. every_batch: all batch sizes, not only measured ones. confidence, traces: the objective must be kept on
    all but floor((1 - confidence) * traces) of that many fresh traces. frontier: also plan at other objectives and rates.

    Raises Infeasible naming the stage and the constraint that bind, ScenarioError or UsageError.
    """
    wanted = objective or "cost"
    _check_options(wanted, method, max_replicas, budget_usd_per_h, confidence, traces)
    inputs = prepare(scenario)
    space = space_of(scenario, max_replicas=max_replicas, every_batch=every_batch, inputs=inputs)
    # Searching is compiled; it is imported only when something is planned.
    from forerun.domains.serving.plan import answers

    if wanted == "throughput":
        return answers.throughput(scenario, space, budget_usd_per_h)
    if traces:
        check_traces(traces + FRESH, len(inputs.arrivals_ms))
        fresh = fresh_traffic(scenario, inputs, range(1, traces + 1))
        tried = fresh_traffic(scenario, inputs, range(traces + 1, traces + 1 + FRESH))
        return answers.chance(scenario, space, fresh, confidence, tried)
    return answers.cost(scenario, inputs, space, method, frontier)


def _check_options(
    objective: str, method: str, max_replicas: int, budget: float, confidence: float, traces: int
) -> None:
    problems = []
    if objective not in OBJECTIVES:
        problems.append(Problem("objective", f"no {objective!r}; {known_names(objective, OBJECTIVES)}"))
    if method not in METHODS:
        problems.append(Problem("method", f"no {method!r}; {known_names(method, METHODS)}"))
    if not 1 <= max_replicas <= MOST_REPLICAS:
        what = f"{max_replicas} was found; a stage has at least one, and at most {MOST_REPLICAS:,}"
        problems.append(Problem("max_replicas", what))
    if traces > MOST_TRACES:
        problems.append(
            Problem("traces", f"{traces:,} were asked for; at most {MOST_TRACES:,} are planned on")
        )
    if objective == "throughput" and not 0 < budget < math.inf:
        problems.append(Problem("budget_usd_per_h", "throughput needs a budget above 0"))
    if objective != "throughput" and budget:
        problems.append(Problem("budget_usd_per_h", "is read with objective throughput only"))
    if (confidence != 0) != (traces != 0):
        problems.append(
            Problem("confidence", "confidence and traces belong together; one of them is missing")
        )
    if traces < 0 or not 0 <= confidence < 1:
        problems.append(
            Problem("confidence", f"{confidence:g} with {traces} traces; between 0 and 1, and 1 or more")
        )
    if (traces or objective == "throughput") and method != "exact":
        problems.append(Problem("method", f"{method} plans for cost on one trace only"))
    if traces and objective == "throughput":
        problems.append(Problem("confidence", "is read with objective cost only"))
    if problems:
        raise UsageError(*problems)


def check_certificate(certificate: Mapping[str, Any], scenario: Scenario) -> str:
    """Verify that a certificate's plan is the cheapest for this scenario. Says what was verified.

    What the certificate is about must be the scenario's: stages, options, times, prices, objective, arrivals, routing.
    Its claims are verified by a checker that shares no code with the planners. Raises CheckFailed.
    """
    inputs = prepare(scenario)
    most = certificate.get("max_replicas")
    space = space_of(scenario, inputs=inputs, max_replicas=most if isinstance(most, int) else 1)
    problems = [
        Problem("certificate", f"{what} is not the scenario's") for what in _strange(certificate, space)
    ]
    if problems:
        raise CheckFailed(*problems)
    try:
        check(certificate, space.traffic.arrivals_ms, routing_of(inputs))
    except Rejected as error:
        raise CheckFailed.at("certificate", str(error)) from error
    refuted = len(certificate["refuted"])
    return (
        f"the certificate holds: {certificate['cost']:g} $/h with {certificate['misses']} misses of "
        f"{certificate['allowed_misses']} allowed, and {refuted} refuted parts leave nothing cheaper with at most "
        f"{certificate['max_replicas']} replicas a stage"
    )


def _strange(certificate: Mapping[str, Any], space: Space) -> list[str]:
    """What a certificate says about the question that the scenario does not."""
    rows = certificate.get("stages")
    stages = (
        {row.get("stage"): row for row in rows if isinstance(row, dict)} if isinstance(rows, list) else {}
    )
    found = [] if set(stages) == set(space.names) else ["the list of stages"]
    prices = {offer.hardware: offer.price for offers in space.offers for offer in offers}
    costs = certificate.get("costs")
    if not isinstance(costs, dict) or any(costs.get(name) != price for name, price in prices.items()):
        found.append("costs")
    if certificate.get("slo_ms") != space.slo_ms:
        found.append("slo_ms")
    if certificate.get("allowed_misses") != space.allowed:
        found.append("allowed_misses")
    for s, name in enumerate(space.names):
        row = stages.get(name, {})
        parents = [SOURCE_NAME if p == SOURCE else space.names[p] for p in space.parents[s]]
        times = {offer.hardware: offer.table_ms.tolist() for offer in space.offers[s]}
        sizes = {offer.hardware: set(offer.batches) for offer in space.offers[s]}
        options = row.get("options")
        covered = isinstance(options, dict) and set(options) == set(sizes)
        # Between the measured batch sizes others may have been allowed; none of the measured may be missing.
        if not covered or any(not sizes[hw] <= set(given) for hw, given in dict(options or {}).items()):
            found.append(f"options of {name}")
        if row.get("parents") != parents:
            found.append(f"parents of {name}")
        if row.get("service_ms") != times:
            found.append(f"service_ms of {name}")
    return found


def check_plan(
    kept: Mapping[str, Any], scenario: Scenario, objective: str, options: Mapping[str, Any]
) -> str:
    """Verify a plan read from a file: by its certificate, or by making it again. Says what was verified."""
    certificate = kept.get("certificate")
    if not certificate:
        try:
            again = plan(scenario, objective, **options).check()
        except TypeError as error:
            raise CheckFailed.at("plan", f"malformed options: {error}") from error
        except Infeasible as error:
            raise CheckFailed.at("plan", f"planned again, there is none: {error}") from error
        if again.space.named(again.configuration) != kept.get("configuration"):
            raise CheckFailed.at("plan", "planned again, it comes out differently")
        return "planned again, the plan comes out the same; simulated, it keeps its objective"
    if kept.get("configuration") != certificate.get("plan"):
        raise CheckFailed.at("plan", "its configuration is not the one that the certificate is about")
    if kept.get("summary", {}).get("cost_usd_per_h") != certificate.get("cost"):
        raise CheckFailed.at("plan", "its cost is not the one that the certificate is about")
    return check_certificate(certificate, scenario)


def routing_of(inputs: Inputs) -> dict[tuple[str, str], Any]:
    """bool[queries] by (parent, stage): who takes each conditional edge, in the order that the edges are numbered."""
    found = []
    queries = len(inputs.arrivals_ms)
    for stage in inputs.pipeline.stages:
        for edge in stage.edges:
            if edge.always:
                continue
            parent = SOURCE_NAME if edge.parent == SOURCE else inputs.pipeline.names[edge.parent]
            column = edge.recorded
            if column is None:
                assert edge.share is not None
                column = draws(inputs.pipeline.seed, edge.number, queries) < edge.share
            found.append((edge.number, (parent, stage.name), column[:queries]))
    return {name: column for _, name, column in sorted(found, key=lambda item: item[0])}


def fresh_traffic(scenario: Scenario, inputs: Inputs, numbers: range) -> tuple[Traffic, ...]:
    """Traces that could have come instead: the same process on other streams; a recorded trace as a moving-block
    bootstrap of its gaps (circular, blocks of about the cube root of its length squared), routing and all."""
    from forerun.domains.serving.plan.space import traffic_of

    if not isinstance(scenario.trace, Generated):
        return tuple(_resampled(traffic_of(inputs), scenario.seed, number) for number in numbers)
    found = []
    for number in numbers:
        seed = int(stream(scenario.seed, "planning trace", number).integers(2**32))
        found.append(traffic_of(inputs.with_seed(seed)))
    if np.array_equal(found[0].arrivals_ms, inputs.arrivals_ms):
        what = (
            "the process gives the same arrivals whatever the seed, so there are no fresh traces to plan for"
        )
        raise UsageError.at("traces", what)
    lengths = {traffic.queries for traffic in found}
    if len(lengths) > 1:
        raise UsageError.at("traces", "give the trace's length in queries: fresh traces must be equally long")
    return tuple(found)


def _resampled(traffic: Traffic, seed: int, number: int) -> Traffic:
    n = traffic.queries
    block = max(1, round(n ** (2 / 3)))
    starts = stream(seed, "planning trace", number).integers(0, n, size=-(-n // block))
    chosen = ((starts[:, None] + np.arange(block)) % n).ravel()[:n]
    gaps = np.diff(traffic.arrivals_ms, prepend=traffic.arrivals_ms[0])
    # The first query has no gap before it; a block that wraps around takes the mean instead.
    gaps[0] = gaps[1:].mean() if n > 1 else 0.0
    drawn = gaps[chosen]
    drawn[0] = 0.0
    taken = tuple(None if column is None else column[chosen] for column in traffic.taken)
    return Traffic(np.cumsum(drawn), taken)


def _simulated_misses(scenario: Scenario, space: Space, chosen: Configuration, traffic: Traffic) -> int:
    """Misses by the domain's engine, which the searches do not use; edges as recorded in the traffic."""
    from dataclasses import replace

    from forerun.domains.serving.engine.stagewise import simulate_stagewise
    from forerun.domains.serving.inputs.pipeline import Pipeline

    pipeline = space.pipeline(chosen, prepare(scenario).pipeline)
    taken = iter(traffic.taken)
    stages = []
    for stage in pipeline.stages:
        columns = [next(taken) for _ in stage.edges]
        edges = tuple(
            replace(edge, share=None, recorded=column) for edge, column in zip(stage.edges, columns)
        )
        stages.append(replace(stage, edges=edges))
    run = simulate_stagewise(Pipeline(tuple(stages)), traffic.arrivals_ms, space.slo_ms, record="counts")
    return run.misses


def _rows(table: Table) -> list[dict[str, Any]]:
    return [_finite(row) for row in plan_tables.rows_of(table)]


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


class ServingPlanner(Planner[Scenario]):
    """The planner of the serving domain."""

    options = (
        "method",
        "max_replicas",
        "every_batch",
        "budget_usd_per_h",
        "confidence",
        "traces",
        "frontier",
    )

    def plan(self, scenario: Scenario, objective: str = "", **options: Any) -> Any:
        """See `plan`."""
        return plan(scenario, objective, **options)

    def check_plan(
        self, kept: Mapping[str, Any], scenario: Scenario, objective: str, options: Mapping[str, Any]
    ) -> str:
        """See `check_plan`."""
        return check_plan(kept, scenario, objective, options)

    def check_certificate(self, certificate: Mapping[str, Any], scenario: Scenario) -> str:
        """See `check_certificate`."""
        return check_certificate(certificate, scenario)
