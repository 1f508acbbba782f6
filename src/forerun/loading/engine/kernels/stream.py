"""Threads over a store: the event loop of loaders that share storage, link, request rate, caches and cores.

Every thread has at most one future event, every consumer one; the next completion under processor sharing is not an event
but an estimate, replaced whenever a request starts or ends. So the heap never has more than threads + jobs entries.

`advance` may stop at any instant and be called again.

All inputs, all state and the whole record are in two arrays, `f` (float64) and `i` (int64), because a function that takes
two arrays and plain numbers costs next to nothing to call, which one that takes thirty arrays does not. Both begin with
single numbers, at the constants below. Columns follow; a record `At` has the place where each begins:

In `f`, given: `block_bytes`, `decode_s` and `cpu_s` (one a sample, or one), `start_s` a job, `step_s` (one a batch, or one
a job), `gpu_s` a batch for its decoding on the GPU, `latency_s` (in the order in which the store begins to serve, or one),
`change_s` instants from which on it is another, and `change_factor` how many times as long it is before and from each; of
what is shared, `share_one` the most that one gets, and `share_all` what all share. In `f`, state and record: keys of the
heaps; `wait_since_s` a thread; per batch `ask_s`, `got_s`; per block `taken_s`, `grant_s`, `first_byte_s`, `done_s`,
`left_s` (last sample put), `put_wait_s`; per job `end_s`, and `trained_s` when its last step ends; of what is shared, its
clock `share_marked` as of `share_since`, `share_next` when the next is served, and `python_free` when one core is free.

In `i`, given: `block_at` first sample of each block, `block_key`, `block_failures` attempts that will fail; `job_block`,
`job_thread`, `job_step`, `job_batch` where a job's rows begin; `batch_samples`; `buffer` samples a job; `job_cache`
[job, layer]; `owner` of each key among the nodes; `thread_job`; per job `job_cores` and `job_net`, the numbers of its
cores and of its link to other nodes among what is shared. In `i`, state and record: heaps; queues for a slot and for
space in the buffer; per thread its `block`, `sample`, `failed` attempts; per job `next_block`, `buffered`, `collected`,
`waiting`, `batch`, `delivered`, `most_buffered`; per batch `queue`; per block `by_thread`, `source`; per sample put
`put_block`; of what is shared, `sharing`, how many share it, and `share_planned`, the order of the next.

`decode_many`, `cpu_many`, `latency_many` say whether there is one value each (1) or one for all (0). `heap_size` is the
number of entries that a heap may have; the heaps of `share_*` lie one after the other.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.jit import kernel
from forerun.loading.engine.kernels.cache import HIT_BYTES_PER_S, HIT_LATENCY_S, Caches, cache_access
from forerun.loading.engine.kernels.heap import heap_pop, heap_push

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
#: a numpy record of int64, made where the columns are laid out: compiled code is given one address, not sixty numbers
At: TypeAlias = Any

# kinds of event; who they concern: a thread, or a job for STEP_END and BEGIN
KINDS: Final = 16
(TOKEN, FIRST_BYTE, TRANSFERRED, ARRIVED, WAITED, DECODED, STEP_END, TIMED_OUT, RETRY, BEGIN,
 PEER_BYTE) = range(11)  # fmt: skip

# Functions are called with typed numbers: for a plain constant one would be compiled for each value.
# what is shared by processor sharing has a number: the store's link, then the cores of each job (or of all together), then
# the link over which each node reads from the others
LINK, NEITHER = np.int64(0), np.int64(-1)
MORE, LESS = np.int64(1), np.int64(-1)
# how nodes share their caches
APART, PARTITIONED, REPLICATED = range(3)
# the first numbers of `f`: the store and the nodes' network as given, then state
(RATE, BURST, CLIENT_S, CLIENT_S_PER_BYTE, TIMEOUT_S, BACKOFF_S, PEER_S,
 NOW, BUCKET, BYTES, FLIGHT_SUM, FLIGHT_SINCE, F_FIXED) = range(13)  # fmt: skip
# the first numbers of `i`
(SLOTS, RETRIES, ONE_CORE_PYTHON, JOBS, THREADS, LAYERS, SHARES, NODES_SHARE, ON_GPU,
 ORDER, EVENTS, IN_FLIGHT, GRANTS, MOST_IN_FLIGHT, QUEUE_HEAD, QUEUED,
 FAILED_BLOCK, ACTIVE_JOBS, ATTEMPTS, CHANGES, CHANGED, I_FIXED) = range(22)  # fmt: skip


@kernel
def begin(f: F64, i: I64, at: At) -> None:
    """The state before anything happened: each job's beginning is scheduled."""
    for shared in range(i[SHARES]):
        f[at.share_next + shared] = np.inf
    i[FAILED_BLOCK] = -1
    i[ACTIVE_JOBS] = i[JOBS]
    for job in range(i[JOBS]):
        for thread in range(i[at.job_thread + job], i[at.job_thread + job + 1]):
            i[at.thread_job + thread] = job
        i[at.next_block + job] = i[at.job_block + job]
        i[at.batch + job] = i[at.job_batch + job]
        schedule(f, i, at, f[at.start_s + job], job * KINDS + BEGIN)


