"""A slow reference scheduler for sites whose truth is known: plain Python over whole seconds, nothing of forerun in it.

What it follows, where `Rules` does not say otherwise:

**Instants.** All that happens at one second happens before one pass over the queue: jobs end, nodes fail or come back, jobs
arrive, users cancel. There is a pass at every such second, and at the start and the end of maintenance and holds. Between
passes nothing starts.

**Order.** The highest `PriorityTier` among a job's partitions first, then the multifactor priority rounded down to a whole
number, then submission, then the place in the list of jobs. Factors as Slurm's page on multifactor has them: age (the wait
since the job became eligible over `max_age_s`, at most 1), job size, partition and QOS (over the highest of the site), fair
share (Fair Tree: the rank of the user over the number of users). Usage is GPU-seconds, decays continuously, starts at zero.

**Nodes.** In the order of the configuration. A job over N nodes takes the first N that have its share of GPUs free for as
long as it asks; a job without a number of nodes takes the first node that has all, else what is free, node by node. An
exclusive job takes whole nodes on which nobody is. A job in several partitions tries them by tier, priority and its list.

**EASY.** In that order, each job starts if it fits for its whole request beside running jobs, maintenance and promises. The
first `promises` that do not fit are promised their earliest start, on named nodes, from nothing at each pass; candidates for
it are the ends of what is believed to run, of promises and of maintenance. A job that a limit stops is passed over and
promised nothing. A node that has failed takes part again when it is back, which nobody knows before.

**Believed ends.** Start plus request; a job that would run longer is ended there (TIMEOUT).

**Failures.** All jobs on the node end (NODE_FAIL), come again with the same number, submitted at that second and eligible
`requeue_delay_s` later, and do all their work again. **Maintenance** is known from `known_s` on: nobody starts on its nodes
who would run into it by the request; who is there already goes on. **Cancelled** jobs leave if they wait then.

**Not eligible** is a job before its `begin_s`, before the ends of jobs that it waits for, and within the delay after a
failure. **Held** is one within its hold. Its age counts from the first second at
which nothing of that was in the way.

**Limits** count the GPUs that jobs have, and those that one more asks for. Of several limits of one kind, those of the least
rank apply (partition's QOS, job's QOS, user, accounts); a job counts against all of them. So many tasks of an array run at
once as its limit says.

**Causes.** Each stretch between two passes is a waiting job's cause as of the pass at its beginning: the first test that
fails, in the order of `CAUSES`.

- "maintenance" and "failed nodes": it does not fit even if all nodes that are up and free of maintenance for its request
  were empty;
- "type": it would fit beside the running jobs on another type of GPU of its partitions;
- "nodes in use": fewer GPUs are free on such nodes than it needs; split by the GPUs of those who have them;
- "fragmentation": enough are free, on no set of nodes that would do;
- "promised to others": it fits beside the running jobs, and not beside promises;
- "order": it fits, and others come first (or the next plan is not due).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, Literal

FOREVER_S: Final = 1 << 60
#: the account above all others; its users stand beside them
ROOT: Final = "root"
CAUSES: Final = (
    "not eligible", "held", "maintenance", "failed nodes", "limit", "type", "nodes in use", "fragmentation",
    "promised to others", "order",
)  # fmt: skip
#: a job's GPUs by node
Place = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a policy may do otherwise.

    Parameters
    ----------
    backfills : whether jobs behind the first that does not fit may start; no: `fifo`, in each partition.
    promises : how many jobs are promised a start at each pass.
    plan_every_s : backfilling passes are so far apart at least; in between, jobs start in order until the first of their
        partition that does not fit (default: each pass backfills).
    node_order : the nodes that are tried first: as listed, or those with the fewest free GPUs.
    age_from : from when on a job's age counts.
    requeue_delay_s : until a job of a failed node is eligible again.
    """

    backfills: bool = True
    promises: int = 1
    plan_every_s: int = 0
    node_order: Literal["listed", "fullest"] = "listed"
    age_from: Literal["eligible", "submit"] = "eligible"
    requeue_delay_s: int = 120


