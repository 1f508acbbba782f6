"""What answers are compared with: quantiles of the last waits of a class, and upper bounds as QBETS makes them."""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.core.result.stats import normal_quantile
from forerun.site.history import F64, I64, History
from forerun.site.wait_time.classes import class_of, request_class, size_class
from forerun.site.wait_time.forecast import LEVELS, scale

#: how many of the last waits of a class are looked at
WINDOWS: Final = (25, 50, 100, 200, 400, 1000)
#: a class with fewer known waits takes those of all
LEAST: Final = 10
#: QBETS: bounds hold with this confidence; after so many waits in a row beyond the bound on this quantile only the last few
#: count, as many as a bound needs
CONFIDENCE: Final = 0.95
IN_A_ROW: Final = 3
AFTER_CHANGE: Final = 59


def class_histories(log: History, rows: I64, asked: I64) -> dict[str, F64]:
    """By name, float64[asked, levels]: quantiles of the waits known at each submission, for all classes and windows.

    Parameters
    ----------
    log : the history.
    rows : the jobs that waits are taken from.
    asked : the jobs that are asked about, ascending.
    """
    keys = {
        "all jobs": np.zeros(len(log), np.int64),
        "nodes": size_class(log.gpus),
        "requested time": request_class(log.requested_s),
        "nodes and requested time": class_of(log.gpus, log.requested_s),
    }
    found = {
        f"{name}, last {most}": np.full((len(asked), len(LEVELS)), np.nan)
        for name in keys
        for most in WINDOWS
    }
    for name, key in keys.items():
        waits: dict[int, list[float]] = {}
        everyone: list[float] = []
        learned = _Learned(log, rows)
        for k, row in enumerate(asked.tolist()):
            for job, wait in learned.until(float(log.submit_s[row])):
                waits.setdefault(int(key[job]), []).append(wait)
                everyone.append(wait)
            mine = waits.get(int(key[row]), [])
            last = np.array((mine if len(mine) >= LEAST else everyone)[-max(WINDOWS) :])
            for most in WINDOWS:
                if len(last) >= LEAST:
                    found[f"{name}, last {most}"][k] = _quantiles(np.sort(last[-most:]))
    return found


def qbets(log: History, rows: I64, asked: I64) -> F64:
    """float64[asked, levels]: upper bounds on quantiles of the wait, with confidence, by class, since the last change.

    Nurmi, Brevik and Wolski, QBETS: queue bounds estimation from time series, JSSPP 2007; here with the classes above
    instead of clustered ones, and the normal approximation of the binomial law.
    """
    key = class_of(log.gpus, log.requested_s)
    z = normal_quantile(CONFIDENCE)
    levels = np.array(LEVELS)
    waits: dict[int, list[float]] = {}
    everyone: list[float] = []
    beyond: dict[int, int] = {}
    bounds = np.full((len(asked), len(LEVELS)), np.nan)
    learned = _Learned(log, rows)
    for k, row in enumerate(asked.tolist()):
        for job, wait in learned.until(float(log.submit_s[row])):
            of = int(key[job])
            known = waits.setdefault(of, [])
            if len(known) >= AFTER_CHANGE:
                bound = _bound(np.sort(known), np.array([CONFIDENCE]), z)[0]
                beyond[of] = beyond.get(of, 0) + 1 if wait > bound else 0
            known.append(wait)
            everyone.append(wait)
            if beyond.get(of, 0) >= IN_A_ROW:
                waits[of], beyond[of] = known[-AFTER_CHANGE:], 0
        known = waits.get(int(key[row]), [])
        last = known if len(known) >= LEAST else everyone[-max(WINDOWS) :]
        if len(last) >= LEAST:
            bounds[k] = _bound(np.sort(last), levels, z)
    return bounds


class _Learned:
    """The waits of some jobs in the order in which they become known.

    Parameters
    ----------
    log : the history.
    rows : the jobs.
    """

    def __init__(self, log: History, rows: I64) -> None:
        started = rows[log.started[rows]]
        self._jobs = started[np.argsort(log.start_s[started], kind="stable")]
        self._start_s = log.start_s[self._jobs]
        self._wait = scale(log.wait_s[self._jobs])
        self._next = 0

    def until(self, at_s: float) -> list[tuple[int, float]]:
        """The jobs that have started by an instant, since the last call, with their waits on the logarithmic scale."""
        first = self._next
        self._next = int(np.searchsorted(self._start_s, at_s, side="right"))
        return list(zip(self._jobs[first : self._next].tolist(), self._wait[first : self._next].tolist()))


def _quantiles(ascending: F64) -> F64:
    at = np.array(LEVELS) * (len(ascending) - 1)
    low = at.astype(np.int64)
    high = np.minimum(low + 1, len(ascending) - 1)
    quantiles: F64 = ascending[low] + (at - low) * (ascending[high] - ascending[low])
    return quantiles


def _bound(ascending: F64, levels: F64, z: float) -> F64:
    count = len(ascending)
    at = np.ceil(count * levels + z * np.sqrt(count * levels * (1.0 - levels))).astype(np.int64)
    bounds: F64 = ascending[np.clip(at - 1, 0, count - 1)]
    return bounds
