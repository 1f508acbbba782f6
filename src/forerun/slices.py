"""What packages bring to those below them, which find it here and import none of them.

The lists below are the one place that names the packages. What is in them is imported on use.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: packages whose modules are commands: each has a click command `command`
VERBS: Final = ("forerun.cli", "forerun.replication.verbs")
#: packages whose packages measure something: each has a module `command` with a click command `command`
MEASURES: Final = ("forerun.measure",)
#: by format, and what it is of where that has figures of its own, the module whose `DOCUMENT` reads such files
DOCUMENTS: Final = {
    "forerun.replay/1": "forerun.domains.cluster.replay.document",
    "forerun.measurement/1 wait-time": "forerun.domains.cluster.wait_time.document",
}
#: by domain, the module whose observer `Logs` writes a run as a published simulator would
REFERENCE_LOGS: Final = {"cluster": "forerun.replication.elasticflow.reference_logs"}

_ROOT: Final = Path(__file__).parent


@functools.cache
def verbs() -> Mapping[str, str]:
    """The module of each command, by the command's name; an underscore in the module's is a hyphen."""
    modules = {name.replace("_", "-"): f"{package}.{name}" for package in VERBS for name in _inside(package)}
    return {name: module for name, module in sorted(modules.items()) if name != "main"}


@functools.cache
def measures() -> Mapping[str, str]:
    """The module of each subcommand of `forerun measure`, by name."""
    parts = sorted((name, f"{package}.{name}") for package in MEASURES for name in _inside(package))
    return {name: f"{part}.command" for name, part in parts if "command" in _inside(part)}


def _inside(package: str) -> tuple[str, ...]:
    """The public modules of one of our packages, which is not imported."""
    folder = _ROOT.joinpath(*package.split(".")[1:])
    return tuple(info.name for info in pkgutil.iter_modules([str(folder)]) if info.name[0] != "_")
