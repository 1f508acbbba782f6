"""A stage with a language model as a stream: requests enter, requests leave, any cut allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.engine.kernels import requests as kernel
from forerun.domains.serving.engine.kernels.gaps import CELLS
from forerun.domains.serving.engine.outcome import Batches, Iterations, Requests, Visits
from forerun.domains.serving.inputs.llm.model import LanguageModel
from forerun.domains.serving.inputs.pipeline import Bools, Floats, Ints


class LanguageStage:
    """One stage under way. `feed` what enters, `advance` to an instant, take what has left since with `left`."""

    def __init__(self, llm: LanguageModel, replicas: int, *, keep: bool) -> None:
        """keep: iterations are recorded one by one."""
        self.llm = llm
        self._refused = llm.refused
        self._limits = np.array(
            [
                llm.max_seqs,
                llm.token_budget,
                llm.kv_blocks,
                llm.block_tokens,
                int(llm.least_requests),
            ],
            dtype=np.int64,
        )
        cost = llm.cost
        self._law = kernel.Law(
            np.array(cost.terms),
            np.require(cost.prefill_ms, np.float64, ["C", "W"]),
            np.require(cost.decode_ms, np.float64, ["C", "W"]),
        )
        self._state = _fresh(llm, replicas, room=64, rows=1024 if keep else 0)
        self._query = np.zeros(64, dtype=np.int64)
        self._entered: list[tuple[Ints, Floats]] = []
        self._group_ms: list[Floats] = []
        self._handed = 0

    @property
    def ties(self) -> int:
        """Instants at which two iterations end with which somebody leaves, two groups enter, or both."""
        rows = self._state.done[: int(self._state.window[kernel.DONE])]
        who, first = rows[:, 0], np.unique(rows[:, 1], return_index=True)[1]
        ended_ms = self._state.times[who[first], kernel.LAST]
        _, counts = np.unique(np.concatenate([*self._group_ms, ended_ms]), return_counts=True)
        return int(np.count_nonzero(counts > 1))

    def feed(self, query: Ints, enter_ms: Floats, begins: Bools) -> None:
        """More requests, ascending; begins: bool[n], where one does not come in one group with the one before it.

        Refused requests are kept aside: they end at once.
        """
        self._entered.append((query, enter_ms))
        welcome = ~self._refused[query]
        if not welcome.all():
            # The first of a group that is let in begins it.
            group = np.cumsum(begins)[welcome]
            begins = np.diff(group, prepend=0) > 0
            query, enter_ms = query[welcome], enter_ms[welcome]
        self._group_ms.append(enter_ms[begins])
        fed = int(self._state.window[kernel.FED])
        after = fed + len(query)
        if after > len(self._query):
            self._grow(max(after, 2 * len(self._query)))
        state, rows = self._state, slice(fed, after)
        self._query[rows] = query
        state.enter_ms[rows] = enter_ms
        state.counts[rows, kernel.PROMPT] = self.llm.prompt[query]
        state.counts[rows, kernel.OUTPUT] = self.llm.output[query]
        state.window[kernel.FED] = after

    def advance(self, until_ms: float) -> None:
        """Handle every instant before `until_ms`; whatever enters before it has been fed."""
        while not kernel.run_requests(self._limits, self._law, self._state, until_ms):
            rows_ms, rows = self._state.rows_ms, self._state.rows
            room = 2 * len(rows) + 2 * len(self._state.due_ms)
            self._state = self._state._replace(rows_ms=_longer(rows_ms, room), rows=_longer(rows, room))

    def left(self) -> tuple[Ints, Floats, Ints]:
        """(query, instant, iteration) of the requests that have left since the last call, in order."""
        until = int(self._state.window[kernel.DONE])
        rows = slice(self._handed, until)
        self._handed = until
        who, iteration = self._state.done[rows].T
        end_ms, replica = self._state.times[who, kernel.LAST], self._state.counts[who, kernel.REPLICA]
        # Iterations that end together do so in the order they began: by instant, then by replica.
        order = np.lexsort((replica, self._state.done_ms[rows], end_ms))
        return self._query[who[order]], end_ms[order], iteration[order]

    def visits(self, queries: int) -> Visits:
        """By query; a refused one ends as it enters, on no replica."""
        enqueue_ms, start_ms, end_ms = (np.full(queries, np.nan) for _ in range(3))
        batch, replica = np.zeros(queries, dtype=np.int32), np.full(queries, -1, dtype=np.int32)
        for query, enter_ms in self._entered:
            enqueue_ms[query] = start_ms[query] = end_ms[query] = enter_ms
        who, rows = self._served()
        start_ms[who] = self._state.times[rows, kernel.START]
        end_ms[who] = self._state.times[rows, kernel.LAST]
        batch[who] = 1
        replica[who] = self._state.counts[rows, kernel.REPLICA]
        return Visits(enqueue_ms, start_ms, end_ms, batch, replica)

    def requests(self, queries: int) -> Requests:
        """By query."""
        first_ms, gap_ms, stalled_ms, stalled_first_ms = (np.full(queries, np.nan) for _ in range(4))
        preemptions = np.zeros(queries, dtype=np.int64)
        who, rows = self._served()
        times = self._state.times[rows]
        first_ms[who], gap_ms[who] = times[:, kernel.FIRST], times[:, kernel.GAP]
        stalled_ms[who], stalled_first_ms[who] = times[:, kernel.STALLED], times[:, kernel.STALLED_FIRST]
        preemptions[who] = self._state.counts[rows, kernel.PREEMPTED]
        iterations = int(self._state.window[kernel.ITERATIONS])
        kept = self._iterations() if len(self._state.rows) else None
        return Requests(
            first_ms,
            gap_ms,
            preemptions,
            stalled_ms,
            stalled_first_ms,
            self._state.gaps.copy(),
            iterations,
            kept,
        )

    def batches(self) -> Batches:
        """The iterations as batches: who runs in them; empty if they were not kept."""
        kept = self._iterations()
        return Batches(
            kept.start_ms, kept.end_ms, kept.running.astype(np.int32), kept.replica.astype(np.int32)
        )

    def _served(self) -> tuple[Ints, NDArray[np.intp]]:
        """Queries that have left, and their rows."""
        rows = self._state.done[: int(self._state.window[kernel.DONE]), 0]
        return self._query[rows], rows

    def _iterations(self) -> Iterations:
        """Those recorded, in the order they begin: by instant, then by replica."""
        count = int(self._state.window[kernel.ITERATIONS]) if len(self._state.rows) else 0
        rows, rows_ms = self._state.rows[:count], self._state.rows_ms[:count]
        order = np.lexsort((rows[:, kernel.ROW_REPLICA], rows_ms[:, 0]))
        replica, prefill, decodes, kv, running, free_blocks = rows[order].T.copy()
        start_ms, end_ms = rows_ms[order].T.copy()
        return Iterations(start_ms, end_ms, replica, prefill, decodes, kv, running, free_blocks)

    def _grow(self, room: int) -> None:
        names = ("enter_ms", "counts", "times", "done", "done_ms")
        self._state = self._state._replace(
            **{name: _longer(getattr(self._state, name), room) for name in names}
        )
        self._query = _longer(self._query, room)


def _fresh(llm: LanguageModel, replicas: int, room: int, rows: int) -> kernel.State:
    own = np.zeros((replicas, kernel.OWN), dtype=np.int64)
    own[:, [kernel.HEAD, kernel.TAIL]] = -1
    own[:, kernel.FREE] = llm.kv_blocks
    seats = (replicas, llm.max_seqs)
    return kernel.State(
        enter_ms=np.zeros(room),
        counts=np.zeros((room, kernel.COUNTS), dtype=np.int64),
        times=np.zeros((room, kernel.TIMES)),
        own=own,
        due_ms=np.full(replicas, np.inf),
        begun_ms=np.zeros(replicas),
        slots=np.zeros(seats, dtype=np.int64),
        given=np.zeros(seats, dtype=np.int64),
        window=np.zeros(kernel.WINDOW, dtype=np.int64),
        done=np.zeros((room, 2), dtype=np.int64),
        done_ms=np.zeros(room),
        gaps=np.zeros(CELLS, dtype=np.int64),
        crossing=np.zeros(llm.block_tokens, dtype=np.int64),
        rows_ms=np.zeros((rows, 2)),
        rows=np.zeros((rows, kernel.ROWS), dtype=np.int64),
    )


def _longer(old: NDArray[Any], room: int) -> NDArray[Any]:
    """The array with room for more rows."""
    new = np.zeros((room, *old.shape[1:]), dtype=old.dtype)
    new[: len(old)] = old
    return new