@kernel
def schedule(f: F64, i: I64, at: At, time_s: float, event: int) -> None:
    """Put an event, `who * KINDS + kind`, on the heap (a constant of its own would be compiled for once a kind)."""
    i[EVENTS] = heap_push(
        f, i, i, at.event_s, at.event_order, at.event_who, i[EVENTS], time_s, i[ORDER], event
    )
    i[ORDER] += 1


@kernel
def advance(f: F64, i: I64, at: At, caches: Caches, until_s: float) -> bool:
    """Carry out what happens up to and at `until_s`; whether something is left to do.

    Ends when every job has taken its last step, when nothing else happens in finite time, or when a block failed once more
    than retries allow (`i[FAILED_BLOCK]`).
    """
    while i[ACTIVE_JOBS] > 0 and i[FAILED_BLOCK] < 0:
        time_s, order, which = np.inf, 0, NEITHER
        if i[EVENTS] > 0:
            time_s, order = f[at.event_s], i[at.event_order]
        for shared in range(i[SHARES]):
            planned_s = f[at.share_next + shared]
            if planned_s < time_s or (planned_s == time_s and i[at.share_planned + shared] < order):
                time_s, order, which = planned_s, i[at.share_planned + shared], np.int64(shared)
        if time_s > until_s or not time_s < np.inf:  # nothing else ever happens, or not before `until_s`
            return True
        f[NOW] = time_s
        if which >= 0:
            thread = leave_share(f, i, at, which)
            if which == LINK:
                transferred(f, i, at, caches, thread)
            elif which == i[at.job_net + i[at.thread_job + thread]]:
                arrived(f, i, at, caches, thread)
            else:
                put_sample(f, i, at, caches, thread)
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
        demand = f[at.cpu_s + i[at.sample + who] * at.cpu_many]
        cores = i[at.job_cores + i[at.thread_job + who]]
        if i[ONE_CORE_PYTHON]:
            f[at.python_free + cores] = max(f[at.python_free + cores], f[NOW]) + demand
            schedule(f, i, at, f[at.python_free + cores], who * KINDS + DECODED)
        else:
            join_share(f, i, at, cores, demand, who)
    elif kind == TOKEN:
        join_queue(f, i, at, who)
    elif kind == FIRST_BYTE:
        size = f[at.block_bytes + i[at.block + who]]
        f[at.first_byte_s + i[at.block + who]] = f[NOW]
        if f[at.share_all + LINK] == np.inf:
            # On a link that nobody shares, the end of a transfer is known at once.
            schedule(f, i, at, f[NOW] + size / f[at.share_one + LINK], who * KINDS + TRANSFERRED)
        else:
            join_share(f, i, at, LINK, size, who)
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
            schedule(f, i, at, f[NOW] + f[BACKOFF_S] * 2.0 ** (i[at.failed + who] - 1), who * KINDS + RETRY)
    elif kind == RETRY:
        ask_store(f, i, at, who)
    elif kind == PEER_BYTE:
        net = i[at.job_net + i[at.thread_job + who]]
        join_share(f, i, at, net, f[at.block_bytes + i[at.block + who]], who)
    else:
        for thread in range(i[at.job_thread + who], i[at.job_thread + who + 1]):
            take_block(f, i, at, caches, thread)
        ask_batch(f, i, at, caches, who)


