"""Monte Carlo of one job on a reserved cluster whose nodes fail and are repaired.

A trial goes from failure to failure: between two of them training is the same closed form as in `kernels`, so its cost grows
with failures and repairs, not with steps. Nodes have numbers, since some fail more often and some share a switch. They
stand in one array, those in the job first, then the spares, then those under repair; `place` says where each stands, so that
a change of state is a swap with the node at a border.

What a trial remembers is in `ClusterTrial`, and each kind of event has one function that changes it. These are copied into
`_run`, and none makes an array, so that handing the trial on is free.

Each class of failures draws from three streams of its own (gaps, victims, repairs), one number of each for every failure,
whatever the job does: what fails when does not depend on the job.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.jit import kernel
from forerun.core.kernels.records import record_type
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
from forerun.spot.reserved.tier_kernel import NO_COPY, TIER, copy_from, drop_corrupted, hold, keep, risk, walk

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


TRIAL: Final = record_type(
    "state cause pipelines active spares downs saved restarts warm pausing load_from joined stateless maintenances"
    " goal_is_early soonest corrupt_by corrupt_rank clean_saved first n logged",
    "t spell until goal_at check_at maintain_at join_at wait_s s clean_steps clean_checkpoints taint_s taint_stall_s"
    " taint_node_s taint_stall_node_s",
)
"""Where a trial is; flags are 0 or 1.

state, cause: what the job does, and the class (then growth, maintenance) that made it so. pipelines: that train, or will.
active, spares, downs: nodes in the job, idle, and under repair. saved: the last step kept. restarts: the job starts at
this instant. warm: that takes no time. pausing: replicas that are left pause, instead of a restart. load_from: the tier
to load. joined: pipelines once a replica has joined. stateless: members whose processes died. maintenances: so far.
goal_is_early: `goal_at` is only a bound. soonest: the class that fails next.
corrupt_by, corrupt_rank: the class that corrupted the job, -1 for none, and the most that classes have taken since.
clean_saved: the last step kept that is clean. first, n: steps of this segment to its first checkpoint, and between them.
logged: rows of the log.

