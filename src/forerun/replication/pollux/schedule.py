"""Pollux: GPUs and batch sizes chosen together for goodput [Qiao et al., OSDI'21].

Goodput is throughput times statistical efficiency: how fast a job learns, not how fast it computes. Every tick the
cluster is shared out anew so that the power mean of the jobs' speedups over a fair share is greatest; a job that would
have to restart for it counts less the younger it is and the more often it has restarted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import AnyRules, Step
from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import Schedule
from forerun.core.rng import stream_key
from forerun.replication.elasticflow.event_log import LoggedRules
from forerun.replication.pollux.applications import Application, read_applications
from forerun.replication.pollux.training import FixedTraining, MeasuredTraining, Training


class Pollux(Schedule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="pollux"):
    """Elastic in GPUs and, where the application was measured, in batch size.

    `measurements`: folder of `<app>/placements.csv` and the rest; models measured there train by goodput, others keep
    their batch and go by the throughput table. `search`: `greedy`, steepest ascent, the same on any machine; or
    `evolution`, the paper's population search (`population`, `generations`, seeded by the scenario). `tick_s`: how
    often it decides; with nothing new it waits up to `patience_ticks`. `restart_s`: pause of a job whose GPUs change.
    """

    measurements: str = ""
    search: Literal["greedy", "evolution"] = "greedy"
    tick_s: Annotated[int, msgspec.Meta(ge=1)] = 60
    patience_ticks: Annotated[int, msgspec.Meta(ge=1)] = 10
    restart_s: Annotated[int, msgspec.Meta(ge=0)] = 30
    population: Annotated[int, msgspec.Meta(ge=2)] = 100
    generations: Annotated[int, msgspec.Meta(ge=1)] = 100

    paper: ClassVar[str] = (
        "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, OSDI'21"
    )
    needs: ClassVar[tuple[str, ...]] = ("profile", "measurements (for elastic batches)")
    guarantees: ClassVar[str] = "none; blind to deadlines"
    cost: ClassVar[str] = (
        "greedy O(active jobs x GPUs) a move; evolution O(population x generations x jobs x nodes)"
    )

    def read(self) -> Mapping[str, Application]:
        """The measured applications of the folder, by model; none without one."""
        return read_applications(Path(self.measurements)) if self.measurements else {}

    def rules(self, setting: Setting, record: Record) -> AnyRules:
        """The schedule at work on a setting."""
        return PolluxRules(self, setting, record)


class PolluxRules(LoggedRules):
    """Every tick: count progress epoch by epoch, take in arrivals, and share the cluster out anew if anything changed.

    Arrays have one element a job of the trace; `rows[j]` are the GPUs of job j on each node.
    """

    order: tuple[Step, ...] = (Step.ADVANCE, Step.ARRIVE, Step.DECIDE, Step.CHARGE)

    def __init__(self, policy: Pollux, setting: Setting, record: Record) -> None:
        jobs, count = setting.jobs, len(setting.jobs)
        super().__init__(record)
        self.policy, self.setting = policy, setting
        self.node_gpus = setting.cluster.node_gpus()
        self.total_gpus = setting.cluster.gpus
        self.submit_s: list[int] = jobs.submit_s.tolist()
        self.training = _trainings(setting)
        self.rows: I64 = np.zeros((count, len(self.node_gpus)), np.int64)
        self.progress: F64 = np.zeros(count)
        self.target: F64 = np.array([t.target for t in self.training])
        self.rate: F64 = np.zeros(count)
        self.pause_s: F64 = np.zeros(count)
        self.restarts = np.zeros(count, np.int64)
        top = self.total_gpus
        self.within: F64 = np.zeros((count, top + 1))
        self.across: F64 = np.zeros((count, top + 1))
        self.reach = np.zeros(count, np.int64)  # GPUs up to which the two tables are filled; 0: not at all
        self.held = np.zeros(count, np.int64)
        self.active: list[int] = []
        self.arrived = 0
        self.changed: dict[int, int] = {}
        self.dirty = True
        self.quiet_ticks = 0
        self.stuck = False
        self.random = np.array([stream_key(setting.seed, "pollux search") & (2**64 - 1)], np.uint64)
        self.now_s = self._first_tick(0)

    def next_moment(self) -> int | None:
        """The next tick; idle stretches are skipped on the grid."""
        if self.stuck:
            self.record.ended_because = f"{len(self.active)} waiting jobs can never be placed"
        elif self.active or self.arrived < len(self.submit_s):
            return self.now_s
        self.flush()
        return None

    def advance(self, now_s: int) -> None:
        """A tick of progress; epochs end to the second, jobs leave when their last one does."""
        if not self.active:
            return
        rows = np.array(self.active)
        paused = np.minimum(self.pause_s[rows], self.policy.tick_s)
        self.pause_s[rows] -= paused
        self.record.overhead_s[rows] += paused
        work_s = self.policy.tick_s - paused
        reached = self.progress[rows] + self.rate[rows] * work_s
        ends = reached >= self.target[rows]
        self.progress[rows[~ends]] = reached[~ends]
        for row, seconds in zip(rows[ends].tolist(), work_s[ends].tolist(), strict=True):
            self._epochs(row, seconds, now_s)

    def arrive(self, now_s: int) -> None:
        """Jobs submitted by now take part."""
        while self.arrived < len(self.submit_s) and self.submit_s[self.arrived] <= now_s:
            self.active.append(self.arrived)
            self.record.admit(self.arrived, now_s)
            self.arrived += 1
            self.dirty = True

    def decide(self, now_s: int) -> None:
        """Share the cluster out anew, if anything changed or it has been a while."""
        self.quiet_ticks += 1
        if self.active and (self.dirty or self.quiet_ticks >= self.policy.patience_ticks):
            self.dirty, self.quiet_ticks = False, 0
            rows = np.array(self.active)
            plan = self._search(rows, now_s)
            for at in np.flatnonzero((plan != self.rows[rows]).any(axis=1)).tolist():
                self._move(int(rows[at]), plan[at])
            self.stuck = not self.held[rows].any() and self.arrived == len(self.submit_s)
        if self.changed:
            waiting = int(np.count_nonzero(self.held[self.active] == 0))
            self.log.add(now_s, list(self.changed), list(self.changed.values()), waiting)
            self.changed = {}

    def charge(self, now_s: int) -> None:
        """The clock goes on by a tick."""
        self.now_s = self._first_tick(now_s + self.policy.tick_s)

    def _first_tick(self, at_s: int) -> int:
        if self.active or self.arrived == len(self.submit_s):
            return at_s
        ahead = -(-self.submit_s[self.arrived] // self.policy.tick_s) * self.policy.tick_s
        return max(at_s, ahead)

    def _epochs(self, row: int, seconds: float, now_s: int) -> None:
        """Let a job work `seconds` until now, through the ends of its epochs."""
        job = self.training[row]
        self.dirty = True
        self.reach[row] = 0
        while seconds > 0 and self.rate[row] > 0:
            short = self.target[row] - self.progress[row]
            if self.rate[row] * seconds < short:
                self.progress[row] += self.rate[row] * seconds
                return
            seconds -= math.ceil(max(short, 0.0) / self.rate[row])
            self.progress[row] = self.target[row]
            if job.next_epoch():
                self._end(row, now_s - max(seconds, 0.0), now_s)
                return
            self.target[row], self.rate[row] = job.target, job.rate

    def _end(self, row: int, end_s: float, now_s: int) -> None:
        """A job is done: its GPUs are free, and the record says when and whether in time."""
        self.record.end(row, end_s, log_time_s=now_s)
        self.rows[row] = 0
        self.held[row] = 0
        self.rate[row] = 0.0
        self.active.remove(row)
        self.changed[row] = 0

    def _search(self, rows: I64, now_s: int) -> I64:
        """The plan of the chosen search for the active jobs, never worse than changing nothing."""
        from forerun.replication.pollux import kernels

        within, across, caps = self._worths(rows)
        now = self.rows[rows]
        age_s = now_s - np.array(self.submit_s)[rows]
        pause_s = self.policy.restart_s
        lost_s = age_s - pause_s * self.restarts[rows]
        restart = np.maximum(lost_s, 0.0) / np.maximum(age_s + pause_s, 1.0)
        idle = 0.5 / self.total_gpus
        if self.policy.search == "evolution":
            plan: I64 = kernels.evolve(
                now,
                within,
                across,
                restart,
                idle,
                caps,
                self.node_gpus,
                self.policy.population,
                self.policy.generations,
                self.random,
            )
            return plan
        held = now.sum(axis=1)
        per_node = int(self.node_gpus.max())
        counts = kernels.climb(held, within, across, restart, idle, caps, self.total_gpus, per_node)
        plan = kernels.place(counts, now, self.node_gpus)
        self._cut_to_legal(plan, within, across)
        better = kernels.fitness(plan, now, within, across, restart, idle) > kernels.fitness(
            now, now, within, across, restart, idle
        )
        return plan if better else now

    def _worths(self, rows: I64) -> tuple[F64, F64, I64]:
        """Speedup over a fair share by GPUs, on one node and on several, and the most GPUs each job may hold."""
        per_node = int(self.node_gpus.max())
        fair = max(1, math.ceil(self.total_gpus / len(rows)))
        caps = np.array([self.training[row].cap(self.total_gpus) for row in rows.tolist()], np.int64)
        reaches = np.maximum(caps, fair)
        for row, reach in zip(rows.tolist(), reaches.tolist(), strict=True):
            if self.reach[row] < reach:
                self.within[row], self.across[row] = 0.0, 0.0
                self.training[row].goodput(self.within[row], self.across[row], per_node, reach)
                self.reach[row] = reach
        within, across = self.within[rows], self.across[rows]
        best = np.maximum(within, across)
        at_fair = best[:, : fair + 1].max(axis=1)
        at_fair = np.where(at_fair > 0, at_fair, np.maximum(best.max(axis=1), 1e-12))
        return within / at_fair[:, None], across / at_fair[:, None], caps

    def _cut_to_legal(self, plan: I64, within: F64, across: F64) -> None:
        """Take away GPUs a job could not use: counts that are no level of its table."""
        from forerun.replication.pollux.kernels import worth_of

        gpus, every = plan.sum(axis=1), np.arange(len(plan))
        worth = np.maximum(within[every, gpus], across[every, gpus])
        for at in np.flatnonzero((gpus > 0) & ~(worth > 0)).tolist():
            while plan[at].any() and not worth_of(plan[at], within[at], across[at]) > 0:
                held = np.flatnonzero(plan[at])
                plan[at, held[np.argmin(plan[at, held])]] -= 1

    def _move(self, row: int, placement: I64) -> None:
        """A job's GPUs change: it pauses and, if it ran before, counts a restart."""
        had = self.held[row] > 0
        gpus = int(placement.sum())
        self.rows[row] = placement
        self.held[row] = gpus
        if had:
            self.restarts[row] += 1
            self.record.restarts[row] += 1
            self.record.preempts[row] += int(gpus == 0)
        self.pause_s[row] = self.policy.restart_s if gpus else 0.0
        self.training[row].configure(placement.tolist())
        self.rate[row] = self.training[row].rate
        self.reach[row] = 0
        self.dirty |= isinstance(self.training[row], MeasuredTraining)
        self.changed[row] = gpus


def _trainings(setting: Setting) -> list[Training]:
    """How each job trains: by its application's measurements, its row of the profile, or rigidly."""
    jobs, known = setting.jobs, setting.own if isinstance(setting.own, dict) else {}
    table = setting.profile.rate_at() if setting.profile is not None else np.zeros((0, 1))
    trainings: list[Training] = []
    for row in range(len(jobs)):
        kind, gpus = int(jobs.kind[row]), int(jobs.gpus[row])
        iterations = float(max(jobs.iterations[row], 1))
        if jobs.model[row] in known:
            trainings.append(MeasuredTraining(known[jobs.model[row]]))
            continue
        if kind >= 0:
            rate = np.where(np.arange(table.shape[1]) <= jobs.batch[row], table[kind], 0.0)
        else:
            rate = np.zeros(gpus + 1)
            rate[gpus] = iterations / max(int(jobs.duration_s[row]), 1)
        trainings.append(FixedTraining(rate, iterations))
    return trainings
