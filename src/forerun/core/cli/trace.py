"""`forerun trace`: describe, check, fit, generate and import traces."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import F, Output
from forerun.core.errors import UnknownName, UsageError, known_names
from forerun.core.result.numbers import capital
from forerun.core.units import split_name

if TYPE_CHECKING:
    from forerun.core.trace.domain_traces import DomainTraces, Recorded, TraceReport
    from forerun.core.trace.repair import Repair

file_argument = click.argument("file", type=_options.PATH, metavar="FILE")
format_option = click.option(
    "--format",
    "format_",
    default="",
    metavar="NAME",
    help="Format of the file [default: detected from its content].",
)
option_option = click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the format; repeatable.",
)
settings_option = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A parameter; repeatable."
)
seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed."
)
strict_option = click.option("--strict", is_flag=True, help="Reject a file that needs repairs.")
out_option = _options.out_option(
    "FILE", "A .parquet or .csv file; replaces only a trace that forerun wrote.", required=True
)


@dataclass(frozen=True)
class Reading:
    """How to read files.

    Parameters
    ----------
    format : name of the format; empty to detect it from the content.
    options : of the format, by name.
    strict : reject a file that needs repairs.
    """

    format: str
    options: dict[str, Any]
    strict: bool


def reading_options(function: F) -> F:
    """`--format`, `--option` and `--strict`, as one argument `reading`, a `Reading`.

    Parameters
    ----------
    function : of the command, which need not know the three options.
    """

    @functools.wraps(function)
    def read(*args: Any, format_: str, options: tuple[str, ...], strict: bool, **others: Any) -> Any:
        from forerun.core.trace.reader import options_from

        return function(*args, reading=Reading(format_, options_from(options), strict), **others)

    made: Any = read
    for option in (strict_option, option_option, format_option):
        made = option(made)
    return cast(F, made)


@click.group(name="trace")
def command() -> None:
    """Describe, check, fit, generate and import traces."""


@command.command(name="stats")
@click.argument("files", nargs=-1, required=True, metavar="[DOMAIN] FILE...")
@reading_options
@settings_option
@seed_option
@click.option("--fit", is_flag=True, help="Also fit arrival processes and report how well they fit.")
@_options.output_options
def stats(
    files: tuple[str, ...],
    reading: Reading,
    settings: tuple[str, ...],
    seed: int,
    fit: bool,
    output: Output,
) -> None:
    """Describe the arrivals in FILE: rate, burstiness, ties. With DOMAIN first, describe a trace of that domain."""
    if len(files) > 1:
        if fit:
            raise UsageError.at("--fit", "is for arrivals: forerun trace fit DOMAIN fits traces of a domain")
        recorded = _recorded(files[1:], reading)
        with output.working(f"reading {files[1]}"):
            report = _traces_of(files[0]).stats(recorded, settings, seed=seed)
            recorded.log.finish()
        _show_report(report, output)
        return
    if settings:
        raise UsageError.at("--set", "is for figures of a domain: forerun trace stats DOMAIN FILE")
    file = Path(files[0])
    from forerun.core.trace.fit import fit_all
    from forerun.core.trace.reader import read_trace
    from forerun.core.trace.requests import arrivals_ms
    from forerun.core.trace.stats import trace_stats

    with output.working(f"reading {file.name}"):
        trace = read_trace(file, reading.format, options=reading.options, strict=reading.strict)
        statistics = trace_stats(trace)
        fits = fit_all(arrivals_ms(trace)) if fit else ()
    data: dict[str, Any] = {"format": trace.provenance.format, "kind": trace.kind, **statistics.data()}
    if output.as_json:
        _show.print_json(data | ({"fits": [one.data() for one in fits]} if fit else {}))
        return
    _print_named(f"Arrivals in {file.name}", [item for item in data.items() if item[0] != "windows"])
    windows = [(w.window_s, w.windows, w.peak_to_mean, w.dispersion) for w in statistics.windows]
    if windows:  # a short trace has no whole window
        click.echo()
        _show.print_table(
            ("window (s)", "windows", "peak to mean", "index of dispersion"),
            windows,
            title="Burstiness by window length",
            about="windows: complete ones; peak to mean: arrivals in the fullest window over the mean; index of "
            "dispersion: variance over mean of the arrivals in a window (1: Poisson)",
        )
    for one in fits:
        click.echo()
        features = [(f.name, f.recorded, f.low, f.high, "yes" if f.ok else "NO") for f in one.features]
        title = f"{_text(one.data()['process'])}: {one.agreement:.0%} of features agree ({one.note})"
        _show.print_table(
            ("feature", "recorded", "low", "high", "in the band"),
            features,
            title=title,
            about="low, high: the 95 % band of traces generated by the process; in the band: whether recorded is",
        )


@command.command(name="check")
@file_argument
@reading_options
@_options.output_options
def check(file: Path, reading: Reading, output: Output) -> int:
    """Read all of FILE and list its problems, one per line; exit code 2 if there are any."""
    from forerun.core.trace.convert import check_trace

    with output.working(f"reading {file.name}"):
        checked = check_trace(file, reading.format, options=reading.options, strict=reading.strict)
    if output.as_json:
        _show.print_json(checked.data())
    else:
        if checked.taken_as and not output.quiet:
            how = "recognised by its content" if checked.guessed else "as named"
            click.echo(f"{file}: {checked.format}, {how}: {checked.taken_as}")
        for problem in checked.problems:
            click.echo(str(problem), err=True)
        if not output.quiet:
            _say_repairs(checked.repairs)
        if checked.ok:
            click.echo(f"{file}: {checked.rows} rows of {checked.format}, no problems")
    return 0 if checked.ok else 2


@command.command(name="fit")
@click.argument("domain")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@reading_options
@settings_option
@seed_option
@_options.out_option("FILE", "A .yaml file for the description, for `forerun trace generate DOMAIN FILE`.")
@_options.output_options
def fit(
    domain: str,
    files: tuple[str, ...],
    reading: Reading,
    settings: tuple[str, ...],
    seed: int,
    out: Path | None,
    output: Output,
) -> None:
    """Fit a description to recorded traces of DOMAIN, from which similar traces can be generated, and report the fit."""
    from forerun.core.trace.domain_traces import save_description

    recorded = _recorded(files, reading)
    with output.working(f"fitting {files[0]}"):
        fitted = _traces_of(domain).fit(recorded, settings, seed=seed)
        recorded.log.finish()
        if out is not None:
            names = ", ".join(Path(file).name for file in files)
            save_description(fitted.description, out, comments=[f"fitted to {names}", *fitted.report.notes])
    if output.as_json:
        _show.print_json({"description": fitted.description, **fitted.report.data})
        return
    _show_report(fitted.report, output)
    if out is None:
        click.echo("nothing was saved: use -o FILE.yaml to save the description")
    else:
        click.echo(f"{out}: the description")
        output.hint(f"next: forerun trace generate {domain} {out} -o TRACE")


@command.command(name="generate")
@click.argument("what", metavar="PROCESS|DOMAIN")
@click.argument("description", default="", metavar="[DESCRIPTION]")
@settings_option
@click.option("-n", "--count", "count", type=click.IntRange(min=1), help="Number of arrivals or jobs.")
@click.option(
    "--horizon", "horizon", metavar="TIME", help="Generate all arrivals before this time, such as 10min."
)
@seed_option
@out_option
@_options.output_options
def generate(
    what: str,
    description: str,
    settings: tuple[str, ...],
    count: int | None,
    horizon: str | None,
    seed: int,
    out: Path,
    output: Output,
) -> None:
    """Generate a trace from PROCESS, a name (see `forerun trace processes`) or a file that describes one.

    With the name of a domain, generate a trace of that domain: its own default, or what DESCRIPTION names (a generator
    of the domain, or a file as `forerun trace fit DOMAIN` writes).
    """
    from forerun.core.domain import domain_names
    from forerun.core.trace.domain_traces import Wanted
    from forerun.core.trace.generate import generate as arrivals
    from forerun.core.trace.generate import process_from, seconds

    horizon_s = seconds(horizon) if horizon is not None else None
    if what in domain_names():
        with output.working(f"generating {what}"):
            made = _traces_of(what).generate(
                Wanted(
                    description=description, settings=settings, count=count, horizon_s=horizon_s, seed=seed
                )
            )
            made.save(out)
        if output.as_json:
            _show.print_json({"path": str(out), "count": made.count, **made.report.data})
            return
        _show_report(made.report, output)
        click.echo(f"{out}: {made.count} {made.what}")
        if made.next_step:
            output.hint(f"next: {made.next_step.format(out=out)}")
        return
    if description:
        raise UsageError.at(
            description,
            f"{what!r} is no domain with traces of its own; {known_names(what, _domains_with_traces())}",
        )
    from forerun.core.trace.files import save_trace
    from forerun.core.trace.stats import trace_stats

    with output.working("generating arrivals"):
        trace = arrivals(process_from(what, settings), seed=seed, n=count, horizon_s=horizon_s)
        save_trace(trace, out)
    if output.as_json:
        _show.print_json({"path": str(out), "digest": trace.digest, **trace_stats(trace).data()})
    else:
        click.echo(f"{out}: {len(trace)} arrivals")
        output.hint(f"next: forerun trace stats {out}")


@command.command(name="import")
@file_argument
@reading_options
@out_option
@_options.output_options
def import_(file: Path, reading: Reading, out: Path, output: Output) -> None:
    """Convert FILE from a public format to a forerun trace file; the repairs are listed in OUT.repairs.json."""
    from forerun.core.trace.convert import import_trace

    with output.working(f"reading {file.name}"):
        made = import_trace(file, out, reading.format, options=reading.options, strict=reading.strict)
    if not output.quiet:
        if made.guessed:
            click.echo(f"{file}: looks like {made.trace.provenance.format}", err=True)
        _say_repairs(made.repairs)
    if output.as_json:
        _show.print_json(made.data())
    else:
        click.echo(f"{out}: {len(made.trace)} {made.trace.kind} from {made.trace.provenance.format}")


@command.command(name="formats")
@_options.json_option
def formats(as_json: bool) -> None:
    """List the formats that can be read, with their options."""
    from forerun.core.trace.reader import described_formats

    _show.print_listing(
        described_formats(),
        as_json=as_json,
        title="Formats that can be read",
        about="makes: the kind of trace it gives; options: as `--option NAME=VALUE`",
    )


@command.command(name="processes")
@_options.json_option
def processes(as_json: bool) -> None:
    """List the arrival processes that can be generated, with their parameters."""
    from forerun.core.trace.arrivals import described_processes

    _show.print_listing(
        described_processes(),
        as_json=as_json,
        title="Arrival processes that can be generated",
        about="parameters: as `--set NAME=VALUE`; source: the paper, where there is one",
    )


def _say_repairs(repairs: tuple[Repair, ...]) -> None:
    """Print the repairs made while reading, one a line on stderr."""
    for repair in repairs:
        click.echo(f"repaired: {repair}", err=True)


def _traces_of(domain: str) -> DomainTraces:
    """The object that handles a domain's own traces.

    Parameters
    ----------
    domain : its name.

    Raises
    ------
    UnknownName : no domain of this name has traces of its own; the message lists those that have.
    """
    from forerun.core.domain import find_domain

    known = find_domain(domain)
    if known is None or known.traces is None:
        raise UnknownName.among("domain with traces of its own", domain, _domains_with_traces())
    return known.traces


def _domains_with_traces() -> tuple[str, ...]:
    """The names of the domains that have traces of their own."""
    from forerun.core.domain import domain_names, get_domain

    return tuple(name for name in domain_names() if get_domain(name).traces is not None)


def _recorded(files: tuple[str, ...], reading: Reading) -> Recorded:
    """Recorded files of a domain's traces, and how to read them.

    Parameters
    ----------
    files : as given on the command line.
    reading : their format and its options.
    """
    from forerun.core.trace.domain_traces import Recorded
    from forerun.core.trace.repair import RepairLog

    return Recorded(
        files=tuple(Path(file) for file in files),
        format=reading.format,
        options=reading.options,
        log=RepairLog(strict=reading.strict),
    )


def _print_named(title: str, named: Iterable[tuple[str, Any]]) -> None:
    """Print figures whose names carry their units.

    Parameters
    ----------
    title : the line above.
    named : name and value of each.
    """
    figures = [(split_name(name), value) for name, value in named]
    _show.print_figures(title, ((label, value, unit, "") for (label, unit), value in figures))


def _show_report(report: TraceReport, output: Output) -> None:
    """Print what a domain says of a trace: repairs, tables, notes."""
    if output.as_json:
        _show.print_json(report.data)
        return
    if not output.quiet:
        _say_repairs(report.repairs)
    for at, table in enumerate(report.tables):
        if at:
            click.echo()
        title = capital(table.title)
        if table.columns == ("figure", "value"):
            _print_named(title, ((str(name), value) for name, value in table.rows))
        else:
            _show.print_table(table.columns, table.rows, title=title, about=table.about)
    for note in report.notes:
        _show.prose(f"note: {note}")


def _text(process: Any) -> str:
    """An arrival process as its name and its floating-point parameters, to six digits."""
    values = ", ".join(f"{key} {value:.6g}" for key, value in process.items() if isinstance(value, float))
    return f"{process['name']} ({values})"
