"""The plan of a serving pipeline, and the checks that verify it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from forerun.core.errors import CheckFailed, Problem, worded
from forerun.core.result.figures import Figure
from forerun.core.result.numbers import plain
from forerun.core.result.plan import ShownPlan
from forerun.core.result.tables import Table
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import SOURCE
from forerun.serving.inputs.prepare import prepare
from forerun.serving.inputs.routing import draws
from forerun.serving.plan.certify import stage_data
from forerun.serving.plan.checker import Rejected, check
from forerun.serving.plan.space import Configuration, Space, Traffic, space_of
from forerun.serving.scenario import SOURCE_NAME, Scenario


@dataclass(frozen=True, repr=False)
class ServingPlan(ShownPlan):
    """The answer.

    Parameters
    ----------
    scenario : what was planned.
    space : what could be chosen, and the objective.
    configuration : what was chosen.
    misses : queries that miss with it; of several traces the most.
    summary : figures by name.
    why : the reason, in a sentence.
    notes : what a reader should know besides.
    tables : by name, as in `plan.tables`.
    certificate : plain data for a checker; empty where none can be had (chance, throughput, baselines).
    traffics : what the plan must carry.
    failing : on how many of them it may miss too often.
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
        content: dict[str, Any] = {
            "domain": "serving",
            "summary": self.summary,
            "why": self.why,
            "notes": list(self.notes),
            "configuration": self.space.named(self.configuration),
            "tables": {name: table.records() for name, table in self.tables.items()},
        }
        if self.certificate:
            content["certificate"] = self.certificate
        return {name: plain(value) for name, value in content.items()}

    def figures(self) -> tuple[Figure, ...]:
        """What the plan's tables show, as data for the report."""
        from forerun.serving.figures.plans import plan_figures

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


class _StageData(msgspec.Struct):
    """As `stage_data` writes it."""

    stage: str
    parents: list[str]
    options: dict[str, list[int]]
    service_ms: dict[str, list[float]]


class _Digest(msgspec.Struct):
    arrivals: int
    arrival_ms_sha256: str


class _Refuted(msgspec.Struct):
    stages: dict[str, tuple[str, int, int]]
    misses_at_least: int


class _Certificate(msgspec.Struct):
    """As `certificate` writes it."""

    trace: _Digest
    slo_ms: float
    allowed_misses: int
    costs: dict[str, float]
    max_replicas: int
    stages: list[_StageData]
    plan: dict[str, tuple[str, int, int]]
    cost: float
    misses: int
    refuted: list[_Refuted]


def check_certificate(certificate: Mapping[str, Any], scenario: Scenario) -> str:
    """Verify that a certificate's plan is the cheapest for this scenario. Says what was verified.

    What the certificate is about must be the scenario's: stages, options, times, prices, objective, arrivals,
    routing. Its claims are verified by a checker that shares no code with the planners.

    Parameters
    ----------
    certificate : plain data, as read from a file.
    scenario : its files are read again.

    Raises CheckFailed, naming every difference or the claim that does not hold.
    """
    try:
        stated = msgspec.convert(certificate, _Certificate)
    except msgspec.ValidationError as error:
        raise CheckFailed.at("certificate", f"malformed: {worded(error)}") from error
    inputs = prepare(scenario)
    space = space_of(scenario, inputs=inputs, max_replicas=stated.max_replicas)
    problems = [Problem("certificate", f"{what} is not the scenario's") for what in _strange(stated, space)]
    if problems:
        raise CheckFailed(*problems)
    try:
        check(certificate, space.traffic.arrivals_ms, routing_of(inputs))
    except Rejected as error:
        raise CheckFailed.at("certificate", str(error)) from error
    refuted, misses, most = len(stated.refuted), stated.misses, stated.max_replicas
    parts = f"{refuted} refuted parts leave" if refuted > 1 else "one refuted part leaves"
    nothing = f"{parts} nothing cheaper" if refuted else "nothing is cheaper"
    return (
        f"the certificate holds: {stated.cost:g} $/h with {misses} miss{'es' * (misses != 1)} of "
        f"{stated.allowed_misses} allowed, and {nothing} with at most {most} replica{'s' * (most != 1)} a stage"
    )


def _strange(certificate: _Certificate, space: Space) -> list[str]:
    """What a certificate says about the question that the scenario does not."""
    stages = {row.stage: row for row in certificate.stages}
    strange = [] if set(stages) == set(space.names) else ["the list of stages"]
    prices = {offer.hardware: offer.price for offers in space.offers for offer in offers}
    if any(certificate.costs.get(name) != price for name, price in prices.items()):
        strange.append("costs")
    if certificate.slo_ms != space.slo_ms:
        strange.append("slo_ms")
    if certificate.allowed_misses != space.allowed:
        strange.append("allowed_misses")
    for s, name in enumerate(space.names):
        if name not in stages:
            continue
        row, own = stages[name], stage_data(space, s)
        # Between the measured batch sizes others may have been allowed; none of the measured may be missing.
        lacking = any(not set(own["options"].get(hw, ())) <= set(given) for hw, given in row.options.items())
        if lacking or row.options.keys() != own["options"].keys():
            strange.append(f"options of {name}")
        strange += [
            f"{what} of {name}" for what in ("parents", "service_ms") if getattr(row, what) != own[what]
        ]
    return strange


def routing_of(inputs: Inputs) -> dict[tuple[str, str], Any]:
    """bool[queries] by (parent, stage): who takes each conditional edge, in the order that the edges are numbered."""
    routes = []
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
            routes.append((edge.number, (parent, stage.name), column[:queries]))
    return {name: column for _, name, column in sorted(routes, key=lambda item: item[0])}


def _simulated_misses(scenario: Scenario, space: Space, chosen: Configuration, traffic: Traffic) -> int:
    """Misses by the domain's engine, which the searches do not use; edges as recorded in the traffic.

    Parameters
    ----------
    scenario : whose pipeline is run.
    space : the offers of the chosen hardware, and the objective.
    chosen : the configuration.
    traffic : arrivals, and who takes which edge.
    """
    from forerun.serving.engine.stagewise import simulate_stagewise
    from forerun.serving.inputs.pipeline import Pipeline

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