@kernel
def take_block(f: F64, i: I64, at: At, caches: Caches, thread: int) -> None:
    """The thread takes the job's next block and asks for it, of the caches first; it rests where there is none left."""
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
    if i[NODES_SHARE] != APART and ask_nodes(f, i, at, caches, thread):
        return
    for layer in range(i[LAYERS]):
        c = i[at.job_cache + job * i[LAYERS] + layer]
        if c >= 0 and cache_access(caches, c, i[at.block_key + block], size):
            i[at.source + block] = c
            f[at.grant_s + block] = f[NOW]
            first = f[NOW] + caches.about[c, HIT_LATENCY_S]
            f[at.first_byte_s + block] = first
            schedule(f, i, at, first + size / caches.about[c, HIT_BYTES_PER_S], thread * KINDS + ARRIVED)
            return
    ask_store(f, i, at, thread)


@kernel
def ask_nodes(f: F64, i: I64, at: At, caches: Caches, thread: int) -> bool:
    """Ask another node for the thread's block, or give every node a copy; whether the thread need not ask its own cache.

    The number of a node's cache is that of its job. What another node does not have is read from the store after one
    exchange with it, and its cache takes it from then on as its policy has it.
    """
    job, block = i[at.thread_job + thread], i[at.block + thread]
    key, size = i[at.block_key + block], f[at.block_bytes + block]
    if i[NODES_SHARE] == PARTITIONED:
        owner = i[at.owner + key]
        if owner == job:
            return False
        if not cache_access(caches, owner, key, size):
            schedule(f, i, at, f[NOW] + f[PEER_S], thread * KINDS + RETRY)
            return True
        i[at.source + block] = owner
        f[at.grant_s + block] = f[NOW]
        first = f[NOW] + f[PEER_S] + caches.about[owner, HIT_LATENCY_S]
        f[at.first_byte_s + block] = first
        if f[at.share_all + i[at.job_net + job]] == np.inf:
            schedule(f, i, at, first, thread * KINDS + ARRIVED)
        else:
            schedule(f, i, at, first, thread * KINDS + PEER_BYTE)
        return True
    if caches.size_bytes[job, key] < 0:
        for other in range(i[JOBS]):
            if other != job and caches.size_bytes[other, key] < 0:
                cache_access(caches, other, key, size)
    return False


@kernel
def ask_store(f: F64, i: I64, at: At, thread: int) -> None:
    """One attempt: a token of the request rate first, in the order of asking."""
    i[ATTEMPTS] += 1
    if f[RATE] == np.inf:
        join_queue(f, i, at, thread)
        return
    granted = max(f[NOW], f[BUCKET] - (f[BURST] - 1) / f[RATE])
    f[BUCKET] = max(f[BUCKET], granted) + 1 / f[RATE]
    schedule(f, i, at, granted, thread * KINDS + TOKEN)


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
        count_flight(f, i, MORE)
        block = i[at.block + thread]
        f[at.grant_s + block] = f[NOW]
        while i[CHANGED] < i[CHANGES] and f[at.change_s + i[CHANGED]] <= f[NOW]:
            i[CHANGED] += 1
        latency = f[at.latency_s + i[GRANTS] * at.latency_many] * f[at.change_factor + i[CHANGED]]
        i[GRANTS] += 1
        if i[at.failed + thread] < i[at.block_failures + block]:
            schedule(f, i, at, f[NOW] + f[TIMEOUT_S], thread * KINDS + TIMED_OUT)
        else:
            schedule(f, i, at, f[NOW] + latency, thread * KINDS + FIRST_BYTE)


