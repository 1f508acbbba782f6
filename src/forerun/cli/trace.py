"""`forerun trace`: look at traces, check, generate and import them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forerun.cli import _options, _show
from forerun.units import split_name

if TYPE_CHECKING:
    from forerun.trace.repair import Repair

file_argument = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
format_option = click.option(
    "--format",
    "format_",
    default="",
    metavar="NAME",
    help="The file's format; told from its content if absent.",
)
option_option = click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the format; may be repeated.",
)
strict_option = click.option("--strict", is_flag=True, help="Refuse a file that needs repairs.")


@click.group(name="trace")
def command() -> None:
    """Look at traces of arrivals, check them, generate new ones, and import public formats."""


@command.command(name="stats")
@file_argument
@format_option
@option_option
@click.option("--fit", is_flag=True, help="Also fit arrival processes and say how well they stand in.")
@_options.json_option
@_options.quiet_option
def stats(file: Path, format_: str, options: tuple[str, ...], fit: bool, as_json: bool, quiet: bool) -> None:
    """Say what the arrivals in FILE look like: rate, burstiness, ties."""
    from forerun.trace.fit import fit_all
    from forerun.trace.reader import options_from, read_trace
    from forerun.trace.requests import arrivals_ms
    from forerun.trace.stats import trace_stats

    with _show.working(f"reading {file.name}", quiet=quiet or as_json):
        trace = read_trace(file, format_, options=options_from(options))
        found = trace_stats(trace)
        fits = fit_all(arrivals_ms(trace)) if fit else ()
    data: dict[str, Any] = {"format": trace.provenance.format, "kind": trace.kind, **found.data()}
    if as_json:
        _show.print_json(data | ({"fits": [one.data() for one in fits]} if fit else {}))
        return
    rows = [split_name(name) for name in data if name != "windows"]
    values = [value for name, value in data.items() if name != "windows"]
    _show.print_table(
        ("figure", "value", "unit"), [(n, v, u) for (n, u), v in zip(rows, values, strict=True)]
    )
    click.echo()
    windows = [(w.window_s, w.windows, w.peak_to_mean, w.dispersion) for w in found.windows]
    _show.print_table(("window s", "windows", "peak to mean", "index of dispersion"), windows)
    for one in fits:
        click.echo()
        features = [(f.name, f.recorded, f.low, f.high, "yes" if f.ok else "NO") for f in one.features]
        title = f"{_text(one.data()['process'])}: {one.agreement:.0%} of features agree ({one.note})"
        _show.print_table(("feature", "recorded", "low", "high", "in the band"), features, title=title)


@command.command(name="check")
@file_argument
@format_option
@option_option
@strict_option
@_options.json_option
@_options.quiet_option
@click.pass_context
def check(
    ctx: click.Context,
    file: Path,
    format_: str,
    options: tuple[str, ...],
    strict: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Read FILE to its end and list what is wrong with it, one line a problem; exit code 2 if anything is."""
    from forerun.trace.convert import check_trace
    from forerun.trace.reader import options_from

    with _show.working(f"reading {file.name}", quiet=quiet or as_json):
        found = check_trace(file, format_, options=options_from(options), strict=strict)
    if as_json:
        _show.print_json(found.data())
    else:
        for problem in found.problems:
            click.echo(str(problem), err=True)
        if not quiet:
            _say_repairs(found.repairs)
        if found.ok:
            click.echo(f"{file}: {found.rows} rows of {found.format}, no problems")
    return 0 if found.ok else 2


@command.command(name="generate")
@click.argument("process", metavar="PROCESS")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A parameter; may be repeated.")
@click.option("-n", "--count", "count", type=click.IntRange(min=1), help="How many arrivals.")
@click.option("--horizon", "horizon", metavar="TIME", help="All arrivals before this time, such as 10min.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draws.")
@click.option(
    "-o",
    "--out",
    "out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="A new .parquet or .csv file.",
)
@_options.json_option
@_options.quiet_option
def generate(
    process: str,
    settings: tuple[str, ...],
    count: int | None,
    horizon: str | None,
    seed: int,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Draw a trace from PROCESS, a name (see `forerun trace processes`) or a file that describes one."""
    from forerun.trace.files import save_trace
    from forerun.trace.generate import generate as generated
    from forerun.trace.generate import process_from, seconds
    from forerun.trace.stats import trace_stats

    with _show.working("drawing arrivals", quiet=quiet or as_json):
        horizon_s = seconds(horizon) if horizon is not None else None
        trace = generated(process_from(process, settings), seed=seed, n=count, horizon_s=horizon_s)
        save_trace(trace, out)
    if as_json:
        _show.print_json({"path": str(out), "digest": trace.digest, **trace_stats(trace).data()})
    else:
        click.echo(f"{out}: {len(trace)} arrivals")
        if not quiet:
            click.echo(f"next: forerun trace stats {out}")


@command.command(name="import")
@file_argument
@format_option
@option_option
@strict_option
@click.option(
    "-o",
    "--out",
    "out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="A new .parquet or .csv file; the repair log goes to FILE.repairs.json.",
)
@_options.json_option
@_options.quiet_option
def import_(
    file: Path,
    format_: str,
    options: tuple[str, ...],
    strict: bool,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Convert FILE from a public format to forerun's own trace file, saying what was repaired."""
    from forerun.trace.convert import import_trace
    from forerun.trace.reader import options_from

    with _show.working(f"reading {file.name}", quiet=quiet or as_json):
        made = import_trace(file, out, format_, options=options_from(options), strict=strict)
    if not quiet:
        if made.guessed:
            click.echo(f"{file}: looks like {made.trace.provenance.format}", err=True)
        _say_repairs(made.repairs)
    if as_json:
        _show.print_json(made.data())
    else:
        click.echo(f"{out}: {len(made.trace)} {made.trace.kind} from {made.trace.provenance.format}")


@command.command(name="formats")
@_options.json_option
def formats(as_json: bool) -> None:
    """List the formats that can be read, with their options."""
    from forerun.trace.reader import described_formats

    rows = described_formats()
    if as_json:
        _show.print_json(rows)
    else:
        _show.print_table(("format", "makes", "options", "about"), [list(row.values()) for row in rows])


@command.command(name="processes")
@_options.json_option
def processes(as_json: bool) -> None:
    """List the arrival processes that can be generated, with their parameters."""
    from forerun.trace.arrivals import described_processes

    rows = described_processes()
    if as_json:
        _show.print_json(rows)
    else:
        _show.print_table(("process", "parameters", "about", "source"), [list(row.values()) for row in rows])


def _say_repairs(repairs: tuple[Repair, ...]) -> None:
    for repair in repairs:
        click.echo(f"repaired: {repair}", err=True)


def _text(process: Any) -> str:
    values = ", ".join(f"{key} {value:.6g}" for key, value in process.items() if isinstance(value, float))
    return f"{process['name']} ({values})"
