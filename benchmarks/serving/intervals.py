"""Intervals for a family of experiments that was never measured, from the errors of families that were.

A family is what shares model, precision, accelerator, program and client; its experiments err alike, and its figures each
on a scale of its own. If a new family is as any other, a figure of it is as likely in each part of the families' errors,
where each family weighs the same and one share of a family is kept for what none of them shows [Dunn, Wasserman and Ramdas,
JASA 2023]. So an interval of 90 % needs nine families, one of 95 % nineteen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np


def least_families(covered: float) -> int:
    """How many families an interval needs at least that contains such a share of the figures of another."""
    return math.ceil(covered / (1 - covered) - 1e-9)


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
    if len(families) < least_families(covered):
        return dict.fromkeys(figures, math.inf)
    parts = [np.concatenate([np.abs(own[name]) / scale[name] for name in own]) for own in families]
    sizes = np.concatenate(parts)
    order = np.argsort(sizes, kind="stable")
    weights = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
    reached = np.cumsum(weights[order]) / (len(families) + 1)
    at = int(np.searchsorted(reached, covered * (1 - 1e-9)))
    times = float(sizes[order][min(at, len(sizes) - 1)])
    return {figure: times * own for figure, own in scale.items()}
