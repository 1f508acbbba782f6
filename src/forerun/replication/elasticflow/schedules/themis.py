"""Themis: finish-time fairness [Mahajan et al., NSDI'20, section 3], as published for comparison.

Each slot the jobs that would most lose against running alone on their share of the cluster go first. The published
simulator calls a convex solver; here the same optimum is computed in closed form (docstring of the kernel), so that it
does not depend on a solver's version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import msgspec
import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import AnyRules, Column, Progress, Step, WholeSecondRules, longer
from forerun.cluster.inputs.arrays import BOOL, F64, I64, NEVER_S
from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.costs import first_costs_s, restart_costs_s, uses_table
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.schedule import PublishedSchedule

_BLOCK_EVENTS: Final = 8192
_ORDERS: Final = ("centre", "least", "leximin")


class Themis(PublishedSchedule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="themis"):
    """The largest slowdown against a fair share is minimised each slot; jobs keep their requested GPUs.

    `themis_order`: how jobs are ranked where the optimum leaves a choice: its analytic `centre` (what an
    interior-point solver returns), the `least` shares that attain it, or `leximin`. `block_events`: slots a kernel
    call plays at most; it does not change the result.
    """

    themis_order: Literal["centre", "least", "leximin"] = "centre"
    block_events: Annotated[int, msgspec.Meta(ge=1)] = _BLOCK_EVENTS

    paper: ClassVar[str] = "Themis: Fair and Efficient GPU Cluster Scheduling, NSDI'20"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "duration", "iterations", "profile")
    guarantees: ClassVar[str] = (
        "the largest finish-time slowdown against an equal share is least, slot by slot"
    )
    cost: ClassVar[str] = "O(active jobs x 60) per slot"

    def played(self, setting: Setting, record: Record, corrected: Corrections) -> AnyRules:
        """The schedule at work on a setting."""
        return ThemisSlots(self, setting, record, corrected)


def requested_rate(setting: Setting) -> F64:
    """Iterations per second of each job on the GPUs it asks for: the profile's, else what its duration implies."""
    jobs = setting.jobs
    implied = np.maximum(jobs.iterations, 1) / np.maximum(jobs.duration_s, 1)
    if setting.profile is None or not len(jobs):
        return implied
    table = setting.profile.rate_at()
    known = (jobs.kind >= 0) & (jobs.gpus < table.shape[1])
    rate = np.where(known, table[np.where(known, jobs.kind, 0), np.where(known, jobs.gpus, 0)], 0.0)
    return np.where(rate > 0, rate, implied)


