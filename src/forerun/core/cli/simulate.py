"""`forerun simulate`: simulate one scenario and print its result."""

from __future__ import annotations

import importlib
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Asked, Output

if TYPE_CHECKING:
    from forerun.core.domain import Program


@click.command(name="simulate")
@_options.scenario_options
@_options.out_option("DIR", "Save the run to a new directory.")
@click.option(
    "--trials",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of Monte Carlo trials, where the domain has them; same as --set trials=N.",
)
@_options.path_option(
    "--reference-logs",
    "logs",
    metavar="DIR",
    help="Also write the logs of the published simulator, to compare with its own.",
)
@_options.accept_fit_option
@_options.decider_options
def command(
    asked: Asked,
    output: Output,
    out: Path | None,
    trials: int | None,
    logs: Path | None,
    accept_fit: bool,
    decider: Program | None,
) -> None:
    """Simulate SCENARIO; print what happened, where the time, energy or money went, and why."""
    from forerun.core.domain import get_domain, simulate
    from forerun.core.errors import InputError, PolicyError
    from forerun.core.scenario.resolve import located

    own_settings = [f"trials={trials}"] if trials is not None else []
    own_settings += [_options.ACCEPTED] if accept_fit else []
    resolved = asked.load(*own_settings)
    reference_logs = _reference_logs(resolved.domain) if logs is not None else None
    with output.working(f"simulating {asked.path.name}"):
        start_s = time.perf_counter()
        try:
            policy = decider and get_domain(resolved.domain).decider(resolved, decider)
            result = simulate(
                resolved, policy=policy, observers=() if reference_logs is None else (reference_logs,)
            )
        except InputError as error:
            raise located(error, asked.path) from error
        except PolicyError as error:
            if error.so_far is not None and out is not None:
                error.so_far.save(out)
                _show.say(f"forerun: the run until then is saved to {out}")
            raise
        wall_s = time.perf_counter() - start_s
    if out is not None:
        replace(result, provenance={**result.provenance, "wall_s": wall_s}).save(out)
    written = reference_logs.write(logs) if reference_logs is not None else ()
    if output.as_json:
        _show.print_json(result.data())
        return
    _show.print_result(result, scenario=asked.words(*own_settings), quiet=output.quiet)
    if written:
        click.echo(f"reference logs: {', '.join(map(str, written))}")
    if out is not None:
        output.hint(f"saved to {out}; next: forerun report {out} -o report.html")


def _reference_logs(domain: str) -> Any:
    """An observer that writes the logs of the published simulator.

    Parameters
    ----------
    domain : of the scenario.

    Raises
    ------
    UsageError : the domain has no such logs.
    """
    from forerun.core.errors import UsageError
    from forerun.core.slices import reference_logs

    logs = reference_logs()
    if domain not in logs:
        able = " and ".join(logs)
        raise UsageError.at("--reference-logs", f"the {domain} domain has none; {able} has")
    return importlib.import_module(logs[domain]).Logs()
