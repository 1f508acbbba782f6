"""Overrides, parts in files of their own, and input paths: what is resolved in a scenario before it is run.

Every default is written out, file paths are absolute and pinned by their digests, so that a scenario is all that a run
depends on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from forerun.core.errors import (
    DataError,
    ForerunError,
    Problem,
    ScenarioError,
    UnknownName,
    UsageError,
)
from forerun.core.regular import resolved_path, unreadable
from forerun.core.scenario.spec import Input, file_digest
from forerun.core.scenario.text import (
    MAX_DEPTH,
    Document,
    Place,
    parse_document,
    parse_scalar,
    read_document,
    step_of,
)
from forerun.core.units import stem

#: prefix of an input path that names a public dataset of the registry instead of a file
DATASET_PREFIX = "data:"


E = TypeVar("E", bound=ForerunError)
S = TypeVar("S", bound=msgspec.Struct)


def located(error: E, path: str | os.PathLike[str]) -> E:
    """The error with the file and line of each `$.path` that is wrong only once the scenario is read or run.

    A problem without a place gets the file's name; those of other files keep theirs.
    """
    document = read_document(Path(path))
    return type(error)(
        *(
            Problem(document.where(_steps(problem.where)), problem.what)
            if problem.where.startswith("$.") or not problem.where
            else problem
            for problem in error.problems
        )
    )


DESCRIPTIONS = (".yaml", ".yml", ".json", ".toml")
"""Suffixes of files that hold a part of a scenario, as `forerun trace fit -o` writes them."""


def written_out(document: Document, *, base: Path) -> tuple[dict[str, Any], Document]:
    """The document with each `key: FILE` replaced by what FILE says under the same key.

    So `fleet: fitted.yaml` is the `fleet` that `forerun trace fit` described, and a run's own scenario contains all of it.
    A file that does not contain the key as a section is left to the field's own type, as is every `file: ...`: recordings
    come as JSON too. Raises ScenarioError for a description that is malformed.
    """

    def out(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: out(item, str(name)) for name, item in value.items()}
        if isinstance(value, list):
            return [out(item, "") for item in value]
        if not isinstance(value, str) or not value.endswith(DESCRIPTIONS) or key in ("file", ""):
            return value
        try:
            path = _input_path(value, base)
            if not path.is_file():
                return value
        except (OSError, DataError, UnknownName):  # not a file: the field's own type says what is wrong
            return value
        try:
            described = read_document(path).data
        except ScenarioError:
            if path.suffix == ".json" or _has_documents(path):
                return value
            raise
        section = described.get(key) if isinstance(described, dict) else None
        return section if isinstance(section, dict) else value

    data = out(document.data, "")
    return data, Document(document.name, data, document.lines)


def _has_documents(path: Path) -> bool:
    """Whether a file has several YAML documents, as objects of Kubernetes do; a description is one."""
    with path.open("rb") as file:
        return path.suffix != ".toml" and b"\n---" in file.read(1 << 20)


def apply_overrides(
    document: Document, overrides: Iterable[str], *, domain: str
) -> tuple[dict[str, Any], Document]:
    """A copy of the document's data with `a.b[0].c=value` texts applied, and the document that contains it.

    A leading domain name is dropped (`cluster.mode=compat` is `mode=compat` in the cluster domain).
    """
    data: dict[str, Any] = _copied(document.data)
    problems: list[Problem] = []
    lines = dict(document.lines)
    for text in overrides:
        where = f"--set {text}"
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UsageError.at(where.encode("utf-8", "replace").decode(), "is not UTF-8")
        key, equals, raw = text.partition("=")
        steps = _steps(key)
        if not equals or not steps:
            raise UsageError.at(
                where, "write an override as path=value, such as slo_ms=300 or stages[0].replicas=2"
            )
        if len(steps) > MAX_DEPTH:
            raise UsageError.at(f"--set {key[:40]}...", f"is nested deeper than {MAX_DEPTH} levels")
        if len(steps) > 1 and steps[0] == domain and steps[0] not in data:
            steps = steps[1:]
        what = _assign(data, steps, _override_value(raw))
        if what:
            problems.append(Problem(where, what))
        lines = {place: line for place, line in lines.items() if place[: len(steps)] != steps}
    if problems:
        raise ScenarioError(*problems)
    return data, Document(document.name, data, lines)


def _copied(data: Any) -> Any:
    """A copy of plain data; policies of one's own in it stay what they are."""
    if isinstance(data, dict):
        return {key: _copied(item) for key, item in data.items()}
    return [_copied(item) for item in data] if isinstance(data, list) else data


