"""The jobs of one pool as a replay takes them: who can start when, and who is held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import JobLabels, Jobs
from forerun.cluster.inputs.limits import RULE_COLUMNS, LimitRule, RuleColumn, array_rules, resolved
from forerun.cluster.inputs.prepare import rule_of
from forerun.cluster.inputs.reach import reach_of
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.inputs.slurm_conf import node_names
from forerun.site.history import F64, I64, History, Mask, Names
from forerun.site.kernels.overtaking import overtaken
from forerun.site.machine import MOST_NODES, Declared, Pool, System, pool_of

#: jobs that came so much later overtake a waiting one
_PATIENCE_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs of a pool, by submission. Times in seconds from the log's origin.

    Parameters
    ----------
    pool : their GPUs.
    rows : int64[jobs], where they stand in the history.
    submit_s, start_s, end_s : what happened; infinite: it did not. The end of a job that still runs is when it is believed
        to end, of one that did not start when it left the queue.
    run_s : how long each runs, or would.
    eligible_s : from when on it could start.
    setting : the jobs as the engine knows them, their GPUs, and the limits of what runs at once; without their times.
    on_nodes : int64[nodes] by job, on which it was; empty: not known.
    request_s : float64[jobs], what it asks for; the pool's most, or the longest request, where it has none.
    user : int64[jobs], 0: not known.
    doubted_s : when it is first overtaken; infinite: never, or that is in order. From then on no policy is asked about it.
    held_s : from when on it is taken for held; infinite: never, as before `play.with_holds`.
    released_s : when a policy last would have started it while it was held; minus infinity: it was not held.
    begin_s : from when on history is complete.
    """

    pool: Pool
    rows: I64
    submit_s: F64
    start_s: F64
    end_s: F64
    run_s: F64
    eligible_s: F64
    setting: Setting
    on_nodes: tuple[I64, ...]
    request_s: F64
    user: I64
    doubted_s: F64
    held_s: F64
    released_s: F64
    begin_s: float

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def gpus(self) -> I64:
        """int64[jobs], what each asks for."""
        return self.setting.jobs.gpus

    @property
    def asked(self) -> I64:
        """int64[jobs], by what limits admit each: who takes its nodes whole has more."""
        return asked(self.setting.jobs)

    @property
    def windows(self) -> tuple[Window, ...]:
        """Outages."""
        return self.setting.maintenance

    @property
    def wait_s(self) -> F64:
        """float64[jobs]: how long each waited in history."""
        return self.start_s - self.submit_s

    @property
    def extra_s(self) -> float:
        """For how much longer than it runs a job has its GPUs."""
        return self.pool.launch_s + self.pool.turnover_s

    @property
    def held(self) -> Mask:
        """bool[jobs]: whether it was ever seen to be held."""
        return np.isfinite(self.held_s)

    @property
    def since_s(self) -> F64:
        """float64[jobs]: from when on its wait gives it priority: it gathers none before it is eligible, or while held."""
        return np.maximum(np.maximum(self.eligible_s, self.submit_s), self.released_s)

    @property
    def started(self) -> Mask:
        """bool[jobs]: whether it started in history."""
        return np.isfinite(self.start_s)

    @property
    def users(self) -> int:
        """How many users there are, that of unknown ones included."""
        return int(self.user.max(initial=0)) + 1


def case_of(log: History, system: System, number: int) -> Case:
    """The jobs of one pool.

    Parameters
    ----------
    log : the history.
    system : the machine; of one that is declared with the jobs that did not start, which stand in the way of others.
    number : of the pool.
    """
    pool = system.pools[number]
    if isinstance(system, Declared):
        at = system.rows(log)
        rows = np.flatnonzero((at >= 0) & (log.started | np.isfinite(log.eligible_s)))
        mine, base = log.of(rows), system.inputs.setting
        asks = np.where(np.isnan(mine.requested_s), 0.0, mine.requested_s).astype(np.int64)
        jobs = base.jobs.take(at[rows])
        jobs = replace(jobs, gpus=mine.gpus, requested_s=np.where(asks > 0, asks, jobs.requested_s))
        limits = None if base.limits is None else base.limits.of(at[rows])
        setting, names = replace(base, jobs=jobs, limits=limits), system.inputs.known.nodes
        request_s = np.maximum(jobs.request_s, 1.0)
    else:
        stand = log.started | (np.isfinite(log.eligible_s) if pool.parts else False)
        rows = np.flatnonzero((pool_of(log, system.pools) == number) & stand)
        mine, setting = log.of(rows), setting_of(log.of(rows), pool, system)
        if not (fits := runnable(setting)).all():
            rows, mine = rows[fits], mine.of(fits)
            setting = setting_of(mine, pool, system)
        request_s, names = mine.request_s(pool.most_s), pool.names
    believed_s = np.maximum(mine.start_s + request_s, log.last_s + 1.0)
    never_s = np.full(len(rows), np.inf)
    start_s = np.where(mine.started, mine.start_s, np.inf)
    end_s = np.where(np.isnan(mine.end_s), np.where(mine.started, believed_s, np.inf), mine.end_s)
    left = ~mine.started & np.isfinite(mine.end_s)  # who starts after all ends at once
    run_s = np.where(mine.started, end_s - mine.start_s, np.where(left, 1.0, request_s))
    eligible_s = np.where(np.isnan(mine.eligible_s), mine.submit_s, mine.eligible_s)
    # a known order lets later jobs overtake
    known = system.order is not None or isinstance(system, Declared)
    doubts = system.held_after_s and not known
    doubted_s = overtakings(mine, request_s, _PATIENCE_S)[0] if doubts else never_s
    return Case(
        pool=pool,
        rows=rows,
        submit_s=mine.submit_s,
        start_s=start_s,
        end_s=end_s,
        run_s=run_s,
        eligible_s=eligible_s,
        setting=setting,
        on_nodes=numbered(mine.on_nodes, names),
        request_s=request_s,
        user=mine.user.codes + 1,
        doubted_s=doubted_s,
        held_s=never_s,
        released_s=-never_s,
        begin_s=log.complete_from_s,
    )


