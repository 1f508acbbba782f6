"""Tables that measuring commands print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[tuple[str, str]],
    text: Callable[[str, Any], str],
) -> None:
    """Print the rows of a measurement's record, aligned to the right, and an empty line; nothing where there are none.

    Parameters
    ----------
    rows : of the record, all with the same names.
    columns : (heading, name in the record); names that the rows lack are left out.
    text : how a value is written, by its name.
    """
    if not rows:
        return
    shown = [(heading, name) for heading, name in columns if name in rows[0]]
    lines = [
        [heading for heading, _ in shown],
        *([text(name, row[name]) for _, name in shown] for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        click.echo("  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip())
    click.echo()