@dataclass(frozen=True, slots=True)
class Node:
    """A machine."""

    name: str
    gpus: int
    gpu_type: str
    cpus: int


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes that jobs ask for by one name. max_s: the longest request; priority: `PriorityJobFactor`; qos: of its own."""

    name: str
    nodes: tuple[str, ...]
    tier: int = 1
    priority: int = 1
    max_s: int = FOREVER_S
    default: bool = False
    qos: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """What a user wants. gpus: in all, nodes: over how many (0: any); run_s: how long it works; cpus: in all."""

    id: str
    user: str
    account: str
    qos: str
    partitions: tuple[str, ...]
    gpus: int
    submit_s: int
    run_s: int
    request_s: int
    nodes: int = 1
    gpu_type: str = ""
    exclusive: bool = False
    begin_s: int = 0
    after: tuple[str, ...] = ()
    array: str = ""
    array_limit: int = 0
    held: tuple[int, int] | None = None
    cancel_s: int | None = None
    cpus: int = 0

    @property
    def each(self) -> int:
        """GPUs on each of its nodes."""
        return -(-self.gpus // max(self.nodes, 1))


@dataclass(frozen=True, slots=True)
class Limit:
    """What jobs whose user, account, qos or partition is one of `of` may have at once, apart by the values of `per`."""

    name: str
    kind: str
    rank: int
    of: Mapping[str, frozenset[str]]
    per: tuple[str, ...] = ()
    gpus: int = FOREVER_S
    jobs: int = FOREVER_S
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Nodes that are away by plan."""

    name: str
    nodes: tuple[str, ...]
    from_s: int
    to_s: int
    known_s: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """A node that is away without a plan."""

    node: str
    from_s: int
    to_s: int


@dataclass(frozen=True, slots=True)
class Account:
    """Shares beside its siblings', the account above (empty: the root), and its users' shares."""

    shares: int
    parent: str
    users: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Priorities:
    """The site's weights and what they weigh."""

    age: int = 0
    fairshare: int = 0
    job_size: int = 0
    partition: int = 0
    qos: int = 0
    max_age_s: int = 7 * 86_400
    half_life_s: int = 7 * 86_400
    of_qos: Mapping[str, int] = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """A site and what its users want of it. others: nodes without GPUs, which count for the sizes of jobs alone."""

    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    jobs: tuple[Job, ...]
    limits: tuple[Limit, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    failures: tuple[Failure, ...] = ()
    priorities: Priorities = Priorities()
    others: tuple[Node, ...] = ()


@dataclass(slots=True)
class Attempt:
    """One time that a job was in the queue, and perhaps ran. No start: it was cancelled before, or never came to run."""

    job: Job
    submit_s: int
    eligible_s: int | None = None
    start_s: int | None = None
    end_s: int | None = None
    state: str = "PENDING"
    partition: str = ""
    place: Place = field(default_factory=dict)
    priority: int = 0
    waited: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    limited_by: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    used_by: dict[tuple[str, str], Fraction] = field(default_factory=lambda: defaultdict(Fraction))

    @property
    def wait_s(self) -> int:
        """Seconds in the queue, of one that started."""
        assert self.start_s is not None
        return self.start_s - self.submit_s

    @property
    def queue_wait_s(self) -> int:
        """Seconds in the queue since it was eligible, of one that started."""
        assert self.start_s is not None and self.eligible_s is not None
        return self.start_s - self.eligible_s

    def believed_end_s(self) -> int:
        """When the scheduler thinks that it ends."""
        assert self.start_s is not None
        return self.start_s + self.job.request_s


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a job waits: the test that it fails, the limit if it is one, and the parts of those who have the nodes."""

    name: str
    limit: str = ""
    holders: Mapping[tuple[str, str], Fraction] = field(default_factory=dict)


class Book:
    """Who has how many GPUs of each node, and when: what runs, what is promised and what is in maintenance.

    Parameters
    ----------
    nodes : in their order.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.size = {node.name: node.gpus for node in nodes}
        self.taken: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self.size}

    def take(self, place: Place, from_s: int, to_s: int) -> None:
        """Somebody has GPUs from one instant to another."""
        for node, gpus in place.items():
            self.taken[node].append((from_s, to_s, gpus))

    def free(self, node: str, from_s: int, to_s: int) -> int:
        """The GPUs of a node that are free all the time from one instant to another."""
        if not self.taken[node]:
            return self.size[node]
        there = [
            (begin_s, end_s, gpus)
            for begin_s, end_s, gpus in self.taken[node]
            if begin_s < to_s and end_s > from_s
        ]
        begins = {max(from_s, begin_s) for begin_s, _, _ in there}
        most = max(
            (sum(gpus for begin_s, end_s, gpus in there if begin_s <= at_s < end_s) for at_s in begins),
            default=0,
        )
        return self.size[node] - most

    def ends(self, after_s: int) -> list[int]:
        """The instants at which GPUs become free."""
        return sorted(
            {end_s for taken in self.taken.values() for _, end_s, _ in taken if after_s < end_s < FOREVER_S}
        )


