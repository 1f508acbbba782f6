"""Bamboo's simulator as published, with each of its known bugs as a switch, and the fleets that it generates.

[Thorpe et al., Bamboo: making preemptible instances resilient for affordable training, NSDI'23.] The corrected ring is that
of the policy `bamboo`; this module adds the bugs, the generator and the printed figures.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Final

from forerun.spot.policies.bamboo.ring import (
    ADD,
    GENERATE,
    REMOVE,
    STEP,
    Change,
    Coordinate,
    Payload,
    Ring,
    RingJob,
    RingNode,
    RingRun,
    RingStatus,
)

HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedJob(RingJob):
    """A job of the published simulator: a `RingJob` with what its printed figures need.

    Parameters
    ----------
    samples_per_step : samples of a step.
    capacity : nodes asked for.
    """

    samples_per_step: int
    capacity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBugs:
    """The known bugs of the published simulator; the defaults are the simulator as published.

    Parameters
    ----------
    no_rollback : a fatal failure loses no step (default: on).
    steps_in_pause : steps complete during a global rendezvous (default: on).
    ghost_timeouts : the timeout of a rendezvous that a later one replaced still acts, on an empty list (default: on).
    stale_waiting : waiting nodes that vanish are still counted (default: on).
    heap_ties : events of one instant and kind come in the order of the heap, which depends on later events; corrected:
        in the order of the trace (default: on).
    """

    no_rollback: bool = True
    steps_in_pause: bool = True
    ghost_timeouts: bool = True
    stale_waiting: bool = True
    heap_ties: bool = True


NO_BUGS: Final = KnownBugs(
    no_rollback=False, steps_in_pause=False, ghost_timeouts=False, stale_waiting=False, heap_ties=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyFleet:
    """A fleet whose nodes vanish, and whose free slots fill, with given probabilities in each hour of the day.

    Parameters
    ----------
    remove : 24 probabilities that a node vanishes within the hour.
    add : the same for free slots to fill (default: drawn at random).
    start_hour : the hour of the day at which the run starts (default: 0).
    seed : of Python's own generator (default: 0).
    """

    remove: Sequence[float]
    add: Sequence[float] | None = None
    start_hour: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun(RingRun):
    """A run of the published simulator.

    With some bugs it cannot be said where the time went; `wall_ms` and `stretches` are empty then.

    Parameters
    ----------
    job : what trained.
    first_running_ms : the end of the first rendezvous [ms]; None if there was none.
    changes : (time [ms], nodes) whenever the number of nodes changed.
    removals_ms : when nodes vanished [ms].
    lifetimes_ms : of all nodes [ms]; those alive at the stop have lived until then.
    """

    job: PublishedJob
    first_running_ms: int | None
    changes: Sequence[tuple[int, int]]
    removals_ms: Sequence[int]
    lifetimes_ms: Sequence[int]

    @property
    def end_ms(self) -> int:
        """Time of the last step; 0 without steps."""
        return self.step_end_ms[-1] if self.step_end_ms else 0

    @property
    def samples_per_s(self) -> float:
        """Throughput from the end of the first rendezvous to the last step [samples/s]; 0 without steps."""
        if self.first_running_ms is None or not self.step_end_ms:
            return 0.0
        return self.job.samples_per_step * self.steps / ((self.end_ms - self.first_running_ms) / 1000)

    @property
    def mean_nodes(self) -> float:
        """Time-weighted mean number of nodes from 0 until the last step; 0 without steps."""
        return self._node_ms_until([self.end_ms])[0] / self.end_ms if self.end_ms else 0.0

    @property
    def mean_nodes_as_printed(self) -> float:
        """The mean number of nodes as the published simulator computes it.

        The last change is weighted with the time to the last step. Where it comes after that step, the weight is negative.
        """
        if not self.end_ms:
            return 0.0
        inside = sum(n * (t2 - t1) for (t1, n), (t2, _) in zip(self.changes, self.changes[1:]))
        last_ms, nodes = self.changes[-1]
        return (inside + nodes * (self.end_ms - last_ms)) / self.end_ms

    def value(self, usd_per_node_h: float) -> float:
        """Samples a second per dollar an hour, averaged over the time of the steps; 0 without steps.

        Parameters
        ----------
        usd_per_node_h : price of a node [$/h].
        """
        if not self.step_end_ms or self.first_running_ms is None:
            return 0.0
        instants = [self.first_running_ms, *self.step_end_ms]
        paid = self._node_ms_until(instants)
        spans = zip(instants, instants[1:], paid, paid[1:])
        # (B / span) / (nodes x price) x span, with nodes = (paid2 - paid1) / span.
        weighted = [(t2 - t1) / (paid2 - paid1) for t1, t2, paid1, paid2 in spans]
        rate = self.job.samples_per_step * 1000 / usd_per_node_h
        return rate * math.fsum(weighted) / (self.end_ms - self.first_running_ms)

    def _node_ms_until(self, instants_ms: Sequence[int]) -> list[int]:
        """Integral of the number of nodes from 0 to each of some instants [node-ms].

        Parameters
        ----------
        instants_ms : ascending [ms].
        """
        totals, total, at, i = [], 0, 0, 0
        for t_ms in instants_ms:
            while i + 1 < len(self.changes) and self.changes[i + 1][0] <= t_ms:
                total += self.changes[i][1] * (self.changes[i + 1][0] - at)
                at = self.changes[i + 1][0]
                i += 1
            total += self.changes[i][1] * (t_ms - at) if self.changes else 0
            at = t_ms
            totals.append(total)
        return totals

    def summary(self, usd_per_node_h: float) -> dict[str, float]:
        """The figures that the published simulator prints, under its names.

        Gaps between preemptions and lifetimes are in hours, performance in samples/s, cost in $/h.

        Parameters
        ----------
        usd_per_node_h : price of a node [$/h].
        """
        gaps = [(b - a) / HOUR_MS for a, b in zip(self.removals_ms, self.removals_ms[1:])]
        lifetimes_h = [lifetime_ms / HOUR_MS for lifetime_ms in self.lifetimes_ms]
        return {
            "num_preemptions": len(self.removals_ms),
            "preemption_mean": statistics.mean(gaps) if gaps else 0.0,
            "preemption_stdev": statistics.stdev(gaps) if len(gaps) > 1 else 0.0,
            "lifetime_mean": statistics.mean(lifetimes_h) if lifetimes_h else 0.0,
            "lifetime_median": statistics.median(lifetimes_h) if lifetimes_h else 0.0,
            "lifetime_stdev": statistics.stdev(lifetimes_h) if len(lifetimes_h) > 1 else 0.0,
            "num_fatal_failures": self.fatal,
            "num_steps_complete": self.steps,
            "average_instances": self.mean_nodes_as_printed,
            "average_performance": self.samples_per_s,
            "average_cost": self.mean_nodes_as_printed * usd_per_node_h,
            "average_value": self.value(usd_per_node_h),
        }


def run_ring(
    job: PublishedJob,
    fleet: HourlyFleet | Iterable[Change],
    *,
    bugs: KnownBugs | None = None,
    goal_steps: int | None = None,
    stop_ms: int | None = None,
) -> PublishedRun:
    """Train on a fleet until the goal or the stop.

    Parameters
    ----------
    job : what trains.
    fleet : a process that draws the fleet, or its changes (time [ms], whether it is an addition, node).
    bugs : the known bugs that are on (default: all, as published).
    goal_steps : steps after which the run ends (default: no goal).
    stop_ms : the instant at which the run ends [ms] (default: when nothing is left to happen).
    """
    ring = _PublishedRing(job, bugs or KnownBugs())
    if isinstance(fleet, HourlyFleet):
        ring.start_generated(fleet)
    else:
        for t_ms, is_add, node in fleet:
            ring.push(t_ms, ADD if is_add else REMOVE, node)
    done = False
    while ring.heap and not done:
        key, payload = heapq.heappop(ring.heap)
        t_ms, kind = divmod(key, 16)
        if stop_ms is not None and t_ms > stop_ms:
            ring.now_ms = stop_ms
            break
        ring.now_ms = t_ms
        if kind == GENERATE:
            ring.generate()
        else:
            ring.handle(kind, payload)
            done = kind == STEP and ring.steps == goal_steps
        if not done and (not ring.heap or ring.heap[0][0] // 16 != t_ms):
            ring.record_count()
    if stop_ms is not None and not done and not ring.bugs.steps_in_pause:
        ring.now_ms = stop_ms  # with nothing left to happen, the published simulator ends at its last event
    return ring.published()


class _PublishedRing(Ring):
    """The corrected ring, with the bugs that are switched on."""

    def __init__(self, job: PublishedJob, bugs: KnownBugs) -> None:
        super().__init__(job)
        self.published_job, self.bugs = job, bugs
        self.first_running_ms: int | None = None
        self.removals: list[int] = []
        self.lifetimes_ms: list[int] = []
        self.changes: list[tuple[int, int]] = []
        self.fleet: HourlyFleet | None = None
        self.random = Random(0)
        self.add_chance: Sequence[float] = ()
        self.born = 0

    # ------------------------------------------------------------------ the bugs

    def push(self, t_ms: int, kind: int, value: str | int = 0) -> None:
        """With `heap_ties` all events of one time and kind have the same place."""
        if self.bugs.heap_ties:
            heapq.heappush(self.heap, (t_ms * 16 + kind, Payload(value)))
        else:
            super().push(t_ms, kind, value)

    def timeout(self, kind: int, meeting: int) -> None:
        """With `ghost_timeouts` a replaced rendezvous ends too."""
        if self.bugs.ghost_timeouts:
            self.end_meeting(kind)
        else:
            super().timeout(kind, meeting)

    def step(self, version: int) -> None:
        """With `steps_in_pause` a step ends whatever the status."""
        if version == self.version and (self.status == "running" or self.bugs.steps_in_pause):
            self.complete_step(version)

    def lose_waiting(self) -> None:
        """With `stale_waiting` the node is still counted, and the ring slows down as for a node that trained."""
        if self.bugs.stale_waiting:
            self.slow_down()
        else:
            super().lose_waiting()

    def roll_back(self) -> None:
        """With `no_rollback` no step is lost."""
        if not self.bugs.no_rollback:
            super().roll_back()

    def _predecessor(self, coordinate: Coordinate) -> RingNode | None:
        """A ring that a ghost timeout stopped while its nodes had stages is not closed: stage 0 has no predecessor."""
        return None if coordinate[1] == 0 and self.status == "stopped" else super()._predecessor(coordinate)

    # ------------------------------------------------------------------ the generated fleet

    def start_generated(self, fleet: HourlyFleet) -> None:
        """Draw the hourly chances of additions, then fill each slot with that of the start hour."""
        self.fleet, self.random = fleet, Random(fleet.seed)
        drawn = [self.random.random() for _ in range(24)]
        self.add_chance = drawn if fleet.add is None else fleet.add
        for _ in range(self.published_job.capacity):
            if self.add_chance[fleet.start_hour] > self.random.random():
                self.push(0, ADD, self._new_name())
        self.push(0, GENERATE)

    def _new_name(self) -> str:
        """The name of the next node of the generated fleet."""
        self.born += 1
        return f"node{self.born - 1}"

    def _draw(self, chance: float) -> int | None:
        """When within this hour something happens that has a given chance; None if it does not happen.

        Parameters
        ----------
        chance : probability within the hour. The instant is a whole second, uniform in it.
        """
        if chance > self.random.random():
            return self.now_ms + self.random.randrange(0, 3600) * 1000
        return None

    def generate(self) -> None:
        """Lay out the coming hour: removals of nodes alive, additions to free slots, in the order of their times.

        A node added within the hour may vanish again in the same hour, with the hour's chance.
        """
        assert self.fleet is not None
        self.push(self.now_ms + HOUR_MS, GENERATE)
        hour = (self.fleet.start_hour + self.now_ms // HOUR_MS) % 24
        removals: list[tuple[int, str]] = []
        for node in self.nodes:
            if (t_ms := self._draw(self.fleet.remove[hour])) is not None:
                heapq.heappush(removals, (t_ms, node))
        adds: list[int] = []
        for _ in range(self.published_job.capacity - len(self.nodes) + len(removals)):
            if (t_ms := self._draw(self.add_chance[hour])) is not None:
                heapq.heappush(adds, t_ms)
        alive = len(self.nodes)
        while removals or adds:
            if removals and (not adds or removals[0][0] < adds[0]):
                t_ms, node = heapq.heappop(removals)
                self.push(t_ms, REMOVE, node)
                alive -= 1
                continue
            added_ms = heapq.heappop(adds)
            if alive < self.published_job.capacity:
                alive += 1
                node = self._new_name()
                self.push(added_ms, ADD, node)
                t = self._draw(self.fleet.remove[hour])
                if t is not None and t >= added_ms:
                    heapq.heappush(removals, (t, node))

    # ------------------------------------------------------------------ the printed figures

    def remove(self, name: str) -> None:
        """Note when the node vanished and how long it lived."""
        if (node := self.nodes.get(name)) is not None:
            self.removals.append(self.now_ms)
            self.lifetimes_ms.append(self.now_ms - node.born_ms)
        super().remove(name)

    def _begin(self, status: RingStatus, nodes: int) -> None:
        """Enter a status; the first time that the ring runs is noted."""
        if status == "running" and self.first_running_ms is None:
            self.first_running_ms = self.now_ms
        super()._begin(status, nodes)

    def record_count(self) -> None:
        """Note the number of nodes when a millisecond is over; the first note is dated 0."""
        if self.now_ms == 0:
            return
        if not self.changes:
            self.changes.append((0, len(self.nodes)))
        elif self.changes[-1][1] != len(self.nodes):
            self.changes.append((self.now_ms, len(self.nodes)))

    def published(self) -> PublishedRun:
        """The run with what the published simulator prints."""
        done, bugs = self.finish(), self.bugs
        values = {one.name: getattr(done, one.name) for one in fields(done)}
        if bugs.steps_in_pause or bugs.ghost_timeouts or bugs.no_rollback:
            values |= {"wall_ms": {}, "stretches": []}
        return PublishedRun(
            **values,
            job=self.published_job,
            first_running_ms=self.first_running_ms,
            changes=self.changes,
            removals_ms=self.removals,
            lifetimes_ms=[*self.lifetimes_ms, *(self.now_ms - node.born_ms for node in self.nodes.values())],
        )