def held_of(cases: Sequence[Case]) -> tuple[int, int, float]:
    """How many jobs came since their cases begin and started, how many of them had holds, and the share of their waits."""
    mine = [(case, (case.submit_s >= case.begin_s) & case.started) for case in cases]
    held = [(case, rows & case.held) for case, rows in mine]
    jobs, few = (sum(int(rows.sum()) for _, rows in some) for some in (mine, held))
    wait_s, theirs_s = (sum(float(case.wait_s[rows].sum()) for case, rows in some) for some in (mine, held))
    return jobs, few, theirs_s / max(wait_s, 1.0)


def runnable(setting: Setting) -> Mask:
    """bool[jobs]: those that could run on an empty machine, by their partitions, GPU types, shapes and limits."""
    reach, size = reach_of(setting.jobs, setting.cluster), setting.cluster.node_gpus()
    shapes, of = np.unique(np.stack([reach.kind, reach.count, reach.each]), axis=1, return_inverse=True)
    fits = np.array(
        [
            np.count_nonzero(reach.nodes[kind] & (size >= each)) >= count
            for kind, count, each in shapes.T.tolist()
        ],
        np.bool_,
    )[of]
    if setting.limits is not None:
        fits[list(setting.limits.forbidding(setting.jobs))] = False
    return fits


def setting_of(log: History, pool: Pool, system: System) -> Setting:
    """The jobs of a pool as the engine knows them, with the limits of what runs at once, and outages.

    A job on more of a node's GPUs than there are spreads over more nodes.

    Parameters
    ----------
    log : its jobs.
    pool, system : the pool, and its machine.
    """
    cluster, jobs = pool.cluster, log.table().jobs
    wide = log.nodes * cluster.gpus_per_node >= log.gpus
    shaped = log.unit == "GPUs"
    labels = replace(
        jobs.labels or JobLabels.of(len(log)),
        partition=log.partition.texts if cluster.partitions else ("",) * len(log),
        nodes=np.where(wide & shaped, log.nodes, 0),
        gpu_type=log.gpu_type.texts if len(set(cluster.node_types())) > 1 else ("",) * len(log),
        exclusive=log.exclusive & shaped,
    )
    jobs = replace(jobs, user=log.user.texts, labels=labels)
    rules = [*array_rules(log.array.names), *(rule_of(at, one) for at, one in enumerate(system.limits))]
    if pool.running_per_user and log.user.known:
        known = frozenset(log.user.names)
        rules.append(LimitRule("running jobs", {"user": known}, ("user",), jobs=pool.running_per_user))
    types = tuple(dict.fromkeys(cluster.node_types()))
    columns: dict[RuleColumn, tuple[str, ...]] = {name: getattr(log, name).texts for name in RULE_COLUMNS}
    limits = resolved(rules, {}, columns, types) if rules else None
    if limits is not None:
        limits = replace(limits, asks=asked(jobs))
    windows = tuple(window.window(pool, log.origin_s) for window in system.windows)
    return Setting(jobs, cluster, None, 60, maintenance=windows, limits=limits, origin_s=log.origin_s)


def asked(jobs: Jobs) -> I64:
    """int64[jobs], by what limits admit each: who takes its nodes whole may have more."""
    labels = jobs.labels
    return (
        jobs.gpus
        if labels is None
        else np.where(labels.asked_gpus > 0, labels.asked_gpus, jobs.gpus).astype(np.int64)
    )


def numbered(on_nodes: Names, names: Sequence[str]) -> tuple[I64, ...]:
    """The numbers of the nodes that jobs had; none where one is not known.

    Parameters
    ----------
    on_nodes : as a log lists them.
    names : of the nodes, in order.
    """
    number = {name: at for at, name in enumerate(names)}
    none = np.zeros(0, np.int64)
    lists = [
        [number.get(name, -1) for name in node_names(text, MOST_NODES)] if number else []
        for text in on_nodes.names
    ]
    known = [np.array(one, np.int64) if min(one, default=-1) >= 0 else none for one in lists]
    return tuple(known[code] if code >= 0 else none for code in on_nodes.codes.tolist())


def overtakings(
    jobs: History, request_s: F64, patience_s: float, since_s: float = -np.inf
) -> tuple[F64, I64]:
    """When each job was first overtaken while it waited, infinite: never; and how many times.

    Parameters
    ----------
    jobs : all of a pool.
    request_s : what they ask for.
    patience_s : only jobs that came so much later overtake it.
    since_s : from when on starts are looked at (default: all are).
    """
    first_s, times = np.full(len(jobs), np.inf), np.zeros(len(jobs), np.int64)
    began = np.flatnonzero(jobs.start_s > since_s)
    began = began[np.argsort(jobs.start_s[began], kind="stable")]
    gone_s = np.where(jobs.started, jobs.start_s, jobs.end_s)
    overtaken(jobs.submit_s, gone_s, jobs.gpus, request_s, began, patience_s, first_s, times)
    return first_s, times
