"""`forerun explain`: why a run came out as it did, and the smallest change that would turn the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from forerun.cli import _options, _show

if TYPE_CHECKING:
    from forerun.study.ties import Ties, Untied


@click.command(name="explain")
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "--ties",
    "orders",
    default=0,
    type=click.IntRange(min=0),
    metavar="N",
    help="Also simulate N other orders of same-instant events, and tell which figures move.",
)
@_options.json_option
@_options.quiet_option
def command(run: Path, orders: int, as_json: bool, quiet: bool) -> None:
    """Explain RUN (a run directory): dominant causes, what binds, and what would turn the answer."""
    from dataclasses import asdict

    from forerun.domains.explaining import explain_run, ties_of
    from forerun.result.run import load_result

    found = load_result(run)
    with _show.working("turning the levers", quiet=quiet or as_json):
        explanation = explain_run(found)
    with _show.working("trying other orders", quiet=quiet or as_json):
        ties = ties_of(found, orders) if orders else None
    if as_json:
        told = {"ties": asdict(ties) if ties is not None else None} if orders else {}
        _show.print_json(_show.plain({**asdict(explanation), **told}))
        return
    if explanation.answer is not None:
        click.echo(f"{explanation.answer.question} {'Yes.' if explanation.answer.holds else 'No.'}")
    click.echo(f"why: {explanation.binds}\n")
    causes = [(ledger, part, f"{share:.1%}") for ledger, part, share in explanation.causes]
    _show.print_table(("of", "most went to", "share"), causes)
    if explanation.turns:
        click.echo()
        rows = [
            (
                turn.lever.meaning or turn.lever.path,
                _text(turn.lever.present),
                "nothing tried turns it" if turn.value is None else _text(turn.value),
                turn.tried,
            )
            for turn in explanation.turns
        ]
        _show.print_table(("what to change", "now", "turns the answer at", "values tried"), rows)
    if ties is not None:
        _print_ties(ties)
    best = next((turn for turn in explanation.turns if turn.value is not None), None)
    if best is not None and not quiet:
        click.echo(
            f"\nnext: forerun simulate {run / 'scenario.json'} --set {best.lever.path}={_text(best.value)}"
        )


def _print_ties(ties: Ties | Untied | None) -> None:
    """The figures that hang on the order of what happens at one instant."""
    from forerun.study.ties import Ties

    if ties is None:
        return
    click.echo()
    if not isinstance(ties, Ties):
        click.echo(f"ties: no other order to try: {ties.why}")
        return
    click.echo(f"orders tried: {ties.what}")
    if not ties.moved:
        click.echo(
            f"ties: none of {ties.figures} figures moves under {ties.orders} other orders of same-instant events"
        )
        return
    click.echo(
        f"ties: {len(ties.moved)} of {ties.figures} figures move under {ties.orders} other orders of same-instant events"
    )
    rows = [(one.figure, one.given, one.low, one.high, f"{one.share:.2%}") for one in ties.moved]
    _show.print_table(("figure", "as simulated", "lowest", "highest", "moves by"), rows)


def _text(value: object) -> str:
    from forerun.result.run import format_number

    return format_number(value)
