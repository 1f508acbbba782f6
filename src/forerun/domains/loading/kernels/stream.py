"""Threads over a store: the event loop of loaders that share storage, link, request rate, caches and cores.

Every thread has at most one event to come, every consumer one; what processor sharing finishes next is not an event
but a plan, replaced whenever somebody comes or goes. So the heap never holds more than threads + jobs entries.

All that is given, all state and all record lie in two arrays, `f` (float64) and `i` (int64); `At` says where. A
function that takes two arrays and plain numbers costs next to nothing to call, which one that takes thirty arrays does
not. `advance` may stop at any instant and be called again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.domains.loading.kernels.cache import HIT_BYTES_PER_S, HIT_LATENCY_S, Caches, cache_access
from forerun.domains.loading.kernels.heap import heap_pop, heap_push
from forerun.kernels.jit import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

# kinds of event; who they concern: a thread, or a job for STEP_END and BEGIN
KINDS: Final = 16
TOKEN, FIRST_BYTE, TRANSFERRED, ARRIVED, WAITED, DECODED, STEP_END, TIMED_OUT, RETRY, BEGIN = range(10)

# the first numbers of `f`: the store as given, then state
(CONN, SHARED, RATE, BURST, CLIENT_S, CLIENT_S_PER_BYTE, TIMEOUT_S, BACKOFF_S, CORES,
 NOW, BUCKET, LINK_MARK, LINK_SINCE, LINK_NEXT, CPU_MARK, CPU_SINCE, CPU_NEXT, PYTHON_FREE, BYTES, FLIGHT_SUM,
 FLIGHT_SINCE, F_FIXED) = range(22)  # fmt: skip
# the first numbers of `i`
(SLOTS, RETRIES, ONE_CORE_PYTHON, JOBS, THREADS, LAYERS,
 ORDER, LINK_ORDER, CPU_ORDER, EVENTS, ON_LINK, ON_CPU, IN_FLIGHT, GRANTS, MOST_IN_FLIGHT, QUEUE_HEAD, QUEUED,
 FAILED_BLOCK, ACTIVE_JOBS, ATTEMPTS, I_FIXED) = range(21)  # fmt: skip


class At(NamedTuple):
    """Where each column begins.

    In `f`, given: `block_bytes`, `decode_s` and `cpu_s` (one a sample, or one), `start_s` a job, `step_s` (one a
    batch, or one a job), `latency_s` (in the order in which the store begins to serve, or one). In `f`, state and
    record: keys of the three heaps; `wait_since_s` a thread; per batch `ask_s`, `got_s`; per block `taken_s`,
    `grant_s`, `first_byte_s`, `done_s`, `left_s` (last sample put), `put_wait_s`; per job `end_s`.
    In `i`, given: `block_at` first sample of each block, `block_key`, `block_failures` attempts that will fail;
    `job_block`, `job_thread`, `job_step`, `job_batch` where a job's rows begin; `batch_samples`; `buffer` samples
    a job; `job_cache` [job, layer]; `thread_job`. In `i`, state and record: heaps; queues for a slot and for room in
    the buffer; per thread its `block`, `sample`, `failed` attempts; per job `next_block`, `buffered`, `in_hand`,
    `waiting`, `batch`, `put`, `most_buffered`; per batch `queue`; per block `by_thread`, `source`; per sample put
    `put_block`. `steps_many`, ...: whether there is one value each (1) or one for all (0).
    """

    block_bytes: int
    decode_s: int
    cpu_s: int
    start_s: int
    step_s: int
    latency_s: int
    event_s: int
    link_mark: int
    cpu_mark: int
    wait_since_s: int
    ask_s: int
    got_s: int
    taken_s: int
    grant_s: int
    first_byte_s: int
    done_s: int
    left_s: int
    put_wait_s: int
    end_s: int
    block_at: int
    block_key: int
    block_failures: int
    job_block: int
    job_thread: int
    job_step: int
    job_batch: int
    batch_samples: int
    buffer: int
    job_cache: int
    thread_job: int
    event_order: int
    event_who: int
    link_order: int
    link_who: int
    cpu_order: int
    cpu_who: int
    slot_queue: int
    put_queue: int
    put_head: int
    put_queued: int
    block: int
    sample: int
    failed: int
    next_block: int
    buffered: int
    in_hand: int
    waiting: int
    batch: int
    put: int
    most_buffered: int
    queue: int
    by_thread: int
    source: int
    put_block: int
    decode_many: int
    cpu_many: int
    latency_many: int


@kernel
def begin(f: F64, i: I64, at: At) -> None:
    """The world before anything happened: each job's beginning is scheduled."""
    f[LINK_NEXT] = f[CPU_NEXT] = np.inf
    i[FAILED_BLOCK] = -1
    i[ACTIVE_JOBS] = i[JOBS]
    for job in range(i[JOBS]):
        for thread in range(i[at.job_thread + job], i[at.job_thread + job + 1]):
            i[at.thread_job + thread] = job
        i[at.next_block + job] = i[at.job_block + job]
        i[at.batch + job] = i[at.job_batch + job]
        schedule(f, i, at, f[at.start_s + job], BEGIN, job)


