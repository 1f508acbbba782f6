"""`forerun measure checkpoint`: time checkpoints and restarts of a real training job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from forerun.spot.measure.profile import Profile


@click.command(name="checkpoint")
@click.option("--model", type=click.Choice(["torch", "numpy"]), default="torch", show_default=True)
@click.option("--parameters", type=click.IntRange(min=100), default=1_000_000, show_default=True)
@click.option("--batch", type=click.IntRange(min=1), default=32, show_default=True, help="Samples a step.")
@click.option(
    "--depth", type=click.IntRange(1, 8), default=1, show_default=True, help="Processes a pipeline."
)
@click.option(
    "--pipelines", type=click.IntRange(1, 16), default=2, show_default=True, help="At most this many."
)
@click.option(
    "--steps", type=click.IntRange(min=5), default=40, show_default=True, help="Timed steps a restart."
)
@click.option("--restarts", type=click.IntRange(min=1), default=4, show_default=True)
@click.option("--write-rate", default="", metavar="RATE", help="Slow writes to this rate, such as 20MB/s.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="A .yaml file for the profile."
)
def command(
    model: str,
    parameters: int,
    batch: int,
    depth: int,
    pipelines: int,
    steps: int,
    restarts: int,
    write_rate: str,
    as_json: bool,
    quiet: bool,
    out: Path | None,
) -> None:
    """Time steps, checkpoint stall, write, load and restart of a real training here, as the `job:` of a scenario."""
    import importlib.util

    from forerun.core.errors import UsageError
    from forerun.core.units import parse_quantity
    from forerun.spot.measure.fleet import Work
    from forerun.spot.measure.profile import measure

    if model == "torch" and importlib.util.find_spec("torch") is None:
        raise UsageError.at(
            "--model", "torch is not installed: pip install 'forerun[torch]', or take --model numpy"
        )
    if batch < depth * pipelines:
        raise UsageError.at("--batch", f"{batch} samples cannot be shared by {depth * pipelines} processes")
    if out is not None and out.suffix not in (".yaml", ".yml"):
        raise UsageError.at(str(out), "a profile ends in .yaml or .yml")
    try:
        rate = parse_quantity(write_rate, "bytes_per_s") if write_rate else 0.0
    except ValueError as error:
        raise UsageError.at("--write-rate", str(error)) from error

    def tell(message: str) -> None:
        if not (quiet or as_json):
            click.echo(message, err=True)

    work = Work(
        kind=model,
        parameters=parameters,
        batch=batch,
        depth=depth,
        max_pipelines=pipelines,
        bytes_per_s=rate,
    )
    profile = measure(work, steps=steps, restarts=restarts, progress=tell)
    if out is not None:
        from forerun.core.trace.domain_traces import save_description

        timed = [f"{name}: {t.mean_s:.4g} s +- {t.std_s:.2g}, {t.count} times" for name, t in profile.rows()]
        save_description(
            {"job": profile.job()},
            out,
            comments=[
                f"measured: {model}, {parameters} parameters",
                *filter(None, [profile.stopped]),
                *timed,
            ],
        )
    if as_json:
        click.echo(json.dumps(profile.data(), indent=2))
    else:
        _show(profile)
    if profile.stopped:
        where = f"; what was measured is saved to {out}" if out is not None else ""
        click.echo(f"forerun: interrupted: {profile.stopped}{where}", err=True)
        raise click.exceptions.Exit(130)
    if out is not None and not as_json:
        click.echo(f"{out}: the job section of a scenario")


def _show(profile: Profile) -> None:
    """Print the profile."""
    for name, timing in profile.rows():
        click.echo(f"  {name:<10} {timing.mean_s:>9.4f} s  +- {timing.std_s:.4f}  ({timing.count} times)")
    if not profile.quiet:
        click.echo(
            "note: the machine was busy (load average above twice the cores); measure again when it is quiet"
        )
