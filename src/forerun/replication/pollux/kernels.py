"""Pollux's inner loops: goodput of every share of the cluster, and two searches for who gets which nodes.

A job's worth at an allocation is its speedup over a fair share, from a table by GPUs: `within[r]` on one node,
`across[r]` on several. A cluster's worth is the power mean (p = -1) of its jobs' worths, each lowered for jobs that
would have to restart [Qiao et al., OSDI'21, section 4.2]. As p = -1 makes an idle job fatal, an idle job counts with
a small worth `idle` instead of none.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from forerun.cluster.engine.kernels.arrays import BOOL, F64, I64
from forerun.cluster.engine.kernels.common import GOLDEN, mixed
from forerun.cluster.engine.kernels.order import rank_descending
from forerun.cluster.engine.kernels.step_model import step_s
from forerun.core.kernels.jit import kernel

_CANDIDATES = 50
_SLIVER = 1e-8
_UNIT = 2.0**53


@kernel
def efficiency(batch: float, init_batch: float, grad_sqr: float, grad_var: float) -> float:
    """Progress a sample at global batch `batch`, relative to one at the initial batch."""
    scale = batch / init_batch
    return float((grad_var + grad_sqr) / (grad_var / scale + grad_sqr) / scale)


@kernel
def best_batch(
    params: F64,
    nodes: float,
    replicas: int,
    limits: F64,
    fixed_batch: float,
    grad_sqr: float,
    grad_var: float,
) -> tuple[float, int, int]:
    """The best goodput on some GPUs, with its local batch and passes of accumulation.

    Tries 50 global batches, evenly spaced in ratio. Goodput is samples of progress a second, 0 where nothing fits.

    Parameters
    ----------
    params : the step model, as of `step_model`.
    nodes, replicas : nodes and GPUs.
    limits : initial batch, largest batch, least and largest local batch.
    fixed_batch : above 0: the only batch that is allowed.
    grad_sqr, grad_var : squared norm and variance of the gradient.
    """
    init_batch, most_batch, least_local, most_local = limits[0], limits[1], limits[2], limits[3]
    low = max(init_batch, least_local * replicas)
    if fixed_batch > 0:
        low = fixed_batch
    best, best_local, best_passes = 0.0, 0, 0
    if low > most_batch * (1 + _SLIVER) and fixed_batch <= 0:
        return best, best_local, best_passes
    tries = 1 if fixed_batch > 0 else _CANDIDATES
    growth = math.log(most_batch / low) if tries > 1 else 0.0
    for k in range(tries):
        batch = low * math.exp(growth * k / max(tries - 1, 1))
        if k == tries - 1 and tries > 1:
            batch = most_batch
        share = batch / replicas
        passes = math.ceil(share / most_local - _SLIVER) - 1
        if replicas == 1 and share > init_batch + _SLIVER:
            passes = max(passes, 1)
        local = math.ceil(share / (passes + 1) - _SLIVER)
        if local < least_local or local > most_local:
            continue
        whole = float(replicas * local * (passes + 1))
        samples = whole / step_s(params, nodes, float(replicas), float(local), float(passes))
        goodput = samples * efficiency(whole, init_batch, grad_sqr, grad_var)
        if goodput > best:
            best, best_local, best_passes = goodput, int(local), int(passes)
    return best, best_local, best_passes


@kernel
def goodput_table(
    params: F64,
    limits: F64,
    fixed_batch: float,
    grad_sqr: float,
    grad_var: float,
    node_gpus: int,
    reach: int,
    within: F64,
    across: F64,
) -> None:
    """Best goodput for 1 to `reach` GPUs, on one node and across nodes, into `within` and `across`.

    Parameters as of `best_batch`; `node_gpus`: the GPUs of a node.
    """
    for replicas in range(1, reach + 1):
        if replicas <= node_gpus:
            within[replicas] = best_batch(params, 1.0, replicas, limits, fixed_batch, grad_sqr, grad_var)[0]
        if replicas > 1:
            across[replicas] = best_batch(params, 2.0, replicas, limits, fixed_batch, grad_sqr, grad_var)[0]


@kernel
def _held(row: I64) -> tuple[int, int]:
    """GPUs of a job and the nodes they are on, from its GPUs by node."""
    gpus, nodes = 0, 0
    for count in row:
        gpus += count
        nodes += count > 0
    return gpus, nodes


@kernel
def worth_of(row: I64, within: F64, across: F64) -> float:
    """Worth of a job with `row[node]` GPUs on each node, before any restart."""
    gpus, nodes = _held(row)
    if gpus == 0:
        return 0.0
    return float(within[gpus] if nodes == 1 else across[gpus])


@kernel
def fitness(plan: I64, now: I64, within: F64, across: F64, restart: F64, idle: float) -> float:
    """Power mean (p = -1) of the jobs' worths; jobs whose row changes, having one, pay for the restart."""
    jobs = len(plan)
    total = 0.0
    for j in range(jobs):
        worth = worth_of(plan[j], within[j], across[j])
        held, changed = False, False
        for n in range(plan.shape[1]):
            held |= now[j, n] > 0
            changed |= now[j, n] != plan[j, n]
        if held and changed:
            worth *= restart[j]
        total += 1.0 / max(worth, idle)
    return float(jobs / total)