class ThemisSlots(WholeSecondRules):
    """Blocks of slots, each one kernel call; the clock is the slot at which the kernel stopped."""

    is_rigid = True
    needs = frozenset({"themis_overhead"})
    order: tuple[Step, ...] = (Step.DECIDE, Step.FINISH)

    def __init__(self, policy: Themis, setting: Setting, record: Record, corrected: Corrections) -> None:
        """Parameters
        ----------
        policy : how to order within the optimum, and how many slots to play at a time.
        setting, record : what is run; the kernel writes overhead and admissions into the record's own columns.
        """
        from forerun.replication.elasticflow.kernels import themis as kernels

        jobs, count = setting.jobs, len(setting.jobs)
        self.record, self.early_s = record, float(setting.slot_s)
        self.advance_kernel, self.see_kernel = kernels.advance, kernels.see
        restart_s = np.array(restart_costs_s(setting, corrected)[False], np.int64)
        start_s, drain_s = (np.array(seconds, np.int64) for seconds in first_costs_s(setting, corrected))
        rate = requested_rate(setting)
        self.jobs = kernels.ThemisJobs(
            jobs.submit_s,
            jobs.gpus,
            rate,
            restart_s,
            start_s,
            drain_s if self._drains(setting, corrected) else drain_s[:0],
        )
        work = np.maximum(jobs.iterations, 1).astype(np.float64)
        self.state = kernels.ThemisState(
            clock=np.zeros(7, np.int64),
            order=np.zeros(count, np.int64),
            held=np.zeros(count, np.int64),
            begun=np.zeros(count, np.int64),
            left=work.copy(),
            remaining_s=jobs.duration_s.astype(np.float64),
            owed_s=np.zeros(count),
            pause_s=np.zeros(count),
            isolated=np.zeros(count),
            left_before=work.copy(),
            share_before=np.ones(count),
            overhead_s=record.overhead_s,
            judged_s=record.judged_s,
            end_s=np.full(count, -1.0),
            ended=np.zeros(count, np.int64),
            ended_at_s=np.full(count, -1, np.int64),
        )
        self.clock = self.state.clock
        self.clock[: kernels.ARRIVED] = jobs.submit_s[0] if count else 0
        self.clock[kernels.OVER] = count == 0
        self.now_at, self.active_at = kernels.NOW_S, kernels.ACTIVE
        self.arrived_at, self.ending_at = kernels.ARRIVED, kernels.ENDING
        self.ended_at, self.over_at = kernels.ENDED, kernels.OVER
        self.is_resized = False
        self.rules = kernels.ThemisRules(
            total_gpus=setting.cluster.gpus,
            slot_s=setting.slot_s,
            order_by=_ORDERS.index(policy.themis_order),
            unit_is_throughput="themis_unit" in corrected,
            now_is_present="themis_now" in corrected,
            restarts_cost="themis_overhead" in corrected,
            first_apart=uses_table(setting, corrected),
            ends_with_work="themis_end" in corrected,
        )
        self.block = self._block_of(policy.block_events)
        self.noted = 0
        record.admitted[:] = 1

    @staticmethod
    def _drains(setting: Setting, corrected: Corrections) -> bool:
        """Whether any job's GPUs can be free later than they are taken away."""
        return (
            uses_table(setting, corrected) and setting.costs is not None and setting.costs.longest_drain_s > 0
        )

    def _block_of(self, events: int) -> Any:
        """Arrays for this many events."""
        from forerun.replication.elasticflow.kernels.themis import EventBlock

        changes = max(1 << 16, 4 * len(self.jobs.gpus))
        sizes = (events, events, events + 1, changes, changes)
        return EventBlock(*(np.zeros(size, np.int64) for size in sizes))

    def stop_at_each_instant(self) -> None:
        """Play one slot at a time."""
        self.block = self._block_of(1)

    def next_moment(self) -> int | None:
        """The next slot, until all jobs are done."""
        now_s = self.expected_s()
        if now_s is not None:
            return now_s
        if waiting := int(self.clock[self.active_at]):
            self.record.ended_because = f"{waiting} waiting jobs can never be placed"
        return None

    def work(self) -> F64:
        """Iterations."""
        return self.state.left.copy()

    def pace(self, gpus: I64, now_s: float) -> tuple[F64, F64]:
        """Jobs work at their throughput, once their pauses are over."""
        holds = gpus > 0
        return np.where(holds, self.jobs.rate, 0.0), np.where(holds, self.state.pause_s, 0.0)

    def expected_s(self) -> int | None:
        """The next slot, until all jobs are done that are known."""
        if self.clock[self.over_at]:
            return None
        if self.seen is not None or self.is_open:
            submit_s, arrived = self.jobs.submit_s, int(self.clock[self.arrived_at])
            if self._is_idle and (arrived == len(submit_s) or submit_s[arrived] >= NEVER_S):
                return None
        return int(self.clock[self.now_at])

    def ended(self, row: int, end_s: float) -> None:
        """A job ended: it leaves at the next slot, whenever that was."""

    def columns(self) -> list[Column]:
        """What is known of each job, and what it has come to."""
        state = self.state
        kept = [
            state.held,
            state.begun,
            state.left,
            state.remaining_s,
            state.owed_s,
            state.pause_s,
            state.isolated,
        ]
        since = [state.left_before, state.share_before, state.overhead_s, state.judged_s, state.end_s]
        return [column for column in (*self.jobs, *kept, *since) if len(column)]

    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs; the record has grown already."""
        count, record = len(setting.jobs), self.record
        jobs = self.jobs._replace(
            **{name: longer(column, count) for name, column in self.jobs._asdict().items() if len(column)}
        )
        jobs.submit_s[len(self.jobs.submit_s) :] = NEVER_S
        self.jobs = jobs
        columns = {
            name: longer(column, count) for name, column in self.state._asdict().items() if name != "clock"
        }
        columns |= {"overhead_s": record.overhead_s, "judged_s": record.judged_s}
        self.state = self.state._replace(**columns)
        self.block = self._block_of(1)

    def take_in(self, row: int, alone: Self, setting: Setting) -> None:
        """A job takes a spare row; the clock stands at the first slot from its submission on, if nobody is there."""
        super().take_in(row, alone, setting)
        submit_s, slot_s, now_s = (
            int(setting.jobs.submit_s[row]),
            self.rules.slot_s,
            int(self.clock[self.now_at]),
        )
        if row == 0:
            self.clock[: self.arrived_at] = submit_s
        elif self._is_idle and submit_s > now_s:
            self.clock[self.now_at] = now_s - (now_s - submit_s) // slot_s * slot_s
        self.clock[self.over_at] = 0

    def resize(self, setting: Setting, up: BOOL, lost: Sequence[int], now_s: float) -> None:
        """Other nodes offer GPUs from the next slot on."""
        self.rules = self.rules._replace(total_gpus=int(setting.cluster.node_gpus()[up].sum()))
        rows = np.array(lost, np.int64)
        self.state.held[rows] = 0
        if len(rows):
            self.record.add_event(now_s, rows, np.zeros_like(rows), int(self.clock[self.active_at]))
        self.clock[self.over_at] = 0
        self.is_resized = True

    @property
    def _is_idle(self) -> bool:
        """Whether nobody is there, or nobody who fits."""
        return not (self.is_resized or self.clock[self.ending_at] or self.state.held.any())

    def observe(self, now_s: int, seen: Progress) -> None:
        """Jobs end when they are seen to, and have the work left that was seen."""
        if self.seen is None:
            self.record.admitted[:] = -1  # until they come
        self.seen, self.is_resized = seen, False
        self.clock[self.now_at] = now_s
        self.see_kernel(self.jobs, self.state, seen.left, seen.owed_s, seen.ended_s)

    def decide(self, now_s: int) -> None:
        """Play a block of slots and record its events."""
        count = self.advance_kernel(self.jobs, self.state, self.rules, self.block)
        block = self.block
        changed = block.first[count]
        if self.seen is not None:
            self.record.admitted[: self.clock[self.arrived_at]] = 1
        self.record.add_events(
            block.time_s[:count],
            block.pending[:count],
            block.first[: count + 1],
            block.rows[:changed],
            block.gpus[:changed],
        )

    def finish(self, now_s: int) -> None:
        """Tell the record who ended within the block."""
        ended = int(self.clock[self.ended_at])
        for row in self.state.ended[self.noted : ended].tolist():
            self.record.end(row, float(self.state.end_s[row]))
        self.noted = ended
