"""Backfilling on named nodes, slowly: a table of free GPUs made from nothing at every decision.

Each decision lists, for every node, who takes how many of its GPUs from when to when: running jobs until their believed end,
announced maintenance, promises. A job's start is looked for at every instant at which anything ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.cluster.inputs.arrays import Jobs
from forerun.cluster.inputs.limits import Tally
from forerun.cluster.inputs.reach import WHOLE_NODE, Reach, reach_of
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policies.orders.wfp3 import Wfp3

#: GPUs by node
OnNodes = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Held:
    """GPUs of nodes that are taken from one instant to another."""

    from_s: float
    to_s: float
    on: OnNodes


@dataclass
class Table:
    """Who takes what."""

    size: Sequence[int]
    held: list[Held] = field(default_factory=list)

    def free(self, node: int, from_s: float, to_s: float) -> int:
        """The fewest GPUs of a node that are free at once."""
        mine = [
            (one.from_s, one.to_s, gpus)
            for one in self.held
            for where, gpus in one.on
            if where == node and one.from_s < to_s and one.to_s > from_s
        ]
        instants = {from_s, *(begin for begin, _, _ in mine if begin > from_s)}
        return self.size[node] - max(
            sum(gpus for begin, end, gpus in mine if begin <= at_s < end) for at_s in instants
        )

    def instants(self, now_s: float) -> list[float]:
        return sorted({now_s, *(one.to_s for one in self.held if now_s < one.to_s < math.inf)})


@dataclass
class Reference:
    """A run on a setting, under a policy and one of the placements first-fit and best-fit."""

    made: Setting
    policy: BackfillPolicy
    placement: str

    def __post_init__(self) -> None:
        self.jobs: Jobs = self.made.jobs
        self.reach: Reach = reach_of(self.jobs, self.made.cluster)
        self.size = self.made.cluster.node_gpus().tolist()
        names = self.made.cluster.node_types()
        self.types = [list(dict.fromkeys(names)).index(name) for name in names]
        self.start_s = [math.inf] * len(self.jobs)
        self.end_s = [math.inf] * len(self.jobs)
        self.on: list[OnNodes] = [()] * len(self.jobs)
        self.promised: dict[int, Held] = {}

    def shares(self, job: int, largest: int) -> list[int]:
        """GPUs on each of a job's nodes."""
        gpus, said = int(self.jobs.gpus[job]), int(self.reach.said[job])
        if said:
            return [gpus // said + 1] * (gpus % said) + [gpus // said] * (said - gpus % said)
        return [largest] * (gpus // largest) + [gpus % largest] * (gpus % largest > 0)

    def place(self, job: int, table: Table, from_s: float, types: Sequence[int]) -> OnNodes:
        """Nodes of some types for a job from an instant on; empty: none."""
        whole = self.reach.each[job] == WHOLE_NODE
        mine = [
            node
            for node in np.flatnonzero(self.reach.nodes[self.reach.kind[job]]).tolist()
            if self.types[node] in types
        ]
        if not mine:
            return ()
        free = {node: table.free(node, from_s, from_s + self.request_s(job)) for node in mine}
        largest, on = max(self.size[node] for node in mine), list[tuple[int, int]]()
        for share in self.shares(job, largest):
            fitting = [
                node for node in free if free[node] >= (max(share, self.size[node]) if whole else share)
            ]
            if not fitting:
                return ()
            node = fitting[0]
            if self.placement == "best-fit" and not whole:
                node = min(fitting, key=lambda one: (free[one], one))
            on.append((node, self.size[node] if whole else share))
            del free[node]
        return tuple(on)

    def request_s(self, job: int) -> float:
        return max(float(self.jobs.requested_s[job]), 1.0)

    def at(self, job: int, table: Table, at_s: float, types: Sequence[int]) -> Held | None:
        """A job on nodes of all types at once, or of one where limits differ by type."""
        by_type = self.made.limits is not None and self.made.limits.by_type
        for some in [[one] for one in types] if by_type else [types]:
            if on := self.place(job, table, at_s, some):
                return Held(at_s, at_s + self.request_s(job), on)
        return None

    def soonest(self, job: int, table: Table, now_s: float, types: Sequence[int]) -> Held | None:
        found = (self.at(job, table, at_s, types) for at_s in table.instants(now_s))
        return next((one for one in found if one is not None), None)

    def order(self, job: int, now_s: float) -> tuple[float, int]:
        if isinstance(self.policy.order, ShortestRequest):
            return self.request_s(job), job
        waits = (now_s - float(self.jobs.submit_s[job])) / self.request_s(job)
        return (
            -(waits * waits * waits * float(self.jobs.gpus[job]))
            if isinstance(self.policy.order, Wfp3)
            else 0.0,
            job,
        )

    def types_within(self, job: int, tally: Tally | None) -> list[int]:
        numbers = range(max(self.types) + 1)
        return [
            number for number in numbers if tally is None or tally.fits(job, number, int(self.jobs.gpus[job]))
        ]

    def decide(self, now_s: float) -> None:
        """Start jobs, and make promises."""
        jobs, policy = self.jobs, self.policy
        table, tally = Table(self.size), None if self.made.limits is None else Tally(self.made.limits)
        for job in range(len(jobs)):
            if self.start_s[job] <= now_s < self.end_s[job]:
                by_s = self.start_s[job] + self.request_s(job)
                table.held.append(Held(now_s, by_s if by_s > now_s else now_s + policy.grace_s, self.on[job]))
                if tally is not None:
                    tally.add(job, self.types[self.on[job][0][0]], int(jobs.gpus[job]))
        for window in self.made.maintenance:
            if window.announced_s <= now_s < window.to_s:
                away = tuple((node, self.size[node]) for node in window.nodes)
                until_s = math.inf if window.is_failure else window.to_s
                table.held.append(Held(max(now_s, window.from_s), until_s, away))
        waiting = [
            job
            for job in range(len(jobs))
            if jobs.submit_s[job] <= now_s < jobs.leaves_s[job] and self.start_s[job] == math.inf
        ]
        waiting.sort(key=lambda job: self.order(job, now_s))
        before, self.promised = self.promised, {}
        for job in waiting:
            types = self.types_within(job, tally)
            if job in before and self.types[before[job].on[0][0]] in types:
                mine: Held | None = before[job]
                assert mine is not None
                if not all(table.free(node, mine.from_s, mine.to_s) >= gpus for node, gpus in mine.on):
                    mine = self.soonest(job, table, now_s, types)
                if mine is not None:
                    self.promised[job] = mine
                    table.held.append(mine)
        left, examined = policy.promises, policy.examined or len(waiting)
        for place, job in enumerate(waiting):
            if place >= examined and not policy.keeps_promises:
                break
            mine = self.promised.pop(job, None)
            if mine is not None:
                table.held.remove(mine)
            if not (types := self.types_within(job, tally)):
                continue
            if mine is not None and self.types[mine.on[0][0]] not in types:
                mine = None
            moves = place < examined or mine is None or mine.from_s == now_s
            if moves and (policy.keeps_promises or left):
                found = self.soonest(job, table, now_s, types)
            else:
                found = self.at(job, table, now_s, types)
            if mine is not None and (found is None or mine.from_s <= found.from_s):
                found = mine
            if found is None:
                continue
            if found.from_s == now_s:
                self.start_s[job], self.on[job] = now_s, found.on
                self.end_s[job] = now_s + float(jobs.duration_s[job])
                if tally is not None:
                    tally.add(job, self.types[found.on[0][0]], int(jobs.gpus[job]))
            elif policy.keeps_promises:
                self.promised[job] = found
            else:
                left -= 1
            table.held.append(found)

    def run(self) -> Reference:
        """Decide at every arrival, end, mark of maintenance and promised start until all have started, or none will."""
        now_s = -math.inf
        marks = [at_s for one in self.made.maintenance for at_s in (one.announced_s, one.from_s, one.to_s)]
        marks += self.jobs.leaves_s[self.jobs.censored].tolist()
        while math.inf in self.start_s:
            coming = [*self.jobs.submit_s.tolist(), *self.end_s, *marks]
            coming += [one.from_s for one in self.promised.values()]
            now_s = min((at_s for at_s in coming if at_s > now_s), default=math.inf)
            if now_s == math.inf:
                break
            self.decide(now_s)
        return self
