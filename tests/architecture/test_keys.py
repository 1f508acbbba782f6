"""Every key of a scenario does something: code beyond the check of its value reads it."""

from __future__ import annotations

import ast
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks.structure import Module

import forerun
from forerun.core.domain import domain_names, get_domain
from forerun.core.scenario.spec import field_types, registry_of

from .conftest import walk

SOURCE = Path(forerun.__file__).parent
#: what only describes: for readers, or for the reader of files
DESCRIPTIVE = {"domain", "spec_version", "title"}
#: what only widens the values that are taken
PERMITS = {"allow_small_beta"}


def records(declared: Any, seen: dict[type, None]) -> None:
    """Every record that a scenario of this type can hold, policies and processes included."""
    registry = registry_of(declared)
    if registry is not None:
        for name in registry.names():
            records(registry.get(name), seen)
    elif typing.get_origin(declared) is not None:
        for inner in typing.get_args(declared):
            records(inner, seen)
    elif isinstance(declared, type) and issubclass(declared, msgspec.Struct) and declared not in seen:
        seen[declared] = None
        for inner in field_types(declared).values():
            records(inner, seen)


def names_read(module: Module) -> set[str]:
    """Names that a module takes from objects; what only judges values (`problems`, `_problems_of_...`) does not count."""
    judges = {
        id(below)
        for node in (walk(module.tree) if "problems" in module.text else ())
        if isinstance(node, ast.FunctionDef) and "problems" in node.name
        for below in walk(node)
    }
    return {
        # strings: getattr, and tables of fields
        node.attr if isinstance(node, ast.Attribute) else str(node.value)
        for node in walk(module.tree)
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        if id(node) not in judges
    }


@pytest.fixture(scope="module")
def read(known: dict[str, Module]) -> dict[Path, set[str]]:
    """The names that each file reads."""
    return {module.path: names_read(module) for module in known.values()}


def read_below(read: dict[Path, set[str]], *folders: Path) -> set[str]:
    return {name for path in read if any(map(path.is_relative_to, folders)) for name in read[path]}


@pytest.mark.parametrize("name", domain_names())
def test_every_key_of_a_scenario_is_read(name: str, read: dict[Path, set[str]]) -> None:
    own = SOURCE / name
    # Engines of published systems read the options of their own modes, and live runs how their jobs run.
    here = read_below(read, own, SOURCE / "replication", SOURCE / "live")
    shared = read_below(read, *(SOURCE / "core" / part for part in ("trace", "profile", "scenario")))
    seen: dict[type, None] = {}
    records(get_domain(name).scenario_type, seen)
    unread = []
    for record in seen:
        ours = record.__module__.startswith(f"forerun.{name}.")
        for field in record.__struct_fields__:
            if field not in (here if ours else here | shared) | DESCRIPTIVE | PERMITS:
                unread.append(f"{record.__name__}.{field}")
    assert len(seen) > 5 and unread == []
