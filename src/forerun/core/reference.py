"""What `forerun docs` prints of a domain: its keys, policies, tables and figures, read from the code that uses them."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from forerun.core.domain import Domain
from forerun.core.result.tables import TableSchema
from forerun.core.scenario.spec import Input, field_types, fields, registry_of
from forerun.core.units import unit_of

_PLAIN = {bool: "true or false", int: "whole number", float: "number", str: "text", type(None): "null"}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section of a scenario.

    value: what it may be, in words. unit: of a plain number (default: none). default: empty if the key is required.
    """

    name: str
    value: str
    unit: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a scenario, or a named choice such as a policy: what its docstring says, and its keys."""

    name: str
    about: str
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: its kind, and its paper and what it guarantees, where its class declares them."""

    kind: str
    section: Section
    paper: str
    guarantees: str


@dataclass(frozen=True, slots=True)
class Reference:
    """All of it. figures: the title of each, by the name of its file. tables: in order of name."""

    domain: str
    about: str
    sections: tuple[Section, ...]
    policies: tuple[Policy, ...]
    tables: tuple[TableSchema, ...]
    figures: dict[str, str]


def reference(domain: Domain[Any, Any, Any]) -> Reference:
    """What `forerun docs` prints of a domain."""
    found: dict[type[msgspec.Struct], None] = {}
    _collect(domain.scenario_type, found)
    policies = {
        registry.get(name): kind for kind, registry in domain.policy_kinds.items() for name in registry
    }
    tables = {schema.name: schema for schema in _schemas(domain)}
    return Reference(
        domain.name,
        inspect.cleandoc(domain.about),
        tuple(_section(spec) for spec in found if spec not in policies and spec is not Input),
        tuple(
            Policy(kind, _section(policy), getattr(policy, "paper", ""), getattr(policy, "guarantees", ""))
            for policy, kind in policies.items()
        ),
        tuple(tables[name] for name in sorted(tables)),
        dict(sorted(_figures(domain))),
    )


def _collect(declared: Any, found: dict[type[msgspec.Struct], None]) -> None:
    """Add the record types that a declared type consists of, each once, in the order of their fields."""
    registry = registry_of(declared)
    if registry is not None:
        for name in registry:
            _collect(registry.get(name), found)
    elif isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        if declared not in found:
            found[declared] = None
            for part in field_types(declared).values():
                _collect(part, found)
    else:
        for part in get_args(declared):
            _collect(part, found)


def _section(spec: type[msgspec.Struct]) -> Section:
    """A record type, with what its docstring says of each field beside the field."""
    declared = field_types(spec)
    about, meanings = _meanings(inspect.cleandoc(spec.__doc__ or ""), tuple(declared))
    keys = tuple(
        Key(
            field.name,
            _in_words(declared[field.name]),
            unit_of(field.name) or "",
            "" if field.required else _default(field),
            meanings.get(field.name, ""),
        )
        for field in fields(spec)
    )
    return Section(_name(spec), about, keys)


def _name(spec: type[msgspec.Struct]) -> str:
    return str(spec.__struct_config__.tag or spec.__name__)


def _meanings(text: str, names: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """A docstring without `name, name: meaning.` of fields, and these meanings."""
    if not names:
        return " ".join(text.split()), {}
    name = "|".join(map(re.escape, names))
    head = re.compile(rf"(?:^|(?<=[.)\]] ))((?:{name})(?:(?:,\s+| and )(?:{name}))*): ", re.MULTILINE)
    about: list[str] = []
    meanings: dict[str, str] = {}
    for paragraph in text.split("\n\n"):
        first, *rest = head.split(paragraph)
        about.append(first)
        for said, meaning in zip(rest[::2], rest[1::2], strict=True):
            meanings |= dict.fromkeys(re.split(r",\s+| and ", said), " ".join(meaning.split()))
    return " ".join(" ".join(about).split()), meanings


def _in_words(declared: Any) -> str:
    """What a field of a declared type may be."""
    registry = registry_of(declared)
    if registry is not None:
        return " | ".join(registry)
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Annotated:
        limits = [
            words for extra in arguments[1:] if isinstance(extra, msgspec.Meta) for words in _limits(extra)
        ]
        return " ".join([_in_words(arguments[0]), *limits])
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_in_words, arguments)))
    if origin in (list, tuple):
        parts = [part for part in arguments if part is not Ellipsis]
        return (
            f"list of {_in_words(parts[0])}" if len(parts) == 1 else f"[{', '.join(map(_in_words, parts))}]"
        )
    if origin is dict:
        return f"{_in_words(arguments[1])} by {_in_words(arguments[0])}"
    if declared is Input:
        return "path"
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        return _name(declared)
    return _PLAIN.get(declared, "anything")


def _limits(extra: msgspec.Meta) -> Iterator[str]:
    for sign, limit in ((">=", extra.ge), (">", extra.gt), ("<=", extra.le), ("<", extra.lt)):
        if limit is not None:
            yield f"{sign} {limit}"


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct):
        return str(value.__struct_config__.tag or "as below")
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()


def _schemas(domain: Domain[Any, Any, Any]) -> Iterator[TableSchema]:
    """The schemas of the tables of a domain's runs and plans."""
    for name in _modules(domain):
        if {"summary", "plan", "reserved"} & set(name.split(".")):
            for value in vars(importlib.import_module(name)).values():
                if isinstance(value, TableSchema):
                    yield value


def _figures(domain: Domain[Any, Any, Any]) -> Iterator[tuple[str, str]]:
    """The figures that the modules of a domain draw: the name of each and its title, as far as it is always the same."""
    for name in _modules(domain):
        if "figures" in name.split("."):
            tree = ast.parse(inspect.getsource(importlib.import_module(name)))
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Figure", "Figure.of"}:
                    texts = [*node.args, *(word.value for word in node.keywords)][1:3]
                    if (identifier := _text(texts[0])) != "...":
                        yield identifier, _text(texts[1])


def _text(node: ast.expr) -> str:
    """A text of the source, with ... for what it is made of at run time."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in parts)


def _modules(domain: Domain[Any, Any, Any]) -> Iterator[str]:
    """The modules of the package that a domain's module lies in."""
    package = sys.modules[sys.modules[type(domain).__module__].__package__ or ""]
    yield package.__name__
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield info.name
