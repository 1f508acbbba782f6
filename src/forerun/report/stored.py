"""What `forerun report` accepts: run directories, study stores, and files of comparisons, plans, measurements and bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from forerun.domain import find_domain
from forerun.domains.cluster.replay.explain import JobStory
from forerun.domains.cluster.replay.stored import REPLAY_FORMAT, replay_figures
from forerun.errors import StoreError
from forerun.result.bound import BOUNDS_FORMAT
from forerun.result.bound_figures import bound_figures
from forerun.result.figures import Figure
from forerun.result.job import JobExplanation
from forerun.result.plan import PLAN_FORMAT
from forerun.result.reading import check_figures, read_document, record
from forerun.result.run import SavedRun, load_result
from forerun.scenario.spec import Spec, field_types
from forerun.study.compare import Comparison
from forerun.study.compared import COMPARISON_FORMAT, comparison_of
from forerun.study.saved import SavedStudy, load_saved
from forerun.study.store import is_store
from forerun.units import stem
from forerun.version import VERSION

#: what a measurement file says it is
MEASUREMENT_FORMAT: Final = "forerun.measurement/1"

Rows = Sequence[Mapping[str, Any]]

#: what code that draws raises where a stored value is not what it should be
DAMAGE: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class StoredComparison:
    """A comparison with the name that the page shows for it.

    Parameters
    ----------
    name : of its file, or made from its id.
    comparison : what was compared.
    """

    name: str
    comparison: Comparison

    @property
    def domain(self) -> str:
        """The domain of the variants."""
        return self.comparison.domain


@dataclass(frozen=True)
class StoredDocument:
    """The content of a plan or measurement file.

    Parameters
    ----------
    name : of the file, without its suffix.
    kind : `plan`, `measurement`, `bound`, `explanation` or `replay`.
    domain : whose it is.
    version : of the forerun that wrote it; empty if the file does not say.
    answer : one sentence.
    notes : further sentences.
    facts : the main figures, a flat mapping; their names carry units.
    tables : rows by name.
    scenario : that was planned for (default: none).
    provenance : where the content comes from (default: nothing).
    content : the plan, or the whole measurement, from which the domain makes its figures (default: nothing).
    figures : where they are made already (default: none).
    file : that it was read from (default: none).
    """

    name: str
    kind: Literal["plan", "measurement", "bound", "explanation", "replay"]
    domain: str
    version: str
    answer: str
    notes: tuple[str, ...]
    facts: Mapping[str, Any]
    tables: Mapping[str, Rows]
    scenario: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict, repr=False)
    figures: tuple[Figure, ...] = field(default=(), repr=False)
    file: str = ""


Stored = SavedRun | SavedStudy | StoredComparison | StoredDocument


def open_stored(path: Path) -> Stored:
    """Read what is stored at a path: a run directory, a study store, or a JSON file of a comparison, plan or measurement.

    Parameters
    ----------
    path : a file or folder.

    Raises
    ------
    StoreError : it is missing, damaged or of an unknown format; the message says which.
    """
    if is_store(path) or path.suffix == ".sqlite":
        return load_saved(path)
    if not path.is_file():
        return load_result(path)
    try:
        data = read_document(path)
    except StoreError as error:
        # A plan file may have any name. For one named .json, say what is wrong inside it.
        if path.suffix == ".json":
            raise
        raise StoreError.at(
            path,
            "is not a run directory, a study store or a JSON file of a comparison, plan or measurement",
        ) from error
    match data.get("format"):
        case given if given == COMPARISON_FORMAT:
            return StoredComparison(path.stem, comparison_of(data, str(path)))
        case given if given == PLAN_FORMAT:
            return _plan(path, data)
        case given if given == MEASUREMENT_FORMAT:
            return measurement_document(path.stem, data, str(path))
        case given if given == BOUNDS_FORMAT:
            return bound_document(path.stem, data, str(path))
        case given if given == REPLAY_FORMAT:
            return replay_document(path.stem, data, str(path))
        case given:
            known = ", ".join(
                (COMPARISON_FORMAT, PLAN_FORMAT, MEASUREMENT_FORMAT, BOUNDS_FORMAT, REPLAY_FORMAT)
            )
            raise StoreError.at(
                path, f"has format {given!r}; known: {known}; a run is given as its directory"
            )


def figures_of_document(document: StoredDocument) -> tuple[Figure, ...]:
    """The figures of a plan or a measurement, none if its domain is not installed.

    Parameters
    ----------
    document : the content of the file.

    Raises
    ------
    StoreError : the content lacks what the figures need.
    """
    domain = find_domain(document.domain)
    if domain is None:
        return ()
    try:
        if document.kind == "explanation":
            return document.figures
        if document.kind == "replay":
            return replay_figures(document.content)
        if document.kind == "bound":
            return bound_figures(document.content["brackets"])
        if document.kind == "plan":
            return domain.plan_figures(document.content, document.scenario)
        return domain.measured_figures(document.content)
    except DAMAGE as error:
        what = f"its figures need what the {document.kind} does not contain: {type(error).__name__}: {error}"
        raise StoreError.at(document.file or document.name, what) from error


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


def _plan(path: Path, data: Mapping[str, Any]) -> StoredDocument:
    """The content of a plan file. Raises StoreError naming what is not that of a plan."""
    file = record(data, _PlanFile, path)
    plan, scenario = file.plan, file.scenario
    answer = record({key: plan[key] for key in field_types(_Answer) if key in plan}, _Answer, f"{path}: plan")
    check_figures({key: value for key, value in plan.items() if key != "certificate"}, path, "$.plan")
    tables = {name: rows for name, rows in answer.tables.items() if _is_table(rows)}
    tables |= {name: rows for name, rows in plan.items() if name != "tables" and _is_table(rows)}
    options = {f"option {name}": value for name, value in file.options.items()}
    return StoredDocument(
        name=path.stem,
        file=str(path),
        kind="plan",
        domain=_domain(data, path),
        version=file.forerun,
        answer=answer.why,
        notes=answer.notes,
        facts=answer.summary,
        tables=tables,
        scenario=scenario,
        provenance={
            "objective": file.objective or "the domain's default",
            **options,
            "certificate": "in the plan file" if "certificate" in plan else "none: checked by planning again",
            "verified by": f"forerun check {path.name}",
        },
        content=plan,
    )


def _domain(data: Mapping[str, Any], where: str | Path) -> str:
    """The domain of the scenario in a document."""
    name = data["scenario"].get("domain")
    if not isinstance(name, str):
        raise StoreError.at(f"{where}: at $.scenario.domain", "does not name a domain")
    return name


class _Piece(Spec, frozen=True, kw_only=True):
    """A piece of a schedule."""

    job: str
    start_s: float
    end_s: float
    gpus: int


class _Span(Spec, frozen=True, kw_only=True):
    """What a GPU-hour is worth in some time."""

    start_s: float
    end_s: float
    price: float


class _Bracket(Spec, frozen=True, kw_only=True):
    """A bracket, as `Bracket.data` gives it."""

    figure: str
    title: str
    better: Literal["higher", "lower"]
    gpus: int
    jobs: int
    of: int
    reached: float | None
    bound: float
    notes: tuple[str, ...]
    schedule: tuple[_Piece, ...]
    prices: tuple[_Span, ...]
    price_unit: str


class _Bounds(Spec, frozen=True, kw_only=True):
    """The content of a file of bounds."""

    format: str
    forerun: str
    scenario: dict[str, Any]
    why: str
    notes: tuple[str, ...]
    brackets: Annotated[tuple[_Bracket, ...], Meta(min_length=1)]


def bound_document(name: str, data: Mapping[str, Any], file: str = "") -> StoredDocument:
    """The content of a file of bounds, a row a number of GPUs.

    Parameters
    ----------
    name : of the bound.
    data : its content.
    file : that it was read from, for messages (default: none).

    Raises
    ------
    StoreError : it is not that of a bound.
    """
    where = file or name
    record(data, _Bounds, where)
    brackets = data["brackets"]
    apart = ("schedule", "prices", "price_unit", "notes", "title", "figure", "better")
    rows = [{key: value for key, value in one.items() if key not in apart} for one in brackets]
    for row in rows:
        if count := row.pop("of"):
            row["out_of"] = count
    figure = str(brackets[0]["figure"])
    unit = figure.removeprefix(stem(figure))
    return StoredDocument(
        name=name,
        file=where,
        kind="bound",
        domain=_domain(data, where),
        version=data["forerun"],
        answer=data["why"],
        notes=tuple(data["notes"]),
        facts={
            f"{key}{unit if key in ('reached', 'bound') else ''}": value for key, value in rows[0].items()
        },
        tables={"bounds": rows} if len(rows) > 1 else {},
        scenario=data["scenario"],
        provenance={"figure": figure},
        content=data,
    )


class _Replayed(Spec, frozen=True, kw_only=True):
    """The content of a file of a replay."""

    format: str
    forerun: str
    why: str
    log: dict[str, Any]
    calibrate_until_s: float
    scored_until_s: float
    system: dict[str, Any]
    policy: str
    named: str | None
    findings: tuple[dict[str, str], ...]
    notes: tuple[str, ...]
    card: tuple[dict[str, Any], ...]
    policies: tuple[dict[str, Any], ...]
    classes: tuple[dict[str, Any], ...]
    over_time: dict[str, tuple[float, ...]]
    pool: str


def replay_document(name: str, data: Mapping[str, Any], file: str = "") -> StoredDocument:
    """The content of a file of a replay. The parameters and errors are those of `bound_document`."""
    where = file or name
    record(data, _Replayed, where)
    check_figures(data, where)
    try:
        return StoredDocument(
            name=name,
            file=where,
            kind="replay",
            domain="cluster",
            version=data["forerun"],
            answer=data["why"],
            notes=tuple(data["notes"]),
            facts={str(line["figure"]): line["measured"] for line in data["card"]},
            tables={
                "report card": data["card"],
                "policies, one decision at a time": data["policies"],
                "what the log says of the machine": data["findings"],
                "mean wait by class": data["classes"],
            },
            provenance={key: value for key, value in data["log"].items() if not isinstance(value, list)},
            content=data,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StoreError.at(where, f"is no replay: {type(error).__name__}: {error}") from error


def job_document(explained: JobExplanation, run: str) -> StoredDocument:
    """The explanation of one job of a run, as a page shows it.

    Parameters
    ----------
    explained : as `forerun.explain_job` returns it.
    run : what the run is called.
    """
    story, shown = explained.story, explained.shown()
    fate, ledger = story.fate, story.ledger
    facts = {
        "waited_s": math.fsum(wait.seconds for wait in story.waits),
        "from submission to end_s": ledger.whole,
        "start_s": fate.start_s,
        "end_s": fate.end_s,
        "deadline_s": fate.deadline_s,
        "before deadline_s": fate.early_s,
    }
    names = {
        "life": "what happened to it",
        "waits": "every stretch in which it waited",
        "ahead": "who had the GPUs while it waited",
        "time": "where its time went",
        "changes": "what would have changed it",
    }
    return StoredDocument(
        name=f"job {story.job} of {run}",
        kind="explanation",
        domain=explained.domain,
        version=VERSION,
        answer=story.why,
        notes=tuple(f"{one.what}: {one.why_not}" for one in explained.tried if one.why_not),
        facts=facts,
        tables={names[name]: rows for name, rows in shown.items() if rows},
        scenario=explained.scenario,
        provenance={"run": explained.run},
        figures=() if story.figure is None else (story.figure,),
    )


def replayed_job_document(story: JobStory, origin_s: float, replay: str) -> StoredDocument:
    """The explanation of one job of a replay, as a page shows it.

    Parameters
    ----------
    story : of the job.
    origin_s : of its log, in seconds since 1970.
    replay : what the replay is called.
    """
    names = {
        "life": "what happened to it",
        "causes": "what it waited for in the replay",
        "waits": "every stretch in which it waited",
        "holders": "who had the nodes while others kept it waiting",
        "users": "the same by user",
        "changes": "what would have changed its start",
    }
    return StoredDocument(
        name=f"job {story.job} of {replay}",
        kind="explanation",
        domain="cluster",
        version=VERSION,
        answer=story.why,
        notes=story.notes,
        facts={
            "wait in the replay_s": story.start_s - story.submit_s,
            "wait in history_s": story.history_s - story.submit_s,
            "nodes": story.nodes,
            "requested_s": story.request_s,
            "ran_s": story.run_s,
            "pool": story.pool,
            "policy": story.policy,
        },
        tables={names[name]: rows for name, rows in story.shown(origin_s).items() if rows},
        provenance={"replay": replay},
    )


def measurement_document(name: str, data: Mapping[str, Any], file: str = "") -> StoredDocument:
    """The content of a measurement file, its profile's values among the facts.

    A note is added if the machine was busy while it was measured. The parameters and errors are those of `bound_document`.
    """
    where = file or name
    check_figures(data, where)
    try:
        flat = {name: value for name, value in data.items() if not isinstance(value, (Mapping, list))}
        apart = ("format", "domain", "forerun", "answer")
        profile = data.get("profile") or {}
        learned = {name: value for name, value in profile.items() if not isinstance(value, (Mapping, list))}
        notes = [*data.get("notes", ()), *profile.get("notes", ())]
        host = data.get("host", {})
        if host.get("quiet") is False:
            notes.append("the load average was above twice the cores: measure again on a quiet machine")
        facts = {**{key: value for key, value in flat.items() if key not in apart}, **learned}
        tables = {key: rows for key, rows in data.items() if _is_table(rows)}
        return StoredDocument(
            name=name,
            file=where,
            kind="measurement",
            domain=str(data["domain"]),
            version=str(data.get("forerun", "")),
            answer=str(data.get("answer", "")),
            notes=tuple(map(str, notes)),
            facts=facts,
            tables=tables,
            provenance={f"host {name}": value for name, value in host.items()},
            content=data,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StoreError.at(where, f"is no measurement: {type(error).__name__}: {error}") from error


def _is_table(rows: Any) -> bool:
    """Whether something is a list of records, of which one says something."""
    return isinstance(rows, list) and any(rows) and all(isinstance(row, Mapping) for row in rows)
