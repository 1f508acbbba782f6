"""`forerun explain`: why a run has its result, and the smallest change that would change the answer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._job import explain_one, explain_stored
from forerun.core.cli._options import Output
from forerun.core.cli._progress import counted
from forerun.core.result.numbers import format_number, signed

if TYPE_CHECKING:
    from forerun.core.domain import Program, Untied
    from forerun.core.study.explain import Effect, Explanation
    from forerun.core.study.gap import Gap
    from forerun.core.study.ties import Ties


@click.command(name="explain")
@click.argument("run", type=_options.PATH, metavar="RUN|REPLAY")
@click.option(
    "--ties",
    "orders",
    default=0,
    type=click.IntRange(min=0),
    metavar="N",
    help="Also simulate N other orders of simultaneous events, and list the figures that change.",
)
@click.option(
    "--bound",
    is_flag=True,
    help="Also bound the best possible, and simulate what separates the run from it.",
)
@click.option(
    "--job",
    metavar="ID",
    help="Explain one job instead: its waits, who had the GPUs meanwhile, and what would have changed them.",
)
@_options.path_option("--report", "page", metavar="PAGE", help="With --job: also write an HTML page.")
@_options.workers_option
@_options.output_options
@_options.decider_options
def command(
    run: Path,
    orders: int,
    bound: bool,
    job: str | None,
    page: Path | None,
    workers: int,
    output: Output,
    decider: Program | None,
) -> None:
    """Explain RUN (a run directory): dominant causes, the binding constraint, and what would change the answer.

    With --job also a job of REPLAY, a file that `forerun replay LOG -o REPLAY` kept.
    """
    from dataclasses import asdict

    from forerun.core.domain import get_domain
    from forerun.core.errors import UsageError
    from forerun.core.result.run import load_result
    from forerun.core.scenario.spec import override
    from forerun.core.study.best import bounder_of
    from forerun.core.study.explain import explain
    from forerun.core.study.gap import gap_of
    from forerun.core.study.ties import ties_of

    if job is not None and (orders or bound):
        raise UsageError.at("--job", "explains one job; leave --ties and --bound out")
    if job is None and page is not None:
        raise UsageError.at("--report", "is for one job: give --job ID (forerun report draws a run)")
    if page is not None and page.is_dir():  # before the simulations
        raise UsageError.at("--report", f"{page} is a directory; name the page, for example job.html in it")
    if run.is_file():
        explain_stored(run, job, page, output)
        return
    loaded = load_result(run)
    if decider is not None:
        loaded = get_domain(loaded.domain).decided_again(loaded, decider)
    if job is not None:
        explain_one(loaded, job, page, workers, output)
        return
    if bound:
        bounder_of(loaded.domain)  # before hours of simulations
    with output.working("trying what-if parameters") as show:
        explanation = explain(loaded, workers=workers, progress=counted(workers, output, show))
    with output.working("trying other orders") as show:
        ties = ties_of(loaded, orders, progress=show) if orders else None
    with output.working("bounding the best possible") as show:
        gap = gap_of(loaded, workers=workers, progress=show) if bound else None
    if output.as_json:
        others = {"ties": asdict(ties) if ties is not None else None} if orders else {}
        others |= {"gap": asdict(gap)} if gap is not None else {}
        _show.print_json({**asdict(explanation), **others})
        return
    _print(explanation)
    if ties is not None:
        _print_ties(ties)
    if gap is not None:
        _print_gap(gap)
    best = explanation.smallest
    if best is not None and not output.quiet:
        asked = _show.as_asked(run / "scenario.json", [override(best.what_if.path, best.value)])
        _show.prose(f"\nnext: forerun simulate {asked}")


def _print(explanation: Explanation) -> None:
    """Print the answer, why, causes, what-if parameters, and the effects of named changes.

    Parameters
    ----------
    explanation : of one run; what it does not have is not printed.
    """
    if explanation.answer is not None:
        _show.prose(f"{explanation.answer.question} {'Yes.' if explanation.answer.holds else 'No.'}")
    _show.prose(f"why: {explanation.binds}")
    for reason in explanation.reasons:
        _show.prose(reason)
    click.echo()
    causes = [(ledger, part, f"{share:.1%}") for ledger, part, share in explanation.causes]
    _show.print_table(
        ("of", "most went to", "share"),
        causes,
        title="Where most of it went",
        about="of: the whole that is split; share: of that whole",
    )
    if explanation.turns:
        click.echo()
        columns, rows = explanation.rows()
        _show.print_table(
            columns,
            rows,
            title="What would turn the answer, each changed alone",
            about="now: as in this run; a change of: from now to where the answer turns; values tried: simulations",
        )
        best = explanation.smallest
        text = "no single change that was tried turns the answer"
        if best is not None:
            text = (
                f"the smallest change tried that turns the answer: {best.what_if.meaning or best.what_if.path} "
                f"from {format_number(best.what_if.present)} to {format_number(best.value)}"
            )
        _show.prose(f"\n{text}")
    for turn in explanation.turns:
        for value, reason in turn.refused[:1]:
            more = f" (and {len(turn.refused) - 1} more)" if len(turn.refused) > 1 else ""
            _show.prose(f"{turn.what_if.path}={format_number(value)} cannot be simulated: {reason}{more}")
    if explanation.effects:
        _print_effects(explanation.effects)


def _print_effects(effects: Sequence[Effect]) -> None:
    """Print the effect of each named change by itself: one table per baseline run; one line for those without effect.

    Parameters
    ----------
    effects : of named changes; one that cannot be simulated is printed with its reason.
    """
    moving = [effect for effect in effects if effect.moved]
    for given in dict.fromkeys(effect.change.given for effect in moving):
        same = [effect for effect in moving if effect.change.given == given]
        keys = list(dict.fromkeys(key for effect in same for key in effect.moved))
        rows = [(_named(effect), *(_moved(effect.figures.get(key)) for key in keys)) for effect in same]
        click.echo()
        if given:
            _show.prose(
                f"compared with a run with {', '.join(f'{path}={format_number(value)}' for path, value in given)}:"
            )
            rows.insert(0, ("(that run)", *(_unmoved(same, key) for key in keys)))
        _show.print_table(
            ("switch", *keys),
            rows,
            title="Each change alone",
            about="with the change (and the difference to the run it is compared with, where there is one)",
        )
        for effect in same:
            _show.prose(f"{_named(effect)}: {effect.change.meaning}")
        for path in dict.fromkeys(effect.change.path for effect in same):
            _print_range(path, [effect for effect in same if effect.change.path == path])
    still = [_named(effect) for effect in effects if not effect.moved and not effect.refused]
    if still:
        _show.prose(f"alone these move nothing here: {', '.join(still)}")
    for effect in effects:
        if effect.refused:
            _show.prose(f"{effect.change.path} cannot be simulated: {effect.refused}")


def _named(effect: Effect) -> str:
    """A change as it is set: `slot_s=10`."""
    return f"{effect.change.path}={format_number(effect.change.value)}"


def _print_range(path: str, effects: Sequence[Effect]) -> None:
    """Say how far a figure goes up and down over several values of one setting, if it does both.

    Parameters
    ----------
    path : of the setting.
    effects : of its values.
    """
    ranges = []
    for key in dict.fromkeys(key for effect in effects for key in effect.moved):
        pairs = [effect.figures[key] for effect in effects if key in effect.figures]
        steps = [then[1] - before[1] for before, then in itertools.pairwise(pairs)]
        if min(steps, default=0.0) < 0 < max(steps, default=0.0):
            least, most = min(map(min, pairs)), max(map(max, pairs))
            ranges.append(f"{key} ({format_number(least)} to {format_number(most)})")
    if ranges:
        _show.prose(f"{path} moves up and down: {', '.join(ranges)}; a smaller difference shows nothing")


def _unmoved(effects: Sequence[Effect], key: str) -> str:
    """A figure of the baseline run; a dash where no effect has it.

    Parameters
    ----------
    effects : with the same baseline run.
    key : name of the figure.
    """
    return next((format_number(effect.figures[key][0]) for effect in effects if key in effect.figures), "–")


def _moved(figures: tuple[float, float] | None) -> str:
    """`12.5 (+1.2)`, or only the value if it did not change.

    Parameters
    ----------
    figures : the value before and after the change; None, printed as a dash, where there is none.
    """
    if figures is None:
        return "–"
    now, then = figures
    return format_number(then) + (f" ({signed(then - now)})" if then != now else "")


def _print_gap(gap: Gap) -> None:
    """Print the way from the run to the best possible, a row for everything that is taken away."""
    from forerun.core.units import readable_unit, split_name

    label, unit = split_name(gap.figure)
    click.echo()
    rows = [(meaning, value, "" if moved is None else signed(moved)) for meaning, value, moved in gap.rows()]
    _show.print_table(
        ("what", f"{label} ({readable_unit(unit)})" if unit else label, "moves by"),
        rows,
        title="What separates it from the best possible",
        about="each row is simulated without what the rows above it took away, too; in another order each would move "
        "another amount. The rest is the price of not knowing the future, and of the policy's own rules",
    )
    for step in gap.steps:
        if step.refused:
            _show.prose(f"{step.meaning}: no figure to compare: {' '.join(step.refused.split())}")


def _print_ties(ties: Ties | Untied) -> None:
    """Print the figures that depend on the order of simultaneous events.

    Parameters
    ----------
    ties : what other orders gave, or why there is no other order to try.
    """
    from forerun.core.study.ties import Ties

    click.echo()
    if not isinstance(ties, Ties):
        _show.prose(f"ties: no other order to try: {ties.why}")
        return
    _show.prose(f"orders tried: {ties.what}")
    count = (
        f"{len(ties.moved)} of {ties.figures} figures move"
        if ties.moved
        else f"none of {ties.figures} figures moves"
    )
    _show.prose(f"ties: {count} under {ties.orders} other orders of same-instant events")
    if not ties.moved:
        return
    rows = [(one.figure, one.given, one.low, one.high, f"{one.share:.2%}") for one in ties.moved]
    _show.print_table(
        ("figure", "as simulated", "lowest", "highest", "moves by"),
        rows,
        title="Figures that depend on the order of same-instant events",
        about="lowest, highest: over the orders tried; moves by: their distance, as a share of the figure as simulated",
    )
