"""`forerun simulate`: one scenario, one result."""

from __future__ import annotations

import time
from dataclasses import replace
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
    from forerun.errors import PolicyError, ScenarioError
    from forerun.scenario.load import located

    resolved = forerun.load(scenario, overrides, seed=seed)
    with _show.working(f"simulating {scenario.name}", quiet=quiet or as_json):
        start_s = time.perf_counter()
        try:
            result = forerun.simulate(resolved).check()
        except ScenarioError as error:
            raise located(error, scenario) from error
        except PolicyError as error:
            if error.so_far is not None and out is not None:
                error.so_far.save(out)
                click.echo(f"forerun: the run up to then is kept in {out}", err=True)
            raise
        wall_s = time.perf_counter() - start_s
    if out is not None:
        replace(result, provenance={**result.provenance, "wall_s": wall_s}).save(out)
    if as_json:
        _show.print_json(result.data())
        return
    _show.print_result(result, scenario=str(scenario), quiet=quiet)
    if out is not None and not quiet:
        click.echo(f"kept in {out}; next: forerun report {out} -o report.html")