t: now. spell: when the state began. until, goal_at, check_at, maintain_at, join_at: the next end of the state, goal, check,
maintenance, replica that joins; inf for none. wait_s: until the job notices what just failed. s: a step of this segment.
clean_steps, clean_checkpoints: of this segment that are clean, with tiers and without. taint_*: without tiers, seconds and
node seconds that seem useful, or stalled for something useful, and are not.
"""


class ClusterTrial(NamedTuple):
    """One trial under way.

    job, cluster: as `JobNumbers` and `ClusterNumbers` say. out, by_class, log: its results, as `run_cluster_trial` says.
    now: TRIAL[1]. order, place: which node stands where, and where each node stands. back_s, back_node: the heap of
    repairs. suspect_repair_s: repairs of nodes that corrupted the job, until a check finds them; -1 for others.
    next_s, mood: of each class of failures. tiers: TIER[tiers + 1], the last for the last clean checkpoint of the job's own
    store. survives: as in the cluster, but for the state of replicas that are left. moved: float64[4], what `keep` takes
    back.
    """

    job: Any
    cluster: Any
    streams: Any
    out: Any
    by_class: Any
    log: Any
    now: Any
    order: Any
    place: Any
    back_s: Any
    back_node: Any
    suspect_repair_s: Any
    next_s: Any
    mood: Any
    tiers: Any
    survives: Any
    moved: Any


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
def _walk(now: Any, cluster: Any, tiers: Any, u: Any, most: Any, clean_steps: Any) -> Any:
    """`tier_kernel.walk` in this segment."""
    first, every = cluster.tier_first_steps[:, now.pipelines], cluster.tier_every_steps[:, now.pipelines]
    return walk(u, most, now.s, first, every, cluster.tier_stall_s, cluster.tier_write_s, clean_steps, tiers)


@kernel
def _left_of_step(now: Any, cluster: Any, tiers: Any) -> Any:
    """Seconds until the step ends that runs now; 0 between two steps."""
    u = now.t - now.spell
    done, _, _ = _walk(now, cluster, tiers, u, np.inf, np.inf)
    _, _, ended = _walk(now, cluster, tiers, np.inf, done, np.inf)
    if u <= ended + ROUNDING_S:
        return 0.0
    _, _, ended = _walk(now, cluster, tiers, np.inf, done + 1.0, np.inf)
    return ended - u


@kernel(inline=True)
def _possible(trial: Any) -> Any:
    """Pipelines for which there are nodes."""
    now, job = trial.now[0], trial.job
    return min(job.max_pipelines, (now.active + now.spares) // job.depth)


@kernel(inline=True)
def _note(trial: Any, code: Any, a: Any, b: Any) -> None:
    """Write one row of the log, if it is not full."""
    now, log = trial.now[0], trial.log
    if now.logged < log.shape[0]:
        i = now.logged
        log[i, 0], log[i, 1], log[i, 2], log[i, 3] = now.t, code, a, b
        now.logged += 1


@kernel
def _take_down(
    now: Any, order: Any, place: Any, back_s: Any, back_node: Any, node: Any, repair_s: Any
) -> Any:
    """A node that is not down yet goes to repair; returns whether the job had it."""
    had = place[node] < now.active
    if had:
        _swap(order, place, place[node], now.active - 1)
        now.active -= 1
        now.spares += 1
    _swap(order, place, place[node], now.active + now.spares - 1)
    now.spares -= 1
    _push(back_s, back_node, now.downs, now.t + repair_s, node)
    now.downs += 1
    return had


@kernel(inline=True)
def _charge_training(trial: Any, by: Any, steps: Any, stall: Any, final: Any) -> None:
    """Charge this segment, of which `steps` and `stall` survive; the rest is lost, or at the end in flight."""
    now, out = trial.now[0], trial.out
    world, useful = now.pipelines * trial.job.depth, steps * now.s
    rest = max(0.0, now.t - now.spell - useful - stall)
    out[_USEFUL] += useful
    out[_USEFUL_N] += useful * world
    out[_STALL] += stall
    out[_STALL_N] += stall * world
    if final:
        out[_INFLIGHT] += rest
        out[_INFLIGHT_N] += rest * world
    else:
        out[_LOST] += rest
        out[_LOST_N] += rest * world
        trial.by_class[by, _LOST_C] += rest


@kernel
def _charge_moved(out: Any, lost_by: Any, moved: Any) -> None:
    """Charge what was kept and is lost after all: useful and stall seconds, and node seconds of both."""
    out[_USEFUL] -= moved[0]
    out[_STALL] -= moved[1]
    out[_LOST] += moved[0] + moved[1]
    out[_USEFUL_N] -= moved[2]
    out[_STALL_N] -= moved[3]
    out[_LOST_N] += moved[2] + moved[3]
    lost_by[_LOST_C] += moved[0] + moved[1]


@kernel
def _charge_stop(now: Any, out: Any, by_class: Any, parts_s: Any) -> None:
    """Charge a state in which the job does not train. A restart that breaks off has had its first parts only."""
    u = now.t - now.spell
    by_class[now.cause, _STOPPED_C] += u
    if now.state == DETECTING:
        out[_DETECTION] += u
    elif now.state == WAITING:
        out[_WAITING] += u
    elif now.state == MAINTAINING:
        out[_MAINTENANCE] += u
    elif now.pausing:  # replicas connect
        out[_RESTART + 2] += u
    else:
        for part in range(3):
            spent = min(u, parts_s[part])
            out[_RESTART + part] += spent
            u -= spent
        out[_RESTART + 3] += u


@kernel(inline=True)
def _soonest(trial: Any) -> Any:
    """The next instant at which something may happen."""
    now = trial.now[0]
    t = min(min(min(now.goal_at, now.until), min(now.check_at, now.maintain_at)), now.join_at)
    if now.downs > 0:
        t = min(t, trial.back_s[0])
    if trial.next_s.size > 0:
        t = min(t, trial.next_s[now.soonest])
    return t


@kernel(inline=True)
def _advance(trial: Any) -> Any:
    """Go to the next instant, and charge the nodes until then; returns whether that is the horizon."""
    now, job, out = trial.now[0], trial.job, trial.out
    before, t = now.t, _soonest(trial)
    if now.goal_is_early and now.goal_at <= t:
        now.goal_is_early = 0
        left = np.float64(job.goal_steps - now.saved - 1)
        now.goal_at = now.spell + _walk(now, trial.cluster, trial.tiers, np.inf, left, now.clean_steps)[2]
        t = _soonest(trial)
    at_end = t > job.horizon_s or (t == job.horizon_s and now.goal_at > t)
    if at_end:
        t = job.horizon_s
    out[_SPARE_N] += now.spares * (t - before)
    out[_REPAIR_N] += (trial.cluster.nodes - now.active - now.spares) * (t - before)
    if now.state == DETECTING:
        out[_DETECTION_N] += now.active * (t - before)
    elif now.state == RESTARTING:
        out[_RESTART_N] += now.active * (t - before)
    elif now.state == MAINTAINING:
        out[_MAINTENANCE_N] += now.active * (t - before)
    now.t = t
    return at_end


@kernel(inline=True)
def _await_join(trial: Any) -> None:
    """A replica begins to copy the state, if there are nodes for one and replicas that join."""
    now, possible = trial.now[0], _possible(trial)
    if trial.cluster.live_rejoin_s >= 0.0 and possible > now.pipelines and now.join_at == np.inf:
        now.join_at, now.joined = now.t + trial.cluster.live_rejoin_s, possible


@kernel(inline=True)
def _end_state(trial: Any) -> None:
    """The state has lasted as long as it had to: a segment of training begins, or a restart."""
    now, job = trial.now[0], trial.job
    _charge_stop(now, trial.out, trial.by_class, trial.cluster.parts_s)
    now.until = np.inf
    if now.state != RESTARTING:
        now.restarts = 1
        return
    now.state, now.spell = TRAINING, now.t
    now.s, now.first = job.step_s[now.pipelines], job.first_steps[now.pipelines]
    now.n = job.spacing_steps[now.pipelines]
    now.clean_checkpoints = 0.0 if now.corrupt_by >= 0 else np.inf
    now.clean_steps = -1.0 if now.corrupt_by >= 0 else np.inf
    left = job.goal_steps - now.saved - 1
    if job.goal_steps >= 0 and trial.survives.size > 1:
        # Not later than this; the walk through all checkpoints waits until no failure comes before it.
        now.goal_at, now.goal_is_early = now.t + left * now.s - ROUNDING_S, 1
    elif job.goal_steps >= 0:
        now.goal_at = now.t + step_end(left, now.s, now.first, now.n, job.stall_s)
    _note(trial, -1 - TRAINING, now.active, now.cause)
    _await_join(trial)


@kernel(inline=True)
def _maintain(trial: Any) -> Any:
    """Maintenance is due; returns what stops the job, -1 for nothing."""
    now, cluster = trial.now[0], trial.cluster
    now.maintenances += 1
    now.maintain_at = cluster.maintenance_every_s * (now.maintenances + 1)
    return -1 if now.state == MAINTAINING else cluster.law.size + 1


@kernel(inline=True)
def _join(trial: Any) -> Any:
    """A replica joins between two steps, if its nodes are still there; returns what stops the job, -1 for nothing."""
    now = trial.now[0]
    left_s = _left_of_step(now, trial.cluster, trial.tiers)
    if left_s > 0.0:
        now.join_at = now.t + left_s
        return -1
    now.join_at = np.inf
    return trial.cluster.law.size if _possible(trial) > now.pipelines else -1


@kernel(inline=True)
def _come_back(trial: Any) -> Any:
    """A node is repaired; returns what stops the job, -1 for nothing."""
    now, cluster = trial.now[0], trial.cluster
    node = _pop(trial.back_s, trial.back_node, now.downs)
    now.downs -= 1
    _swap(trial.order, trial.place, trial.place[node], now.active + now.spares)
    now.spares += 1
    possible = _possible(trial)
    if now.state == WAITING and possible >= cluster.min_pipelines:
        _charge_stop(now, trial.out, trial.by_class, cluster.parts_s)
        now.restarts = 1
    elif trial.job.growth == IMMEDIATE and now.state in (TRAINING, RESTARTING) and possible > now.pipelines:
        return cluster.law.size
    elif now.state == TRAINING:
        _await_join(trial)
    return -1


@kernel(inline=True)
def _fail(trial: Any) -> Any:
    """The class whose turn it is fails; returns what stops the job, -1 for nothing."""
    now, cluster, streams = trial.now[0], trial.cluster, trial.streams
    c = now.soonest
    gap_s = gap(streams, 3 * c, cluster.law, cluster.law_numbers, trial.mood, c, trial.job.horizon_s)
    trial.next_s[c] = now.t + gap_s
    now.soonest = np.argmin(trial.next_s)
    victim, repair_s = _victim(streams, 3 * c + 1, cluster), 0.0
    if cluster.takes[c] == NODES:
        repair_s = _repair(
            streams, 3 * c + 2, cluster.repair_law[c], cluster.repair_a[c], cluster.repair_b[c]
        )
    _note(trial, c, victim, repair_s)
    if cluster.check_s[c] > 0.0:
        _corrupt(trial, c, victim, repair_s)
        return -1
    members = now.active
    hit = _strike(trial, c, victim, repair_s)
    if not hit or now.state in (MAINTAINING, WAITING):
        return -1
    if cluster.live_tolerates > 0:
        gone = members - now.active if cluster.takes[c] == NODES else 1
        now.stateless += cluster.takes[c] == PROCESS
        ready = now.active - now.stateless if cluster.live_rejoin_s >= 0.0 else now.active + now.spares
        enough = min(trial.job.max_pipelines, ready // trial.job.depth) >= cluster.min_pipelines
        trial.survives[0] = 2 if now.pipelines >= 2 and enough and gone <= cluster.live_tolerates else -1
    if trial.survives.size > 1 and now.state != TRAINING:  # it may destroy the copy that the job would load
        _reload(trial, cluster.rank[c], c)
        if now.corrupt_by >= 0 and not trial.tiers[now.load_from].corrupted:  # healed, unseen
            now.corrupt_by, now.check_at = -1, np.inf
            trial.suspect_repair_s[:] = -1.0
    commits = cluster.live_rejoin_s >= 0.0 and trial.survives[0] > 0
    now.wait_s = cluster.detection_s[c]
    if now.state == DETECTING:
        now.until = now.until if commits else min(now.until, now.t + now.wait_s)
        return -1
    if commits and now.state == TRAINING:  # who is left notices at the end of the step, which cannot commit
        now.wait_s = max(now.wait_s, _left_of_step(now, cluster, trial.tiers))
    return c


@kernel(inline=True)
def _strike(trial: Any, c: Any, victim: Any, repair_s: Any) -> Any:
    """A failure that shows takes a process, or the nodes of the victim's group; returns whether the job had one."""
    now, group_nodes = trial.now[0], trial.cluster.group_nodes[c]
    if trial.cluster.takes[c] == PROCESS:
        hit = trial.place[victim] < now.active
        trial.by_class[c, _FAILURES_C] += hit
        return hit
    hit = took = False
    low = victim - victim % group_nodes
    for node in range(low, min(trial.cluster.nodes, low + group_nodes)):
        if trial.place[node] < now.active + now.spares:
            hit |= _take_down(now, trial.order, trial.place, trial.back_s, trial.back_node, node, repair_s)
            took = True
            trial.suspect_repair_s[node] = -1.0
    trial.by_class[c, _FAILURES_C] += took
    return hit


