"""`forerun demo`: answer one question per domain on embedded data and write a page."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output


@click.command(name="demo")
@click.argument("names", metavar="[DOMAIN]...", nargs=-1)
@_options.output_options
@_options.out_option("PAGE", "Page to write.", default=Path("forerun-demo.html"), show_default=True)
def command(names: tuple[str, ...], output: Output, out: Path) -> None:
    """Answer one question per DOMAIN, or wing of one (default: all domains), offline, with data included in forerun."""
    from forerun.core.catalog import Demo, demos, run_demos
    from forerun.core.documents import stored_plan
    from forerun.core.report import write_page
    from forerun.core.result.run import Result
    from forerun.core.scenarios import load

    done = 0
    count = len(set(names)) or len(demos())

    def watch(entry: Demo) -> None:
        nonlocal done
        done += 1
        if not output.silent:
            _show.say(f"{done} of {count}: the {entry.domain} demonstration is done")

    doing = "simulating (the first run of each compiles its kernels, which takes a minute or more)"
    with output.working(doing):
        if not output.silent and not sys.stderr.isatty():
            _show.say(doing)
        simulated = run_demos(names, workers=os.cpu_count() or 1, progress=watch)
    results = [result for _, result in simulated]
    for entry, result in simulated if not output.as_json else ():
        click.secho(f"{entry.domain}: {entry.question}", bold=not os.environ.get("NO_COLOR") or None)
        if isinstance(result, Result):
            _show.print_result(result, scenario=str(entry.scenario), quiet=True)
        else:
            _show.print_plan(result)
        click.echo()
    with output.working("writing the page"):
        shown = [
            result
            if isinstance(result, Result)
            else stored_plan(entry.domain, result, load(entry.scenario), entry.options or {})
            for entry, result in simulated
        ]
        page = write_page(shown, out, questions=[entry.question for entry, _ in simulated])
    if output.as_json:
        _show.print_json([result.data() for result in results])
        return
    click.echo(f"the page: {page}")
    if not output.quiet:
        for entry, result in simulated:
            for step in result.next_steps[:1] if isinstance(result, Result) else ():
                click.echo(f"next: {step.format(scenario=_near(entry.scenario))}")
        click.echo(
            "next: copy a demo.yaml, put in your own trace and profiles, and run `forerun simulate` on it"
        )


def _near(path: Path) -> Path:
    """The path as seen from the current folder, where it lies below it; else the path as it is."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
