"""Plans: what a planner returns, why it is the answer, and how to verify it."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar, cast, runtime_checkable

from forerun.core.atomic_write import write_text
from forerun.core.errors import CheckFailed, ForerunError, UsageError
from forerun.core.result import notebook
from forerun.core.result.numbers import format_number, plain
from forerun.core.result.tables import Table
from forerun.core.scenario.spec import Spec, to_data
from forerun.core.version import VERSION

S = TypeVar("S", bound=Spec)

#: what a plan file says it is
PLAN_FORMAT: Final = "forerun.plan/1"


@runtime_checkable
class Plan(Protocol):
    """What a planner returns.

    summary: flat figures under names that carry units. why: one sentence. notes: what a reader must know. tables by
    name, the one to show first first. data(): everything as plain data, with `certificate` where there is one.
    check(): verify the plan by independent means and return it; raises CheckFailed.
    """

    @property
    def summary(self) -> Mapping[str, Any]:
        """Flat figures under names that carry units."""
        ...

    @property
    def why(self) -> str:
        """One sentence: why this and nothing else."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""
        ...

    @property
    def tables(self) -> Mapping[str, Table]:
        """Tables by name."""
        ...

    def data(self) -> dict[str, Any]:
        """The plan as plain data."""
        ...

    def check(self) -> Plan:
        """Verify the plan; raises CheckFailed."""
        ...


class Planner(ABC, Generic[S]):
    """What finds the best configuration of a domain's scenarios.

    options: the names of what `plan` takes beyond scenario and objective.
    """

    options: tuple[str, ...] = ()

    @abstractmethod
    def plan(self, scenario: S, objective: str = "", **options: Any) -> Plan:
        """The best configuration by an objective (default: the domain's first).

        Raises Infeasible naming the constraint that cannot be met, UsageError for an unknown objective.
        """

    def check_plan(
        self, saved: Mapping[str, Any], scenario: S, objective: str, options: Mapping[str, Any]
    ) -> str:
        """Verify the plan in a plan file, given as plain data, and say what was verified.

        Unless a domain has a cheaper independent checker, the scenario is planned again and must give the same plan.
        Raises CheckFailed if it does not.
        """
        try:
            again = self.plan(scenario, objective, **options).check()
        except ForerunError as error:
            raise CheckFailed.at("", f"planned again, there is no such plan: {error}") from error
        if plain(again.data()) != plain(saved):
            raise CheckFailed.at("", "planned again from its scenario, the plan differs")
        return "planned again from its scenario, the plan is the same; its certificate is valid"

    def check_certificate(self, certificate: Mapping[str, Any], scenario: S) -> str:
        """Verify a certificate by itself. Raises CheckFailed, or UsageError in a domain without certificates."""
        raise UsageError.at("", f"plans of {type(scenario).__module__} have no certificates of their own")


class ShownPlan:
    """How the plan of any domain shows itself: one line, or a table in a notebook."""

    __slots__ = ()

    #: where `code` goes
    code_is_for = "in the training program"

    @property
    def code(self) -> str:
        """The plan as lines of a program or of a shell, in domains that have it; else empty."""
        return ""

    def __repr__(self) -> str:
        plan = cast(Plan, self)
        figures = ", ".join(
            f"{name}={format_number(value)}"
            for name, value in plan.summary.items()
            if not isinstance(value, (dict, list, tuple))
        )
        return f"<plan: {figures}; why: {plan.why}>"

    def _repr_html_(self) -> str:
        plan = cast(Plan, self)
        first = next((table for table in plan.tables.values() if len(table)), None)
        shown = notebook.figures(plan.summary, {}, tuple(plan.summary))
        shown += first._repr_html_() if first is not None else ""
        return shown + notebook.sentences(plan.why, plan.notes)


def document(plan: Plan, scenario: Spec, objective: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The plan as a file keeps it: with the resolved scenario and the options, so that it can be verified alone."""
    return {
        "format": PLAN_FORMAT,
        "forerun": VERSION,
        "scenario": to_data(scenario),
        "objective": objective,
        "options": dict(options),
        "plan": plan.data(),
    }


def write_document(document: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a plan or another document atomically; what is not finite is null. Raises StoreError if it cannot be written."""
    return write_text(
        Path(path), json.dumps(plain(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    )
