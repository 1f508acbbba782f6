"""Scenario files to resolved scenarios.

`load(path)` reads strictly, applies overrides, decodes into the room's types and resolves: every default is written
out, file paths are absolute and pinned by their digests. What comes back is all that a run depends on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from forerun.errors import (
    DataError,
    ForerunError,
    Problem,
    ScenarioError,
    UnknownName,
    UsageError,
    known_names,
)
from forerun.regular import resolved_path, unreadable
from forerun.scenario.arguments import path_of, wrong_type
from forerun.scenario.decode import decode
from forerun.scenario.spec import Input, Spec, file_digest
from forerun.scenario.text import (
    MAX_DEPTH,
    Document,
    Place,
    parse_document,
    parse_scalar,
    read_document,
    step_of,
)
from forerun.units import stem

SPEC_VERSION = 1

#: prefix of an input path that names a public dataset of the registry instead of a file
DATASET_PREFIX = "data:"


def load(path: str | os.PathLike[str], overrides: Iterable[str] = (), *, seed: int | None = None) -> Any:
    """The resolved scenario of a file, in the types of its room.

    `overrides` are texts `a.b=value` (as after `--set`), applied before decoding; `seed` replaces the file's.
    Raises ScenarioError with every problem found.

    >>> scenario = forerun.load(forerun.demo("energy").scenario, ["job.max_epochs=60"], seed=3)
    >>> scenario.domain, scenario.job.max_epochs, scenario.seed
    ('energy', 60, 3)
    """
    source = path_of(path, "load")
    document = read_document(source)
    return build(document, base=source.resolve().parent, overrides=overrides, seed=seed)


def loads(
    text: str, overrides: Iterable[str] = (), *, seed: int | None = None, base: Path | None = None
) -> Any:
    """The resolved scenario of a YAML text; relative paths are taken from `base` (the current folder if not given).

    >>> try:
    ...     forerun.loads("domain: energi")
    ... except forerun.ForerunError as error:
    ...     print(error)
    <text>:1: at $.domain: no room named 'energi'; did you mean 'energy'? known: cluster, energy, loading, serving, spot
    """
    if not isinstance(text, str):
        raise wrong_type("loads", text, "the text of a scenario (forerun.load reads a file)")
    document = parse_document(text, name="<text>", kind=".yaml")
    return build(document, base=base or Path.cwd(), overrides=overrides, seed=seed)


E = TypeVar("E", bound=ForerunError)


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


def from_data(data: dict[str, Any], *, base: Path | None = None, name: str = "<data>") -> Any:
    """The resolved scenario of plain data (as from `to_data`, or a run's scenario.json)."""
    return build(Document(name, data), base=base or Path.cwd())


def build(document: Document, *, base: Path, overrides: Iterable[str] = (), seed: int | None = None) -> Any:
    """Decode and resolve a document into its room's scenario."""
    data = document.data
    if not isinstance(data, dict):
        raise ScenarioError.at(
            document.where(()), "a scenario is a section of keys that begins with `domain: ...`"
        )
    domain = data.get("domain")
    data, origin = apply_overrides(document, overrides, domain=domain if isinstance(domain, str) else "")
    if seed is not None:
        data["seed"] = seed
    data, origin = written_out(origin, base=base)
    version = data.get("spec_version", SPEC_VERSION)
    if version != SPEC_VERSION or isinstance(version, bool):
        raise ScenarioError.at(
            document.where(("spec_version",)),
            f"{version!r} was found, this forerun reads version {SPEC_VERSION}",
        )
    scenario: Any = decode(origin, scenario_type(data.get("domain"), document))
    if scenario.seed < 0:
        raise ScenarioError.at(document.where(("seed",)), f"{scenario.seed} is negative; seeds begin at 0")
    return resolve(scenario, base=base, document=document)


DESCRIPTIONS = (".yaml", ".yml", ".json", ".toml")
"""Suffixes of files that hold a part of a scenario, as `forerun trace fit -o` writes them."""


def written_out(document: Document, *, base: Path) -> tuple[dict[str, Any], Document]:
    """The document with each `key: FILE` replaced by what FILE says under the same key.

    So `fleet: fitted.yaml` is the `fleet` that `forerun trace fit` described, and a run's own scenario holds it whole.
    A file that does not hold the key as a section is left to the field's own type, as is every `file: ...`: recordings
    come as JSON too. Raises ScenarioError for a description that is malformed.
    """

    def out(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: out(item, str(name)) for name, item in value.items()}
        if isinstance(value, list):
            return [out(item, "") for item in value]
        if not isinstance(value, str) or not value.endswith(DESCRIPTIONS) or key == "file":
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
            if path.suffix == ".json":
                return value
            raise
        found = described.get(key) if isinstance(described, dict) else None
        return found if isinstance(found, dict) else value

    data = out(document.data, "")
    return data, Document(document.name, data, document.lines)


def scenario_type(domain: Any, document: Document) -> type[Spec]:
    """The scenario type of the room that a file names.

    Raises ScenarioError if no room is named, or one that does not exist.
    """
    # The rooms stand above this module; which ones exist is looked up when a file names one.
    import importlib

    domains = importlib.import_module("forerun.domains")
    names = domains.rooms()
    if not isinstance(domain, str) or domain not in names:
        what = "the key 'domain' is missing" if domain is None else f"no room named {domain!r}"
        raise ScenarioError.at(
            document.where(("domain",) if domain else ()), f"{what}; {known_names(str(domain), names)}"
        )
    found: type[Spec] = domains.room(domain).Scenario
    return found


def apply_overrides(
    document: Document, overrides: Iterable[str], *, domain: str
) -> tuple[dict[str, Any], Document]:
    """A copy of the document's data with `a.b[0].c=value` texts applied, and the document that holds it.

    A leading name of the room is dropped (`cluster.mode=compat` is `mode=compat` in the cluster room).
    """
    data: dict[str, Any] = msgspec.to_builtins(document.data)
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
                # A recipe given by name alone becomes a section, so that a parameter can be set.
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


def resolve(scenario: Any, *, base: Path, document: Document) -> Any:
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

    resolved = map_inputs(scenario, pin)
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
        found: Path = importlib.import_module("forerun.data").dataset(text.removeprefix(DATASET_PREFIX))
        return found.resolve()
    return resolved_path(text, base)
