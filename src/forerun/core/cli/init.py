"""`forerun init`: write a small scenario to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output


@click.command(name="init")
@click.argument("domain", metavar="DOMAIN")
@click.argument("folder", required=False, type=_options.PATH, metavar="[FOLDER]")
@_options.output_options
def command(domain: str, folder: Path | None, output: Output) -> None:
    """Write a small commented scenario of DOMAIN and its inputs to FOLDER (default: the domain's name).

    Nothing that exists is replaced. The scenario runs as it is; replace its inputs by your own.
    """
    from forerun.core.catalog import write_starter

    written = write_starter(domain, folder if folder is not None else Path(domain))
    if output.as_json:
        _show.print_json({"scenario": str(written[0]), "files": [str(path) for path in written]})
        return
    for path in written:
        click.echo(path)
    if not output.quiet:
        click.echo(f"next: forerun simulate {shlex.quote(str(written[0]))}")
