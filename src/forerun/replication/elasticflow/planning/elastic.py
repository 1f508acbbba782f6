"""Published ElasticFlow at work: the steps of an instant, with and without admission control."""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import Column, longer
from forerun.cluster.inputs.arrays import BOOL, I64
from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.kernels import elastic as ek
from forerun.replication.elasticflow.kernels import plan_state as mk
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.planning.plan_ahead import sort_by
from forerun.replication.elasticflow.planning.published import PublishedRules

#: what a plan keeps free before a deadline, where overhead is reserved: restarts, and slots. Chosen from six settings on
#: the first 200 of 400 random clusters and traces (none of 1,377 admitted jobs late there; with four restarts and no
#: slot 119 of 1,825); over all 400, one of 2,609 is late, by 48 s. No proof, and it costs admissions
RESTARTS_KEPT: Final = 8
SLOTS_KEPT: Final = 2


class ElasticRules(PublishedRules):
    """What both forms of ElasticFlow share: the planner's flags, boosting, placing.

    Attributes
    ----------
    least_first : whether spare GPUs go first to the job that wastes least GPU time.
    reserving : whether plans keep time free for overhead.
    reserve_s : int64[jobs], what they keep free before the deadline.
    least_reserve_s : what stays reserved up to the end.
    trials : trials of one more level so far.
    """

    needs = frozenset({"overhead_when_unchanged"})

    def __init__(self, setting: Setting, record: Record, corrected: Corrections) -> None:
        super().__init__(setting, record, corrected)
        self.least_first = "marginal_order" in corrected
        self.anchor_s = 0 if "grid_anchor" in corrected else -1
        self.reserving = "admission_overhead" in corrected
        self.reserve_s: I64 = np.zeros(len(setting.jobs), np.int64)
        #: reserved up to the end: an event may be postponed to the end of its slot, and so may the one that acts on it
        self.least_reserve_s = SLOTS_KEPT * setting.slot_s
        if self.reserving:
            # where overhead falls due at every event, no number of restarts is enough
            seldom = "overhead_when_unchanged" in corrected
            self.reserve_s = self.restart_reserve_s(RESTARTS_KEPT if seldom else 2 * RESTARTS_KEPT)
            self.reserve_s += self.least_reserve_s
        self.trials = 0

    def columns(self) -> list[Column]:
        """Those of the machine, and what is reserved."""
        return [*super().columns(), self.reserve_s]

    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs."""
        super().grow(setting)
        self.reserve_s = longer(self.reserve_s, len(setting.jobs))

    def plan(self, rows: I64, now_s: int, *, record: bool = True) -> BOOL:
        """Plan jobs afresh and commit; which of them, by position after sorting, would be late."""
        late = np.zeros(len(rows), np.bool_)
        sort_by(rows, self.m.j[mk.DEADLINE, rows])
        self.release(rows, everybody=True)
        ek.plan_all(self.m, self.grid(now_s), self.reserve_s, rows, len(rows), record, late)
        return late

    def boost(self, now_s: int, *, registered: bool) -> None:
        """Hand out spare GPUs."""
        self.trials += ek.boost(self.m, self.grid(now_s), self.reserve_s, self.least_first, registered)


class AdmittingRules(ElasticRules):
    """ElasticFlow with admission control: new jobs are planned with all jobs, and refused if any job would be late.

    Jobs that arrive together are admitted all or none as published, one by one corrected. Everybody is planned afresh
    at every event, so an admitted job may be late after all; `promises` has the schedule without that.
    """

    def judged_end_s(self, row: int) -> int:
        """The planned end."""
        if "late_test" in self.corrected:
            return super().judged_end_s(row)
        return int(self.m.j[mk.PLANNED, row])

    def finish(self, now_s: int) -> None:
        """Jobs that are done leave."""
        self.leave(now_s)
        rows = self.runnable()
        self.m.j[mk.OLD_END, rows] = self.m.j[mk.END, rows]

    def arrive(self, now_s: int) -> None:
        """Admit new jobs with which all jobs meet their deadlines, all or none or one by one; then plan everybody."""
        newcomers = np.array(self.arrivals, np.int64)
        if not len(newcomers):
            self.plan(self.runnable(), now_s)
            return
        rows = self.runnable()
        self.m.j[mk.OLD_END, rows] = self.m.j[mk.END, rows]
        one_by_one = "admission" in self.corrected
        in_turn = newcomers[np.argsort(self.m.j[mk.DEADLINE, newcomers], kind="stable")]
        admitted = [
            self._admit_batch(batch, now_s) for batch in (in_turn[:, None] if one_by_one else [newcomers])
        ]
        if one_by_one or not all(admitted):
            self.plan(self.runnable(), now_s, record=False)

    def _admit_batch(self, newcomers: I64, now_s: int) -> bool:
        """Admit new jobs if they make no job late that would not be late anyway; else only those without deadline."""
        everybody = np.concatenate((self.runnable(), newcomers))
        late = everybody[self.plan(everybody, now_s, record=False)]
        if len(late) and "late_incumbent" in self.corrected:
            late = np.setdiff1d(late, self._late_anyway(now_s))
        if not len(late):
            for row in newcomers:
                self.admit(int(row))
            return True
        needed_s = self.m.j[mk.PLANNED, newcomers].copy()
        refused = newcomers[self.m.j[mk.SLO, newcomers] == 1]
        blame = self._blame(late, refused, now_s) if len(refused) else ""
        for row, needed in zip(newcomers, needed_s, strict=True):
            if self.m.j[mk.SLO, row]:
                self.refuse(int(row), self._because(int(row), int(needed), blame, now_s))
                self.give_slot(int(row))
            else:
                self.admit(int(row))
        return False

    def _late_anyway(self, now_s: int) -> I64:
        """Jobs admitted before that are late even without newcomers."""
        alone = self.runnable().copy()
        return alone[self.plan(alone, now_s, record=False)]

    def _blame(self, late: I64, refused: I64, now_s: int) -> str:
        """What stands against a batch as a whole: an incumbent late anyway, an incumbent made late, a batch-mate."""
        names = self.setting.jobs.id
        anyway = self._late_anyway(now_s)
        if len(anyway):
            return f"job {names[anyway[0]]}, admitted before, is predicted late in any case"
        pushed = np.setdiff1d(late, refused)
        if len(pushed):
            return f"it would make job {names[pushed[0]]} late"
        return f"with it in one batch, job {names[late[0]]} would be late"

    def _because(self, row: int, needed_s: int, blame: str, now_s: int) -> str:
        """Why a job is refused: its own speed, capacity up to its deadline, or others; and what would admit it.

        Parameters
        ----------
        row : the job.
        needed_s : its planned end.
        blame : what stands against its batch as a whole.
        now_s : the instant.
        """
        deadline = int(self.m.j[mk.DEADLINE, row])
        what = self.too_slow(row, now_s)
        if not what and needed_s > deadline:
            what = f"capacity in [{now_s}, {deadline}] s: planned with the others it would end {needed_s - deadline} s late"
        everybody = np.append(self.runnable(), row)
        anyway = self._late_anyway(now_s) if "late_incumbent" in self.corrected else everybody[:0]

        def admits() -> bool:
            late = everybody[self.plan(everybody, now_s, record=False)]
            return not len(np.setdiff1d(late, anyway))

        batch = len(self.arrivals) > 1 and "admission" not in self.corrected
        return (what or blame) + self.would_admit(row, admits, alone=batch)

    def decide(self, now_s: int) -> None:
        """Everybody takes what the plan gives now, plans are made again, spare GPUs go out, jobs are placed."""
        rows = self.runnable()
        sort_by(rows, self.m.j[mk.DEADLINE, rows])
        ek.apply_plans(self.m, now_s, False)
        self.plan(rows, now_s, record=False)
        ek.start_due(self.m, now_s, False, False)
        self.boost(now_s, registered=False)
        sort_by(rows, -self.m.j[mk.GPUS, rows])
        self.place_all(self.runnable(), now_s)
        self.note(now_s)
        ek.look_ahead(self.m, now_s)

    def charge(self, now_s: int) -> None:
        """All that hold GPUs pay, out of what was reserved."""
        rows = self.runnable()
        if self.reserving:
            held = rows[self.m.j[mk.GPUS, rows] > 0]
            before = self.m.j[mk.END, held].copy()
        self.pay(self.runnable())
        if self.reserving:
            paid = self.m.j[mk.END, held] - before
            self.reserve_s[held] = np.maximum(self.reserve_s[held] - paid, self.least_reserve_s)


class OpenRules(ElasticRules):
    """ElasticFlow without admission control: all jobs wait for a turn in the plan."""

    def idle_s(self) -> int | None:
        """Where no event is left but jobs are, the clock goes on by ten seconds."""
        return self.now_s + 10 if self.runnable_count else None

    def arrive(self, now_s: int) -> None:
        """Admit all new jobs and plan all jobs."""
        for row in self.arrivals:
            self.admit(row)
        self.plan(self.runnable(), now_s)

    def decide(self, now_s: int) -> None:
        """Everybody takes what the plan gives now, spare GPUs go out, running jobs are placed."""
        ek.apply_plans(self.m, now_s, True)
        ek.start_due(self.m, now_s, True, True)
        self.boost(now_s, registered=True)
        running = self.running()
        self.place_all(running, now_s)
        self.note(now_s)
        ek.wake_at_changes(self.m, now_s)
