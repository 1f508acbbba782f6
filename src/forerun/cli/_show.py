"""How results look in a terminal: ranked tables, a *why* line, the next command."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.console import Console

    from forerun.result.run import Result


def print_json(data: Any) -> None:
    """Plain data as JSON on stdout; letters that its encoding may not have are written as JSON's own escapes."""
    beyond_ascii = (getattr(sys.stdout, "encoding", "") or "").lower() not in ("utf-8", "utf8")
    click.echo(json.dumps(data, indent=2, ensure_ascii=beyond_ascii, allow_nan=False))


def terminal(*, stderr: bool = False, width: int | None = None) -> Console:
    """A terminal to write tables and progress to; NO_COLOR turns all styles off, bold among them."""
    from rich.console import Console

    plain_text = bool(os.environ.get("NO_COLOR"))
    return Console(stderr=stderr, width=width, highlight=False, color_system=None if plain_text else "auto")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "", chosen: int | None = None
) -> None:
    """A table on stdout: text left, numbers right, the chosen row marked."""
    from rich.table import Table as RichTable
    from rich.text import Text

    from forerun.result.run import format_number

    gathered = [list(row) for row in rows]
    # Names come from users' files: they are shown as text, never read as markup.
    shown = [[Text(format_number(cell)) for cell in row] for row in gathered]
    numeric = [bool(gathered) and all(_right(row[i]) for row in gathered) for i in range(len(columns))]
    screen = terminal(width=None if sys.stdout.isatty() else 120)
    widths = _widths(
        [[name, *(row[i].plain for row in shown)] for i, name in enumerate(columns)], screen.width
    )
    table = RichTable(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for name, right, width in zip(columns, numeric, widths):
        table.add_column(name, justify="right" if right else "left", overflow="fold", width=width)
    for number, cells in enumerate(shown):
        table.add_row(*cells, style="bold green" if number == chosen else None)
    screen.width = max(screen.width, sum(widths) + _GAP * len(widths))
    screen.print(table)


_GAP = 2
"""Blanks between two columns."""

_LONGEST_WORD = 60
"""Characters of a word that are kept on one line."""


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Characters for each column, a heading and its cells: all they ask for; in less room lines broken between words.

    Headings are broken before cells, wide columns before narrow ones. A number broken over two lines is misread, so a
    table whose words alone need more room than there is becomes wider.
    """
    widths = [max(map(len, column)) for column in columns]
    cells = [max(map(len, column[1:]), default=0) for column in columns]
    least = [
        min(max((len(word) for text in column for word in text.split()), default=0), _LONGEST_WORD)
        for column in columns
    ]
    over = sum(widths) + _GAP * (len(widths) - 1) - room
    for floor in ([max(words, body) for words, body in zip(least, cells)], least):
        while over > 0 and (able := [i for i in range(len(widths)) if widths[i] > floor[i]]):
            widths[max(able, key=lambda i: widths[i])] -= 1
            over -= 1
    return widths


def _right(cell: Any) -> bool:
    """Whether a cell reads as a number."""
    return cell is None or isinstance(cell, (int, float)) or (isinstance(cell, str) and cell.endswith("%"))


def print_result(result: Result, *, scenario: str, quiet: bool = False) -> None:
    """The headline figures with their intervals, the ledgers, the why line and what to run next."""
    from forerun.result.numbers import summary_rows
    from forerun.units import readable_unit

    names = result.headline or tuple(result.summary)
    print_table(
        ("figure", "value", "unit", "95 % interval"), summary_rows(result.summary, result.intervals, names)
    )
    for ledger in result.ledgers:
        click.echo()
        shares = ledger.shares()
        rows = [(part, amount, f"{shares[part]:.1%}") for part, amount in ledger.parts.items()]
        print_table((ledger.name, readable_unit(ledger.unit), "share"), rows)
    click.echo()
    if result.why:
        click.echo(f"why: {result.why}")
    for note in result.notes:
        click.echo(f"note: {note}")
    if not quiet:
        for step in result.next_steps:
            click.echo(f"next: {step.format(scenario=_unless_set(scenario, step))}")


def _unless_set(asked: str, step: str) -> str:
    """What was asked, without the settings that a next step sets anew."""
    anew = re.findall(r"--set (\S+?)=", step)
    words = iter(shlex.split(asked))
    kept = []
    for word in words:
        change = next(words, "") if word == "--set" else ""
        if not change:
            kept.append(word)
        elif change.partition("=")[0] not in anew:
            kept += [word, change]
    return shlex.join(kept)


def as_asked(scenario: Path, overrides: Sequence[str] = (), seed: int | None = None) -> str:
    """A scenario with what was changed in it, as words of a command that asks the same again."""
    changes = [word for change in overrides for word in ("--set", change)]
    return shlex.join([str(scenario), *changes, *(() if seed is None else ("--seed", str(seed)))])


#: consoles that show a status line or a bar now, the innermost last
_live: list[Console] = []

#: seconds without a word after which something that is not at a terminal says how far it is
SILENT_S: Final = 15.0


def say(message: str) -> None:
    """A line of progress on stderr, above the status line or bar that stands there."""
    if _live:
        _live[-1].print(message, markup=False, highlight=False, soft_wrap=True)
    else:
        click.echo(message, err=True)


@contextmanager
def alive(console: Console) -> Iterator[None]:
    """While a status line or a bar stands on the console, `say` writes above it."""
    _live.append(console)
    try:
        yield
    finally:
        _live.remove(console)


@contextmanager
def working(message: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A status line on stderr while something takes its time; silent when quiet.

    What it yields replaces what is said after the message. Where stderr is no terminal, that is a line now and then.
    """
    if quiet:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield now_and_then(lambda told: click.echo(f"{message}: {told}", err=True))
        return
    from rich.markup import escape

    console = terminal(stderr=True)
    with alive(console), console.status(message) as status:
        yield lambda told: status.update(f"{message}: {escape(told)}")


def now_and_then(
    tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """A teller that lets a message through only when `SILENT_S` have gone by since the last one, or since now."""
    last_s = clock()

    def told(message: str) -> None:
        nonlocal last_s
        if clock() - last_s >= SILENT_S:
            tell(message)
            last_s = clock()

    return told


def plain(data: Any) -> Any:
    """Plain JSON data; what is not finite becomes null."""
    if isinstance(data, Mapping):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [plain(value) for value in data]
    if isinstance(data, float) and (data != data or data in (float("inf"), float("-inf"))):
        return None
    return data
