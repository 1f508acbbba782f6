"""Figures as PNG and SVG files, drawn without a browser."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

from forerun.core.atomic_write import write_bytes
from forerun.core.errors import StoreError, UsageError
from forerun.core.report.drawing import draw
from forerun.core.report.renderer import rendered
from forerun.core.result.figures import Figure

Format = Literal["png", "svg"]

WIDTH_PX: Final = 640
#: the command that draws, without the current folder among its modules
RENDERER: Final = (sys.executable, "-P", "-m", "forerun.core.report.renderer")


def svg(figure: Figure) -> str:
    """The figure as an SVG text, with title and caption.

    Parameters
    ----------
    figure : data and meaning.
    """
    return rendered(draw(figure, width=WIDTH_PX).vega_lite(), "svg").decode()


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG, with title and caption, at two pixels for one of the drawing's.

    Parameters
    ----------
    figure : data and meaning.
    """
    return rendered(draw(figure, width=WIDTH_PX).vega_lite(), "png")


def write_images(figures: Iterable[Figure], folder: Path, kind: Format) -> list[Path]:
    """Write each figure as `<id>.png` or `<id>.svg` into a folder; returns the paths.

    Figures of the same id get a number; those without data are left out.

    Parameters
    ----------
    figures : to write.
    folder : made if it is absent.
    kind : "png" or "svg".

    Raises
    ------
    StoreError : a file cannot be written.
    """
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        drawn = [figure for figure in figures if len(figure.data[figure.x.column])]
        for name, content in zip(stems(drawn), _pictures(drawn, kind, folder)):
            written.append(write_bytes(folder / f"{name}.{kind}", content))
    except OSError as error:
        raise StoreError.at(folder, f"pictures cannot be written: {error.strerror}") from error
    return written


def _pictures(figures: Iterable[Figure], kind: Format, folder: Path) -> list[bytes]:
    """The pictures of some figures, drawn by another process. Raises StoreError that names the folder if it dies."""
    specifications = [draw(figure, width=WIDTH_PX).vega_lite() for figure in figures]
    child = subprocess.run(
        [*RENDERER, kind], input=json.dumps(specifications).encode(), capture_output=True, check=False
    )
    if child.returncode:
        signalled = child.returncode < 0
        ended = (
            f"by {signal.Signals(-child.returncode).name}" if signalled else f"with code {child.returncode}"
        )
        raise StoreError.at(
            folder, f"pictures cannot be drawn: the renderer ended {ended}, perhaps for lack of memory"
        )
    pictures, rest = [], child.stdout
    while rest:
        end = 8 + int.from_bytes(rest[:8], "big")
        pictures.append(rest[8:end])
        rest = rest[end:]
    return pictures


def file_stem(text: str) -> str:
    """The text as a file name that needs no care anywhere: lower-case letters, digits and dashes, at most 80."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80] or "figure"


def stems(figures: Iterable[Figure]) -> list[str]:
    """A file name for each figure, without suffix, all different.

    Of figures with the same id, those after the first get a number.
    """
    names: list[str] = []
    for figure in figures:
        stem = file_stem(figure.id)
        taken = sum(1 for name in names if name == stem or re.fullmatch(re.escape(stem) + r"-\d+", name))
        names.append(f"{stem}-{taken + 1}" if stem in names else stem)
    return names


def chart(figure: Figure) -> Any:
    """The figure as an Altair chart, to change or combine in a notebook."""
    try:
        import altair
    except ImportError as error:
        raise UsageError.at("chart", "Altair is not installed: pip install 'forerun[altair]'") from error

    drawing = draw(figure, width=WIDTH_PX)
    # The rows come last: checking each against the schema would take a hundred times as long as drawing it.
    drawn = altair.Chart.from_dict({**drawing.vega_lite(), "data": {"values": []}})
    drawn.data = altair.InlineData(values=drawing.rows)
    return drawn
