"""What Slurm 22.05 was seen to decide: a slow, readable model of its backfilling on named nodes.

No line of Slurm's source was read. Each rule was found in the plans that an unmodified ``slurmctld`` 22.05.8 printed
(``DebugFlags=Backfill,BackfillMap``): three traces of 150 to 200 jobs and 16 micro runs hold 78,278 jobs tested in
6,900 cycles, and the rules below give every attempt, every planned start, end and set of nodes, and every start of
all of them. ``plan`` is pure: a state in, starts and promises out. ``replay`` is the clock around it.

Times are seconds on one clock. Rounding is to absolute multiples of them, so a trace that begins at another second of
a minute gives other plans.
"""

from __future__ import annotations

import csv
import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

GROUP_S = 30
"""Ends of running jobs are released in groups: the first reaches this far."""
MINUTE_S = 60
MIN_JOB_AGE_S = 300
BATCH_DELAY_S = 3
"""The main scheduler runs at most this often after submissions (``batch_sched_delay``)."""


@dataclass(frozen=True)
class Job:
    """A request: ``nodes`` nodes with ``gpus`` GPUs on each, and with a feature, for at most ``limit_s``."""

    id: str
    submit_s: float
    duration_s: float
    nodes: int
    gpus: int
    limit_s: int
    exclusive: bool = False
    partitions: tuple[str, ...] = ("",)
    feature: str = ""
    begin_s: float = 0.0


@dataclass(frozen=True)
class Running:
    """A job on its nodes since ``start_s``."""

    job: Job
    start_s: float
    nodes: frozenset[int]

    @property
    def end_s(self) -> float:
        """When its limit ends it: all that a plan knows of its end."""
        return self.start_s + self.job.limit_s


@dataclass(frozen=True)
class Outage:
    """Nodes that nobody may use from ``start_s`` to ``end_s`` (a maintenance reservation)."""

    start_s: float
    end_s: float
    nodes: frozenset[int]


@dataclass(frozen=True)
class Machine:
    """GPUs of each node, by its number, its feature, and the parameters of ``SchedulerParameters``."""

    gpus: Mapping[int, int]
    outages: tuple[Outage, ...] = ()
    interval_s: int = 30
    resolution_s: int = 60
    window_s: int = 86_400
    max_jobs: int = 500
    partitions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    tiers: Mapping[str, int] = field(default_factory=dict)
    features: Mapping[int, str] = field(default_factory=dict)

    def reach(self, partition: str) -> frozenset[int]:
        """The nodes of a partition; without partitions, all."""
        return self.partitions.get(partition, frozenset(self.gpus))

    def usable(self, job: Job, partition: str) -> frozenset[int]:
        """Those of a partition that have what a job asks for."""
        reach = self.reach(partition)
        return frozenset(node for node in reach if job.feature in ("", self.features.get(node)))

    def queue(self, waiting: Iterable[Job]) -> list[tuple[Job, str]]:
        """Each job once for each of its partitions, those of a higher tier first."""
        pairs = [(job, name) for job in waiting for name in job.partitions]
        return sorted(pairs, key=lambda pair: -self.tiers.get(pair[1], 1))


@dataclass(frozen=True)
class State:
    """What a cycle of backfilling sees: the waiting jobs in order of priority, and the running ones."""

    now_s: float
    machine: Machine
    waiting: tuple[Job, ...]
    running: tuple[Running, ...]


@dataclass(frozen=True)
class Attempt:
    """One test of a job: at which instant, on which nodes."""

    job: Job
    at_s: float
    nodes: frozenset[int]


@dataclass(frozen=True)
class Promise:
    """A waiting job's planned start, end and nodes, and whether only another promise keeps it from an earlier start."""

    job: Job
    start_s: float
    end_s: float
    nodes: frozenset[int]
    waits_for_promise: bool = False


