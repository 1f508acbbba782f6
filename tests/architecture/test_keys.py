"""Every key of a scenario does something: code beyond the check of its value reads it."""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import forerun
from forerun.core.domain import domain_names, get_domain
from forerun.core.scenario.spec import field_types, registry_of

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


def names_read(tree: ast.AST) -> Iterator[str]:
    """Names that a module takes from objects; what only judges values (`problems`, `_problems_of_...`) does not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and "problems" in node.name:
            continue
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # getattr, and tables of fields
        yield from names_read(node)


def read_below(*folders: Path) -> set[str]:
    return {
        name
        for folder in folders
        for path in folder.rglob("*.py")
        for name in names_read(ast.parse(path.read_text()))
    }


@pytest.mark.parametrize("name", domain_names())
def test_every_key_of_a_scenario_is_read(name: str) -> None:
    own = SOURCE / name
    # Engines of published systems read the options of their own modes, and live runs how their jobs run.
    here = read_below(own, SOURCE / "replication", SOURCE / "live")
    shared = read_below(*(SOURCE / "core" / part for part in ("trace", "profile", "scenario")))
    seen: dict[type, None] = {}
    records(get_domain(name).scenario_type, seen)
    unread = []
    for record in seen:
        ours = record.__module__.startswith(f"forerun.{name}.")
        for field in record.__struct_fields__:
            if field not in (here if ours else here | shared) | DESCRIPTIVE | PERMITS:
                unread.append(f"{record.__name__}.{field}")
    assert len(seen) > 5 and unread == []
