"""A stage with an engine as a stream: requests enter, requests leave, any cut allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.llm import kernel
from forerun.domains.serving.llm.cells import CELLS
from forerun.domains.serving.llm.engine import Bools, Engine, Floats, Ints, Iterations, Requests
from forerun.domains.serving.model import Batches, Visits


class EngineStage:
    """One stage under way. `feed` what enters, `advance` to an instant, take what has left since with `left`."""

    def __init__(self, engine: Engine, replicas: int, *, keep: bool) -> None:
        """keep: iterations are recorded one by one."""
        self.engine = engine
        self._refused = engine.refused
        self._limits = np.array(
            [
                engine.max_seqs,
                engine.token_budget,
                engine.kv_blocks,
                engine.block_tokens,
                int(engine.least_requests),
            ],
            dtype=np.int64,
        )
        cost = engine.cost
        self._law = kernel.Law(
            np.array(cost.terms),
            np.require(cost.prefill_ms, np.float64, ["C", "W"]),
            np.require(cost.decode_ms, np.float64, ["C", "W"]),
        )
        self._state = _fresh(engine, replicas, room=64, rows=1024 if keep else 0)
        self._query = np.zeros(64, dtype=np.int64)
        self._entered: list[tuple[Ints, Floats]] = []
        self._handed = 0

    @property
    def ties(self) -> int:
        """Instants at which iterations that end, or groups that enter, coincided."""
        return int(self._state.window[kernel.TIES])

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
        fed = int(self._state.window[kernel.FED])
        after = fed + len(query)
        if after > len(self._query):
            self._grow(max(after, 2 * len(self._query)))
        state, rows = self._state, slice(fed, after)
        self._query[rows] = query
        state.enter_ms[rows] = enter_ms
        state.begins[rows] = begins
        state.counts[rows, kernel.PROMPT] = self.engine.prompt[query]
        state.counts[rows, kernel.OUTPUT] = self.engine.output[query]
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
        done = self._state.done[self._handed : until]
        self._handed = until
        who = done[:, 0]
        return self._query[who], self._state.times[who, kernel.LAST], done[:, 1].copy()

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
        kept = self._iterations(iterations) if len(self._state.rows) else None
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
        count = int(self._state.window[kernel.ITERATIONS]) if len(self._state.rows) else 0
        rows, rows_ms = self._state.rows[:count], self._state.rows_ms[:count]
        return Batches(
            rows_ms[:, 0].copy(),
            rows_ms[:, 1].copy(),
            rows[:, kernel.ROW_RUNNING].astype(np.int32),
            rows[:, kernel.ROW_REPLICA].astype(np.int32),
        )

    def _served(self) -> tuple[Ints, NDArray[np.intp]]:
        """Queries that have left, and their rows."""
        rows = self._state.done[: int(self._state.window[kernel.DONE]), 0]
        return self._query[rows], rows

    def _iterations(self, count: int) -> Iterations:
        rows, rows_ms = self._state.rows[:count], self._state.rows_ms[:count]
        return Iterations(
            start_ms=rows_ms[:, 0].copy(),
            end_ms=rows_ms[:, 1].copy(),
            replica=rows[:, kernel.ROW_REPLICA].copy(),
            prefill=rows[:, kernel.ROW_PREFILL].copy(),
            decodes=rows[:, kernel.ROW_DECODES].copy(),
            kv=rows[:, kernel.ROW_KV].copy(),
            running=rows[:, kernel.ROW_RUNNING].copy(),
            free_blocks=rows[:, kernel.ROW_FREE].copy(),
        )

    def _grow(self, room: int) -> None:
        names = ("enter_ms", "begins", "counts", "times", "done")
        self._state = self._state._replace(
            **{name: _longer(getattr(self._state, name), room) for name in names}
        )
        self._query = _longer(self._query, room)


def _fresh(engine: Engine, replicas: int, room: int, rows: int) -> kernel.State:
    own = np.zeros((replicas, kernel.OWN), dtype=np.int64)
    own[:, [kernel.HEAD, kernel.TAIL]] = -1
    own[:, kernel.FREE] = engine.kv_blocks
    seats = (replicas, engine.max_seqs)
    return kernel.State(
        enter_ms=np.zeros(room),
        begins=np.zeros(room, dtype=np.uint8),
        counts=np.zeros((room, kernel.COUNTS), dtype=np.int64),
        times=np.zeros((room, kernel.TIMES)),
        own=own,
        due_ms=np.full(replicas, np.inf),
        slots=np.zeros(seats, dtype=np.int64),
        given=np.zeros(seats, dtype=np.int64),
        window=np.zeros(kernel.WINDOW, dtype=np.int64),
        done=np.zeros((room, 2), dtype=np.int64),
        gaps=np.zeros(CELLS, dtype=np.int64),
        rows_ms=np.zeros((rows, 2)),
        rows=np.zeros((rows, kernel.ROWS), dtype=np.int64),
    )


def _longer(old: NDArray[Any], room: int) -> NDArray[Any]:
    """The array with room for more rows."""
    new = np.zeros((room, *old.shape[1:]), dtype=old.dtype)
    new[: len(old)] = old
    return new
