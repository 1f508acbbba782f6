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

from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.jit import kernel
from forerun.core.kernels.records import record_type

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


NOTHING, CHANGED, HIT, GROWS, STARTS = range(5)
"""What an event changes: nothing, nodes that do not train, nodes that do; the growth rule's instant; the beginning."""

TRIAL: Final = record_type(
    "state training active standby provisioning steady batches saved first n logged",
    "t spell until goal_at drain_at next_removal next_add next_ready removal_gap add_gap removal_rate add_rate s",
)
"""Where a trial is.

state: of the job. training: pipelines. active, standby, provisioning: nodes that train, wait, and are prepared. steady:
on-demand nodes in pipelines. batches: in preparation. saved: the last step kept. first, n: steps of this segment to its
first checkpoint, and between them. logged: rows of the log.

t: now. spell: when the state began. until: its end. goal_at, drain_at: the goal, and the durable instant at which the job
grows. next_*: events; inf for none. *_gap: from the next event to the one after it, sampled ahead, so that its logarithm
is off the path to the next event. *_rate: of events a second. s: a step of this segment.
"""


class FleetTrial(NamedTuple):
    """One trial under way: what `run_trial` takes, and now: TRIAL[1].

    Each kind of event has one function that changes it; all are copied into `_run`, so that handing it on is free.
    """

    job: Any
    fleet: Any
    streams: Any
    out: Any
    ready_s: Any
    ready_nodes: Any
    log: Any
    now: Any


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
def _note(trial: Any, code: Any, value: Any) -> None:
    """Write one row of the log, if it is not full."""
    now, log = trial.now[0], trial.log
    if now.logged < log.shape[0]:
        log[now.logged, 0], log[now.logged, 1], log[now.logged, 2] = now.t, code, value
        now.logged += 1


@kernel(allocates=False)
def _charge(now: Any, job: Any, out: Any, final: Any) -> Any:
    """Charge the time in the present state to the ledger; returns the steps of it that survive.

    A segment that ends by a disruption keeps what is durable; at the end of the run (`final`), what is
    complete.
    """
    u, world = now.t - now.spell, now.training * job.depth
    if now.state == IDLE:
        out[_IDLE] += u
        return 0.0
    if now.state == RECONFIGURING:
        out[_RECONFIG] += u
        out[_RECONFIG_N] += u * world
        return 0.0
    s, d = now.s, job.stall_s
    if final:
        steps, stall = executed_by(u, s, now.first, now.n, d)
        out[_INFLIGHT] += max(0.0, u - steps * s - stall)
        out[_INFLIGHT_N] += max(0.0, u - steps * s - stall) * world
    else:
        steps, wall, stall = durable_by(u, s, now.first, now.n, d, job.hidden_write_s)
        out[_LOST] += u - wall
        out[_LOST_N] += (u - wall) * world
        out[_ROLLBACKS] += u > wall + ROUNDING_S
    out[_USEFUL] += steps * s
    out[_USEFUL_N] += steps * s * world
    out[_STALL] += stall
    out[_STALL_N] += stall * world
    return steps


@kernel(inline=True)
def _advance(trial: Any) -> Any:
    """Go to the next instant, and charge the nodes that wait; returns whether that is the horizon."""
    now, horizon_s = trial.now[0], trial.job.horizon_s
    before, ends = now.t, min(now.until, now.goal_at)
    t = min(min(now.next_removal, now.next_add), min(now.next_ready, ends), now.drain_at)
    at_end = t > horizon_s or (t == horizon_s and t < ends)
    now.t = horizon_s if at_end else t
    trial.out[_STANDBY_N] += now.standby * (now.t - before)
    trial.out[_PREPPING_N] += now.provisioning * (now.t - before)
    return at_end


@kernel(inline=True)
def _train(trial: Any) -> Any:
    """The pipelines are built: a segment begins."""
    now, job = trial.now[0], trial.job
    _charge(now, job, trial.out, False)
    now.state, now.spell, now.until = TRAINING, now.t, np.inf
    now.s, now.first = job.step_s[now.training], job.first_steps[now.training]
    now.n = job.spacing_steps[now.training]
    if job.goal_steps >= 0:
        now.goal_at = now.t + step_end(job.goal_steps - now.saved - 1, now.s, now.first, now.n, job.stall_s)
    return NOTHING


