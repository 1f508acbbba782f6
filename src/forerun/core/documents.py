"""Formats of stored files: what a page shows of a file, its figures, and how it is verified.

Plans and measurements are of every domain and stand here; whoever owns another format announces it in
`forerun.core.slices`. `document_of` finds the owner of a file.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from forerun.core.domain import find_domain, get_domain, planner_of
from forerun.core.errors import CheckFailed, Problem, StoreError, worded
from forerun.core.result.document import ExplainedJob, StoredDocument
from forerun.core.result.figures import Figure
from forerun.core.result.numbers import plain
from forerun.core.result.plan import PLAN_FORMAT, Plan, document
from forerun.core.result.reading import check_figures, record
from forerun.core.scenario.spec import AnyScenario, Spec, field_types
from forerun.core.scenarios import MEASUREMENT_FORMAT, from_data
from forerun.core.slices import documents, figures


class Document(ABC):
    """A format of stored files.

    format: as the files give it under `format`.
    """

    format: ClassVar[str]

    @abstractmethod
    def read(self, name: str, content: Mapping[str, Any], file: str = "") -> StoredDocument:
        """What a page shows of a file.

        Parameters
        ----------
        name : what it is called there.
        content : of the file.
        file : that it was read from, for messages (default: none).

        Raises
        ------
        StoreError : the content is not of this format.
        """

    @abstractmethod
    def figures(self, content: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a file that `read` accepts."""

    def check(self, content: Mapping[str, Any], name: str, scenario: AnyScenario | None = None) -> str:
        """Verify what a file claims, and say what was verified.

        Parameters
        ----------
        content : of the file.
        name : of the file, for messages.
        scenario : instead of the one in the file (default: that one).

        Raises
        ------
        CheckFailed : a claim is false.
        StoreError : the format claims nothing that can be verified.
        """
        raise no_plan(content, name)


class JobDocument(Document):
    """A format of files with jobs, each of which can be explained."""

    @abstractmethod
    def explain_job(
        self, content: Mapping[str, Any], file: Path, job: str, progress: Callable[[str], None]
    ) -> ExplainedJob:
        """Explain one job.

        Parameters
        ----------
        content : of the file.
        file : that it was read from.
        job : its id.
        progress : called with a message at each step.

        Raises
        ------
        StoreError : the content is not of this format.
        UsageError : there is no such job.
        """


class _PlanFile(Spec, frozen=True, kw_only=True):
    """The content of a plan file."""

    format: str
    forerun: str
    scenario: dict[str, Any]
    objective: str
    options: dict[str, Any]
    plan: dict[str, Any]


class _Answer(Spec, frozen=True, kw_only=True):
    """What every plan has."""

    why: str
    summary: dict[str, Any]
    notes: tuple[str, ...] = ()
    tables: dict[str, Any] = {}
    code: str = ""


