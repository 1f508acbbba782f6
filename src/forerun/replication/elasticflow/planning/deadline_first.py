"""Published EDF at work, with and without admission control."""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import Column, longer
from forerun.cluster.inputs.arrays import BOOL, I64, ThroughputTable
from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.kernels import deadline_first as dk
from forerun.replication.elasticflow.kernels import events as ev
from forerun.replication.elasticflow.kernels import plan_state as mk
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.planning.plan_ahead import sort_by
from forerun.replication.elasticflow.planning.published import PublishedRules


class DeadlineFirstRules(PublishedRules):
    """What both forms of EDF share: planning all jobs in deadline order, placing.

    Attributes
    ----------
    exact : whether the free count at a plan's end stays exact.
    reserve_s : int64[jobs], what plans keep free before the deadline.
    gpus, ends : the plans last made: GPUs now, and the planned end, by row.
    """

    def __init__(self, setting: Setting, record: Record, corrected: Corrections) -> None:
        super().__init__(setting, record, corrected)
        self.exact = "edf_key_overwrite" in corrected
        self.reserve_s: I64 = np.zeros(len(setting.jobs), np.int64)
        if "admission_overhead" in corrected:
            self.reserve_s = self.restart_reserve_s()
        self.gpus: I64 = np.zeros(len(setting.jobs), np.int64)
        self.ends: I64 = np.zeros(len(setting.jobs), np.int64)

    def most_gpus(self, profile: ThroughputTable) -> I64:
        """The largest column not literally `nan`, within 64 and the batch."""
        jobs = self.setting.jobs
        return np.minimum(np.minimum(profile.largest_column[jobs.kind], 64), jobs.batch)

    def columns(self) -> list[Column]:
        """Those of the machine, what is reserved, and the plans last made."""
        return [*super().columns(), self.reserve_s, self.gpus, self.ends]

    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs."""
        super().grow(setting)
        count = len(setting.jobs)
        self.reserve_s = longer(self.reserve_s, count)
        self.gpus, self.ends = longer(self.gpus, count), longer(self.ends, count)

    #: whether the planned ends of all jobs are asked for, or only those of jobs that have run
    judges_plans = True

    def plan(self, rows: I64, now_s: int) -> None:
        """Plan jobs in deadline order (sorting them); the plans wait in `gpus` and `ends`."""
        sort_by(rows, self.m.j[mk.DEADLINE, rows])
        dk.plan_everybody(
            self.m, self.grid(now_s), rows, len(rows), self.exact, self.judges_plans, self.gpus, self.ends
        )

    def reserve(self) -> None:
        """Plans are not stored, so the tables need no enlarging."""

    def would_be_late(self, rows: I64) -> BOOL:
        """Which of some jobs would miss their deadlines by the plan just made."""
        late: BOOL = (self.ends[rows] + self.reserve_s[rows] > self.m.j[mk.DEADLINE, rows]) & (
            self.m.j[mk.SLO, rows] == 1
        )
        return late


class EdfRules(DeadlineFirstRules):
    """EDF without admission control: late means declined, no job is refused."""

    needs = frozenset({"edf_overhead", "overhead_when_unchanged"})

    judges_plans = False

    def arrive(self, now_s: int) -> None:
        """Plan all jobs with the new ones, which are all admitted."""
        newcomers = np.array(self.arrivals, np.int64)
        if len(newcomers):
            self.plan(np.concatenate((self.runnable(), newcomers)), now_s)
        else:
            self.plan(self.runnable(), now_s)
        for row in newcomers:
            self.admit(int(row))

    def decide(self, now_s: int) -> None:
        """Everybody takes what the plan gives now, largest jobs are placed first."""
        self.release(self.runnable(), everybody=True)
        dk.take_plans(self.m, self.gpus, self.ends, True, False, False)
        largest_first = self.runnable()[self.m.j[mk.GPUS, self.runnable()] > 0]
        sort_by(largest_first, -self.m.j[mk.GPUS, largest_first])
        self.place(largest_first, now_s)
        self.note(now_s)

    def charge(self, now_s: int) -> None:
        """Scaling is free as published; the scheduling event is counted."""
        if "edf_overhead" in self.corrected:
            rows = self.running()
            self.learn_groups(rows)
            self.pay(rows)
        else:
            ev.tick(self.places, self.setting.slot_s)


class AdmittingEdfRules(DeadlineFirstRules):
    """EDF that admits new jobs one by one, if no job would be late by the plan."""

    needs = frozenset({"overhead_when_unchanged"})

    def finish(self, now_s: int) -> None:
        """Jobs that are done leave; all GPUs are released."""
        rows = self.runnable()
        self.m.j[mk.OLD_END, rows] = self.m.j[mk.END, rows]
        self.leave(now_s)
        self.release(self.runnable(), everybody=True)

    def arrive(self, now_s: int) -> None:
        """Plan all jobs with each new one in turn, and admit it if all would be in time."""
        accepted = False
        for row in self.arrivals:
            everybody = np.append(self.runnable(), row)
            self.plan(everybody, now_s)
            late = everybody[self.would_be_late(everybody)]
            if len(late) and "late_incumbent" in self.corrected:
                late = np.setdiff1d(late, self._late_anyway(now_s))
                self.plan(everybody, now_s)
            if len(late):
                self.refuse(row, self._because(row, late, now_s))
                continue
            accepted = True
            self.admit(row)
            dk.take_plans(self.m, self.gpus, self.ends, False, False, True)
        if not accepted:
            self.plan(self.runnable(), now_s)
            dk.take_plans(self.m, self.gpus, self.ends, False, True, True)

    def _late_anyway(self, now_s: int) -> I64:
        """Jobs admitted before that are late even without newcomers."""
        alone = self.runnable().copy()
        self.plan(alone, now_s)
        return alone[self.would_be_late(alone)]

    def _because(self, row: int, late: I64, now_s: int) -> str:
        """Why a newcomer is refused: its own speed, capacity up to its deadline, or whom it meets."""
        names, deadline_s = self.setting.jobs.id, int(self.m.j[mk.DEADLINE, row])
        over_s = int(self.ends[row] + self.reserve_s[row]) - deadline_s
        everybody, anyway = np.append(self.runnable(), row), self._late_anyway(now_s)
        if row in late:
            what = self.too_slow(row, now_s) or (
                f"capacity in [{now_s}, {deadline_s}] s: planned with the others it would end {over_s} s late"
            )
        elif len(both := np.intersect1d(late, anyway)):
            what = f"job {names[both[0]]}, admitted before, is predicted late in any case"
        else:
            what = f"it would make job {names[late[0]]} late"
        excused = anyway if "late_incumbent" in self.corrected else anyway[:0]

        def admits() -> bool:
            self.plan(everybody, now_s)
            return not len(np.setdiff1d(everybody[self.would_be_late(everybody)], excused))

        return what + self.would_admit(row, admits, alone=False)

    def decide(self, now_s: int) -> None:
        """Jobs are placed in list order, and the groups learnt."""
        rows = self.runnable()
        self.place(rows, now_s)
        self.learn_groups(rows)
        self.note(now_s)
