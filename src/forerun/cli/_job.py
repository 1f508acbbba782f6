"""`forerun explain RUN --job ID`: why one job waited, who had the GPUs meanwhile, and what would have changed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.cli import _show
from forerun.cli._options import Output
from forerun.cli._progress import counted

if TYPE_CHECKING:
    from forerun.result.job import JobExplanation
    from forerun.result.run import SavedRun

#: rows of a table above which the rest is left to --json and the page
MOST_ROWS: Final = 20
#: title and explanation of each table
_TABLES: Final = {
    "life": ("What happened to it", "GPUs and nodes: from then on"),
    "waits": (
        "Every stretch in which it waited",
        "in use, free: means over the stretch; most of it: the jobs that had most GPU-seconds then",
    ),
    "ahead": (
        "Who had the GPUs while it waited",
        "share: of all GPU time in use then; most GPUs: at once; came: how it came to be ahead",
    ),
    "time": ("Where its time went", "the parts sum to its time from submission to end, or to its refusal"),
    "changes": (
        "What would have changed it, each simulated alone",
        "deadline: by how much it ends before (+) or after (-) it; others: deadlines met by all other jobs, and their mean "
        "completion time, with the change",
    ),
}


def explain_one(run: SavedRun, job: str, page: Path | None, workers: int, output: Output) -> None:
    """Explain one job of a run.

    Parameters
    ----------
    run : as it was saved.
    job : its name.
    page : where to write a page; None: none.
    workers : processes that simulate.
    output : how to print.
    """
    from forerun.scenario.spec import override
    from forerun.study.explain_job import explain_job

    with output.working(f"explaining job {job}") as show:
        explained = explain_job(run, job, workers=workers, progress=counted(workers, output, show))
    if page is not None:
        with output.working("drawing the page"):
            _draw(explained, page, run.folder.name)
    if output.as_json:
        _show.print_json(explained.data())
        return
    _show.prose(f"why: {explained.story.why}")
    for name, rows in explained.shown().items():
        if rows:
            print_rows(rows, *_TABLES[name])
    for one in explained.tried:
        if one.why_not:
            _show.prose(f"{one.what}: {one.why_not}")
    if page is not None:
        output.hint(f"saved to {page}")
    best = explained.best
    if best is not None and not output.quiet:
        changes = [override(path, value) for path, value in best.changes]
        asked = _show.as_asked(run.folder / "scenario.json", changes)
        _show.prose(f"\nnext: forerun simulate {asked}")


def _draw(explained: JobExplanation, page: Path, run: str) -> None:
    from forerun.report import write_page
    from forerun.report.stored import job_document

    write_page([job_document(explained, run)], page)


def print_rows(rows: Sequence[Mapping[str, Any]], title: str, about: str) -> None:
    """Print a table of one job; of a long one the first rows. rows: of the same keys, which carry units."""
    from forerun.units import readable_unit, split_name

    columns = list(rows[0])
    heads = [
        f"{label} ({readable_unit(unit)})" if unit else label for label, unit in map(split_name, columns)
    ]
    if len(rows) > MOST_ROWS:
        about += f"; the first {MOST_ROWS} of {len(rows)} rows (--json has all)"
    click.echo()
    _show.print_table(
        heads,
        [[row[column] for column in columns] for row in rows[:MOST_ROWS]],
        title=title,
        about=about,
    )
