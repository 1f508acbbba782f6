"""Kueue's preemption and fair sharing: a slow reference on drawn sequences, laws, and worlds that tell settings apart."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.scenarios import load

CASES = int(os.environ.get("FORERUN_CASES", "120"))
BOTH = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


@dataclass(frozen=True)
class Job:
    queue: str
    submit: int
    seconds: int
    gpus: int
    priority: int = 0


@dataclass(frozen=True)
class Queue:
    """A ClusterQueue: by flavor (nominal, borrowing limit, lending limit), None: no limit."""

    quotas: dict[str, tuple[int, int | None, int | None]]
    cohort: str = ""
    strict: bool = False
    tries_next: bool = False
    preempts_first: bool = False
    within: str = "Never"
    reclaims: str = "Never"
    below: int | None = None  # maxPriorityThreshold; None: no borrowWithinCohort
    weight: float = 1.0


@dataclass(frozen=True)
class Case:
    queues: dict[str, Queue]
    jobs: tuple[Job, ...]
    parents: dict[str, str] = field(default_factory=dict)
    own: dict[str, dict[str, int]] = field(default_factory=dict)  # GPUs of cohorts, by flavor
    strategies: tuple[str, ...] = ()
    restart_s: int = 0

    def root(self, name: str) -> str:
        cohort = self.queues[name].cohort
        while cohort in self.parents:
            cohort = self.parents[cohort]
        return cohort

    def mates(self, name: str) -> list[str]:
        root = self.root(name)
        return [other for other in self.queues if other == name or (root and self.root(other) == root)]


def objects(case: Case) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number, (name, queue) in enumerate(case.queues.items()):
        newer = number % 2 == 1  # both versions of the API
        preemption: dict[str, Any] = {
            "withinClusterQueue": queue.within,
            "reclaimWithinCohort": queue.reclaims,
        }
        if queue.below is not None:
            preemption["borrowWithinCohort"] = {
                "policy": "LowerPriority",
                "maxPriorityThreshold": queue.below,
            }
        spec: dict[str, Any] = {
            "queueingStrategy": "StrictFIFO" if queue.strict else "BestEffortFIFO",
            "flavorFungibility": {
                "whenCanBorrow": "TryNextFlavor" if queue.tries_next else "MayStopSearch" if newer else "Borrow",
                "whenCanPreempt": "TryNextFlavor" if not queue.preempts_first else "MayStopSearch" if newer else "Preempt",
            },
            "preemption": preemption,
            "fairSharing": {"weight": f"{round(queue.weight * 1000)}m"},
            "resourceGroups": [{"flavors": [
                {"name": flavor, "resources": [
                    {"name": "nvidia.com/gpu", "nominalQuota": nominal}
                    | ({} if borrows is None else {"borrowingLimit": borrows})
                    | ({} if lends is None else {"lendingLimit": lends})
                ]} for flavor, (nominal, borrows, lends) in queue.quotas.items()
            ]}],
        }  # fmt: skip
        if queue.cohort:
            spec["cohortName" if newer else "cohort"] = queue.cohort
        made.append(kube("ClusterQueue", name, spec, version="v1beta2" if newer else "v1beta1"))
    for name in dict.fromkeys((*case.parents, *case.own)):
        cohort: dict[str, Any] = {"parent": case.parents[name]} if name in case.parents else {}
        if name in case.own:
            cohort["resourceGroups"] = [{"flavors": [
                {"name": flavor, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]}
                for flavor, gpus in case.own[name].items()
            ]}]  # fmt: skip
        made.append(kube("Cohort", name, cohort))
    sharing = {"enable": bool(case.strategies), "preemptionStrategies": list(case.strategies)}
    made.append(
        {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration", "fairSharing": sharing}
    )
    return made


def kube(kind: str, name: str, spec: dict[str, Any], version: str = "v1beta1") -> dict[str, Any]:
    return {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}


def simulated(folder: Path, case: Case, more: str = "") -> forerun.Result:
    (folder / "queues.json").write_text(json.dumps({"kind": "List", "items": objects(case)}))
    rows = [
        f"{at},{job.submit},{job.seconds},{job.gpus},{job.queue},{job.priority}"
        for at, job in enumerate(case.jobs)
    ]
    (folder / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,gpus,partition,priority\n" + "\n".join(rows) + "\n"
    )
    (folder / "s.yaml").write_text(
        "domain: cluster\ntrace: jobs.csv\nmachines: {file: queues.json}\npolicy: kueue\n"
        f"costs: {{restart_s: {case.restart_s}}}\n{more}"
    )
    return forerun.simulate(load(folder / "s.yaml"))


Runs = list[tuple[int, float, float]]


def runs(result: forerun.Result) -> Runs:
    """Who had GPUs from when to when."""
    table = result.tables["allocations"]
    columns = (table["job"].tolist(), table["from_s"].tolist(), table["to_s"].tolist())
    return joined([(int(job), from_s, to_s) for job, from_s, to_s in zip(*columns, strict=True)])


def joined(given: Runs) -> Runs:
    out: Runs = []
    for job, from_s, to_s in sorted(given):
        if out and out[-1][0] == job and out[-1][2] == from_s:
            out[-1] = (job, out[-1][1], to_s)
        else:
            out.append((job, from_s, to_s))
    return out


# ------------------------------------------------------------------------------------------------ the slow reference


@dataclass
class Reference:
    """Rules of Kueue on whole pictures of who has what: nothing is counted on, and everything is tried."""

    case: Case
    now: float = 0.0
    on: dict[int, str] = field(default_factory=dict)  # the flavor that each running job has
    since: dict[int, float] = field(default_factory=dict)

    def used(self, queue: str, flavor: str, on: dict[int, str]) -> int:
        jobs = self.case.jobs
        return sum(jobs[row].gpus for row, has in on.items() if has == flavor and jobs[row].queue == queue)

    def over(self, queue: str, flavor: str, on: dict[int, str]) -> int:
        return self.used(queue, flavor, on) - self.case.queues[queue].quotas.get(flavor, (0, 0, 0))[0]

    def allowed(self, queue: str, flavor: str, on: dict[int, str]) -> bool:
        """Whether the queue and those it shares with may have what they have."""
        beyond, spare = 0, 0
        for name in self.case.mates(queue):
            nominal, borrows, lends = self.case.queues[name].quotas.get(flavor, (0, 0, 0))
            over = self.over(name, flavor, on)
            if over > 0 and (not self.case.root(name) or (borrows is not None and over > borrows)):
                return False
            beyond += max(0, over)
            spare += min(max(0, -over), nominal if lends is None else lends)
        if root := self.case.root(queue):
            for cohort, gpus in self.case.own.items():
                top = cohort
                while top in self.case.parents:
                    top = self.case.parents[top]
                spare += gpus.get(flavor, 0) if top == root else 0
        return spare >= beyond

    def fits(self, row: int, flavor: str, without: Sequence[int] = (), borrow: bool = True) -> bool:
        on = {other: has for other, has in self.on.items() if other not in without} | {row: flavor}
        queue = self.case.jobs[row].queue
        return self.allowed(queue, flavor, on) and (borrow or self.over(queue, flavor, on) <= 0)

    def share(self, queue: str, on: dict[int, str]) -> float:
        weight = self.case.queues[queue].weight
        borrowed = sum(max(0, self.over(queue, flavor, on)) for flavor in ("f", "g"))
        return borrowed / weight if weight else math.inf if borrowed else 0.0

    def plan(self, row: int, may_stop: bool) -> tuple[bool, str, list[int]] | None:
        """Whether it would borrow, the flavor, and whom it stops."""
        job = self.case.jobs[row]
        queue = self.case.queues[job.queue]
        fitting, stopping = [], []
        for flavor in queue.quotas:
            borrows = self.over(job.queue, flavor, self.on) + job.gpus > 0
            if self.fits(row, flavor):
                fitting.append((borrows, flavor, list[int]()))
                if not borrows or not queue.tries_next:
                    break
            elif may_stop and (targets := self.targets(row, flavor)):
                rest = {other: has for other, has in self.on.items() if other not in targets}
                stopping.append((self.over(job.queue, flavor, rest) + job.gpus > 0, flavor, targets))
                if queue.preempts_first:
                    break
        if fitting:
            return next((one for one in fitting if not one[0]), fitting[0])
        return stopping[0] if stopping else None

    def targets(self, row: int, flavor: str) -> list[int]:
        job, jobs = self.case.jobs[row], self.case.jobs
        queue = self.case.queues[job.queue]
        reclaims = queue.reclaims != "Never" and queue.cohort != ""
        above = queue.below is not None or (reclaims and self.case.strategies)
        if job.gpus > queue.quotas[flavor][0] and not above:
            return []
        own, others = [], []
        for other, has in self.on.items():
            they = jobs[other]
            if has != flavor:
                continue
            lower = they.priority < job.priority
            newer = they.priority == job.priority and they.submit > job.submit
            allowed = lower or queue.reclaims == "Any"
            if they.queue == job.queue:
                if queue.within != "Never" and (
                    lower or (newer and queue.within == "LowerOrNewerEqualPriority")
                ):
                    own.append(other)
            elif reclaims and allowed and they.queue in self.case.mates(job.queue):
                others += [other] if self.over(they.queue, flavor, self.on) > 0 else []

        def key(other: int) -> tuple[float, ...]:
            return jobs[other].priority, -self.since[other], -other

        own.sort(key=key)
        others.sort(key=key)
        if self.case.strategies:
            return self.by_share(row, flavor, own, others)
        tries = []
        if not others:
            tries = [(own, True)]
        else:
            if queue.below is not None:
                low = [
                    o for o in others if jobs[o].priority < job.priority and jobs[o].priority <= queue.below
                ]
                tries.append((low + own, True))
            if self.over(job.queue, flavor, self.on) < 0:
                tries.append((others + own, False))
            tries.append((own, True))
        for candidates, borrow in tries:
            taken: list[int] = []
            for other in candidates:
                rest = {one: has for one, has in self.on.items() if one not in taken}
                if jobs[other].queue != job.queue and self.over(jobs[other].queue, flavor, rest) <= 0:
                    continue
                taken.append(other)
                if self.fits(row, flavor, taken, borrow):
                    return self.fewest(row, flavor, taken, borrow)
        return []

    def fewest(self, row: int, flavor: str, taken: list[int], borrow: bool) -> list[int]:
        for other in reversed(taken[:-1]):
            fewer = [one for one in taken if one != other]
            if self.fits(row, flavor, fewer, borrow):
                taken = fewer
        return taken

    def by_share(self, row: int, flavor: str, own: list[int], others: list[int]) -> list[int]:
        jobs, names = self.case.jobs, list(self.case.queues)
        mine = jobs[row].queue
        taken: list[int] = []
        for strategy in self.case.strategies:
            given_up: set[str] = set()
            while True:
                on = {one: has for one, has in self.on.items() if one not in taken}
                mine_then = self.share(mine, on | {row: flavor})
                left = [
                    one for one in (*own, *others) if one not in taken and jobs[one].queue not in given_up
                ]
                if not left:
                    break
                most = max(
                    {jobs[one].queue for one in left},
                    key=lambda q: (mine_then if q == mine else self.share(q, on), names.index(q)),
                )
                chosen = None
                for other in (one for one in left if jobs[one].queue == most):
                    rest = {one: has for one, has in on.items() if one != other}
                    if most == mine or (
                        self.over(most, flavor, on) > 0
                        and (
                            mine_then <= self.share(most, rest)
                            if strategy == BOTH[0]
                            else mine_then < self.share(most, on)
                        )
                    ):
                        chosen = other
                        break
                if chosen is None:
                    given_up.add(most)
                    continue
                taken.append(chosen)
                if self.fits(row, flavor, taken):
                    return self.fewest(row, flavor, taken, True)
        return []

    def decide(self, waiting: set[int]) -> None:
        """All cycles of an instant. waiting: changed."""
        has_stopped: set[int] = set()
        while self.cycles(waiting, has_stopped):
            pass

    def cycles(self, waiting: set[int], has_stopped: set[int]) -> bool:
        jobs, passed, closed = self.case.jobs, set[int](), set[str]()
        while True:
            heads: dict[str, int] = {}
            for row in sorted(waiting - passed, key=lambda one: (-jobs[one].priority, one)):
                if jobs[row].queue not in closed:
                    heads.setdefault(jobs[row].queue, row)
            if not heads:
                return False
            plans = {}
            for queue, row in heads.items():
                plan = self.plan(row, row not in has_stopped)
                if plan is not None:
                    plans[row] = plan
                elif self.case.queues[queue].strict:
                    closed.add(queue)
                else:
                    passed.add(row)
            stopped = False
            while plans:
                ranks = {}
                for row, (borrows, flavor, _) in plans.items():
                    share = self.share(jobs[row].queue, self.on | {row: flavor})
                    ranks[row] = (share if self.case.strategies else borrows, -jobs[row].priority, row)
                row = min(ranks.values())[2]
                plan = self.plan(row, bool(plans.pop(row)[2]))
                if plan is None:
                    continue
                for other in plan[2]:
                    del self.on[other]
                    waiting.add(other)
                    has_stopped.add(row)
                    stopped = True
                self.on[row], self.since[row] = plan[1], self.now
                waiting.discard(row)
            if stopped:
                return True


def reference(case: Case) -> Runs:
    """Who has GPUs from when to when."""
    world = Reference(case)
    jobs = case.jobs
    left = {row: float(job.seconds) for row, job in enumerate(jobs)}
    started: dict[int, float] = {}  # of those who run
    works_from: dict[int, float] = {}
    ever: set[int] = set()
    waiting: set[int] = set()
    out: Runs = []
    to_come = sorted({float(job.submit) for job in jobs})
    while to_come or world.on:
        ends = {row: works_from[row] + left[row] for row in world.on}
        now = world.now = min([*to_come[:1], *ends.values()])
        to_come = [at for at in to_come if at > now]
        for row, end in ends.items():
            if end <= now:
                del world.on[row]
                left[row] = 0
                out.append((row, started.pop(row), now))
        waiting |= {row for row, job in enumerate(jobs) if job.submit == now}
        before, since = dict(world.on), dict(world.since)
        world.decide(waiting)
        for row, flavor in before.items():
            if world.on.get(row) == flavor:
                world.since[row] = since[row]  # it went on
                continue
            left[row] -= max(0.0, now - works_from[row])
            out.append((row, started.pop(row), now))
        for row in world.on:
            if row not in started:
                started[row] = now
                works_from[row] = now + (case.restart_s if row in ever else 0)
                ever.add(row)
    assert not waiting
    return joined([one for one in out if one[1] < one[2]])


# ------------------------------------------------------------------------------------------------ drawn sequences


def drawn(number: int, flavors: int = 2) -> Case:
    rng = np.random.default_rng(number)

    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    names = ["qa", "qb", "qc"][: int(rng.integers(1, 4))]
    known = ["f", "g"][: int(rng.integers(1, flavors + 1))]
    shape = one("alone", "flat", "flat", "flat", "tree")
    queues = {}
    for name in names:
        cohort = {"alone": "", "flat": "all", "tree": one("left", "right", "all")}[shape]
        quotas = {}
        for flavor in rng.permutation(known).tolist():
            nominal = int(rng.integers(2, 7))
            quotas[flavor] = (
                nominal,
                int(rng.integers(0, 5)) if cohort and rng.random() < 0.3 else None,
                int(rng.integers(0, nominal + 1)) if cohort and rng.random() < 0.3 else None,
            )
        reclaims = one("Never", "LowerPriority", "Any", "Any")
        queues[name] = Queue(
            quotas, cohort, strict=bool(rng.random() < 0.3), tries_next=bool(rng.random() < 0.4),
            preempts_first=bool(rng.random() < 0.3), within=one("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
            reclaims=reclaims, below=None if reclaims == "Never" else one(None, None, 0, 1, 9),
            weight=one(1.0, 1.0, 2.0, 0.5, 0.0),
        )  # fmt: skip
    jobs = []
    for submit in np.sort(rng.integers(0, 40, int(rng.integers(2, 20)))).tolist():
        queue = one(*names)
        most = max(nominal for nominal, _, _ in queues[queue].quotas.values())
        size = int(rng.integers(1, most + 1))
        jobs.append(Job(queue, submit, int(rng.integers(1, 30)), size, int(rng.integers(0, 3))))
    first = jobs[0].submit
    jobs = [replace(job, submit=job.submit - first) for job in jobs]
    tree = shape == "tree"
    return Case(
        queues, tuple(jobs), parents={"left": "all", "right": "all"} if tree else {},
        own={"left": {"f": int(rng.integers(0, 4))}} if tree else {},
        strategies=one((), (), BOTH, BOTH[:1], BOTH[1:]), restart_s=one(0, 0, 3),
    )  # fmt: skip


@pytest.mark.parametrize("block", range(4))
def test_runs_are_those_of_the_reference(tmp_path: Path, block: int) -> None:
    stopped = 0
    for number in range(block, CASES, 4):
        case = drawn(number)
        result = simulated(tmp_path, case)
        assert runs(result) == reference(case), number
        stopped += int(result.tables["jobs"]["preemptions"].sum())
    assert stopped > 5


# ------------------------------------------------------------------------------------------------ laws


def instants(case: Case, given: Runs) -> Iterator[tuple[float, dict[str, list[int]], list[int]]]:
    """At each instant at which something changes: it, who runs by queue, and who waits."""
    end = {
        row: max((to_s for job, _, to_s in given if job == row), default=0.0) for row in range(len(case.jobs))
    }
    for now in sorted({at for _, from_s, to_s in given for at in (from_s, to_s)}):
        running = {row for row, from_s, to_s in given if from_s <= now < to_s}
        by_queue = {
            name: [row for row in sorted(running) if case.jobs[row].queue == name] for name in case.queues
        }
        yield (
            now,
            by_queue,
            [row for row, job in enumerate(case.jobs) if job.submit <= now < end[row] and row not in running],
        )


def test_laws_of_quotas_and_preemption(tmp_path: Path) -> None:
    seen = {"borrows": 0, "stopped": 0, "waits beside lower": 0, "waits beside borrowers": 0}
    for number in range(10_000, 10_000 + CASES // 2):
        case = drawn(number, flavors=1)
        given = runs(simulated(tmp_path, case))
        before: set[int] = set()
        for now, running, waiting in instants(case, given):
            used = {name: sum(case.jobs[row].gpus for row in rows) for name, rows in running.items()}
            now_running = {row for rows in running.values() for row in rows}
            over = {name: used[name] - queue.quotas["f"][0] for name, queue in case.queues.items()}
            for name, queue in case.queues.items():
                _, borrows, _ = queue.quotas["f"]
                seen["borrows"] += over[name] > 0
                assert over[name] <= (0 if not queue.cohort else math.inf if borrows is None else borrows), (
                    number
                )
            for row in waiting:
                job, queue = case.jobs[row], case.queues[case.jobs[row].queue]
                within = over[job.queue] + job.gpus <= 0
                lower = [one for one in running[job.queue] if case.jobs[one].priority < job.priority]
                freed = sum(case.jobs[one].gpus for one in lower)
                lent = any(over[one] > 0 for one in case.mates(job.queue) if one != job.queue)
                if queue.within != "Never" and not queue.strict and lower and not lent:
                    seen["waits beside lower"] += 1
                    assert over[job.queue] - freed + job.gpus > 0, (number, now, row)
                if (
                    queue.reclaims == "Any"
                    and not queue.strict
                    and any(over[one] > 0 for one in case.mates(job.queue))
                ):
                    seen["waits beside borrowers"] += 1
                    assert not within, (number, now, row)
            for row in before - now_running:
                if row in waiting:
                    seen["stopped"] += 1
                    assert any(may_stop(case, by, row) for by in now_running - before), (number, now, row)
            before = now_running
    assert min(seen.values()) > 5, seen


def may_stop(case: Case, by: int, row: int) -> bool:
    """Whether the queue of a job that starts lets it stop another."""
    job, other = case.jobs[by], case.jobs[row]
    queue = case.queues[job.queue]
    lower = other.priority < job.priority
    if job.queue == other.queue:
        newer = other.priority == job.priority and other.submit > job.submit
        return queue.within != "Never" and (lower or (queue.within == "LowerOrNewerEqualPriority" and newer))
    mates = other.queue in case.mates(job.queue)
    return mates and (queue.reclaims == "Any" or (queue.reclaims == "LowerPriority" and lower))


def test_nodes_hold_what_is_started_where_others_were_stopped(tmp_path: Path) -> None:
    """With a placement, the engine checks every node; jobs that go on stay where they are."""
    stopped = 0
    for number in range(20_000, 20_000 + CASES // 6):
        case = replace(drawn(number, flavors=1), restart_s=0)  # who stops and goes on at an instant may move
        simulated(tmp_path, case)
        total = sum(queue.quotas["f"][0] for queue in case.queues.values())
        total += sum(gpus["f"] for gpus in case.own.values())
        nodes = f"machines: {{nodes: [{{count: {total}, gpus: 1, gpu_type: f}}], site: [queues.json]}}"
        text = (tmp_path / "s.yaml").read_text().replace("machines: {file: queues.json}", nodes)
        (tmp_path / "s.yaml").write_text(text + "placement: best-fit\n")
        result = forerun.simulate(load(tmp_path / "s.yaml"))
        assert runs(result) == reference(case), number  # nodes of one GPU each forbid nothing
        stopped += int(result.tables["jobs"]["preemptions"].sum())
    assert stopped


# ------------------------------------------------------------------------------------------------ every setting


def starts(folder: Path, case: Case) -> list[float]:
    return list(simulated(folder, case).tables["jobs"]["first_start_s"].tolist())


def quota(gpus: int) -> dict[str, tuple[int, int | None, int | None]]:
    return {"f": (gpus, None, None)}


@pytest.mark.parametrize(
    ("reclaims", "starts_s"),
    [("Never", [0, 1, 100, 100]), ("LowerPriority", [0, 1, 10, 100]), ("Any", [0, 1, 10, 20])],
)
def test_what_reclaiming_means(tmp_path: Path, reclaims: str, starts_s: list[float]) -> None:
    queues = {"a": Queue(quota(4), "all", reclaims=reclaims), "b": Queue(quota(4), "all")}
    jobs = (Job("b", 0, 100, 6, 1), Job("b", 1, 100, 2, 0), Job("a", 10, 200, 2, 1), Job("a", 20, 200, 2, 1))
    assert starts(tmp_path, Case(queues, jobs)) == starts_s


@pytest.mark.parametrize(
    ("within", "starts_s"),
    [
        ("Never", [0, 202, 2, 302]), ("LowerPriority", [0, 202, 2, 210]),
        ("LowerOrNewerEqualPriority", [0, 50, 2, 210]),
    ],
)  # fmt: skip
def test_what_preempting_in_the_queue_means(tmp_path: Path, within: str, starts_s: list[float]) -> None:
    jobs = (Job("a", 0, 50, 3, 1), Job("a", 1, 100, 4), Job("a", 2, 200, 1), Job("a", 210, 9, 4, 2))
    assert starts(tmp_path, Case({"a": Queue(quota(4), within=within)}, jobs)) == starts_s


@pytest.mark.parametrize(
    ("below", "starts_s"), [(None, [0, 1, 500, 520]), (0, [0, 1, 10, 500]), (1, [0, 1, 10, 40])]
)
def test_what_borrowing_by_preemption_means(tmp_path: Path, below: int | None, starts_s: list[float]) -> None:
    queues = {
        "a": Queue(quota(4), "all", reclaims="Any", below=below),
        "b": Queue(quota(2), "all"), "c": Queue(quota(2), "all"),
    }  # fmt: skip
    jobs = (Job("b", 0, 500, 3, 1), Job("b", 1, 500, 3, 0), Job("a", 10, 20, 5, 3), Job("a", 40, 30, 6, 3))
    assert starts(tmp_path, Case(queues, jobs)) == starts_s


@pytest.mark.parametrize(
    ("strategies", "weight", "starts_s"),
    [
        ((), 1, [0, 1, 500, 500]), (BOTH[:1], 1, [0, 1, 10, 500]), (BOTH[1:], 1, [0, 1, 10, 40]),
        (BOTH, 1, [0, 1, 10, 40]), (BOTH[:1], 8, [0, 1, 500, 500]), (BOTH[1:], 8, [0, 1, 10, 500]),
    ],
)  # fmt: skip
def test_what_sharing_fairly_means(
    tmp_path: Path, strategies: tuple[str, ...], weight: float, starts_s: list[float]
) -> None:
    """A queue of 2 wants 3, then 5; the other, of 2 and a weight, has jobs of 9 and 3."""
    queues = {
        "a": Queue(quota(2), "all", reclaims="Any"),
        "b": Queue(quota(2), "all", weight=weight), "c": Queue(quota(8), "all"),
    }  # fmt: skip
    jobs = (Job("b", 0, 500, 9), Job("b", 1, 499, 3), Job("a", 10, 20, 3), Job("a", 40, 30, 5))
    assert starts(tmp_path, Case(queues, jobs, strategies=strategies)) == starts_s


def test_the_share_that_is_least_goes_first(tmp_path: Path) -> None:
    """Two queues want what a third lends; with fair sharing the heavier one goes first, else the older job does."""
    queues = {
        "a": Queue(quota(0), "all"), "b": Queue(quota(0), "all", weight=4), "c": Queue(quota(4), "all"),
    }  # fmt: skip
    jobs = (Job("c", 0, 10, 4), Job("a", 1, 10, 4), Job("b", 2, 10, 4))
    assert starts(tmp_path, Case(queues, jobs)) == [0, 10, 20]
    assert starts(tmp_path, Case(queues, jobs, strategies=BOTH)) == [0, 20, 10]


def test_which_flavor_is_left_for_preemption(tmp_path: Path) -> None:
    """`whenCanPreempt`: stop somebody on the first flavor, or go to the next; `whenCanBorrow` is in test_kueue."""
    two = {"f": (2, None, None), "g": (2, None, None)}
    jobs = (Job("a", 0, 50, 2, 0), Job("a", 5, 20, 2, 1))
    ends_s = []
    for preempts_first in (False, True):
        queue = Queue(two, within="LowerPriority", preempts_first=preempts_first)
        ends_s.append(
            simulated(tmp_path, Case({"a": queue}, jobs, restart_s=7)).tables["jobs"]["end_s"].tolist()
        )
    assert ends_s == [[50, 25], [57, 25]]  # the first job is stopped, and starts again on the other flavor


def test_restarts_cost_what_the_scenario_says(tmp_path: Path) -> None:
    queue = {"a": Queue(quota(4), within="LowerPriority")}
    case = Case(queue, (Job("a", 0, 50, 4, 0), Job("a", 20, 10, 4, 1)), restart_s=7)
    assert runs(simulated(tmp_path, case)) == [(0, 0, 20), (0, 30, 67), (1, 20, 30)]