@kernel(inline=True)
def _corrupt(trial: Any, c: Any, victim: Any, repair_s: Any) -> None:
    """A failure that nobody notices before the check."""
    now, check_s = trial.now[0], trial.cluster.check_s[c]
    if now.state != TRAINING or trial.place[victim] >= now.active:
        return
    trial.by_class[c, _FAILURES_C] += 1.0
    if trial.cluster.takes[c] == NODES:
        trial.suspect_repair_s[victim] = repair_s
    if now.corrupt_by < 0:
        u, store = now.t - now.spell, trial.survives.size - 1
        now.corrupt_by, now.clean_saved = c, now.saved
        period_s = now.n * now.s + trial.job.stall_s
        now.clean_checkpoints = max(0.0, np.floor((u - now.first * now.s) / period_s) + 1.0)
        now.check_at, now.corrupt_rank = np.inf, 0
        if store > 0:
            now.clean_steps = _walk(now, trial.cluster, trial.tiers, u, np.inf, np.inf)[0]
            copy_from(trial.tiers, store + 1, store)
    now.corrupt_rank = max(now.corrupt_rank, trial.cluster.rank[c])
    now.check_at = min(now.check_at, check_s * (np.floor(now.t / check_s) + 1.0))


@kernel(inline=True)
def _reload(trial: Any, rank: Any, by: Any) -> None:
    """A failure outside training leaves less to load."""
    now, tiers, moved = trial.now[0], trial.tiers, trial.moved
    now.load_from, _, _ = keep(now.saved, rank, trial.survives, 0, now.s, now.clean_steps, tiers, moved)
    now.saved = tiers[now.load_from].copy_at
    _charge_moved(trial.out, trial.by_class[by], moved)


