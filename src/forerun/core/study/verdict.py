"""What a comparison comes to: which variant is best, which are as good, what to run, and what it costs.

The best mean alone is no verdict. Of variants that do not differ significantly from the best and are near it, the
cheapest is the one to run, and the variant that changes nothing where it is among them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from forerun.core.domain import objectives_of
from forerun.core.result.numbers import format_number, readable_scale, signed
from forerun.core.result.objective import Objective, cost_figure
from forerun.core.study.compared import Standing
from forerun.core.units import readable_unit, split_name, unit_of

#: of the best value: a variant that is further behind may not differ significantly, but is not called as good
NEAR: Final = 0.1


def recommended(standings: Sequence[Standing], level: Sequence[str], reference: str) -> Standing:
    """The variant to run: the best, or the cheapest of those level with it and near it. Of several as cheap it is the
    reference, else the first that differs significantly from the reference.

    standings: best first. level: names of those that do not differ significantly from the best.
    """
    best, *others = standings
    near = [one for one in others if abs(one.value - best.value) <= NEAR * abs(best.value)]
    among = [best, *(one for one in near if one.variant.name in level)]
    key = _cost(standings)
    least = min(one.figures.get(key, 0.0) for one in among)
    cheapest = [one for one in among if math.isclose(one.figures.get(key, 0.0), least)]
    kept = [one for one in cheapest if one.variant.name == reference]
    better = [one for one in cheapest if one.p is not None and one.p <= 0.05]
    return (kept or better or cheapest)[0]


def why(
    standings: Sequence[Standing], objective: Objective, *, exact: bool, reference: str = "",
    level: Sequence[str] = (), tails: Sequence[str] = (),
) -> str:  # fmt: skip
    """One sentence: which variant is best, by how much, whether that is significant, what it costs, and what moved most.

    level: names of those that do not differ significantly from the best. tails: what is significantly worse, in words.
    """
    best = standings[0]
    if len(standings) < 2:
        return f"only {best.variant.name} could be run"
    second = standings[1]
    gap = abs(best.value - second.value)
    own = readable_unit(unit_of(objective.key) or "")
    unit, size = readable_scale(own, gap)
    title = objective.title.removesuffix(f" in {own}")
    ahead = f"{format_number(gap / size)}{f' {unit}' if unit else ''}"
    text = f"{best.variant.name} has the best {title}"
    if any(one.left_out != best.left_out for one in standings):
        text += f" of those that leave out {'least' if best.left_out else 'nothing'}"
    if second.left_out == best.left_out:
        text += f", {ahead} ahead of {second.variant.name}"
    # The interval that decides is the best variant's against the reference, or the runner-up's where it is the reference.
    compared, other = (second, second.variant.name) if best.difference is None else (best, "the reference")
    if gap == 0 and second.left_out == best.left_out:
        *others, last = [one.variant.name for one in standings if one.value == best.value]
        text = f"{', '.join(others)} and {last} tie on {title}"
    elif compared.p is not None and compared.p > 0.05:
        text += f", but it does not differ significantly from {other} (Holm p > 0.05)"
    text += _left_out(standings, objective) + _cheaper(standings, level, reference)
    text += "".join(f"; {tail}" for tail in tails)
    leader = best if best.parts else second
    for ledger, parts in leader.parts.items():
        name, shift = next(iter(parts.items()), ("", None))
        if shift is not None and shift.mean:
            of, unit = ledger_name(ledger)
            shown, size = readable_scale(unit, abs(shift.mean))
            text += (
                f"; what {leader.variant.name} shifts most against the reference in {of} is {name} "
                f"({signed(shift.mean / size)}{f' {shown}' if shown else ''})"
            )
            break
    return text + (f"; {best.why}" if best.why and exact else "")


def _left_out(standings: Sequence[Standing], objective: Objective) -> str:
    """Each variant that leaves out more of the work than the best, with its value."""
    unit = readable_unit(unit_of(objective.key) or "")
    least = standings[0].left_out
    rest = [one for one in standings if one.left_out != least]
    return "".join(
        f"; {one.variant.name} has {format_number(one.value)}{f' {unit}' if unit else ''} with {one.left_out}"
        for one in rest[:3]
    )


def _cheaper(standings: Sequence[Standing], level: Sequence[str], reference: str) -> str:
    """Which variants are as good as the best, which to run, and what that costs; empty where nothing is to say."""
    best, chosen = standings[0], recommended(standings, level, reference)
    base = next((one for one in standings if one.variant.name == reference), None)
    key = _cost(standings)
    name, unit = split_name(key)

    def amount(one: Standing) -> str:
        value = format_number(one.figures.get(key, 0.0))
        return f"{value} GPUs" if key == "gpus" else f"{name} {value} {readable_unit(unit)}"

    ties = {one.variant.name for one in standings if one.value == best.value}
    compared = standings[1].variant.name if best.difference is None else reference  # which `why` names
    rest = [one for one in level if one not in (chosen.variant.name, compared, *ties)]
    text = f"; not significantly different from it: {', '.join(rest)}" if rest else ""
    if chosen is best:
        dearer = key and base is not None and amount(best) != amount(base)
        return text + (f"; it takes {amount(best)}, {reference} {amount(base)}" if dearer and base else "")
    text += f"; {chosen.variant.name} is as good, as far as this shows"
    if not key or amount(chosen) == amount(best):
        return text
    text += f", with {amount(chosen)} instead of {amount(best)}"
    return text + (
        ", and so is free" if base not in (None, chosen) and amount(base) == amount(chosen) else ""
    )


def _cost(standings: Sequence[Standing]) -> str:
    """The figure that says what a variant costs, where all have it: money, else GPUs; empty if nothing does."""
    names = set.intersection(*(set(one.figures) for one in standings))
    return cost_figure(names) or ("gpus" if "gpus" in names else "")


def tail_figures(domain: str, objective: Objective, figures: Mapping[str, float]) -> list[Objective]:
    """The objectives of a domain that are 99th percentiles, where results have them and do not rank by them."""
    return [
        one
        for one in objectives_of(domain)
        if "_p99_" in one.key and one.key != objective.key and one.key in figures
    ]


def tail_text(one: Standing, base: Standing, tail: Objective, p: float | None) -> str:
    """That a variant's 99th percentile is worse than the reference's: with its p value, or on this log only."""
    value, other = one.figures[tail.key], base.figures[tail.key]
    times = (
        f"{value / other:.2f} times"
        if other > 0
        else f"{format_number(value)}, not {format_number(other)}, of"
    )
    certain = "on this log" if p is None or p > 0.05 else "p < 0.001" if p < 0.001 else f"p {p:.2g}"
    unit = readable_unit(unit_of(tail.key) or "")
    title = tail.title.removesuffix(f" in {unit}")
    return f"{one.variant.name}'s {title} is {times} that of {base.variant.name} ({certain})"


def ledger_name(ledger: str) -> tuple[str, str]:
    """Name and unit of a ledger called `name (unit)`."""
    name, mark, unit = ledger.removesuffix(")").rpartition(" (") if ledger.endswith(")") else ("", "", "")
    return (name, unit) if mark else (ledger, "")