class PlanDocument(Document):
    """A plan, with the scenario that it is for."""

    format = PLAN_FORMAT

    def read(self, name: str, content: Mapping[str, Any], file: str = "") -> StoredDocument:
        """What a page shows of a plan. Raises StoreError naming what is not that of a plan."""
        path = Path(file or name)
        kept, answer = _plan(content, path)
        plan, scenario = kept.plan, kept.scenario
        check_figures({key: value for key, value in plan.items() if key != "certificate"}, path, "$.plan")
        tables = {name: rows for name, rows in answer.tables.items() if _is_table(rows)}
        tables |= {name: rows for name, rows in plan.items() if name != "tables" and _is_table(rows)}
        options = {f"option {name}": value for name, value in kept.options.items()}
        return StoredDocument(
            name=name,
            file=str(path),
            kind="plan",
            domain=domain_of(content, path),
            version=kept.forerun,
            answer=answer.why,
            notes=answer.notes,
            facts=answer.summary,
            tables=tables,
            scenario=scenario,
            code=answer.code,
            provenance={
                "objective": kept.objective or "the domain's default",
                **options,
                "certificate": "in the plan file"
                if "certificate" in plan
                else "none: checked by planning again",
                "verified by": f"forerun check {path.name}",
            },
            content=content,
        )

    def figures(self, content: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a plan, which its domain makes."""
        scenario = content["scenario"]
        return get_domain(scenario["domain"]).plan_figures(content["plan"], scenario)

    def check(self, content: Mapping[str, Any], name: str, scenario: AnyScenario | None = None) -> str:
        """Verify a plan, and say what was verified."""
        kept, _ = _plan(content, Path(name))
        resolved = scenario if scenario is not None else from_data(kept.scenario, base=Path(), name=name)
        planner = planner_of(resolved.domain)
        if unknown := [option for option in kept.options if option not in planner.options]:
            raise StoreError.at(name, f"is no plan: its option {unknown[0]!r} is unknown")
        try:
            return planner.check_plan(kept.plan, resolved, kept.objective, kept.options)
        except (CheckFailed, StoreError) as error:
            raise type(error)(*(Problem(one.where or name, one.what) for one in error.problems)) from error


def _plan(content: Mapping[str, Any], path: Path) -> tuple[_PlanFile, _Answer]:
    """The content of a plan file, and its answer. Raises StoreError naming what is not that of a plan."""
    kept = record(content, _PlanFile, path)
    answer = {key: kept.plan[key] for key in field_types(_Answer) if key in kept.plan}
    return kept, record(answer, _Answer, f"{path}: plan")


def domain_of(content: Mapping[str, Any], where: str | Path) -> str:
    """The domain of the scenario in a document."""
    name = content["scenario"].get("domain")
    if not isinstance(name, str):
        raise StoreError.at(f"{where}: at $.scenario.domain", "does not name a domain")
    return name


class MeasurementDocument(Document):
    """What was measured on a real machine."""

    format = MEASUREMENT_FORMAT

    def read(self, name: str, content: Mapping[str, Any], file: str = "") -> StoredDocument:
        """What a page shows of a measurement, its profile's values among the facts.

        A note is added if the machine was busy while it was measured.
        """
        where = file or name
        check_figures(content, where)
        try:
            flat = {name: value for name, value in content.items() if not isinstance(value, (Mapping, list))}
            apart = ("format", "domain", "forerun", "answer")
            profile = content.get("profile") or {}
            learned = {
                name: value for name, value in profile.items() if not isinstance(value, (Mapping, list))
            }
            notes = [*content.get("notes", ()), *profile.get("notes", ())]
            host = content.get("host", {})
            if host.get("quiet") is False:
                notes.append("the load average was above twice the cores: measure again on a quiet machine")
            facts = {**{key: value for key, value in flat.items() if key not in apart}, **learned}
            tables = {key: rows for key, rows in content.items() if _is_table(rows)}
            return StoredDocument(
                name=name,
                file=where,
                kind="measurement",
                domain=str(content["domain"]),
                version=str(content.get("forerun", "")),
                answer=str(content.get("answer", "")),
                notes=tuple(map(str, notes)),
                facts=facts,
                tables=tables,
                provenance={f"host {name}": value for name, value in host.items()},
                content=content,
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StoreError.at(where, f"is no measurement: {worded(error)}") from error

    def figures(self, content: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a measurement, which its domain makes, or who measures for it."""
        name = str(content["domain"])
        others = [importlib.import_module(module).measured_figures(content) for module in figures(name)]
        return (*get_domain(name).measured_figures(content), *(one for made in others for one in made))

    def check(self, content: Mapping[str, Any], name: str, scenario: AnyScenario | None = None) -> str:
        """Compare predictions with what was measured."""
        domain = find_domain(str(content.get("domain")))
        if domain is None:
            raise StoreError.at(name, "is no plan but a measurement; forerun report shows it")
        return domain.check_measurement(content, name)


def _is_table(rows: Any) -> bool:
    """Whether something is a list of records, of which one says something."""
    return isinstance(rows, list) and any(rows) and all(isinstance(row, Mapping) for row in rows)


# ------------------------------------------------------------------------------------------------------ who owns a file

_OWN: Final = {one.format: one for one in (PlanDocument(), MeasurementDocument())}
#: all formats, those of every domain first
FORMATS: Final = tuple(dict.fromkeys((*_OWN, *(key.split()[0] for key in documents()))))


def stored_plan(name: str, plan: Plan, scenario: Spec, options: Mapping[str, Any]) -> StoredDocument:
    """A plan as if it came from a file.

    Parameters
    ----------
    name : of that file.
    scenario, options : what was planned, and how.
    """
    content: dict[str, Any] = plain(document(plan, scenario, "", options))
    return PlanDocument().read(name, content)


def document_of(content: Mapping[str, Any]) -> Document | None:
    """Whoever owns the format of a file, with `what` it is of where that is announced; None where no package does."""
    given = str(content.get("format"))
    key = f"{given} {content.get('what')}"
    key = key if key in documents() else given
    return announced(key) if key in documents() else _OWN.get(given)


def announced(key: str) -> Document:
    """What a slice announces under a key of its `documents`."""
    made: Document = importlib.import_module(documents()[key]).DOCUMENT
    return made


def no_plan(content: Mapping[str, Any], name: str) -> StoreError:
    """The error of verifying a file that is of another format than a plan's."""
    return StoreError.at(name, f"is no plan: its format is {content.get('format')!r}, not {PLAN_FORMAT!r}")
