"""`forerun reproduce`: published tables and figures, regenerated beside the published numbers."""

from __future__ import annotations

import time
from pathlib import Path

import click

from forerun.cli import _options, _show
from forerun.errors import CheckFailed, Problem, UsageError


@click.command(name="reproduce")
@click.argument("identifier", metavar="ID", required=False)
@click.option("--list", "show_list", is_flag=True, help="List what can be reproduced.")
@_options.json_option
@_options.quiet_option
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="PAGE", help="Also write a page with the figures."
)
def command(identifier: str | None, show_list: bool, as_json: bool, quiet: bool, out: Path | None) -> None:
    """Regenerate the published result ID and set it beside the published numbers.

    Exit code 4 if a number is outside its stated tolerance.
    """
    from forerun.domains.reproductions import reproduction, reproductions

    if show_list:
        entries = reproductions()
        if as_json:
            _show.print_json(
                [{"id": entry.id, "title": entry.title, "source": entry.source} for entry in entries]
            )
        else:
            _show.print_table(
                ("id", "title", "source"), [(entry.id, entry.title, entry.source) for entry in entries]
            )
        return
    if identifier is None:
        raise UsageError(
            Problem(
                "forerun reproduce", "name what to reproduce; `forerun reproduce --list` shows what there is"
            )
        )
    entry = reproduction(identifier)
    start_s = time.perf_counter()
    progress = (
        (lambda message: click.echo(message, err=True)) if not (quiet or as_json) else (lambda message: None)
    )
    found = entry.run(progress)
    wall_s = time.perf_counter() - start_s
    if out is not None:
        from forerun.report import write_reproduction

        write_reproduction(entry, found, out)
    if as_json:
        _show.print_json(
            {"id": entry.id, "rows": [row.data() for row in found.rows], "wall_s": round(wall_s, 3)}
        )
    else:
        columns = ("name", "published", "compat", "corrected", "tolerance", "ok", "note")
        _show.print_table(columns, [tuple(row.data().values()) for row in found.rows], title=entry.title)
        for note in found.notes:
            click.echo(f"note: {note}")
        click.echo(f"{entry.source}; {wall_s:.1f} s")
    if found.failed:
        raise CheckFailed(
            *(Problem(entry.id, f"{row.name} is not within its tolerance") for row in found.failed)
        )
