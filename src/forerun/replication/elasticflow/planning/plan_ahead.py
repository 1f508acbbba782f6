"""Schedules that plan the future of every job: the compiled state and the steps that they share.

Each adds a clock, and how it admits, plans and starts jobs. What schedules differ in
beyond that (which levels a job may use, what changes cost, where jobs go that no set of nodes fits, which groups are known)
are small methods and attributes of `PlanAheadRules`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import Column, Progress, Step, WholeSecondRules, longer, whole_s
from forerun.cluster.inputs.arrays import BOOL, F64, I64, NEVER_S, NO_DEADLINE_S, ThroughputTable
from forerun.cluster.inputs.costs import CostTable
from forerun.cluster.inputs.setting import Setting
from forerun.core.errors import Problem, ProfileError, ScenarioError, TraceError
from forerun.replication.elasticflow.kernels import plan_state as mk
from forerun.replication.elasticflow.kernels.planner import Grid
from forerun.replication.elasticflow.planning.seats import SeatsTogether


def least_levels(profile: ThroughputTable) -> I64:
    """The first level with throughput, per kind."""
    levels: I64 = np.argmax(np.nan_to_num(profile.rate, nan=0.0) > 0, axis=1).astype(np.int64)
    return levels


def fastest_levels(profile: ThroughputTable) -> I64:
    """How many levels to use so that the last is the one of greatest throughput, per kind (the least of equals)."""
    levels: I64 = np.argmax(np.nan_to_num(profile.rate, nan=-1.0), axis=1).astype(np.int64) + 1
    return levels


def working_levels(profile: ThroughputTable) -> I64:
    """How many levels to use so that all from the first with throughput on have some, per kind.

    A schedule never scales a job across a hole or a 0.
    """
    works = np.nan_to_num(profile.rate, nan=0.0) > 0
    works |= np.arange(works.shape[1]) < least_levels(profile)[:, None]
    levels: I64 = np.where(works.all(axis=1), works.shape[1], np.argmin(works, axis=1)).astype(np.int64)
    return levels


def build_state(setting: Setting, profile: ThroughputTable, top: I64) -> mk.PlanState:
    """The state at the start of a run.

    Parameters
    ----------
    setting : what is run.
    profile : its throughput.
    top : int64[jobs], how many levels each job may use.
    """
    jobs, total = setting.jobs, setting.cluster.gpus
    count, nodes = len(jobs), setting.cluster.nodes
    levels = profile.levels
    floor_level = np.searchsorted(levels, np.arange(total + 1), side="right").astype(np.int64) - 1
    slots, keys = 64, 160
    meta = np.zeros(16, np.int64)
    meta[mk.FREE_NODES] = nodes

    def zeros(size: int) -> I64:
        return np.zeros(size, np.int64)

    columns = np.full((mk.COLUMNS, count), -1, np.int64)
    columns[mk.SUBMIT] = jobs.submit_s
    columns[mk.DEADLINE] = jobs.deadline_s
    columns[mk.SLO] = jobs.deadline_s < NO_DEADLINE_S
    columns[mk.KIND] = jobs.kind
    columns[mk.TOP] = top
    columns[[mk.GPUS, mk.CHARGED, mk.STATE, mk.LAST_GPUS, mk.HIT]] = 0
    return mk.PlanState(
        j=columns,
        left=jobs.iterations.astype(np.float64),
        useful=np.zeros(count),
        # a column-wise table would have every kernel compiled once more
        rate=np.ascontiguousarray(np.nan_to_num(profile.rate, nan=0.0)),
        meta=meta,
        lists=np.zeros((4, 2 * count), np.int64),
        wakes=zeros(4 * count + 1024),
        free_slots=np.concatenate(([slots], np.arange(slots))).astype(np.int64),
        plans=np.zeros((2, slots, keys), np.int64),
        plan_n=zeros(slots),
        free=np.zeros((2, 2 * keys), np.int64),
        levels=levels.copy(),
        floor_level=floor_level,
    )


def sort_by(rows: I64, keys: I64) -> None:
    """Sort a list of rows in place by their keys, one a row, least first; equals keep their order."""
    rows[:] = rows[np.argsort(keys, kind="stable")]


def build_places(setting: Setting, machine: mk.PlanState) -> mk.Places:
    """The empty nodes at the start of a run."""
    nodes, gpus_per_node = setting.cluster.nodes, setting.cluster.gpus_per_node
    classes = len(mk.CLASSES)
    sets = np.zeros((5, nodes + 1), np.int64)
    sets[mk.CLASS] = -1
    return mk.Places(
        j=machine.j,
        meta=machine.meta,
        node_turn=np.concatenate([np.arange(group.count) for group in setting.cluster.groups]).astype(
            np.int64
        ),
        free_nodes=np.arange(nodes, dtype=np.int64),
        node_set=np.full(nodes, -1, np.int64),
        sets=sets,
        set_nodes=np.zeros(nodes + 1, np.int64),
        set_jobs=np.zeros((nodes + 1, gpus_per_node + 1), np.int64),
        class_sets=np.zeros((classes, nodes + 1), np.int64),
        class_n=np.zeros(classes, np.int64),
        known=np.zeros((setting.cluster.gpus, len(machine.levels)), np.bool_),
    )


def require_plannable(setting: Setting) -> ThroughputTable:
    """The profile of a setting that these schedules can run.

    Raises ScenarioError, TraceError or ProfileError with everything that stands against it.
    """
    if setting.profile is None:
        raise ProfileError.at(
            "profile", "elastic schedules need throughput: give a table or the analytic profile"
        )
    if not setting.cluster.is_uniform:
        raise ScenarioError.at("cluster", "the published schedules know one kind of node; these nodes differ")
    jobs = setting.jobs
    unfit = {
        "has no model with throughput, which elastic schedules need": jobs.kind < 0,
        "has no iterations, which elastic schedules need": (jobs.kind >= 0) & (jobs.iterations < 1),
    }
    problems = [
        Problem(f"job {jobs.id[row]}", what)
        for what, where in unfit.items()
        for row in np.flatnonzero(where)[:20].tolist()
    ]
    if problems:
        raise TraceError(*problems)
    rate = np.nan_to_num(setting.profile.rate, nan=0.0)
    for kind in np.unique(jobs.kind):
        if not (rate[kind] > 0).any():
            model, batch = setting.profile.kinds[kind]
            problems.append(Problem(f"{model} at batch {batch}", "has no throughput on any GPU count"))
    if problems:
        raise ProfileError(*problems)
    return setting.profile


#: jobs in the cluster above which no change is sought that would admit a refused job: each trial plans all jobs anew
MOST_TRIED: Final = 40


def least_that(admits: Callable[[int], bool], step: int, most: int) -> int:
    """The least amount that admits, to a step, by doubling and halving; 0 if none does.

    Parameters
    ----------
    admits : whether an amount would do; what does, does at any larger amount.
    step : of the amounts that are tried.
    most : the largest of them.
    """
    low, high = 0, step
    while not admits(high):
        low, high = high, 2 * high
        if high > most:
            return 0
    while high - low > step:
        middle = low + (high - low) // (2 * step) * step
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high


class PlanAheadRules(WholeSecondRules):
    """What schedules that plan ahead have in common. A subclass adds a clock, and how jobs are admitted and planned.

    Parameters
    ----------
    setting : what is run.
    record : written: what happens.

    Attributes
    ----------
    m, places : the kernels' state: jobs, events and plans; jobs on nodes.
    now_s, elapsed_s : the present instant, and the seconds since the last one.
    held : jobs that had GPUs at the last event.
    groups : communication groups met, where they are known by their real GPUs.
    owner : the job on each GPU where jobs are placed by count; empty: the buddy placement's sets say it.
    spread_gpus, placed_s : GPUs of jobs on more nodes than they need, since the last placement.
    table : costs of changes of GPUs, where a table says them; None: the published formula.
    """

    order = (Step.ADVANCE, Step.FINISH, Step.ARRIVE, Step.DECIDE, Step.CHARGE)

    scales_in_slots = True

    #: an instant on the grid of slots; below 0: the moment of planning
    anchor_s = 0

    def __init__(self, setting: Setting, record: Record) -> None:
        self.setting, self.record = setting, record
        self.profile = require_plannable(setting)
        top = self.levels(self.profile)
        works = working_levels(self.profile)
        for kind in np.unique(setting.jobs.kind[top > works[setting.jobs.kind]]).tolist():
            model, batch = self.profile.kinds[kind]
            counts = self.profile.levels
            record.notes.append(
                f"{model} batch {batch}: no throughput on {counts[works[kind]]} GPUs; elastic plans use at most "
                f"{counts[works[kind] - 1]}"
            )
        # who must have more than the limit that a schedule has for all may have it
        top = np.clip(top, least_levels(self.profile)[setting.jobs.kind] + 1, works[setting.jobs.kind])
        self.m = build_state(setting, self.profile, top)
        self.places = build_places(setting, self.m)
        first_s = int(setting.jobs.submit_s[0])
        self.now_s = first_s if first_s < NEVER_S else 0
        self.elapsed_s = 0
        self.started = False
        self.held: I64 = np.zeros(0, np.int64)
        self.gpus_per_node = setting.cluster.gpus_per_node
        self.groups: set[tuple[int, ...]] = set()
        #: the job on each GPU where jobs are placed by count; empty: the buddy placement's sets say it
        self.owner: I64 = np.zeros(0, np.int64)
        #: GPUs of jobs on more nodes than they need, since the last placement
        self.spread_gpus = 0
        self.placed_s = self.now_s
        self.table = self.charges()
        #: which GPUs jobs have, where they keep them; None: everybody is placed afresh at every event
        self.seats = SeatsTogether(setting.cluster.node_gpus()) if setting.placement_kept else None
        #: jobs that were moved by the present placement
        self.moved: frozenset[int] = frozenset()
        #: the cluster's size by which the formula charges for restarts
        self.charged_gpus = setting.cluster.gpus
        #: while nodes are down: jobs that cannot run on the rest, and such of them as are still to be admitted
        self.parked: list[int] = []
        self.kept_out: list[int] = []
        self.returned: list[int] = []

    def levels(self, profile: ThroughputTable) -> I64:
        """How many levels of the profile each job may use: up to the count of greatest throughput."""
        return fastest_levels(profile)[self.setting.jobs.kind]

    def charges(self) -> CostTable | None:
        """What changes of GPUs cost: a table, where the scenario has one; None: a formula."""
        return self.setting.costs

    @property
    def arrivals(self) -> Sequence[int]:
        """The rows submitted at this instant, and those of before that could not run on the nodes there were."""
        fresh = range(int(self.m.meta[mk.FIRST]), int(self.m.meta[mk.ARRIVED]))
        if self.seen is None:
            return fresh
        return [row for row in (*self.returned, *fresh) if self.least_gpus(row) <= self.capacity]

    @property
    def capacity(self) -> int:
        """GPUs of the nodes that offer theirs."""
        return len(self.m.floor_level) - 1

    def least_gpus(self, row: int) -> int:
        """The least number of GPUs that a job can run on."""
        return int(self.m.levels[int(np.argmax(self.m.rate[self.m.j[mk.KIND, row]] > 0))])

    def grid(self, now_s: int) -> Grid:
        """The slots to which plans made now round the ends of jobs."""
        return Grid(now_s, self.setting.slot_s, self.anchor_s)

    @property
    def runnable_count(self) -> int:
        """Jobs that wait or run."""
        return int(self.m.meta[mk.RUNNABLE])

    def runnable(self) -> I64:
        """Jobs that wait or run, in the schedule's own order."""
        return self.m.lists[mk.RUNNABLE, : self.m.meta[mk.RUNNABLE]]

    def best_end_s(self, row: int, now_s: int) -> float:
        """When a job would end if it had its best count from now on."""
        rates = self.m.rate[self.m.j[mk.KIND, row], : self.m.j[mk.TOP, row]]
        return float(now_s + self.m.left[row] / rates.max())

    def too_slow(self, row: int, now_s: int) -> str:
        """The reason to refuse a job that cannot meet its deadline even alone; empty if it can."""
        over_s = self.best_end_s(row, now_s) - int(self.m.j[mk.DEADLINE, row])
        if over_s <= 0:
            return ""
        return f"own speed: alone at its best count it would end {over_s:.0f} s after its deadline"

    def work(self) -> F64:
        """Iterations."""
        return self.setting.jobs.iterations.astype(np.float64)

    def pace(self, gpus: I64, now_s: float) -> tuple[F64, F64]:
        """Jobs work at their throughput, once the restarts are over that they were charged for."""
        m, holds = self.m, gpus > 0
        counts = np.minimum(gpus, len(m.floor_level) - 1)
        rate = np.where(holds, m.rate[m.j[mk.KIND], m.floor_level[counts]], 0.0)
        return rate, np.where(holds, self.owed_s(), 0.0)

    def faults(self) -> Sequence[str]:
        """Sets of nodes are disjoint, and none holds more than it has."""
        m, found, nodes = self.places, [], list[int]()
        for which in np.unique(m.node_set[m.node_set >= 0]).tolist():
            first, cap = int(m.sets[mk.FIRST_NODE, which]), int(m.sets[mk.CAP, which])
            used = int(m.sets[mk.USED, which])
            if not 0 <= used <= cap:
                found.append(f"{used} of {cap} GPUs of a set are used")
            if m.j[mk.GPUS, m.set_jobs[which, : m.sets[mk.JOBS_IN, which]]].sum() != used:
                found.append("a set's jobs hold other GPUs")
            nodes += m.set_nodes[first : first + cap // self.gpus_per_node].tolist()
        return [*found, *(["a node is in two sets"] if len(nodes) > len(set(nodes)) else [])]

    @abstractmethod
    def owed_s(self) -> F64:
        """What is left of the restart of each job."""

    @abstractmethod
    def wake_at(self, time_s: int) -> None:
        """Ask for an instant, which may be postponed to the next at which anything may happen."""

    def slots(self, gpus: Mapping[int, int]) -> Mapping[int, tuple[int, ...]] | None:
        """Those that jobs keep."""
        if self.seats is None:
            return None
        return {row: tuple(self.seats.of[row].tolist()) for row in gpus}

    def planned_end_s(self, row: int) -> float | None:
        """The end by the plan last made."""
        end_s = int(self.m.j[mk.PLANNED, row])
        return float(end_s) if end_s >= 0 else None

    def act(self, now_s: float, seen: Progress) -> None:
        """Take the steps of an instant over real jobs; who came and can never run is refused."""
        for row in [row for row in self.parked if self.least_gpus(row) <= self.capacity]:
            self.parked.remove(row)
            self._return_to_lists(row)
        super().act(now_s, seen)
        came = range(int(self.m.meta[mk.FIRST]), int(self.m.meta[mk.ARRIVED]))
        self.returned = []
        for row in came:
            if (least := self.least_gpus(row)) > self.setting.cluster.gpus:
                self.refuse(row, f"needs {least} GPUs; the cluster has {self.setting.cluster.gpus}")
            elif least > self.capacity:
                self.kept_out.append(row)

    def columns(self) -> list[Column]:
        """The machine's columns."""
        return [self.m.j, self.m.left, self.m.useful]

    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs."""
        self._use(setting)
        m, count = self.m, len(setting.jobs)
        j = longer(m.j, count)
        j[mk.SUBMIT, m.j.shape[1] :] = mk.FAR
        self.m = m._replace(
            j=j,
            left=longer(m.left, count),
            useful=longer(m.useful, count),
            lists=longer(m.lists, 2 * count),
            wakes=longer(m.wakes, 4 * count + 1024),
        )
        self.places = self.places._replace(j=j)

    def take_in(self, row: int, alone: Self, setting: Setting) -> None:
        """A job takes a spare row; its submission is an event."""
        super().take_in(row, alone, setting)
        self._use(setting)

    def _use(self, setting: Setting) -> None:
        self.setting = setting
        if self.table is not None:
            self.table = setting.costs

    def cancel(self, row: int, now_s: float) -> None:
        """A job is taken back: it leaves at the next instant, which is soon, and counts for no deadline."""
        self.m.meta[mk.ACCEPTED] -= self.m.j[mk.STATE, row] == mk.HOLDING and self.m.j[mk.SLO, row] == 1
        self.m.j[mk.SLO, row] = 0
        if row in self.parked:
            self._return_to_lists(row)
            self.parked.remove(row)
        self.ended(row, now_s)

    def resize(self, setting: Setting, up: BOOL, lost: Sequence[int], now_s: float) -> None:
        """Other nodes offer GPUs from now on: plans are made for as many, and jobs that cannot run on so few wait apart."""
        self._use(setting)
        m, gpus = self.m, int(setting.cluster.node_gpus()[up].sum())
        counts = np.arange(gpus + 1)
        self.m = m = m._replace(
            floor_level=np.searchsorted(m.levels, counts, side="right").astype(np.int64) - 1
        )
        apart = [row for row in self.runnable().tolist() if self.least_gpus(row) > gpus]
        for row in (*lost, *apart):
            self.release(np.array([row], np.int64))
            m.j[mk.GPUS, row], m.j[mk.LEVEL, row], m.j[mk.LAST_GPUS, row] = 0, -1, 0
        if self.seats is not None:
            self.seats.offer(setting.cluster.node_gpus(), up, lost)
        more = setting.cluster.gpus - len(self.places.known)
        if more > 0:
            self.places = self.places._replace(known=np.pad(self.places.known, ((0, more), (0, 0))))
        for row in apart:
            for which in (mk.RUNNABLE, mk.PENDING, mk.RUNNING):
                self.drop(which, row)
            self.give_slot(row)
            self.parked.append(row)
        self.returned += [row for row in self.kept_out if self.least_gpus(row) <= gpus]
        self.kept_out = [row for row in self.kept_out if self.least_gpus(row) > gpus]
        self.wake_at(max(whole_s(now_s), self.now_s))

    def _return_to_lists(self, row: int) -> None:
        m = self.m
        for which in (mk.RUNNABLE, mk.RUNNING if m.j[mk.STATE, row] == mk.HOLDING else mk.PENDING):
            m.lists[which, m.meta[which]] = row
            m.meta[which] += 1

    def enlarge(self, new_slots: int, new_keys: int) -> None:
        """Enlarge the tables of plans to this many jobs and instants."""
        m = self.m
        _, slots, keys = m.plans.shape
        more, spare = new_slots - slots, int(m.free_slots[0])
        unused = np.zeros(slots - spare, np.int64)
        stack = (m.free_slots[1 : spare + 1], np.arange(slots, new_slots), unused)
        self.m = m._replace(
            plans=np.pad(m.plans, ((0, 0), (0, more), (0, new_keys - keys))),
            plan_n=np.pad(m.plan_n, (0, more)),
            free_slots=np.concatenate(([spare + more], *stack)),
            free=np.pad(m.free, ((0, 0), (0, 2 * new_keys - m.free.shape[1]))),
        )

    def judged_end_s(self, row: int) -> int:
        """The end by which a job is late: the one that it really had."""
        return int(self.m.j[mk.END, row])

    def leave(self, now_s: int) -> None:
        """Jobs whose end event this is leave and are written down."""
        m = self.m
        for row in m.lists[mk.ENDING, : m.meta[mk.ENDS]].tolist():
            if self.seen is None and m.j[mk.SET_OF, row] < 0:
                continue
            for which in (
                (mk.RUNNABLE, mk.RUNNING) if self.seen is None else (mk.RUNNABLE, mk.RUNNING, mk.PENDING)
            ):
                self.drop(which, row)
            self.release(np.array([row], np.int64))
            m.j[mk.STATE, row] = mk.GONE
            m.j[mk.EVENT_AT, row] = -1
            self.give_slot(row)
            end_s, planned_s = int(m.j[mk.END, row]), int(m.j[mk.PLANNED, row])
            late = bool(m.j[mk.SLO, row]) and self.judged_end_s(row) > m.j[mk.DEADLINE, row]
            m.meta[mk.ACCEPTED] -= late
            m.meta[mk.FINISHED] += 1
            if planned_s >= 0:
                self.record.real_end_s[row] = planned_s
            self.record.useful_gpu_s[row] = m.useful[row]
            self.record.finish(row, end_s, declined=late, log_time_s=now_s)

    def drop(self, which: int, row: int) -> None:
        """Take a job out of a list of the machine, keeping its order."""
        rows = self.m.lists[which, : self.m.meta[which]]
        left = rows[rows != row]
        rows[: len(left)] = left
        self.m.meta[which] = len(left)

    def give_slot(self, row: int) -> None:
        """Take a job's plan row back."""
        m = self.m
        if m.j[mk.SLOT, row] >= 0:
            m.free_slots[0] += 1
            m.free_slots[m.free_slots[0]] = m.j[mk.SLOT, row]
            m.j[mk.SLOT, row] = -1

    def release(self, rows: I64, *, everybody: bool = False) -> None:
        """Take jobs off their nodes; `everybody`: no other job is on any."""
        if self.seats is not None:
            self.m.j[mk.SET_OF, rows] = -1
            return
        mk.release(self.places, rows, len(rows), self.gpus_per_node, everybody)

    def place(self, rows: I64, now_s: int) -> None:
        """Put all jobs on nodes, in the order given; where one does not fit, anew with the largest first.

        Where the buddy placement fails even so, all are placed by their number of GPUs alone.
        """
        self.record.spread_gpu_s += self.spread_gpus * (now_s - self.placed_s)
        self.spread_gpus, self.placed_s = 0, now_s
        if self.seats is not None:
            self._keep(self.seats, rows, now_s)
            return
        self.owner = self.owner[:0]
        if mk.place_in_order(self.places, rows, len(rows), self.gpus_per_node):
            return
        self.release(rows, everybody=True)
        largest_first = rows.copy()
        sort_by(largest_first, -np.minimum(self.m.j[mk.GPUS, rows], self.gpus_per_node))
        if mk.place_in_order(self.places, largest_first, len(rows), self.gpus_per_node):
            return
        self.place_by_count(largest_first, now_s)

    def place_all(self, rows: I64, now_s: int) -> None:
        """Put jobs on nodes, those of whole nodes first, then largest first; find out whose groups are known."""
        largest_first = rows.copy()
        sort_by(largest_first, -np.minimum(self.m.j[mk.GPUS, rows], self.gpus_per_node))
        self.place(largest_first, now_s)
        self.learn_groups(rows)

    def _keep(self, seats: SeatsTogether, rows: I64, now_s: int) -> None:
        """Put jobs on nodes round those that keep their GPUs."""
        m, record = self.m, self.record
        held = rows[m.j[mk.GPUS, rows] > 0]
        before = seats.of
        self.moved = self.settle(
            seats, dict(zip(held.tolist(), m.j[mk.GPUS, held].tolist(), strict=True)), now_s
        )
        m.j[mk.SET_OF, held] = 0
        self.owner = seats.owner
        wide = sorted(seats.spread())
        self.spread_gpus = int(m.j[mk.GPUS, wide].sum())
        record.spread_rows.update(wide)
        record.most_nodes = max([record.most_nodes, *(seats.nodes(row) for row in wide)])
        for row, gpus in seats.of.items():
            if gpus is not before.get(row):
                record.seat(now_s, row, gpus)
        record.moves += [(now_s, row, len(seats.of[row])) for row in sorted(self.moved)]

    def settle(self, seats: SeatsTogether, wanted: Mapping[int, int], now_s: int) -> frozenset[int]:
        """Give jobs their GPUs, and say who is moved; anybody may be."""
        return seats.settle(wanted)

    def place_by_count(self, rows: I64, now_s: int) -> None:
        """Jobs take free GPUs wherever they are, on few nodes each; for the machine all nodes are one set then."""
        self.release(rows, everybody=True)
        places, j, node = self.places, self.m.j, self.gpus_per_node
        held, sets, total = rows[j[mk.GPUS, rows] > 0], places.sets, self.setting.cluster.gpus
        self.owner = np.empty(total, np.int64)
        mk.place_by_count(j, held, len(held), node, self.owner)
        if places.set_jobs.shape[1] <= len(held):
            wider = np.zeros((len(places.set_jobs), total + 1), np.int64)
            places = self.places = places._replace(set_jobs=wider)
        nodes = int(places.meta[mk.FREE_NODES])
        assert nodes * node == total, "a node is occupied by a job that is not to be placed"
        places.set_nodes[:nodes] = places.free_nodes
        places.set_jobs[0, : len(held)] = held
        places.node_set[:] = 0
        places.meta[[mk.FREE_NODES, mk.SETS]] = 0, 1
        used = int(j[mk.GPUS, held].sum())
        sets[[mk.CAP, mk.USED, mk.FIRST_NODE, mk.JOBS_IN, mk.CLASS], 0] = total, used, 0, len(held), -1
        mk.move_class(sets, places.class_sets, places.class_n, 0, mk.class_of(total - used))
        j[mk.SET_OF, held] = 0
        on_nodes = np.unique(self.owner[self.owner >= 0] * nodes + np.flatnonzero(self.owner >= 0) // node)
        spans = np.bincount(on_nodes // nodes, minlength=j.shape[1])[held]
        wide = spans > -(-j[mk.GPUS, held] // node)
        self.spread_gpus = int(j[mk.GPUS, held[wide]].sum())
        self.record.spread_rows.update(held[wide].tolist())
        self.record.most_nodes = max(self.record.most_nodes, int(spans[wide].max(initial=0)))

    def refuse(self, row: int, because: str) -> None:
        """Turn a job away."""
        self.m.j[mk.STATE, row] = mk.GONE
        self.record.refuse(row, because, self.now_s)

    def admit(self, row: int) -> None:
        """Take a job in, waiting."""
        m = self.m
        for which in (mk.RUNNABLE, mk.PENDING):
            m.lists[which, m.meta[which]] = row
            m.meta[which] += 1
        m.j[mk.STATE, row] = mk.WAITING
        self.record.admit(row, self.now_s)

    def note(self, now_s: int) -> None:
        """Write the scheduling event down: who holds what from now on."""
        holding = self.runnable()
        holding = holding[self.m.j[mk.GPUS, holding] > 0]
        before = self.held
        gone = before[(self.m.j[mk.STATE, before] == mk.GONE) | (self.m.j[mk.GPUS, before] == 0)]
        rows = np.concatenate((holding, gone))
        gpus = np.concatenate((self.m.j[mk.GPUS, holding], np.zeros(len(gone), np.int64)))
        self.record.add_event(now_s, rows, gpus, int(self.m.meta[mk.PENDING]))
        self.record.accepted = int(self.m.meta[mk.ACCEPTED])
        self.held = holding.copy()

    def learn_groups(self, rows: I64) -> None:
        """Find out whose communication groups are known, then know them all."""
        if len(self.owner):
            self._learn_groups_by_count(rows)
            return
        m, places = self.m, self.places
        met = set()
        for row in rows[m.j[mk.GPUS, rows] > 0].tolist():
            which = m.j[mk.SET_OF, row]
            first, nodes = places.sets[mk.FIRST_NODE, which], places.sets[mk.CAP, which] // self.gpus_per_node
            mates = places.set_jobs[which, : places.sets[mk.JOBS_IN, which]]
            offset = int(m.j[mk.GPUS, mates[: int(np.argmax(mates == row))]].sum())
            group = (*places.set_nodes[first : first + nodes].tolist(), -1, offset, int(m.j[mk.GPUS, row]))
            m.j[mk.HIT, row] = group in self.groups
            met.add(group)
        self.groups |= met

    def _learn_groups_by_count(self, rows: I64) -> None:
        """As `learn_groups`, of jobs placed by count."""
        m, node = self.m, self.gpus_per_node
        holding = rows[m.j[mk.GPUS, rows] > 0]
        gpus = [np.flatnonzero(self.owner == row) for row in holding]
        ranks, levels = np.array([mine[0] for mine in gpus], np.int64), m.j[mk.LEVEL, holding]
        # a group on one node is named as `learn_groups` names it
        groups = [
            (int(mine[0]) // node, -1, int(mine[0]) % node, len(mine))
            if mine[0] // node == mine[-1] // node
            else (*mine.tolist(), -1)
            for mine in gpus
        ]
        m.j[mk.HIT, rows] = 0
        m.j[mk.HIT, holding] = self.met(groups, ranks, levels)
        self.groups.update(groups)

    def met(self, groups: Sequence[tuple[int, ...]], ranks: I64, levels: I64) -> Sequence[bool] | BOOL:
        """Which communication groups were met before.

        Parameters
        ----------
        groups : by their real GPUs.
        ranks, levels : the first rank of each, and the level of its size.
        """
        return [group in self.groups for group in groups]

    def wait_s(self, rows: I64) -> float:
        """How long those who get GPUs at this instant wait for those who give some up, at most."""
        if self.table is None or not self.table.longest_drain_s:
            return 0.0
        before = self.m.j[mk.LAST_GPUS]
        fewer = rows[self.m.j[mk.GPUS, rows] < before[rows]].tolist()
        return max((self.table.drain_s(row, int(before[row])) for row in (*fewer, *self.moved)), default=0.0)

    def would_admit(self, row: int, admits: Callable[[], bool], *, alone: bool) -> str:
        """What would have a refused job admitted, as far as it was tried: a later deadline, more GPUs (whole nodes).

        Parameters
        ----------
        row : the job.
        admits : plans it with everybody in the cluster, and says whether it would be admitted.
        alone : it was refused with others that came with it.
        """
        if not self.record.seeks_remedies or self.runnable_count > MOST_TRIED:
            return ""
        machine, slot_s = self.m, self.setting.slot_s
        deadlines = machine.j[mk.DEADLINE]
        written = int(deadlines[row])
        if alone and admits():
            return "; alone it would be admitted"

        def later(slack_s: int) -> bool:
            deadlines[row] = written + slack_s
            return admits()

        def larger(gpus: int) -> bool:
            counts = np.arange(self.setting.cluster.gpus + gpus + 1)
            floor_level = np.searchsorted(machine.levels, counts, side="right").astype(np.int64) - 1
            self.m = machine._replace(floor_level=floor_level)
            return admits()

        slack_s = least_that(later, slot_s, slot_s << 14)
        deadlines[row] = written
        gpus = least_that(larger, self.gpus_per_node, 8 * self.setting.cluster.gpus)
        self.m = machine
        changes = [f"with a deadline {slack_s} s later"] * (slack_s > 0) + [f"with {gpus} more GPUs"] * (
            gpus > 0
        )
        if not changes:
            return ""
        return f"; {'alone, ' if alone else ''}{' or '.join(changes)} it would be admitted"
