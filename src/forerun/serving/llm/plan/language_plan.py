"""The plan of stages that serve language models, and the checks that verify it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.core.errors import CheckFailed
from forerun.core.result.figures import Figure
from forerun.core.result.numbers import plain
from forerun.core.result.plan import ShownPlan
from forerun.core.result.tables import Table
from forerun.serving.inputs.prepare import prepare
from forerun.serving.llm.plan.bounds import Bound
from forerun.serving.llm.plan.checker import SCHEMA, Rejected, check
from forerun.serving.llm.plan.deployment import deployment
from forerun.serving.llm.plan.search import Search, VisitedCell
from forerun.serving.llm.plan.space import Cell, Space
from forerun.serving.scenario import Scenario


@dataclass(frozen=True, repr=False)
class LanguagePlan(ShownPlan):
    """The answer.

    Parameters
    ----------
    scenario : what was planned.
    space : what could be chosen.
    cell : what was chosen.
    summary : figures by name.
    why : the reason, in a sentence.
    notes : what a reader should know besides.
    tables : by name.
    certificate : plain data for a checker.
    """

    scenario: Scenario
    space: Space = field(repr=False)
    cell: Cell
    summary: Mapping[str, Any]
    why: str
    notes: tuple[str, ...]
    tables: Mapping[str, Table] = field(repr=False)
    certificate: Mapping[str, Any] = field(repr=False)

    code_is_for = "on the servers"

    @property
    def code(self) -> str:
        """What to run."""
        return deployment(self.space, self.cell)

    def data(self) -> dict[str, Any]:
        """As plain data (`--json`, plan files)."""
        content: dict[str, Any] = {
            "domain": "serving",
            "summary": self.summary,
            "why": self.why,
            "notes": list(self.notes),
            "configuration": self.space.data(self.cell),
            "tables": {name: table.records() for name, table in self.tables.items()},
            "code": self.code,
            "certificate": self.certificate,
        }
        return {name: plain(value) for name, value in content.items()}

    def figures(self) -> tuple[Figure, ...]:
        """What the plan's tables show, as data for the report."""
        from forerun.serving.llm.figures.llm_plans import plan_figures

        return plan_figures(self.tables)

    def scenario_planned(self) -> Scenario:
        """The scenario with the plan as its configuration, ready to be simulated."""
        return self.space.placed(self.cell)

    def check(self) -> LanguagePlan:
        """Verify the certificate. Raises CheckFailed."""
        check_certificate(self.certificate, self.scenario)
        return self


def certificate_of(search: Search, best: VisitedCell, *, max_replicas: int, traces: int) -> dict[str, Any]:
    """Why nothing cheaper will do, as plain data.

    Parameters
    ----------
    search : which looked at the cells.
    best : the plan.
    max_replicas : of a stage that lists no numbers of replicas.
    traces : fresh ones that were planned for (0: the scenario's own).
    """
    space, excluded = search.space, []
    for one in search.tried:
        if one.key >= best.key:
            continue
        bounds = [_claim(space, one.cell, number, *bound) for number, bound in one.bounds.items()]
        missed = list(one.missed)[: max(0, search.failing + 1 - len(bounds))]
        excluded.append(
            {"cell": space.data(one.cell), "bounds": bounds[: search.failing + 1], "missed": missed}
        )
    return {
        "schema": SCHEMA,
        "objective": search.objective,
        "max_replicas": max_replicas,
        "traces": traces,
        "failing": search.failing,
        "plan": space.data(best.cell),
        "cost_usd_per_h": float(space.cost(best.cell)),
        "excluded": excluded,
    }


def _claim(space: Space, cell: Cell, number: int, place: int, bound: Bound) -> dict[str, Any]:
    """A bound as plain data.

    Parameters
    ----------
    cell : that it excludes.
    number : of the world.
    place : of the stage among those of the space.
    """
    claim: dict[str, Any] = {"stage": space.stages[place].name, "world": number}
    if bound.overworks(cell[place].replicas):
        return claim | {"first": bound.first, "last": bound.last, "whole": bound.whole}
    return claim | {"late": bound.late}


def check_certificate(certificate: Mapping[str, Any], scenario: Scenario) -> str:
    """Verify that a certificate's plan is the cheapest for this scenario. Says what was verified.

    Parameters
    ----------
    certificate : plain data, as read from a file.
    scenario : its files are read again.

    Raises CheckFailed, naming the claim that does not hold.
    """
    traces, most = certificate.get("traces"), certificate.get("max_replicas")
    if not isinstance(traces, int) or not isinstance(most, int) or traces < 0 or most < 1:
        raise CheckFailed.at("certificate", "malformed: traces and max_replicas are whole numbers")
    try:
        excluded = check(certificate, prepare(scenario), traces, most)
    except Rejected as error:
        raise CheckFailed.at("certificate", str(error)) from error
    worlds = (
        f" in at least {traces - certificate['failing']} of {traces} models and traffics" if traces else ""
    )
    within = f"with at most {most} replica{'s' * (most > 1)} a stage"
    if excluded > 1:
        others = f"none of the {excluded:,} cheaper cells {within} keeps them"
    else:
        others = f"the one cheaper cell {within} does not" if excluded else f"no cell {within} is cheaper"
    return f"the certificate holds: {certificate['cost_usd_per_h']:g} $/h, the objectives are kept{worlds}, and {others}"
