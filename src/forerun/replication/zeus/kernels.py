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

from forerun.core.kernels.jit import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
Rng = np.random.Generator


class CompiledJob(NamedTuple):
    """One configuration a batch size: its slice of the paths, its profiling epoch, and what costs are made of.

    S is the number of batch sizes, `rows` that of the recorded paths of all of them.

    Parameters
    ----------
    start : int64[S], the first row of each size's paths.
    paths : int64[S], how many paths each size has.
    epochs : int64[rows], epochs to the target; 0 for a path that never reaches it.
    epoch_s : float64[rows], time of an epoch [s].
    epoch_j : float64[rows], energy of an epoch [J].
    split_s : float64[S], time of an epoch split over all limits [s].
    split_j : float64[S], its energy [J].
    top_limit_w : float64[S], the power that prices time in bounds [W].
    max_power_w : the power that prices time in costs [W].
    max_epochs : epochs after which an attempt gives up.
    eta : weight of energy against time, 0 ... 1.
    beta : an attempt stops at this multiple of the least cost so far.
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
    """Parameters of the optimiser.

    Parameters
    ----------
    kind : 0 pruning-gts, 1 gts with given precision, 2 gts with learned precision.
    default : index of the default batch size, where the exploration begins.
    window : how many of the latest rewards count; 0 for all.
    concurrency : a result that the exploration does not wait for counts as a reward only; off, it is OUT_OF_ORDER.
    mean : prior mean of the reward.
    precision : prior precision of that mean.
    reward_precision : precision of a reward, for `kind` 1.
    explorations : rewards that each arm gets before the samples decide; pruning-gts uses 2.
    """

    kind: int
    default: int
    window: int
    concurrency: bool
    mean: float
    precision: float
    reward_precision: float
    explorations: int


class Walk(NamedTuple):
    """State of the exploration: two rounds, each down and then up from the incumbent.

    Parameters
    ----------
    alive : bool[S], sizes that survived the rounds before.
    survivors : bool[S], sizes that reached the target in this round.
    walk : int64[5]: rounds left, whether the walk has turned, the size ahead, the size expected, the incumbent.
    best_j : float64[1], the least cost of this round [J].
    """

    alive: Bool
    survivors: Bool
    walk: I64
    best_j: F64


class Beliefs(NamedTuple):
    """Beliefs about the reward of each size, the negative cost.

    Parameters
    ----------
    mean, precision : float64[S] of the normal belief about the mean reward.
    reward_precision : float64[S] of one reward around its mean.
    observations : int64[S], rewards that the belief has absorbed.
    seen : int64[S], rewards observed.
    stale : bool[S], to be refitted before the next choice.
    profiled : bool[S], the limit of this size was measured.
    arms : bool[S], sizes that are sampled.
    rough : bool[S], fitted from running sums, not in numpy's order.
    sums : float64[S, 5]: the first reward, then the sum of rewards above it with its compensation, and the sum of their
        squares with its own.
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
    """Sum of at most 128 numbers in numpy's order: eight running sums, joined in pairs, the rest appended.

    Parameters
    ----------
    x : float64[.].
    first : index of the first of them.
    n : how many.
    """
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
    """Population variance of x[:n] in numpy's order.

    Parameters
    ----------
    x : float64[.].
    n : how many numbers, at least 1.
    scratch : float64[n or more], overwritten.
    """
    mean = pairwise_sum(x, n) / n
    for i in range(n):
        away = x[i] - mean
        scratch[i] = away * away
    return pairwise_sum(scratch, n) / n


@kernel
def permutation(rng: Rng, k: int, out: I64) -> None:
    """The numbers below k in random order, as numpy draws a choice of k out of k: Floyd's sampling, then a shuffle.

    Parameters
    ----------
    rng : the generator; the calls to it are those that numpy makes.
    k : how many.
    out : int64[k or more], gets the numbers.
    """
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
    """Hand out the next size of the exploration.

    Parameters
    ----------
    walk : state of the exploration.
    above : int64[1], the first size on the way up.

    Returns
    -------
    (index, status): index -1 with OK when the exploration is over, -1 with another status when it failed.
    """
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
    """The first surviving index from `at` on in one direction, -1 if none.

    Parameters
    ----------
    alive : bool[S].
    at : where to begin.
    step : 1 upwards, -1 downwards.
    """
    while 0 <= at < len(alive):
        if alive[at]:
            return at
        at += step
    return -1


