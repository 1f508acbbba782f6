"""Scheduling policies: how a scenario names them, what they see, and what they answer.

There are two kinds. A *schedule* (`Schedule`) is a published scheduler with its own clock and rules; it builds `Rules`,
which the engine drives step by step. An *allocator* (`Allocator`) is what a user writes: its `build(rng)` makes a
`Scheduler` with one method, `allocate(view) -> Allocation`, which is called at every arrival and end, or every
`round_s` seconds. It sees waiting and running jobs as columns, in order of submission, and answers with GPUs for each
job. The work that a job has left is in an `OracleView` only; a policy that needs it derives from `OracleAllocator`.
Both kinds are policy specs: frozen parameters that a scenario names. What they build is made afresh for each run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from forerun.cluster.inputs.arrays import BOOL, F64, I64, Cluster, JobLabels, Jobs
from forerun.cluster.inputs.limits import Limits, Tally
from forerun.cluster.inputs.reach import Entries, Reach
from forerun.cluster.inputs.setting import Window
from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec

if TYPE_CHECKING:
    from forerun.cluster.engine.kernels.queue_state import Terms
    from forerun.cluster.engine.record import Record
    from forerun.cluster.engine.rules import AnyRules
    from forerun.cluster.inputs.setting import Setting


class Policy(NamedSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scheduling policy by name, with its parameters.

    paper: where it was published. needs: the columns of a trace that it uses. guarantees, cost: what it promises and the
    time that a decision takes, in words. All four are for the documentation; `needs` also says whether a policy keeps
    jobs on the GPUs that they ask for ("gpus") or plans their work ("iterations"). modes: those that play it (default: all).
    plans_slots: whether it plans whole slots ahead, so that which jobs it admits hangs on the slot (default: no).
    """

    paper: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    guarantees: ClassVar[str] = ""
    cost: ClassVar[str] = ""
    modes: ClassVar[tuple[str, ...]] = ()
    plans_slots: ClassVar[bool] = False

    @property
    def keeps_requests(self) -> bool:
        """Whether jobs get the number of GPUs that they ask for."""
        return "gpus" in self.needs or "iterations" not in self.needs

    def read(self) -> object:
        """What the policy reads from files of its own (default: nothing). Raises InputError if they cannot be read."""
        return None


