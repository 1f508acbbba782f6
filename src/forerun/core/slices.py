"""What the packages beside core bring to it: core finds them here by looking into folders, and imports none of them.

A package of forerun that answers a question has an object `SLICE`. A package that is taken away is gone, with its commands,
readers and documents; other distributions announce what they have by entry points.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_NAME: Final = __name__.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Slice:
    """What a package owns, each part as the dotted name of a module or package that is imported on use.

    Parameters
    ----------
    domain : module whose `DOMAIN` is the domain with the package's name (default: the package has none).
    verbs : package whose modules are commands, each a click command `command` (default: none).
    measures : by the name of a subcommand of `forerun measure`, the module whose `command` it is.
    figures : by domain, the module that draws more of its runs (`figures`) and measurements (`measured_figures`).
    members : by the group of a registry, the packages or modules with classes of its kind.
    wings : by the name of a folder in the package that has a starter and a demonstration of its own, the options with which
        that is planned.
    documents : by format, and what it is of where that has figures of its own, the module whose `DOCUMENT` reads such files.
    reference_logs : by domain, the module whose observer `Logs` writes a run as a published simulator would.
    """

    domain: str = ""
    verbs: str = ""
    measures: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)
    reference_logs: Mapping[str, str] = field(default_factory=dict)


@functools.cache
def slices() -> Mapping[str, Slice]:
    """The slices, by the name of their package. Only `__init__` of each package is imported."""
    modules = {name: importlib.import_module(f"{_NAME}.{name}") for name in sorted(_inside(_ROOT))}
    return {name: module.SLICE for name, module in modules.items() if hasattr(module, "SLICE")}


def folder(name: str) -> Path:
    """Where the files of a slice lie."""
    return _ROOT / name


@functools.cache
def domains() -> Mapping[str, str]:
    """The module of each built-in domain, by the domain's name."""
    return {name: one.domain for name, one in slices().items() if one.domain}


@functools.cache
def members(group: str) -> tuple[str, ...]:
    """The packages and modules of slices with members of a registry."""
    return tuple(name for one in slices().values() for name in one.members.get(group, ()))


@functools.cache
def documents() -> Mapping[str, str]:
    """The module of each announced format of files, by format."""
    return {key: module for one in slices().values() for key, module in one.documents.items()}


@functools.cache
def reference_logs() -> Mapping[str, str]:
    """The module of a published simulator's logs, by domain."""
    return {key: module for one in slices().values() for key, module in one.reference_logs.items()}


@functools.cache
def wings() -> Mapping[Path, Mapping[str, Any]]:
    """The folders of wings, and the options with which their demonstrations are planned."""
    return {
        folder(key) / name: options for key, one in slices().items() for name, options in one.wings.items()
    }


@functools.cache
def measures() -> Mapping[str, str]:
    """The module of each subcommand of `forerun measure`, by name."""
    return dict(sorted((key, module) for one in slices().values() for key, module in one.measures.items()))


def figures(domain: str) -> tuple[str, ...]:
    """The modules of slices that draw more of what a domain has."""
    return tuple(one.figures[domain] for one in slices().values() if domain in one.figures)


@functools.cache
def verbs() -> Mapping[str, str]:
    """The module of each command, by the command's name; an underscore in the module's is a hyphen."""
    packages = (f"{_NAME}.core.cli", *(one.verbs for one in slices().values() if one.verbs))
    folders = {package: _ROOT.joinpath(*package.split(".")[1:]) for package in packages}
    found = {
        name.replace("_", "-"): f"{package}.{name}"
        for package in packages
        for name in _inside(folders[package])
    }
    return {name: module for name, module in sorted(found.items()) if name != "main"}


def _inside(path: Path) -> tuple[str, ...]:
    """The public modules and packages in a folder, which are not imported."""
    return tuple(info.name for info in pkgutil.iter_modules([str(path)]) if info.name[0] != "_")
