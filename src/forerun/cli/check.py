"""`forerun check`: believe no planner."""

from __future__ import annotations

from pathlib import Path

import click

from forerun.cli import _options, _show


@click.command(name="check")
@click.argument("plan", type=click.Path(path_type=Path), metavar="PLAN")
@click.option(
    "--scenario",
    type=click.Path(path_type=Path),
    help="What the plan is about, instead of the scenario kept with it; needed for a certificate by itself.",
)
@_options.json_option
@_options.quiet_option
def command(plan: Path, scenario: Path | None, as_json: bool, quiet: bool) -> None:
    """Verify PLAN, written by `forerun plan -o`, by independent means; of a scenario file, say whether it can be read.

    Of a measurement (`forerun measure loading -o`), hold what was predicted to what was measured.

    Exit code 4 if any claim of it does not hold.
    """
    import forerun

    about = forerun.load(scenario) if scenario is not None else None
    with _show.working(f"checking {plan.name}", quiet=quiet or as_json):
        verdict = forerun.check(plan, scenario=about)
    if as_json:
        _show.print_json({"plan": str(plan), "holds": True, "verified": verdict})
    else:
        click.echo(verdict)
