"""`forerun explain`: why a run came out as it did, and the smallest change that would turn the answer."""

from __future__ import annotations

from pathlib import Path

import click

from forerun.cli import _options, _show


@click.command(name="explain")
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@_options.json_option
@_options.quiet_option
def command(run: Path, as_json: bool, quiet: bool) -> None:
    """Explain RUN (a run directory): dominant causes, what binds, and what would turn the answer."""
    from dataclasses import asdict

    from forerun.domains.explaining import explain_run
    from forerun.result.run import load_result

    found = load_result(run)
    with _show.working("turning the levers", quiet=quiet or as_json):
        explanation = explain_run(found)
    if as_json:
        _show.print_json(_show.plain(asdict(explanation)))
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
    best = next((turn for turn in explanation.turns if turn.value is not None), None)
    if best is not None and not quiet:
        click.echo(
            f"\nnext: forerun simulate {run / 'scenario.json'} --set {best.lever.path}={_text(best.value)}"
        )


def _text(value: object) -> str:
    from forerun.result.run import format_number

    return format_number(value)