@kernel
def free_slot(f: F64, i: I64, at: At) -> None:
    """A request left the store."""
    count_flight(f, i, LESS)
    give_slots(f, i, at)


@kernel
def count_flight(f: F64, i: I64, change: np.int64) -> None:
    """Keep the requests in service, their most, and their integral over time."""
    f[FLIGHT_SUM] += i[IN_FLIGHT] * (f[NOW] - f[FLIGHT_SINCE])
    f[FLIGHT_SINCE] = f[NOW]
    i[IN_FLIGHT] += change
    i[MOST_IN_FLIGHT] = max(i[MOST_IN_FLIGHT], i[IN_FLIGHT])


@kernel
def share_rate(f: F64, i: I64, at: At, shared: np.int64) -> float:
    """What each of those who share gets now: bytes a second, or cores."""
    return float(min(f[at.share_one + shared], f[at.share_all + shared] / max(1, i[at.sharing + shared])))


@kernel
def join_share(f: F64, i: I64, at: At, shared: np.int64, demand: float, thread: int) -> None:
    """Begin to be served together with those who are served already.

    All move at one rate: one clock of what each was given and a heap of finishing marks is exact.
    """
    f[at.share_marked + shared] += share_rate(f, i, at, shared) * (f[NOW] - f[at.share_since + shared])
    f[at.share_since + shared] = f[NOW]
    heap = int(shared) * at.heap_size
    i[at.sharing + shared] = heap_push(
        f, i, i, at.share_mark + heap, at.share_order + heap, at.share_who + heap, i[at.sharing + shared],
        f[at.share_marked + shared] + demand, i[ORDER], thread,
    )  # fmt: skip
    i[ORDER] += 1
    plan_share(f, i, at, shared)


@kernel
def leave_share(f: F64, i: I64, at: At, shared: np.int64) -> int:
    """Who is served now; returns the thread."""
    heap = int(shared) * at.heap_size
    thread = i[at.share_who + heap]
    f[at.share_marked + shared] = f[at.share_mark + heap]
    f[at.share_since + shared] = f[NOW]
    i[at.sharing + shared] = heap_pop(
        f, i, i, at.share_mark + heap, at.share_order + heap, at.share_who + heap, i[at.sharing + shared]
    )
    plan_share(f, i, at, shared)
    return int(thread)


@kernel
def plan_share(f: F64, i: I64, at: At, shared: np.int64) -> None:
    """When the next is served, if no request starts or ends before."""
    if i[at.sharing + shared] == 0:
        f[at.share_next + shared] = np.inf
        f[at.share_marked + shared] = 0.0
        return
    left = max(0.0, f[at.share_mark + int(shared) * at.heap_size] - f[at.share_marked + shared])
    f[at.share_next + shared] = f[NOW] + left / share_rate(f, i, at, shared)
    i[at.share_planned + shared] = i[ORDER]
    i[ORDER] += 1


@kernel
def transferred(f: F64, i: I64, at: At, caches: Caches, thread: int) -> None:
    """The last byte is here: the slot is free, the client's own work follows."""
    free_slot(f, i, at)
    client = f[CLIENT_S] + f[CLIENT_S_PER_BYTE] * f[at.block_bytes + i[at.block + thread]]
    if client > 0:
        schedule(f, i, at, f[NOW] + client, thread * KINDS + ARRIVED)
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
    schedule(f, i, at, done_s, thread * KINDS + (WAITED if needs_core else DECODED))


