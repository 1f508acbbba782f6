"""`forerun compare`: compare variants of one scenario, with common random numbers."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from forerun.core.cli import _options, _show
from forerun.core.cli._options import Asked, Output

if TYPE_CHECKING:
    from forerun.core.domain import Program
    from forerun.core.study.compared import Comparison


_ABOUT_BEST: Final = (
    "; best possible: what some schedule reaches, and what no scheduler exceeds; of the best possible: "
    "the share that the variant is, which depends on where between the two the best possible lies"
)


@click.command(name="compare")
@_options.scenario_options
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="A policy to compare; repeatable.")
@click.option(
    "--with",
    "variants",
    multiple=True,
    metavar="[NAME:]A=B[,C=D]",
    help="A variant, given as overrides; repeatable.",
)
@click.option("--objective", default="", metavar="FIGURE[:higher|:lower]", help="Summary figure to rank by.")
@click.option(
    "--seeds", default=20, show_default=True, type=click.IntRange(min=1), help="Number of common seeds."
)
@click.option(
    "--precision",
    default=0.0,
    type=_options.Number(min=0),
    help="Add seeds until every interval's half-width is at most this.",
)
@click.option("--bound", is_flag=True, help="Also bound the best possible; show each variant's share of it.")
@_options.workers_option
@_options.out_option("FILE", "Save the comparison, for reports.")
@_options.path_option("--report", "page", metavar="PAGE", help="Also write an HTML page.")
@_options.decider_options
def command(
    asked: Asked,
    output: Output,
    policies: tuple[str, ...],
    variants: tuple[str, ...],
    objective: str,
    seeds: int,
    precision: float,
    bound: bool,
    workers: int,
    out: Path | None,
    page: Path | None,
    decider: Program | None,
) -> None:
    """Compare variants of SCENARIO: policies (--policy), another program (--decider) or overrides (--with).

    The first is the reference.
    """
    from forerun.core.domain import get_domain
    from forerun.core.study.compare import compare
    from forerun.core.study.compared import save_comparison
    from forerun.core.units import split_name

    resolved = asked.load()
    own = () if decider is None else (get_domain(resolved.domain).decider(resolved, decider),)
    with output.working("comparing") as progress:
        comparison = compare(
            resolved, [*policies, *own], dict(map(_variant, variants)), objective=objective, seeds=seeds,
            precision=precision, workers=workers, bound=bound, progress=progress,
        )  # fmt: skip
    if out is not None:
        save_comparison(comparison, out)
    if page is not None:
        from forerun.core.report import write_page
        from forerun.core.report.stored import StoredComparison

        with output.working("drawing the page"):
            write_page([StoredComparison((out or asked.path).stem, comparison)], page)
    if output.as_json:
        _show.print_json(asdict(comparison))
        return
    columns, rows = comparison.rows()
    unit = split_name(comparison.objective.key)[1]
    _show.print_table(
        columns,
        rows,
        title=f"Variants by {comparison.objective.title}" + (f" ({unit})" if unit else ""),
        about=f"difference: to {comparison.reference}, on the same seeds; its interval: {_methods(comparison)}; "
        "p (Holm): of the differences together, after Holm's correction" + (_ABOUT_BEST if bound else ""),
        chosen=comparison.chosen,
    )
    _print_best(comparison)
    _print_parts(comparison)
    for name, reason in comparison.failed.items():
        _show.prose(f"failed: {name}: {' '.join(reason.split())}")
    _show.prose(f"\nwhy: {comparison.why}\nmethod: {comparison.method}")
    for note, names in comparison.notes():
        _show.prose(f"note ({', '.join(names)}): {note}" if names else f"note: {note}")
    for path in (out, page):
        if path is not None:
            _show.prose(f"saved to {path}")
    best = comparison.standings[comparison.chosen].variant
    given = [(name, value) for name, value in best.overrides if value not in own]
    words = asked.words(*(f"{name}={value}" for name, value in given))
    program = (
        f" --decider -- {shlex.join(decider.argv)}" if decider and len(given) < len(best.overrides) else ""
    )
    output.hint(f"next: forerun simulate {words} -o {shlex.quote(f'runs/{best.name}')}{program}")


def _print_best(comparison: Comparison) -> None:
    """The best possible in a line where all variants share it, and why some have none."""
    from forerun.core.result.numbers import format_number
    from forerun.core.study import best

    known = best.shared(comparison)
    if known is not None and known.bound is not None:
        reaches = "no schedule is known"
        if known.reached is not None:
            reaches = f"some schedule or policy reaches {format_number(known.reached)}"
        passes = "goes above" if comparison.objective.better == "higher" else "goes below"
        _show.prose(
            f"\nbest possible: {comparison.objective.title}: {reaches}, no scheduler {passes} {format_number(known.bound)} "
            f"({known.jobs:,} jobs on {known.gpus:,} GPUs)"
        )
    for why, names in best.notes(comparison).items():
        _show.prose(f"no best possible for {', '.join(names)}: {why}")


def _methods(comparison: Comparison) -> str:
    """How the intervals of the differences were computed, in words; `none` where there are no intervals."""
    intervals = (one.difference_interval for one in comparison.standings)
    methods = dict.fromkeys(one.method for one in intervals if one is not None)
    return " or ".join(methods) or "none"


def _print_parts(comparison: Comparison) -> None:
    """Where exact differences come from: each ledger's parts, and the whole that they sum to."""
    from forerun.core.study.compare import moved_parts
    from forerun.core.units import readable_unit

    for moved in moved_parts(comparison) if comparison.exact else ():
        click.echo()
        names, unit = list(moved.whole), readable_unit(moved.unit)
        rows = [(part, *(shifts[name].mean for name in names)) for part, shifts in moved.parts]
        rows.append(("whole", *(moved.whole[name] for name in names)))
        _show.print_table(
            ("part", *names),
            rows,
            title=f"{moved.name}{f' ({unit})' if unit else ''} moved against {comparison.reference}",
            about=f"more (or less, where negative) than with {comparison.reference}; the parts sum to the whole",
        )


def _settings(text: str) -> list[str]:
    """The parts of `a=b,c={d: e, f: g}` between commas that stand in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _variant(text: str) -> tuple[str, dict[str, Any]]:
    """A variant's name and overrides, from `a=b` or `name:a=b,c=d`.

    Without a name, the text itself is the name.

    Parameters
    ----------
    text : the value of `--with`.

    Raises
    ------
    UsageError : a part is not `path=value`.
    """
    from forerun.core.errors import UsageError
    from forerun.core.scenario.text import parse_scalar

    name, colon, rest = text.partition(":")
    if not colon or "=" in name:
        name, rest = text, text
    pairs: dict[str, Any] = {}
    for part in _settings(rest):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise UsageError.at(f"--with {text}", "write a variant as a=b, or as name:a=b,c=d")
        pairs[key.strip()] = parse_scalar(value.strip())
    return name.strip(), pairs
