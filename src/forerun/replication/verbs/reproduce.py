"""`forerun reproduce`: regenerate published tables and figures and compare the numbers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output
from forerun.core.errors import CheckFailed, Problem, UsageError

if TYPE_CHECKING:
    from forerun.replication.reproduction import Attempt


@click.command(name="reproduce")
@click.argument("identifier", metavar="[ID]", required=False)
@click.option("--list", "show_list", is_flag=True, help="List what can be reproduced.")
@click.option("--all", "everything", is_flag=True, help="Reproduce all that take two minutes at most.")
@click.option("--quick", is_flag=True, help="With --all: fewer seeds and traces, in about two minutes.")
@click.option(
    "-j",
    "--jobs",
    "workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --all: processes (default: cores).",
)
@_options.output_options
@_options.out_option("PAGE", "Also write a page with the figures.")
def command(
    identifier: str | None,
    show_list: bool,
    everything: bool,
    quick: bool,
    workers: int | None,
    output: Output,
    out: Path | None,
) -> None:
    """Regenerate the published result ID (or all) and compare it with the published numbers.

    Exit code 4 if a number is outside its stated tolerance.
    """
    if show_list:
        _list(output)
    elif everything:
        if identifier is not None:
            raise UsageError(Problem("forerun reproduce", f"give --all or {identifier}, not both"))
        _all(quick=quick, workers=workers or os.cpu_count() or 1, output=output, out=out)
    elif identifier is None:
        known = "`forerun reproduce --list` shows what there is, --all runs everything"
        raise UsageError(Problem("forerun reproduce", f"name what to reproduce; {known}"))
    else:
        _one(identifier, quick=quick, output=output, out=out)


def _list(output: Output) -> None:
    """Print what can be reproduced."""
    from forerun.replication.reproductions import reproductions

    _show.print_listing(
        [
            {"id": entry.id, "title": entry.title, "minutes": entry.minutes, "source": entry.source}
            for entry in reproductions()
        ],
        as_json=output.as_json,
        title="Published results that can be reproduced",
        about="id: what `forerun reproduce ID` takes; minutes: about how long it takes on two cores; source: the paper, "
        "or the artefact",
    )


def _one(identifier: str, *, quick: bool, output: Output, out: Path | None) -> None:
    """Reproduce one published result and print its numbers.

    Parameters
    ----------
    identifier : of the result.
    quick : use its quick form, if it has one.
    output : how to print.
    out : a page to write as well; None for none.

    Raises
    ------
    CheckFailed : a number is outside its tolerance. The numbers are printed before.
    """
    from forerun.replication.reproductions import reproduce, reproduction

    entry = reproduction(identifier)
    start_s = time.perf_counter()

    def progress(message: str) -> None:
        if not output.silent:
            click.echo(message, err=True)

    reproduced = reproduce(identifier, quick=quick, progress=progress)
    wall_s = time.perf_counter() - start_s
    if out is not None:
        from forerun.core.report.compose import write_html
        from forerun.replication.page import reproduction_page

        write_html(reproduction_page(entry, reproduced), out)
    if output.as_json:
        _show.print_json(
            {"id": entry.id, "rows": [row.data() for row in reproduced.rows], "wall_s": round(wall_s, 3)}
        )
    else:
        about = (
            "published: as the source prints it; compat: ours with the published simulator's known bugs; "
            "corrected: ours without them; tolerance: how far compat may be from published, ok: whether it is within"
        )
        rows = [row.data() for row in reproduced.rows]
        if any(row.measured is not None for row in reproduced.rows):
            about += "; measured: real processes on this machine, with a tolerance to corrected"
        else:
            rows = [{name: value for name, value in row.items() if name != "measured"} for row in rows]
        _show.print_table(
            tuple(rows[0]), [tuple(row.values()) for row in rows], title=entry.title, about=about
        )
        for note in reproduced.notes:
            _show.prose(f"note: {note}")
        _show.prose(f"{entry.source}; {wall_s:.1f} s")
    if reproduced.failed:
        raise CheckFailed(
            *(Problem(entry.id, f"{row.name} is not within its tolerance") for row in reproduced.failed)
        )


def _all(*, quick: bool, workers: int, output: Output, out: Path | None) -> None:
    """Reproduce everything that does not take long, each in a process of its own.

    Parameters
    ----------
    quick : use quick forms, and leave out slow reproductions without one.
    workers : number of processes.
    output : how to print.
    out : a page to write as well; None for none.

    Raises
    ------
    CheckFailed : a number is outside its tolerance, or a reproduction ended with an error. Missing data is no failure.
    """
    from forerun.replication.reproductions import reproduce_all, reproductions

    count, done = len(reproductions()), 0

    def watch(attempt: Attempt) -> None:
        nonlocal done
        done += 1
        if not output.silent:
            click.echo(
                f"[{done}/{count}] {attempt.entry.id}: {_outcome(attempt)}, {attempt.wall_s:.1f} s", err=True
            )

    start_s = time.perf_counter()
    attempts = reproduce_all(quick=quick, workers=workers, progress=watch)
    wall_s = time.perf_counter() - start_s
    if out is not None:
        from forerun.core.report.compose import write_html
        from forerun.replication.page import all_page

        write_html(all_page(attempts, quick=quick), out)
    if output.as_json:
        _show.print_json([_data(attempt) for attempt in attempts])
    else:
        rows = [(each.entry.id, each.entry.title, _outcome(each), round(each.wall_s, 1)) for each in attempts]
        _show.print_table(
            ("id", "title", "outcome", "seconds"),
            rows,
            title="Published results, reproduced",
            about="outcome: rows within their tolerance; seconds: how long it took",
        )
        for each in attempts:
            for line in each.absent:
                _show.prose(f"absent: {each.entry.id}: {line}")
        left_out = [f"{each.entry.id} ({each.entry.minutes:g} min)" for each in attempts if each.left_out]
        if left_out:
            _show.prose(f"left out, as they take long; run them one by one: {', '.join(left_out)}")
        _show.prose(f"{count} published results, {wall_s:.0f} s{f'; the page: {out}' if out else ''}")
    problems = [
        Problem(each.entry.id, each.error or f"{row} is not within its tolerance")
        for each in attempts
        if each.failed
        for row in ([failed.name for failed in each.reproduced.failed] if each.reproduced else [""])
    ]
    if problems:
        raise CheckFailed(*problems)


def _outcome(attempt: Attempt) -> str:
    """What came of an attempt, in words."""
    if attempt.reproduced is not None:
        judged = [row for row in attempt.reproduced.rows if row.ok is not None]
        if not judged:
            return f"{len(attempt.reproduced.rows)} numbers, none judged"
        return f"{sum(1 for row in judged if row.ok)} of {len(judged)} judged numbers are within tolerance"
    return attempt.left_out or (
        f"{len(attempt.absent)} data files are missing" if attempt.absent else attempt.error
    )


def _data(attempt: Attempt) -> dict[str, object]:
    """An attempt as plain data, for `--json`."""
    row: dict[str, object] = {
        "id": attempt.entry.id,
        "rows": [row.data() for row in attempt.reproduced.rows] if attempt.reproduced else [],
        "wall_s": round(attempt.wall_s, 3),
    }
    optional = {"absent": list(attempt.absent), "left_out": attempt.left_out, "error": attempt.error}
    return row | {name: value for name, value in optional.items() if value}