@kernel
def _uniform(counter: np.uint64) -> float:
    """The number in [0, 1) that belongs to a counter."""
    return np.float64(np.int64(mixed(counter) >> np.uint64(11))) * (1.0 / _UNIT)


@kernel
def _sum_of_lanes(word: int, bits: int, evens: int, wide: int) -> int:
    """What the lanes of a word hold together: neighbours first, then halves."""
    total, width = (word & evens) + ((word >> bits) & evens), 2 * bits
    while width < 64:
        total += total >> width
        width *= 2
    return total & wide


@kernel
def _lanes_in_use(word: int, bits: int, ones: int) -> int:
    """The lowest bit of each lane that holds anything."""
    width = 1
    while width < bits:
        word |= word >> width
        width *= 2
    return word & ones


@kernel
def _touch(job: int, touched: BOOL, fresh: I64, news: int) -> int:
    """Note a job whose row is of neither parent; the number of those noted."""
    if not touched[job]:
        touched[job] = True
        fresh[news] = job
        news += 1
    return news


@kernel
def _insert(scores: F64, slot_of: I64, last: int, score: float, slot: int) -> None:
    """Put a plan among those before `last`, which stand best first, behind its equals; the one at `last` goes."""
    at = last
    while at > 0 and scores[at - 1] < score:
        scores[at], slot_of[at] = scores[at - 1], slot_of[at - 1]
        at -= 1
    scores[at], slot_of[at] = score, slot


@kernel
def lane_bits(now: I64, node_gpus: I64) -> int:
    """Bits of a lane: the count of a job on a node fits into one, the sum over all jobs into two."""
    most = 1
    for n in range(len(node_gpus)):
        most = max(most, node_gpus[n])
        for j in range(len(now)):
            most = max(most, now[j, n])
    bits = 4
    while bits < 32 and (most >= 1 << bits or len(now) * most >= 1 << (2 * bits)):
        bits *= 2
    return bits


