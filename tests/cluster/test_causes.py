"""Why jobs waited: each cause alone, sums to the second, and two slow references that share no line with the pass."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Self

import numpy as np
import pytest

from forerun.cluster.engine.kernels import causes as ck
from forerun.cluster.engine.queue_arrays import pools_of
from forerun.cluster.inputs.reach import reach_of
from forerun.cluster.summary.causes import CAUSES, HISTORY, Decided

from ..conftest import cases
from ..site.reference.past import NAMES, Past, past_of
from ..site.reference.scheduler import Attempt, Book, World, run
from ..site.reference.test_reference_scheduler import ALONE, hostile

SHAPED = Decided(ck.SHAPED, True, True)


@pytest.fixture(autouse=True)
def counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs that a running job and maintenance both have: the slow scheduler takes them off twice, from other nodes, too."""
    twice = Book.free
    monkeypatch.setattr(Book, "free", lambda book, *asked: max(twice(book, *asked), 0))


def site(seed: int, *, limits: bool = True) -> tuple[World, list[Attempt]]:
    """A drawn world whose schedule alone says why everybody waits: one partition a job, maintenance hardly announced."""
    world, rules = hostile(seed)
    size = {node.name: node.gpus for node in world.nodes}
    members = {part.name: part.nodes for part in world.partitions}
    jobs = tuple(
        replace(
            job, partitions=job.partitions[:1], array_limit=0, held=None,
            exclusive=job.exclusive and all(size[name] >= job.each for name in members[job.partitions[0]]),
        )
        for job in world.jobs
    )  # fmt: skip
    away = tuple(replace(one, known_s=one.from_s - 1) for one in world.maintenance)
    world = replace(world, jobs=jobs, maintenance=away, limits=world.limits if limits else ())
    return world, run(world, replace(rules, plan_every_s=0))


@pytest.mark.parametrize("seed", range(cases(40)))
def test_causes_are_those_of_the_slow_scheduler(seed: int) -> None:
    """It knows its own reasons; what is promised and what is order it knows from its plans, so these two together."""
    world, truth = site(seed)
    past = past_of(world, truth)
    found = past.causes(SHAPED)
    for row, one in enumerate(truth):
        true = dict.fromkeys(CAUSES, 0.0) | {
            NAMES[name]: float(seconds) for name, seconds in one.waited.items()
        }
        said = {name: float(column[row]) for name, column in found.columns().items()}
        for each in (true, said):
            each["order"] += each.pop("promised")
        assert said == true, (seed, one.job)


@pytest.mark.parametrize("cause", ALONE)
def test_a_world_in_which_one_cause_alone_is_right(cause: str) -> None:
    world, rules = ALONE[cause]
    truth = run(world, rules)
    row = next(at for at, one in enumerate(truth) if one.job.id == "1")
    if cause == "held":  # what is held is known to be so beforehand, or seen in the log
        truth[row].eligible_s = truth[row].submit_s
    past = past_of(world, truth)
    held_s = np.zeros(len(truth)) if cause == "held" else None
    found = past.causes(replace(SHAPED, backfills=rules.backfills), row, held_s=held_s)
    said = {name for name, seconds in found.columns().items() if seconds[row]}
    assert said == {NAMES[cause]}
    if cause == "limit":
        assert found.top("all") == ("limit account A: GrpJobs", 1.0)
        assert found.stretches[0].because.endswith("account A: GrpJobs = 1 job")
    if cause in ("promised to others", "order"):
        assert [one.because.rpartition(": ")[2] for one in found.stretches] == ["job 00"]


