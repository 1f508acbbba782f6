"""Compiled loops of the published optimisers: the same draws and roundings as the readable loops, at many seeds.

Covers `pruning-gts` and `gts` with the just-in-time limit under compat rules. A limit once profiled never changes, so
each batch size enters with the slices and costs of its cheapest limit. Sums and variances follow numpy's pairwise
order and permutations numpy's own sampling, so results equal `engine.loops.sequence` and `engine.loops.group` bit for bit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.kernels.jit import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
Rng = np.random.Generator


class CompiledJob(NamedTuple):
    """One configuration a batch size: its slice of the paths, its profiling epoch, and what costs are made of.

    `start`, `paths` int64[S]; `epochs` int64[rows] (0 never), `epoch_s`, `epoch_j` float64[rows]; `split_s`, `split_j`
    float64[S] an epoch split over all limits; `top_limit_w` float64[S] prices time in bounds, `max_power_w` in costs.
    """

    start: I64
    paths: I64
    epochs: I64
    epoch_s: F64
    epoch_j: F64
    split_s: F64
    split_j: F64
    top_limit_w: F64
    max_power_w: float
    max_epochs: int
    eta: float
    beta: float


class Optimiser(NamedTuple):
    """Parameters of the optimiser; `kind` 0 pruning-gts, 1 gts with given precision, 2 gts with learned precision."""

    kind: int
    default: int
    window: int
    concurrency: bool
    mean: float
    precision: float
    reward_precision: float
    explorations: int


class Walk(NamedTuple):
    """The exploration: `alive`, `survivors` bool[S]; `walk` int64[5] as named below; `best_j` float64[1] of the round."""

    alive: Bool
    survivors: Bool
    walk: I64
    best_j: F64


class Beliefs(NamedTuple):
    """Beliefs a size: float64[S] mean, precision, reward precision; int64[S] observations and rewards seen;
    bool[S] stale (to be refitted), profiled, arms, rough (fitted from running sums, not in numpy's order).

    `sums` float64[S, 5]: the first reward, then the sum of rewards above it with its compensation, and the sum of
    their squares with its own.
    """

    mean: F64
    precision: F64
    reward_precision: F64
    observations: I64
    seen: I64
    stale: Bool
    profiled: Bool
    arms: Bool
    rough: Bool
    sums: F64


#: arms with more rewards than this are fitted from running sums first
EXACT_UP_TO = 128
#: what running sums may differ from numpy's: shares of the standard deviation and of the mean
ROUGH_SD, ROUGH_MEAN = 1e-8, 1e-12

ROUNDS_LEFT, TURNED, AHEAD, EXPECTING, INCUMBENT = range(5)
(
    OK,
    DID_NOT_REACH,
    TRIES_EXHAUSTED,
    NOTHING_SURVIVED,
    ALL_PRUNED,
    WINDOW,
    OUT_OF_ORDER,
    LIVELOCK,
    NOT_PROFILED,
) = range(9)
REACHED, BOUND, MAX_EPOCHS, NEVER_RAN = range(4)
#: columns of the log of attempts, in launch order
SIZE, EPOCHS, ENERGY, TIME, COST, OBSERVED, BOUND_J, ENDED = range(8)
RECURRENCE, ATTEMPT, PROFILED, START, END = range(8, 13)
COLUMNS = 13
TRIES = 20


@kernel
def block_sum(x: F64, first: int, n: int) -> float:
    """Sum of x[first : first + n], n at most 128: eight running sums, joined in pairs, the rest appended."""
    if n < 8:
        total = 0.0
        for i in range(first, first + n):
            total += float(x[i])
        return total
    a, b, c, d = x[first], x[first + 1], x[first + 2], x[first + 3]
    e, f, g, h = x[first + 4], x[first + 5], x[first + 6], x[first + 7]
    full = n - n % 8
    for i in range(first + 8, first + full, 8):
        a += x[i]
        b += x[i + 1]
        c += x[i + 2]
        d += x[i + 3]
        e += x[i + 4]
        f += x[i + 5]
        g += x[i + 6]
        h += x[i + 7]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(first + full, first + n):
        total += x[i]
    return float(total)


@kernel
def pairwise_sum(x: F64, n: int) -> float:
    """Sum of x[:n] in numpy's order: halves (the left one a multiple of 8 long) down to blocks of at most 128.

    A walk over the tree of halves with a stack, since compiled recursion cannot be cached on disk: `left` has the
    sum of a node's left half once it is known.
    """
    if n <= 128:
        return block_sum(x, 0, n)
    first, length = np.zeros(64, np.int64), np.zeros(64, np.int64)
    left, known = np.zeros(64), np.zeros(64, np.bool_)
    length[0] = n
    depth = 0
    while True:
        if length[depth] > 128:
            half = length[depth] // 2
            half -= half % 8
            known[depth] = False
            first[depth + 1], length[depth + 1] = first[depth], half
            depth += 1
            continue
        value = block_sum(x, first[depth], length[depth])
        depth -= 1
        while known[depth]:
            value = left[depth] + value
            if depth == 0:
                return float(value)
            depth -= 1
        left[depth], known[depth] = value, True
        half = length[depth] // 2
        half -= half % 8
        first[depth + 1], length[depth + 1] = first[depth] + half, length[depth] - half
        depth += 1


@kernel
def variance(x: F64, n: int, scratch: F64) -> float:
    """Population variance of x[:n] in numpy's order; `scratch` is overwritten."""
    mean = pairwise_sum(x, n) / n
    for i in range(n):
        away = x[i] - mean
        scratch[i] = away * away
    return pairwise_sum(scratch, n) / n


@kernel
def permutation(rng: Rng, k: int, out: I64) -> None:
    """k numbers below k in random order: Floyd's sampling, then a shuffle, as numpy draws a choice of k out of k."""
    for j in range(k):
        value = int(rng.integers(0, j + 1)) if j else 0
        for i in range(j):
            if out[i] == value:
                value = j
                break
        out[j] = value
    for i in range(k - 1, 0, -1):
        other = rng.integers(0, i + 1)
        out[i], out[other] = out[other], out[i]


@kernel
def floor_quotient(a: float, b: float) -> float:
    """Floor division of positive numbers, IEEE remainder first, as Python's: 1.0 // 0.1 is 9."""
    remainder = np.fmod(a, b)
    quotient = (a - remainder) / b
    below = np.floor(quotient)
    if quotient - below > 0.5:
        below += 1.0
    return float(below)


@kernel
def begin_round(walk: Walk) -> None:
    """Start a round at the incumbent; it is the first size going down."""
    walk.survivors[:] = False
    walk.best_j[0] = math.inf
    walk.walk[TURNED] = -1  # set to 1 when the walk down is over
    walk.walk[AHEAD] = walk.walk[INCUMBENT]


@kernel
def next_size(walk: Walk, above: I64) -> tuple[int, int]:
    """Hand out the next size: (index, OK); index -1 when the exploration is over. `above` int64[1]: first going up."""
    w = walk.walk
    if w[EXPECTING] >= 0:
        return -1, OUT_OF_ORDER
    while w[AHEAD] < 0:
        if w[TURNED] < 0:
            w[TURNED] = 1
            w[AHEAD] = next_alive(walk.alive, above[0], 1)
            continue
        if not walk.survivors.any():
            return -1, (NOTHING_SURVIVED if w[ROUNDS_LEFT] == 2 else ALL_PRUNED)
        walk.alive[:] = walk.survivors
        w[ROUNDS_LEFT] -= 1
        if w[ROUNDS_LEFT] == 0:
            return -1, OK
        begin_round(walk)
        above[0] = w[INCUMBENT] + 1
    w[EXPECTING] = w[AHEAD]
    return int(w[EXPECTING]), OK


@kernel
def next_alive(alive: Bool, at: int, step: int) -> int:
    """The first surviving index from `at` on in this direction, -1 if none."""
    while 0 <= at < len(alive):
        if alive[at]:
            return at
        at += step
    return -1


@kernel
def answer(walk: Walk, size: int, cost: float, reached: bool) -> bool:
    """The result of the size that was handed out; false if another was expected."""
    w = walk.walk
    if w[EXPECTING] != size:
        return False
    w[EXPECTING] = -1
    if not reached:
        w[AHEAD] = -1
        return True
    walk.survivors[size] = True
    step = -1 if w[TURNED] < 0 else 1
    w[AHEAD] = next_alive(walk.alive, size + step, step)
    if cost < walk.best_j[0]:
        walk.best_j[0] = cost
        w[INCUMBENT] = size
    return True


@kernel
def add_compensated(sums: F64, at: int, value: float) -> None:
    """Add to the running sum at `at`; the rounding error goes to the next element."""
    total = sums[at] + value
    if abs(sums[at]) >= abs(value):
        sums[at + 1] += (sums[at] - total) + value
    else:
        sums[at + 1] += (value - total) + sums[at]
    sums[at] = total


@kernel
def refit(
    beliefs: Beliefs, optimiser: Optimiser, size: int, rewards: F64, scratch: F64, exactly: bool
) -> None:
    """Beliefs of one size from its latest rewards; `rewards` float64[S, .] in the order observed.

    Sums in numpy's order take time in proportion to the rewards. Many rewards are fitted from running sums, unless
    `exactly`: the beliefs are then right to `ROUGH_SD` and `ROUGH_MEAN`, which `sample` allows for.
    """
    seen = beliefs.seen[size]
    first = seen - optimiser.window if 0 < optimiser.window < seen else 0
    n = seen - first
    beliefs.rough[size] = first == 0 and n > EXACT_UP_TO and not exactly
    if beliefs.rough[size]:
        sums = beliefs.sums[size]
        above = sums[1] + sums[2]
        total = n * sums[0] + above
        spread = max((sums[3] + sums[4]) / n - (above / n) ** 2, 0.0)
    else:
        latest = rewards[size, first:seen]
        spread = variance(latest, n, scratch)
        total = pairwise_sum(latest, n)
    beliefs.reward_precision[size] = math.inf if spread == 0 else 1 / spread
    beliefs.mean[size], beliefs.precision[size] = optimiser.mean, optimiser.precision
    beliefs.observations[size] = 0
    absorb(beliefs, size, total, n)
    beliefs.stale[size] = False


@kernel
def absorb(beliefs: Beliefs, size: int, total: float, n: int) -> None:
    """Normal update of one size with n rewards that sum to `total`."""
    rho, before = beliefs.reward_precision[size], beliefs.precision[size]
    if math.isinf(rho):
        beliefs.precision[size] = math.inf
        beliefs.mean[size] = total / n
    else:
        precision = before + n * rho
        beliefs.mean[size] = (before * beliefs.mean[size] + rho * total) / precision
        beliefs.precision[size] = precision
    beliefs.observations[size] += n


@kernel
def sample(
    beliefs: Beliefs,
    optimiser: Optimiser,
    explorations: int,
    rewards: F64,
    scratch: F64,
    rng: Rng,
    order: I64,
) -> int:
    """The arm to pull: one not explored enough in random order, else the largest normal sample.

    Where rough beliefs leave open which sample is the largest, they are fitted exactly and the same draws used again.
    """
    arms = 0
    for size in range(len(beliefs.arms)):
        arms += beliefs.arms[size]
    which = np.empty(arms, np.int64)
    n = 0
    for size in range(len(beliefs.arms)):
        if beliefs.arms[size]:
            which[n] = size
            n += 1
    permutation(rng, arms, order)
    for i in range(arms):
        if beliefs.observations[which[order[i]]] < explorations:
            return int(which[order[i]])
    normals = np.empty(arms)
    for i in range(arms):
        normals[i] = rng.standard_normal()
    best, sure = largest(beliefs, which, normals)
    if not sure:
        for i in range(arms):
            if beliefs.rough[which[i]]:
                refit(beliefs, optimiser, int(which[i]), rewards, scratch, True)
        best, _ = largest(beliefs, which, normals)
    return best


@kernel
def largest(beliefs: Beliefs, which: I64, normals: F64) -> tuple[int, bool]:
    """The arm with the largest sample, and whether it is that whatever rough beliefs are off by."""
    best, most, near = int(which[0]), -math.inf, 0.0
    runner_up, anything_rough = -math.inf, False
    for i in range(len(which)):
        size = int(which[i])
        precision = beliefs.precision[size]
        sd = math.inf if precision == 0 else math.sqrt(1 / precision)
        drawn = beliefs.mean[size] + sd * normals[i]
        off = 0.0
        if beliefs.rough[size]:
            off = ROUGH_SD * sd + ROUGH_MEAN * abs(beliefs.mean[size])
            anything_rough = True
        if drawn > most:
            runner_up = max(runner_up, most + near)
            best, most, near = size, drawn, off
        else:
            runner_up = max(runner_up, drawn + off)
    return best, not anything_rough or most - near > runner_up


@kernel
def start_sampling(walk: Walk, beliefs: Beliefs, optimiser: Optimiser) -> int:
    """Survivors become arms; WINDOW if one of them has a single reward in its window."""
    for size in range(len(walk.alive)):
        beliefs.arms[size] = walk.alive[size]
        beliefs.stale[size] = walk.alive[size]
        if walk.alive[size] and (optimiser.window == 1 or beliefs.seen[size] < 2):
            return WINDOW
    return OK


@kernel
def choose(
    walk: Walk,
    beliefs: Beliefs,
    optimiser: Optimiser,
    sampling: Bool,
    above: I64,
    rewards: F64,
    scratch: F64,
    rng: Rng,
    order: I64,
) -> tuple[int, int]:
    """The next size of the optimiser: (index, status). `sampling` bool[1] turns true when the exploration is over."""
    if optimiser.kind == 0 and not sampling[0]:
        size, status = next_size(walk, above)
        if status != OK or size >= 0:
            return size, status
        sampling[0] = True
        status = start_sampling(walk, beliefs, optimiser)
        if status != OK:
            return -1, status
    for size in range(len(beliefs.stale)):
        if beliefs.stale[size]:
            refit(beliefs, optimiser, size, rewards, scratch, False)
    explorations = 2 if optimiser.kind == 0 else optimiser.explorations
    return sample(beliefs, optimiser, explorations, rewards, scratch, rng, order), OK


@kernel
def observe(
    walk: Walk,
    beliefs: Beliefs,
    optimiser: Optimiser,
    sampling: Bool,
    size: int,
    cost: float,
    reached: bool,
    rewards: F64,
) -> int:
    """Learn a result; OUT_OF_ORDER if the exploration waits for another."""
    rewards[size, beliefs.seen[size]] = -cost
    sums = beliefs.sums[size]
    if beliefs.seen[size] == 0:
        sums[0] = -cost
    above = -cost - sums[0]
    add_compensated(sums, 1, above)
    add_compensated(sums, 3, above * above)
    beliefs.seen[size] += 1
    if optimiser.kind == 1:
        absorb(beliefs, size, -cost, 1)
        return OK
    beliefs.stale[size] = optimiser.kind == 2 or sampling[0]
    waits = walk.walk[EXPECTING] == size
    if optimiser.kind == 0 and not sampling[0] and (waits or not optimiser.concurrency):
        return OK if answer(walk, size, cost, reached) else OUT_OF_ORDER
    return OK


@kernel
def attempt(job: CompiledJob, size: int, bound: float, profiled: bool, rng: Rng, line: F64) -> None:
    """Run one attempt of a size and write epochs, joules, seconds, cost and ending into `line`."""
    count = job.paths[size]
    row = job.start[size] + (rng.integers(0, count) if count > 1 else 0)
    epoch_s, epoch_j, target = job.epoch_s[row], job.epoch_j[row], job.epochs[row]
    cap = job.max_epochs
    if bound != bound:  # zero times an infinite cost: the published simulator then stops at once
        cap = -1
    elif bound != math.inf:
        epoch_cost = job.eta * epoch_j + ((1 - job.eta) * job.top_limit_w[size]) * epoch_s
        cap = int(min(floor_quotient(bound, epoch_cost), job.max_epochs))
    line[SIZE], line[BOUND_J], line[PROFILED] = size, bound, profiled
    if cap == 0:
        line[EPOCHS] = line[ENERGY] = line[TIME] = line[COST] = 0.0
        line[ENDED] = NEVER_RAN
        return
    reached = 0 < target <= cap
    epochs = target if reached else max(cap, 0)
    if profiled:
        energy, seconds = (
            job.split_j[size] + epoch_j * (epochs - 1),
            job.split_s[size] + epoch_s * (epochs - 1),
        )
    else:
        energy, seconds = epoch_j * epochs, epoch_s * epochs
    line[EPOCHS], line[ENERGY], line[TIME] = epochs, energy, seconds
    line[COST] = job.eta * energy + ((1 - job.eta) * job.max_power_w) * seconds
    line[ENDED] = REACHED if reached else (MAX_EPOCHS if cap == job.max_epochs else BOUND)


@kernel
def empty_state(sizes: int, optimiser: Optimiser) -> tuple[Walk, Beliefs]:
    """A walk at its start, and beliefs before any reward."""
    walk = Walk(np.ones(sizes, np.bool_), np.zeros(sizes, np.bool_), np.zeros(5, np.int64), np.zeros(1))
    walk.walk[ROUNDS_LEFT] = 2
    walk.walk[EXPECTING] = -1
    walk.walk[INCUMBENT] = optimiser.default
    begin_round(walk)
    beliefs = Beliefs(
        np.full(sizes, optimiser.mean),
        np.full(sizes, optimiser.precision),
        np.full(sizes, optimiser.reward_precision),
        np.zeros(sizes, np.int64),
        np.zeros(sizes, np.int64),
        np.zeros(sizes, np.bool_),
        np.zeros(sizes, np.bool_),
        np.ones(sizes, np.bool_),
        np.zeros(sizes, np.bool_),
        np.zeros((sizes, 5)),
    )
    return walk, beliefs


@kernel
def sequence(
    job: CompiledJob, optimiser: Optimiser, recurrences: int, path_rng: Rng, policy_rng: Rng
) -> tuple[F64, int]:
    """Recurrences one after another: (log float64[attempts, COLUMNS], status)."""
    sizes = len(job.start)
    walk, beliefs = empty_state(sizes, optimiser)
    above = np.array([optimiser.default + 1])
    sampling = np.zeros(1, np.bool_)
    log, rewards = np.zeros((recurrences + TRIES, COLUMNS)), np.empty((sizes, recurrences + TRIES))
    scratch, order = np.empty(recurrences + TRIES), np.empty(sizes, np.int64)
    n, least = 0, math.inf
    for recurrence in range(recurrences):
        spent, ended = 0.0, NEVER_RAN
        for tried in range(TRIES):
            if n == len(log):
                log, rewards, scratch = grown(log, rewards)
            size, status = choose(
                walk, beliefs, optimiser, sampling, above, rewards, scratch, policy_rng, order
            )
            if status != OK:
                return log[:n], status
            line = log[n]
            line[RECURRENCE], line[ATTEMPT] = recurrence, tried
            attempt(job, size, job.beta * least, not beliefs.profiled[size], path_rng, line)
            beliefs.profiled[size] = True
            ended = int(line[ENDED])
            line[OBSERVED] = (100.0 * job.beta) * least if ended == NEVER_RAN else line[COST]
            spent += line[COST]
            n += 1
            status = observe(
                walk, beliefs, optimiser, sampling, size, line[OBSERVED], ended == REACHED, rewards
            )
            if status != OK:
                return log[:n], status
            if ended == REACHED:
                break
            if recurrence == 0 and ended != NEVER_RAN:
                return log[:n], DID_NOT_REACH
        if ended != REACHED:
            return log[:n], TRIES_EXHAUSTED
        least = min(least, spent)
    return log[:n], OK


@kernel
def grown(log: F64, rewards: F64) -> tuple[F64, F64, F64]:
    """Log and rewards with twice the space, and scratch to match."""
    n = len(log)
    more, longer = np.zeros((2 * n, log.shape[1])), np.empty((len(rewards), 2 * n))
    more[:n], longer[:, :n] = log, rewards
    return more, longer, np.empty(2 * n)


@kernel
def push(heap: F64, n: int, end: float, at: int) -> None:
    """Add a flight; `heap` float64[., 2] of (end, launch number), smallest first."""
    i = n
    while i > 0:
        parent = (i - 1) // 2
        if heap[parent, 0] < end or (heap[parent, 0] == end and heap[parent, 1] < at):
            break
        heap[i] = heap[parent]
        i = parent
    heap[i, 0], heap[i, 1] = end, at


@kernel
def pop(heap: F64, n: int) -> int:
    """Remove the earliest of n flights; its launch number."""
    first = int(heap[0, 1])
    end, at = heap[n - 1, 0], heap[n - 1, 1]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n - 1:
            break
        other = child + 1
        if other < n - 1 and (
            heap[other, 0] < heap[child, 0]
            or (heap[other, 0] == heap[child, 0] and heap[other, 1] < heap[child, 1])
        ):
            child = other
        if end < heap[child, 0] or (end == heap[child, 0] and at < heap[child, 1]):
            break
        heap[i] = heap[child]
        i = child
    heap[i, 0], heap[i, 1] = end, at
    return first


@kernel
def group(
    job: CompiledJob, optimiser: Optimiser, row_start: F64, row_end: F64, path_rng: Rng, policy_rng: Rng
) -> tuple[F64, I64, int]:
    """Submissions that overlap: (log in launch order, launch numbers in the order learned, status)."""
    sizes, rows = len(job.start), len(row_start)
    walk, beliefs = empty_state(sizes, optimiser)
    above = np.array([optimiser.default + 1])
    sampling = np.zeros(1, np.bool_)
    capacity = rows + 2 * TRIES
    log, rewards = np.zeros((capacity, COLUMNS)), np.empty((sizes, capacity))
    learned = np.empty(capacity, np.int64)
    scratch, order = np.empty(capacity), np.empty(sizes, np.int64)
    heap = np.empty((rows + 1, 2))
    flights, launched, reaped, next_row = 0, 0, 0, 0
    least, best = math.inf, optimiser.default
    patience = 1_000 + 100 * rows
    while next_row < rows or flights:
        retry = -1
        if flights and (next_row == rows or heap[0, 0] <= row_start[next_row]):
            at = pop(heap, flights)
            flights -= 1
            if reaped >= patience:
                return log[:launched], learned[:reaped], LIVELOCK
            size, cost = int(log[at, SIZE]), log[at, COST]
            success = log[at, ENDED] == REACHED
            learned[reaped] = at
            status = observe(walk, beliefs, optimiser, sampling, size, cost, success, rewards)
            reaped += 1
            if status != OK:
                return log[:launched], learned[:reaped], status
            if success:
                if cost < least:
                    least, best = cost, size
                continue
            retry = at
        if launched == len(log):
            log, rewards, scratch = grown(log, rewards)
            more = np.empty(len(log), np.int64)
            more[:reaped] = learned[:reaped]
            learned = more
        line = log[launched]
        if retry >= 0:
            line[RECURRENCE], line[ATTEMPT] = log[retry, RECURRENCE], log[retry, ATTEMPT] + 1
            line[START] = log[retry, END]
            line[END] = log[retry, END] + (log[retry, END] - log[retry, START])
        else:
            line[RECURRENCE], line[ATTEMPT] = next_row, 0
            line[START], line[END] = row_start[next_row], row_end[next_row]
            next_row += 1
        if flights:
            size = best
            if not beliefs.profiled[size]:
                return log[:launched], learned[:reaped], NOT_PROFILED
        else:
            size, status = choose(
                walk, beliefs, optimiser, sampling, above, rewards, scratch, policy_rng, order
            )
            if status != OK:
                return log[:launched], learned[:reaped], status
        attempt(job, size, job.beta * least, not beliefs.profiled[size], path_rng, line)
        beliefs.profiled[size] = True
        line[OBSERVED] = line[COST]
        push(heap, flights, line[END], launched)
        flights += 1
        launched += 1
    return log[:launched], learned[:reaped], OK
