"""`forerun measure serving`: profiles of real models, all stages busy at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from forerun.serving.measure.tables import print_rows


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
    samples: int,
    max_batch: int,
    overrides: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    out: Path | None,
) -> None:
    """Time every batch size of models in place, one process a replica and all stages busy at once.

    What is timed is written as a profile that scenarios read, and as a scenario that uses it.
    """
    import json

    from forerun.core.errors import UsageError
    from forerun.core.scenarios import from_data, load
    from forerun.serving.measure.models import model_named
    from forerun.serving.measure.study import Request, builtin, measure

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

    measured = measure(Request(resolved, named, samples), out, tell)
    if as_json:
        click.echo(json.dumps(measured, indent=2, allow_nan=False))
    else:
        _show(measured)
    if "stopped" in measured:
        where = f"; what was measured is saved to {out}" if out is not None else ""
        click.echo(f"forerun: interrupted{where}", err=True)
        raise click.exceptions.Exit(130)
    if out is not None and not (quiet or as_json):
        click.echo(f"saved to {out}; next: forerun simulate {out / 'scenario.json'}")


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


def _show(measured: dict[str, Any]) -> None:
    print_rows(measured["batch_times"], _BATCH_TIMES, _text)
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
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