class Reference:
    """One run of a world under rules.

    Parameters
    ----------
    world, rules : what happens, and what the scheduler does.
    """

    def __init__(self, world: World, rules: Rules | None = None) -> None:
        self.world, self.rules = world, rules or Rules()
        self.node = {node.name: node for node in world.nodes}
        self.partition = {one.name: one for one in world.partitions}
        self.place_of = {job.id: at for at, job in enumerate(world.jobs)}
        self.attempts: list[Attempt] = []
        self.waiting: list[Attempt] = []
        self.running: list[Attempt] = []
        self.ended: set[str] = set()
        self.down: set[str] = set()
        self.usage: dict[tuple[str, str], float] = {}
        self.cause: dict[int, Cause] = {}
        #: as made: at which pass, to whom, for when
        self.promised: list[tuple[int, str, int]] = []
        self.now_s, self.next_plan_s = 0, -FOREVER_S
        self.times: list[int] = []
        self._nodes_for: dict[tuple[str, str], list[str]] = {}
        #: jobs and GPUs that run, by limit and group
        self.tally: dict[tuple[str, ...], tuple[int, int]] = {}
        self._counted: dict[str, list[tuple[Limit, tuple[str, ...]]]] = {}

    def run(self) -> list[Attempt]:
        """All attempts, in the order of their submission."""
        world = self.world
        self._wake(
            time
            for job in world.jobs
            for time in (job.submit_s, job.begin_s, *(job.held or ()), job.cancel_s or 0)
        )
        self._wake(time for one in world.maintenance for time in (one.known_s, one.from_s, one.to_s))
        self._wake(time for one in world.failures for time in (one.from_s, one.to_s))
        coming = sorted(world.jobs, key=lambda job: job.submit_s)
        arrived = 0
        self.now_s = coming[0].submit_s if coming else 0
        while self.times:
            now_s = heapq.heappop(self.times)
            if now_s < self.now_s or (self.times and self.times[0] == now_s):
                continue
            self._pass_time(now_s)
            self._end_jobs()
            self._fail_nodes()
            while arrived < len(coming) and coming[arrived].submit_s <= now_s:
                self._submit(Attempt(coming[arrived], coming[arrived].submit_s))
                arrived += 1
            self._cancel_jobs()
            self._make_pass()
            if not self.waiting and not self.running and arrived == len(coming):
                break
        return self.attempts

    def _wake(self, times_s: Iterable[int]) -> None:
        for time_s in times_s:
            if time_s < FOREVER_S:
                heapq.heappush(self.times, time_s)

    # -- what happens ------------------------------------------------------------------------------------------------

    def _pass_time(self, now_s: int) -> None:
        """Account the stretch up to now: its causes to those who waited, its CPU time to those who ran."""
        seconds = now_s - self.now_s
        for attempt in self.waiting:
            cause = self.cause[id(attempt)]
            attempt.waited[cause.name] += seconds
            if cause.limit:
                attempt.limited_by[cause.limit] += seconds
            for holder, part in cause.holders.items():
                attempt.used_by[holder] += part * seconds
        half_life_s = self.world.priorities.half_life_s
        rate = math.log(2) / half_life_s if half_life_s else 0.0
        kept = math.exp(-rate * seconds)
        had: dict[tuple[str, str], int] = defaultdict(int)
        for attempt in self.running:
            had[attempt.job.account, attempt.job.user] += attempt.job.cpus
        for owner in {**self.usage, **had}:
            gained = had.get(owner, 0) * ((1 - kept) / rate if rate else seconds)
            self.usage[owner] = self.usage.get(owner, 0.0) * kept + gained
        self.now_s = now_s

    def _submit(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        self.waiting.append(attempt)

    def _end_jobs(self) -> None:
        for attempt in [one for one in self.running if one.end_s == self.now_s]:
            self.running.remove(attempt)
            self._count(attempt, -1)
            self.ended.add(attempt.job.id)
            attempt.state = "COMPLETED" if attempt.job.run_s <= attempt.job.request_s else "TIMEOUT"

    def _fail_nodes(self) -> None:
        self.down = {one.node for one in self.world.failures if one.from_s <= self.now_s < one.to_s}
        for attempt in [one for one in self.running if self.down & set(one.place)]:
            self.running.remove(attempt)
            self._count(attempt, -1)
            attempt.state, attempt.end_s = "NODE_FAIL", self.now_s
            again = Attempt(attempt.job, self.now_s)
            self._wake([self.now_s + self.rules.requeue_delay_s])
            self._submit(again)

    def _cancel_jobs(self) -> None:
        for attempt in [one for one in self.waiting if one.job.cancel_s is not None]:
            assert attempt.job.cancel_s is not None
            if attempt.submit_s <= attempt.job.cancel_s <= self.now_s:
                self.waiting.remove(attempt)
                attempt.state, attempt.end_s = "CANCELLED", self.now_s
                self.ended.add(attempt.job.id)

    # -- the pass ----------------------------------------------------------------------------------------------------

    def _make_pass(self) -> None:
        """Start what may start now, and note why everybody else waits."""
        now_s = self.now_s
        early = {id(one): why for one in self.waiting if (why := self._not_yet(one))}
        for attempt in self.waiting:
            if id(attempt) not in early and attempt.eligible_s is None:
                attempt.eligible_s = now_s
        plans = self.rules.backfills and now_s >= self.next_plan_s
        if plans and self.rules.plan_every_s:
            self.next_plan_s = now_s + self.rules.plan_every_s
        book = self._book()
        left, blocked = self.rules.promises if plans else 0, set[str]()
        for attempt, priority in self._in_order([one for one in self.waiting if id(one) not in early]):
            job = attempt.job
            if (
                self._array_is_full(job)
                or self._limit_on(job)
                or (not plans and set(job.partitions) <= blocked)
            ):
                continue
            found = self._find(book, job, now_s)
            if found is not None:
                self._start(attempt, *found, priority)
                book.take(attempt.place, now_s, attempt.believed_end_s())
            elif not plans:
                blocked |= set(job.partitions)
            elif left and (promise := self._soonest(book, job)) is not None:
                left -= 1
                start_s, place = promise
                self.promised.append((now_s, job.id, start_s))
                book.take(place, start_s, start_s + job.request_s)
        if self.waiting and self.rules.backfills and self.rules.plan_every_s:
            self._wake([self.next_plan_s])
        self._explain(early, book)

    def _explain(self, early: Mapping[int, str], with_promises: Book) -> None:
        """Why everybody waits who still does."""
        beside_running, empty = self._book(), self._book(running=False)
        memo: dict[tuple[object, ...], Cause] = {}
        self.cause = {}
        for attempt in self.waiting:
            job = attempt.job
            why = early.get(id(attempt), "")
            array = f"array {job.array}" if self._array_is_full(job) else ""
            limit = "" if why else self._limit_on(job) or array
            shape = (
                why,
                limit,
                job.partitions,
                job.gpu_type,
                job.gpus,
                job.nodes,
                job.exclusive,
                job.request_s,
            )
            if shape not in memo:
                memo[shape] = (
                    Cause(why) if why else self._why(job, limit, beside_running, with_promises, empty)
                )
            self.cause[id(attempt)] = memo[shape]

    def _not_yet(self, attempt: Attempt) -> str:
        """Why a job is not in the queue yet, if it is not (but for its array's limit, which the pass asks)."""
        job, now_s = attempt.job, self.now_s
        again = attempt.submit_s != job.submit_s
        if now_s < job.begin_s or any(name not in self.ended for name in job.after):
            return "not eligible"
        if again and now_s < attempt.submit_s + self.rules.requeue_delay_s:
            return "not eligible"
        if job.held is not None and job.held[0] <= now_s < job.held[1]:
            return "held"
        return ""

    def _array_is_full(self, job: Job) -> bool:
        tasks = sum(1 for one in self.running if one.job.array == job.array) if job.array_limit else 0
        return bool(job.array_limit) and tasks >= job.array_limit

    def _limit_on(self, job: Job) -> str:
        """The first limit that lets a job not start now; empty: none."""
        counted = self._counts_for(job)
        least: dict[str, int] = {}
        for limit, _ in counted:
            least[limit.kind] = min(limit.rank, least.get(limit.kind, limit.rank))
        for limit, group in counted:
            jobs, gpus = self.tally.get(group, (0, 0))
            if limit.rank == least[limit.kind] and (jobs + 1 > limit.jobs or gpus + job.gpus > limit.gpus):
                return limit.name
        return ""

    def _counts_for(self, job: Job) -> list[tuple[Limit, tuple[str, ...]]]:
        """The limits that a job counts against, each with the group of jobs that it counts in."""
        if job.id not in self._counted:
            self._counted[job.id] = [
                (limit, (limit.name, *(getattr(job, name) for name in limit.per)))
                for limit in self.world.limits
                if _is_of(limit, job)
            ]
        return self._counted[job.id]

    def _count(self, attempt: Attempt, sign: int) -> None:
        """A job that starts or ends counts against its limits, or no more."""
        for _, group in self._counts_for(attempt.job):
            jobs, gpus = self.tally.get(group, (0, 0))
            self.tally[group] = jobs + sign, gpus + sign * sum(attempt.place.values())

    def _in_order(self, attempts: Sequence[Attempt]) -> list[tuple[Attempt, int]]:
        given = self.world.priorities
        fair = fair_tree(given.accounts, self.usage) if given.fairshare else {}
        ranked = [(one, self._priority(one, fair)) for one in attempts]
        tier = {id(one): max(self.partition[name].tier for name in one.job.partitions) for one in attempts}
        ranked.sort(key=lambda of: (-tier[id(of[0])], -of[1], of[0].submit_s, self.place_of[of[0].job.id]))
        return ranked

    def _priority(self, attempt: Attempt, fair: Mapping[tuple[str, str], float]) -> int:
        given, job = self.world.priorities, attempt.job
        since_s = attempt.submit_s if self.rules.age_from == "submit" else attempt.eligible_s
        assert since_s is not None
        every = (*self.world.nodes, *self.world.others)
        size = (max(job.nodes, 1) / len(every) + job.cpus / max(sum(node.cpus for node in every), 1)) / 2
        most = max((one.priority for one in self.world.partitions), default=1)
        priority = (
            given.age * min((self.now_s - since_s) / given.max_age_s, 1.0)
            + given.fairshare * fair.get((job.account, job.user), 0.0)
            + given.job_size * size
            + given.partition * max(self.partition[name].priority for name in job.partitions) / max(most, 1)
            + given.qos * given.of_qos.get(job.qos, 0) / max([1, *given.of_qos.values()])
        )
        return math.floor(round(priority, 6))

    def _start(self, attempt: Attempt, partition: str, place: Place, priority: int) -> None:
        job = attempt.job
        attempt.start_s, attempt.end_s = self.now_s, self.now_s + min(job.run_s, job.request_s)
        attempt.partition, attempt.place, attempt.priority, attempt.state = (
            partition,
            place,
            priority,
            "RUNNING",
        )
        self.waiting.remove(attempt)
        self.running.append(attempt)
        self._count(attempt, 1)
        self._wake([attempt.end_s])

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _book(self, *, running: bool = True) -> Book:
        """What is known to be taken, without promises."""
        book = Book(self.world.nodes)
        for attempt in self.running if running else ():
            book.take(attempt.place, self.now_s, attempt.believed_end_s())
        for one in self.world.maintenance:
            if one.known_s <= self.now_s < one.to_s:
                book.take(
                    {name: self.node[name].gpus for name in one.nodes}, max(one.from_s, self.now_s), one.to_s
                )
        return book

    def _candidates(self, job: Job, *, any_type: bool = False) -> Iterator[tuple[str, list[str]]]:
        """The partitions of a job in the order in which it tries them, each with its nodes."""
        tries = sorted(
            job.partitions,
            key=lambda name: (
                -self.partition[name].tier,
                -self.partition[name].priority,
                job.partitions.index(name),
            ),
        )
        for name in tries:
            key = (name, "" if any_type else job.gpu_type)
            if key not in self._nodes_for:
                members = set(self.partition[name].nodes)
                self._nodes_for[key] = [
                    node.name
                    for node in sorted(self.world.nodes, key=lambda one: one.name)
                    if node.name in members and key[1] in ("", node.gpu_type)
                ]
            yield name, self._nodes_for[key]

    def _find(self, book: Book, job: Job, from_s: int, *, any_type: bool = False) -> tuple[str, Place] | None:
        """Where a job has its GPUs for its whole request from an instant on; None: nowhere."""
        to_s = from_s + job.request_s
        for partition, nodes in self._candidates(job, any_type=any_type):
            up = [name for name in nodes if name not in self.down]
            free = {name: book.free(name, from_s, to_s) for name in up}
            if sum(free.values()) >= job.gpus and (place := self._placed(job, free, book.size)):
                return partition, place
        return None

    def _placed(self, job: Job, free: Mapping[str, int], size: Mapping[str, int]) -> Place:
        """The nodes that a job takes of those with free GPUs; empty: they do not do."""
        names = list(free)
        if self.rules.node_order == "fullest":
            names.sort(key=lambda name: free[name])
        if job.exclusive:
            whole = [name for name in names if free[name] == size[name] >= job.each][: max(job.nodes, 1)]
            return {name: size[name] for name in whole} if len(whole) == max(job.nodes, 1) else {}
        if job.nodes:
            some = [name for name in names if free[name] >= job.each][: job.nodes]
            return dict.fromkeys(some, job.each) if len(some) == job.nodes else {}
        if one := next((name for name in names if free[name] >= job.gpus), ""):
            return {one: job.gpus}
        place, left = {}, job.gpus
        for name in names:
            if left and free[name]:
                place[name] = min(free[name], left)
                left -= place[name]
        return {} if left else place

    def _soonest(self, book: Book, job: Job) -> tuple[int, Place] | None:
        """When a job can start at the earliest, and where; None: never by what is known."""
        for start_s in book.ends(self.now_s):
            if (found := self._find(book, job, start_s)) is not None:
                return start_s, found[1]
        return None

    # -- causes ------------------------------------------------------------------------------------------------------

    def _why(self, job: Job, limit: str, beside_running: Book, with_promises: Book, empty: Book) -> Cause:
        """The first test that an eligible job fails.

        Parameters
        ----------
        job, limit : who waits, and the limit that it is at (empty: none).
        beside_running, with_promises, empty : what is taken by jobs and maintenance; by promises, too; by maintenance alone.
        """
        now_s, to_s = self.now_s, self.now_s + job.request_s
        if self._find(empty, job, now_s) is None:
            if self._find(Book(self.world.nodes), job, now_s) is None:
                return Cause("failed nodes")
            return Cause("maintenance")
        if limit:
            return Cause("limit", limit)
        if self._find(beside_running, job, now_s) is None:
            if job.gpu_type and self._find(beside_running, job, now_s, any_type=True) is not None:
                return Cause("type")
            nodes = {name for _, names in self._candidates(job) for name in names} - self.down
            usable = {name for name in nodes if empty.free(name, now_s, to_s) == empty.size[name]}
            if sum(beside_running.free(name, now_s, to_s) for name in usable) < job.gpus:
                return Cause("nodes in use", holders=self._holders(job, usable))
            return Cause("fragmentation")
        return Cause("promised to others" if self._find(with_promises, job, now_s) is None else "order")

    def _holders(self, job: Job, usable: set[str]) -> Mapping[tuple[str, str], Fraction]:
        """Who has the GPUs of some nodes: (whose, account) with their part of all that are in use there."""
        gpus: dict[tuple[str, str], int] = defaultdict(int)
        tier = max(self.partition[name].tier for name in job.partitions)
        for one in self.running:
            whose = "own partition"
            if one.partition not in job.partitions:
                higher = self.partition[one.partition].tier > tier
                whose = "higher tier" if higher else "overlapping partition"
            if mine := sum(count for name, count in one.place.items() if name in usable):
                gpus[whose, one.job.account] += mine
        total = sum(gpus.values())
        return {holder: Fraction(count, total) for holder, count in gpus.items()}


def _is_of(limit: Limit, job: Job) -> bool:
    """Whether a job counts against a limit."""
    says = {"user": {job.user}, "account": {job.account}, "qos": {job.qos}, "partition": set(job.partitions)}
    return all(says[column] & names for column, names in limit.of.items()) and limit.gpu_type in (
        "",
        job.gpu_type,
    )


def fair_tree(
    accounts: Mapping[str, Account], usage: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str], float]:
    """The Fair Tree factor of every user of every account, after the page of that name in Slurm's documentation."""

    def below(account: str) -> list[tuple[str, str | None]]:
        of = accounts.get(account or ROOT)
        users: list[tuple[str, str | None]] = [(account or ROOT, user) for user in (of.users if of else ())]
        return users + [
            (name, None) for name, one in accounts.items() if one.parent == account and name != ROOT
        ]

    def used(account: str, user: str | None) -> float:
        if user is not None:
            return usage.get((account, user), 0.0)
        return math.fsum(used(*child) for child in below(account))

    def shares(account: str, user: str | None) -> int:
        return accounts[account].shares if user is None else accounts[account].users[user]

    def levels(parent: str) -> dict[tuple[str, str | None], float]:
        """Level fair shares among siblings: their part of the shares over their part of the usage."""
        children = below(parent)
        all_shares = sum(shares(*child) for child in children)
        all_used = math.fsum(used(*child) for child in children)
        level = {}
        for child in children:
            mine = used(*child)
            part = shares(*child) / all_shares if all_shares else 0.0
            value = (math.inf if mine <= 0 else part * all_used / mine) if part else 0.0
            level[child] = float(f"{value:.12g}")
        return level

    def ranked(children: Mapping[tuple[str, str | None], float]) -> list[list[tuple[str, str]]]:
        """Users, those of equal rank together; accounts of equal level go down as one."""
        groups: list[list[tuple[str, str]]] = []
        for value in sorted(set(children.values()), reverse=True):
            users = [
                (name, user)
                for (name, user), level in children.items()
                if level == value and user is not None
            ]
            inner = {
                child: level
                for (name, user), mine in children.items()
                if mine == value and user is None
                for child, level in levels(name).items()
            }
            further = ranked(inner)
            if users and further:
                further[0] = users + further[0]
            elif users:
                further = [users]
            groups += further
        return groups

    groups = ranked(levels(""))
    total = left = sum(map(len, groups))
    factor: dict[tuple[str, str], float] = {}
    for group in groups:
        factor |= dict.fromkeys(group, left / total)
        left -= len(group)
    return factor


def run(world: World, rules: Rules | None = None) -> list[Attempt]:
    """All attempts of all jobs of a world under rules (default: EASY)."""
    return Reference(world, rules).run()


def with_node(world: World, partition: str) -> World:
    """The world with one node more in a partition, of the kind of its last one."""
    one = next(each for each in world.partitions if each.name == partition)
    last = next(node for node in reversed(world.nodes) if node.name in one.nodes)
    stem, _, _ = last.name.rpartition("-")
    taken = [node.name.rpartition("-")[2] for node in world.nodes if node.name.startswith(f"{stem}-")]
    new = replace(last, name=f"{stem}-{1 + max(map(int, taken)):02d}")
    partitions = tuple(
        replace(each, nodes=(*each.nodes, new.name)) if last.name in each.nodes else each
        for each in world.partitions
    )
    at = world.nodes.index(last) + 1
    return replace(world, nodes=(*world.nodes[:at], new, *world.nodes[at:]), partitions=partitions)