@kernel(inline=True)
def _stop(trial: Any, stop: Any, checked: Any, at_end: Any) -> None:
    """A class, growth or maintenance ends the state: what of it survives, and what the job does next.

    checked: whether somebody looks for a silent corruption now. at_end: whether the run is over.
    """
    now, job, cluster = trial.now[0], trial.job, trial.cluster
    keep_all, is_tiered = stop > cluster.law.size, trial.survives.size > 1
    if now.state == TRAINING:
        if is_tiered:
            _stop_tiers(trial, stop, checked, keep_all)
        else:
            _stop_store(trial, stop, checked, keep_all)
        if stop < cluster.law.size and not at_end:
            trial.by_class[stop, _INTERRUPTIONS_C] += 1.0
            trial.out[_INTERRUPTIONS] += 1.0
    else:
        _charge_stop(now, trial.out, trial.by_class, cluster.parts_s)
        if checked and is_tiered:
            for i in range(trial.tiers.size):
                trial.tiers[i].durable = 0.0
            if cluster.live_tolerates > 0:
                trial.tiers[0].copy_at = NO_COPY
            drop_corrupted(now.clean_steps, trial.tiers)
            _reload(trial, now.corrupt_rank, stop)
    if checked and not is_tiered:
        moved = trial.moved
        moved[0], moved[1] = now.taint_s, now.taint_stall_s
        moved[2], moved[3] = now.taint_node_s, now.taint_stall_node_s
        _charge_moved(trial.out, trial.by_class[stop], moved)
        now.saved = now.clean_saved
    is_clean = now.saved == now.clean_saved
    if is_tiered:
        is_clean = not trial.tiers[now.load_from].corrupted
    if checked or (now.corrupt_by >= 0 and is_clean):
        _heal(trial, checked)
    was, was_until = now.state, now.until
    now.cause, now.spell, now.until, now.goal_at, now.join_at = stop, now.t, np.inf, np.inf, np.inf
    now.goal_is_early = 0
    if at_end:
        now.state = WAITING  # everything is charged
        return
    if keep_all:  # the job saves itself first
        saving_s = job.stall_s + job.hidden_write_s if was == TRAINING else 0.0
        now.state, now.until = MAINTAINING, now.t + cluster.maintenance_s + saving_s
    elif checked and was in (DETECTING, MAINTAINING):
        now.until = was_until  # the job restarts after it anyway
    elif now.wait_s > 0.0:
        now.state, now.until = DETECTING, now.t + now.wait_s
    else:
        now.restarts = 1
        return
    _note(trial, -1 - now.state, now.active, now.cause)