@kernel
def evolve(
    now: I64,
    within: F64,
    across: F64,
    restart: F64,
    idle: float,
    caps: I64,
    node_gpus: I64,
    population: int,
    generations: int,
    state: npt.NDArray[np.uint64],
) -> I64:
    """The paper's search: a population of plans, crossed job by job, mutated, repaired; the best one is returned.

    The plan in force is always among the candidates, so the result is never worse than changing nothing. A mutation makes
    a job idle, or gives it a few GPUs of one node or several whole nodes; repair takes away at random until jobs are
    within their caps, nodes within theirs, and one job of several nodes at most is on a node.

    A row (the GPUs of a job on each node) is packed: some bits per node (a lane), a few words per row. With each row go its
    lanes in use, if the job is on several nodes (`spread`), and what it adds to the plan's loss; only rows that are of
    neither parent are judged anew. The GPUs of a node are summed in lanes of twice the width.

    Parameters
    ----------
    now : int64[jobs, nodes], the plan in force.
    within, across, restart, idle, caps : as of `climb`.
    node_gpus : GPUs of each node.
    population, generations : plans at a time, and how often they are crossed.
    state : the counter of the random numbers, advanced.

    A child takes less than a microsecond, and this loop is nearly all the time of a run. Its steps are not functions of
    their own because that makes a child 20 to 70 % slower, depending on what is inlined.
    """
    jobs, nodes = now.shape
    bits = lane_bits(now, node_gpus)
    lanes, depth = 16, 4  # lanes of a word, and their logarithm: to divide by shifting
    while lanes * bits > 64:
        lanes, depth = lanes // 2, depth - 1
    words = (nodes + lanes - 1) // lanes
    full = (1 << bits) - 1
    wide = (1 << (2 * bits)) - 1 if bits < 32 else -1
    ones, evens = 0, 0
    for lane in range(lanes):
        ones |= 1 << (bits * lane)
        evens |= 0 if lane & 1 else full << (bits * lane)
    # plans are in any of twice as many slots; a word of a row is at word x jobs + job
    rows = np.zeros((2 * population, words * jobs), np.int64)
    spread = np.zeros((2 * population, words * jobs), np.int64)
    loss = np.zeros((2 * population, jobs))
    loss_bits = loss.view(np.int64)  # choosing between two without branching
    packed, running, lawless = np.zeros(words * jobs, np.int64), np.zeros(jobs, np.bool_), False
    for j in range(jobs):
        total = 0
        for n in range(nodes):
            packed[(n >> depth) * jobs + j] |= now[j, n] << (bits * (n & (lanes - 1)))
            total += now[j, n]
        running[j] = total > 0
        lawless |= total > caps[j]
    mothers, touched, fresh = np.zeros(jobs, np.int64), np.zeros(jobs, np.bool_), np.zeros(jobs, np.int64)
    slot_of, spare = np.zeros(population, np.int64), np.zeros(population, np.int64)
    for k in range(population):
        slot_of[k], spare[k] = k, population + k
    scores, children = np.zeros(population), np.zeros(population)
    held, sharers = np.zeros(2 * words, np.int64), np.zeros(2 * words, np.int64)
    counter = state[0]
    for generation in range(-1, generations):
        for k in range(population):
            # 1. a child: at first a copy of the plan in force, later each row from one of two parents
            if generation < 0:
                child, mutates, chance = k, k > 0, 1.0 / max(jobs, 1) + 0.5 * k / population
                for at in range(words * jobs):
                    rows[child, at], spread[child, at] = packed[at], spread[0, at]
                for j in range(jobs):
                    loss[child, j] = loss[0, j]
            else:
                child, mutates, chance = spare[k], True, 1.0 / max(jobs, 1)
                mother = father = 0
                for _ in range(2):  # each the better of two
                    counter += GOLDEN
                    one = int(_uniform(counter) * population)
                    counter += GOLDEN
                    two = int(_uniform(counter) * population)
                    mother, father = father, slot_of[one if scores[one] >= scores[two] else two]
                for j in range(jobs):
                    counter += GOLDEN
                    mothers[j] = ~(np.int64(mixed(counter)) >> 63)
                for w in range(words):
                    for j in range(jobs):
                        at = w * jobs + j
                        word = rows[father, at]
                        rows[child, at] = word ^ ((word ^ rows[mother, at]) & mothers[j])
                        word = spread[father, at]
                        spread[child, at] = word ^ ((word ^ spread[mother, at]) & mothers[j])
                for j in range(jobs):
                    word = loss_bits[father, j]
                    loss_bits[child, j] = word ^ ((word ^ loss_bits[mother, j]) & mothers[j])
            # 2. mutation, noting the rows that are of neither parent
            news = 0
            if lawless or not mutates:
                for j in range(jobs):
                    news = _touch(j, touched, fresh, news)
            if mutates:
                below = np.int64(math.ceil(min(chance, 1.0) * _UNIT))
                for j in range(jobs):
                    counter += GOLDEN
                    if np.int64(mixed(counter) >> np.uint64(11)) >= below:
                        continue
                    news = _touch(j, touched, fresh, news)
                    counter += GOLDEN
                    kind = _uniform(counter)
                    counter += GOLDEN
                    first = int(_uniform(counter) * nodes)
                    counter += GOLDEN
                    amount = _uniform(counter)
                    if kind >= 0.2:
                        for w in range(words):
                            rows[child, w * jobs + j] = 0
                    whole = kind >= 0.7
                    for step in range(1 + int(amount * min(nodes, 16)) if whole else 1):
                        n = (first + step) % nodes
                        at, shift = (n >> depth) * jobs + j, bits * (n & (lanes - 1))
                        count = node_gpus[n] if whole else int(amount * (node_gpus[n] + 1))
                        rows[child, at] = rows[child, at] & ~(full << shift) | (count << shift)
            # 3. repair: turn 0 cuts rows to their caps, then nodes to their GPUs and to one job of several nodes each, which
            #    needs `spread`. 4. judgement: turn 1 brings `spread` up to date and works out each fresh row's loss
            for turn in range(0 if mutates else 1, 2):
                for f in range(news):
                    j, total, used, single, same = fresh[f], 0, 0, True, True
                    for w in range(words):
                        total += _sum_of_lanes(rows[child, w * jobs + j], bits, evens, wide)
                        same &= rows[child, w * jobs + j] == packed[w * jobs + j]
                    while turn == 0 and total > caps[j]:
                        counter += GOLDEN
                        n = int(_uniform(counter) * nodes)
                        at, shift = (n >> depth) * jobs + j, bits * (n & (lanes - 1))
                        if (rows[child, at] >> shift) & full:
                            rows[child, at] -= 1 << shift
                            total -= 1
                    for w in range(words):
                        here = _lanes_in_use(rows[child, w * jobs + j], bits, ones)
                        spread[child, w * jobs + j] = here
                        single &= here & (here - 1) == 0 and (used == 0 or here == 0)
                        used |= here
                    for w in range(words):
                        spread[child, w * jobs + j] = 0 if single else spread[child, w * jobs + j]
                    if turn:
                        worth = 0.0
                        if total > 0:
                            worth = within[j, total] if single else across[j, total]
                        if running[j] and not same:
                            worth *= restart[j]
                        loss[child, j] = 1.0 / max(worth, idle)
                        touched[j] = False
                if turn:
                    break
                # sums over jobs of the GPUs of each node, and of the jobs on several nodes that are on it
                for w in range(words):
                    even, odd, even_sharers, odd_sharers = 0, 0, 0, 0
                    for j in range(jobs):
                        word, here = rows[child, w * jobs + j], spread[child, w * jobs + j]
                        even += word & evens
                        odd += (word >> bits) & evens
                        even_sharers += here & evens
                        odd_sharers += (here >> bits) & evens
                    held[2 * w], held[2 * w + 1] = even, odd
                    sharers[2 * w], sharers[2 * w + 1] = even_sharers, odd_sharers
                for n in range(nodes):
                    counter += GOLDEN
                    w, lane = n >> depth, n & (lanes - 1)
                    shift, half, there = bits * lane, 2 * w + (lane & 1), bits * (lane & ~1)
                    used, shared = (held[half] >> there) & wide, ((sharers[half] >> there) & wide) > 1
                    if shared:  # the first of them from a random one on stays
                        start, owned = int(_uniform(counter) * jobs), False
                        for step in range(jobs):
                            j = start + step
                            j = j if j < jobs else j - jobs
                            at = w * jobs + j
                            if (spread[child, at] >> shift) & 1:
                                if owned:
                                    used -= (rows[child, at] >> shift) & full
                                    rows[child, at] &= ~(full << shift)
                                    news = _touch(j, touched, fresh, news)
                                owned = True
                    while used > node_gpus[n]:
                        counter += GOLDEN
                        j = int(_uniform(counter) * jobs)
                        if (rows[child, w * jobs + j] >> shift) & full:
                            rows[child, w * jobs + j] -= 1 << shift
                            used -= 1
                            news = _touch(j, touched, fresh, news)
            # 5. the child's score
            lost = 0.0
            for j in range(jobs):
                lost += loss[child, j]
            children[k] = jobs / lost
            if generation < 0:
                scores[k] = children[k]
        for k in range(population if generation == 0 else 0):  # from now on they stand in order, best first
            _insert(scores, slot_of, k, scores[k], slot_of[k])
        # 6. selection: the best of parents and children
        for k in range(population if generation >= 0 else 0):
            if children[k] > scores[population - 1]:
                child, spare[k] = spare[k], slot_of[population - 1]
                _insert(scores, slot_of, population - 1, children[k], child)
    state[0] = counter
    best = np.zeros((jobs, nodes), np.int64)
    for j in range(jobs):
        for n in range(nodes):
            best[j, n] = (rows[slot_of[0], (n >> depth) * jobs + j] >> (bits * (n & (lanes - 1)))) & full
    return best