@dataclass
class Plan:
    """The outcome of one cycle, in the order in which it was found."""

    attempts: list[Attempt] = field(default_factory=list)
    starts: list[Running] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)


@dataclass(frozen=True)
class Span:
    """A stretch of the plan with the nodes that no promise holds."""

    start_s: float
    end_s: float
    nodes: frozenset[int]


def pick(usable: Iterable[int], count: int) -> frozenset[int]:
    """The shortest run of consecutive usable nodes that suffices, lowest first; else the longest run, and go on."""
    runs: list[list[int]] = []
    for node in sorted(usable):
        if runs and runs[-1][-1] == node - 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    chosen: list[int] = []
    while len(chosen) < count:
        need = count - len(chosen)
        enough = [run for run in runs if len(run) >= need]
        if enough:
            chosen += min(enough, key=lambda run: (len(run), run[0]))[:need]
        else:
            longest = max(runs, key=lambda run: (len(run), -run[0]))
            runs.remove(longest)
            chosen += longest
    return frozenset(chosen)


class Free:
    """The free GPUs of each node."""

    def __init__(self, machine: Machine, running: Iterable[Running]) -> None:
        self.machine = machine
        self.free = dict(machine.gpus)
        for one in running:
            self.take(one)

    def share(self, job: Job, node: int) -> int:
        return self.machine.gpus[node] if job.exclusive else job.gpus

    def take(self, one: Running, sign: int = -1) -> None:
        for node in one.nodes:
            self.free[node] += sign * self.share(one.job, node)

    def place(self, job: Job, allowed: Iterable[int]) -> frozenset[int] | None:
        usable = [node for node in allowed if self.free[node] >= self.share(job, node)]
        return pick(usable, job.nodes) if len(usable) >= job.nodes else None


def earliest(
    job: Job, now_s: float, allowed: frozenset[int], machine: Machine, running: Sequence[Running]
) -> tuple[float, frozenset[int]] | None:
    """When and where the job could start on ``allowed`` nodes, as the running jobs end; now if it fits now.
    Unless it fits now, the running jobs that hold an allowed node end one after another, the first a second from now, and
       the job is tried after each *group* of ends, never inside one; it starts with the last end of its group. A group
       goes on as long as the next end **of any running job, also of one on other nodes,** lies within a window. The
       window is counted from the first end that frees an allowed node, rounded up to a multiple of 30 s; it is 30 s long
       at first, and doubles after a group until the next end lies within it.
    """
    free = Free(machine, running)
    if nodes := free.place(job, allowed):
        return now_s, nodes
    ends = sorted(running, key=lambda one: one.end_s)
    origin_s: float | None = None
    window_s = GROUP_S
    last_s = -math.inf
    for one, following in zip(ends, [*ends[1:], None], strict=True):
        if not one.nodes & allowed:
            continue
        free.take(one, +1)
        last_s = one.end_s
        if origin_s is None:
            origin_s = math.ceil(one.end_s / GROUP_S) * GROUP_S
        if following is not None and following.end_s <= origin_s + window_s:
            continue
        if nodes := free.place(job, allowed):
            return max(last_s, now_s + 1), nodes
        while following is not None and following.end_s > origin_s + window_s:
            window_s *= 2
    if origin_s is not None and (nodes := free.place(job, allowed)):
        return max(last_s, now_s + 1), nodes
    return None