@kernel(inline=True)
def _remove(trial: Any) -> Any:
    """Spot nodes vanish, victims one by one, uniform over those alive."""
    now, fleet, streams = trial.now[0], trial.fleet, trial.streams
    spot = now.active + now.standby + now.provisioning - fleet.on_demand
    now.next_removal = now.t + now.removal_gap
    now.removal_gap = exponential(streams, REMOVAL_TIMES, now.removal_rate)
    size = min(_batch(streams, REMOVAL_BATCHES, fleet.removal_cdf), spot)
    if fleet.per_node and uniform(streams, REMOVAL_BATCHES) * fleet.cap >= spot:
        size = 0
    if size == 0:
        return NOTHING
    trial.out[_REMOVALS] += size
    change = CHANGED
    for alive in range(spot, spot - size, -1):
        code, value = 0.0, 0.0
        at = np.int64(uniform(streams, VICTIMS) * alive) - (now.active - now.steady)
        idle = now.standby - (fleet.on_demand - now.steady)
        if at < 0:
            now.active -= 1
            change = HIT
        elif at < idle:
            now.standby -= 1
            code = 1.0
        else:
            now.batches, value = _remove_from_batches(
                at - idle, now.batches, trial.ready_s, trial.ready_nodes
            )
            now.provisioning -= 1
            code = 2.0
            now.next_ready = trial.ready_s[0] if now.batches > 0 else np.inf
        _note(trial, code, value)
    return change


@kernel(inline=True)
def _ready(trial: Any) -> Any:
    """The oldest batch is prepared."""
    now, ready_s, ready_nodes = trial.now[0], trial.ready_s, trial.ready_nodes
    now.standby += ready_nodes[0]
    now.provisioning -= ready_nodes[0]
    _drop_batch(0, now.batches, ready_s, ready_nodes)
    now.batches -= 1
    now.next_ready = ready_s[0] if now.batches > 0 else np.inf
    return CHANGED


@kernel(inline=True)
def _add(trial: Any) -> Any:
    """Spot nodes come."""
    now, fleet, streams, prep_s = trial.now[0], trial.fleet, trial.streams, trial.job.prep_s
    spot = now.active + now.standby + now.provisioning - fleet.on_demand
    now.next_add = now.t + now.add_gap
    now.add_gap = exponential(streams, ADD_TIMES, now.add_rate)
    size = max(0, min(_batch(streams, ADD_BATCHES, fleet.add_cdf), fleet.cap - spot))
    if fleet.per_node and uniform(streams, ADD_BATCHES) * fleet.cap < spot:
        size = 0
    if size == 0:
        return NOTHING
    trial.out[_ADDS] += size
    _note(trial, 3.0, size)
    if prep_s > 0.0:
        trial.ready_s[now.batches], trial.ready_nodes[now.batches] = now.t + prep_s, size
        now.next_ready = trial.ready_s[0]
        now.batches += 1
        now.provisioning += size
    else:
        now.standby += size
    return CHANGED


@kernel(inline=True)
def _asks(trial: Any, pipelines: Any) -> Any:
    """Whether the growth rule wants so many pipelines now; it may ask for the next durable instant instead."""
    now, job, rates = trial.now[0], trial.job, trial.fleet.hit_rate_per_s
    first, n, d, hidden = now.first, now.n, job.stall_s, job.hidden_write_s
    # What growing throws away: the time since the last durable step, or since the pause began.
    spent = now.t - now.spell
    lost = spent - durable_by(spent, now.s, first, n, d, hidden)[1]
    alive = now.active + now.standby + now.provisioning - trial.fleet.on_demand
    rate = rates[min(alive, rates.shape[0] - 1), now.active - now.steady]
    now_s, then_s = job.step_s[max(1, now.training)], job.step_s[pipelines]
    answer = _wants_growth(job, now.state, now.training, now_s, then_s, lost, spent, rate)
    if now.state == TRAINING:
        now.drain_at = np.inf
        if answer == 2:
            now.drain_at = now.spell + _next_durable(spent, now.s, first, n, d, hidden)
    return answer == 1


