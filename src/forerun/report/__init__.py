"""Results as pages and pictures.

    from forerun.report import write_page, write_pictures
    write_page([result], "report.html")          # one self-contained page; several runs come side by side
    write_pictures([result], "figures", "svg")    # every figure as a file, drawn without a browser

A page loads nothing, works from a file, follows the reader's light or dark setting and prints. Rooms give figures as
data (`forerun.result.figures`); everything about how they look is here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from forerun.report.contents import Run
    from forerun.result.figures import Figure
    from forerun.result.reproduction import Reproduced, Reproduction

__all__ = ["chart", "html_page", "write_page", "write_pictures", "write_reproduction"]


def html_page(runs: Sequence[Run]) -> str:
    """The page of one run, or of several side by side, as text."""
    from forerun.report.compose import runs_page

    return runs_page(runs)


def write_page(runs: Sequence[Run], path: str | os.PathLike[str]) -> Path:
    """Write the page of one run, or of several side by side.

    Raises StoreError if the path holds something that is not a page of ours, or cannot be written.
    """
    from forerun.report.compose import write_text

    return write_text(html_page(runs), path)


def write_reproduction(entry: Reproduction, found: Reproduced, path: str | os.PathLike[str]) -> Path:
    """Write the page of a reproduction: published numbers beside ours, and its figures."""
    from forerun.report.compose import reproduction_page, write_text

    return write_text(reproduction_page(entry, found), path)


def write_pictures(
    runs: Sequence[Run], folder: str | os.PathLike[str], kind: Literal["png", "svg"]
) -> list[Path]:
    """Write every figure and ledger of the runs as `<id>.png` or `<id>.svg`; of several runs, in a folder each."""
    from forerun.report.contents import figures_of, labels, ledger_figures
    from forerun.report.images import file_stem, write_images

    written: list[Path] = []
    for run, name in zip(runs, labels(runs)):
        place = Path(folder) if len(runs) == 1 else Path(folder) / file_stem(name)
        written += write_images((*figures_of(run), *ledger_figures(run.ledgers)), place, kind)
    return written


def chart(figure: Figure) -> Any:
    """A figure as an Altair chart, to change or combine in a notebook."""
    from forerun.report.images import chart as altair_chart

    return altair_chart(figure)