def plan(state: State) -> Plan:
    """One cycle of backfilling: every waiting job in turn is started, promised nodes, or passed over."""
    machine, now_s = state.machine, state.now_s
    down = machine.resolution_s or 1
    everything = frozenset(machine.gpus)
    begin_s = now_s // down * down
    table = [Span(begin_s, begin_s + machine.window_s, everything)]
    for outage in machine.outages:
        if outage.end_s > now_s:
            table = reserve(table, outage.start_s, outage.end_s, outage.nodes)
    running = list(state.running)
    found = Plan()
    started: set[str] = set()
    for job, partition in machine.queue(state.waiting)[: machine.max_jobs]:
        if job.id in started:
            continue
        outcome = settle(job, partition, now_s, machine, running, table, found.attempts)
        if isinstance(outcome, Running):
            running.append(outcome)
            started.add(job.id)
            found.starts.append(outcome)
        elif outcome is not None:
            found.promises.append(outcome)
            table = reserve(table, outcome.start_s // down * down, outcome.end_s, outcome.nodes)
    return found


def settle(
    job: Job,
    partition: str,
    now_s: float,
    machine: Machine,
    running: Sequence[Running],
    table: Sequence[Span],
    attempts: list[Attempt],
) -> Running | Promise | None:
    """Try one job at later and later instants until nothing that was promised before stands in its way.

    An attempt at an instant may use the nodes that no promise holds from then until the job's end, rounded down to
    ``bf_resolution``; a promise that begins at that very end is in the way, too. Fewer nodes than the job wants are no
    attempt. The next instant is the first boundary of the table at which a node of the partition comes back, with the
    job's feature or without (looked for up to one span after the job's end), if the job would start after it; and the
    job's own start, if a promise is in the way of its run from there.
    """
    down = machine.resolution_s or 1
    at_s = now_s
    while True:
        end_s = (at_s + job.limit_s) // down * down
        allowed = machine.usable(job, partition)
        for span in table:
            if span.end_s > at_s and span.start_s <= end_s:
                allowed &= span.nodes
        change_s = comes_back(table, at_s, end_s, machine.reach(partition))
        found = None
        if len(allowed) >= job.nodes:
            attempts.append(Attempt(job, at_s, allowed))
            found = earliest(job, now_s, allowed, machine, running)
        if found is None or (change_s is not None and max(found[0], at_s) > change_s):
            if change_s is None:
                return None
            at_s = change_s
            continue
        freed_s, nodes = found
        start_s = max(freed_s, at_s)
        if start_s <= now_s:
            return Running(job, now_s, nodes)
        end_s = (start_s + job.limit_s) // down * down
        first_s = start_s // down * down
        if all(nodes <= span.nodes for span in table if span.start_s < end_s and span.end_s > first_s):
            return Promise(job, start_s, end_s, nodes, start_s > freed_s)
        if start_s > at_s:
            at_s = start_s
        elif change_s is not None:
            at_s = change_s
        else:
            return None


def comes_back(table: Sequence[Span], at_s: float, end_s: float, reach: frozenset[int]) -> float | None:
    """The first boundary after ``at_s`` at which a node becomes available, up to one span past ``end_s``."""
    for span, following in pairwise(table):
        if span.end_s <= at_s:
            continue
        if not following.nodes & reach <= span.nodes:
            return following.start_s
        if span.start_s > end_s:
            return None
    return None


def reserve(table: Sequence[Span], start_s: float, end_s: float, nodes: frozenset[int]) -> list[Span]:
    """Take nodes out of the table for a while; a promise that begins after the window leaves no trace."""
    result: list[Span] = []
    for span in table:
        cuts = sorted(
            {span.start_s, span.end_s, *(cut for cut in (start_s, end_s) if span.start_s < cut < span.end_s)}
        )
        for first_s, last_s in pairwise(cuts):
            taken = first_s >= start_s and last_s <= end_s
            left = Span(first_s, last_s, span.nodes - nodes if taken else span.nodes)
            if result and result[-1].nodes == left.nodes:
                result[-1] = replace(result[-1], end_s=last_s)
            else:
                result.append(left)
    return result


def first_come(state: State) -> list[Running]:
    """The main scheduler: start the waiting jobs in order, and stop at the first that does not fit."""
    free = Free(state.machine, state.running)
    starts: list[Running] = []
    blocked: set[str] = set()
    away: set[int] = set()
    for job, partition in state.machine.queue(state.waiting):
        if partition in blocked or any(one.job is job for one in starts):
            continue
        closed = {
            node
            for outage in state.machine.outages
            if outage.start_s < state.now_s + job.limit_s and outage.end_s > state.now_s
            for node in outage.nodes
        }
        nodes = free.place(job, state.machine.usable(job, partition) - closed - away)
        if nodes is None:
            blocked.add(partition)
            away |= state.machine.reach(partition)
            continue
        starts.append(Running(job, state.now_s, nodes))
        free.take(starts[-1])
    return starts


@dataclass(frozen=True)
class Ran:
    """Where and when a job ran."""

    start_s: float
    end_s: float
    nodes: frozenset[int]


@dataclass(frozen=True)
class Multifactor:
    """Priority by age and size, as ``PriorityWeightAge``, ``PriorityMaxAge`` and ``PriorityWeightJobSize`` give it.

    The size is the mean of the shares of nodes and of CPUs that a job asks for: one CPU on each of 1, 2 and 8 of 16
    nodes of 64 CPUs had the priorities 31, 63 and 253 of 1,000, so fractions are cut off. Ages are renewed at every
    ``PriorityCalcPeriod``.
    """

    age: int
    max_age_s: int
    size: int
    cpus: int
    period_s: int

    def priority(self, job: Job, now_s: float, nodes: int) -> int:
        age_s = max(0, now_s // self.period_s * self.period_s - job.submit_s)
        share = (job.nodes / nodes + job.nodes / self.cpus) / 2
        return int(self.age * min(1, age_s / self.max_age_s) + self.size * share)


def replay(
    jobs: Sequence[Job], machine: Machine, *, backfill: bool = True, multifactor: Multifactor | None = None
) -> dict[str, Ran]:
    """Run a trace: the main scheduler a second after ends and submissions, backfill after news or its own changes.

    An end is followed by the main scheduler a second later, a submission at the next whole second, at most every three
    seconds. That a begin time has come is no news: the main scheduler, which runs every minute, sees it. Equals are in the
    order of their submission, whenever they may start. Backfill runs a second after news, at least ``bf_interval`` after
    its last cycle; it is news to itself when it started a job, tried one a second time, or planned another start than
    before.
    """
    waiting: list[Job] = []
    running: dict[str, Running] = {}
    ran: dict[str, Ran] = {}
    events: list[tuple[float, int, int, Job]] = []
    for index, job in enumerate(jobs):
        heapq.heappush(events, (max(job.submit_s, job.begin_s), 1, index, job))
    main_s = backfill_s = math.inf
    main_before_s = backfill_before_s = -math.inf
    news = False
    forgotten: list[float] = []

    def state(now_s: float) -> State:
        waiting.sort(key=lambda job: job.submit_s)
        if multifactor is not None:  # equal priorities: first come, first served
            waiting.sort(key=lambda job: -multifactor.priority(job, now_s, len(machine.gpus)))
        return State(now_s, machine, tuple(waiting), tuple(running.values()))

    def begin(starts: Iterable[Running]) -> None:
        for one in starts:
            waiting.remove(one.job)
            running[one.job.id] = one
            end_s = one.start_s + min(one.job.duration_s, one.job.limit_s + 30)
            ran[one.job.id] = Ran(one.start_s, end_s, one.nodes)
            heapq.heappush(events, (end_s, 0, len(ran), one.job))

    while events or waiting:
        now_s = min(events[0][0] if events else math.inf, main_s, backfill_s)
        if now_s == math.inf:
            break
        if events and events[0][0] < min(main_s, backfill_s):
            _, arrives, _, job = heapq.heappop(events)
            soon_s = math.floor(now_s) + 1
            if arrives:
                waiting.append(job)
                if job.begin_s > job.submit_s:
                    main_s = min(main_s, math.ceil(now_s / MINUTE_S) * MINUTE_S)
                    continue
                main_s = min(main_s, max(soon_s, main_before_s + BATCH_DELAY_S))
            else:
                del running[job.id]
                forgotten.append(math.ceil((now_s + MIN_JOB_AGE_S) / MINUTE_S) * MINUTE_S + 1)
                main_s = min(main_s, max(soon_s, main_before_s + BATCH_DELAY_S))
            news = True
            if backfill:
                backfill_s = min(backfill_s, max(soon_s, backfill_before_s + machine.interval_s))
        elif main_s < backfill_s:
            main_s, main_before_s = math.inf, now_s
            if starts := first_come(state(now_s)):
                begin(starts)
                if backfill:
                    backfill_s = min(backfill_s, max(now_s + 1, backfill_before_s + machine.interval_s))
        else:
            backfill_s, backfill_before_s = math.inf, now_s
            found = plan(state(now_s))
            begin(found.starts)
            busy = frozenset[int]().union(*(one.nodes for one in running.values()))
            if found.starts or any(one.waits_for_promise or one.nodes - busy for one in found.promises):
                backfill_s = now_s + machine.interval_s
            elif len(waiting) > 1:
                minute_s = now_s // MINUTE_S * MINUTE_S + MINUTE_S + 1
                backfill_s = now_s + machine.interval_s if news else max(now_s + machine.interval_s, minute_s)
            news = False
            forgotten = [instant_s for instant_s in forgotten if instant_s > now_s]
            if forgotten:
                backfill_s = min(backfill_s, max(now_s + machine.interval_s, forgotten[0]))
    return ran


def read_nodes(text: str) -> frozenset[int]:
    """The numbers in a list of nodes as Slurm writes it: ``n3``, ``n[1,4-6]``, or nothing."""
    parts = (part.partition("-") for part in re.sub(r"^n|[\[\]]", "", text).split(",") if part)
    return frozenset(node for first, _, last in parts for node in range(int(first), int(last or first) + 1))


def read_trace(path: Path) -> list[Job]:
    """The jobs of a trace: id, submission, duration, nodes, GPUs a node, minutes, user, ..., exclusive, nice."""
    jobs = []
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            cells = line.split()
            limit_s, exclusive = int(cells[5]) * 60, cells[10] == "1"
            jobs.append(
                Job(
                    cells[0],
                    float(cells[1]),
                    float(cells[2]),
                    int(cells[3]),
                    int(cells[4]),
                    limit_s,
                    exclusive,
                    tuple(cells[7].split(",")) if cells[7] != "-" else ("",),
                )
            )
    return jobs


def read_run(path: Path) -> dict[str, Ran]:
    """Where and when slurmctld ran each job."""
    with path.open() as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    return {
        row["id"]: Ran(float(row["start_s"]), float(row["end_s"]), read_nodes(row["nodes"])) for row in rows
    }


@dataclass(frozen=True)
class Likeness:
    """How alike two runs are. Starts up to 34 s apart count as one cycle; jobs that waited less in both do not count."""

    same_cycle: float
    mean_wait_s: float
    other_mean_wait_s: float
    same_nodes: float

    @property
    def mean_wait_off(self) -> float:
        return abs(self.mean_wait_s / self.other_mean_wait_s - 1)


def alike(jobs: Sequence[Job], one: Mapping[str, Ran], other: Mapping[str, Ran]) -> Likeness:
    """Compare a run with the recorded one, given second."""
    waited = [job for job in jobs if max(one[job.id].start_s, other[job.id].start_s) - job.submit_s > 34]
    same = sum(abs(one[job.id].start_s - other[job.id].start_s) <= 34 for job in waited)
    means = [sum(run[job.id].start_s - job.submit_s for job in jobs) / len(jobs) for run in (one, other)]
    nodes = sum(one[job.id].nodes == other[job.id].nodes for job in jobs)
    return Likeness(same / len(waited) if waited else 1.0, means[0], means[1], nodes / len(jobs))
