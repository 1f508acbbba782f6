"""The replicas of a language model: requests in, tokens out, iteration by iteration. Arrays in, arrays out, resumable.

(Part of the digest that names the compiled code's folder: forerun.kernels.) Requests are numbered by their place in
the order of entry, *positions*; refused ones are not among them. Within an instant: iterations end in the order they
began, requests enter, idle replicas begin iterations.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.engine.kernels.gaps import CELLS, FIRST_EXPONENT, LEAST_MS, PER_OCTAVE
from forerun.kernels.jit import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: fields of `limits`
MAX_SEQS: Final = 0
TOKEN_BUDGET: Final = 1
KV_BLOCKS: Final = 2
BLOCK_TOKENS: Final = 3
LEAST_REQUESTS: Final = 4  # 1: a request goes to the replica with the fewest; 0: in turn
LIMITS: Final = 5

#: columns of `counts`, a row a request
PROMPT: Final = 0
OUTPUT: Final = 1
EMITTED: Final = 2
CACHED: Final = 3
BLOCKS: Final = 4
NEXT: Final = 5  # the position behind it in its replica's queue, -1 at the end
PREEMPTED: Final = 6  # how often
REPLICA: Final = 7
COUNTS: Final = 8

#: columns of `times`, a row a request
START: Final = 0  # begin of its first iteration
FIRST: Final = 1  # its first token
LAST: Final = 2  # its latest token; at the end, its last
GAP: Final = 3  # longest time between consecutive tokens
SINCE: Final = 4  # when it was preempted
STALLED: Final = 5  # time between preemption and readmission
STALLED_FIRST: Final = 6  # the part of it before the first token
TIMES: Final = 7

#: fields of a replica's row in `own`
RUNNING: Final = 0
HEAD: Final = 1
TAIL: Final = 2
FREE: Final = 3  # free blocks
ORDER: Final = 4  # number of its iteration under way
OPEN: Final = 5  # requests waiting or running
STEADY: Final = 6  # 1 if everybody who ran emitted a token when its last iteration ended
OWN: Final = 7

#: fields of `window`
ENTERED: Final = 0  # positions that have entered
FED: Final = 1
ITERATIONS: Final = 2
DONE: Final = 3
TURN: Final = 4
WINDOW: Final = 5

#: columns of `rows`, a row an iteration
ROW_REPLICA: Final = 0
ROW_PREFILL: Final = 1
ROW_DECODES: Final = 2
ROW_KV: Final = 3
ROW_RUNNING: Final = 4
ROW_FREE: Final = 5
ROWS: Final = 6


class Law(NamedTuple):
    """What an iteration takes: a + b_p P + b_d D + b_k K + c A with `terms` = (a, b_p, b_d, b_k, c).

    With tables (else of length 1): prefill_ms[P], of P prompt tokens alone, and decode_ms[D], of D decodes alone;
    both together take prefill_ms[P] + decode_ms[D] - decode_ms[1].
    """

    terms: Floats
    prefill_ms: Floats
    decode_ms: Floats


class State(NamedTuple):
    """N requests, R replicas.

    enter_ms: float64[N]. counts: int64[N, COUNTS]. times: float64[N, TIMES]. own: int64[R, OWN]. due_ms: float64[R], end of
    the iteration under way, inf if there is none; begun_ms: float64[R], its begin, or from when on the next may begin.
    slots, given: int64[R, max_seqs], who runs, in order of admission, and how many tokens each was given. window:
    int64[WINDOW]. done: int64[N, 2], position and iteration of each request that left, done_ms: float64[N], the begin of
    that iteration; in order replica by replica. gaps: int64[CELLS], times between consecutive tokens. crossing:
    int64[block_tokens], scratch. rows_ms: float64[M, 2], begin and end of each iteration; rows: int64[M, ROWS]; in order
    replica by replica; M = 0 records none.
    """

    enter_ms: Floats
    counts: Ints
    times: Floats
    own: Ints
    due_ms: Floats
    begun_ms: Floats
    slots: Ints
    given: Ints
    window: Ints
    done: Ints
    done_ms: Floats
    gaps: Ints
    crossing: Ints
    rows_ms: Floats
    rows: Ints


@kernel
def run_requests(limits: Ints, law: Law, state: State, until_ms: float) -> bool:
    """Handle every instant before `until_ms`; False if `rows` is full and there is more to do.

    Between two instants of entry replicas do not meet, so each runs ahead by itself.
    """
    # Taken out once: each look into the state costs as much as a token.
    window, own, due_ms, enter_ms = state.window, state.own, state.due_ms, state.enter_ms
    slots, given, counts, times = state.slots, state.given, state.counts, state.times
    done, done_ms, gaps, rows, rows_ms = state.done, state.done_ms, state.gaps, state.rows, state.rows_ms
    terms, prefill_ms, decode_ms = law.terms, law.prefill_ms, law.decode_ms
    begun_ms, crossing = state.begun_ms, state.crossing
    replicas, room = due_ms.shape[0], rows.shape[0]
    while True:
        coming_ms = enter_ms[window[ENTERED]] if window[ENTERED] < window[FED] else np.inf
        limit_ms = min(coming_ms, until_ms)
        for r in range(replicas):
            while True:
                if due_ms[r] == np.inf:
                    # What ends at the instant of entry begins again only after it.
                    if own[r, OPEN] == 0 or not begun_ms[r] < limit_ms:
                        break
                    if room > 0 and window[ITERATIONS] + 1 > room:
                        return False
                    _begin(
                        r,
                        limits,
                        terms,
                        prefill_ms,
                        decode_ms,
                        own,
                        slots,
                        given,
                        counts,
                        times,
                        due_ms,
                        begun_ms,
                        window,
                        rows,
                        rows_ms,
                    )
                elif due_ms[r] < limit_ms or (due_ms[r] == coming_ms and coming_ms < until_ms):
                    _end(r, own, slots, given, counts, times, due_ms, begun_ms, window, done, done_ms, gaps)
                    if own[r, STEADY] and own[r, RUNNING] > 0:
                        _decode_on(
                            r,
                            limit_ms,
                            limits,
                            terms,
                            decode_ms,
                            own,
                            slots,
                            counts,
                            times,
                            begun_ms,
                            window,
                            gaps,
                            crossing,
                            rows,
                            rows_ms,
                        )
                else:
                    break
        if not coming_ms < until_ms:
            return True
        for r in range(replicas):
            if due_ms[r] == np.inf:
                begun_ms[r] = coming_ms
        while window[ENTERED] < window[FED] and enter_ms[window[ENTERED]] == coming_ms:
            _enter(limits, own, counts, window)


@kernel(inline=True)
def _end(
    r: int,
    own: Ints,
    slots: Ints,
    given: Ints,
    counts: Ints,
    times: Floats,
    due_ms: Floats,
    begun_ms: Floats,
    window: Ints,
    done: Ints,
    done_ms: Floats,
    gaps: Ints,
) -> None:
    """The replica's iteration ends: whoever has all of its tokens cached emits one; whoever has emitted all leaves."""
    now_ms, usual_ms, cell = due_ms[r], -1.0, 0
    kept, emitted = 0, 0
    for i in range(own[r, RUNNING]):
        who = slots[r, i]
        counts[who, CACHED] += given[r, i]
        if given[r, i] > 0 and counts[who, CACHED] == counts[who, PROMPT] + counts[who, EMITTED]:
            counts[who, EMITTED] += 1
            emitted += 1
            if counts[who, EMITTED] == 1:
                times[who, FIRST] = now_ms
                times[who, STALLED_FIRST] = times[who, STALLED]
            else:
                gap_ms = now_ms - times[who, LAST]
                times[who, GAP] = max(times[who, GAP], gap_ms)
                if gap_ms != usual_ms:
                    usual_ms = gap_ms
                    mantissa, exponent = math.frexp(max(gap_ms, LEAST_MS))
                    within = int((mantissa - 0.5) * (2 * PER_OCTAVE))
                    cell = min(CELLS - 1, (exponent - FIRST_EXPONENT) * PER_OCTAVE + within)
                gaps[cell] += 1
            times[who, LAST] = now_ms
            if counts[who, EMITTED] == counts[who, OUTPUT]:
                own[r, FREE] += counts[who, BLOCKS]
                own[r, OPEN] -= 1
                done[window[DONE], 0], done[window[DONE], 1] = who, own[r, ORDER]
                done_ms[window[DONE]] = begun_ms[r]
                window[DONE] += 1
                continue
        slots[r, kept] = who
        kept += 1
    own[r, STEADY] = emitted == own[r, RUNNING]
    own[r, RUNNING] = kept
    due_ms[r], begun_ms[r] = np.inf, now_ms


