"""`forerun study`: many variations of one scenario, kept as they are done, resumed where they stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forerun.cli import _options, _show

if TYPE_CHECKING:
    from forerun.study.executors import Executor
    from forerun.study.run import Progress
    from forerun.study.summary import Point


@click.command(name="study")
@click.argument("study", type=click.Path(path_type=Path), metavar="STUDY")
@click.option(
    "--store", type=click.Path(path_type=Path), help="The store [default: STUDY with .sqlite, beside you]."
)
@click.option("--workers", "-j", default=1, show_default=True, type=click.IntRange(min=1), help="Processes.")
@click.option("--executor", type=click.Choice(["processes", "ray"]), default="processes", show_default=True)
@click.option("--address", default="", help="The Ray cluster's address, or 'local'.")
@click.option(
    "--limit", "limit_s", default=0.0, type=click.FloatRange(min=0), help="Seconds a cell may take; 0: any."
)
@click.option("--retry", is_flag=True, help="Do failed cells again.")
@click.option(
    "--salvage",
    type=click.Path(path_type=Path),
    metavar="DAMAGED",
    help="First keep what can be read of a damaged store.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="TABLE",
    help="Also write the cells as .csv or .parquet.",
)
@_options.json_option
@_options.quiet_option
def command(
    study: Path, store: Path | None, workers: int, executor: str, address: str, limit_s: float, retry: bool,
    salvage: Path | None, out: Path | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Run every cell of STUDY that its store does not hold yet, then show each combination with its interval."""
    from forerun.study.expand import load_study
    from forerun.study.run import run_study
    from forerun.study.store import Store
    from forerun.study.store import salvage as salvage_store
    from forerun.study.summary import cells_table, points

    plan = load_study(study)
    path = store or Path(study.stem + ".sqlite")
    if salvage is not None:
        click.echo(f"kept {salvage_store(salvage, path)} cells of {salvage} in {path}", err=True)
    with _bar(quiet or as_json) as progress:
        state = run_study(
            plan, path, _executor(executor, workers, address, limit_s), retry=retry, progress=progress
        )
    with Store(path, plan) as opened:
        outcomes = list(opened.outcomes())
    table = cells_table(plan, outcomes)
    if out is not None:
        (table.write_csv if out.suffix == ".csv" else table.write_parquet)(out)
    found = points(plan, outcomes)
    if as_json:
        names = [name for name, _ in plan.axes]
        _show.print_json(
            _show.plain([{"values": dict(zip(names, point.values)), **_figures(point)} for point in found])
        )
        return
    metrics = plan.metrics or tuple(dict.fromkeys(name for point in found for name in point.means))[:4]
    columns = [
        *(name for name, _ in plan.axes),
        "seeds",
        *(text for name in metrics for text in (name, "95 % interval")),
    ]
    rows = [
        [*map(_cell_text, point.values), point.seeds,
         *(text for name in metrics for text in (point.means.get(name), _show.span(point.intervals.get(name))))]
        for point in found
    ]  # fmt: skip
    _show.print_table(columns, rows)
    if state.failed:
        reasons = sorted(
            {
                line
                for reason in table["reason"]
                for line in [str(reason).splitlines()[0] if reason else ""]
                if line
            }
        )
        click.echo(
            f"{state.failed} of {state.total} cells failed: {'; '.join(reasons[:3])} (again with --retry)"
        )
    if not quiet:
        click.echo(f"kept in {path}; next: forerun study {study} -o cells.csv")


def _figures(point: Point) -> dict[str, object]:
    intervals = {name: [interval.low, interval.high] for name, interval in point.intervals.items()}
    return {"seeds": point.seeds, "failed": point.failed, "means": point.means, "intervals": intervals}


def _executor(kind: str, workers: int, address: str, limit_s: float) -> Executor:
    from forerun.study.executors import Here
    from forerun.study.executors.processes import Processes

    if kind == "ray":
        from forerun.study.executors.ray import OnRay

        return OnRay(address)
    return Processes(workers, limit_s=limit_s) if workers > 1 or limit_s else Here()


@contextmanager
def _bar(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A progress bar with the time left on stderr; plain silence when quiet or not at a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _state: None
        return
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import TimeElapsedColumn, TimeRemainingColumn

    with RichProgress(*RichProgress.get_default_columns(), TimeElapsedColumn(), TimeRemainingColumn(),
                      console=Console(stderr=True)) as bar:  # fmt: skip
        line = bar.add_task("cells")

        def show(state: Progress) -> None:
            bar.update(line, total=state.total, completed=state.done + state.failed)

        yield show


def _cell_text(value: object) -> str | int | float:
    return value if isinstance(value, (str, int, float)) else str(value)
