"""Intervals for a family of experiments that was never measured, from the errors of families that were.

A family is what shares model, precision, accelerator, program and client; its experiments err alike, and its figures each
on a scale of its own. If a new family is as any other, a figure of it is as likely in each part of the families' errors,
where each family weighs the same and one share of a family is kept for what none of them shows [Dunn, Wasserman and Ramdas,
JASA 2023]. So an interval of 90 % needs nine families, one of 95 % nineteen. A figure that so many have stands for itself;
others are taken together, each over its own scale, which of a latency's tail is no less than of its mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray


def least_families(covered: float) -> int:
    """How many families an interval needs at least that contains such a share of the figures of another."""
    return math.ceil(covered / (1 - covered) - 1e-9)


#: families that have a figure from which on its own errors are enough
ENOUGH: Final = least_families(0.95)
#: parts of a latency's distribution, each no surer than those before it
TAILS: Final = ("mean", "p50", "p90", "p99")


def half_widths(families: Sequence[Mapping[str, Sequence[float]]], covered: float) -> dict[str, float]:
    """Half the width of an interval of each figure's logarithm, for a family that is not among these; inf for too few.

    Parameters
    ----------
    families : of each, by figure, logarithms of predicted over measured values, over what these grow by (`knee`); each
        figure that is there has some.
    covered : share of the figures that the interval should contain.
    """
    figures = dict.fromkeys(figure for own in families for figure in own)
    scale = {
        figure: float(
            np.median([np.sqrt(np.mean(np.square(own[figure]))) for own in families if figure in own])
        )
        for figure in figures
    }
    for kind in dict.fromkeys(figure.partition("_")[0] for figure in figures):
        own = [name for tail in TAILS if (name := f"{kind}_{tail}_ms") in scale]
        scale.update(zip(own, itertools.accumulate((scale[name] for name in own), max)))
    if len(families) < least_families(covered):
        return dict.fromkeys(figures, math.inf)
    parts = [np.concatenate([np.abs(own[name]) / scale[name] for name in own]) for own in families]
    times, halves = _exceeded(parts, covered), {}
    for figure, own_scale in scale.items():
        alone = [np.abs(own[figure]) for own in families if figure in own]
        halves[figure] = _exceeded(alone, covered) if len(alone) >= ENOUGH else times * own_scale
    return halves


def _exceeded(parts: Sequence[NDArray[np.float64]], covered: float) -> float:
    """What a share of the sizes of another part should not exceed, where each part weighs the same."""
    sizes = np.concatenate(parts)
    order = np.argsort(sizes, kind="stable")
    weights = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
    reached = np.cumsum(weights[order]) / (len(parts) + 1)
    at = int(np.searchsorted(reached, covered * (1 - 1e-9)))
    return float(sizes[order][min(at, len(sizes) - 1)])
