"""What each domain includes: its policies, the schema of its scenarios, a demonstration and a starter scenario."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.core.domain import domain_names, get_domain, planner_of, simulate
from forerun.core.errors import Problem, StoreError, UnknownName
from forerun.core.result.plan import Plan
from forerun.core.result.run import Result
from forerun.core.scenario.arguments import name_of, names_of
from forerun.core.scenario.schema import scenario_schema
from forerun.core.scenarios import load
from forerun.core.slices import wings
from forerun.core.study.executors.apart import apart

#: the scenario among a starter's files
SCENARIO = "scenario.yaml"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy.

    domain, kind, name: as in scenarios and in the entry point group `forerun.DOMAIN.KIND`. about: one sentence.
    """

    domain: str
    kind: str
    name: str
    about: str


def policies(name: str = "") -> tuple[PolicyEntry, ...]:
    """List the policies of one domain or of all.

    name: of the domain (default: empty, all domains). Raises UnknownName if there is no such domain.

    >>> sorted({entry.kind for entry in forerun.policies("energy")})
    ['limit_policy', 'policy']
    """
    entries = []
    name = name_of(name)
    for each in (name,) if name else domain_names():
        for kind, registry in get_domain(each).policy_kinds.items():
            for policy in registry.names():
                about = (registry.get(policy).__doc__ or "").strip().split("\n\n")[0]
                entries.append(PolicyEntry(each, kind, policy, " ".join(about.split())))
    return tuple(entries)


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a domain's scenario files, as plain data.

    name: of the domain. Raises UnknownName if there is no such domain.

    >>> forerun.schema("energy")["properties"]["eta"]["default"]
    0.5
    """
    return scenario_schema(get_domain(name).scenario_type)


@dataclass(frozen=True, slots=True)
class Demo:
    """The demonstration of a domain, or of a wing of one: a question, and the scenario file that answers it.

    options: with which it is planned (default None: it is simulated).
    """

    domain: str
    question: str
    scenario: Path
    options: Mapping[str, Any] | None = None


def demos() -> tuple[Demo, ...]:
    """All demonstrations: one per domain with a `demo.yaml`, whose first comment is the question."""
    entries = []
    for name in domain_names():
        path = get_domain(name).folder / "demo.yaml"
        if path.is_file():
            entries.append(Demo(name, _question(path), path))
    return tuple(entries)


def _planned() -> tuple[Demo, ...]:
    """The demonstrations of wings."""
    found = ((folder, folder / "demo.yaml", options) for folder, options in wings().items())
    return tuple(Demo(folder.name, _question(path), path, options) for folder, path, options in found)


def demo(name: str) -> Demo:
    """The demonstration of a domain, or of a wing of one: a question, and the scenario file that answers it.

    name: of the domain or wing. Raises UnknownName if it has none.

    >>> forerun.demo("energy").question
    'A small image model, retrained every night, on self-made measurements: who finds the cheapest batch size and limit?'
    """
    known = {entry.domain: entry for entry in (*demos(), *_planned())}
    name = name_of(name)
    if name not in known:
        raise UnknownName.among("demonstration", name, known)
    return known[name]


def run_demos(
    names: Sequence[str] = (), *, workers: int = 1, progress: Callable[[Demo], None] = lambda entry: None
) -> tuple[tuple[Demo, Result | Plan], ...]:
    """Simulate demonstrations, or plan those of wings, and return each with its result, in the given order.

    names: of domains and wings (default: all domains). workers: number of processes (default: 1). progress: called with each
    demonstration when it is done. Raises UnknownName, and what a simulation raises.
    """
    chosen = [demo(name) for name in names_of(names, "run_demos", "a list of domains")] or list(demos())
    results: dict[Path, Result | Plan] = {}
    for piece in apart(_answered, chosen, workers):
        if isinstance(piece.result, Exception):
            raise piece.result
        results[piece.item.scenario] = piece.result
        progress(piece.item)
    return tuple((entry, results[entry.scenario]) for entry in chosen)


def _answered(entry: Demo) -> Result | Plan:
    scenario = load(entry.scenario)
    if entry.options is not None:
        return planner_of(scenario.domain).plan(scenario, **entry.options).check()
    result: Result = simulate(scenario).check()
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
    """The starter folder of each domain and wing that has one: `scenario.yaml` and its input files."""
    folders = {name: get_domain(name).folder / "starter" for name in domain_names()}
    folders |= {folder.name: folder / "starter" for folder in wings()}
    return {name: folder for name, folder in folders.items() if (folder / SCENARIO).is_file()}


def write_starter(domain: str, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write a domain's starter scenario and its inputs to a folder; returns the paths, the scenario's first.

    domain: its name. folder: created if absent. Raises UnknownName if the domain has no starter, StoreError if one of the
    files exists (nothing is replaced) or cannot be written.
    """
    known = starters()
    if domain not in known:
        raise UnknownName.among("domain with a starter scenario", domain, known)
    target = Path(folder)
    sources = sorted(known[domain].iterdir(), key=lambda path: (path.name != SCENARIO, path.name))
    present = [target / source.name for source in sources if os.path.lexists(target / source.name)]
    if present:
        raise StoreError(*(Problem(str(path), "exists already; name another folder") for path in present))
    written: list[Path] = []
    absent = [path for path in (target, *target.parents) if not path.exists()]
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
        for path in absent:
            with contextlib.suppress(OSError):
                path.rmdir()
        if isinstance(error, OSError):
            raise StoreError.at(error.filename or target, f"cannot be written: {error.strerror}") from error
        raise
    return tuple(written)
