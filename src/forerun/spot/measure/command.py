"""`forerun measure checkpoint`: time checkpoints and restarts of a real training job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from forerun.core.cli import _options
from forerun.core.cli._options import Output

if TYPE_CHECKING:
    from forerun.spot.measure.profile import Profile


@click.command(name="checkpoint")
@click.option("--model", type=click.Choice(["torch", "numpy"]), default="torch", show_default=True)
@click.option(
    "--set", "given", multiple=True, metavar="KEY=VALUE",
    help="A setting (see above); repeatable.",
)  # fmt: skip
@_options.output_options
@_options.out_option("FILE", "A .yaml file for the profile.")
def command(model: str, given: tuple[str, ...], output: Output, out: Path | None) -> None:
    """Time steps, checkpoint stall, write, load and restart of a real training here, as the `job:` of a scenario.

    \b
    Settings, as --set KEY=VALUE, with their defaults:
      parameters=1000000   weights of the model
      batch=32             samples a step
      depth=1              processes a pipeline, at most 8
      pipelines=2          at most this many, at most 16
      steps=40             timed steps a restart
      restarts=4
      write_rate=RATE      slows writes to this rate, such as 20MB/s
    """
    import importlib.util
    import json

    from forerun.core.errors import UsageError
    from forerun.core.trace.domain_traces import decoded
    from forerun.spot.measure.profile import Settings, measure

    settings = decoded("", {"model": model}, given, Settings, name="measure checkpoint")
    if model == "torch" and importlib.util.find_spec("torch") is None:
        raise UsageError.at(
            "--model", "torch is not installed: pip install 'forerun[torch]', or take --model numpy"
        )
    if out is not None and out.suffix not in (".yaml", ".yml"):
        raise UsageError.at(str(out), "a profile ends in .yaml or .yml")
    progress = (lambda message: None) if output.silent else (lambda message: click.echo(message, err=True))
    profile = measure(settings.work(), steps=settings.steps, restarts=settings.restarts, progress=progress)
    if out is not None:
        from forerun.core.trace.domain_traces import save_description

        timed = [f"{name}: {t.mean_s:.4g} s +- {t.std_s:.2g}, {t.count} times" for name, t in profile.rows()]
        save_description(
            {"job": profile.job()},
            out,
            comments=[
                f"measured: {model}, {settings.parameters} parameters",
                *filter(None, [profile.stopped]),
                *timed,
            ],
        )
    if output.as_json:
        click.echo(json.dumps(profile.data(), indent=2))
    else:
        _show(profile)
    if profile.stopped:
        where = f"; what was measured is saved to {out}" if out is not None else ""
        click.echo(f"forerun: interrupted: {profile.stopped}{where}", err=True)
        raise click.exceptions.Exit(130)
    if out is not None and not output.as_json:
        click.echo(f"{out}: the job section of a scenario")


def _show(profile: Profile) -> None:
    """Print the profile."""
    for name, timing in profile.rows():
        click.echo(f"  {name:<10} {timing.mean_s:>9.4f} s  +- {timing.std_s:.4f}  ({timing.count} times)")
    if not profile.quiet:
        click.echo(
            "note: the machine was busy (load average above twice the cores); measure again when it is quiet"
        )
