"""`forerun bound`: how good any policy could be on a scenario, proved, and a schedule that comes near it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forerun.core.cli import INTERRUPTED_CODE, _options, _show
from forerun.core.cli._options import Asked, Output

if TYPE_CHECKING:
    from forerun.core.result.bound import Bracket


@click.command(name="bound")
@_options.scenario_options
@click.option(
    "--objective", default="", metavar="NAME", help="deadlines (default), mean, makespan or slowdown."
)
@click.option("--gpus", type=_options.COUNTS, default=(), help="Numbers of GPUs, instead of the cluster's.")
@_options.path_option(
    "--certificate", metavar="FILE", help="Save the proof; forerun check verifies it.", default=None
)
@_options.out_option("FILE", "Save the bounds, for reports.")
@_options.path_option("--report", "page", metavar="PAGE", help="Also write an HTML page.")
def command(
    asked: Asked,
    output: Output,
    objective: str,
    gpus: tuple[int, ...],
    certificate: Path | None,
    out: Path | None,
    page: Path | None,
) -> int:
    """Bound SCENARIO: what no scheduler can exceed, and a schedule that comes near it.

    Ctrl-C prints the best bound and the best schedule so far (exit code 130).
    """
    from forerun.cluster.bound.document import DOCUMENT, content_of
    from forerun.core.errors import InputError, UsageError
    from forerun.core.result.plan import write_document
    from forerun.core.scenario.resolve import located

    resolved = asked.load()
    best: list[Bracket] = []
    stopped = False
    with output.working(f"bounding {asked.path.name}") as state:
        try:
            for count in gpus or (0,):
                _closer(resolved, objective, count, best, state)
        except KeyboardInterrupt:
            stopped = True
        except InputError as error:
            raise located(error, asked.path) from error
    if stopped and not best:
        raise KeyboardInterrupt
    if certificate is not None:
        if len(best) != 1 or best[0].certificate is None:
            notes = [note for one in best for note in one.notes if note.startswith("no certificate")]
            why = notes[0] if notes else "a certificate is about the scenario's own cluster; leave --gpus out"
            raise UsageError.at("--certificate", why)
        _write(best[0], certificate)
    content = content_of(best, resolved)
    if out is not None:
        write_document(content, out)
    if page is not None:
        from forerun.core.report import write_page

        with output.working("drawing the page"):
            write_page([DOCUMENT.read((out or asked.path).stem, content)], page)
    if output.as_json:
        _show.print_json({"complete": not stopped, "brackets": [one.data() for one in best]})
        return INTERRUPTED_CODE if stopped else 0
    _print(best)
    if stopped:
        _show.prose("note: interrupted; more time may bring both closer")
    for path in (out, page):
        if path is not None:
            _show.prose(f"saved to {path}")
    if certificate is not None:
        output.hint(f"saved to {certificate}; next: forerun check {certificate} --scenario {asked.path}")
    return INTERRUPTED_CODE if stopped else 0


def _closer(
    scenario: Any, objective: str, gpus: int, best: list[Bracket], state: Callable[[str], None]
) -> None:
    """Add the best bracket for a number of GPUs, replaced by better ones while they come."""
    from forerun.core.planning import bounds
    from forerun.core.result.numbers import format_number

    known = len(best)
    for bracket in bounds(scenario, objective, gpus=gpus):
        best[known:] = [bracket]
        ends = sorted(end for end in (bracket.reached, bracket.bound) if end is not None)
        state(f"{bracket.gpus} GPUs: [{', '.join(map(format_number, ends))}]")


def _write(bracket: Bracket, path: Path) -> None:
    import json

    from forerun.core.atomic_write import write_text

    write_text(path, json.dumps(bracket.certificate, indent=1) + "\n")


def _print(best: list[Bracket]) -> None:
    """The table, the reason, and the notes."""
    from forerun.core.result.numbers import capital, whole
    from forerun.core.units import readable_unit, split_name

    first = best[0]
    label, unit = split_name(first.figure)
    most = "at most" if first.better == "higher" else "at least"
    _show.print_table(
        ("GPUs", "jobs", "a schedule reaches", f"{most}, by any scheduler"),
        [(one.gpus, one.jobs, whole(one.reached), whole(one.bound)) for one in best],
        title=capital(first.title),
        about=f"{label} ({readable_unit(unit)})" if unit else label,
    )
    _show.prose(f"\nwhy: {first.why}")
    for note in first.notes:
        _show.prose(f"note: {note}")
