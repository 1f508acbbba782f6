"""`forerun study`: run many variations of one scenario; each is stored when done, so a study can be resumed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Output

if TYPE_CHECKING:
    from forerun.core.study.ranking import RankedSetting, SavedStudy
    from forerun.core.study.run import Progress
    from forerun.core.study.summary import Point


@click.command(name="study")
@click.argument("study", type=_options.PATH, metavar="STUDY")
@click.option(
    "--store", type=_options.PATH, help="Store [default: STUDY with .sqlite, in the current folder]."
)
@click.option(
    "--workers", "-j", type=click.IntRange(min=1), metavar="N",
    help="Processes [default: 1], or concurrent chunks on Ray [default: its cores].",
)  # fmt: skip
@click.option("--executor", type=click.Choice(["processes", "ray"]), default="processes", show_default=True)
@click.option("--address", default="", help="Address of the Ray cluster, or 'local'.")
@click.option(
    "--limit",
    "limit_s",
    default=0.0,
    type=_options.Number(min=0),
    help="Time limit of a cell in seconds; 0: none.",
)
@click.option("--retry", is_flag=True, help="Run failed cells again.")
@_options.path_option(
    "--salvage", metavar="DAMAGED", help="First recover what can be read from a damaged store."
)
@click.option(
    "--objective",
    default="",
    metavar="METRIC[:higher|:lower]",
    help="Metric to rank by [default: the file's, else the domain's].",
)
@_options.out_option("TABLE", "Also write the cells to a .csv or .parquet file.")
@_options.output_options
def command(
    study: Path, store: Path | None, workers: int | None, executor: str, address: str, limit_s: float, retry: bool,
    salvage: Path | None, objective: str, out: Path | None, output: Output,
) -> None:  # fmt: skip
    """Run every cell of STUDY that is not in its store yet, then rank the combinations, with confidence intervals.

    Killed or interrupted at any instant, the same command goes on where it stopped.
    """
    from forerun.core.errors import UsageError
    from forerun.core.study.executors.interrupts import Terminated, terminable
    from forerun.core.study.store import salvage as salvage_store
    from forerun.core.study.stored import executor_of, run_study, store_path

    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise UsageError.at(f"-o {out}", "name a table that ends in .csv or .parquet")
    path = store_path(study, store or "")
    cells = executor_of(executor, workers, address=address, limit_s=limit_s)
    if salvage is not None:
        click.echo(f"recovered {salvage_store(salvage, path):,} cells of {salvage} in {path}", err=True)
    reached: list[Progress] = []
    try:
        with terminable(), _bar(output.silent, reached, getattr(cells, "workers", 0) or 1) as progress:
            saved = run_study(
                study, store=path, executor=cells, retry=retry, objective=objective, progress=progress
            )
    except KeyboardInterrupt as end:
        asked = isinstance(end, Terminated)
        how = "ended by SIGTERM" if asked else "interrupted"
        click.echo(
            f"forerun: {how}; {_how_far(reached, path)}; the same command goes on from there", err=True
        )
        raise click.exceptions.Exit(143 if asked else 130) from None
    if out is not None:
        _write_cells(path, out)
    if output.as_json:
        _show.print_json(_data(saved))
        return
    _print(saved)
    output.hint(f"saved to {path}{'' if out is None else f'; its cells in {out}'}")
    output.hint(f"next: forerun report {path} -o {path.stem}.html")


def _print(study: SavedStudy) -> None:
    """Print the ranked table, the sentence that answers, and what failed.

    Parameters
    ----------
    study : finished or not. At most 40 combinations and five reasons of failures are printed.
    """
    from forerun.core.result.numbers import format_number
    from forerun.core.study.ranking import ranking_of

    ranking = ranking_of(study)
    best_columns, bests = ranking.best_choices
    if bests:
        given = " and ".join(study.plan.labels[at] for at in study.given)
        _show.print_table(
            best_columns,
            bests,
            title=f"The best choice for each {given}",
            about=f"{given}: given, not chosen; a row: a setting of it, its best choice (several: alike) and that "
            "choice's mean; next: the best of the others; significant: other choices that differ from it significantly",
        )
        click.echo()
    columns, rows = ranking.table()
    _show.print_table(
        columns,
        rows,
        title=f"Combinations of {', '.join(study.plan.labels[at] for at in study.plan.varied) or 'one setting'}"
        + (f", best {study.objective.title} first" if study.objective is not None and rows else ""),
        about=_columns_about(study, compared=ranking.compared),
        chosen=0 if study.objective is not None and rows and not study.given else None,
    )
    if ranking.left:
        click.echo(f"and {ranking.left:,} of {len(study.points):,} combinations more")
    click.echo()
    if ranking.why:
        _show.prose(f"why: {ranking.why}")
    for effect in ranking.effects if len(study.plan.varied) > 1 else ():
        best, worst = (
            f"{value} (mean {format_number(mean)})"
            for value, mean in ((effect.best, effect.best_mean), (effect.worst, effect.worst_mean))
        )
        where = f"{effect.wins:,} of {effect.settings:,} settings of the other axes"
        _show.prose(
            f"{effect.axis}: {best} is best or level with the best at {where}, {worst} is worst on average"
        )
    _warn(study)
    for reason, count in list(study.reasons.items())[:5]:
        _show.prose(
            f"failed: {count:,} of {len(study.plan):,} cells: {reason} (such as {study.failures[reason][0]})"
        )
    if study.failed:
        click.echo("--retry does failed cells again")


def _columns_about(study: SavedStudy, *, compared: bool) -> str:
    """One line that explains the columns of the ranking. compared: whether one compares each with the best."""
    lines = [f"a row: a combination, means over {study.over}"]
    if study.plan.independent > 1 and any(point.intervals for point in study.points):
        lines.append(f"±: the {study.confidence:.0%} interval over {study.over} ({study.method})")
    if compared:
        lines.append("against the best: the paired difference")
    return "; ".join(lines)


def _warn(study: SavedStudy) -> None:
    """Print what to know of means and intervals, and the metrics that the file names but no cell has."""
    from forerun.core.errors import suggestion

    for caution in study.cautions:
        _show.prose(f"note: {caution}")
    for name in study.plan.metrics:
        if name not in study.metrics:
            hint = suggestion(name, study.metrics).strip()
            _show.prose(f"note: no cell has the metric {name!r}{'; ' + hint if hint else ''}")


def _data(study: SavedStudy) -> dict[str, object]:
    """The study as plain data, for `--json`."""
    objective = study.objective
    settings = study.settings() if objective and (study.choices or not study.given) else []
    return {
        "study": study.id,
        "cells": len(study.plan),
        "done": study.done,
        "failed": study.failed,
        "reasons": study.reasons,
        "objective": f"{objective.key}:{objective.better}" if objective else None,
        "given": [study.plan.axes[at][0] for at in study.given],
        "best": _values(study, settings[0].ranked[0]) if settings and not study.given else None,
        "settings": [_setting(study, setting) for setting in settings] if study.given else [],
        "why": study.why(),
        "notes": study.cautions,
        "points": [{"values": _values(study, point), **_figures(point)} for point in study.points],
    }


def _setting(study: SavedStudy, setting: RankedSetting) -> dict[str, object]:
    """The best choice at one setting of the given axes, and how many others differ significantly from it.

    Parameters
    ----------
    study : to which it belongs.
    setting : values of the given axes, and the choices at them, best first.
    """
    best, *others = setting.ranked
    given = {study.plan.axes[at][0]: value for at, value in zip(study.given, setting.values)}
    chosen = {name: value for name, value in _values(study, best).items() if name not in given}
    known = [one for one in setting.significant.values() if one is not None]
    significant = sum(known) if known else None
    return {
        "given": given,
        "best": chosen,
        **_figures(best),
        "others": len(others),
        "significant": significant,
    }


def _values(study: SavedStudy, point: Point) -> dict[str, object]:
    """The value of each axis at a combination."""
    return dict(zip((name for name, _ in study.plan.axes), point.values))


def _figures(point: Point) -> dict[str, object]:
    """The means and intervals of a combination, and how many seeds and failed cells it has."""
    intervals = {name: [interval.low, interval.high] for name, interval in point.intervals.items()}
    return {"seeds": point.seeds, "failed": point.failed, "means": point.means, "intervals": intervals}


def _write_cells(store: Path, out: Path) -> None:
    """Write every cell as a row of a .csv or .parquet file.

    Parameters
    ----------
    store : of the study.
    out : the file; its suffix chooses the format.

    Raises
    ------
    StoreError : the store cannot be read, or the file not written.
    """
    from forerun.core.atomic_write import write_file
    from forerun.core.study.store import Store
    from forerun.core.study.summary import cells_table

    with Store(store) as opened:
        table = cells_table(opened.stored_plan(), opened.outcomes())
    write_file(out, table.write_csv if out.suffix == ".csv" else table.write_parquet)


@contextmanager
def _bar(quiet: bool, reached: list[Progress], workers: int = 1) -> Iterator[Callable[[Progress], None]]:
    """A progress bar with the time left on stderr; a line now and then where that is no terminal.

    Parameters
    ----------
    quiet : show nothing.
    reached : keeps the last state, also when quiet.
    workers : processes that share the work, for the estimate of the time left (default: 1).
    """

    def keep(state: Progress) -> None:
        reached[:] = [state]

    if quiet:
        yield keep
        return
    from forerun.core.study.estimate import Estimate

    estimate = Estimate(workers)
    if not sys.stderr.isatty():
        show = _show.now_and_then(lambda message: click.echo(message, err=True))

        def tell(state: Progress) -> None:
            keep(state)
            finished = state.done + state.failed
            estimate.see(finished)
            left = estimate.left(state.total)
            show(f"{finished:,} of {state.total:,} cells{f', about {left} left' if left else ''}")

        yield tell
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("left {task.fields[left]}"),
    )  # fmt: skip
    console = _show.terminal(stderr=True)
    with _show.alive(console), RichProgress(*columns, console=console) as bar:

        def advance(state: Progress) -> None:
            keep(state)
            finished = state.done + state.failed
            if not bar.tasks:
                # What an earlier run did is no sign of how fast this one is.
                bar.add_task("cells", total=state.total, completed=finished, left="")
            estimate.see(finished)
            label = f"cells ({state.failed:,} failed)" if state.failed else "cells"
            bar.update(
                bar.tasks[0].id, completed=finished, description=label, left=estimate.left(state.total)
            )

        yield advance


def _how_far(reached: list[Progress], path: Path) -> str:
    """How many cells are in the store, for the message of an interrupted study."""
    if not reached:
        return "no cell was done"
    state = reached[-1]
    failed = f" ({state.failed:,} of them failed)" if state.failed else ""
    return f"{state.done + state.failed:,} of {state.total:,} cells{failed} are in {path}"
