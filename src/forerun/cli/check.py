"""`forerun check`: verify a plan independently of the planner that made it."""

from __future__ import annotations

from pathlib import Path

import click

from forerun.cli import _options, _show


@click.command(name="check")
@click.argument("plan", type=click.Path(path_type=Path), metavar="PLAN")
@click.option(
    "--scenario",
    type=click.Path(path_type=Path),
    help="The plan's scenario, instead of the one stored with it; required for a certificate file.",
)
@_options.json_option
@_options.quiet_option
def command(plan: Path, scenario: Path | None, as_json: bool, quiet: bool) -> None:
    """Verify PLAN, written by `forerun plan -o`, by independent means; of a scenario file, say whether it can be read.

    Of a measurement (`forerun measure loading -o`), compare predictions with measurements.

    Exit code 4 if any of its claims is false.
    """
    import forerun

    about = forerun.load(scenario) if scenario is not None else None
    with _show.working(f"checking {plan.name}", quiet=quiet or as_json):
        verdict = forerun.check(plan, scenario=about)
    if as_json:
        _show.print_json({"plan": str(plan), "holds": True, "verified": verdict})
    else:
        click.echo(verdict)