@kernel
def put_sample(f: F64, i: I64, at: At, caches: Caches, thread: int) -> None:
    """Hand a decoded sample over: to a consumer that waits, into the buffer, or wait with it."""
    job = i[at.thread_job + thread]
    if i[at.waiting + job]:
        i[at.collected + job] += 1
        note_put(i, at, job, thread)
        if i[at.collected + job] == i[at.batch_samples + i[at.batch + job]]:
            got_batch(f, i, at, job)
    elif i[at.buffered + job] < i[at.buffer + job]:
        i[at.buffered + job] += 1
        i[at.most_buffered + job] = max(i[at.most_buffered + job], i[at.buffered + job])
        note_put(i, at, job, thread)
    else:
        first, ring = i[at.job_thread + job], i[at.job_thread + job + 1] - i[at.job_thread + job]
        i[at.put_queue + first + (i[at.put_head + job] + i[at.put_queued + job]) % ring] = thread
        i[at.put_queued + job] += 1
        f[at.wait_since_s + thread] = f[NOW]
        return
    begin_sample(f, i, at, caches, thread)


@kernel
def note_put(i: I64, at: At, job: int, thread: int) -> None:
    """Record which block the next sample is of, and move the thread to its next sample."""
    i[at.put_block + i[at.block_at + i[at.job_block + job]] + i[at.delivered + job]] = i[at.block + thread]
    i[at.delivered + job] += 1
    i[at.sample + thread] += 1


@kernel
def ask_batch(f: F64, i: I64, at: At, caches: Caches, job: int) -> None:
    """The consumer asks: it empties the buffer into its hands, and those who wait to put move up."""
    batch = i[at.batch + job]
    # With a decoder on the GPU, the loop asks when its last step ends, the decoder when that step began.
    f[at.ask_s + batch] = max(f[NOW], f[at.trained_s + job]) if i[ON_GPU] else f[NOW]
    i[at.queue + batch] = i[at.buffered + job]
    i[at.collected + job] = 0
    batch_samples = i[at.batch_samples + batch]
    first, ring = i[at.job_thread + job], i[at.job_thread + job + 1] - i[at.job_thread + job]
    while i[at.collected + job] < batch_samples and i[at.buffered + job] > 0:
        i[at.collected + job] += 1
        i[at.buffered + job] -= 1
        if i[at.put_queued + job] > 0:
            thread = i[at.put_queue + first + i[at.put_head + job]]
            i[at.put_head + job] = (i[at.put_head + job] + 1) % ring
            i[at.put_queued + job] -= 1
            f[at.put_wait_s + i[at.block + thread]] += f[NOW] - f[at.wait_since_s + thread]
            i[at.buffered + job] += 1
            note_put(i, at, job, thread)
            begin_sample(f, i, at, caches, thread)
    i[at.waiting + job] = 1
    if i[at.collected + job] == batch_samples:
        got_batch(f, i, at, job)


@kernel
def got_batch(f: F64, i: I64, at: At, job: int) -> None:
    """The batch is complete: the step begins."""
    batch = i[at.batch + job]
    i[at.waiting + job] = 0
    begin_s = f[NOW]
    if i[ON_GPU]:
        begin_s = max(f[NOW] + f[at.gpu_s + batch], f[at.trained_s + job])
    f[at.got_s + batch] = begin_s
    first, many = i[at.job_step + job], i[at.job_step + job + 1] - i[at.job_step + job] > 1
    step = f[at.step_s + first + (batch - i[at.job_batch + job] if many else 0)]
    if i[ON_GPU]:
        # The decoder takes its next batch as soon as the step takes this one from it.
        f[at.trained_s + job] = begin_s + step
        schedule(f, i, at, begin_s, job * KINDS + STEP_END)
    else:
        schedule(f, i, at, begin_s + step, job * KINDS + STEP_END)


@kernel
def step_ended(f: F64, i: I64, at: At, caches: Caches, job: int) -> None:
    """After its step the consumer asks again at once, or is done."""
    i[at.batch + job] += 1
    if i[at.batch + job] == i[at.job_batch + job + 1]:
        f[at.end_s + job] = f[at.trained_s + job] if i[ON_GPU] else f[NOW]
        i[ACTIVE_JOBS] -= 1
        return
    ask_batch(f, i, at, caches, job)
