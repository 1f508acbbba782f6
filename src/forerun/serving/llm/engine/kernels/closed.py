"""Replicas of a language model under clients whose requests depend on the answers (see `serving.inputs.clients`).

(Part of the digest that names the compiled code's folder: forerun.core.kernels.)
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from forerun.core.kernels.jit import kernel
from forerun.core.kernels.records import Rows, record_type
from forerun.serving.llm.engine.kernels.endings import ABANDONED, COMPLETE, REFUSED
from forerun.serving.llm.engine.kernels.requests import (
    Floats,
    Ints,
    Model,
    State,
    end_iterations,
    run_requests,
)

LOOP: Final = record_type("waiting taken seen sent under_way came let", "due_ms")
"""Where the clients are, the only row of `Sending.loop`.

waiting: entries of the heap. taken: sessions that clients have taken. seen: requests whose answers clients have seen. sent:
requests so far, refused ones too. under_way: of these, those without an answer. came, let: requests that had to wait at
the gateway, and those of them that have passed it. due_ms: everything before it is to be handled, 0 if it is.
"""


class Sending(NamedTuple):
    """N requests, S sessions, C clients; `planned_ms` to `queue` are the fields of `Clients`.

    waits: int64[N], answers that each still waits for. first: int64[S + 1], first request of each session. row: int64[N],
    its row in `requests` and `prefixes`, -1 if it is refused. requests, prefixes: what enters, as `State` has it.
    request_ms: from sending until it joins the queue. heap_ms, heap_who: [N + C], requests that are ready, and clients (-1)
    who take a session, the earliest first, of equal ones the lowest number. unsent, open: int64[S], requests of a session
    that were not sent, and those ready or under way. ended: int64[S], how it ended, 0 if it has not. sent_ms, late_ms:
    float64[N], when each was sent, and how long it was ready before. passed_ms: float64[N], when it passed the gateway.
    line: int64[N], requests that had to wait there, in this order. order: int64[N], requests in the order they were sent.
    query: int64[N], the request at each position of `State`.
    """

    planned_ms: Floats
    session: Ints
    begin: Ints
    followers: Ints
    pause_ms: Floats
    joins_ms: Floats
    think_ms: Floats
    patience_ms: Floats
    most: int
    gate: int
    queue: int
    waits: Ints
    first: Ints
    row: Ints
    requests: Rows
    prefixes: Rows
    request_ms: float
    heap_ms: Floats
    heap_who: Ints
    unsent: Ints
    open: Ints
    ended: Ints
    sent_ms: Floats
    late_ms: Floats
    passed_ms: Floats
    line: Ints
    order: Ints
    query: Ints
    loop: Rows


@kernel(allocates=False)
def run_closed(model: Model, state: State, sending: Sending, until_ms: float) -> bool:
    """Send requests and handle every instant before `until_ms`; False if `iterations` is full and there is more to do.

    At an instant iterations end, clients see these answers and send, requests enter, idle replicas begin.
    """
    loop, whole = sending.loop[0], state.whole[0]
    while True:
        if loop.due_ms > 0.0:
            if not run_requests(model, state, loop.due_ms):
                return False
            loop.due_ms = 0.0
        now_ms = _next_ms(state, sending)
        if not now_ms < until_ms:
            return True
        end_iterations(model, state, now_ms)
        while loop.seen < whole.done:
            who = state.done[loop.seen].request
            loop.seen += 1
            loop.under_way -= 1
            _see(sending, sending.query[who], now_ms)
        while loop.let < loop.came and whole.fed - whole.done < sending.gate:
            _pass(state, sending, sending.line[loop.let], now_ms)
            loop.let += 1
        while loop.waiting > 0 and sending.heap_ms[0] <= now_ms:
            if sending.heap_who[0] >= 0 and loop.under_way >= sending.most:
                break
            ready_ms, who = sending.heap_ms[0], sending.heap_who[0]
            _drop_first(sending)
            if who < 0:
                _take(sending, ready_ms)
            else:
                _send(state, sending, who, ready_ms, now_ms)
        loop.due_ms = np.nextafter(now_ms, np.inf)


@kernel(inline=True)
def _next_ms(state: State, sending: Sending) -> float:
    """The next instant at which something may happen; inf if there is none."""
    loop, whole, next_ms = sending.loop[0], state.whole[0], np.inf
    if loop.waiting > 0 and (sending.heap_who[0] < 0 or loop.under_way < sending.most):
        next_ms = sending.heap_ms[0]
    if whole.entered < whole.fed:
        next_ms = min(next_ms, max(state.requests[whole.entered].enter_ms, whole.open_ms))
    for r in range(state.replicas.shape[0]):
        next_ms = min(next_ms, state.replicas[r].due_ms)
    return next_ms


@kernel(inline=True)
def _see(sending: Sending, who: int, now_ms: float) -> None:
    """A client sees the answer to a request: those that follow it may be ready, or the user has no more patience."""
    s = sending.session[who]
    if now_ms - sending.sent_ms[who] > sending.patience_ms[s] and sending.unsent[s] > 0:
        sending.ended[s] = max(sending.ended[s], ABANDONED)
    if sending.ended[s] == 0:
        for k in range(sending.begin[who], sending.begin[who + 1]):
            one = sending.followers[k]
            sending.waits[one] -= 1
            if sending.waits[one] == 0:
                sending.open[s] += 1
                _add(sending, max(now_ms + sending.pause_ms[one], sending.planned_ms[one]), one)
    _close(sending, s, now_ms)


@kernel(inline=True)
def _close(sending: Sending, s: int, now_ms: float) -> None:
    """A request of a session is over; with the last one the session is, and its client thinks."""
    sending.open[s] -= 1
    if sending.open[s] == 0:
        sending.ended[s] = max(sending.ended[s], COMPLETE)
        if sending.joins_ms.shape[0] > 0:
            _add(sending, now_ms + sending.think_ms[s], -1)


@kernel(inline=True)
def _take(sending: Sending, ready_ms: float) -> None:
    """A client takes the next session: its requests that follow none are ready."""
    loop = sending.loop[0]
    s = loop.taken
    if s < sending.think_ms.shape[0]:
        loop.taken = s + 1
        for who in range(sending.first[s], sending.first[s + 1]):
            if sending.waits[who] == 0:
                sending.open[s] += 1
                _add(sending, max(ready_ms, sending.planned_ms[who]), who)


@kernel(inline=True)
def _send(state: State, sending: Sending, who: int, ready_ms: float, now_ms: float) -> None:
    """A request is sent, unless its session has ended; a refused one is answered at once."""
    loop, whole = sending.loop[0], state.whole[0]
    s = sending.session[who]
    if sending.ended[s] == 0:
        sending.sent_ms[who], sending.late_ms[who] = now_ms, now_ms - ready_ms
        sending.order[loop.sent] = who
        loop.sent += 1
        sending.unsent[s] -= 1
        passes = whole.fed - whole.done < sending.gate
        if sending.row[who] < 0 or (not passes and loop.came - loop.let >= sending.queue):
            sending.ended[s] = REFUSED
            _close(sending, s, now_ms)
        else:
            loop.under_way += 1
            if passes:
                _pass(state, sending, who, now_ms)
            else:
                sending.line[loop.came] = who
                loop.came += 1
    else:
        _close(sending, s, now_ms)


@kernel(inline=True)
def _pass(state: State, sending: Sending, who: int, now_ms: float) -> None:
    """A request passes the gateway: it is the next to enter."""
    whole, row = state.whole[0], sending.row[who]
    sending.passed_ms[who] = now_ms
    given, request = sending.requests[row], state.requests[whole.fed]
    request.prompt, request.output, request.rank = given.prompt, given.output, given.rank
    request.key, request.counted, request.enter_ms = given.key, given.counted, now_ms + sending.request_ms
    if sending.prefixes.shape[0] > 0:
        shares, own = sending.prefixes[row], state.prefixes[whole.fed]
        own.chain, own.segments, own.own = shares.chain, shares.segments, shares.own
    sending.query[whole.fed] = who
    whole.fed += 1


@kernel(inline=True)
def _add(sending: Sending, ms: float, who: int) -> None:
    """Put a request or a client into the heap."""
    heap_ms, heap_who, hole = sending.heap_ms, sending.heap_who, sending.loop[0].waiting
    sending.loop[0].waiting += 1
    while hole > 0:
        above = (hole - 1) >> 1
        if heap_ms[above] < ms or (heap_ms[above] == ms and heap_who[above] <= who):
            break
        heap_ms[hole], heap_who[hole] = heap_ms[above], heap_who[above]
        hole = above
    heap_ms[hole], heap_who[hole] = ms, who


@kernel(inline=True)
def _drop_first(sending: Sending) -> None:
    """Drop the first of the heap."""
    heap_ms, heap_who = sending.heap_ms, sending.heap_who
    sending.loop[0].waiting -= 1
    size, hole = sending.loop[0].waiting, 0
    ms, who = heap_ms[size], heap_who[size]
    while 2 * hole + 1 < size:
        below = 2 * hole + 1
        if below + 1 < size:
            one, two = heap_ms[below], heap_ms[below + 1]
            if two < one or (two == one and heap_who[below + 1] < heap_who[below]):
                below += 1
        if ms < heap_ms[below] or (ms == heap_ms[below] and who <= heap_who[below]):
            break
        heap_ms[hole], heap_who[hole] = heap_ms[below], heap_who[below]
        hole = below
    heap_ms[hole], heap_who[hole] = ms, who