@kernel(inline=True)
def _stop_store(trial: Any, stop: Any, checked: Any, keep_all: Any) -> None:
    """Training stops, with one tier of checkpoints: what is durable survives, or all, or what a check calls clean."""
    now, d = trial.now[0], trial.job.stall_s
    u, s, first, n = now.t - now.spell, now.s, now.first, now.n
    durable = _durable_checkpoints(u, s, first, n, d, trial.job.hidden_write_s)
    clean = min(durable, now.clean_checkpoints)
    clean_steps = _steps_of(clean, first, n)
    steps, stall = _steps_of(durable, first, n), durable * d
    if keep_all:
        steps, stall = executed_by(u, s, first, n, d)
    if checked:
        steps, stall = clean_steps, clean * d
    _charge_training(trial, stop, steps, stall, False)
    now.saved += np.int64(steps)
    if now.corrupt_by >= 0:
        now.clean_saved += np.int64(clean_steps)
        if not checked:
            world = now.pipelines * trial.job.depth
            tainted_s, tainted_stall_s = (steps - clean_steps) * s, stall - clean * d
            now.taint_s += tainted_s
            now.taint_stall_s += tainted_stall_s
            now.taint_node_s += tainted_s * world
            now.taint_stall_node_s += tainted_stall_s * world