@kernel
def schedule(f: F64, i: I64, at: At, time_s: float, kind: int, who: int) -> None:
    """Put an event on the heap."""
    i[EVENTS] = heap_push(
        f, i, i, at.event_s, at.event_order, at.event_who, i[EVENTS], time_s, i[ORDER], who * KINDS + kind
    )
    i[ORDER] += 1


@kernel
def advance(f: F64, i: I64, at: At, caches: Caches, until_s: float) -> bool:
    """Carry out what happens up to and at `until_s`; whether something is left to do.

    Ends when every job has taken its last step, or when a block failed once more than retries allow
    (`i[FAILED_BLOCK]`).
    """
    while i[ACTIVE_JOBS] > 0 and i[FAILED_BLOCK] < 0:
        time_s, order, which = np.inf, 0, 0
        if i[EVENTS] > 0:
            time_s, order = f[at.event_s], i[at.event_order]
        if f[LINK_NEXT] < time_s or (f[LINK_NEXT] == time_s and i[LINK_ORDER] < order):
            time_s, order, which = f[LINK_NEXT], i[LINK_ORDER], 1
        if f[CPU_NEXT] < time_s or (f[CPU_NEXT] == time_s and i[CPU_ORDER] < order):
            time_s, which = f[CPU_NEXT], 2
        if time_s > until_s:
            return True
        f[NOW] = time_s
        if which == 1:
            transferred(f, i, at, caches, leave_link(f, i, at))
        elif which == 2:
            put_sample(f, i, at, caches, leave_cpu(f, i, at))
        else:
            entry = i[at.event_who]
            i[EVENTS] = heap_pop(f, i, i, at.event_s, at.event_order, at.event_who, i[EVENTS])
            happen(f, i, at, caches, entry % KINDS, entry // KINDS)
    return False


@kernel
def happen(f: F64, i: I64, at: At, caches: Caches, kind: int, who: int) -> None:
    """One event of the heap."""
    if kind == DECODED:
        put_sample(f, i, at, caches, who)
    elif kind == WAITED:
        use_cpu(f, i, at, who)
    elif kind == TOKEN:
        join_queue(f, i, at, who)
    elif kind == FIRST_BYTE:
        f[at.first_byte_s + i[at.block + who]] = f[NOW]
        join_link(f, i, at, who)
    elif kind == TRANSFERRED:
        transferred(f, i, at, caches, who)
    elif kind == ARRIVED:
        arrived(f, i, at, caches, who)
    elif kind == STEP_END:
        step_ended(f, i, at, caches, who)
    elif kind == TIMED_OUT:
        free_slot(f, i, at)
        i[at.failed + who] += 1
        if i[at.failed + who] > i[RETRIES]:
            i[FAILED_BLOCK] = i[at.block + who]
        else:
            schedule(f, i, at, f[NOW] + f[BACKOFF_S] * 2.0 ** (i[at.failed + who] - 1), RETRY, who)
    elif kind == RETRY:
        ask_store(f, i, at, who)
    else:
        for thread in range(i[at.job_thread + who], i[at.job_thread + who + 1]):
            take_block(f, i, at, caches, thread)
        ask_batch(f, i, at, caches, who)


@kernel
def take_block(f: F64, i: I64, at: At, caches: Caches, thread: int) -> None:
    """The thread takes the job's next block and asks for it, of the caches first; where there is none, it is done."""
    job = i[at.thread_job + thread]
    block = i[at.next_block + job]
    if block >= i[at.job_block + job + 1]:
        i[at.block + thread] = -1
        return
    i[at.next_block + job] += 1
    i[at.block + thread] = block
    i[at.failed + thread] = 0
    i[at.by_thread + block] = thread
    f[at.taken_s + block] = f[NOW]
    size = f[at.block_bytes + block]
    for layer in range(i[LAYERS]):
        c = i[at.job_cache + job * i[LAYERS] + layer]
        if c >= 0 and cache_access(caches, c, i[at.block_key + block], size):
            i[at.source + block] = c
            f[at.grant_s + block] = f[NOW]
            first = f[NOW] + caches.about[c, HIT_LATENCY_S]
            f[at.first_byte_s + block] = first
            schedule(f, i, at, first + size / caches.about[c, HIT_BYTES_PER_S], ARRIVED, thread)
            return
    ask_store(f, i, at, thread)


@kernel
def ask_store(f: F64, i: I64, at: At, thread: int) -> None:
    """One attempt: a token of the request rate first, in the order of asking."""
    i[ATTEMPTS] += 1
    if f[RATE] == np.inf:
        join_queue(f, i, at, thread)
        return
    granted = max(f[NOW], f[BUCKET] - (f[BURST] - 1) / f[RATE])
    f[BUCKET] = max(f[BUCKET], granted) + 1 / f[RATE]
    schedule(f, i, at, granted, TOKEN, thread)


@kernel
def join_queue(f: F64, i: I64, at: At, thread: int) -> None:
    """Wait for a slot behind those who wait already."""
    i[at.slot_queue + (i[QUEUE_HEAD] + i[QUEUED]) % i[THREADS]] = thread
    i[QUEUED] += 1
    give_slots(f, i, at)


@kernel
def give_slots(f: F64, i: I64, at: At) -> None:
    """Serve those who wait for a slot, in order, while there are slots."""
    while i[QUEUED] > 0 and (i[SLOTS] == 0 or i[IN_FLIGHT] < i[SLOTS]):
        thread = i[at.slot_queue + i[QUEUE_HEAD]]
        i[QUEUE_HEAD] = (i[QUEUE_HEAD] + 1) % i[THREADS]
        i[QUEUED] -= 1
        count_flight(f, i, 1)
        block = i[at.block + thread]
        f[at.grant_s + block] = f[NOW]
        latency = f[at.latency_s + i[GRANTS] * at.latency_many]
        i[GRANTS] += 1
        if i[at.failed + thread] < i[at.block_failures + block]:
            schedule(f, i, at, f[NOW] + f[TIMEOUT_S], TIMED_OUT, thread)
        else:
            schedule(f, i, at, f[NOW] + latency, FIRST_BYTE, thread)


@kernel
def free_slot(f: F64, i: I64, at: At) -> None:
    """A request left the store."""
    count_flight(f, i, -1)
    give_slots(f, i, at)


@kernel
def count_flight(f: F64, i: I64, change: int) -> None:
    """Keep the requests in service, their most, and their integral over time."""
    f[FLIGHT_SUM] += i[IN_FLIGHT] * (f[NOW] - f[FLIGHT_SINCE])
    f[FLIGHT_SINCE] = f[NOW]
    i[IN_FLIGHT] += change
    i[MOST_IN_FLIGHT] = max(i[MOST_IN_FLIGHT], i[IN_FLIGHT])


@kernel
def link_rate(f: F64, i: I64) -> float:
    """Bytes a second that each transfer gets now."""
    return float(min(f[CONN], f[SHARED] / max(1, i[ON_LINK])))


@kernel
def join_link(f: F64, i: I64, at: At, thread: int) -> None:
    """Begin a transfer; on a link that nobody shares, its end is known at once."""
    size = f[at.block_bytes + i[at.block + thread]]
    if f[SHARED] == np.inf:
        schedule(f, i, at, f[NOW] + size / f[CONN], TRANSFERRED, thread)
        return
    # All transfers move at one rate: one clock of bytes served and a heap of finishing marks is exact.
    f[LINK_MARK] += link_rate(f, i) * (f[NOW] - f[LINK_SINCE])
    f[LINK_SINCE] = f[NOW]
    mark = f[LINK_MARK] + size
    i[ON_LINK] = heap_push(
        f, i, i, at.link_mark, at.link_order, at.link_who, i[ON_LINK], mark, i[ORDER], thread
    )
    i[ORDER] += 1
    plan_link(f, i, at)


@kernel
def leave_link(f: F64, i: I64, at: At) -> int:
    """The transfer that ends now; returns its thread."""
    thread = i[at.link_who]
    f[LINK_MARK] = f[at.link_mark]
    f[LINK_SINCE] = f[NOW]
    i[ON_LINK] = heap_pop(f, i, i, at.link_mark, at.link_order, at.link_who, i[ON_LINK])
    plan_link(f, i, at)
    return int(thread)


@kernel
def plan_link(f: F64, i: I64, at: At) -> None:
    """When the next transfer ends, if nobody comes or goes before."""
    if i[ON_LINK] == 0:
        f[LINK_NEXT] = np.inf
        f[LINK_MARK] = 0.0
        return
    f[LINK_NEXT] = f[NOW] + max(0.0, f[at.link_mark] - f[LINK_MARK]) / link_rate(f, i)
    i[LINK_ORDER] = i[ORDER]
    i[ORDER] += 1


@kernel
def transferred(f: F64, i: I64, at: At, caches: Caches, thread: int) -> None:
    """The last byte is here: the slot is free, the client's own work follows."""
    free_slot(f, i, at)
    client = f[CLIENT_S] + f[CLIENT_S_PER_BYTE] * f[at.block_bytes + i[at.block + thread]]
    if client > 0:
        schedule(f, i, at, f[NOW] + client, ARRIVED, thread)
    else:
        arrived(f, i, at, caches, thread)


@kernel
def arrived(f: F64, i: I64, at: At, caches: Caches, thread: int) -> None:
    """The whole block is here: its first sample is decoded."""
    block = i[at.block + thread]
    f[at.done_s + block] = f[NOW]
    if i[at.source + block] < 0:
        f[BYTES] += f[at.block_bytes + block]
    i[at.sample + thread] = i[at.block_at + block]
    begin_sample(f, i, at, caches, thread)


@kernel
def begin_sample(f: F64, i: I64, at: At, caches: Caches, thread: int) -> None:
    """Decode the thread's next sample of its block; after the last, take another block."""
    block = i[at.block + thread]
    sample = i[at.sample + thread]
    if sample >= i[at.block_at + block + 1]:
        f[at.left_s + block] = f[NOW]
        take_block(f, i, at, caches, thread)
        return
    done_s = f[NOW] + f[at.decode_s + sample * at.decode_many]
    needs_core = f[at.cpu_s + sample * at.cpu_many] > 0
    # Even a decode of no length is an event: one path for all, and no recursion.
    schedule(f, i, at, done_s, WAITED if needs_core else DECODED, thread)


@kernel
def use_cpu(f: F64, i: I64, at: At, thread: int) -> None:
    """The part of decoding that needs a core."""
    demand = f[at.cpu_s + i[at.sample + thread] * at.cpu_many]
    if i[ONE_CORE_PYTHON]:
        f[PYTHON_FREE] = max(f[PYTHON_FREE], f[NOW]) + demand
        schedule(f, i, at, f[PYTHON_FREE], DECODED, thread)
        return
    f[CPU_MARK] += cpu_rate(f, i) * (f[NOW] - f[CPU_SINCE])
    f[CPU_SINCE] = f[NOW]
    mark = f[CPU_MARK] + demand
    i[ON_CPU] = heap_push(f, i, i, at.cpu_mark, at.cpu_order, at.cpu_who, i[ON_CPU], mark, i[ORDER], thread)
    i[ORDER] += 1
    plan_cpu(f, i, at)


@kernel
def cpu_rate(f: F64, i: I64) -> float:
    """CPU seconds a second that each demand gets now: a core at most."""
    return float(min(1.0, f[CORES] / max(1, i[ON_CPU])))


@kernel
def leave_cpu(f: F64, i: I64, at: At) -> int:
    """The demand that is met now; returns its thread."""
    thread = i[at.cpu_who]
    f[CPU_MARK] = f[at.cpu_mark]
    f[CPU_SINCE] = f[NOW]
    i[ON_CPU] = heap_pop(f, i, i, at.cpu_mark, at.cpu_order, at.cpu_who, i[ON_CPU])
    plan_cpu(f, i, at)
    return int(thread)


@kernel
def plan_cpu(f: F64, i: I64, at: At) -> None:
    """When the next demand is met, if nobody comes or goes before."""
    if i[ON_CPU] == 0:
        f[CPU_NEXT] = np.inf
        f[CPU_MARK] = 0.0
        return
    f[CPU_NEXT] = f[NOW] + max(0.0, f[at.cpu_mark] - f[CPU_MARK]) / cpu_rate(f, i)
    i[CPU_ORDER] = i[ORDER]
    i[ORDER] += 1


@kernel
def put_sample(f: F64, i: I64, at: At, caches: Caches, thread: int) -> None:
    """Hand a decoded sample over: to a consumer that waits, into the buffer, or wait with it in hand."""
    job = i[at.thread_job + thread]
    if i[at.waiting + job]:
        i[at.in_hand + job] += 1
        note_put(i, at, job, thread)
        if i[at.in_hand + job] == i[at.batch_samples + i[at.batch + job]]:
            got_batch(f, i, at, job)
    elif i[at.buffered + job] < i[at.buffer + job]:
        i[at.buffered + job] += 1
        i[at.most_buffered + job] = max(i[at.most_buffered + job], i[at.buffered + job])
        note_put(i, at, job, thread)
    else:
        first, room = i[at.job_thread + job], i[at.job_thread + job + 1] - i[at.job_thread + job]
        i[at.put_queue + first + (i[at.put_head + job] + i[at.put_queued + job]) % room] = thread
        i[at.put_queued + job] += 1
        f[at.wait_since_s + thread] = f[NOW]
        return
    begin_sample(f, i, at, caches, thread)


@kernel
def note_put(i: I64, at: At, job: int, thread: int) -> None:
    """Record which block the next sample came from, and move the thread to its next sample."""
    i[at.put_block + i[at.block_at + i[at.job_block + job]] + i[at.put + job]] = i[at.block + thread]
    i[at.put + job] += 1
    i[at.sample + thread] += 1


@kernel
def ask_batch(f: F64, i: I64, at: At, caches: Caches, job: int) -> None:
    """The consumer asks: it empties the buffer into its hands, and those who wait to put move up."""
    batch = i[at.batch + job]
    f[at.ask_s + batch] = f[NOW]
    i[at.queue + batch] = i[at.buffered + job]
    i[at.in_hand + job] = 0
    wanted = i[at.batch_samples + batch]
    first, room = i[at.job_thread + job], i[at.job_thread + job + 1] - i[at.job_thread + job]
    while i[at.in_hand + job] < wanted and i[at.buffered + job] > 0:
        i[at.in_hand + job] += 1
        i[at.buffered + job] -= 1
        if i[at.put_queued + job] > 0:
            thread = i[at.put_queue + first + i[at.put_head + job]]
            i[at.put_head + job] = (i[at.put_head + job] + 1) % room
            i[at.put_queued + job] -= 1
            f[at.put_wait_s + i[at.block + thread]] += f[NOW] - f[at.wait_since_s + thread]
            i[at.buffered + job] += 1
            note_put(i, at, job, thread)
            begin_sample(f, i, at, caches, thread)
    i[at.waiting + job] = 1
    if i[at.in_hand + job] == wanted:
        got_batch(f, i, at, job)


@kernel
def got_batch(f: F64, i: I64, at: At, job: int) -> None:
    """The batch is complete: the step begins."""
    batch = i[at.batch + job]
    i[at.waiting + job] = 0
    f[at.got_s + batch] = f[NOW]
    first, many = i[at.job_step + job], i[at.job_step + job + 1] - i[at.job_step + job] > 1
    step = f[at.step_s + first + (batch - i[at.job_batch + job] if many else 0)]
    schedule(f, i, at, f[NOW] + step, STEP_END, job)


@kernel
def step_ended(f: F64, i: I64, at: At, caches: Caches, job: int) -> None:
    """After its step the consumer asks again at once, or is done."""
    i[at.batch + job] += 1
    if i[at.batch + job] == i[at.job_batch + job + 1]:
        f[at.end_s + job] = f[NOW]
        i[ACTIVE_JOBS] -= 1
        return
    ask_batch(f, i, at, caches, job)