@kernel(inline=True)
def _replan(trial: Any, change: Any) -> None:
    """One re-plan for the instant: if an active node was hit, or growth is possible and the rule asks for it."""
    now, job = trial.now[0], trial.job
    if change != HIT and now.standby < job.depth:
        return  # not enough for another pipeline
    pipelines = min(job.max_pipelines, (now.active + now.standby) // job.depth)
    world = pipelines * job.depth
    if change != HIT and world <= now.active:
        return
    if change == CHANGED and not _asks(trial, pipelines):
        return
    now.saved += np.int64(_charge(now, job, trial.out, False))
    now.training = pipelines
    now.standby -= world - now.active
    now.active = world
    now.steady = min(trial.fleet.on_demand, world)
    now.spell, now.goal_at, now.drain_at = now.t, np.inf, np.inf
    if world == 0:
        now.state, now.until = IDLE, np.inf
    elif change == STARTS:
        now.state, now.until = RECONFIGURING, now.t  # a warm start builds its pipelines in no time
    elif now.state == RECONFIGURING:
        trial.out[_RESTARTS] += 1.0
        now.until = (now.until if job.extend else now.t) + job.reconfig_s
    else:
        trial.out[_RECONFIGS] += 1.0
        now.state, now.until = RECONFIGURING, now.t + job.reconfig_s


@kernel(allocates=False)
def _run(trial: Any) -> None:
    """Membership events one by one, training between them in closed form."""
    now, job, out = trial.now[0], trial.job, trial.out
    change = STARTS
    while True:
        if change != NOTHING:
            _replan(trial, change)
        if _advance(trial):
            break
        if now.goal_at <= now.t:
            out[_FINISHED] = 1.0
            break
        elif now.until <= now.t:
            change = _train(trial)
        elif now.drain_at <= now.t:
            change, now.drain_at = GROWS, np.inf
        elif now.next_removal <= now.t:
            change = _remove(trial)
        elif now.next_ready <= now.t:
            change = _ready(trial)
        else:
            change = _add(trial)
    out[_DURABLE] = now.saved + 1
    if now.state == TRAINING:
        out[_DURABLE] += durable_by(
            now.t - now.spell, now.s, now.first, now.n, job.stall_s, job.hidden_write_s
        )[0]
    out[_COMPLETED] = now.saved + 1 + _charge(now, job, out, True)
    out[_END] = now.t


@kernel
def run_trial(job: Any, fleet: Any, streams: Any, out: Any, ready_s: Any, ready_nodes: Any, log: Any) -> Any:
    """One trial into the row `out`; returns the rows written to `log`.

    `ready_s`, `ready_nodes`: the batches in preparation, oldest first.  `log` receives (time, code,
    value) rows: a victim that was active (0), standby (1) or in preparation (2, value its ready time), or an
    addition (3, value the nodes); rows beyond its length are dropped.
    """
    out[:] = 0.0
    state = np.zeros(1, TRIAL)
    now = state[0]
    now.state, now.standby, now.saved = IDLE, fleet.start + fleet.on_demand, job.initial_saved
    now.s, now.first, now.n = 1.0, 1, 1
    now.removal_rate = fleet.removal_per_s * (fleet.cap if fleet.per_node else 1)
    now.add_rate = fleet.add_per_s * (fleet.cap if fleet.per_node else 1)
    now.next_removal = exponential(streams, REMOVAL_TIMES, now.removal_rate)
    now.next_add = exponential(streams, ADD_TIMES, now.add_rate)
    now.removal_gap = exponential(streams, REMOVAL_TIMES, now.removal_rate)
    now.add_gap = exponential(streams, ADD_TIMES, now.add_rate)
    now.next_ready = now.until = now.drain_at = now.goal_at = np.inf
    _run(FleetTrial(job, fleet, streams, out, ready_s, ready_nodes, log, state))
    return now.logged


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
