"""`forerun explain REPLAY --job ID`: why one job of a replayed log waited, and what would have changed its start."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from forerun.cli import _show
from forerun.cli._history import kept_replay
from forerun.cli._job import print_rows
from forerun.cli._options import Output

#: title and explanation of each table
_TABLES: Final = {
    "life": ("What happened to it", "after: since its submission"),
    "causes": ("What it waited for in the replay", "the parts sum to its wait"),
    "waits": (
        "Every stretch in which it waited",
        "as it began: nodes that were free, jobs before it in the queue whom no limit kept waiting, and the first of them",
    ),
    "holders": (
        "Who had the nodes while others kept it waiting",
        "of the pool: of all its nodes in that time",
    ),
    "users": ("The same by user", "of the pool: of all its nodes in that time"),
    "changes": (
        "What would have changed its start, each replayed alone",
        "after: since its submission as it was; all else as it was, and other jobs held as they were",
    ),
}


def explain_replayed(kept: Path, job: str | None, page: Path | None, output: Output) -> None:
    """Explain one job of a kept replay.

    Parameters
    ----------
    kept : the file of the replay.
    job : its id in the log; None: not said, which is an error.
    page : where to write a page; None: none.
    output : how to print.
    """
    from forerun.domains.cluster.replay.explain import explain_job
    from forerun.errors import UsageError
    from forerun.result.reading import read_document

    if job is None:
        what = (
            "is a file, not a run directory (`forerun simulate -o` writes one): give a run directory, or --job ID for a job "
            "of a kept replay"
        )
        raise UsageError.at(str(kept), what)
    content = read_document(kept)
    with output.working(f"replaying {kept.name}") as state:
        made = kept_replay(kept, content)
        story = explain_job(made, job, progress=state)
    if page is not None:
        from forerun.report import write_page
        from forerun.report.stored import replayed_job_document

        with output.working("drawing the page"):
            write_page([replayed_job_document(story, made.log.origin_s, kept.stem)], page)
    if output.as_json:
        _show.print_json(story.data(made.log.origin_s))
        return
    _show.prose(f"why: {story.why}")
    for name, rows in story.shown(made.log.origin_s).items():
        if rows:
            print_rows(rows, *_TABLES[name])
    click.echo()
    for note in story.notes:
        _show.prose(f"note: {note}")
    if page is not None:
        output.hint(f"saved to {page}")
