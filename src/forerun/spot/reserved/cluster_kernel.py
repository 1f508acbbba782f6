"""Monte Carlo of one job on a reserved cluster whose nodes fail and are repaired.

A trial goes from failure to failure: between two of them training is the same closed form as in `kernels`, so its cost grows
with failures and repairs, not with steps. Nodes have numbers, since some fail more often and some share a switch. They
stand in one array, those in the job first, then the spares, then those under repair; `place` says where each stands, so that
a change of state is a swap with the node at a border.

Each class of failures draws from three streams of its own (gaps, victims, repairs), one number of each for every failure,
whatever the job does: what fails when does not depend on the job.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.jit import kernel
from forerun.spot.engine.kernels import (
    IMMEDIATE,
    ROUNDING_S,
    executed_by,
    exponential,
    open_streams,
    step_end,
    uniform,
)
from forerun.spot.reserved.arrival_kernel import first_gap, gap, normal
from forerun.spot.reserved.tier_kernel import NO_COPY, drop_corrupted, keep, walk

TRAINING, DETECTING, RESTARTING, WAITING, MAINTAINING = range(5)
PROCESS, NODES = range(2)
CONSTANT, EXPONENTIAL, LOGNORMAL = range(3)

WALL_LINES = (
    "useful",
    "stall",
    "lost",
    "detection",
    "schedule",
    "start",
    "communicator",
    "load",
    "waiting",
    "maintenance",
    "inflight",
)
NODE_LINES = (
    "useful",
    "stall",
    "lost",
    "inflight",
    "detection",
    "restart",
    "maintenance",
    "spare",
    "repair",
)
COLUMNS = (
    *(f"{line}_s" for line in WALL_LINES),
    *(f"{line}_node_s" for line in NODE_LINES),
    "steps_completed",
    "steps_durable",
    "interruptions",
    "restarts",
    "end_s",
    "finished",
)
"""What a trial reports, in this order; all are floats."""
CLASS_COLUMNS = ("failures", "interruptions", "lost_s", "stopped_s")
"""What a trial reports of each class, then of growth and of maintenance: failures that took something, those that stopped
training, seconds of work that they rolled back, and seconds until training went on."""

_USEFUL, _STALL, _LOST, _DETECTION, _RESTART = range(5)
_WAITING, _MAINTENANCE, _INFLIGHT = range(8, 11)
_USEFUL_N, _STALL_N, _LOST_N, _INFLIGHT_N, _DETECTION_N, _RESTART_N, _MAINTENANCE_N, _SPARE_N, _REPAIR_N = (
    range(11, 20)
)
_COMPLETED, _DURABLE, _INTERRUPTIONS, _RESTARTS, _END, _FINISHED = range(20, 26)
_FAILURES_C, _INTERRUPTIONS_C, _LOST_C, _STOPPED_C = range(4)


class ClusterNumbers(NamedTuple):
    """The cluster: times in seconds; arrays have an entry a class of failures.

    nodes: in all, spares included. min_pipelines: fewest with which the job trains.
    law, law_numbers: when failures of the whole cluster come, as `arrival_kernel` says. takes: PROCESS, or NODES.
    group_nodes: how many neighbours a failure takes. detection_s: until the job stops. check_s: 0, or the period of the
    checks that find it.
    repair_law, repair_a, repair_b: CONSTANT with a seconds, EXPONENTIAL with mean a, or LOGNORMAL with mu a and sigma b.
    lemons, others: int64, the nodes that fail more often, and the rest; lemon_share: of failures that lemons have.
    parts_s: float64[4], the restart: schedule, start, communicator, load.
    maintenance_every_s: 0 for none. maintenance_s: its length.
    rank: what each class destroys: 0 processes, 1 a node, 2 several. tier_*: an entry a fast tier of checkpoints, then one
    for the job's own; steps by pipelines. tier_survives: the highest rank that leaves its copy. tier_load_s: of a restart
    from it. live_tolerates: 0, or the first tier is the state of the replicas that are left, after a failure of at most so
    many nodes; tier_load_s is then the whole pause.
    """

    nodes: int
    min_pipelines: int
    law: NDArray[Any]
    law_numbers: NDArray[Any]
    takes: NDArray[Any]
    group_nodes: NDArray[Any]
    detection_s: NDArray[Any]
    check_s: NDArray[Any]
    repair_law: NDArray[Any]
    repair_a: NDArray[Any]
    repair_b: NDArray[Any]
    lemons: NDArray[Any]
    others: NDArray[Any]
    lemon_share: float
    parts_s: NDArray[Any]
    maintenance_every_s: float
    maintenance_s: float
    rank: NDArray[Any]
    tier_first_steps: NDArray[Any]
    tier_every_steps: NDArray[Any]
    tier_stall_s: NDArray[Any]
    tier_write_s: NDArray[Any]
    tier_survives: NDArray[Any]
    tier_load_s: NDArray[Any]
    live_tolerates: int
    live_rejoin_s: float


@kernel
def _repair(streams: Any, purpose: Any, law: Any, a: Any, b: Any) -> Any:
    """Seconds of a repair."""
    if law == CONSTANT:
        return a
    if law == EXPONENTIAL:
        return exponential(streams, purpose, 1.0) * a
    return np.exp(a + b * normal(streams, purpose))


@kernel
def _victim(streams: Any, purpose: Any, cluster: Any) -> Any:
    """The node that fails."""
    draw = uniform(streams, purpose)
    if draw < cluster.lemon_share:
        return cluster.lemons[
            min(cluster.lemons.size - 1, np.int64(draw / cluster.lemon_share * cluster.lemons.size))
        ]
    rest = (draw - cluster.lemon_share) / (1.0 - cluster.lemon_share)
    return cluster.others[min(cluster.others.size - 1, np.int64(rest * cluster.others.size))]


@kernel
def _swap(order: Any, place: Any, i: Any, j: Any) -> Any:
    """Exchange the nodes at two places."""
    a, b = order[i], order[j]
    order[i], order[j] = b, a
    place[a], place[b] = j, i


@kernel
def _sooner(a_s: Any, a_node: Any, b_s: Any, b_node: Any) -> Any:
    """Whether one repair ends before another; nodes of one switch come back together, in the order of their numbers."""
    return a_s < b_s or (a_s == b_s and a_node < b_node)


@kernel
def _push(back_s: Any, back_node: Any, size: Any, t: Any, node: Any) -> Any:
    """Add a repair to the heap: no repair ends before that of its parent, at (i - 1) // 2."""
    i = size
    while i > 0 and _sooner(t, node, back_s[(i - 1) // 2], back_node[(i - 1) // 2]):
        back_s[i], back_node[i] = back_s[(i - 1) // 2], back_node[(i - 1) // 2]
        i = (i - 1) // 2
    back_s[i], back_node[i] = t, node


@kernel
def _pop(back_s: Any, back_node: Any, size: Any) -> Any:
    """Remove the repair that ends first from a heap; returns its node."""
    node, t, last = back_node[0], back_s[size - 1], back_node[size - 1]
    i, size = 0, size - 1
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and _sooner(
            back_s[child + 1], back_node[child + 1], back_s[child], back_node[child]
        ):
            child += 1
        if not _sooner(back_s[child], back_node[child], t, last):
            break
        back_s[i], back_node[i] = back_s[child], back_node[child]
        i = child
    back_s[i], back_node[i] = t, last
    return node


@kernel
def _durable_checkpoints(u: Any, s: Any, first: Any, n: Any, d: Any, hidden: Any) -> Any:
    """How many checkpoints of a segment are durable `u` seconds after its start; s ... as in `kernels.durable_by`."""
    return max(0.0, np.floor((u - first * s - d - hidden + ROUNDING_S) / (n * s + d)) + 1.0)


@kernel
def _steps_of(checkpoints: Any, first: Any, n: Any) -> Any:
    """Steps that so many checkpoints of a segment hold."""
    return first + (checkpoints - 1.0) * n if checkpoints > 0.0 else 0.0


@kernel
def _walk(
    cluster: Any, pipelines: Any, u: Any, most: Any, s: Any, clean_steps: Any, durable: Any, stalls: Any
) -> Any:
    """`tier_kernel.walk` on so many pipelines of a cluster."""
    first, every = cluster.tier_first_steps[:, pipelines], cluster.tier_every_steps[:, pipelines]
    stall_s, write_s = cluster.tier_stall_s, cluster.tier_write_s
    return walk(u, most, s, first, every, stall_s, write_s, clean_steps, durable, stalls)


@kernel
def _left_of_step(u: Any, s: Any, pipelines: Any, cluster: Any, tier_steps: Any, tier_stalls: Any) -> Any:
    """Seconds until the step ends that runs `u` seconds after the start of a segment; 0 between two steps."""
    done, _, _ = _walk(cluster, pipelines, u, np.inf, s, np.inf, tier_steps, tier_stalls)
    _, _, ended = _walk(cluster, pipelines, np.inf, done, s, np.inf, tier_steps, tier_stalls)
    if u <= ended + ROUNDING_S:
        return 0.0
    _, _, ended = _walk(cluster, pipelines, np.inf, done + 1.0, s, np.inf, tier_steps, tier_stalls)
    return ended - u


@kernel
def _note(log: Any, logged: Any, t: Any, code: Any, a: Any, b: Any) -> Any:
    """Write one row of the log, if it is not full."""
    if logged < log.shape[0]:
        log[logged, 0], log[logged, 1], log[logged, 2], log[logged, 3] = t, code, a, b
        return logged + 1
    return logged


@kernel
def _charge_training(
    out: Any, lost_by: Any, world: Any, u: Any, steps: Any, s: Any, stall: Any, final: Any
) -> Any:
    """Charge `u` seconds of training, of which `steps` and `stall` survive; the rest is lost, or at the end in flight."""
    rest = max(0.0, u - steps * s - stall)
    out[_USEFUL] += steps * s
    out[_USEFUL_N] += steps * s * world
    out[_STALL] += stall
    out[_STALL_N] += stall * world
    if final:
        out[_INFLIGHT] += rest
        out[_INFLIGHT_N] += rest * world
    else:
        out[_LOST] += rest
        out[_LOST_N] += rest * world
        lost_by[_LOST_C] += rest


@kernel
def _charge_moved(out: Any, lost_by: Any, moved: Any) -> Any:
    """Charge what was kept and is lost after all: useful and stall seconds, and node seconds of both."""
    out[_USEFUL] -= moved[0]
    out[_STALL] -= moved[1]
    out[_LOST] += moved[0] + moved[1]
    out[_USEFUL_N] -= moved[2]
    out[_STALL_N] -= moved[3]
    out[_LOST_N] += moved[2] + moved[3]
    lost_by[_LOST_C] += moved[0] + moved[1]


@kernel
def _charge_stop(out: Any, stopped_by: Any, state: Any, u: Any, parts_s: Any, pausing: Any) -> Any:
    """Charge `u` seconds in which the job does not train. A restart that breaks off has had its first parts only.

    pausing: replicas that go on have a pause in which they connect, and no restart.
    """
    stopped_by[_STOPPED_C] += u
    if state == DETECTING:
        out[_DETECTION] += u
    elif state == WAITING:
        out[_WAITING] += u
    elif state == MAINTAINING:
        out[_MAINTENANCE] += u
    elif pausing:
        out[_RESTART + 2] += u
    else:
        for part in range(3):
            spent = min(u, parts_s[part])
            out[_RESTART + part] += spent
            u -= spent
        out[_RESTART + 3] += u


@kernel(inline=True)
def _soonest(
    goal_at: Any,
    until: Any,
    check_at: Any,
    maintain_at: Any,
    join_at: Any,
    back_s: Any,
    downs: Any,
    next_s: Any,
    soonest: Any,
) -> Any:
    """The next instant at which something may happen."""
    t = min(min(min(goal_at, until), min(check_at, maintain_at)), join_at)
    if downs > 0:
        t = min(t, back_s[0])
    if next_s.size > 0:
        t = min(t, next_s[soonest])
    return t


@kernel
def run_cluster_trial(job: Any, cluster: Any, streams: Any, out: Any, by_class: Any, log: Any) -> Any:
    """One trial into `out` and `by_class`; returns the rows written to `log`.

    job: as `kernels.JobNumbers` says. by_class: float64[classes + 2, 4], the last two rows for growth and maintenance. log
    takes (time, class, victim, repair time) of each failure, and (time, -1 - state, nodes in the job, cause) of each state
    entered.

    At one instant the goal comes first, then the end of a state, a check, maintenance, a replica that joins, repairs,
    failures.
    """
    out[:] = 0.0
    by_class[:, :] = 0.0
    nodes, depth, classes = cluster.nodes, job.depth, cluster.law.size
    growth, maintenance = classes, classes + 1
    order, place = np.arange(nodes), np.arange(nodes)
    back_s, back_node, downs = np.empty(nodes), np.empty(nodes, np.int64), 0
    suspect_repair_s = np.full(nodes, -1.0)  # of nodes that corrupted the job, until a check finds them
    next_s, mood = np.empty(classes), np.zeros(classes)
    for c in range(classes):
        next_s[c] = first_gap(streams, 3 * c, cluster.law, cluster.law_numbers, mood, c, job.horizon_s)
    tiers = cluster.tier_stall_s.size
    is_tiered = tiers > 1
    # Of each tier, and of the last clean checkpoint of the job's own store.
    tier_steps, tier_stalls, copy_at = np.zeros(tiers + 1), np.zeros(tiers + 1), np.full(tiers + 1, NO_COPY)
    risk, corrupted, moved = np.zeros((tiers + 1, 4)), np.zeros(tiers + 1, np.bool_), np.zeros(4)
    copy_at[tiers - 1] = job.initial_saved
    load_from: Any = tiers - 1
    survives = cluster.tier_survives.copy()
    pausing = False  # a pause of replicas that go on, not a restart
    join_at, joined, stateless = (
        np.inf,
        0,
        0,
    )  # when a replica joins, pipelines with it, and members whose processes died
    s, first, n, d, hidden = 1.0, 1, 1, job.stall_s, job.hidden_write_s
    active, spares = 0, nodes
    pipelines: Any = 0
    state, cause, spell, until, goal_at = WAITING, growth, 0.0, np.inf, np.inf
    saved, logged, rebuild, warm = job.initial_saved, 0, True, True
    # A corrupted job: by which class, the most that classes have taken, and the last step of this segment that is clean.
    corrupt_by, corrupt_rank, clean_steps, check_at = -1, 0, np.inf, np.inf
    # Without tiers: clean checkpoints of this segment, the last clean step, and what seems useful and is not.
    clean_checkpoints = np.inf
    clean_saved: Any = 0
    taint_s, taint_stall_s, taint_node_s, taint_stall_node_s = 0.0, 0.0, 0.0, 0.0
    maintenances = 0
    maintain_at = cluster.maintenance_every_s if cluster.maintenance_every_s > 0.0 else np.inf
    goal_is_early = False  # `goal_at` is a bound
    soonest: Any = np.argmin(next_s) if classes > 0 else 0
    t = 0.0
    while True:
        if not rebuild:
            before = t
            t = _soonest(goal_at, until, check_at, maintain_at, join_at, back_s, downs, next_s, soonest)
            if goal_is_early and goal_at <= t:
                goal_is_early = False
                left = np.float64(job.goal_steps - saved - 1)
                at_goal_s = _walk(cluster, pipelines, np.inf, left, s, clean_steps, tier_steps, tier_stalls)[
                    2
                ]
                goal_at = spell + at_goal_s
                t = _soonest(goal_at, until, check_at, maintain_at, join_at, back_s, downs, next_s, soonest)
            at_end = t > job.horizon_s or (t == job.horizon_s and goal_at > t)
            if at_end:
                t = job.horizon_s
            out[_SPARE_N] += spares * (t - before)
            out[_REPAIR_N] += (nodes - active - spares) * (t - before)
            if state == DETECTING:
                out[_DETECTION_N] += active * (t - before)
            elif state == RESTARTING:
                out[_RESTART_N] += active * (t - before)
            elif state == MAINTAINING:
                out[_MAINTENANCE_N] += active * (t - before)
            at_goal = not at_end and goal_at <= t
            u = t - spell
            stop = -1  # the class, growth or maintenance that ends the state
            keep_all = checked = False
            wait_s = 0.0  # until the job notices

            if corrupt_by >= 0 and (at_end or at_goal):
                checked, stop = True, corrupt_by  # the end is a check as well
            elif at_end or at_goal:
                if at_goal:
                    out[_FINISHED] = 1.0
                break
            elif until <= t:
                _charge_stop(out, by_class[cause], state, u, cluster.parts_s, pausing)
                until = np.inf
                if state == RESTARTING:
                    state, spell = TRAINING, t
                    s, first, n = (
                        job.step_s[pipelines],
                        job.first_steps[pipelines],
                        job.spacing_steps[pipelines],
                    )
                    clean_checkpoints = 0.0 if corrupt_by >= 0 else np.inf
                    clean_steps = -1.0 if corrupt_by >= 0 else np.inf
                    if job.goal_steps >= 0 and is_tiered:
                        # Not later than this; the walk through all checkpoints waits until no failure comes before it.
                        goal_at, goal_is_early = t + (job.goal_steps - saved - 1) * s - ROUNDING_S, True
                    elif job.goal_steps >= 0:
                        goal_at = t + step_end(job.goal_steps - saved - 1, s, first, n, d)
                    logged = _note(log, logged, t, -1 - state, active, cause)
                    possible = min(job.max_pipelines, (active + spares) // depth)
                    if cluster.live_rejoin_s >= 0.0 and possible > pipelines:
                        join_at, joined = t + cluster.live_rejoin_s, possible
                else:
                    rebuild = True
                if not rebuild:
                    continue
            elif check_at <= t:
                checked, stop = True, corrupt_by
            elif maintain_at <= t:
                maintenances += 1
                maintain_at = cluster.maintenance_every_s * (maintenances + 1)
                if state == MAINTAINING:
                    continue
                stop, keep_all = maintenance, True
            elif join_at <= t:
                # It joins between two steps, if its nodes are still there.
                left_s = _left_of_step(u, s, pipelines, cluster, tier_steps, tier_stalls)
                if left_s > 0.0:
                    join_at = t + left_s
                    continue
                join_at = np.inf
                if min(job.max_pipelines, (active + spares) // depth) <= pipelines:
                    continue
                stop = growth
            elif downs > 0 and back_s[0] <= t:
                node = _pop(back_s, back_node, downs)
                downs -= 1
                _swap(order, place, place[node], active + spares)
                spares += 1
                possible = min(job.max_pipelines, (active + spares) // depth)
                if state == WAITING and possible >= cluster.min_pipelines:
                    _charge_stop(out, by_class[cause], state, u, cluster.parts_s, pausing)
                    rebuild = True
                elif job.growth == IMMEDIATE and state in (TRAINING, RESTARTING) and possible > pipelines:
                    stop = growth
                else:
                    if (
                        cluster.live_rejoin_s >= 0.0
                        and state == TRAINING
                        and possible > pipelines
                        and join_at == np.inf
                    ):
                        join_at, joined = t + cluster.live_rejoin_s, possible
                    continue
            else:
                c = soonest
                next_s[c] = t + gap(streams, 3 * c, cluster.law, cluster.law_numbers, mood, c, job.horizon_s)
                soonest = np.argmin(next_s)
                victim = _victim(streams, 3 * c + 1, cluster)
                repair_s = 0.0
                if cluster.takes[c] == NODES:
                    repair_s = _repair(
                        streams, 3 * c + 2, cluster.repair_law[c], cluster.repair_a[c], cluster.repair_b[c]
                    )
                logged = _note(log, logged, t, c, victim, repair_s)
                if cluster.check_s[c] > 0.0:  # nobody notices before the check
                    if state == TRAINING and place[victim] < active:
                        by_class[c, _FAILURES_C] += 1.0
                        if cluster.takes[c] == NODES:
                            suspect_repair_s[victim] = repair_s
                        if corrupt_by < 0:
                            corrupt_by, clean_saved = c, saved
                            clean_checkpoints = max(0.0, np.floor((u - first * s) / (n * s + d)) + 1.0)
                            check_at, corrupt_rank = np.inf, 0
                            if is_tiered:
                                clean_steps, _, _ = _walk(
                                    cluster, pipelines, u, np.inf, s, np.inf, tier_steps, tier_stalls
                                )
                                copy_at[tiers], risk[tiers] = copy_at[tiers - 1], risk[tiers - 1]
                        corrupt_rank = max(corrupt_rank, cluster.rank[c])
                        check_at = min(
                            check_at, cluster.check_s[c] * (np.floor(t / cluster.check_s[c]) + 1.0)
                        )
                    continue
                hit = False
                members = active
                if cluster.takes[c] == PROCESS:
                    hit = place[victim] < active
                    by_class[c, _FAILURES_C] += hit
                else:
                    low = victim - victim % cluster.group_nodes[c]
                    took = False
                    for node in range(low, min(nodes, low + cluster.group_nodes[c])):
                        if place[node] < active:
                            hit = True
                            _swap(order, place, place[node], active - 1)
                            active -= 1
                            spares += 1
                        if place[node] < active + spares:
                            took = True
                            _swap(order, place, place[node], active + spares - 1)
                            spares -= 1
                            _push(back_s, back_node, downs, t + repair_s, node)
                            downs += 1
                            suspect_repair_s[node] = -1.0
                    by_class[c, _FAILURES_C] += took
                if not hit or state in (MAINTAINING, WAITING):
                    continue
                if cluster.live_tolerates > 0:
                    gone = members - active if cluster.takes[c] == NODES else 1
                    stateless += cluster.takes[c] == PROCESS
                    ready = active - stateless if cluster.live_rejoin_s >= 0.0 else active + spares
                    enough = min(job.max_pipelines, ready // depth) >= cluster.min_pipelines
                    survives[0] = 2 if pipelines >= 2 and enough and gone <= cluster.live_tolerates else -1
                if is_tiered and state != TRAINING:  # it may destroy the copy that the job would load
                    load_from, _, _ = keep(
                        saved, cluster.rank[c], survives, False, 0, s, clean_steps, tier_steps, tier_stalls, copy_at,
                        risk, corrupted, moved,
                    )  # fmt: skip
                    saved = copy_at[load_from]
                    _charge_moved(out, by_class[c], moved)
                    if corrupt_by >= 0 and not corrupted[load_from]:  # healed, unseen
                        corrupt_by, check_at = -1, np.inf
                        suspect_repair_s[:] = -1.0
                commits = cluster.live_rejoin_s >= 0.0 and survives[0] > 0
                if state == DETECTING:
                    until = until if commits else min(until, t + cluster.detection_s[c])
                    continue
                stop, wait_s = c, cluster.detection_s[c]
                if (
                    commits and state == TRAINING
                ):  # who is left notices at the end of the step, which cannot commit
                    left_s = _left_of_step(u, s, pipelines, cluster, tier_steps, tier_stalls)
                    wait_s = max(wait_s, left_s)

            if stop >= 0:
                # Close the state: what of it survives, and what that does to a corrupted job.
                if state == TRAINING:
                    world = pipelines * depth
                    durable = _durable_checkpoints(u, s, first, n, d, hidden)
                    clean = min(durable, clean_checkpoints)
                    steps, stall = _steps_of(durable, first, n), durable * d
                    if keep_all:
                        steps, stall = executed_by(u, s, first, n, d)
                    if checked:
                        steps, stall = _steps_of(clean, first, n), clean * d
                    if is_tiered:
                        steps, stall, _ = _walk(
                            cluster, pipelines, u, np.inf, s, clean_steps, tier_steps, tier_stalls
                        )
                        if cluster.live_tolerates > 0:
                            survives[0] = 2 if stop >= classes else survives[0]
                            copy_at[0], tier_steps[0], tier_stalls[0] = saved, steps, stall
                            risk[0, :] = 0.0  # replicas that train have all that is kept
                            if checked:  # and the corruption as well
                                copy_at[0], tier_steps[0] = NO_COPY, 0.0
                        if keep_all:  # all is in the job's own store, and the nodes stop
                            load_from = tiers - 1
                            copy_at[:tiers] = NO_COPY
                            copy_at[load_from] = saved + np.int64(steps)
                            risk[load_from, :] = 0.0
                            if tier_steps[tiers] > 0.0:
                                copy_at[tiers] = saved + np.int64(tier_steps[tiers])
                                risk[tiers, :] = 0.0
                            kept_s, kept_stall_s = (steps - tier_steps[tiers]) * s, stall - tier_stalls[tiers]
                            risk[tiers, 0] += kept_s
                            risk[tiers, 1] += kept_stall_s
                            risk[tiers, 2] += kept_s * world
                            risk[tiers, 3] += kept_stall_s * world
                            corrupted[load_from] = corrupt_by >= 0 and copy_at[load_from] > copy_at[tiers]
                        else:
                            rank = cluster.rank[stop] if stop < classes else 0
                            if checked:
                                rank = corrupt_rank
                                drop_corrupted(clean_steps, tier_steps, tier_stalls, copy_at, risk, corrupted)
                            load_from, steps, stall = keep(
                                saved, rank, survives, True, world, s, clean_steps, tier_steps, tier_stalls, copy_at,
                                risk, corrupted, moved,
                            )  # fmt: skip
                            if cluster.live_tolerates > 0:
                                corrupted[0] = corrupt_by >= 0
                            _charge_moved(out, by_class[stop], moved)
                            saved = copy_at[load_from] - np.int64(steps)
                    _charge_training(out, by_class[stop], world, u, steps, s, stall, False)
                    saved += np.int64(steps)
                    if corrupt_by >= 0 and not is_tiered:
                        clean_saved += np.int64(_steps_of(clean, first, n))
                        if not checked:
                            tainted, tainted_stall = (
                                (steps - _steps_of(clean, first, n)) * s,
                                stall - clean * d,
                            )
                            taint_s += tainted
                            taint_stall_s += tainted_stall
                            taint_node_s += tainted * world
                            taint_stall_node_s += tainted_stall * world
                    if stop < classes and not at_end:
                        by_class[stop, _INTERRUPTIONS_C] += 1.0
                        out[_INTERRUPTIONS] += 1.0
                else:
                    _charge_stop(out, by_class[cause], state, u, cluster.parts_s, pausing)
                    if checked and is_tiered:
                        tier_steps[:] = 0.0
                        if cluster.live_tolerates > 0:
                            copy_at[0] = NO_COPY
                        drop_corrupted(clean_steps, tier_steps, tier_stalls, copy_at, risk, corrupted)
                        load_from, _, _ = keep(
                            saved, corrupt_rank, survives, False, 0, s, clean_steps, tier_steps, tier_stalls, copy_at,
                            risk, corrupted, moved,
                        )  # fmt: skip
                        _charge_moved(out, by_class[stop], moved)
                        saved = copy_at[load_from]
                if checked and not is_tiered:
                    moved[0], moved[1], moved[2], moved[3] = (
                        taint_s,
                        taint_stall_s,
                        taint_node_s,
                        taint_stall_node_s,
                    )
                    _charge_moved(out, by_class[stop], moved)
                    saved = clean_saved
                is_clean = not corrupted[load_from] if is_tiered else saved == clean_saved
                if checked or (corrupt_by >= 0 and is_clean):
                    # Found, or healed by a rollback that went past it; then nobody looks for the node.
                    for node in range(nodes):
                        if suspect_repair_s[node] >= 0.0:
                            if checked and place[node] < active + spares:
                                if place[node] < active:
                                    _swap(order, place, place[node], active - 1)
                                    active -= 1
                                    spares += 1
                                _swap(order, place, place[node], active + spares - 1)
                                spares -= 1
                                _push(back_s, back_node, downs, t + suspect_repair_s[node], node)
                                downs += 1
                            suspect_repair_s[node] = -1.0
                    corrupt_by, check_at = -1, np.inf
                    taint_s, taint_stall_s, taint_node_s, taint_stall_node_s = 0.0, 0.0, 0.0, 0.0
                was, was_until = state, until
                cause, spell, until, goal_at, join_at = stop, t, np.inf, np.inf, np.inf
                goal_is_early = False
                if at_end:
                    state = WAITING  # everything is charged
                    break
                if keep_all:  # maintenance: the job saves itself first
                    state = MAINTAINING
                    until = t + cluster.maintenance_s + (d + hidden if was == TRAINING else 0.0)
                elif checked and was in (DETECTING, MAINTAINING):
                    until = was_until  # the job restarts after it anyway
                elif wait_s > 0.0:
                    state, until = DETECTING, t + wait_s
                else:
                    rebuild = True
                if not rebuild:
                    logged = _note(log, logged, t, -1 - state, active, cause)
                    continue

        # A restart on as many pipelines as there are nodes for, or the wait for a repair.
        rebuild, spell, goal_at = False, t, np.inf
        pausing = cluster.live_tolerates > 0 and load_from == 0
        pipelines = min(job.max_pipelines, (active + spares) // depth)
        if pausing and cluster.live_rejoin_s >= 0.0:
            # Only who has the state goes on, and who has copied it joins.
            with_state = joined if cause == growth else (active - stateless) // depth
            pipelines = min(pipelines, with_state) if with_state >= cluster.min_pipelines else pipelines
        stateless = 0
        if pipelines < cluster.min_pipelines:
            pipelines = 0
        spares += active - pipelines * depth
        active = pipelines * depth
        if pipelines == 0:
            state, until = WAITING, np.inf
        else:
            # The first start builds the pipelines in no time.
            restart_s = cluster.tier_load_s[load_from]
            if pausing and cluster.live_rejoin_s >= 0.0 and cause == growth:
                restart_s = 0.0
            if not pausing:
                restart_s += cluster.parts_s[0] + cluster.parts_s[1] + cluster.parts_s[2]
            state, until = RESTARTING, t if warm else t + restart_s
            out[_RESTARTS] += not warm
        warm = False
        logged = _note(log, logged, t, -1 - state, active, cause)
    u = t - spell
    complete = 0.0
    out[_DURABLE] = saved + 1
    if state == TRAINING:
        complete, stall = executed_by(u, s, first, n, d)
        further = _steps_of(_durable_checkpoints(u, s, first, n, d, hidden), first, n)
        if is_tiered:
            complete, stall, _ = _walk(cluster, pipelines, u, np.inf, s, clean_steps, tier_steps, tier_stalls)
            further = tier_steps.max()
        _charge_training(out, by_class[growth], pipelines * depth, u, complete, s, stall, True)
        out[_DURABLE] += further
    else:
        _charge_stop(out, by_class[cause], state, u, cluster.parts_s, pausing)
    out[_COMPLETED] = saved + 1 + complete
    out[_END] = t
    return logged


@kernel(parallel=True)
def run_cluster_trials(job: Any, cluster: Any, key: Any, first_trial: Any, out: Any, by_class: Any) -> Any:
    """Trials first_trial, first_trial + 1, ... into the rows of `out` and `by_class`, in parallel.

    key: of the seed. out: float64[trials, len(COLUMNS)]. by_class: float64[trials, classes + 2, len(CLASS_COLUMNS)].
    """
    for row in numba.prange(out.shape[0]):
        streams = np.empty(3 * cluster.law.size + 1, np.uint64)
        open_streams(key, first_trial + row, streams)
        run_cluster_trial(job, cluster, streams, out[row], by_class[row], np.empty((0, 4), np.float64))


@kernel
def run_one_cluster_logged(
    job: Any, cluster: Any, key: Any, trial: Any, out: Any, by_class: Any, log: Any
) -> Any:
    """One trial as `run_cluster_trials` runs it, with its log; returns the rows written."""
    streams = np.empty(3 * cluster.law.size + 1, np.uint64)
    open_streams(key, trial, streams)
    return run_cluster_trial(job, cluster, streams, out, by_class, log)
