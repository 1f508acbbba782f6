"""The fit of a step model to measurements [Qiao et al., OSDI'21, section 3]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.inputs.step_model import StepModel

_STARTS: Final = (
    (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001),
    (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 2.0),
    (0.01, 0.001, 0.5, 0.01, 0.1, 0.01, 1.5),
)
_ROUNDS: Final = 200


@dataclass(frozen=True, slots=True)
class FittedStep:
    """A model, the misfit it has (as the kernel defines it), and its relative error at each measurement."""

    model: StepModel
    misfit: float
    residuals: F64


def fit_step_model(seen: F64, start: StepModel | None = None) -> FittedStep:
    """The model with the least misfit to `seen`: float64[n, 5], rows of nodes, replicas, local batch, step seconds,
    seconds of gradients alone.

    What the measurements cannot tell is pinned low, as the paper does: the exchange across nodes without such a row
    (then at least 1.1 times the exchange within a node), within a node without such a row, its growth without more
    than two replicas; with a single local batch half of the gradient time counts as fixed. `start`: an earlier fit to
    begin from, besides the first of the fixed starts.
    """
    from forerun.cluster.engine.kernels import step_model
    from forerun.replication.pollux import descent

    seen = np.ascontiguousarray(seen, np.float64)
    free, pinned = _free_parameters(seen)
    starts = [np.array(values) for values in _STARTS]
    if start is not None:
        starts = [start.array(), starts[0]]
    best, least = np.empty(7), np.inf
    for values in starts:
        begin = np.where(free, values, pinned)
        reached = np.empty(7)
        reached_error = float(descent.descend(begin, free, seen, _ROUNDS, reached))
        if reached_error < least - 1e-12:
            best, least = reached.copy(), reached_error
    if not (seen[:, 0] > 1).any():
        best[step_model.ALPHA_N] = max(best[step_model.ALPHA_N], 1.1 * best[step_model.ALPHA_R])
        best[step_model.BETA_N] = max(best[step_model.BETA_N], 1.1 * best[step_model.BETA_R])
    model = StepModel(*best.tolist())
    predicted = np.array([model.step_s(int(n), int(r), b) for n, r, b in seen[:, :3].tolist()])
    return FittedStep(model, least, predicted / seen[:, 3] - 1.0)


def _free_parameters(seen: F64) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], F64]:
    """Which parameters the measurements tell, and the values of the others."""
    from forerun.cluster.engine.kernels import step_model
    from forerun.replication.pollux import descent

    free = np.ones(7, np.bool_)
    pinned = np.full(7, descent.LEAST)
    pinned[step_model.GAMMA] = 1.001
    nodes, replicas = seen[:, 0], seen[:, 1]
    if len(np.unique(seen[:, 2])) == 1:
        free[step_model.ALPHA_C] = False
        pinned[step_model.ALPHA_C] = seen[:, 4].mean() / 2.0
    if not (nodes > 1).any():
        free[[step_model.ALPHA_N, step_model.BETA_N]] = False
    if not (replicas > nodes).any():
        free[[step_model.ALPHA_R, step_model.BETA_R]] = False
    if not (replicas > 2).any():
        free[[step_model.BETA_N, step_model.BETA_R]] = False
    return free, pinned