@kernel(inline=True)
def _stop_tiers(trial: Any, stop: Any, checked: Any, keep_all: Any) -> None:
    """Training stops, with several tiers of checkpoints."""
    now, cluster, tiers, moved = trial.now[0], trial.cluster, trial.tiers, trial.moved
    clean, is_live, world = tiers.size - 1, cluster.live_tolerates > 0, now.pipelines * trial.job.depth
    steps, stall, _ = _walk(now, cluster, tiers, now.t - now.spell, np.inf, now.clean_steps)
    if is_live:
        trial.survives[0] = 2 if stop >= cluster.law.size else trial.survives[0]
        hold(tiers, 0, now.saved)  # replicas that train have all that is kept
        tiers[0].durable, tiers[0].stall_s = steps, stall
        if checked:  # and the corruption as well
            tiers[0].copy_at, tiers[0].durable = NO_COPY, 0.0
    if keep_all:  # all is in the job's own store, and the nodes stop
        now.load_from = clean - 1
        for i in range(clean):
            tiers[i].copy_at = NO_COPY
        hold(tiers, now.load_from, now.saved + np.int64(steps))
        if tiers[clean].durable > 0.0:
            hold(tiers, clean, now.saved + np.int64(tiers[clean].durable))
        risk(tiers, clean, (steps - tiers[clean].durable) * now.s, stall - tiers[clean].stall_s, world)
        is_dirty = now.corrupt_by >= 0 and tiers[now.load_from].copy_at > tiers[clean].copy_at
        tiers[now.load_from].corrupted = is_dirty
    else:
        rank = cluster.rank[stop] if stop < cluster.law.size else 0
        if checked:
            rank = now.corrupt_rank
            drop_corrupted(now.clean_steps, tiers)
        now.load_from, steps, stall = keep(
            now.saved, rank, trial.survives, world, now.s, now.clean_steps, tiers, moved
        )
        if is_live:
            tiers[0].corrupted = now.corrupt_by >= 0
        _charge_moved(trial.out, trial.by_class[stop], moved)
        now.saved = tiers[now.load_from].copy_at - np.int64(steps)
    _charge_training(trial, stop, steps, stall, False)
    now.saved += np.int64(steps)


@kernel(inline=True)
def _heal(trial: Any, checked: Any) -> None:
    """A corruption is found, or healed by a rollback that went past it; then nobody looks for the node."""
    now, order, place, suspect_repair_s = trial.now[0], trial.order, trial.place, trial.suspect_repair_s
    for node in range(suspect_repair_s.size):
        if suspect_repair_s[node] >= 0.0:
            if checked and place[node] < now.active + now.spares:
                _take_down(now, order, place, trial.back_s, trial.back_node, node, suspect_repair_s[node])
            suspect_repair_s[node] = -1.0
    now.corrupt_by, now.check_at = -1, np.inf
    now.taint_s = now.taint_stall_s = now.taint_node_s = now.taint_stall_node_s = 0.0


@kernel(inline=True)
def _restart(trial: Any) -> None:
    """A restart on as many pipelines as there are nodes for, or the wait for a repair."""
    now, cluster, depth = trial.now[0], trial.cluster, trial.job.depth
    growth = cluster.law.size
    now.restarts, now.spell, now.goal_at = 0, now.t, np.inf
    now.pausing = cluster.live_tolerates > 0 and now.load_from == 0
    rejoins = now.pausing and cluster.live_rejoin_s >= 0.0
    pipelines = _possible(trial)
    if rejoins:
        # Only who has the state goes on, and who has copied it joins.
        with_state = now.joined if now.cause == growth else (now.active - now.stateless) // depth
        pipelines = min(pipelines, with_state) if with_state >= cluster.min_pipelines else pipelines
    now.stateless = 0
    if pipelines < cluster.min_pipelines:
        pipelines = 0
    now.pipelines = pipelines
    now.spares += now.active - pipelines * depth
    now.active = pipelines * depth
    now.state, now.until = WAITING, np.inf
    if pipelines > 0:
        # The first start builds the pipelines in no time.
        restart_s = cluster.tier_load_s[now.load_from]
        if rejoins and now.cause == growth:
            restart_s = 0.0
        if not now.pausing:
            restart_s += cluster.parts_s[0] + cluster.parts_s[1] + cluster.parts_s[2]
        now.state, now.until = RESTARTING, now.t if now.warm else now.t + restart_s
        trial.out[_RESTARTS] += not now.warm
    now.warm = 0
    _note(trial, -1 - now.state, now.active, now.cause)


