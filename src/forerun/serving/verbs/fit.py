"""`forerun fit`: the costs of a language-model server from what was measured."""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output

if TYPE_CHECKING:
    from forerun.serving.llm.calibration.calibrate import Calibration, Compared

#: figures that the table of errors shows, and their headings
SHOWN: Final = {
    "ttft_mean_ms": "TTFT mean",
    "ttft_p99_ms": "TTFT P99",
    "tpot_mean_ms": "TPOT mean",
    "e2e_mean_ms": "E2E mean",
    "e2e_p99_ms": "E2E P99",
    "throughput_rps": "throughput",
    "iteration_mean_ms": "iteration",
}


@click.command(name="fit")
@click.argument("server", type=_options.PATH, metavar="SERVER")
@click.argument("files", nargs=-1, type=_options.PATH, metavar="[FILE]...")
@click.option(
    "--hold-out",
    "held_out",
    multiple=True,
    type=_options.PATH,
    metavar="FILE",
    help="Compare with these measurements only; repeatable.",
)
@click.option(
    "--kernels",
    "tables",
    multiple=True,
    type=_options.PATH,
    metavar="TABLE",
    help="Build the costs from tables of kernels, or a folder of them, for a server that was not measured; repeatable.",
)
@_options.set_option
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@_options.out_option("COST", "A .yaml file for the costs, for `cost: COST` in a scenario.")
@_options.output_options
def command(
    server: Path,
    files: tuple[Path, ...],
    held_out: tuple[Path, ...],
    tables: tuple[Path, ...],
    overrides: tuple[str, ...],
    seed: int,
    out: Path | None,
    output: Output,
) -> None:
    """Fit the costs of a language-model server to measurements: what an iteration takes.

    SERVER is a YAML file with the limits of the server that was measured (max_seqs, token_budget, kv_blocks or memory). FILE
    is a table of requests or of steps, or a result of vllm bench serve, SGLang, GuideLLM, inference-perf or AIPerf, or a
    benchmark report of llm-d.

    With --kernels nothing is fitted: costs follow from the model's configuration (memory in SERVER) and times of kernels
    (products of matrices, attention, all-reduce, as AIConfigurator ships them), and every FILE is compared.
    """
    from forerun.core.errors import UsageError
    from forerun.core.scenario.spec import to_data
    from forerun.core.trace.domain_traces import save_description
    from forerun.serving.llm.calibration.bottom_up import bottom_up
    from forerun.serving.llm.calibration.calibrate import calibrate
    from forerun.serving.llm.calibration.server import read_server

    if not files and not tables:
        raise UsageError.at(
            "FILE", "nothing to fit: give measurements, or times of kernels with --kernels TABLE"
        )
    sources = ", ".join(file.name for file in tables or files)
    with output.working(f"fitting {(tables or files)[0].name}") as say:
        described = read_server(server, overrides)
        found = (
            bottom_up(described, tables, (*files, *held_out), seed=seed)
            if tables
            else calibrate(described, files, held_out, seed=seed, say=say)
        )
    if out is not None:
        comments = [f"{'built from' if tables else 'fitted to'} {sources}", *found.notes]
        save_description({"cost": to_data(found.cost)}, out, comments=comments)
    if output.as_json:
        _show.print_json(_data(found))
        return
    _print_coefficients(found)
    if found.compared:
        click.echo()
        _print_errors(found)
        _print_predictions(found)
    for note in found.notes:
        _show.prose(f"note: {note}")
    if out is None:
        click.echo("nothing was saved: use -o COST.yaml to save the costs")
    else:
        click.echo(f"{out}: the costs; write `cost: {out.name}` in the llm section of a scenario")


