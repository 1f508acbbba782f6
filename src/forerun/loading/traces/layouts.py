"""Layouts of folders of measured runs, which other packages bring."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import ClassVar

from forerun.core.registry import Registry
from forerun.core.scenario.spec import Spec
from forerun.core.trace.domain_traces import TraceReport

#: the layout of a folder that names no layout: the published experiment's
DEFAULT = "cndlsys"


class RunLayout(Spec, frozen=True, kw_only=True):
    """How measured runs lie in a folder; the fields are the settings of `forerun trace stats loading FOLDER`."""

    name: ClassVar[str] = ""

    def stats(self, folder: Path) -> TraceReport:
        """A summary of the runs in a folder.

        Parameters
        ----------
        folder : named on the command line.

        Raises TraceError for runs that cannot be read.
        """
        raise NotImplementedError


@cache
def run_layouts() -> Registry[RunLayout]:
    """The layouts, by name."""
    return Registry(
        "layout of measured runs",
        "forerun.loading.traces",
        base=RunLayout,
        group="forerun.loading.run_layout",
    )
