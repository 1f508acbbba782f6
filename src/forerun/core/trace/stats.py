"""What a stream of arrivals looks like: rate, burstiness, and the ties that simulations trip over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.core.errors import TraceError
from forerun.core.trace.requests import arrivals_ms
from forerun.core.trace.table import Trace

WINDOWS_S = (1.0, 10.0, 60.0, 600.0)
FEWEST_WINDOWS = 10


@dataclass(frozen=True, slots=True)
class WindowStats:
    """Arrivals counted in consecutive windows of one length, the last partial one left out.

    Parameters
    ----------
    window_s : their length [s].
    windows : how many there were.
    peak_to_mean : most arrivals of a window over the mean.
    dispersion : variance over mean of the counts, 1 for Poisson, the index of dispersion.
    """

    window_s: float
    windows: int
    peak_to_mean: float
    dispersion: float


@dataclass(frozen=True, slots=True)
class ArrivalStats:
    """Count, time and gaps of a stream of arrivals.

    Values that do not exist (a rate without time, a cv of no gaps) are None.

    Parameters
    ----------
    count : of arrivals.
    first_s, span_s : instant of the first, and the time from it to the last [s].
    rate_rps : gaps per second between first and last arrival.
    gap_mean_ms, gap_p50_ms, gap_p99_ms, gap_max_ms : mean, quantiles and largest of the gaps [ms].
    gap_cv, gap_scv : standard deviation (of the population) over mean of the gaps, and its square.
    gap_correlation : between a gap and the next.
    zero_gaps : gaps of length 0.
    tied : arrivals that share their instant with another.
    duplicates : rows equal to an earlier one in every column.
    windows : counts in windows of several lengths.
    """

    count: int
    first_s: float
    span_s: float
    rate_rps: float | None
    gap_mean_ms: float | None
    gap_p50_ms: float | None
    gap_p99_ms: float | None
    gap_max_ms: float | None
    gap_cv: float | None
    gap_scv: float | None
    gap_correlation: float | None
    zero_gaps: int
    tied: int
    duplicates: int
    windows: tuple[WindowStats, ...]

    def data(self) -> dict[str, object]:
        """As plain data, for JSON."""
        return asdict(self)


def trace_stats(trace: Trace) -> ArrivalStats:
    """Statistics of a trace of requests; TraceError if its times have no unit."""
    return arrival_stats(arrivals_ms(trace), duplicates=_duplicates(trace))


def arrival_stats(
    instants_ms: ArrayLike, *, windows_s: Sequence[float] = WINDOWS_S, duplicates: int = 0
) -> ArrivalStats:
    """Statistics of a stream of arrivals.

    Parameters
    ----------
    instants_ms : ascending instants, float64[arrivals] in milliseconds.
    windows_s : lengths of the windows in which arrivals are counted [s]; those that do not fit ten times are left
        out.
    duplicates : rows equal to an earlier one, as counted by the caller (default: 0).

    Raises TraceError if there are no arrivals.
    """
    instants = np.asarray(instants_ms, dtype=np.float64)
    if not len(instants):
        raise TraceError.at("arrivals", "there are none")
    gaps = np.diff(instants)
    span_s = float(instants[-1] - instants[0]) / 1e3
    mean = float(gaps.mean()) if len(gaps) else None
    cv = float(gaps.std()) / mean if mean else None
    p50, p99 = (float(q) for q in np.quantile(gaps, [0.5, 0.99])) if len(gaps) else (None, None)
    return ArrivalStats(
        count=len(instants),
        first_s=float(instants[0]) / 1e3,
        span_s=span_s,
        rate_rps=len(gaps) / span_s if span_s > 0 else None,
        gap_mean_ms=mean,
        gap_p50_ms=p50,
        gap_p99_ms=p99,
        gap_max_ms=float(gaps.max()) if len(gaps) else None,
        gap_cv=cv,
        gap_scv=cv**2 if cv is not None else None,
        gap_correlation=lag_one_correlation(gaps),
        zero_gaps=int((gaps == 0).sum()),
        tied=int(_shared(gaps == 0).sum()),
        duplicates=duplicates,
        windows=tuple(_window(instants, w) for w in windows_s if span_s >= FEWEST_WINDOWS * w),
    )


def counts_in_windows(instants_ms: NDArray[np.float64], window_s: float) -> NDArray[np.int64]:
    """Arrivals in each full window from the first arrival on, int64[windows].

    Parameters
    ----------
    instants_ms : ascending instants, at least one.
    window_s : length of a window [s]. The last partial window is left out.
    """
    offset = (instants_ms - instants_ms[0]) / (window_s * 1e3)
    full = int(offset[-1])
    return np.bincount(offset[offset < full].astype(np.int64), minlength=full)[:full]


def dispersion(counts: NDArray[np.int64]) -> float:
    """Variance over mean of counts, the index of dispersion."""
    return float(counts.var(ddof=1) / counts.mean())


def lag_one_correlation(gaps: NDArray[np.float64]) -> float | None:
    """Correlation of each gap with the next; None if there are fewer than three, or they do not vary."""
    if len(gaps) < 3 or not (gaps[:-1].std() > 0 and gaps[1:].std() > 0):
        return None
    return float(np.corrcoef(gaps[:-1], gaps[1:])[0, 1])


def _window(instants: NDArray[np.float64], window_s: float) -> WindowStats:
    counts = counts_in_windows(instants, window_s)
    return WindowStats(window_s, len(counts), float(counts.max() / counts.mean()), dispersion(counts))


def _shared(same_as_next: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which arrivals share their instant with a neighbour, from which gaps are zero."""
    shared: NDArray[np.bool_] = np.append(same_as_next, False) | np.append(False, same_as_next)
    return shared


def _duplicates(trace: Trace) -> int:
    """Rows equal to an earlier one in every column; a lone time column has ties, not duplicates."""
    if len(trace.columns) < 2:
        return 0
    # Equal rows are equal in time, so only rows that share their instant need to be compared.
    tied = trace.where(_shared(np.diff(trace.instants) == 0))
    rows = list(zip(*(values.tolist() for values in tied.columns.values()), strict=True))
    return len(rows) - len(set(rows))
