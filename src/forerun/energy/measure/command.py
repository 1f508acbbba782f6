"""`forerun measure energy`: train something small for real, and write what the energy domain reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command(name="energy")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--batch-sizes", default="32,128,512", show_default=True, help="Sizes to train with.")
@click.option("--limits", default="", metavar="W,W", help="Power limits to try on a GPU (needs root).")
@click.option("--targets", default="0.8,0.85,0.9", show_default=True, help="Held-out accuracies to reach.")
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Trainings a size.")
@click.option(
    "--repeats", type=click.IntRange(min=2), default=5, show_default=True, help="Timed epochs a point."
)
@click.option("--max-epochs", type=click.IntRange(min=1), default=60, show_default=True)
@click.option(
    "--assume-power", type=float, metavar="W", help="Write this draw where none can be read, labelled."
)
@click.option(
    "--cool-down",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="S",
    help="Rest between points, in seconds.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="PROFILE",
    help="Compare with an earlier profile.json; exit code 4 where a point leaves its predicted interval.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), default=Path("measured"), show_default=True, metavar="DIR"
)
def command(
    device: str,
    batch_sizes: str,
    limits: str,
    targets: str,
    seeds: int,
    repeats: int,
    max_epochs: int,
    assume_power: float | None,
    cool_down: float,
    against: Path | None,
    as_json: bool,
    quiet: bool,
    out: Path,
) -> None:
    """Measure seconds an epoch, epochs to targets, and joules where they can be read; write them to DIR.

    DIR gets train.csv, power.csv (seconds; watts empty where nothing could be read) and profile.json.
    """
    import json

    from forerun.core.errors import CheckFailed, Problem, UsageError
    from forerun.core.result.reading import read_document
    from forerun.energy.measure.campaign import Campaign, compared, measure

    def numbers(text: str, option: str) -> tuple[float, ...]:
        """The positive numbers of an option. Raises UsageError."""
        try:
            values = tuple(float(part) for part in text.split(",") if part.strip())
        except ValueError as error:
            raise UsageError.at(option, f"{text!r} is not a list of numbers such as 32,128") from error
        if any(not value > 0 for value in values):
            raise UsageError.at(option, f"{text!r} has a number that is not above 0")
        return values

    sizes = numbers(batch_sizes, "--batch-sizes")
    if not sizes or any(size != int(size) for size in sizes):
        raise UsageError.at("--batch-sizes", f"{batch_sizes!r} is not a list of whole numbers such as 32,128")
    if assume_power is not None and not assume_power > 0:
        raise UsageError.at("--assume-power", f"{assume_power:g} W is not above 0")
    campaign = Campaign(
        device=device,
        batch_sizes=tuple(int(size) for size in sizes),
        limits_w=numbers(limits, "--limits"),
        targets=numbers(targets, "--targets"),
        seeds=seeds,
        repeats=repeats,
        max_epochs=max_epochs,
        assume_power_w=assume_power or 0.0,
        cool_down_s=cool_down,
    )
    earlier = read_document(against) if against is not None else None
    if earlier is not None and not isinstance(earlier.get("points"), list):
        raise UsageError.at(
            "--against", f"{against} is no profile of `forerun measure energy`: it has no points"
        )
    progress = (lambda message: None) if quiet or as_json else (lambda message: click.echo(message, err=True))
    profile = measure(campaign, out, progress)
    if earlier is not None:
        try:
            profile = {**profile, "compared": compared(earlier, profile)}
        except (KeyError, TypeError) as error:
            raise UsageError.at("--against", f"{against} is no such profile: {error!r}") from error
    if as_json:
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