class Schedule(Policy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published schedule, with its own clock."""

    @property
    def keeps_requests(self) -> bool:
        """Whether jobs get the number of GPUs that they ask for; elastic schedules choose it."""
        return "gpus" in self.needs

    def rules(self, setting: Setting, record: Record) -> AnyRules:
        """The schedule at work on a setting. It writes what happens into the record."""
        raise NotImplementedError(f"{type(self).__name__} has no rules")


@functools.cache
def schedulers() -> Registry[Policy]:
    """All scheduling policies: the built-in ones, and those that installed packages announce."""
    return Registry(
        "scheduling policy",
        "forerun.cluster.policies",
        base=Policy,
        group="forerun.cluster.policy",
        unnamed={
            "decider": "another program decided, which no scenario names; give it on the command line: "
            "--decider -- PROGRAM ARGUMENTS... (forerun simulate, compare, explain, live run)"
        },
    )


def played_in(mode: str, names: Iterable[str]) -> tuple[str, ...]:
    """Such of some policies as are installed and are played in a mode."""
    known = (name for name in names if name in schedulers())
    return tuple(name for name in known if mode in (schedulers().get(name).modes or (mode,)))


# ------------------------------------------------------------------------------------------------ what a policy sees


class AbsentJob(Exception):
    """A policy gave GPUs to a job that is neither waiting nor running."""

    def __init__(self, job: int, gpus: object) -> None:
        super().__init__(job, gpus)
        self.job, self.gpus = job, gpus


def _on_no_node(row: int) -> dict[int, int]:
    return {}


class Ranked(Protocol):
    """An order by priorities, of which a part never changes."""

    def best_standing(self, jobs: Jobs, cluster: Cluster) -> tuple[I64, F64]:
        """Of jobs, each in its best partition: its tier, and what does not change of its priority."""


def _all_alike(order: Ranked) -> tuple[I64, F64]:
    raise NotImplementedError("nothing is known of these jobs")


def _no_seats(at: int, owner: I64, gpus: int, gpu_type: int) -> I64:
    return owner[:0]


class View:
    """What a policy may see at one instant. Columns have one element per waiting or running job, in order of submission.

    now_s: the instant. count: the number of jobs. total, free: GPUs in all, and those that no job has. rate:
    float64[types, kinds, GPUs + 1], iterations per second from the profile. types, type_total: GPU types,
    and GPUs of each. quota: GPUs of
    each user, and at the end 1 if idle GPUs may be borrowed (None: no quotas). limits: of what groups of jobs have running
    (None: none); `tally` counts it. Where nodes are tracked: node_gpus, node_free and node_type, by node (empty otherwise).
    windows: maintenance that is announced and not over. ids, users, labels: names of jobs and users, and what else the log
    says of jobs, by the job's number (labels None: nothing). slot_s: the scenario's slot. costs: of changes of GPUs, see
    `change_s`. The arrays belong to the simulator and are valid until the next decision.
    """

    def __init__(self, total: int, rate: F64, type_total: I64, jobs: int = 0) -> None:
        """A view of a cluster before the first decision. jobs: the most that it can show."""
        self.now_s = 0.0
        self.count = 0
        self.free = total
        self.total = total
        self.rate = rate
        self.type_total = type_total
        self.node_free: I64 = np.zeros(0, np.int64)
        self.node_gpus: I64 = np.zeros(0, np.int64)
        self.node_type: I64 = np.zeros(0, np.int64)
        self.quota: I64 | None = None
        self.limits: Limits | None = None
        #: which nodes jobs may use, by the job's number; None where nodes are not tracked
        self.reach: Reach | None = None
        #: by the job's number, what of its priority by an order does not change: tier, and priority in its best partition
        self.standing: Callable[[Ranked], tuple[I64, F64]] = _all_alike
        #: what they ask for in each of their partitions, likewise
        self.entries: Entries | None = None
        #: the scenario's placement, and the seed of the one that draws
        self.placement = "anywhere"
        self.seed = 0
        self.windows: tuple[Window, ...] = ()
        self.slot_s = 60.0
        self.costs: F64 = np.zeros((1, 6, 1))
        self.ids: tuple[str | int, ...] = ()
        self.types: tuple[str, ...] = ("",) * len(type_total)
        self.users: tuple[str, ...] = ()
        self.labels: JobLabels | None = None
        #: GPUs by node that a job has, by the job's number
        self.nodes_of_job: Callable[[int], dict[int, int]] = _on_no_node
        #: the job on each GPU, negative: none; empty where nodes are not tracked
        self.owner: I64 = np.zeros(0, np.int64)
        #: the node of each GPU; for the buddy placement, to which GPUs of a node are not alike, each is one of its own
        self.node_of: I64 = np.zeros(0, np.int64)
        #: where the placement puts so many GPUs of a type for the job at a position, on nodes that it may use, if an array
        #: like `owner` says which are taken; empty: nowhere
        self.seats_for: Callable[[int, I64, int, int], I64] = _no_seats
        #: what the engine fills; the named columns below are its rows
        self.float_columns: F64 = np.zeros((9, jobs))
        self.int_columns: I64 = np.zeros((9, jobs), np.int64)
        #: answers of `usable`, by kind, request and types
        self.usable_of: dict[tuple[int, int, frozenset[int]], tuple[Usable, ...]] = {}
        #: answers of `types_in_reach`, by class, GPUs and shape
        self.types_of: dict[tuple[int, int, int, int], frozenset[int]] = {}

    @property
    def job(self) -> I64:
        """Number of the job, the same throughout the run."""
        return self.int_columns[0, : self.count]

    @property
    def gpus(self) -> I64:
        """GPUs requested."""
        return self.int_columns[1, : self.count]

    @property
    def held(self) -> I64:
        """GPUs that the job has now; 0: it waits."""
        return self.int_columns[2, : self.count]

    @property
    def kind(self) -> I64:
        """Row of the profile; -1: none, the job runs on the requested GPUs only."""
        return self.int_columns[3, : self.count]

    @property
    def user(self) -> I64:
        """Number of the job's user."""
        return self.int_columns[4, : self.count]

    @property
    def best_effort(self) -> I64:
        """1 for a best-effort job, else 0."""
        return self.int_columns[5, : self.count]

    @property
    def gpu_type(self) -> I64:
        """Number of the GPU type that the job runs on, or ran on last."""
        return self.int_columns[6, : self.count]

    @property
    def submit_s(self) -> F64:
        """When the job was submitted."""
        return self.float_columns[0, : self.count]

    @property
    def waited_s(self) -> F64:
        """Seconds for which a job that has not started could have done so before it came; see `JobLabels`."""
        if self.labels is None:
            return np.zeros(self.count)
        return np.where(self.changed_s <= self.submit_s, self.labels.waited_s[self.job], 0.0)

    @property
    def deadline_s(self) -> F64:
        """The job's deadline; infinite: none."""
        return self.float_columns[1, : self.count]

    @property
    def served_gpu_s(self) -> F64:
        """GPU time that the job has had so far."""
        return self.float_columns[2, : self.count]

    @property
    def requested_s(self) -> F64:
        """The time limit that the job asked for; infinite: none."""
        return self.float_columns[6, : self.count]

    @property
    def changed_s(self) -> F64:
        """When the job's GPUs last changed: its start, if it has run on them ever since; its submission before that."""
        return self.float_columns[7, : self.count]

    @property
    def unchanged_s(self) -> F64:
        """Seconds since the job's GPUs last changed."""
        return self.float_columns[3, : self.count]

    @property
    def owed_s(self) -> F64:
        """Seconds until the job works: what is left of its last change of GPUs."""
        return self.float_columns[8, : self.count]

    @property
    def starts(self) -> I64:
        """How many times the job was given GPUs, or others than before."""
        return self.int_columns[8, : self.count]

    def usable(self, at: int) -> tuple[Usable, ...]:
        """What a job can run on in this cluster, the fastest first; of equal ones what it has, then the fewest GPUs.

        Parameters
        ----------
        at : position of the view.
        """
        kind, asked = int(self.kind[at]), int(self.gpus[at])
        key = kind, asked, self.types_in_reach(at)
        if key not in self.usable_of:
            found = [Usable(number, asked, 1.0) for number in range(len(self.type_total))]
            if kind >= 0:
                speed = self.rate[:, kind] / self.rate[0, kind, asked]
                found = [
                    Usable(number, count, float(speed[number, count]))
                    for number, count in np.argwhere(speed > 0).tolist()
                ]
            found = [
                one
                for one in found
                if 0 < one.gpus <= self.type_total[one.gpu_type] and one.gpu_type in key[2]
            ]
            self.usable_of[key] = tuple(sorted(found, key=lambda one: (-one.speed, one.gpus)))
        found, mine = list(self.usable_of[key]), (int(self.gpu_type[at]), int(self.held[at]))
        if len(self.type_total) > 1 and mine[1]:
            found.sort(key=lambda one: (-one.speed, one[:2] != mine))
        return tuple(found)

    def _class(self, at: int) -> int:
        """Which nodes a job may use, as a row of the reach; -1: nodes are not tracked."""
        return -1 if self.reach is None else int(self.reach.kind[self.job[at]])

    def types_in_reach(self, at: int) -> frozenset[int]:
        """The GPU types on which a job has a place at its request on empty nodes."""
        if self.reach is None or len(self.type_total) == 1:
            return frozenset(range(len(self.type_total)))
        job, empty = int(self.job[at]), np.full(len(self.owner), -1, np.int64)
        shape = (self._class(at), int(self.gpus[at]), int(self.reach.said[job]), int(self.reach.each[job]))
        if shape not in self.types_of:
            places = (self.seats_for(at, empty, shape[1], number) for number in range(len(self.type_total)))
            self.types_of[shape] = frozenset(number for number, seats in enumerate(places) if len(seats))
        return self.types_of[shape]

    def change_s(self, at: int, before: int, after: int) -> float:
        """Seconds that a job loses when it goes from some GPUs to others, of equal numbers: to other GPUs.

        Parameters
        ----------
        at : position of the view.
        before : how many it has; 0: none, though it had some before; -1: it never had any.
        after : how many it is to have.
        """
        from forerun.cluster.engine.kernels import allocator as ak

        return float(ak.change_s(self.costs, self.int_columns[7, at], before, after))

    def on_nodes(self, at: int) -> dict[int, int]:
        """GPUs, by node, of the job at a position of the view; empty where nodes are not tracked."""
        return self.nodes_of_job(int(self.job[at]))

    def give(self, gpus: Mapping[int, int | Mapping[int, int]]) -> Allocation:
        """An allocation from GPUs by job number (`view.job`), as a count or as counts by node; other jobs get none.

        Naming a job that is neither waiting nor running (it has ended, or comes later) ends the run with a PolicyError.
        """
        place = {number: at for at, number in enumerate(self.job.tolist())}
        out = np.zeros(self.count, np.int64)
        nodes: dict[int, Mapping[int, int]] = {}
        for number, given in gpus.items():
            if number not in place:
                raise AbsentJob(int(number), given)
            at = place[number]
            if isinstance(given, Mapping):
                nodes[at] = given
                out[at] = sum(given.values())
            else:
                out[at] = given
        return Allocation(out, nodes=nodes or None)

    def take(self, order: I64, *, skip: bool = True) -> Allocation:
        """Give jobs the GPUs that they request, in an order, while GPUs last.

        order: positions in the view. skip: pass over jobs that do not fit, or find no nodes (backfill; default); otherwise
        the first of them is the last one considered. With several GPU types a job keeps its own while enough of it is free,
        else takes the fastest that has enough.
        """
        from forerun.cluster.engine.kernels import allocator as ak

        if len(self.type_total) > 1 or self.quota is not None or self.limits is not None:
            return self.on_types(np.asarray(order), self.gpus, skip=skip)
        out = np.empty(self.count, np.int64)
        ak.take_plain(order, self.gpus, self.total, skip, out)
        return self.seated(out, self.gpu_type, np.asarray(order), skip=skip)

    def on_types(self, order: I64, gpus: I64, *, skip: bool = True) -> Allocation:
        """Give jobs GPUs in an order while they last, each job's of one type: its own while enough is free, else the
        fastest.

        Quotas apply as in `take`.

        Parameters
        ----------
        order : positions of the view.
        gpus : GPUs by position.
        skip : pass over jobs that do not fit (default); else the first of them ends the distribution.
        """
        from forerun.cluster.engine.kernels import allocator as ak

        confined = self.reach is not None and not self.reach.is_everywhere
        if confined or self.limits is not None:
            return self._in_turn(np.asarray(order), gpus, skip=skip)
        out, types = np.empty(self.count, np.int64), self.gpu_type.copy()
        quota = np.zeros(0, np.int64) if self.quota is None else self.quota[:-1]
        borrow = self.quota is not None and bool(self.quota[-1])
        ak.take_in_order(
            order,
            gpus,
            self.int_columns,
            self.rate,
            self.type_total,
            skip,
            quota,
            borrow,
            out,
            types,
        )
        return self.seated(out, types, order, skip=skip)

    def take_fastest(self, order: I64) -> Allocation:
        """Give jobs, in an order, the GPUs on which each is fastest of those that are left, within quotas and limits.

        Where nodes are tracked a job stays where it is if its number of GPUs does and nobody before it needs them, and takes
        fewer GPUs where the nodes have no place for more.

        Parameters
        ----------
        order : positions of the view.
        """
        if (self.kind < 0).all():
            return self.take(order)
        jobs, users, held = self.job, self.user, self.held
        tally = None if self.limits is None else Tally(self.limits)
        quota = None if self.quota is None else self.quota[:-1].copy()
        borrows = self.quota is not None and bool(self.quota[-1])
        gpus, types, free = np.zeros(self.count, np.int64), self.gpu_type.copy(), self.type_total.copy()
        least = np.array([min((one.gpus for one in self.usable(at)), default=0) for at in range(self.count)])
        owner, settled = self.owner.copy(), ~np.isin(self.owner, np.append(jobs, -1))
        seats: dict[int, I64] = {}

        def seated(at: int, one: Usable) -> bool:
            """Whether there is a place for so many GPUs, which is then taken."""
            nonlocal settled
            mine = (self.owner == jobs[at]) & ~settled
            if one.gpus != held[at] or one.gpu_type != types[at] or np.count_nonzero(mine) < one.gpus:
                empty = np.where(settled, owner, -1)
                for taken in (np.where(mine, -1, owner), empty):
                    if len(found := self.seats_for(at, taken, one.gpus, one.gpu_type)):
                        break
                else:
                    return False
                owner[mine], seats[at], mine = -1, found, np.zeros(len(owner), np.bool_)
                mine[found] = True
            owner[mine], settled = jobs[at], settled | mine
            return True

        for turn in range(1 + borrows):
            rest = order[(least[order] > 0) & (gpus[order] == 0)]
            while len(rest := rest[least[rest] <= free.max()]):
                at, rest = int(rest[0]), rest[1:]
                for one in self.usable(at):
                    job, number, count = int(jobs[at]), one.gpu_type, one.gpus
                    if count > free[number]:
                        continue
                    beyond = (turn == 0 and quota is not None and count > quota[users[at]]) or (
                        tally is not None and not tally.fits(job, number, count)
                    )
                    if not beyond and (not len(owner) or seated(at, one)):
                        gpus[at], types[at] = count, number
                        free[number] -= count
                        if quota is not None:
                            quota[users[at]] -= count
                        if tally is not None:
                            tally.add(job, number, count)
                        break
        return Allocation(gpus, types, seats=seats)

    def seated(self, gpus: I64, types: I64, order: I64, *, skip: bool) -> Allocation:
        """GPUs that were given in an order by their number, in the same order by their places.

        Where nodes are tracked, running jobs sit where they are, and give way, the last in the order first, to one before
        them that has no place otherwise. One that has none even so is passed over, or ends the distribution.
        """
        if not len(self.owner):
            return Allocation(gpus, types)
        held, jobs = self.held, self.job
        sits = (held > 0) & (gpus == held) & (types == self.gpu_type)
        owner = np.where(np.isin(self.owner, jobs[(held > 0) & ~sits]), -1, self.owner)
        turns: list[int] = order[gpus[order] > 0].tolist()
        seats: dict[int, I64] = {}
        for turn, at in enumerate(turns):
            if sits[at]:
                continue
            need, number = int(gpus[at]), int(types[at])
            found, tried = self.seats_for(at, owner, need, number), owner
            for other in reversed(turns[turn + 1 :]):
                if len(found):
                    break
                if sits[other] and types[other] == number:
                    tried = np.where(tried == jobs[other], -1, tried)
                    found = self.seats_for(at, tried, need, number)
            if len(found):
                gone = np.isin(jobs, owner[found]) & sits
                sits[gone] = False
                owner[np.isin(owner, jobs[gone])] = -1
                owner[found], seats[at] = jobs[at], found
                continue
            gpus[at] = 0
            if not skip:
                gpus[turns[turn + 1 :]] = 0
                break
        return Allocation(gpus, types, seats=seats)

    def _in_turn(self, order: I64, gpus: I64, *, skip: bool) -> Allocation:
        """As `on_types`, within limits, and where jobs may not use all nodes.

        A job that only a limit keeps waiting is passed over; one that has no place holds up only those of its own partition.
        Where nodes are tracked, running jobs stay, and give way, the last in the order first, to one before them that has no
        place otherwise.
        """
        jobs, held, need_of, tracked = self.job, self.held, gpus.tolist(), len(self.owner) > 0
        tally = None if self.limits is None else Tally(self.limits)
        quota = None if self.quota is None else self.quota[:-1].copy()
        borrows = self.quota is not None and bool(self.quota[-1])
        sits: BOOL = (held > 0) & (gpus == held) & tracked
        owner = np.where(np.isin(self.owner, jobs[(held > 0) & ~sits]), -1, self.owner)
        out, types, seats = np.zeros(self.count, np.int64), self.gpu_type.copy(), dict[int, I64]()
        lines = np.zeros(self.count, np.int64) if self.reach is None else self.reach.line[jobs]
        turns, closed, free = order[gpus[order] > 0].tolist(), set[int](), self.type_total.tolist()
        for borrowing in range(1 + borrows):
            for turn, at in enumerate(turns):
                job, need, line = int(jobs[at]), need_of[at], int(lines[at])
                if out[at] or (line in closed and not skip):
                    continue
                fast = [
                    number
                    for number in self.types_for(at, need)
                    if tally is None or tally.fits(job, number, need)
                ]
                if not fast or (not borrowing and quota is not None and need > quota[self.user[at]]):
                    continue
                if not tracked:
                    number = next((number for number in fast if free[number] >= need), -1)
                    if number < 0:
                        closed.add(line)
                        continue
                    types[at] = number
                    free[number] -= need
                elif not sits[at] or types[at] not in fast:
                    behind = [other for other in reversed(turns[turn + 1 :]) if sits[other]]
                    found, number = self._place_before(at, need, fast, owner, behind)
                    if not len(found):
                        closed.add(line)
                        continue
                    gone = np.isin(jobs, owner[found]) & sits
                    sits[gone] = False
                    owner[np.isin(owner, jobs[gone])] = -1
                    owner[found], seats[at], types[at] = job, found, number
                out[at] = need
                if quota is not None:
                    quota[self.user[at]] -= need
                if tally is not None:
                    tally.add(job, int(types[at]), need)
        return Allocation(out, types, seats=seats)

    def _place_before(
        self, at: int, gpus: int, types: list[int], owner: I64, behind: list[int]
    ) -> tuple[I64, int]:
        """Seats for a job on the first type that has some; else those that others leave who stand behind it."""
        for number in types:
            if len(found := self.seats_for(at, owner, gpus, number)):
                return found, number
        tried = owner
        for other in behind:
            if (number := int(self.gpu_type[other])) in types:
                tried = np.where(tried == self.job[other], -1, tried)
                if len(found := self.seats_for(at, tried, gpus, number)):
                    return found, number
        return owner[:0], -1

    def types_for(self, at: int, gpus: int) -> list[int]:
        """The GPU types on which a job runs on so many GPUs: its own if it runs, then the fastest first.

        Parameters
        ----------
        at : position of the view.
        gpus : how many.
        """
        kind = int(self.kind[at])
        if kind < 0 and len(self.type_total) == 1:
            return [0]
        numbers = sorted(self.types_in_reach(at))
        if kind >= 0:
            speed = self.rate[:, kind, gpus] if gpus < self.rate.shape[2] else np.zeros(len(numbers))
            numbers = sorted((each for each in numbers if speed[each] > 0), key=lambda number: -speed[number])
        mine = int(self.gpu_type[at])
        if self.held[at] and mine in numbers:
            numbers.remove(mine)
            numbers.insert(0, mine)
        return numbers


class Usable(NamedTuple):
    """GPUs that a job can run on: of which type, how many, and the work that it does on them in a second (see `left_s`)."""

    gpu_type: int
    gpus: int
    speed: float


class OracleView(View):
    """A view that knows the future, for policies that derive from `OracleAllocator`."""

    @property
    def left_s(self) -> F64:
        """Work left, in seconds on the requested GPUs."""
        return self.float_columns[4, : self.count]

    @property
    def work_s(self) -> F64:
        """Work in all, in seconds on the requested GPUs."""
        return self.float_columns[5, : self.count]


# --------------------------------------------------------------------------------------------- what a policy answers


@dataclass(frozen=True, slots=True)
class Allocation:
    """GPUs for each job of a view, in its order.

    gpus: int64[jobs]; 0 stops a running job and leaves a waiting one waiting. gpu_type: int64[jobs], which type they are of
    (default: the engine chooses). wake_s: when the policy wants to decide again, even if nothing happens before (default:
    never). nodes: GPUs by node, by position in the view (default: the scenario's placement decides); they sum to the job's
    GPUs. A running job whose nodes differ from these moves. Jobs without named nodes stay where they are; waiting ones are
    placed after those with named nodes. seats: the very GPUs, by position, for policies that plan by `View.seats_for`.
    refused: why a job will never run, by its number (`View.job`); it must not have run yet, and leaves the queue.
    requeued: running jobs that lose their GPUs and the work since their last checkpoint, by position, and after how many
    seconds they come again (infinite: never); other jobs that are stopped keep their work, and wait at once.
    """

    gpus: I64
    gpu_type: I64 | None = None
    wake_s: float = math.inf
    nodes: Mapping[int, Mapping[int, int]] | None = None
    seats: Mapping[int, Sequence[int] | I64] | None = None
    refused: Mapping[int, str] | None = None
    requeued: Mapping[int, float] | None = None


class Scheduler(Protocol):
    """An allocator at work in one run. Its method `close`, where it has one, is called when the run is over."""

    def allocate(self, view: Any) -> Allocation:
        """Decide how many GPUs each job has from now on. view: of the type that the policy's `sees` names."""


class Allocator(Policy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy that decides through a view; derive from it to write one.

    round_s: seconds between decisions (default 0: decide at every arrival and end). sees: the type of its views. places:
    whether it names nodes, so that nodes are tracked even where the scenario's placement is `anywhere` (jobs without named
    nodes are then placed first-fit).
    """

    sees: ClassVar[type[View]] = View
    places: ClassVar[bool] = False
    round_s: float = 0.0

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler for one run. rng: its own source of random numbers, seeded by the scenario."""
        raise NotImplementedError(f"{type(self).__name__} builds nothing")


class OracleAllocator(Allocator, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy that knows how long jobs take."""

    sees: ClassVar[type[View]] = OracleView


class PriorityOrder(IntEnum):
    """What a priority is, least first; the numbers are those of `engine.kernels.priority`.

    SUBMISSION: the instant of submission. DURATION: seconds of work on the requested GPUs. AREA: these times the GPUs.
    REMAINING: seconds of work left. DEADLINE: the deadline; jobs without one come last.
    """

    SUBMISSION = 0
    DURATION = 1
    AREA = 2
    REMAINING = 3
    DEADLINE = 4

    def of(self, view: OracleView) -> F64:
        """Priority of the jobs of a view, the first to serve least."""
        keys = (view.submit_s, view.work_s, view.work_s * view.gpus, view.left_s, view.deadline_s)
        return keys[self]


class PriorityPolicy(OracleAllocator, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs on the GPUs that they request, in order of a priority.

    backfill: whether jobs behind one that does not fit may start (default: no). preemptive: whether running jobs give way to
    jobs of higher priority (default: no). order: what the priority is (default: the submission); without nodes, quotas,
    costs and backfill a compiled queue runs the whole trace by it.
    """

    needs: ClassVar[tuple[str, ...]] = ("gpus", "duration")
    cost: ClassVar[str] = "O(log jobs) an event"
    preemptive: ClassVar[bool] = False
    order: ClassVar[PriorityOrder] = PriorityOrder.SUBMISSION
    backfill: bool = False

    @property
    def compiles(self) -> bool:
        """Whether the compiled queue on named nodes knows the order, in which running jobs do not give way."""
        return not self.preemptive and self.order != PriorityOrder.REMAINING and not self.round_s

    def terms(self, placement: int, seed: int) -> Terms:
        """The rule by which jobs start. placement, seed: where they do."""
        from forerun.cluster.engine.kernels import queue_state as qs

        rule = qs.ONCE if self.backfill else qs.IN_ORDER
        return qs.Terms(rule=rule, placement=placement, seed=seed)

    def build(self, rng: np.random.Generator) -> Scheduler:
        """A scheduler that sorts the view."""
        return PriorityScheduler(self.order, self.preemptive, self.backfill)


class PriorityScheduler:
    """Sorts the jobs of a view by priority and serves them in that order; parameters as of `PriorityPolicy`."""

    def __init__(self, order: PriorityOrder, preemptive: bool, backfill: bool) -> None:
        self.order, self.preemptive, self.backfill = order, preemptive, backfill

    def allocate(self, view: OracleView) -> Allocation:
        """Serve the jobs in order of priority, running ones first where jobs do not give way."""
        order: I64 = np.argsort(self.order.of(view), kind="stable")
        if not self.preemptive:
            order = order[np.argsort(view.held[order] == 0, kind="stable")]
        return view.take(order, skip=self.backfill)


class Ranking(Protocol):
    """An order at work in one run."""

    def keys(self, view: View) -> F64:
        """A key for each job of a view, the first to look at least; equal keys go by submission."""


class Order(NamedSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The order in which a backfilling policy looks at waiting jobs.

    paper: where it was published. number: of the order in the compiled queue (`engine.kernels.backfill`), -1 if it is not
    there: policies with such an order decide through a view, which takes longer.
    """

    paper: ClassVar[str] = ""
    number: ClassVar[int] = -1

    def keys(self, view: View) -> F64:
        """A key for each job of a view, the first to look at least; equal keys go by submission."""
        raise NotImplementedError(f"{type(self).__name__} has no keys")

    def build(self) -> Ranking:
        """The order at work in one run (default: itself, as orders that remember nothing need no more)."""
        return self


@functools.cache
def orders() -> Registry[Order]:
    """All orders of waiting jobs: the built-in ones, and those that installed packages announce."""
    return Registry(
        "order of jobs",
        "forerun.cluster.policies.orders",
        base=Order,
        group="forerun.cluster.order",
    )
