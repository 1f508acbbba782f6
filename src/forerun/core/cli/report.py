"""`forerun report`: write stored results as one page, and their figures as images."""

from __future__ import annotations

from pathlib import Path

import click

from forerun.core.cli import _options, _show


@click.command(name="report")
@click.argument("runs", type=_options.PATH, metavar="RUN|STORE|JSON...", nargs=-1, required=True)
@_options.out_option("PAGE", "Page to write [report.html].")
@_options.path_option("--png", metavar="DIR", help="Write every figure as PNG.")
@_options.path_option("--svg", metavar="DIR", help="Write every figure as SVG.")
@_options.quiet_option
def command(
    runs: tuple[Path, ...], out: Path | None, png: Path | None, svg: Path | None, quiet: bool
) -> None:
    """Write one self-contained HTML page of stored results: run directories, study stores, and the JSON files of comparisons
    (compare -o), plans (plan -o), bounds (bound -o) and measurements (measure -o), in any mix.

    With --png or --svg alone, only the images are written.
    """
    from forerun.core.report import write_page, write_pictures
    from forerun.core.report.stored import open_stored

    with _show.working("reading", quiet=quiet):
        items = [open_stored(run) for run in runs]
    if out is not None or (png is None and svg is None):
        with _show.working("writing the page", quiet=quiet):
            click.echo(write_page(items, out or Path("report.html")))
    with _show.working("drawing the figures", quiet=quiet):
        written = write_pictures(items, png, "png") if png is not None else []
        written += write_pictures(items, svg, "svg") if svg is not None else []
    for path in written:
        click.echo(path)