def _override_value(raw: str) -> Any:
    stripped = raw.strip()
    if stripped[:1] in ("[", "{", '"', "'"):
        return parse_document(stripped, name="--set", kind=".yaml").data
    return parse_scalar(stripped)


def _steps(key: str) -> Place:
    steps: list[str | int] = []
    for part in key.strip().removeprefix("$.").split("."):
        name, *indices = part.replace("]", "").split("[")
        if name:
            steps.append(step_of(name))
        steps.extend(map(step_of, filter(None, indices)))
    return tuple(steps)


def _assign(data: Any, steps: Place, value: Any) -> str:
    """Set the value at a path; returns what is wrong, empty if nothing is."""
    here = data
    for position, step in enumerate(steps):
        last = position == len(steps) - 1
        if isinstance(here, list):
            index = _index_of(here, step)
            if index is None:
                return f"the list has no element {step!r} (it has {len(here)})"
            if last:
                here[index] = value
            else:
                here = here[index]
        elif isinstance(here, dict):
            if last:
                _drop_other_spelling(here, str(step))
                here[str(step)] = value
            else:
                # A named spec given by name alone becomes a section, so that a parameter can be set.
                if isinstance(here.get(str(step)), str):
                    here[str(step)] = {"name": here[str(step)]}
                here = here.setdefault(str(step), {})
        else:
            return f"{'.'.join(map(str, steps[:position]))} is a single value and has no {step!r}"
    return ""


def _drop_other_spelling(section: dict[str, Any], key: str) -> None:
    """`slo` and `slo_ms` are one field: what is set replaces either spelling of it."""
    for other in list(section):
        if other != key and (stem(other) == key or stem(key) == other):
            del section[other]


def _index_of(items: list[Any], step: str | int) -> int | None:
    if isinstance(step, int):
        return step if 0 <= step < len(items) else None
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get("name") == step:
            return index
    return None


def resolve(scenario: S, *, base: Path, document: Document) -> S:
    """The scenario with every `Input` absolute and pinned by its digest.

    Raises ScenarioError for files that are absent or no longer have the digest they were pinned with.
    """
    problems: list[Problem] = []

    def pin(given: Input, place: Place) -> Input:
        where = document.where(place)
        try:
            path = _input_path(given.path, base)
            digest = file_digest(path)
        except FileNotFoundError as error:
            problems.append(Problem(where, f"no such file: {error.filename}"))
            return given
        except OSError as error:
            problems.append(Problem(where, f"{error.filename or given.path} {unreadable(error)}"))
            return given
        except (DataError, UnknownName) as error:  # public data by name
            problems.extend(Problem(where, str(problem)) for problem in error.problems)
            return given
        if given.sha256 and given.sha256 != digest:
            problems.append(
                Problem(where, f"{path} has changed: its sha256 is {digest}, {given.sha256} was pinned")
            )
        return Input(path=str(path), sha256=digest)

    resolved: S = map_inputs(scenario, pin)
    if problems:
        raise ScenarioError(*problems)
    return resolved


def map_inputs(value: Any, change: Callable[[Input, Place], Input], place: Place = ()) -> Any:
    """A copy of a record tree with every `Input` replaced by `change(input, place)`."""
    if isinstance(value, Input):
        return change(value, place)
    if isinstance(value, msgspec.Struct):
        fields = {
            name: map_inputs(getattr(value, name), change, (*place, name)) for name in value.__struct_fields__
        }
        changed = {name: new for name, new in fields.items() if new is not getattr(value, name)}
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, tuple):
        items = tuple(map_inputs(item, change, (*place, i)) for i, item in enumerate(value))
        return items if any(new is not old for new, old in zip(items, value)) else value
    if isinstance(value, list):
        return [map_inputs(item, change, (*place, i)) for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: map_inputs(item, change, (*place, str(key))) for key, item in value.items()}
    return value


def _input_path(text: str, base: Path) -> Path:
    if text.startswith(DATASET_PREFIX):
        import importlib

        # The registry of public data stands above this module.
        dataset: Path = importlib.import_module("forerun.core.data.fetch").dataset(
            text.removeprefix(DATASET_PREFIX)
        )
        return dataset.resolve()
    return resolved_path(text, base)