@kernel
def climb(
    now: I64, within: F64, across: F64, restart: F64, idle: float, caps: I64, total_gpus: int, node_gpus: int
) -> I64:
    """GPUs for each job by steepest ascent of the power mean from what they have: a deterministic search.

    A move gives a job more GPUs, free ones or ones taken from a single other job. Jobs are worth what the best
    placement of so many GPUs is worth (one node if they fit). Placement comes after.

    Parameters
    ----------
    now : GPUs of each job in the plan in force.
    within, across : float64[jobs, GPUs + 1], worth by GPUs, on one node and on several.
    restart : by what the worth of a job is multiplied that would have to restart.
    idle : worth of a job without GPUs.
    caps : the most GPUs that each job may have.
    total_gpus, node_gpus : GPUs of the cluster, and of its largest node.
    """
    jobs = len(now)
    top = within.shape[1] - 1
    loss = np.full((jobs, top + 1), np.inf)
    for j in range(jobs):
        for r in range(min(int(caps[j]), top) + 1):
            worth = 0.0
            if r > 0:
                worth = within[j, r] if r <= node_gpus else across[j, r]
            if r != now[j] and now[j] > 0:
                worth *= restart[j]
            loss[j, r] = 1.0 / max(worth, idle)
    held, free = np.zeros(jobs, np.int64), total_gpus
    for j in range(jobs):
        held[j] = min(now[j], caps[j], top)
        free -= held[j]
    donor, cheapest, second = np.zeros(top + 1, np.int64), np.zeros(top + 1), np.zeros(top + 1)
    donor_two = np.zeros(top + 1, np.int64)
    for _ in range(20 * jobs):
        for r in range(top + 1):
            cheapest[r] = second[r] = np.inf
        for j in range(jobs):
            for left in range(held[j]):
                given, cost = held[j] - left, loss[j, left] - loss[j, held[j]]
                if cost < cheapest[given]:
                    second[given], donor_two[given] = cheapest[given], donor[given]
                    cheapest[given], donor[given] = cost, j
                elif cost < second[given]:
                    second[given], donor_two[given] = cost, j
        best, taker, grown, giver, given = 1e-9, -1, 0, -1, 0
        for j in range(jobs):
            for r in range(held[j] + 1, min(int(caps[j]), top) + 1):
                gain = loss[j, held[j]] - loss[j, r]
                wanted = r - held[j] - free
                if wanted <= 0:
                    if gain > best:
                        best, taker, grown, giver, given = gain, j, r, -1, 0
                elif wanted <= top:
                    first = donor[wanted] != j
                    cost = cheapest[wanted] if first else second[wanted]
                    if gain - cost > best:
                        best, taker, grown, given = gain - cost, j, r, wanted
                        giver = donor[wanted] if first else donor_two[wanted]
        if taker < 0:
            break
        free -= grown - held[taker] - given
        held[taker] = grown
        if giver >= 0:
            held[giver] -= given
    return held


