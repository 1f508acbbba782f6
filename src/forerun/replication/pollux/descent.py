"""The misfit of a step model to measurements, and a bounded descent of it."""

from __future__ import annotations

import math

import numpy as np

from forerun.cluster.engine.kernels.arrays import BOOL, F64
from forerun.cluster.engine.kernels.step_model import (
    ALPHA_N,
    ALPHA_R,
    BETA_N,
    BETA_R,
    GAMMA,
    exchange_s,
    gradient_s,
    together_s,
)
from forerun.core.kernels.jit import kernel

LEAST = 1e-8


@kernel
def misfit(params: F64, seen: F64) -> float:
    """What a fit minimises: root mean square errors of log T_c and log T, and a leaning to simple models.

    `seen`: float64[n, 5], nodes, replicas, local batch, step seconds, seconds of gradients alone. The leaning is
    1e-3 (gamma - 1)^2 + 1e-2 ((beta_n / alpha_n)^2 + (beta_r / alpha_r)^2).
    """
    compute_error, step_error = 0.0, 0.0
    for i in range(len(seen)):
        compute = gradient_s(params, seen[i, 2])
        whole = together_s(compute, exchange_s(params, seen[i, 0], seen[i, 1]), params[GAMMA])
        compute_error += (math.log(compute) - math.log(seen[i, 4])) ** 2
        step_error += (math.log(whole) - math.log(seen[i, 3])) ** 2
    n = max(len(seen), 1)
    leaning = 1e-3 * (params[GAMMA] - 1.0) ** 2
    leaning += 1e-2 * (params[BETA_N] / params[ALPHA_N]) ** 2 + 1e-2 * (params[BETA_R] / params[ALPHA_R]) ** 2
    return float(math.sqrt(compute_error / n) + math.sqrt(step_error / n) + leaning)


@kernel
def _params_at(point: F64, free: BOOL, pinned: F64, params: F64) -> None:
    """A point of the search (logarithms, gamma as it is) as parameters; pinned ones stay."""
    for i in range(7):
        if not free[i]:
            params[i] = pinned[i]
        elif i == GAMMA:
            params[i] = min(max(point[i], 1.0), 10.0)
        else:
            params[i] = math.exp(min(max(point[i], math.log(LEAST)), 25.0))


@kernel
def descend(start: F64, free: BOOL, seen: F64, rounds: int, best: F64) -> float:
    """Quasi-Newton descent of the misfit from `start` over the free parameters, into `best`; the misfit reached.

    The six times are searched as logarithms, which keeps them positive; gamma is clipped to [1, 10]. Gradients are
    central differences; the inverse Hessian starts anew where it stops pointing downhill.

    Parameters
    ----------
    start : float64[7], the parameters to begin with; those that are not free stay as they are.
    free : bool[7], which parameters are searched.
    seen : the measurements, as of `misfit`.
    rounds : the most steps.
    best : float64[7], written: the parameters reached.
    """
    point, trial, gradient, newer = np.empty(7), np.empty(7), np.zeros(7), np.zeros(7)
    params, direction = np.empty(7), np.zeros(7)
    for i in range(7):
        point[i] = start[i] if i == GAMMA else math.log(max(start[i], LEAST))
    inverse, fresh = np.eye(7), True
    _params_at(point, free, start, params)
    value = misfit(params, seen)
    _slopes(point, free, start, seen, params, gradient)
    for _ in range(rounds):
        slope = 0.0
        for i in range(7):
            direction[i] = 0.0
            for k in range(7):
                direction[i] -= inverse[i, k] * gradient[k]
            slope += direction[i] * gradient[i]
        if slope > -1e-16:
            if fresh:
                break
            inverse, fresh = np.eye(7), True
            continue
        longest = 1e-300
        for i in range(7):
            longest = max(longest, abs(direction[i]))
        step, moved = min(1.0, 2.0 / longest), False
        for _ in range(40):
            for i in range(7):
                trial[i] = point[i] + step * direction[i]
            trial[GAMMA] = min(max(trial[GAMMA], 1.0), 10.0)
            _params_at(trial, free, start, params)
            error = misfit(params, seen)
            if error < value + 1e-4 * step * slope:
                moved = True
                break
            step *= 0.5
        if not moved:
            if fresh:
                break
            inverse, fresh = np.eye(7), True
            continue
        _slopes(trial, free, start, seen, params, newer)
        gain, value, fresh = value - error, error, False
        for i in range(7):
            point[i], trial[i] = trial[i], trial[i] - point[i]
            gradient[i], newer[i] = newer[i], newer[i] - gradient[i]
        _update(inverse, trial, newer)
        if gain < 1e-12:
            break
    _params_at(point, free, start, best)
    return value


@kernel
def _slopes(point: F64, free: BOOL, pinned: F64, seen: F64, params: F64, gradient: F64) -> None:
    """Central differences of the misfit; one-sided where gamma meets a bound, 0 where it would only push outward."""
    nearby = point.copy()
    for i in range(7):
        gradient[i] = 0.0
        if not free[i]:
            continue
        width = 1e-6
        up, down = point[i] + width, point[i] - width
        if i == GAMMA:
            up, down = min(up, 10.0), max(down, 1.0)
        nearby[i] = up
        _params_at(nearby, free, pinned, params)
        above = misfit(params, seen)
        nearby[i] = down
        _params_at(nearby, free, pinned, params)
        below = misfit(params, seen)
        nearby[i] = point[i]
        gradient[i] = (above - below) / (up - down)
        if i == GAMMA and ((point[i] <= 1.0 and gradient[i] > 0) or (point[i] >= 10.0 and gradient[i] < 0)):
            gradient[i] = 0.0


@kernel
def _update(inverse: F64, moved: F64, turned: F64) -> None:
    """The rank-two correction of the inverse Hessian (Broyden, Fletcher, Goldfarb, Shanno)."""
    curve, bent = 0.0, 0.0
    weighted = np.zeros(7)
    for i in range(7):
        curve += moved[i] * turned[i]
        for k in range(7):
            weighted[i] += inverse[i, k] * turned[k]
        bent += turned[i] * weighted[i]
    if curve <= 1e-14:
        return
    scale = (1.0 + bent / curve) / curve
    for i in range(7):
        for k in range(7):
            inverse[i, k] += (
                scale * moved[i] * moved[k] - (weighted[i] * moved[k] + moved[i] * weighted[k]) / curve
            )