class Slow:
    """Causes by looking at everything at every instant, for worlds without limits."""

    def __init__(self, world: World, past: Past, backfills: bool) -> None:
        self.past, self.backfills = past, backfills
        self.size = [node.gpus for node in world.nodes]
        first = np.concatenate(([0], np.cumsum(self.size)))
        begin, gpus, _ = past.seats
        self.place = [
            Counter(int(np.searchsorted(first, gpu, "right")) - 1 for gpu in gpus[low:high].tolist())
            for low, high in pairwise(begin.tolist())
        ]
        self.had = list(
            zip(past.had.from_s.tolist(), past.had.to_s.tolist(), past.had.row.tolist(), strict=True)
        )
        labels = past.setting.jobs.labels
        assert labels is not None
        self.kind = list(zip(labels.partition, labels.gpu_type, strict=True))
        types, parts = past.setting.cluster.node_types(), past.setting.cluster.partitions
        self.nodes = {
            (part, name): [node for node in parts[part] if name in ("", types[node])]
            for part in parts for name in ("", *types)
        }  # fmt: skip
        self.reach = reach_of(past.setting.jobs, past.setting.cluster)
        self.windows = [(one, one.announced_s >= one.from_s) for one in past.setting.maintenance]
        self.waited: dict[tuple[int, str], float] = Counter()
        self.blamed: dict[int, float] = Counter()
        self.behind: dict[tuple[int, str, int], float] = Counter()

    def free(self, at_s: float) -> list[int]:
        """GPUs free on each node right after an instant."""
        free = list(self.size)
        for (from_s, to_s, _), place in zip(self.had, self.place, strict=True):
            for node, count in place.items() if from_s <= at_s < to_s else ():
                free[node] -= count
        return free

    def fits(self, row: int, kind: tuple[str, str], free: Sequence[int]) -> str:
        """Whether free GPUs are enough for a job on nodes of a kind."""
        there = [max(free[node], 0) for node in self.nodes[kind]]
        each, sizes = int(self.reach.each[row]), [self.size[node] for node in self.nodes[kind]]
        if sum(there) < self.past.setting.jobs.gpus[row]:
            return "nodes_in_use"
        good = sum(
            mine == whole if each < 0 else mine >= each for mine, whole in zip(there, sizes, strict=True)
        )
        return "" if good >= self.reach.count[row] else "fragmentation"

    def test(self, row: int, at_s: float) -> str:
        """The first test that a job fails; empty: none."""
        kind, until_s = self.kind[row], at_s + float(self.past.setting.jobs.request_s[row])
        away: dict[bool, set[int]] = {False: set(), True: set()}
        for window, failed in self.windows:
            if window.announced_s <= at_s < window.to_s and window.from_s < until_s:
                away[failed].update(window.nodes)
        for gone, name in ((away[True], "failed_nodes"), (away[True] | away[False], "maintenance")):
            if gone and self.fits(
                row, kind, [0 if node in gone else size for node, size in enumerate(self.size)]
            ):
                return name
        free = [0 if node in gone else count for node, count in enumerate(self.free(at_s))]
        fails = self.fits(row, kind, free)
        wider = kind[1] and self.nodes[kind[0], ""] != self.nodes[kind]
        return "gpu_type" if fails and wider and not self.fits(row, (kind[0], ""), free) else fails

    def judged(
        self, wait: int, row: int, at_s: float, to_s: float, waiting: list[int]
    ) -> tuple[float, str, int]:
        """Until when a job that fits waits for what is promised to others or by order, and behind whom."""
        until_s, kind = at_s + float(self.past.setting.jobs.request_s[row]), self.kind[row]
        if self.past.waiting.starts[wait]:
            until_s = min(until_s, to_s)
        low = self.free(at_s)
        for later_s in (
            sorted({from_s for from_s, _, _ in self.had if at_s < from_s < until_s}) if self.backfills else ()
        ):
            before = list(low)
            low = [min(was, now) for was, now in zip(low, self.free(later_s), strict=True)]
            if self.fits(row, kind, low):
                free = self.free(later_s)
                starting = [at for at, (from_s, _, _) in enumerate(self.had) if from_s == later_s]
                for at in starting:
                    for node, count in self.place[at].items():
                        free[node] += count
                for at in starting:
                    takes = {node: free[node] - count for node, count in self.place[at].items()}
                    free = [takes.get(node, count) for node, count in enumerate(free)]
                    if any(node in self.nodes[kind] and left < before[node] for node, left in takes.items()):
                        return later_s, "promised", self.had[at][2]
        rows, ends = self.past.waiting.row, self.past.waiting.to_s
        pools, kinds = pools_of(self.reach.nodes), self.reach.kind
        mine = [
            one
            for one in waiting
            if pools[kinds[rows[one]]] == pools[kinds[row]] and self.past.waiting.starts[one]
        ]
        head = min(mine, key=lambda one: (ends[one], rows[one]), default=-1)
        if head < 0:
            return until_s, "order", -1
        return min(until_s, float(ends[head])), "order", -1 if head == wait else int(rows[head])

    def run(self) -> Self:
        """All of it."""
        past, kept = self.past, dict[int, tuple[float, str, int]]()
        spans = list(
            zip(
                past.waiting.from_s.tolist(),
                past.waiting.to_s.tolist(),
                past.waiting.row.tolist(),
                strict=True,
            )
        )
        times = {at_s for one in (*spans, *self.had) for at_s in one[:2]}
        times |= {at_s for one, _ in self.windows for at_s in (one.announced_s, one.from_s, one.to_s)}
        for at_s, next_s in pairwise(sorted(times)):
            waiting = [at for at, (from_s, to_s, _) in enumerate(spans) if from_s <= at_s < to_s]
            for wait in waiting:
                row, to_s = spans[wait][2], spans[wait][1]
                cause, ahead = self.test(row, at_s), -1
                if cause:
                    kept.pop(wait, None)
                else:
                    if wait not in kept or at_s >= kept[wait][0]:
                        kept[wait] = self.judged(wait, row, at_s, to_s, waiting)
                    _, cause, ahead = kept[wait]
                    self.behind[row, cause, ahead] += next_s - at_s
                self.waited[row, cause] += next_s - at_s
                if cause == "nodes_in_use":
                    inside = self.nodes[self.kind[row]]
                    now = {at: sum(place[node] for node in inside) for at, place in enumerate(self.place)
                           if self.had[at][0] <= at_s < self.had[at][1]}  # fmt: skip
                    for at, count in now.items():
                        self.blamed[self.had[at][2]] += (next_s - at_s) * count / max(sum(now.values()), 1)
        return self


