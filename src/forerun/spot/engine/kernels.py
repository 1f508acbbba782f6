"""Monte Carlo of one job on a random fleet, by the million membership events.

Between two changes of the fleet, training is a closed form, so a trial costs time proportional to its
membership events and not to its steps.  The fleet is counts (active, standby, batches in preparation):
victims are uniform over the nodes alive, so their categories are sampled one by one and names are never needed.

Every trial draws from its own streams, one a purpose, each a counter under a key made of seed, trial and
purpose: results do not depend on the number of threads, and the fleet's history does not depend on the job or
its policy. `replay.replay`, which goes step by step over named nodes, is the readable engine that this one is tested
against.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.jit import kernel

REMOVAL_TIMES, REMOVAL_BATCHES, VICTIMS, ADD_TIMES, ADD_BATCHES = range(5)

IMMEDIATE, LAZY, LAZY2, DRAIN, HAZARD, HAZARD_DRAIN = range(6)

TRAINING, RECONFIGURING, IDLE = range(3)

ROUNDING_S = 1e-7
"""A step counts as complete, and a write as durable, this much early: what happens at the very instant must see it, whatever
the rounding."""

WALL_LINES = ("useful", "stall", "lost", "reconfig", "idle", "inflight")
NODE_LINES = ("useful", "stall", "lost", "reconfig", "inflight", "standby", "prepping")
COUNTS = (
    "steps_completed",
    "steps_durable",
    "reconfigs",
    "reconfig_restarts",
    "rollbacks",
    "removals",
    "adds",
)
COLUMNS = (
    *(f"{line}_s" for line in WALL_LINES),
    *(f"{line}_node_s" for line in NODE_LINES),
    *COUNTS,
    "end_s",
    "finished",
)
"""What a trial reports, in this order; all are floats."""

_USEFUL, _STALL, _LOST, _RECONFIG, _IDLE, _INFLIGHT = range(6)
_USEFUL_N, _STALL_N, _LOST_N, _RECONFIG_N, _INFLIGHT_N, _STANDBY_N, _PREPPING_N = range(6, 13)
_COMPLETED, _DURABLE, _RECONFIGS, _RESTARTS, _ROLLBACKS, _REMOVALS, _ADDS, _END, _FINISHED = range(13, 22)


class JobNumbers(NamedTuple):
    """The job: times in seconds; arrays are indexed by the number of pipelines (entry 0 unused).

    first_steps, spacing_steps: steps of a segment to its first checkpoint, and from each checkpoint to the next.
    stall_s blocks training; hidden_write_s runs beside it (0 for synchronous writes, whose time is in
    stall_s); write_s is the write's length in both cases.
    goal_steps: number of steps at which the run ends; negative for none.
    """

    depth: int
    max_pipelines: int
    step_s: NDArray[Any]
    first_steps: NDArray[Any]
    spacing_steps: NDArray[Any]
    stall_s: float
    hidden_write_s: float
    write_s: float
    reconfig_s: float
    prep_s: float
    extend: bool
    initial_saved: int
    horizon_s: float
    goal_steps: int
    growth: int


class FleetNumbers(NamedTuple):
    """The fleet: Poisson removals and additions.

    per_node: the rates are for each node alive and for each node missing up to `cap`, else for the whole
    fleet. removal_cdf, add_cdf: float64[k], probability of a batch of at most 1..k nodes.
    hit_rate_per_s: float64[cap + 1, cap + 1], rate of removals that hit an active node, by spot nodes alive
    and active; one row where nodes fail on their own, since those alive then make no difference.  on_demand nodes
    never vanish, fill pipelines first and are not part of `cap`.
    """

    removal_per_s: float
    add_per_s: float
    per_node: bool
    removal_cdf: NDArray[Any]
    add_cdf: NDArray[Any]
    start: int
    cap: int
    on_demand: int
    hit_rate_per_s: NDArray[Any]


@kernel(inline=True)
def _mixed(z: Any) -> Any:
    """A bijection of 64 bits that scatters neighbours (the finaliser of splitmix64, Steele et al.,
    OOPSLA'14).
    """
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel(inline=True)
def uniform(streams: Any, purpose: Any) -> Any:
    """The next number of a stream, uniform on [0, 1): the mixed counter of that stream."""
    streams[purpose] += np.uint64(0x9E3779B97F4A7C15)
    return np.float64(np.int64(_mixed(streams[purpose]) >> np.uint64(11))) * (1.0 / 9007199254740992.0)


@kernel(inline=True)
def exponential(streams: Any, purpose: Any, rate: Any) -> Any:
    """Waiting time at a rate; infinite at rate 0."""
    if rate <= 0.0:
        return np.inf
    return -np.log(1.0 - uniform(streams, purpose)) / rate


@kernel(inline=True)
def _batch(streams: Any, purpose: Any, cdf: Any) -> Any:
    """A batch size, 1 or more. cdf: float64[k], probability of at most 1 ... k."""
    draw = uniform(streams, purpose)
    size = 0
    while size < cdf.size - 1 and cdf[size] <= draw:
        size += 1
    return size + 1


@kernel(inline=True)
def durable_by(u: Any, s: Any, first: Any, n: Any, d: Any, hidden: Any) -> Any:
    """What of a segment is durable `u` seconds after its start: (steps, wall time up to which, stall in it).

    The first checkpoint follows step `first`, further ones come every `n` steps; each blocks for `d`, and is
    durable `hidden` later.  K = n s + d is the time from checkpoint to checkpoint.
    """
    period = n * s + d
    m = np.floor((u - first * s - d - hidden + ROUNDING_S) / period)
    if m < 0.0:
        return 0.0, 0.0, 0.0
    return first + m * n, first * s + m * period + d, (m + 1.0) * d


@kernel(inline=True)
def executed_by(u: Any, s: Any, first: Any, n: Any, d: Any) -> Any:
    """Steps complete `u` seconds after the start of a segment, and the stall until then.

    s, first, n, d: as in `durable_by`.
    """
    if u < first * s:
        return np.floor((u + ROUNDING_S) / s), 0.0
    period = n * s + d
    beyond = u - first * s
    whole = np.floor((beyond + ROUNDING_S) / period)
    rest = max(0.0, beyond - whole * period)
    steps = first + n * whole + min(n - 1.0, np.floor(max(0.0, rest - d + ROUNDING_S) / s))
    return steps, whole * d + min(d, rest)


@kernel(inline=True)
def step_end(q: Any, s: Any, first: Any, n: Any, d: Any) -> Any:
    """Seconds from the start of a segment to the end of its q-th step, q >= 1. s, first, n, d: as in `durable_by`."""
    if q <= first:
        return q * s
    checkpoints = (q - first - 1) // n + 1
    return q * s + checkpoints * d


@kernel(inline=True)
def _next_durable(u: Any, s: Any, first: Any, n: Any, d: Any, hidden: Any) -> Any:
    """Seconds from the start of a segment to the first durable instant after `u`."""
    period = n * s + d
    m = np.floor((u - first * s - d - hidden + ROUNDING_S) / period)
    return first * s + d + hidden + max(0.0, m + 1.0) * period


@kernel(inline=True)
def _wants_growth(
    job: Any, state: Any, pipelines: Any, s1: Any, s2: Any, lost: Any, spent: Any, hit_rate: Any
) -> Any:
    """A growth rule's answer: 0 wait, 1 now, 2 at the next durable instant.

    state: of the job. pipelines: how many it trains. s1, s2: step times now and after growing. lost: seconds that growing
    rolls back. spent: seconds of a pause so far. hit_rate: expected hits a second.
    """
    rule = job.growth
    if state == IDLE or rule == IMMEDIATE:
        return 1
    if rule == LAZY:
        return 0
    if rule == LAZY2:
        return 0 if state == TRAINING and pipelines >= 2 else 1
    if rule == DRAIN:
        return 2 if state == TRAINING else 1
    if hit_rate > 0.0:
        cost = spent / s2
        if state == TRAINING:
            cost = (job.write_s if rule == HAZARD_DRAIN else lost) / s1 + job.reconfig_s / s2
        if (1.0 / s2 - 1.0 / s1) / hit_rate <= cost:
            return 0
    return 2 if rule == HAZARD_DRAIN and state == TRAINING else 1


@kernel(inline=True)
def _drop_batch(i: Any, batches: Any, ready_s: Any, ready_nodes: Any) -> Any:
    """Close the gap that batch `i` of `batches` leaves."""
    for k in range(i, batches - 1):
        ready_s[k], ready_nodes[k] = ready_s[k + 1], ready_nodes[k + 1]


@kernel(inline=True)
def _remove_from_batches(at: Any, batches: Any, ready_s: Any, ready_nodes: Any) -> Any:
    """Remove the `at`-th node in preparation, oldest batch first.

    Returns the batches that are left, and when the node would have been ready.
    """
    i = 0
    while at >= ready_nodes[i]:
        at -= ready_nodes[i]
        i += 1
    ready = ready_s[i]
    ready_nodes[i] -= 1
    if ready_nodes[i] == 0:
        _drop_batch(i, batches, ready_s, ready_nodes)
        batches -= 1
    return batches, ready


@kernel(inline=True)
def _note(log: Any, logged: Any, t: Any, code: Any, value: Any) -> Any:
    """Write one row of the log, if it is not full."""
    if logged < log.shape[0]:
        log[logged, 0], log[logged, 1], log[logged, 2] = t, code, value
        return logged + 1
    return logged


@kernel(inline=True)
def _charge(
    out: Any, state: Any, world: Any, u: Any, s: Any, first: Any, n: Any, d: Any, hidden: Any, final: Any
) -> Any:
    """Charge an interval of `u` seconds to the ledger; returns the steps of it that survive.

    A segment that ends by a disruption keeps what is durable; at the end of the run (`final`), what is
    complete.
    """
    if state == IDLE:
        out[_IDLE] += u
        return 0.0
    if state == RECONFIGURING:
        out[_RECONFIG] += u
        out[_RECONFIG_N] += u * world
        return 0.0
    if final:
        steps, stall = executed_by(u, s, first, n, d)
        out[_INFLIGHT] += max(0.0, u - steps * s - stall)
        out[_INFLIGHT_N] += max(0.0, u - steps * s - stall) * world
    else:
        steps, wall, stall = durable_by(u, s, first, n, d, hidden)
        out[_LOST] += u - wall
        out[_LOST_N] += (u - wall) * world
        out[_ROLLBACKS] += u > wall + ROUNDING_S
    out[_USEFUL] += steps * s
    out[_USEFUL_N] += steps * s * world
    out[_STALL] += stall
    out[_STALL_N] += stall * world
    return steps


@kernel
def run_trial(job: Any, fleet: Any, streams: Any, out: Any, ready_s: Any, ready_nodes: Any, log: Any) -> Any:
    """One trial into the row `out`: membership events one by one, training between them in closed form.

    `ready_s`, `ready_nodes`: the batches in preparation, oldest first.  `log` receives (time, code,
    value) rows: a victim that was active (0), standby (1) or in preparation (2, value its ready time), or an
    addition (3, value the nodes); rows beyond its length are dropped.  Returns the rows written.
    """
    out[:] = 0.0
    depth, on_demand = job.depth, fleet.on_demand
    active, standby, provisioning = 0, fleet.start + on_demand, 0
    batches = steady = 0  # batches in preparation; on-demand nodes in pipelines
    removal_rate = fleet.removal_per_s * (fleet.cap if fleet.per_node else 1)
    add_rate = fleet.add_per_s * (fleet.cap if fleet.per_node else 1)
    next_removal = exponential(streams, REMOVAL_TIMES, removal_rate)
    next_add = exponential(streams, ADD_TIMES, add_rate)
    # The gap after the next event is sampled ahead, so that its logarithm is off the path to the next event.
    removal_gap = exponential(streams, REMOVAL_TIMES, removal_rate)
    add_gap = exponential(streams, ADD_TIMES, add_rate)
    next_ready = np.inf
    state, world, training, spell = IDLE, 0, 0, 0.0
    until = drain_at = goal_at = np.inf
    standby_node_s = provisioning_node_s = 0.0
    saved, logged, started = job.initial_saved, 0, False
    s, first, n, d, hidden = 1.0, 1, 1, job.stall_s, job.hidden_write_s
    t = 0.0
    while True:
        hit = grow = False
        if started:  # the start is a re-plan without an event
            before = t
            t = min(min(next_removal, next_add), min(next_ready, until), min(drain_at, goal_at))
            if t > job.horizon_s or (t == job.horizon_s and t < until and t < goal_at):
                t = job.horizon_s
                standby_node_s += standby * (t - before)
                provisioning_node_s += provisioning * (t - before)
                break
            standby_node_s += standby * (t - before)
            provisioning_node_s += provisioning * (t - before)
            spot = active + standby + provisioning - on_demand
            if goal_at <= t:
                out[_FINISHED] = 1.0
                break
            elif until <= t:  # the pipelines are built: a segment begins
                _charge(out, state, world, t - spell, s, first, n, d, hidden, False)
                state, spell, until = TRAINING, t, np.inf
                s, first, n = job.step_s[training], job.first_steps[training], job.spacing_steps[training]
                if job.goal_steps >= 0:
                    goal_at = t + step_end(job.goal_steps - saved - 1, s, first, n, d)
                continue
            elif drain_at <= t:
                grow, drain_at = True, np.inf
            elif next_removal <= t:
                next_removal = t + removal_gap
                removal_gap = exponential(streams, REMOVAL_TIMES, removal_rate)
                size = min(_batch(streams, REMOVAL_BATCHES, fleet.removal_cdf), spot)
                if fleet.per_node and uniform(streams, REMOVAL_BATCHES) * fleet.cap >= spot:
                    size = 0
                if size == 0:
                    continue
                out[_REMOVALS] += size
                for _ in range(size):  # victims one by one, uniform over spot nodes alive
                    code, value = 0.0, 0.0
                    alive = active + standby + provisioning - on_demand
                    at = np.int64(uniform(streams, VICTIMS) * alive) - (active - steady)
                    if at < 0:
                        active -= 1
                        hit = True
                    elif at < standby - (on_demand - steady):
                        standby -= 1
                        code = 1.0
                    else:
                        at -= standby - (on_demand - steady)
                        batches, value = _remove_from_batches(at, batches, ready_s, ready_nodes)
                        provisioning -= 1
                        code = 2.0
                        next_ready = ready_s[0] if batches > 0 else np.inf
                    logged = _note(log, logged, t, code, value)
            elif next_ready <= t:
                standby += ready_nodes[0]
                provisioning -= ready_nodes[0]
                _drop_batch(0, batches, ready_s, ready_nodes)
                batches -= 1
                next_ready = ready_s[0] if batches > 0 else np.inf
            else:
                next_add = t + add_gap
                add_gap = exponential(streams, ADD_TIMES, add_rate)
                size = max(0, min(_batch(streams, ADD_BATCHES, fleet.add_cdf), fleet.cap - spot))
                if fleet.per_node and uniform(streams, ADD_BATCHES) * fleet.cap < spot:
                    size = 0
                if size == 0:
                    continue
                out[_ADDS] += size
                logged = _note(log, logged, t, 3.0, size)
                if job.prep_s > 0.0:
                    ready_s[batches], ready_nodes[batches] = t + job.prep_s, size
                    next_ready = ready_s[0]
                    batches += 1
                    provisioning += size
                else:
                    standby += size
        # One re-plan for the instant: if an active node was hit, or growth is possible and the rule asks for it.
        starting, started = not started, True
        if not hit and standby < depth:
            continue  # not enough for another pipeline
        pipelines = min(job.max_pipelines, (active + standby) // depth)
        if not hit:
            if pipelines * depth <= active:
                continue
            if not (grow or starting):
                # What growing throws away: the time since the last durable step, or since the pause began.
                spent = t - spell
                lost = spent - durable_by(spent, s, first, n, d, hidden)[1]
                alive = active + standby + provisioning - on_demand
                rate = fleet.hit_rate_per_s[min(alive, fleet.hit_rate_per_s.shape[0] - 1), active - steady]
                now_s, then_s = job.step_s[max(1, training)], job.step_s[pipelines]
                answer = _wants_growth(job, state, training, now_s, then_s, lost, spent, rate)
                if state == TRAINING:
                    drain_at = np.inf
                    if answer == 2:
                        drain_at = spell + _next_durable(spent, s, first, n, d, hidden)
                if answer != 1:
                    continue
        saved += np.int64(_charge(out, state, world, t - spell, s, first, n, d, hidden, False))
        training, world = pipelines, pipelines * depth
        standby -= world - active
        active = world
        steady = min(on_demand, world)
        spell, goal_at, drain_at = t, np.inf, np.inf
        if world == 0:
            state, until = IDLE, np.inf
        elif starting:
            state, until = RECONFIGURING, t  # a warm start builds its pipelines in no time
        elif state == RECONFIGURING:
            out[_RESTARTS] += 1.0
            until = (until if job.extend else t) + job.reconfig_s
        else:
            out[_RECONFIGS] += 1.0
            state, until = RECONFIGURING, t + job.reconfig_s
    complete = _charge(out, state, world, t - spell, s, first, n, d, hidden, True)
    out[_DURABLE] = saved + 1
    if state == TRAINING:
        out[_DURABLE] += durable_by(t - spell, s, first, n, d, hidden)[0]
    out[_COMPLETED] = saved + 1 + complete
    out[_STANDBY_N], out[_PREPPING_N] = standby_node_s, provisioning_node_s
    out[_END] = t
    return logged


@kernel
def open_streams(key: Any, trial: Any, streams: Any) -> Any:
    """Put each purpose's counter where seed, trial and purpose say."""
    for purpose in range(streams.size):
        streams[purpose] = _mixed(_mixed(_mixed(key) + np.uint64(trial)) + np.uint64(purpose + 1))


@kernel(parallel=True)
def run_trials(job: Any, fleet: Any, key: Any, first_trial: Any, out: Any) -> Any:
    """Trials first_trial, first_trial + 1, ... into the rows of `out`, in parallel.

    job, fleet: as `JobNumbers` and `FleetNumbers` say. key: of the seed. out: float64[trials, len(COLUMNS)].
    """
    for row in numba.prange(out.shape[0]):
        streams = np.empty(5, np.uint64)
        open_streams(key, first_trial + row, streams)
        ready_s = np.empty(fleet.cap + 1, np.float64)
        ready_nodes = np.empty(fleet.cap + 1, np.int64)
        run_trial(job, fleet, streams, out[row], ready_s, ready_nodes, np.empty((0, 3), np.float64))


@kernel
def run_one_logged(job: Any, fleet: Any, key: Any, trial: Any, out: Any, log: Any) -> Any:
    """One trial as `run_trials` runs it, its fleet's history written to `log`; returns the rows written."""
    streams = np.empty(5, np.uint64)
    open_streams(key, trial, streams)
    ready_s = np.empty(fleet.cap + 1, np.float64)
    ready_nodes = np.empty(fleet.cap + 1, np.int64)
    return run_trial(job, fleet, streams, out, ready_s, ready_nodes, log)
