"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

scenario_argument = click.argument("scenario", type=click.Path(path_type=Path), metavar="SCENARIO")
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="A.B=C",
    help="Override one value of the scenario; repeatable.",
)
seed_option = click.option(
    "--seed", type=click.IntRange(min=0), help="Seed to use instead of the scenario's."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
workers_option = click.option(
    "--workers", "-j", default=1, show_default=True, type=click.IntRange(min=1), help="Number of processes."
)
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print no progress and no hints.")
out_option = click.option(
    "-o",
    "--out",
    "out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Save the run to a new directory.",
)


def scenario_options(function: F) -> F:
    """One scenario, `--set`, `--seed`, `--json`, `--quiet`."""
    for option in (quiet_option, json_option, seed_option, set_option, scenario_argument):
        function = option(function)
    return function
