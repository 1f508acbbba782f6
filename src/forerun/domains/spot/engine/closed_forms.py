"""What can be computed without simulating: shares of time and best intervals under Poisson disruptions.

All formulas assume a fixed world size, instant repair after the pause, and hits at rate `lam` per second (a hit
during the pause starts it again).  `s` step, `d` stall, `C` write counted from the end of the stall, `R`
pause. They are derived by renewal arguments in `docs/domains/spot-reference.md`; the synchronous optimum is Daly's (FGCS
2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from forerun.domains.spot.engine.job import whole_steps


def reconfig_share(lam: float, R: float) -> float:
    """Share of time in pauses: 1 - exp(-lam R)."""
    return -math.expm1(-lam * R)


def mean_pause_s(lam: float, R: float) -> float:
    """Mean length of a pause that starts again at every hit: (exp(lam R) - 1) / lam."""
    return math.expm1(lam * R) / lam if lam > 0 else R


def useful_back_to_back(lam: float, s: float, d: float, C: float, R: float) -> float:
    """Share of time in steps that are kept, each checkpoint starting at the first step end after the last
    write.
    """
    n = whole_steps(C, s)
    if lam == 0:
        return n * s / (n * s + d)
    return lam * math.exp(-lam * (R + s + d + C)) * (s + n * s / math.expm1(lam * (n * s + d)))


def useful_every_steps(lam: float, s: float, n: int, d: float, C: float, R: float) -> float:
    """The same with a checkpoint every `n` steps; n s >= C, so that no checkpoint meets a running write."""
    if n * s < C - 1e-9:
        raise ValueError(f"{n} steps of {s} s are shorter than the write of {C} s")
    if lam == 0:
        return n * s / (n * s + d)
    return lam * math.exp(-lam * (R + C)) * n * s / math.expm1(lam * (n * s + d))


def sync_wall_per_work(M: float, tau: float, delta: float, R: float) -> float:
    """Wall time a second of work when every `tau` of work is followed by a blocking write of `delta`.

    M is the mean time between hits, in the unit of the others.
    """
    return M * math.exp(R / M) * math.expm1((tau + delta) / M) / tau


def young(M: float, delta: float) -> float:
    """Young's interval, sqrt(2 delta M) (CACM 1974)."""
    return math.sqrt(2 * delta * M)


def daly(M: float, delta: float) -> float:
    """Daly's higher-order interval (FGCS 2006, equation 37); M where a write takes two mean times between
    hits.
    """
    if delta >= 2 * M:
        return M
    ratio = delta / (2 * M)
    return math.sqrt(2 * delta * M) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - delta


def sync_best(M: float, delta: float) -> float:
    """The interval that minimises `sync_wall_per_work` exactly.

    The condition (tau/M) e^x = e^x - 1 with x = (tau + delta)/M does not contain R; solved by bisection,
    since tau/M - 1 + e^-x increases with tau from a negative value at 0 to a positive one at M.
    """
    low, high = 0.0, M
    for _ in range(200):
        middle = (low + high) / 2
        if middle / M - 1 + math.exp(-(middle + delta) / M) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclass(frozen=True, slots=True)
class BestInterval:
    """The best number of steps between checkpoints, and what simpler choices give up."""

    steps: int
    interval_s: float
    useful: float
    useful_back_to_back: float
    young_s: float
    daly_s: float

    def loss_of(self, useful: float) -> float:
        """Relative loss of another choice."""
        return 1 - useful / self.useful


def best_interval(lam: float, s: float, d: float, C: float, R: float) -> BestInterval:
    """The number of steps n with n s >= C that maximises the useful share.

    The write's length moves the curve up and down, not its top, which is the synchronous one with delta = d:
    so the best n is next to it, or as close as C allows.
    """
    least = whole_steps(C, s)
    M = math.inf if lam == 0 else 1 / lam
    if lam == 0 or d == 0:
        # Without hits rarer is better without end; without stall more often is never worse.
        best = least if d == 0 else 10**6
    else:
        near = max(least, int(sync_best(M, d) / s))
        around = range(max(least, near - 2), near + 4)
        best = max(around, key=lambda n: (useful_every_steps(lam, s, n, d, C, R), -n))
    return BestInterval(
        steps=best,
        interval_s=best * s,
        useful=useful_every_steps(lam, s, best, d, C, R),
        useful_back_to_back=useful_back_to_back(lam, s, d, C, R),
        young_s=young(M, d),
        daly_s=daly(M, d) if math.isfinite(M) else math.inf,
    )


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
