"""`forerun check`: verify a plan independently of the planner that made it."""

from __future__ import annotations

from pathlib import Path

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output


@click.command(name="check")
@click.argument("plan", type=_options.PATH, metavar="PLAN")
@click.option(
    "--scenario",
    type=_options.PATH,
    help="The plan's scenario, instead of the one stored with it; required for a certificate file.",
)
@click.option(
    "--gpus",
    type=_options.COUNTS,
    default=(),
    help="Of the certificate of a bound: also say what it proves on so many GPUs.",
)
@_options.output_options
def command(plan: Path, scenario: Path | None, gpus: tuple[int, ...], output: Output) -> None:
    """Verify PLAN, written by `forerun plan -o`, by independent means; of a scenario file, say whether it can be read.

    Of a measurement (`forerun measure loading -o`), compare predictions with measurements.

    Exit code 4 if any of its claims is false.
    """
    from forerun.core.planning import check
    from forerun.core.scenarios import load

    about = load(scenario) if scenario is not None else None
    with output.working(f"checking {plan.name}"):
        verdict = check(plan, scenario=about, gpus=gpus)
    if output.as_json:
        _show.print_json({"plan": str(plan), "holds": True, "verified": verdict})
    else:
        click.echo(verdict)
