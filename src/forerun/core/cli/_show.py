"""Print results to a terminal: ranked tables, a *why* line, the next command."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.console import Console

    from forerun.core.result.ledger import Ledger
    from forerun.core.result.plan import Plan
    from forerun.core.result.run import Result
    from forerun.core.result.stats import Interval
    from forerun.core.result.tables import Table


def print_json(data: Any) -> None:
    """Print data as JSON: what is not finite is null, characters that stdout's encoding may lack are JSON escapes.

    Parameters
    ----------
    data : dictionaries, lists and scalars, numpy's included.
    """
    from forerun.core.result.numbers import plain

    beyond_ascii = (getattr(sys.stdout, "encoding", "") or "").lower() not in ("utf-8", "utf8")
    click.echo(json.dumps(plain(data), indent=2, ensure_ascii=beyond_ascii, allow_nan=False))


def terminal(*, stderr: bool = False, width: int | None = None) -> Console:
    """A terminal for tables and progress; NO_COLOR turns all styles off, bold included.

    Parameters
    ----------
    stderr : print there instead of on stdout (default: off).
    width : characters a line (default: as wide as the terminal).
    """
    from rich.console import Console

    plain_text = bool(os.environ.get("NO_COLOR"))
    return Console(stderr=stderr, width=width, highlight=False, color_system=None if plain_text else "auto")


def screen_width() -> int | None:
    """Characters per line: COLUMNS if set, else the terminal's width; None if output goes to a file or a pipe."""
    if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return None


def prose(text: str) -> None:
    """Print text, wrapped between words on a terminal.

    A command after `next: ` is continued with a backslash, so that it can be copied. In a file or a pipe, lines stay whole.

    Parameters
    ----------
    text : one or more lines.
    """
    width = screen_width()
    for line in text.split("\n"):
        before, mark, command = line.partition("next: forerun ")
        if width is None or len(line) <= width:
            click.echo(line)
        elif mark:
            click.echo(_command(f"{before}next: forerun", command, width))
        else:
            click.echo("\n".join(_wrapped(line, width)))


def _wrapped(line: str, width: int) -> list[str]:
    """A line in pieces of at most `width` characters, broken between words; a number stays with its percent sign."""
    together = re.sub(r"(?<=\d) (?=%)", "\u00a0", line)  # 95 % is one word
    lines = textwrap.wrap(together, width, break_long_words=False, break_on_hyphens=False)
    return [part.replace("\u00a0", " ") for part in lines] or [""]


