"""Schedules that plan the future of every job: ElasticFlow and EDF, as published and corrected.

`PlanAheadRules` has the compiled state and the steps that these four schedules share; each schedule adds how it admits,
plans and starts jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import numpy as np

from forerun.cluster.engine.kernels import plan_state as mk
from forerun.cluster.engine.kernels.common import overhead_s
from forerun.cluster.engine.kernels.planner import Grid
from forerun.cluster.engine.record import MOST_PLACES, Record, runs_of
from forerun.cluster.engine.rules import Column, Progress, Step, WholeSecondRules, longer, whole_s
from forerun.cluster.engine.seats import Seats
from forerun.cluster.engine.standstill import Standstill
from forerun.cluster.inputs.arrays import BOOL, F64, I64, NEVER_S, NO_DEADLINE_S, ThroughputTable
from forerun.cluster.inputs.costs import CostTable
from forerun.cluster.inputs.setting import Setting
from forerun.core.errors import PolicyError, Problem, ProfileError, ScenarioError, TraceError

#: largest useful GPU counts that the published ElasticFlow code fixes by hand, by GPU type, model and batch
_A100_LIMITS: Final = {
    ("gpt2", 128): 16,
    ("gpt2", 256): 32,
    ("bert", 64): 8,
    ("inception3", 64): 16,
    ("inception3", 128): 32,
    ("resnet50", 64): 32,
    ("vgg16", 64): 32,
}
_T4_LIMITS: Final = {"bert": 16, "cifar10": 16, "yolov3": 4, "ncf": 1}


def fixed_limit(gpu_type: str, model: str, batch: int) -> int:
    """The GPU count beyond which the published ElasticFlow code never scales a job."""
    if gpu_type == "T4":
        return 32 if (model, batch) == ("deepspeech2", 320) else _T4_LIMITS.get(model, 64)
    if model == "bert":
        return _A100_LIMITS.get((model, batch), 16)
    return _A100_LIMITS.get((model, batch), batch if model == "deepspeech2" else min(batch, 64))


def usable_levels(profile: ThroughputTable, counts: I64) -> I64:
    """How many of the profile's levels lie within each of some GPU counts."""
    levels: I64 = np.searchsorted(profile.levels, counts, side="right").astype(np.int64)
    return levels


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


#: restarts that a plan keeps time for, where overhead is reserved at admission
RESERVED_RESTARTS: Final = 4


