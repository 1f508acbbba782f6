"""`forerun measure energy`: train something small for real, and write what the energy domain reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from forerun.core.cli import _options
from forerun.core.cli._options import Output


@click.command(name="energy")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--set", "given", multiple=True, metavar="KEY=VALUE",
    help="A setting (see above); repeatable.",
)  # fmt: skip
@_options.path_option(
    "--against",
    metavar="PROFILE",
    help="Compare with an earlier profile.json; exit code 4 where a point leaves its predicted interval.",
)
@_options.output_options
@_options.out_option("DIR", "Folder to write.", default=Path("measured"), show_default=True)
def command(device: str, given: tuple[str, ...], against: Path | None, output: Output, out: Path) -> None:
    """Measure seconds an epoch, epochs to targets, and joules where they can be read; write them to DIR.

    DIR gets train.csv, power.csv (seconds; watts empty where nothing could be read) and profile.json.

    \b
    Settings, as --set KEY=VALUE, with their defaults:
      batch_sizes=[32,128,512]   sizes to train with
      limits=[]                  power limits to try on a GPU, such as
                                 [150W,250W] (needs root)
      targets=[0.8,0.85,0.9]     held-out accuracies to reach
      seeds=3                    trainings a size
      repeats=5                  timed epochs a point
      max_epochs=60              after which a training has failed
      assume_power=POWER         written, labelled, where none can be read
      cool_down=0s               rest between points
    """
    import json

    from forerun.core.errors import CheckFailed, Problem, UsageError
    from forerun.core.result.reading import read_document
    from forerun.core.trace.domain_traces import decoded
    from forerun.energy.measure.campaign import Campaign, compared, measure

    campaign = decoded("", {"device": device}, given, Campaign, name="measure energy")
    earlier = read_document(against) if against is not None else None
    if earlier is not None and not isinstance(earlier.get("points"), list):
        raise UsageError.at(
            "--against", f"{against} is no profile of `forerun measure energy`: it has no points"
        )
    progress = (lambda message: None) if output.silent else (lambda message: click.echo(message, err=True))
    profile = measure(campaign, out, progress)
    if earlier is not None:
        try:
            profile = {**profile, "compared": compared(earlier, profile)}
        except (KeyError, TypeError) as error:
            raise UsageError.at("--against", f"{against} is no such profile: {error!r}") from error
    if output.as_json:
        click.echo(json.dumps(profile, indent=1))
    else:
        _show(profile, out)
    if "stopped" in profile:
        click.echo(f"forerun: interrupted; what was measured is in {out}", err=True)
        raise click.exceptions.Exit(130)
    missed = [row for row in profile.get("compared", ()) if not row["inside"]]
    if missed:
        raise CheckFailed(
            *(
                Problem(
                    f"batch size {row['batch_size']}",
                    f"{row['measured_s']:.4g} s an epoch, {row['predicted_s'][0]:.4g} to {row['predicted_s'][1]:.4g} s "
                    "was predicted",
                )
                for row in missed
            )
        )


def _show(profile: dict[str, Any], out: Path) -> None:
    """Print points, notes and the comparison with an earlier profile.

    Parameters
    ----------
    profile : as it is written to a file.
    out : the folder with the files.
    """
    for point in profile["points"]:
        low, high = point["epoch_s_interval"]
        watts = f"{point['power_w']:.1f} W" if point["power_w"] is not None else "joules not measured"
        click.echo(
            f"batch size {point['batch_size']}: {point['epoch_s']:.4f} s an epoch [{low:.4f}, {high:.4f}], {watts}"
        )
    for note in profile["notes"]:
        click.echo(f"note: {note}")
    for row in profile.get("compared", ()):
        low, high = row["predicted_s"]
        verdict = "inside" if row["inside"] else "OUTSIDE"
        click.echo(
            f"batch size {row['batch_size']}: {row['measured_s']:.4f} s, {verdict} the predicted [{low:.4f}, {high:.4f}]"
        )
    click.echo(f"written to {out}")
