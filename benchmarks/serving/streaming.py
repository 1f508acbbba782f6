"""Summaries of traces too long to keep: arrivals stream in, queries are forgotten as they finish."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.serving.engine.stagewise import SLICE, Stagewise
from forerun.serving.inputs.pipeline import Floats, Pipeline

#: cells of the latency histogram: each a factor of 2^(1/512) wide, so a quantile read from it is within 0.07 %
_PER_OCTAVE: Final = 512
_LEAST_MS: Final = 2.0**-20
_OCTAVES: Final = 64

#: latencies are summed in blocks of this many queries, wherever the stream was cut
_BLOCK: Final = 65_536


@dataclass(frozen=True)
class StreamSummary:
    """Figures of a streamed run; all are exact but what is read from the histogram.

    Parameters
    ----------
    queries : how many there were.
    misses : those above the objective.
    tie_count : stage-instants at which events coincided.
    latency_mean_ms, latency_max_ms : over all queries.
    histogram : int64[cells], queries by latency.
    """

    queries: int
    misses: int
    tie_count: int
    latency_mean_ms: float
    latency_max_ms: float
    histogram: NDArray[np.int64]

    def quantile_ms(self, share: float) -> float:
        """The latency that `share` of the queries do not exceed, within 0.07 %."""
        rank = share * (self.queries - 1) + 1
        cell = int(np.searchsorted(np.cumsum(self.histogram), rank))
        middle = _LEAST_MS * 2 ** ((cell + 0.5) / _PER_OCTAVE)
        return min(middle, self.latency_max_ms)


def summarise_stream(pipeline: Pipeline, chunks: Iterable[Floats], slo_ms: float) -> StreamSummary:
    """Run a pipeline on arrivals that come in chunks; memory grows with open queries only.

    Parameters
    ----------
    chunks : float64[n] each, instants in ms, ascending over all chunks; none is empty.
    slo_ms : latency above which a query misses.
    """
    state = Stagewise(pipeline, slo_ms)
    histogram = np.zeros(_PER_OCTAVE * _OCTAVES, dtype=np.int64)
    sums: list[float] = []
    most_ms = 0.0
    for latency in _blocks(_latencies(state, chunks)):
        cells = np.floor(np.log2(np.maximum(latency, _LEAST_MS) / _LEAST_MS) * _PER_OCTAVE).astype(np.int64)
        histogram += np.bincount(np.minimum(cells, len(histogram) - 1), minlength=len(histogram))
        sums.append(float(latency.sum()))
        most_ms = max(most_ms, float(latency.max()))
    return StreamSummary(
        state.fed,
        state.misses,
        state.tie_count,
        math.fsum(sums) / state.fed if state.fed else math.nan,
        most_ms,
        histogram,
    )


def _latencies(state: Stagewise, chunks: Iterable[Floats]) -> Iterator[Floats]:
    """Latencies in order of arrival, as queries finish."""
    waiting: Floats = np.empty(0)
    for arrivals in _slices(chunks):
        # Everything before the last arrival known is settled: more may come at that very instant.
        state.advance(arrivals, float(arrivals[-1]))
        waiting = np.concatenate([waiting, arrivals])
        finish = state.forget()
        yield finish - waiting[: len(finish)]
        waiting = waiting[len(finish) :]
    state.advance(np.empty(0))
    yield state.forget() - waiting


def _slices(chunks: Iterable[Floats]) -> Iterator[Floats]:
    for chunk in chunks:
        for first in range(0, len(chunk), SLICE):
            yield chunk[first : first + SLICE]


def _blocks(parts: Iterable[Floats]) -> Iterator[Floats]:
    """The same values in blocks of `_BLOCK`, so that sums do not depend on how the stream was cut."""
    pending: list[Floats] = []
    count = 0
    for part in parts:
        pending.append(part)
        count += len(part)
        while count >= _BLOCK:
            together = np.concatenate(pending)
            yield together[:_BLOCK]
            pending, count = [together[_BLOCK:]], count - _BLOCK
    if count:
        yield np.concatenate(pending)