@pytest.mark.parametrize("seed", range(cases(25)))
def test_causes_are_those_of_looking_at_everything(seed: int) -> None:
    """With what is promised to whom, and who has the nodes: by the second, for every job."""
    world, truth = site(seed + 1000, limits=False)
    past, backfills = past_of(world, truth), seed % 4 > 0
    slow, found = Slow(world, past, backfills).run(), past.causes(replace(SHAPED, backfills=backfills))
    for row in range(len(truth)):
        for cause, seconds in found.columns().items():
            if cause != "not_eligible":
                assert slow.waited.get((row, cause), 0.0) == seconds[row], (seed, truth[row].job, cause)
    jobs, labels = past.setting.jobs, past.setting.jobs.labels
    assert labels is not None
    whose = list(zip(labels.partition, labels.account, jobs.user, strict=True))
    for at, owner in enumerate(found.owners):
        blamed_s = math.fsum(seconds for row, seconds in slow.blamed.items() if whose[row] == owner)
        assert found.blamed_s[:, at].sum() == pytest.approx(blamed_s, abs=1e-6)
        for number, cause in enumerate(("promised", "order")):
            behind_s = math.fsum(
                s for (_, of, ahead), s in slow.behind.items() if of == cause and ahead >= 0 and whose[ahead] == owner
            )  # fmt: skip
            assert found.behind_s[number, :, at].sum() == pytest.approx(behind_s, abs=1e-6)


@pytest.mark.parametrize("seed", range(cases(10)))
def test_where_nodes_are_not_known_every_second_has_one_cause(seed: int) -> None:
    world, truth = site(seed)
    past = past_of(world, truth)
    found = past.causes(HISTORY, named=False)
    for row, one in enumerate(truth):
        until_s = one.start_s if one.start_s is not None else one.end_s
        assert until_s is not None
        assert found.waited_s[row].sum() == until_s - one.submit_s
        for wait in past.causes(HISTORY, row, named=False).stretches:
            assert wait.cause in CAUSES and wait.to_s > wait.from_s
    assert not found.waited_s[:, list(CAUSES).index("fragmentation")].any()
