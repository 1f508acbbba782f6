"""`forerun simulate`: one scenario, one result."""

from __future__ import annotations

from pathlib import Path

import click

from forerun.cli import _options, _show


@click.command(name="simulate")
@_options.scenario_options
@_options.out_option
def command(
    scenario: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    as_json: bool,
    quiet: bool,
    out: Path | None,
) -> None:
    """Simulate SCENARIO and say what happened, where it went and why."""
    import forerun

    resolved = forerun.load(scenario, overrides, seed=seed)
    with _show.working(f"simulating {scenario.name}", quiet=quiet or as_json):
        result = forerun.simulate(resolved).check()
    if out is not None:
        result.save(out)
    if as_json:
        _show.print_json(result.data())
        return
    _show.print_result(result, scenario=str(scenario), quiet=quiet)
    if out is not None and not quiet:
        click.echo(f"kept in {out}; next: forerun report {out} -o report.html")
