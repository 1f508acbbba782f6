"""What comes with every domain: its policies, the schema of its scenarios, a demonstration, and a scenario to begin with."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.domain import domain_names, get_domain, simulate
from forerun.errors import Problem, StoreError, UnknownName
from forerun.result.run import Result
from forerun.scenario.schema import scenario_schema
from forerun.scenarios import load
from forerun.study.executors.apart import apart

#: the scenario among a starter's files
SCENARIO = "scenario.yaml"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy: its domain, its kind (what plugins announce it under), its name in files, what it does in one sentence."""

    domain: str
    kind: str
    name: str
    about: str


def policies(name: str = "") -> tuple[PolicyEntry, ...]:
    """The policies of a domain, or of all. Raises UnknownName for a domain that does not exist.

    >>> sorted({entry.kind for entry in forerun.policies("energy")})
    ['limit_policy', 'policy']
    """
    found = []
    for each in (name,) if name else domain_names():
        for kind, registry in get_domain(each).policy_kinds.items():
            for policy in registry.names():
                about = (registry.get(policy).__doc__ or "").strip().split("\n\n")[0]
                found.append(PolicyEntry(each, kind, policy, " ".join(about.split())))
    return tuple(found)


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a domain's scenario files. Raises UnknownName for a domain that does not exist.

    >>> forerun.schema("energy")["properties"]["eta"]["default"]
    0.5
    """
    return scenario_schema(get_domain(name).scenario_type)


@dataclass(frozen=True, slots=True)
class Demo:
    """A domain's demonstration: the question, and the scenario that answers it."""

    domain: str
    question: str
    scenario: Path


def demos() -> tuple[Demo, ...]:
    """The demonstrations there are: every domain with a `demo.yaml`, whose first comment asks the question."""
    found = []
    for name in domain_names():
        path = get_domain(name).folder / "demo.yaml"
        if path.is_file():
            found.append(Demo(name, _question(path), path))
    return tuple(found)


def demo(name: str) -> Demo:
    """The demonstration of a domain: a question, and the scenario file that answers it. Raises UnknownName.

    >>> forerun.demo("energy").question
    'A small image model, retrained every night, on self-made measurements: who finds the cheapest batch size and limit?'
    """
    known = {entry.domain: entry for entry in demos()}
    if name not in known:
        raise UnknownName.among("demonstration", name, known)
    return known[name]


def run_demos(
    names: Sequence[str] = (), *, workers: int = 1, progress: Callable[[Demo], None] = lambda entry: None
) -> tuple[tuple[Demo, Result], ...]:
    """The demonstrations of some domains (all, if none is named) with their results, in the order asked for.

    `progress` is called with each as it ends. Raises UnknownName, and what a simulation raises.
    """
    chosen = [demo(name) for name in names] or list(demos())
    found: dict[Demo, Result] = {}
    for piece in apart(_simulated, chosen, workers):
        if isinstance(piece.result, Exception):
            raise piece.result
        found[piece.item] = piece.result
        progress(piece.item)
    return tuple((entry, found[entry]) for entry in chosen)


def _simulated(entry: Demo) -> Result:
    result: Result = simulate(load(entry.scenario)).check()
    return result


def _question(path: Path) -> str:
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").strip())
    text = " ".join(words)
    end = text.find("?")
    return text[: end + 1] if end >= 0 else text


def starters() -> dict[str, Path]:
    """The folder of each domain that has a small scenario to begin with: `scenario.yaml` and the files it names."""
    folders = {name: get_domain(name).folder / "starter" for name in domain_names()}
    return {name: folder for name, folder in folders.items() if (folder / SCENARIO).is_file()}


def write_starter(domain: str, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write the domain's small scenario and its inputs into a folder, which is made if absent; the scenario comes first.

    Nothing that exists is replaced. Raises UnknownName for a domain without one, StoreError if a file of one of the names
    is there already or cannot be written.
    """
    known = starters()
    if domain not in known:
        raise UnknownName.among("domain with a scenario to begin with", domain, known)
    target = Path(folder)
    sources = sorted(known[domain].iterdir(), key=lambda path: (path.name != SCENARIO, path.name))
    present = [target / source.name for source in sources if os.path.lexists(target / source.name)]
    if present:
        raise StoreError(*(Problem(str(path), "exists already; name another folder") for path in present))
    written = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for source in sources:
            path = target / source.name
            with path.open("xb") as file:  # a file that has appeared since is not replaced either
                written.append(path)
                file.write(source.read_bytes())
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StoreError.at(error.filename or target, f"cannot be written: {error.strerror}") from error
        raise
    return tuple(written)