@kernel(inline=True)
def _finish(trial: Any) -> None:
    """The run is over: charge what has not been, and count the steps."""
    now, job, out = trial.now[0], trial.job, trial.out
    complete = 0.0
    out[_DURABLE] = now.saved + 1
    if now.state == TRAINING:
        u, s, first, n, d = now.t - now.spell, now.s, now.first, now.n, job.stall_s
        complete, stall = executed_by(u, s, first, n, d)
        further = _steps_of(_durable_checkpoints(u, s, first, n, d, job.hidden_write_s), first, n)
        if trial.survives.size > 1:
            complete, stall, _ = _walk(now, trial.cluster, trial.tiers, u, np.inf, now.clean_steps)
            further = 0.0
            for i in range(trial.tiers.size):
                further = max(further, trial.tiers[i].durable)
        _charge_training(trial, trial.cluster.law.size, complete, stall, True)
        out[_DURABLE] += further
    else:
        _charge_stop(now, out, trial.by_class, trial.cluster.parts_s)
    out[_COMPLETED] = now.saved + 1 + complete
    out[_END] = now.t


@kernel(allocates=False)
def _run(trial: Any) -> None:
    """Handle every event until the goal or the horizon.

    At one instant the goal comes first, then the end of a state, a check, maintenance, a replica that joins, repairs,
    failures.
    """
    now = trial.now[0]
    while True:
        if now.restarts:
            _restart(trial)
        at_end = _advance(trial)
        stop, checked, now.wait_s = -1, False, 0.0
        if at_end or now.goal_at <= now.t:
            if now.corrupt_by < 0:
                trial.out[_FINISHED] = not at_end
                break
            stop, checked = now.corrupt_by, True  # the end is a check as well
        elif now.until <= now.t:
            _end_state(trial)
        elif now.check_at <= now.t:
            stop, checked = now.corrupt_by, True
        elif now.maintain_at <= now.t:
            stop = _maintain(trial)
        elif now.join_at <= now.t:
            stop = _join(trial)
        elif now.downs > 0 and trial.back_s[0] <= now.t:
            stop = _come_back(trial)
        else:
            stop = _fail(trial)
        if stop >= 0:
            _stop(trial, stop, checked, at_end)
            if at_end:
                break
    _finish(trial)


@kernel
def run_cluster_trial(job: Any, cluster: Any, streams: Any, out: Any, by_class: Any, log: Any) -> Any:
    """One trial into `out` and `by_class`; returns the rows written to `log`.

    job: as `kernels.JobNumbers` says. by_class: float64[classes + 2, 4], the last two rows for growth and maintenance. log
    takes (time, class, victim, repair time) of each failure, and (time, -1 - state, nodes in the job, cause) of each state
    entered.
    """
    out[:] = 0.0
    by_class[:, :] = 0.0
    nodes, classes, store = cluster.nodes, cluster.law.size, cluster.tier_stall_s.size - 1
    next_s, mood = np.empty(classes), np.zeros(classes)
    for c in range(classes):
        next_s[c] = first_gap(streams, 3 * c, cluster.law, cluster.law_numbers, mood, c, job.horizon_s)
    tiers, state = np.zeros(store + 2, TIER), np.zeros(1, TRIAL)
    for i in range(store + 2):
        tiers[i].copy_at = job.initial_saved if i == store else NO_COPY
    now = state[0]
    now.state, now.cause, now.spares, now.load_from = WAITING, classes, nodes, store
    now.saved, now.restarts, now.warm, now.corrupt_by = job.initial_saved, 1, 1, -1
    now.s, now.first, now.n = 1.0, 1, 1
    now.until = now.goal_at = now.check_at = now.join_at = now.clean_steps = now.clean_checkpoints = np.inf
    now.maintain_at = cluster.maintenance_every_s if cluster.maintenance_every_s > 0.0 else np.inf
    now.soonest = np.argmin(next_s) if classes > 0 else 0
    _run(
        ClusterTrial(
            job, cluster, streams, out, by_class, log, state, np.arange(nodes), np.arange(nodes), np.empty(nodes),
            np.empty(nodes, np.int64), np.full(nodes, -1.0), next_s, mood, tiers, cluster.tier_survives.copy(), np.zeros(4),
        )
    )  # fmt: skip
    return now.logged


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