@kernel
def answer(walk: Walk, size: int, cost: float, reached: bool) -> bool:
    """Take the result of the size that was handed out; false if another was expected.

    A size that does not reach the target ends the walk in its direction.

    Parameters
    ----------
    walk : state of the exploration.
    size : index of the size that ran.
    cost : of its attempt [J].
    reached : whether it reached the target.
    """
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
    """Add to a running sum with Neumaier's compensation.

    Parameters
    ----------
    sums : float64[.], the sum at `at` and its rounding error in the next element.
    at : index of the sum.
    value : what to add.
    """
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
    """Beliefs of one size from its latest rewards.

    Sums in numpy's order take time in proportion to the rewards. Many rewards are fitted from running sums, unless
    `exactly`: the beliefs are then right to `ROUGH_SD` and `ROUGH_MEAN`, which `sample` allows for.

    Parameters
    ----------
    beliefs : changed at `size`.
    optimiser : prior and window.
    size : index of the size.
    rewards : float64[S, .] in the order observed.
    scratch : float64[.], overwritten.
    exactly : never use the running sums.
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
    """Normal update of one size; with an infinite reward precision the mean becomes that of the rewards.

    Parameters
    ----------
    beliefs : changed at `size`.
    size : index of the size.
    total : sum of the rewards.
    n : how many.
    """
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

    Parameters
    ----------
    beliefs : about all sizes.
    optimiser : prior and window, for fits.
    explorations : rewards that each arm gets before the samples decide.
    rewards : float64[S, .] in the order observed.
    scratch : float64[.], overwritten.
    rng : draws one permutation, then a normal an arm.
    order : int64[S], overwritten.
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
    """The arm with the largest sample, and whether it is that whatever rough beliefs are off by.

    Parameters
    ----------
    beliefs : about all sizes.
    which : int64[arms], their sizes.
    normals : float64[arms], standard normal draws.
    """
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
    """The next size of the optimiser: (index, status).

    Parameters
    ----------
    walk, beliefs, optimiser : state and parameters of the optimiser.
    sampling : bool[1], turns true when the exploration is over.
    above : int64[1], the first size on the way up.
    rewards : float64[S, .] in the order observed.
    scratch : float64[.], overwritten.
    rng : the policy's stream.
    order : int64[S], overwritten.
    """
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
    """Learn a result; OUT_OF_ORDER if the exploration waits for another.

    Parameters
    ----------
    walk, beliefs, optimiser : state and parameters of the optimiser.
    sampling : bool[1], whether the exploration is over.
    size : index of the size that ran.
    cost : of its attempt [J]; the reward is its negative.
    reached : whether it reached the target.
    rewards : float64[S, .], gets the reward.
    """
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
    """Run one attempt of a size and write epochs, joules, seconds, cost and ending into the log.

    Parameters
    ----------
    job : paths and costs of the sizes.
    size : index of the size.
    bound : cost at which the attempt stops [J]; infinite for none.
    profiled : whether its first epoch is split over all limits.
    rng : the stream of paths; drawn from only where a size has several paths.
    line : float64[COLUMNS], the line of the log.
    """
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
    """A walk at its start, and beliefs before any reward.

    Parameters
    ----------
    sizes : how many batch sizes there are.
    optimiser : prior and default size.
    """
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
    """Recurrences one after another, each tried until it reaches the target, at most `TRIES` times.

    Parameters
    ----------
    job : paths and costs of the sizes.
    optimiser : parameters of the policy.
    recurrences : how many.
    path_rng : draws the path of an attempt.
    policy_rng : draws for the policy.

    Returns
    -------
    The log, float64[attempts, COLUMNS], and the status: OK, or why the run failed.
    """
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
    """Log and rewards with twice the space, and scratch to match.

    Parameters
    ----------
    log : float64[n, COLUMNS].
    rewards : float64[S, n].
    """
    n = len(log)
    more, longer = np.zeros((2 * n, log.shape[1])), np.empty((len(rewards), 2 * n))
    more[:n], longer[:, :n] = log, rewards
    return more, longer, np.empty(2 * n)


@kernel
def push(heap: F64, n: int, end: float, at: int) -> None:
    """Add a flight to the heap of flights.

    Parameters
    ----------
    heap : float64[., 2] of (end [s], launch number), smallest first.
    n : flights before.
    end : when it ends [s].
    at : its launch number.
    """
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
    """Remove the flight that ends first; its launch number.

    Parameters
    ----------
    heap : float64[., 2] of (end [s], launch number), smallest first.
    n : flights before.
    """
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
    """Submissions that overlap: while one runs, the next uses the best size so far.

    Parameters
    ----------
    job : paths and costs of the sizes.
    optimiser : parameters of the policy.
    row_start : float64[submissions], when each starts [s].
    row_end : float64[submissions], when each ends [s].
    path_rng : draws the path of an attempt.
    policy_rng : draws for the policy.

    Returns
    -------
    The log in launch order, float64[attempts, COLUMNS]; launch numbers in the order learned; and the status.
    """
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
