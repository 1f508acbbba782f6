"""`forerun explain RUN --job ID`: why one job waited, who had the GPUs meanwhile, and what would have changed it; also of a
replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from forerun.core.cli import _show
from forerun.core.cli._options import Output
from forerun.core.cli._progress import counted

if TYPE_CHECKING:
    from forerun.core.result.document import ExplainedJob
    from forerun.core.result.run import SavedRun

#: rows of a table above which the rest is left to --json and the page
MOST_ROWS: Final = 20


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
    from forerun.core.domain import domain_names, get_domain
    from forerun.core.errors import UsageError
    from forerun.core.scenario.spec import override

    explain_job = get_domain(run.domain).job_explainer
    if explain_job is None:
        able = ", ".join(name for name in domain_names() if get_domain(name).job_explainer is not None)
        raise UsageError.at("--job", f"is not available for the {run.domain} domain; it is for {able}")
    with output.working(f"explaining job {job}") as show:
        explained = explain_job(run, job, workers=workers, progress=counted(workers, output, show))
    if not _shown(explained, page, output):
        return
    for note in explained.page.notes:
        _show.prose(note)
    if page is not None:
        output.hint(f"saved to {page}")
    if explained.changes and not output.quiet:
        changes = [override(path, value) for path, value in explained.changes]
        asked = _show.as_asked(run.folder / "scenario.json", changes)
        _show.prose(f"\nnext: forerun simulate {asked}")


def explain_stored(file: Path, job: str | None, page: Path | None, output: Output) -> None:
    """Explain one job of a file.

    Parameters
    ----------
    file : such as a kept replay.
    job : its id; None: not said, which is an error.
    page : where to write a page; None: none.
    output : how to print.
    """
    from forerun.core.documents import JobDocument, announced
    from forerun.core.errors import UsageError
    from forerun.core.result.reading import read_document
    from forerun.core.slices import documents

    found = map(announced, documents())
    if job is None or not (able := {one.format: one for one in found if isinstance(one, JobDocument)}):
        what = (
            "is a file, not a run directory (`forerun simulate -o` writes one): give a run directory, or --job ID for a job "
            "of a kept replay"
        )
        raise UsageError.at(str(file), what)
    content = read_document(file)
    # A file of another format goes to the first, which says what it expects.
    owner = able.get(str(content.get("format"))) or next(iter(able.values()))
    with output.working(f"replaying {file.name}") as state:
        explained = owner.explain_job(content, file, job, state)
    if not _shown(explained, page, output):
        return
    click.echo()
    for note in explained.page.notes:
        _show.prose(f"note: {note}")
    if page is not None:
        output.hint(f"saved to {page}")


def _shown(explained: ExplainedJob, page: Path | None, output: Output) -> bool:
    """Draw the page, then print the answer and the tables; False: printed as JSON, which is all."""
    if page is not None:
        from forerun.core.report import write_page

        with output.working("drawing the page"):
            write_page([explained.page], page)
    if output.as_json:
        _show.print_json(explained.data)
        return False
    _show.prose(f"why: {explained.page.answer}")
    for rows, title, about in explained.tables:
        if len(rows) > MOST_ROWS:
            about += f"; the first {MOST_ROWS} of {len(rows)} rows (--json has all)"
        click.echo()
        _show.print_rows(rows[:MOST_ROWS], title=title, about=about)
    return True