@kernel
def place(wanted: I64, now: I64, node_gpus: I64) -> I64:
    """GPUs by job and node for the GPUs wanted: jobs that keep their count keep their nodes, others are placed large first.

    A job goes whole into the fullest node that takes it; one that needs several takes empty nodes, then what is left
    on nodes without another job of several nodes. What does not fit is cut.

    Parameters
    ----------
    wanted : GPUs of each job.
    now : int64[jobs, nodes], the plan in force.
    node_gpus : GPUs of each node.
    """
    jobs, nodes = now.shape
    plan = np.zeros((jobs, nodes), np.int64)
    free, taken = np.zeros(nodes, np.int64), np.zeros(nodes, np.bool_)
    size, moved = np.zeros(jobs), np.zeros(jobs, np.bool_)
    for n in range(nodes):
        free[n] = node_gpus[n]
    for j in range(jobs):
        size[j] = wanted[j]
        gpus, spread = _held(now[j])
        moved[j] = wanted[j] > 0 and gpus != wanted[j]
        if wanted[j] > 0 and not moved[j]:
            for n in range(nodes):
                plan[j, n] = now[j, n]
                free[n] -= now[j, n]
                taken[n] |= spread > 1 and now[j, n] > 0
    for j in rank_descending(size):
        if moved[j]:
            _settle(j, wanted[j], plan, free, taken, node_gpus)
    return plan


@kernel
def _settle(j: int, wanted: int, plan: I64, free: I64, taken: BOOL, node_gpus: I64) -> None:
    """Nodes for one job: a single one if it fits, else empty ones, then parts of nodes no other large job is on."""
    nodes, left, home = len(free), wanted, -1
    for n in range(nodes):
        if free[n] >= left and (home < 0 or free[n] < free[home]):
            home = n
    if home >= 0:
        plan[j, home] = left
        free[home] -= left
        return
    for whole in (True, False):
        for n in range(nodes):
            usable = free[n] == node_gpus[n] if whole else free[n] > 0 and not taken[n]
            if left > 0 and usable and plan[j, n] == 0:
                plan[j, n] = min(left, free[n])
                left -= plan[j, n]
                free[n] -= plan[j, n]
    if _held(plan[j])[1] > 1:
        for n in range(nodes):
            taken[n] |= plan[j, n] > 0