def _print_coefficients(found: Calibration) -> None:
    """Print each coefficient, where the search began, and whether the data said what it is."""
    from forerun.core.scenario.spec import to_data
    from forerun.serving.llm.calibration.replay import COEFFICIENTS

    rows: list[tuple[Any, ...]] = []
    if found.found is not None:
        fit, supported = found.found, found.found.supported()
        for name, value, start, spread in zip(COEFFICIENTS, fit.values, fit.start.values, fit.spread):
            said = "at a bound" if name in fit.bounded else "yes" if supported[name] else "little"
            rows.append((name, float(value), float(start), f"{spread:.0%}", said))
        about = (
            f"start: from {fit.start.source}; unsure: standard deviation; data say it: or it is near where it began, or "
            "data would have it lower than the hardware allows"
        )
    elif found.steps is None:
        given = to_data(found.cost)
        _show.print_table(
            ("coefficient", "value"),
            [(name, given[name]) for name in found.cost.names],
            title="Costs of an iteration",
            about="from kernels and what servers take beyond them; nothing was fitted to this server",
        )
        return
    else:
        supported = found.steps.supported()
        for (name, clear), value, error in zip(supported.items(), found.steps.values, found.steps.error):
            unsure = f"{error / value:.1%}" if value > 0 else ""
            rows.append((name, float(value), None, unsure, "yes" if clear else "little"))
        about = "unsure: standard error; data say it: the coefficient is over twice its standard error"
    _show.print_table(
        ("coefficient", "value", "start", "unsure", "data say it"),
        rows,
        title="Costs of an iteration",
        about=about,
    )


def _short_names(found: Calibration) -> dict[str, str]:
    """By experiment, the name of its file; behind the folders that tell it apart where several files have one name, as some
    clients name all of theirs."""
    paths = {row.experiment: Path(row.experiment).absolute() for row in found.compared}
    often = Counter(path.name for path in paths.values())
    above = os.path.commonpath([path.parent for path in paths.values()])
    return {
        experiment: path.name if often[path.name] == 1 else path.relative_to(above).as_posix()
        for experiment, path in paths.items()
    }


def _print_errors(found: Calibration) -> None:
    """Print how far off replays are, one experiment a row."""
    names = [name for name in SHOWN if any(row.figure == name for row in found.compared)]
    groups: dict[tuple[str, str], dict[str, Compared]] = {}
    for row in found.compared:
        groups.setdefault((row.role, row.experiment), {})[row.figure] = row
    shown = _short_names(found)
    cells = [
        (shown[experiment], role, *(_shown(row.get(name)) for name in names))
        for (role, experiment), row in groups.items()
    ]
    _show.print_table(
        ("experiment", "role", *(SHOWN[name] for name in names)),
        cells,
        title="How far off replays are",
        about="replayed over measured, less one; left out: predicted from a fit to the others; held out: never fitted; "
        "saturating: iterations 5 % longer or shorter change it by half, so a value would say nothing",
    )


def _print_predictions(found: Calibration) -> None:
    """Print what was measured and not fitted, and the prediction beside it."""
    shown = _short_names(found)
    rows = [
        (
            shown[row.experiment],
            row.figure,
            row.measured,
            None if row.saturating else row.replayed,
            _shown(row),
            None if math.isnan(row.low) else row.low,
            None if math.isnan(row.high) else row.high,
        )
        for row in found.compared
        if row.role == "held out"
    ]
    if rows:
        click.echo()
        _show.print_table(
            ("experiment", "figure", "measured", "predicted", "error", "90 % from", "to"),
            rows,
            title="Predictions of what was held out",
            about="the interval is where 90 % of measurements should lie; it does not know the one beside it",
        )


def _shown(row: Compared | None) -> str:
    """How far off a figure is, unless a replay says nothing of it."""
    if row is None:
        return ""
    return "saturating" if row.saturating else f"{row.error:+.1%}"


def _data(found: Calibration) -> dict[str, Any]:
    """A calibration as plain data, for `--json`."""
    from forerun.core.scenario.spec import to_data
    from forerun.serving.llm.calibration.replay import COEFFICIENTS

    fit = found.found
    known = fit or found.steps
    return {
        "cost": to_data(found.cost),
        "supported": None if known is None else known.supported(),
        "bounded": [] if fit is None else list(fit.bounded),
        "start": None if fit is None else dict(zip(COEFFICIENTS, fit.start.values.tolist())),
        "compared": [
            {
                "experiment": row.experiment,
                "role": row.role,
                "figure": row.figure,
                "measured": row.measured,
                "replayed": None if row.saturating else row.replayed,
                "error": None if row.saturating else row.error,
                "low": None if math.isnan(row.low) else row.low,
                "high": None if math.isnan(row.high) else row.high,
                "saturating": row.saturating,
            }
            for row in found.compared
        ],
        "notes": list(found.notes),
    }
