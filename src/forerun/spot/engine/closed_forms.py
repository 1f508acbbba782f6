"""What can be computed without simulating: shares of time and best intervals under Poisson disruptions.

All formulas assume a fixed world size, instant repair after the pause, and hits at rate `lam` per second (a hit
during the pause starts it again).  `s` step, `d` stall, `C` write counted from the end of the stall, `R`
pause. They are derived by renewal arguments in `docs/spot/reference.md`; the synchronous optimum is Daly's (FGCS
2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from forerun.spot.engine.job import whole_steps


def useful_back_to_back(lam: float, s: float, d: float, C: float, R: float) -> float:
    """Share of time in steps that are not rolled back, each checkpoint starting at the first step end after the last write.

    Parameters
    ----------
    lam : hits a second.
    s, d, C, R : seconds of a step, of a stall, of a write from the end of the stall, and of a pause.
    """
    n = whole_steps(C, s)
    if lam == 0:
        return n * s / (n * s + d)
    return lam * math.exp(-lam * (R + s + d + C)) * (s + n * s / math.expm1(lam * (n * s + d)))


def useful_every_steps(lam: float, s: float, n: int, d: float, C: float, R: float) -> float:
    """The same with a checkpoint every `n` steps.

    Parameters
    ----------
    lam : hits a second.
    s, d, C, R : seconds of a step, of a stall, of a write from the end of the stall, and of a pause.
    n : steps between checkpoints; n s >= C, so that no checkpoint meets a running write.

    Raises ValueError where the write takes longer.
    """
    if n * s < C - 1e-9:
        raise ValueError(f"{n} steps of {s} s are shorter than the write of {C} s")
    if lam == 0:
        return n * s / (n * s + d)
    return lam * math.exp(-lam * (R + C)) * n * s / math.expm1(lam * (n * s + d))


def effective_share(lam: float, interval: float, write: float, restart: float) -> float:
    """Share of time in retained work, with a blocking write after each interval: the effective training time ratio.

    The same as `useful_every_steps` for steps of any length, without a number too large for a float at high rates. All times
    are in the unit of 1 / lam.

    Parameters
    ----------
    lam : interruptions a unit of time, Poisson; one during a write or a restart counts as well.
    interval : of work between two writes.
    write : for which a checkpoint blocks training.
    restart : after each interruption; another one begins it again.
    """
    if lam == 0:
        return interval / (interval + write)
    cycle = lam * (interval + write)
    return lam * interval * math.exp(-lam * restart - cycle) / -math.expm1(-cycle)


def young(M: float, delta: float) -> float:
    """Young's interval in seconds, sqrt(2 delta M) (CACM 1974).

    Parameters
    ----------
    M : mean seconds between hits.
    delta : seconds that a checkpoint blocks training.
    """
    return math.sqrt(2 * delta * M)


def daly(M: float, delta: float) -> float:
    """Daly's higher-order interval in seconds (FGCS 2006, equation 37); M where a write takes two mean times between hits.

    Parameters
    ----------
    M : mean seconds between hits, finite.
    delta : seconds that a checkpoint blocks training.
    """
    if delta >= 2 * M:
        return M
    ratio = delta / (2 * M)
    return math.sqrt(2 * delta * M) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - delta


def sync_best(M: float, delta: float) -> float:
    """The interval that minimises exactly the wall time a second of work, where each is followed by a blocking write.

    That time is M e^(R/M) (e^x - 1) / tau with x = (tau + delta)/M, so that (tau/M) e^x = e^x - 1 at its least, whatever R.
    By bisection, since tau/M - 1 + e^-x increases with tau from a negative value at 0 to a positive one at M.
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
    """The best number of steps between checkpoints, and what simpler choices are worth.

    Parameters
    ----------
    steps, interval_s : between checkpoints.
    useful : share of time in steps that are not rolled back.
    useful_back_to_back : that share with checkpoints back to back.
    young_s, daly_s : Young's and Daly's intervals for the stall; infinite without hits.
    """

    steps: int
    interval_s: float
    useful: float
    useful_back_to_back: float
    young_s: float
    daly_s: float


def best_interval(lam: float, s: float, d: float, C: float, R: float) -> BestInterval:
    """The number of steps n with n s >= C that maximises the useful share.

    The write's length moves the curve up and down, not its top, which is the synchronous one with delta = d: so the
    best n is next to it, or as close as C allows.

    Parameters
    ----------
    lam : hits a second; without any, rarer is better without end, and a million steps are the answer.
    s, d, C, R : seconds of a step, of a stall, of a write from the end of the stall, and of a pause; without stalls
        the fewest steps that the write allows are best.
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