@kernel(inline=True)
def _enter(limits: Ints, own: Ints, counts: Ints, window: Ints) -> None:
    """The next request joins the back of a replica's queue: in turn, or where the fewest are."""
    who = window[ENTERED]
    chosen = window[TURN]
    if limits[LEAST_REQUESTS]:
        chosen = 0
        for r in range(1, own.shape[0]):
            if own[r, OPEN] < own[chosen, OPEN]:
                chosen = r
    window[TURN] = (chosen + 1) % own.shape[0]
    counts[who, REPLICA], counts[who, NEXT] = chosen, -1
    if own[chosen, HEAD] < 0:
        own[chosen, HEAD] = who
    else:
        counts[own[chosen, TAIL], NEXT] = who
    own[chosen, TAIL] = who
    own[chosen, OPEN] += 1
    window[ENTERED] = who + 1


@kernel(inline=True)
def _begin(
    r: int,
    limits: Ints,
    terms: Floats,
    prefill_ms: Floats,
    decode_ms: Floats,
    own: Ints,
    slots: Ints,
    given: Ints,
    counts: Ints,
    times: Floats,
    due_ms: Floats,
    begun_ms: Floats,
    window: Ints,
    rows: Ints,
    rows_ms: Floats,
) -> None:
    """An idle replica begins an iteration.

    Running requests, in order of admission, are given what they still need, within the budget. One that finds too few
    free blocks has the last of the running preempted, again and again; if that is itself, it waits with the others.
    Where nobody was preempted, requests are admitted from the front of the queue.
    """
    now_ms, budget, block = begun_ms[r], limits[TOKEN_BUDGET], limits[BLOCK_TOKENS]
    prefill, decodes, kv, attention = 0, 0, 0, 0.0
    preempted = False
    i = 0
    while i < own[r, RUNNING]:
        who = slots[r, i]
        todo = counts[who, PROMPT] + counts[who, EMITTED] - counts[who, CACHED]
        give = min(todo, budget)
        given[r, i] = 0
        if give > 0:
            needed = 0
            if counts[who, CACHED] + give > counts[who, BLOCKS] * block:
                needed = (counts[who, CACHED] + give + block - 1) // block - counts[who, BLOCKS]
            while needed > own[r, FREE]:
                last = slots[r, own[r, RUNNING] - 1]
                _preempt(r, last, now_ms, own, counts, times)
                preempted = True
                if last == who:
                    give = 0
                    break
            if give > 0:
                own[r, FREE] -= needed
                counts[who, BLOCKS] += needed
                given[r, i] = give
                budget -= give
                if counts[who, EMITTED] > 0 and todo == 1:
                    decodes += 1
                    kv += counts[who, CACHED]
                else:
                    prefill += give
                    attention += give * (counts[who, CACHED] + give / 2)
        i += 1
    while not preempted and own[r, HEAD] >= 0 and own[r, RUNNING] < limits[MAX_SEQS] and budget > 0:
        who = own[r, HEAD]
        give = min(counts[who, PROMPT] + counts[who, EMITTED], budget)
        needed = (give + block - 1) // block
        if needed > own[r, FREE]:
            break
        own[r, HEAD] = counts[who, NEXT]
        own[r, FREE] -= needed
        counts[who, BLOCKS] = needed
        slots[r, own[r, RUNNING]], given[r, own[r, RUNNING]] = who, give
        own[r, RUNNING] += 1
        budget -= give
        prefill += give
        attention += give * (give / 2)
        if counts[who, PREEMPTED] > 0:
            times[who, STALLED] += now_ms - times[who, SINCE]
        else:
            times[who, START] = now_ms
    if decode_ms.shape[0] > 1:
        taken_ms = decode_ms[decodes]
        if prefill > 0:
            taken_ms = prefill_ms[prefill] + (taken_ms - decode_ms[1] if decodes > 0 else 0.0)
    else:
        taken_ms = terms[0] + terms[1] * prefill + terms[2] * decodes + terms[3] * kv + terms[4] * attention
    end_ms = now_ms + taken_ms
    number = window[ITERATIONS]
    if rows.shape[0] > 0:
        rows_ms[number, 0], rows_ms[number, 1] = now_ms, end_ms
        rows[number, ROW_REPLICA], rows[number, ROW_PREFILL], rows[number, ROW_DECODES] = r, prefill, decodes
        rows[number, ROW_KV], rows[number, ROW_RUNNING], rows[number, ROW_FREE] = (
            kv,
            own[r, RUNNING],
            own[r, FREE],
        )
    own[r, ORDER] = number
    window[ITERATIONS] = number + 1
    due_ms[r] = end_ms


