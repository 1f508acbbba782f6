"""What servers take beyond the kernels of a model, fitted to what mean iterations of public measurements took.

The mean iteration of a server follows from how many requests are under way (`occupancy`), so that nothing is replayed. One
law holds for all models, accelerators and programs (`bottom_up.Overhead`); each family of measurements counts as much as any
other, however many rows it has.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from occupancy import Occupied, iteration_ms

from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.bottom_up import OVERHEAD, Overhead, Running, with_overhead
from forerun.serving.llm.inputs.architecture import Architecture

FITTED: Final = (
    "scale",
    "prompt_scale",
    "layer_ms",
    "piece_ms",
    "sample_ns",
    "sort_ns",
    "message_ms",
    "launch_ms",
)
#: where the search begins, how far off each may be before measurements say it, and the step by which slopes are taken
START: Final = np.array([1.02, 1.05, 0.01, 0.005, 0.05, 0.05, 0.03, 0.6])
SPREAD: Final = np.array([0.1, 0.1, 0.03, 0.03, 0.2, 0.2, 0.05, 0.5])
SLOPES: Final = np.array([0.01, 0.01, 0.002, 0.002, 0.01, 0.01, 0.002, 0.03])
LEAST: Final = np.array([0.7, 0.7, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
#: relative error of a family's mean that the law should have at best
PRECISION: Final = 0.1
STEPS: Final = 8


class Seen(NamedTuple):
    """The mean iteration of one measurement.

    Parameters
    ----------
    family : of the measurement.
    kernels : float64[7], coefficients of the kernels alone.
    model : its shape.
    running : how its server runs iterations.
    of : what the iteration consists of.
    took_ms : time between the tokens of a request.
    """

    family: str
    kernels: Floats
    model: Architecture
    running: Running
    of: Occupied
    took_ms: float

    def predicted_ms(self, law: Overhead) -> float:
        """What the law says instead."""
        return iteration_ms(self.coefficients(law), self.of)

    def coefficients(self, law: Overhead) -> Floats:
        """Those of the server by the law."""
        return with_overhead(self.kernels, law, self.model, self.running)


def overhead_of(seen: Sequence[Seen]) -> Overhead:
    """The law under which iterations are most like those that were seen; `client_ms` stays as it is. A family counts by
    how well the law of all, in which each counts alike, explains it."""
    families = {one.family: [other for other in seen if other.family == one.family] for one in seen}
    law = _fitted(seen, dict.fromkeys(families, PRECISION))
    off = {
        name: float(np.sqrt(np.mean([np.log(one.predicted_ms(law) / one.took_ms) ** 2 for one in own])))
        for name, own in families.items()
    }
    return _fitted(seen, {name: max(PRECISION / 2, value) for name, value in off.items()})


def _fitted(seen: Sequence[Seen], precision: Mapping[str, float]) -> Overhead:
    """The least squares of logarithms.

    Parameters
    ----------
    seen : mean iterations.
    precision : relative error that the mean of each family should have.
    """
    families = [one.family for one in seen]
    weight = np.array([1 / (np.sqrt(families.count(name)) * precision[name]) for name in families])
    took_ms = np.array([one.took_ms for one in seen])

    def law(x: Floats) -> Overhead:
        return replace(OVERHEAD, **dict(zip(FITTED, x.tolist())))

    def residuals(x: Floats) -> Floats:
        shown = np.array([one.predicted_ms(law(x)) for one in seen])
        return np.concatenate([np.log(shown / took_ms) * weight, (x - START) / SPREAD])

    x, damping = START, 1e-3
    here = residuals(x)
    for _ in range(STEPS):
        slopes = np.stack([(residuals(x + step) - here) / step.max() for step in np.diag(SLOPES)], axis=1)
        normal, better = slopes.T @ slopes, False
        for _ in range(5):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slopes.T @ here)
            place = np.maximum(x + step, LEAST)
            there = residuals(place)
            if there @ there < here @ here:
                x, here, damping, better = place, there, damping / 5, True
                break
            damping *= 5
        if not better:
            break
    return law(x)