class PlanAheadRules(WholeSecondRules):
    """What the four schedules have in common. A subclass adds how jobs are admitted, planned and started.

    Parameters
    ----------
    setting : what is run.
    record : written: what happens.
    top : int64[jobs], how many levels of the profile each job may use.

    Attributes
    ----------
    m, places : the kernels' state: jobs, events and plans; jobs on nodes.
    now_s, elapsed_s : the present instant, and the seconds since the last one.
    held : jobs that had GPUs at the last event.
    groups : communication groups met, where they are known by their real GPUs.
    owner : the job on each GPU where jobs are placed by count; empty: the buddy placement's sets say it.
    spread_gpus, placed_s : GPUs of jobs on more nodes than they need, since the last placement.
    table : costs of changes of GPUs, where a table says them; None: the published formula.
    begun : whether each job has run before: first starts have a cost of their own in a table.
    """

    order = (Step.ADVANCE, Step.FINISH, Step.ARRIVE, Step.DECIDE, Step.CHARGE)

    #: an instant on the grid of slots; below 0: the moment of planning, as published
    anchor_s = -1

    def __init__(self, setting: Setting, record: Record, top: I64) -> None:
        self.setting = setting
        self.record, self.standstill = record, Standstill(record)
        self.profile = require_plannable(setting)
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
        self.table = setting.costs if setting.is_corrected("cost_table") else None
        self.begun: BOOL = np.zeros(len(setting.jobs), np.bool_)
        #: which GPUs jobs have, where they keep them; None: everybody is placed afresh at every event
        self.seats = Seats(setting.cluster.node_gpus(), together=True) if setting.placement_kept else None
        #: jobs that were moved by the present placement
        self.moved: frozenset[int] = frozenset()
        #: the cluster's size by which the formula charges for restarts
        self.charged_gpus = setting.cluster.gpus
        #: while nodes are down: jobs that cannot run on the rest, and such of them as are still to be admitted
        self.parked: list[int] = []
        self.kept_out: list[int] = []
        self.returned: list[int] = []

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

    def running(self) -> I64:
        """Jobs that have been started."""
        return self.m.lists[mk.RUNNING, : self.m.meta[mk.RUNNING]]

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

    def next_moment(self) -> int | None:
        """Events within a slot are postponed to its end; a single last event is not."""
        everybody_came = self.m.meta[mk.ARRIVED] == len(self.setting.jobs)
        if everybody_came and self.standstill.check(self.now_s, self._done):
            return None
        moment = int(mk.go_on(self.m, self.now_s, self.setting.slot_s if self.started else 0))
        if moment < 0:
            idle_s = self.idle_s()
            if idle_s is None:
                return None
            moment = idle_s
            mk.take_events(self.m, moment)
        self._go_to(moment)
        return moment

    def idle_s(self) -> int | None:
        """Where to go on if no event is left; nowhere."""
        return None

    def work(self) -> F64:
        """Iterations."""
        return self.setting.jobs.iterations.astype(np.float64)

    def pace(self, gpus: I64, now_s: float) -> tuple[F64, F64]:
        """Jobs work at their throughput, once the restarts are over that they were charged for."""
        m, holds = self.m, gpus > 0
        counts = np.minimum(gpus, len(m.floor_level) - 1)
        rate = np.where(holds, m.rate[m.j[mk.KIND], m.floor_level[counts]], 0.0)
        return rate, np.where(holds, self.owed_s(), 0.0)

    def owed_s(self) -> F64:
        """What is left of the restart of each job."""
        owed_s: F64 = self.m.j[mk.CHARGED].astype(np.float64)
        return owed_s

    def planned_end_s(self, row: int) -> float | None:
        """The end by the plan last made."""
        end_s = int(self.m.j[mk.PLANNED, row])
        return float(end_s) if end_s >= 0 else None

    def expected_s(self) -> int | None:
        """The next event; events within a slot are postponed to its end, but for a single last one."""
        moment = mk.next_instant(self.m, self.now_s, self.setting.slot_s if self.started else 0)
        return self.idle_s() if moment < 0 else int(moment)

    def ended(self, row: int, end_s: float) -> None:
        """A job ended: its end event is then, wherever it was expected."""
        self.m.j[mk.EVENT_AT, row] = max(math.ceil(end_s), self.now_s)

    def observe(self, now_s: int, seen: Progress) -> None:
        """Take the events up to now; jobs whose end was expected by now and was not seen are expected to end later."""
        self.seen = seen
        mk.take_events(self.m, now_s)
        self._go_to(now_s)

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

    def open_up(self) -> None:
        """More jobs may always come."""
        super().open_up()
        self.m.meta[mk.OPEN] = 1

    def columns(self) -> list[Column]:
        """The machine's columns, and whether each job has run."""
        return [self.m.j, self.m.left, self.m.useful, self.begun]

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
        self.begun = longer(self.begun, count)

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

    def wake_at(self, time_s: int) -> None:
        """Ask for an instant, which may be postponed like all others."""
        mk.add_wake(self.m, time_s)

    def _return_to_lists(self, row: int) -> None:
        m = self.m
        for which in (mk.RUNNABLE, mk.RUNNING if m.j[mk.STATE, row] == mk.HOLDING else mk.PENDING):
            m.lists[which, m.meta[which]] = row
            m.meta[which] += 1

    def _go_to(self, moment: int) -> None:
        """Move the clock."""
        self.elapsed_s = moment - self.now_s if self.started else 0
        self.started = True
        self.now_s = moment
        self.reserve()

    def _done(self) -> tuple[int, int, float]:
        return int(self.m.meta[mk.FINISHED]), int(self.m.meta[mk.RUNNING]), float(self.m.left.sum())

    def reserve(self) -> None:
        """Enlarge the tables of plans before an instant that may need more."""
        active = self.runnable_count + len(self.arrivals)
        _, slots, keys = self.m.plans.shape
        if active < slots and 2 * active + 16 < keys:
            return
        self.enlarge(max(slots, 2 * active), max(keys, 4 * active + 32))

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

    def advance(self, now_s: int) -> None:
        """Count the work done since the last instant."""
        if self.seen is None:
            mk.progress(self.m, self.elapsed_s, now_s)
        else:
            mk.see(self.m, self.elapsed_s, now_s, self.seen.left, self.seen.owed_s, self.seen.ended_s)

    def finish(self, now_s: int) -> None:
        """Jobs that are done leave; they are late by their real ends."""
        self.leave(now_s, late_by_plan=False)

    def charge(self, now_s: int) -> None:
        """Running jobs that have GPUs pay."""
        self.pay(self.running())

    def leave(self, now_s: int, late_by_plan: bool) -> None:
        """Jobs whose end event this is leave and are written down. late_by_plan: lateness is judged by the planned end."""
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
            judged_s = planned_s if late_by_plan else end_s
            late = bool(m.j[mk.SLO, row]) and judged_s > m.j[mk.DEADLINE, row]
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

        Where the buddy placement fails even so, corrected, all are placed by their number of GPUs alone. Raises
        PolicyError as published.
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
        planned, total = int(self.m.j[mk.GPUS, rows].sum()), self.setting.cluster.gpus
        if planned <= total and self.setting.is_corrected("buddy_only"):
            self.release(rows, everybody=True)
            self._place_by_count(largest_first)
            return
        node = self.gpus_per_node
        odd = "" if node & (node - 1) == 0 else f" (nodes of {node} GPUs cannot be halved down to one)"
        raise PolicyError.at(
            f"t={now_s} s",
            f"the buddy placement, by halves of nodes and whole nodes, has none for {planned} planned GPUs of "
            f"{total}{odd}; compat.buddy_only: corrected also spreads jobs over nodes",
        )

    def _keep(self, seats: Seats, rows: I64, now_s: int) -> None:
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
            if gpus is not before.get(row) and len(record.places) <= MOST_PLACES:
                record.places[row, now_s] = runs_of(gpus)
        record.moves += [(now_s, row, len(seats.of[row])) for row in sorted(self.moved)]

    def settle(self, seats: Seats, wanted: Mapping[int, int], now_s: int) -> frozenset[int]:
        """Give jobs their GPUs, and say who is moved; anybody may be."""
        return seats.settle(wanted)

    def _place_by_count(self, rows: I64) -> None:
        """Jobs take free GPUs wherever they are, on few nodes each; for the machine all nodes are one set then."""
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
        if not self.setting.is_corrected("rank_cache"):
            mk.learn_groups(self.places, rows, len(rows), self.gpus_per_node)
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
        exact = self.setting.is_corrected("rank_cache")
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
        m.j[mk.HIT, holding] = (
            [group in self.groups for group in groups] if exact else self.places.known[ranks, levels]
        )
        self.groups.update(groups)
        self.places.known[ranks, levels] = True

    def pay(self, rows: I64) -> None:
        """Jobs pay for their restarts; on some events all communication groups are forgotten first."""
        rebuilt = mk.tick(self.places, self.setting.slot_s)
        if rebuilt:
            self.groups.clear()
        if self.table is not None:
            self._pay_by_table(self.table, rows)
            return
        unchanged_free = self.setting.is_corrected("overhead_when_unchanged")
        if self.moved:
            self.m.j[mk.LAST_GPUS, list(self.moved)] = -1  # no number that they have
        mk.charge(self.m, rows, len(rows), rebuilt, unchanged_free, self.charged_gpus)

    def _pay_by_table(self, table: CostTable, rows: I64) -> None:
        """Jobs whose GPUs changed pay what the table says, rounded up to whole seconds."""
        m, wait_s = self.m, self.wait_s(rows)
        cost_s = np.zeros(len(rows), np.int64)
        for at, row in enumerate(rows.tolist()):
            gpus, before = int(m.j[mk.GPUS, row]), int(m.j[mk.LAST_GPUS, row])
            if gpus and (gpus != before or row in self.moved):
                needed_s = table.change_s(row, before, gpus) if self.begun[row] else table.start_s(row, gpus)
                needed_s += wait_s if gpus > before or row in self.moved else 0.0
                cost_s[at] = math.ceil(needed_s - 1e-9)
            self.begun[row] |= gpus > 0
        mk.charge_each(m, rows, cost_s)

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

    def restart_reserve_s(self, restarts: int = RESERVED_RESTARTS) -> I64:
        """Seconds per job that a plan keeps for overhead: restarts at the job's largest count, all groups new."""
        largest = self.m.levels[np.maximum(self.m.j[mk.TOP] - 1, 0)]
        if self.table is not None:
            return np.ceil(restarts * self.table.worst_s(largest)).astype(np.int64)
        total = self.charged_gpus
        each = {int(gpus): overhead_s(int(gpus), False, False, total) for gpus in np.unique(largest)}
        return np.array([restarts * each[int(gpus)] for gpus in largest], np.int64)


def by_column(setting: Setting, profile: ThroughputTable) -> I64:
    """Usable levels by the published rule for EDF: the largest column not literally `nan`, within 64 and the batch."""
    if setting.is_corrected("max_gpus_rule"):
        return fastest_levels(profile)[setting.jobs.kind]
    most = np.minimum(np.minimum(profile.largest_column[setting.jobs.kind], 64), setting.jobs.batch)
    return usable_levels(profile, most)


def by_fixed_limit(setting: Setting, profile: ThroughputTable) -> I64:
    """Usable levels by the published ElasticFlow code's table."""
    limits = np.array(
        [fixed_limit(setting.gpu_type, model, batch) for model, batch in profile.kinds], np.int64
    )
    return usable_levels(profile, limits)[setting.jobs.kind]
