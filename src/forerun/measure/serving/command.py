"""`forerun measure serving`: profiles of real models behind real queues, and the model beside what happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from forerun.measure.tables import print_rows


@click.command(name="serving")
@click.argument("scenario", type=click.Path(path_type=Path), required=False)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[STAGE=]MODEL",
    help="What a stage computes: matrix, forest, hashing, perceptron (needs torch), or module:function. Without SCENARIO: "
    "a chain of these [matrix, forest].",
)
@click.option(
    "--check", "checked", is_flag=True, help="Run the pipeline at several loads beside its prediction."
)
@click.option(
    "--loads", default="0.3,0.5,0.7,0.9,1.2", show_default=True, help="Of what the busiest stage carries."
)
@click.option("--repeats", type=click.IntRange(1, 100), default=1, show_default=True, help="Runs a load.")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="Length of a run.")
@click.option(
    "--samples", type=click.IntRange(5, 10_000), default=40, show_default=True, help="Of every batch size."
)
@click.option(
    "--max-batch", type=click.IntRange(1, 256), default=8, show_default=True, help="Without SCENARIO."
)
@click.option("--set", "overrides", multiple=True, metavar="A=B", help="Change a value of SCENARIO.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="DIR",
    help="Write profile.csv, scenario.json and measured.json there.",
)  # fmt: skip
def command(
    scenario: Path | None,
    models: tuple[str, ...],
    checked: bool,
    loads: str,
    repeats: int,
    seconds: float,
    samples: int,
    max_batch: int,
    overrides: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    out: Path | None,
) -> None:
    """Run a pipeline for real: one process a replica, a queue a stage, open-loop arrivals.

    With models, every batch size is timed in place (all stages busy) and written as a profile that scenarios read. With
    --check the pipeline then runs at several loads, and the simulator on the same send times stands beside it. A SCENARIO
    without models is run with replicas that sleep as long as its service times say: what is then checked is the control,
    not the arithmetic.
    """
    import json

    from forerun.errors import UsageError
    from forerun.measure.serving.models import model_named
    from forerun.measure.serving.study import Request, builtin, measure
    from forerun.scenarios import from_data, load

    if scenario is None:
        if overrides:
            raise UsageError.at("--set", "changes a value of SCENARIO; none was given")
        chain = [text.rpartition("=")[2] for text in models] or ["matrix", "forest"]
        for model in chain:
            model_named(model)
        if len(set(chain)) < len(chain):
            raise UsageError.at("--model", "a chain without SCENARIO contains every model once")
        resolved: Any = from_data(builtin(chain, max_batch))
        named = dict(zip((stage.name for stage in resolved.stages), chain))
    else:
        resolved = load(scenario, overrides)
        if resolved.domain != "serving":
            raise UsageError.at(
                str(scenario), f"is a {resolved.domain} scenario; expected a serving scenario"
            )
        if lacking := [text for text in models if "=" not in text]:
            raise UsageError.at(f"--model {lacking[0]}", "write STAGE=MODEL: SCENARIO has stages")
        named = dict(text.split("=", 1) for text in models)

    def tell(message: str) -> None:
        if not (quiet or as_json):
            click.echo(message, err=True)

    loads_rps = _loads(loads) if checked or (scenario is not None and not named) else ()
    measured = measure(Request(resolved, named, samples, loads_rps, repeats, seconds), out, tell)
    if as_json:
        click.echo(json.dumps(measured, indent=2, allow_nan=False))
    else:
        _show(measured)
    if "stopped" in measured:
        where = f"; what was measured is saved to {out}" if out is not None else ""
        click.echo(f"forerun: interrupted{where}", err=True)
        raise click.exceptions.Exit(130)
    if out is not None and not (quiet or as_json):
        if measured["batch_times"]:
            click.echo(f"saved to {out}; next: forerun simulate {out / 'scenario.json'}")
        else:
            click.echo(f"saved to {out}; next: forerun report {out / 'measured.json'} -o report.html")


def _loads(text: str) -> tuple[float, ...]:
    from forerun.errors import UsageError

    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError.at(f"--loads {text}", "write numbers between commas: 0.5,0.9,1.2") from error
    if not numbers or not all(0 < load <= 10 for load in numbers):
        raise UsageError.at(f"--loads {text}", "loads lie above 0, up to 10")
    return numbers


#: columns of what is printed: heading, and name in a measurement's record
_BATCH_TIMES = (
    ("model", "model"),
    ("batch", "batch"),
    ("samples", "samples"),
    ("mean ms", "mean_ms"),
    ("p99 ms", "p99_ms"),
    ("queries/s", "throughput_qps"),
    ("mean alone", "alone_mean_ms"),
    ("in place / alone", "in_place_over_alone"),
)
_FIDELITY = (
    ("load", "load"),
    ("queries/s", "rate_rps"),
    ("queries", "queries"),
    ("P50 real", "p50_measured_ms"),
    ("model", "p50_predicted_ms"),
    ("off", "p50_error"),
    ("P99 real", "p99_measured_ms"),
    ("model", "p99_predicted_ms"),
    ("off", "p99_error"),
    ("late p99", "lag_p99_ms"),
    ("marks", "marks"),
)


def _show(measured: dict[str, Any]) -> None:
    for name, columns in (("batch_times", _BATCH_TIMES), ("fidelity", _FIDELITY)):
        print_rows(measured[name], columns, _text)
    click.echo(f"answer: {measured['answer']}")
    for note in measured["notes"]:
        click.echo(f"note: {note}")
    host = measured["host"]
    click.echo(
        f"host: {host['processor']}, {host['cores']} cores, load average {host['load_average']}, "
        f"{host['stolen_share']:.1%} stolen, a sleep of 1 ms lasts {host['oversleep_p99_ms']} ms longer at p99"
    )


def _text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("_error"):
        return f"{value:+.1%}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
