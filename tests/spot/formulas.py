"""Closed forms that only tests compare with: pauses, blocking writes, idle fleets, and what a hit costs."""

from __future__ import annotations

import math

from forerun.spot.engine.job import whole_steps


def reconfig_share(lam: float, R: float) -> float:
    """Share of time in pauses: 1 - exp(-lam R)."""
    return -math.expm1(-lam * R)


def sync_wall_per_work(M: float, tau: float, delta: float, R: float) -> float:
    """Wall time a second of work when every `tau` of work is followed by a blocking write of `delta`.

    M is the mean time between hits, in the unit of the others.
    """
    return M * math.exp(R / M) * math.expm1((tau + delta) / M) / tau


def machine_repair_idle(mu: float, nu: float, slots: int, depth: int) -> float:
    """P(fewer than `depth` of `slots` are alive), each failing at rate mu and returning at rate nu on its
    own.
    """
    alive = nu / (mu + nu)
    return math.fsum(math.comb(slots, k) * alive**k * (1 - alive) ** (slots - k) for k in range(depth))


def unlimited_idle(adds_per_h: float, mu: float, depth: int) -> float:
    """P(fewer than `depth` nodes) where nodes come at a rate without limit and each leaves at rate mu (M/M/infinity).

    The number of nodes is Poisson with mean `adds_per_h / mu`; `machine_repair_idle` tends to it with more slots.
    """
    mean = adds_per_h / mu
    return math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(depth))


def lost_per_hit_s(s: float, d: float, C: float) -> float:
    """Mean training time that a hit throws away when hits are rare and checkpoints back to back: C + K / 2, with K from
    one checkpoint to the next.

    What is lost begins when the stall of the last durable checkpoint ended, so that stall is not in it.
    """
    return C + (whole_steps(C, s) * s + d) / 2