@kernel(inline=True)
def _decode_on(
    r: int,
    limit_ms: float,
    limits: Ints,
    terms: Floats,
    decode_ms: Floats,
    own: Ints,
    slots: Ints,
    counts: Ints,
    times: Floats,
    begun_ms: Floats,
    window: Ints,
    gaps: Ints,
    crossing: Ints,
    rows: Ints,
    rows_ms: Floats,
) -> None:
    """Whole iterations in which all that run decode and nothing else can happen.

    They end before `limit_ms`, nobody leaves, nobody can be admitted, blocks suffice. Then iterations differ in their
    times only, and requests are brought up to date once. Each time is computed as it would be one by one.
    """
    now_ms, running, block, free = begun_ms[r], own[r, RUNNING], limits[BLOCK_TOKENS], own[r, FREE]
    room = rows.shape[0] - window[ITERATIONS] - 1 if rows.shape[0] > 0 else np.int64(2**62)
    steps, kv = room, 0
    for k in range(block):
        crossing[k] = 0
    for i in range(running):
        who = slots[r, i]
        steps = min(steps, counts[who, OUTPUT] - counts[who, EMITTED] - 1)
        kv += counts[who, CACHED]
        # Its blocks are full, and it needs another one, in so many iterations.
        crossing[(block - counts[who, CACHED] % block) % block] += 1
    left = limits[TOKEN_BUDGET] - running
    if own[r, HEAD] >= 0 and running < limits[MAX_SEQS] and left > 0:
        first = own[r, HEAD]
        give = min(counts[first, PROMPT] + counts[first, EMITTED], left)
        # Free blocks only get fewer, so whoever does not fit now does not fit later.
        if (give + block - 1) // block <= free - crossing[0]:
            steps = 0
    if left < 0:
        steps = 0
    done, usual_ms, cell, longest_ms = 0, -1.0, 0, 0.0
    while done < steps:
        needed = crossing[done % block]
        if needed > free:
            break
        if decode_ms.shape[0] > 1:
            taken_ms = decode_ms[running]
        else:
            taken_ms = terms[0] + terms[1] * 0 + terms[2] * running + terms[3] * kv + terms[4] * 0.0
        end_ms = now_ms + taken_ms
        if not end_ms < limit_ms:
            break
        free -= needed
        if rows.shape[0] > 0:
            number = window[ITERATIONS] + done
            rows_ms[number, 0], rows_ms[number, 1] = now_ms, end_ms
            rows[number, ROW_REPLICA], rows[number, ROW_PREFILL], rows[number, ROW_DECODES] = r, 0, running
            rows[number, ROW_KV], rows[number, ROW_RUNNING], rows[number, ROW_FREE] = kv, running, free
        gap_ms = end_ms - now_ms
        if gap_ms != usual_ms:
            usual_ms = gap_ms
            longest_ms = max(longest_ms, gap_ms)
            mantissa, exponent = math.frexp(max(gap_ms, LEAST_MS))
            within = int((mantissa - 0.5) * (2 * PER_OCTAVE))
            cell = min(CELLS - 1, (exponent - FIRST_EXPONENT) * PER_OCTAVE + within)
        gaps[cell] += running
        kv += running
        now_ms = end_ms
        done += 1
    if done > 0:
        for i in range(running):
            who = slots[r, i]
            counts[who, CACHED] += done
            counts[who, EMITTED] += done
            counts[who, BLOCKS] = (counts[who, CACHED] + block - 1) // block
            times[who, LAST] = now_ms
            times[who, GAP] = max(times[who, GAP], longest_ms)
        own[r, FREE] = free
        window[ITERATIONS] += done
        begun_ms[r] = now_ms


@kernel(inline=True)
def _preempt(r: int, who: int, now_ms: float, own: Ints, counts: Ints, times: Floats) -> None:
    """The last running request loses its blocks and goes back to the front of the queue."""
    own[r, FREE] += counts[who, BLOCKS]
    own[r, RUNNING] -= 1
    counts[who, BLOCKS] = counts[who, CACHED] = 0
    counts[who, PREEMPTED] += 1
    counts[who, NEXT] = own[r, HEAD]
    if own[r, HEAD] < 0:
        own[r, TAIL] = who
    own[r, HEAD] = who
    times[who, SINCE] = now_ms
