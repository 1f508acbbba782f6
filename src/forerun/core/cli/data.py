"""`forerun data`: list public data and fetch it."""

from __future__ import annotations

from pathlib import Path

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output


@click.group(name="data")
def command() -> None:
    """List public data with licences and citations, and fetch it into the cache."""


@command.command(name="list")
@click.argument("name", required=False, metavar="[NAME]")
@_options.json_option
def list_(name: str | None, as_json: bool) -> None:
    """List all sources, or the files of NAME (a source, a folder or a file)."""
    from forerun.core.data.fetch import status
    from forerun.core.data.registry import known_sources, select

    if name is None:
        sources = [source.describe() for source in known_sources()]
        if as_json:
            _show.print_json(sources)
            return
        rows = [
            (s["domain"], s["name"], s["files"], s["size_bytes"], s["licence"], s["title"]) for s in sources
        ]
        _show.print_table(
            ("domain", "name", "files", "bytes", "licence", "what"),
            rows,
            title="Public data",
            about="domain: where its files are used; files: how many; bytes: their total size; licence: of the source",
        )
        _show.prose("next: forerun data list NAME, forerun data fetch NAME")
        return
    files = [(source.describe_file(file), status(source, file)) for source, file in select(name)]
    if as_json:
        _show.print_json([described | {"status": where} for described, where in files])
        return
    lines = [(f["name"], f["size_bytes"], where, f["url"] or f["how"]) for f, where in files]
    _show.print_table(
        ("name", "bytes", "status", "from"),
        lines,
        title=f"Files of {name}",
        about="status: where the file is now; from: the address it is fetched from, or how to get it",
    )
    for source in dict.fromkeys(source for source, _ in select(name)):
        _show.prose(f"{source.name}: {source.licence}; cite {source.citation}")
        if source.note:
            _show.prose(f"{source.name}: {source.note}")


@command.command(name="fetch")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_options.output_options
def fetch_(names: tuple[str, ...], output: Output) -> None:
    """Fetch and verify the files of each NAME (a source, a folder or a file) and print their paths."""
    from forerun.core.data.fetch import fetch

    paths: list[Path] = []
    for name in names:
        with output.working(f"fetching {name}"):
            paths.extend(fetch(name))
    if output.as_json:
        _show.print_json([str(path) for path in paths])
    else:
        for path in paths:
            click.echo(str(path))