def _command(start: str, command: str, width: int) -> str:
    """A command wrapped over several lines, broken between its arguments.

    Parameters
    ----------
    start : the words before the arguments.
    command : the arguments; what is in quotes is not broken.
    width : characters a line.
    """
    lines = _wrapped(start, width)
    for word in re.findall(r"(?:'[^']*'|\"[^\"]*\"|\S)+", command):
        if len(lines[-1]) + 1 + len(word) + 2 > width:
            lines[-1] += " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str,
    about: str,
    chosen: int | None = None,
) -> None:
    """Print a table with its title and a line that explains its columns: text left, numbers right, the chosen row marked.

    Words of up to 60 characters are never broken. A table too wide for the screen continues below, first columns
    repeated. In a file or a pipe, lines stay as long as they need.

    Parameters
    ----------
    columns : the headings.
    rows : values in the order of the headings; names in them are printed as text, never as markup.
    title : the line above.
    about : the line below, which explains the columns.
    chosen : number of the row to mark, from 0 (default: none).
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    from forerun.core.result.numbers import format_number

    gathered = [list(row) for row in rows]
    # Names come from users' files: print them as text, never as markup.
    shown = [[Text(format_number(cell)) for cell in row] for row in gathered]
    numeric = [bool(gathered) and all(_right(row[i]) for row in gathered) for i in range(len(columns))]
    width = screen_width() or 120
    whole = screen_width() is None  # in a file or a pipe lines stay as long as they need
    texts = [[name, *(row[i].plain for row in shown)] for i, name in enumerate(columns)]
    console = terminal(width=width)
    for line in [title] if whole else _wrapped(title, width):
        console.print(Text(line), style="bold underline", soft_wrap=True)
    for number, block in enumerate([list(range(len(columns)))] if whole else _blocks(texts, width)):
        if number:
            click.echo()
        widths = _widths([texts[i] for i in block], width)
        table = RichTable(box=None, pad_edge=False, header_style="bold")
        for i, wide in zip(block, widths):
            right = "right" if numeric[i] else "left"
            table.add_column(columns[i], justify=right, overflow="fold", width=wide)  # type: ignore[arg-type]
        for at, cells in enumerate(shown):
            table.add_row(*(cells[i] for i in block), style="bold green" if at == chosen else None)
        # Never narrower than its longest word, which is then wider than the screen.
        console.width = max(width, sum(widths) + _GAP * len(widths))
        console.print(table)
    for line in [about] if whole else _wrapped(about, width):
        console.print(Text(line), style="dim", soft_wrap=True)


def print_rows(rows: Sequence[Mapping[str, Any]], *, title: str, about: str) -> None:
    """Print records as a table whose columns are their keys, with units in the headings.

    Parameters
    ----------
    rows : the records; a key that one lacks shows a dash there.
    title, about : the lines above and below the table.
    """
    from forerun.core.units import split_name, titled

    columns = list(dict.fromkeys(name for row in rows for name in row))
    heads = [titled(*split_name(name)) for name in columns]
    print_table(heads, [[row.get(name) for name in columns] for row in rows], title=title, about=about)


def print_listing(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str, about: str) -> None:
    """Print records of the same keys, as JSON or as a table whose columns are the keys.

    Parameters
    ----------
    rows : at least one record.
    as_json : print JSON.
    title : the line above the table.
    about : the line below it.
    """
    if as_json:
        print_json(rows)
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows], title=title, about=about)


def columns_about(columns: Iterable[tuple[str, str, str]], *, of: str = "") -> str:
    """One line that explains columns: `cost (USD): mean cost; ...`.

    Parameters
    ----------
    columns : heading, unit and meaning of each; one that its heading explains is left out.
    of : what stands first (default: nothing).
    """
    said = []
    for heading, unit, meaning in columns:
        name = heading if not unit or f"({unit})" in heading else f"{heading} ({unit})"
        if meaning and meaning != heading:
            said.append(f"{name}: {meaning}")
        elif name != heading:
            said.append(name)
    return "; ".join([*([of] if of else []), *said])


_GAP = 2
"""Spaces between two columns."""


_LONGEST_WORD = 60
"""Words up to this many characters are never broken."""


def _least(column: Sequence[str]) -> int:
    """Characters of a column's longest word."""
    return min(max((len(word) for text in column for word in text.split()), default=0), _LONGEST_WORD)


