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

from forerun.domains.cluster.kernels.order import rank_descending
from forerun.domains.cluster.kernels.step_model import step_s
from forerun.kernels.jit import kernel

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_CANDIDATES = 50
_SLIVER = 1e-8


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

    `limits`: initial batch, largest batch, least and largest local batch. Tries 50 global batches, evenly spaced in
    ratio; `fixed_batch` > 0 allows only that one. Goodput is samples of progress a second, 0 where nothing fits.
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
    """Best goodput for 1 to `reach` GPUs, on one node and across nodes, into `within` and `across`."""
    for replicas in range(1, reach + 1):
        if replicas <= node_gpus:
            within[replicas] = best_batch(params, 1.0, replicas, limits, fixed_batch, grad_sqr, grad_var)[0]
        if replicas > 1:
            across[replicas] = best_batch(params, 2.0, replicas, limits, fixed_batch, grad_sqr, grad_var)[0]


@kernel
def worth_of(row: I64, within: F64, across: F64) -> float:
    """Worth of a job with `row[node]` GPUs on each node, before any restart."""
    gpus, nodes = 0, 0
    for count in row:
        gpus += count
        nodes += count > 0
    if gpus == 0:
        return 0.0
    return float(within[gpus] if nodes == 1 else across[gpus])


@kernel
def _random(state: npt.NDArray[np.uint64]) -> float:
    """A uniform number in [0, 1) from a counter (splitmix64)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def _repair(plan: I64, caps: I64, node_gpus: I64, state: npt.NDArray[np.uint64]) -> None:
    """Make a plan feasible: jobs within their caps, nodes within theirs, one job of several nodes a node at most."""
    jobs, nodes = plan.shape
    for j in range(jobs):
        total, _ = _held(plan, j)
        while total > caps[j]:
            at = int(_random(state) * nodes)
            if plan[j, at] > 0:
                plan[j, at] -= 1
                total -= 1
    spread = np.zeros(jobs, np.bool_)
    for j in range(jobs):
        spread[j] = _held(plan, j)[1] > 1
    for n in range(nodes):
        owner = -1
        start = int(_random(state) * jobs)
        for k in range(jobs):
            j = (start + k) % jobs
            if plan[j, n] and spread[j]:
                if owner >= 0:
                    plan[j, n] = 0
                owner = max(owner, j)
        used = 0
        for j in range(jobs):
            used += plan[j, n]
        while used > node_gpus[n]:
            j = int(_random(state) * jobs)
            if plan[j, n] > 0:
                plan[j, n] -= 1
                used -= 1


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

    The plan in force is always among the candidates, so the result is never worse than changing nothing.
    """
    jobs, nodes = now.shape
    plans = np.zeros((2 * population, jobs, nodes), np.int64)
    kept = np.zeros((population, jobs, nodes), np.int64)
    scores, kept_scores = np.zeros(2 * population), np.zeros(population)
    for k in range(population):
        _copy(now, plans[k])
        if k > 0:
            _mutate(plans[k], node_gpus, 0.5 * k / population + 1.0 / max(jobs, 1), state)
            _repair(plans[k], caps, node_gpus, state)
        scores[k] = fitness(plans[k], now, within, across, restart, idle)
    for _ in range(generations):
        for k in range(population, 2 * population):
            mother, father = _pick(scores, population, state), _pick(scores, population, state)
            for j in range(jobs):
                parent = mother if _random(state) < 0.5 else father
                for n in range(nodes):
                    plans[k, j, n] = plans[parent, j, n]
            _mutate(plans[k], node_gpus, 1.0 / max(jobs, 1), state)
            _repair(plans[k], caps, node_gpus, state)
            scores[k] = fitness(plans[k], now, within, across, restart, idle)
        order = rank_descending(scores)
        for k in range(population):
            _copy(plans[order[k]], kept[k])
            kept_scores[k] = scores[order[k]]
        for k in range(population):
            _copy(kept[k], plans[k])
            scores[k] = kept_scores[k]
    best = np.zeros((jobs, nodes), np.int64)
    _copy(plans[0], best)
    return best


@kernel
def _copy(source: I64, target: I64) -> None:
    for j in range(source.shape[0]):
        for n in range(source.shape[1]):
            target[j, n] = source[j, n]


@kernel
def _pick(scores: F64, population: int, state: npt.NDArray[np.uint64]) -> int:
    """The better of two plans drawn at random."""
    one, two = int(_random(state) * population), int(_random(state) * population)
    return one if scores[one] >= scores[two] else two


@kernel
def _mutate(plan: I64, node_gpus: I64, chance: float, state: npt.NDArray[np.uint64]) -> None:
    """Give some jobs a new row: idle, a few GPUs of one node, or several whole nodes."""
    jobs, nodes = plan.shape
    for j in range(jobs):
        if _random(state) >= chance:
            continue
        kind = _random(state)
        at = int(_random(state) * nodes)
        if kind < 0.2:
            plan[j, at] = int(_random(state) * (node_gpus[at] + 1))
        elif kind < 0.7:
            _clear(plan, j)
            plan[j, at] = int(_random(state) * (node_gpus[at] + 1))
        else:
            _clear(plan, j)
            for k in range(1 + int(_random(state) * min(nodes, 16))):
                plan[j, (at + k) % nodes] = node_gpus[(at + k) % nodes]


@kernel
def _clear(plan: I64, job: int) -> None:
    for n in range(plan.shape[1]):
        plan[job, n] = 0


@kernel
def _held(plan: I64, job: int) -> tuple[int, int]:
    """GPUs of a job and the nodes they are on."""
    gpus, nodes = 0, 0
    for n in range(plan.shape[1]):
        gpus += plan[job, n]
        nodes += plan[job, n] > 0
    return gpus, nodes


@kernel
def climb(
    now: I64, within: F64, across: F64, restart: F64, idle: float, caps: I64, total_gpus: int, node_gpus: int
) -> I64:
    """GPUs for each job by steepest ascent of the power mean from what they hold: a deterministic search.

    A move gives a job more GPUs, free ones or ones taken from a single other job. Jobs are worth what the best
    placement of so many GPUs is worth (one node if they fit). Placement comes after.
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
    """Rows for the GPUs wanted: jobs that keep their count keep their nodes, the others are placed large first.

    A job goes whole into the fullest node that takes it; one that needs several takes empty nodes, then what is left
    on nodes without another job of several nodes. What does not fit is cut.
    """
    jobs, nodes = now.shape
    plan = np.zeros((jobs, nodes), np.int64)
    free, taken = np.zeros(nodes, np.int64), np.zeros(nodes, np.bool_)
    size, moved = np.zeros(jobs), np.zeros(jobs, np.bool_)
    for n in range(nodes):
        free[n] = node_gpus[n]
    for j in range(jobs):
        size[j] = wanted[j]
        gpus, spread = _held(now, j)
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
def _settle(j: int, wanted: int, plan: I64, free: I64, taken: npt.NDArray[np.bool_], node_gpus: I64) -> None:
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
    if _held(plan, j)[1] > 1:
        for n in range(nodes):
            taken[n] |= plan[j, n] > 0
