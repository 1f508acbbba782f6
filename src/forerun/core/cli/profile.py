"""`forerun profile`: save a result of one domain as a profile that another domain reads."""

from __future__ import annotations

from pathlib import Path

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Asked, Output
from forerun.core.errors import UsageError


@click.command(name="profile")
@_options.scenario_options
@_options.out_option("FILE", "Profile to write (YAML).")
@click.option(
    "--at", "points", metavar="N,N,...", help="Points: numbers of readers (loading) or batch sizes (energy)."
)
def command(asked: Asked, output: Output, out: Path | None, points: str | None) -> None:
    """Save a result of SCENARIO as a profile that other domains read.

    A loading scenario gives a supply profile (samples per second by number of readers) for the cluster and spot domains.
    An energy scenario gives a power profile (watts and speed by batch size and power limit) for the cluster domain.
    """
    from forerun.core.domain import profile_of
    from forerun.core.profile.files import write_profile
    from forerun.core.scenario.spec import to_data, yaml_text

    at = _numbers(points or "")
    resolved = asked.load()
    with output.working(f"profiling {asked.path.name}"):
        made = profile_of(resolved, at)
    if out is not None:
        write_profile(made, out)
    if output.as_json:
        _show.print_json(to_data(made))
    elif out is None:
        click.echo(yaml_text(made), nl=False)
    elif not output.quiet:
        click.echo(f"saved to {out}; next: name it in the scenario of another domain (docs/composition.md)")


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of `--at`.

    Parameters
    ----------
    text : whole numbers separated by commas; empty for none.

    Raises
    ------
    UsageError : it is anything else.
    """
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError.at(
            f"--at {text}", "expected whole numbers separated by commas, such as 1,2,4"
        ) from None