def _blocks(columns: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """The columns to print side by side: all, or as many as fit, with the columns that name a row repeated.

    Parameters
    ----------
    columns : the texts of each, its heading first.
    width : characters a line.

    Returns
    -------
    Numbers of the columns of each block.
    """

    def fits(block: Sequence[int], needs: Callable[[Sequence[str]], int]) -> bool:
        return sum(needs(columns[i]) for i in block) + _GAP * (len(block) - 1) <= width

    def comfortable(column: Sequence[str]) -> int:
        """The width with cells of a few words on one line, for a table that continues below anyway."""
        return max(_least(column), min(max(map(len, column[1:]), default=0), width // 3))

    everything = list(range(len(columns)))
    if fits(everything, _least):
        return [everything]
    rows = list(zip(*(column[1:] for column in columns)))
    keys = next((n for n in range(1, len(columns)) if len({row[:n] for row in rows}) == len(rows)), 1)
    while keys > 1 and sum(comfortable(columns[i]) + _GAP for i in range(keys)) > width // 2:
        keys -= 1
    blocks = [everything[:keys]]
    for i in everything[keys:]:
        if len(blocks[-1]) > keys and not fits([*blocks[-1], i], comfortable):
            blocks.append(everything[:keys])
        blocks[-1].append(i)
    return blocks


def _widths(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """Characters for each column: as many as its longest line needs, or fewer if the table is too wide.

    Headings are broken before cells, wide columns before narrow ones; words only beyond 60 characters.

    Parameters
    ----------
    columns : the texts of each, its heading first.
    width : characters a line.
    """
    widths = [max(map(len, column)) for column in columns]
    cells = [max(map(len, column[1:]), default=0) for column in columns]
    least = [_least(column) for column in columns]
    over = sum(widths) + _GAP * (len(widths) - 1) - width
    longer = [width // 3 if words == _LONGEST_WORD else words for words in least]
    for lower in ([max(words, body) for words, body in zip(least, cells)], least, longer):
        while over > 0 and (able := [i for i in range(len(widths)) if widths[i] > lower[i]]):
            widths[max(able, key=lambda i: widths[i])] -= 1
            over -= 1
    return widths


def _right(cell: Any) -> bool:
    """Whether a cell reads as a number."""
    return cell is None or isinstance(cell, (int, float)) or (isinstance(cell, str) and cell.endswith("%"))


def print_result(result: Result, *, scenario: str, quiet: bool = False) -> None:
    """Print the main figures with their intervals, the ledgers, the why line and the next commands.

    Parameters
    ----------
    result : what was simulated.
    scenario : the scenario and its changes as words of a command, for the next commands.
    quiet : print no next commands (default: off).
    """
    from forerun.core.result.numbers import summary_rows

    for title, columns, rows, about in result.leading():
        if rows:
            print_table(columns, rows, title=title, about=about)
            click.echo()
        else:
            prose(f"{title.lower()}: {about}\n")
    names = result.headline or tuple(result.summary)
    some = [name for name in names if name in result.intervals]
    shown = [result.intervals[name] for name in some]
    head = _interval_head(shown)
    print_figures(
        "Summary",
        summary_rows(result.summary, result.intervals, names),
        about=f"{head}: {_methods(shown)}" if some else "",
        interval=head,
    )
    for ledger in result.ledgers:
        click.echo()
        print_ledger(ledger)
    click.echo()
    if result.why:
        prose(f"why: {result.why}")
    for note in result.notes:
        prose(f"note: {note}")
    if not quiet:
        for step in result.next_steps:
            prose(f"next: {step.format(scenario=_unless_set(scenario, step))}")


def print_plan(planned: Plan) -> None:
    """Print the tables, the figures and the why line of a plan, and what to run.

    Parameters
    ----------
    planned : as a planner returns it.
    """
    from forerun.core.result.numbers import capital, summary_rows
    from forerun.core.result.plan import ShownPlan
    from forerun.core.units import readable_unit, split_name

    # Tables of many rows belong into files, not onto a screen.
    for table in _worth_showing(planned.tables.values()):
        columns = list(table.schema.columns)
        if len(columns) > 8:
            # A candidate's name only repeats its other columns: it is what files refer to it by.
            columns = [column for column in columns if column.name != "name"]
        heads = [f"{name} ({unit})" if unit else name for name, unit in (split_name(c.name) for c in columns)]
        print_table(
            heads,
            zip(*(table[column.name].tolist() for column in columns)),
            title=capital(": ".join(filter(None, (table.schema.name, table.schema.meaning)))),
            about=columns_about(
                (head, "" if split_name(column.name)[1] else readable_unit(column.unit), column.meaning)
                for head, column in zip(heads, columns)
            ),
        )
        click.echo()
    rows = summary_rows(planned.summary, {}, tuple(planned.summary))
    print_figures("The plan", (row for row in rows if row[1] not in ("", None)))
    prose(f"\nwhy: {planned.why}")
    for note in planned.notes:
        prose(f"note: {note}")
    if isinstance(planned, ShownPlan) and planned.code:
        click.echo(f"\nnext, {planned.code_is_for}:\n\n{planned.code}")


def _worth_showing(tables: Iterable[Table]) -> list[Table]:
    """The tables to print: those with few rows that do not repeat an earlier table.

    Few are 1 to 40. A table repeats an earlier one if that has the same columns and all of its rows.

    Parameters
    ----------
    tables : of a plan, in order.
    """
    shown: list[tuple[Table, set[str]]] = []
    for table in tables:
        rows = {repr(row) for row in zip(*(table[column.name].tolist() for column in table.schema.columns))}
        repeats = any(
            before.schema.columns == table.schema.columns and rows <= known for before, known in shown
        )
        if 0 < len(table) <= 40 and not repeats:
            shown.append((table, rows))
    return [table for table, _ in shown]


def print_figures(
    title: str, rows: Iterable[tuple[str, Any, str, str]], *, about: str = "", interval: str = "interval"
) -> None:
    """Print single figures, with their intervals where there are some.

    Parameters
    ----------
    title : the line above.
    rows : name, value, unit and interval of each; an empty interval for none.
    about : the line below (default: how to read the table).
    interval : heading of the intervals (default: without their confidence).
    """
    gathered = list(rows)
    columns = ("figure", "value", "unit", interval)
    if not any(row[3] for row in gathered):
        columns, gathered = columns[:3], [row[:3] for row in gathered]  # type: ignore[assignment, misc]
    print_table(columns, gathered, title=title, about=about or "one figure a row, in the unit beside it")


def print_ledger(ledger: Ledger) -> None:
    """Print where the whole of a ledger went: each part with its amount and share.

    Parameters
    ----------
    ledger : one of a result's.
    """
    from forerun.core.result.numbers import format_number
    from forerun.core.units import readable_unit

    shares, unit = ledger.shares(), readable_unit(ledger.unit)
    print_table(
        ("part", unit, "share"),
        [(part, amount, f"{shares[part]:.1%}") for part, amount in ledger.parts.items()],
        title=f"Where it went: {ledger.name}",
        about=columns_about(
            (
                (part, "", meaning)
                for part, meaning in (ledger.meanings or {}).items()
                if part in ledger.parts
            ),
            of=f"the parts sum to {format_number(ledger.whole)} {unit}",
        ),
    )


def _interval_head(intervals: Sequence[Interval]) -> str:
    """The heading of some intervals: with their confidence, where it is the same for all."""
    known = {interval.confidence for interval in intervals}
    return f"{100 * known.pop():g} % interval" if len(known) == 1 else "interval"


def _methods(intervals: Sequence[Interval]) -> str:
    """How some intervals were computed, each method once; with the confidence where it differs."""
    several = len({interval.confidence for interval in intervals}) > 1
    said = []
    for one in intervals:
        level, method = f"{100 * one.confidence:g} %: ", one.method or "not said"
        said.append(f"{level}{method}" if several else method)
    return ", ".join(dict.fromkeys(said))


def _unless_set(asked: str, step: str) -> str:
    """What was asked, without the settings that a next step sets anew.

    Parameters
    ----------
    asked : the scenario and its changes as words of a command.
    step : the next command, with `--set` options of its own.
    """
    anew = re.findall(r"--set (\S+?)=", step)
    words = iter(shlex.split(asked))
    others = []
    for word in words:
        change = next(words, "") if word == "--set" else ""
        if not change:
            others.append(word)
        elif change.partition("=")[0] not in anew:
            others += [word, change]
    return shlex.join(others)


def as_asked(scenario: Path, overrides: Sequence[str] = (), seed: int | None = None) -> str:
    """A scenario with what was changed in it, as words of a command that asks the same again.

    Parameters
    ----------
    scenario : its file.
    overrides : changes as `path=value` (default: none).
    seed : instead of the scenario's own (default: its own).
    """
    changes = [word for change in overrides for word in ("--set", change)]
    return shlex.join([str(scenario), *changes, *(() if seed is None else ("--seed", str(seed)))])


#: consoles that show a status line or a bar now, the innermost last
_live: list[Console] = []

#: seconds without a word after which something that is not at a terminal says how far it is
SILENT_S: Final = 15.0


def say(message: str) -> None:
    """Print a line of progress on stderr, above the status line or bar that stands there.

    Parameters
    ----------
    message : printed as it is, without markup.
    """
    if _live:
        _live[-1].print(message, markup=False, highlight=False, soft_wrap=True)
    else:
        click.echo(message, err=True)


@contextmanager
def alive(console: Console) -> Iterator[None]:
    """While a status line or a bar stands on the console, `say` writes above it.

    Parameters
    ----------
    console : where the status line or bar is.
    """
    _live.append(console)
    try:
        yield
    finally:
        _live.remove(console)


@functools.cache
def say_compiling() -> None:
    """Say, once in a process, why nothing seems to happen."""
    say("compiling kernels, for the first run of this kind only: seconds to minutes")


@contextmanager
def working(message: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A status line on stderr while something takes its time; silent when quiet.

    What it yields replaces what is said after the message. Where stderr is no terminal, that is a line now and then.

    Parameters
    ----------
    message : what is being done.
    quiet : show nothing.
    """
    if quiet:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield now_and_then(lambda state: click.echo(f"{message}: {state}", err=True))
        return
    from rich.markup import escape

    console = terminal(stderr=True)
    with alive(console), console.status(message) as status:
        yield lambda state: status.update(f"{message}: {escape(state)}")


def now_and_then(
    tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """A function that passes a message on only if `SILENT_S` have passed since the last one that it passed on.

    The time before the first message counts from this call.

    Parameters
    ----------
    tell : gets the messages that are passed on.
    clock : time [s] (default: the monotonic clock).
    """
    last_s = clock()

    def throttled(message: str) -> None:
        nonlocal last_s
        if clock() - last_s >= SILENT_S:
            tell(message)
            last_s = clock()

    return throttled
