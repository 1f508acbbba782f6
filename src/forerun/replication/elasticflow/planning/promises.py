"""ElasticFlow: each admitted job ends by its deadline.

A committed plan is a promise. It covers the work and what its changes of GPUs cost (`kernels.promises`), and is carried out
to the second: plans change on one grid of slots, and so does the cluster. At each instant all jobs are planned afresh,
earliest deadline first; where a fresh plan would be late, the promises stay in force. New jobs are admitted if they can
be promised something, with all jobs planned afresh or beside the promises in force; spare GPUs go only where the
promise is still good. So at every instant there is a set of plans that fit together and are in time, and by induction
no admitted job is late.

That is so while work gets done as planned. A job that falls behind its plan (`Setting.slowness`) is planned again at once:
all jobs afresh, else it alone beside the promises of others. Where neither is in time it is late: planned without a
deadline, as best effort, and promised again as soon as a plan is. The promises of others never yield.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import SLIP_S, Column, Progress, longer, whole_s
from forerun.cluster.inputs.arrays import BOOL, F64, I64, NO_DEADLINE_S
from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.kernels import plan_state as mk
from forerun.replication.elasticflow.kernels import promises as pk
from forerun.replication.elasticflow.kernels.restarts import overhead_s
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.planning.plan_ahead import sort_by
from forerun.replication.elasticflow.planning.published import Switched
from forerun.replication.elasticflow.planning.seats import SeatsTogether


class PromisingRules(Switched):
    """Admission control whose plans are promises.

    Attributes
    ----------
    costs : what changes of GPUs cost; shares `pause_s`.
    pause_s : float64[jobs], what is left of a restart.
    worked_s : float64[jobs], seconds of work so far.
    slowness : float64[jobs], how many times as long as planned the work takes.
    replans : whether jobs that are behind their plans are planned again.
    least_first : whether spare GPUs go first to the job that wastes least GPU time.
    trials : trials of one more level so far.
    late : jobs with a deadline that have no plan in time; their deadlines in the state are none.
    due_s : all deadlines.
    best : float64[jobs], iterations a second at the best count.
    ends_s : when jobs ended that were observed to end and have not left yet, by row.
    woken_s : an instant that was asked for, None: none.
    is_resized : whether other nodes offer GPUs than at the last instant, so that no promise counts unless it is made anew.
    """

    needs = frozenset({"overrun"})

    def __init__(self, setting: Setting, record: Record, corrected: Corrections) -> None:
        super().__init__(setting, record, corrected)
        self.replans = "overrun" in corrected
        self.least_first = "marginal_order" in corrected
        jobs = len(setting.jobs)
        self.pause_s: F64 = np.zeros(jobs)
        self.costs = self._costs()
        self.worked_s: F64 = np.zeros(jobs)
        self.ends_s: dict[int, int] = {}
        self.slowness: F64 = np.ones(jobs) if setting.slowness is None else setting.slowness
        self.trials = 0
        #: jobs with a deadline that have no plan in time, and all deadlines: theirs are none in the machine
        self.late: BOOL = np.zeros(jobs, np.bool_)
        self.due_s: I64 = self.m.j[mk.DEADLINE].copy()
        self.best: F64 = self._best()
        self.woken_s: int | None = None
        self.is_resized = False

    def _best(self) -> F64:
        """Iterations a second of each job at its best count."""
        usable = self.m.levels <= self.capacity
        usable = usable & (np.arange(len(self.m.levels)) < self.m.j[mk.TOP][:, None])
        best: F64 = (self.m.rate[self.m.j[mk.KIND]] * usable).max(axis=1)
        return best

    def _costs(self) -> pk.Costs:
        """Seconds of every change of GPUs: as the table says, else a new communication group at the new count."""
        levels, jobs = self.m.levels, len(self.setting.jobs)
        if self.table is not None:
            seconds, row, begun = self.table.between(levels), self.table.row, np.zeros(jobs, np.int64)
            return pk.Costs(seconds, row, begun, self.pause_s)
        total = self.charged_gpus
        each = [float(overhead_s(int(gpus), False, False, total)) for gpus in levels]
        seconds = np.zeros((1, len(levels) + 1, len(levels) + 1))
        seconds[0, :, 1:] = each
        return pk.Costs(seconds, np.zeros(jobs, np.int64), np.ones(jobs, np.int64), self.pause_s)

    def next_moment(self) -> int | None:
        """Go to the next instant on the grid at which anything happens."""
        moment = self.expected_s()
        if moment is not None:
            self._go_to(moment)
        return moment

    def _go_to(self, moment: int) -> None:
        """Move the clock."""
        self.elapsed_s = moment - self.now_s if self.started else 0
        self.started = True
        self.now_s = moment

    def observe(self, now_s: int, seen: Progress) -> None:
        """Move the clock; `advance` takes what was observed."""
        self.seen, self.woken_s = seen, None
        self._go_to(now_s)

    def ended(self, row: int, end_s: float) -> None:
        """A job ended: it leaves at the next instant on the grid."""
        self.ends_s[row] = whole_s(end_s)

    def wake_at(self, time_s: int) -> None:
        """Ask for the next instant on the grid."""
        self.woken_s = time_s

    def columns(self) -> list[Column]:
        """Those of the machine, and what promises keep of each job."""
        costs = self.costs
        mine = [
            costs.row,
            costs.begun,
            self.pause_s,
            self.worked_s,
            self.slowness,
            self.late,
            self.due_s,
            self.best,
        ]
        return [*super().columns(), *mine]

    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs."""
        super().grow(setting)
        count = len(setting.jobs)
        self.pause_s, self.worked_s = longer(self.pause_s, count), longer(self.worked_s, count)
        self.slowness, self.late = longer(self.slowness, count), longer(self.late, count)
        self.due_s, self.best = longer(self.due_s, count), longer(self.best, count)
        row, begun = longer(self.costs.row, count), longer(self.costs.begun, count)
        self.costs = self.costs._replace(row=row, begun=begun, pause_s=self.pause_s)

    def resize(self, setting: Setting, up: BOOL, lost: Sequence[int], now_s: float) -> None:
        """Other nodes offer GPUs from now on: what was promised is promised again where it can be."""
        super().resize(setting, up, lost, now_s)
        self.pause_s[list(lost)] = 0.0
        self.best[:] = self._best()
        self.is_resized = True

    def owed_s(self) -> F64:
        """What is left of the restart of each job."""
        return self.pause_s

    def late_rows(self) -> Sequence[int]:
        """Those without a plan in time."""
        rows: list[int] = np.flatnonzero(self.late).tolist()
        return rows

    def expected_s(self) -> int | None:
        """The next instant on the grid at which somebody comes, ends or changes GPUs."""
        slot_s = self.setting.slot_s
        now_s = self.now_s if self.started else int(self.setting.jobs.submit_s[0]) - 1
        m, rows = self.m, self.runnable()
        coming_s = m.j[mk.SUBMIT, m.meta[mk.ARRIVED] :][:1]
        ahead = (-(-coming_s // slot_s) * slot_s).tolist()
        asked_s = self.ends_s.values() if self.woken_s is None else (*self.ends_s.values(), self.woken_s)
        ahead += [-(-time_s // slot_s) * slot_s for time_s in asked_s]
        if len(rows):
            times, _ = self._plans(rows)
            changes = times[times > now_s]
            ahead += [int(changes.min(initial=mk.FAR))]
            holding = rows[m.j[mk.GPUS, rows] > 0]
            need_s = self.pause_s[holding] + m.left[holding] / self._rates(holding)
            # a job that is behind may have less left by its profile than rounding resolves
            ends = np.maximum(np.ceil(now_s + need_s - SLIP_S).astype(np.int64), now_s + 1)
            ahead += (-(-ends // slot_s) * slot_s).tolist()
        if (first_s := min(ahead, default=mk.FAR)) >= mk.FAR:
            return None
        return first_s if first_s > now_s else (now_s // slot_s + 1) * slot_s

    def _rates(self, rows: I64) -> F64:
        """Iterations a second of jobs on the GPUs that they hold."""
        rates: F64 = self.m.rate[self.m.j[mk.KIND, rows], self.m.j[mk.LEVEL, rows]]
        return rates

    def _plans(self, rows: I64) -> tuple[I64, I64]:
        """Instants and GPUs of the plans of jobs, one row a job, filled up with an instant after everything."""
        m = self.m
        slots = m.j[mk.SLOT, rows]
        counts = m.plan_n[slots]
        longest = int(counts.max())
        times, gpus = m.plans[0, slots, :longest], m.plans[1, slots, :longest]
        times[np.arange(longest) >= counts[:, None]] = mk.FAR
        return times, gpus

    def advance(self, now_s: int) -> None:
        """Count the work done since the last instant; jobs that are done end at the second that they were."""
        m = self.m
        arrived = int(m.meta[mk.ARRIVED])
        m.meta[mk.FIRST] = arrived
        m.meta[mk.ARRIVED] = arrived + np.searchsorted(m.j[mk.SUBMIT, arrived:], now_s, side="right")
        rows = self.runnable()
        if self.seen is not None:
            self._see(rows, self.seen)
            return
        rows = rows[m.j[mk.GPUS, rows] > 0]
        begin_s = now_s - self.elapsed_s + self.pause_s[rows]
        self.pause_s[rows] = np.maximum(0.0, begin_s - now_s)
        rate = self._rates(rows) / self.slowness[rows]
        span_s, need_s = np.maximum(0.0, now_s - begin_s), m.left[rows] / rate
        done = need_s <= span_s + SLIP_S
        span_s[done] = need_s[done]
        ended = rows[done]
        m.j[mk.END, ended] = np.ceil(begin_s[done] + need_s[done] - SLIP_S)
        m.lists[mk.ENDING, : len(ended)] = ended
        m.meta[mk.ENDS] = len(ended)
        m.left[rows] = np.maximum(0.0, m.left[rows] - span_s * rate)
        m.useful[rows] += m.j[mk.GPUS, rows] * span_s
        self.worked_s[rows] += span_s
        self.reserve()

    def _see(self, rows: I64, seen: Progress) -> None:
        """Take the work done from what was observed; jobs that ended leave at the second that they did."""
        m = self.m
        holding = rows[m.j[mk.GPUS, rows] > 0]
        worked_s = (m.left[holding] - seen.left[holding]) / self._rates(holding)
        m.useful[holding] += m.j[mk.GPUS, holding] * worked_s
        self.worked_s[holding] += worked_s
        m.left[rows] = seen.left[rows]
        self.pause_s[rows] = seen.owed_s[rows]
        ended = rows[seen.has_ended(rows)]
        m.j[mk.END, ended] = np.ceil(seen.ended_s[ended] - SLIP_S)
        m.lists[mk.ENDING, : len(ended)] = ended
        m.meta[mk.ENDS] = len(ended)
        for row in ended.tolist():
            self.ends_s.pop(row, None)
        self.reserve()

    def reserve(self, keys: int = 0) -> None:
        """Enlarge the tables of plans. Old plans change at instants that fresh ones would not, so they need more entries."""
        active = self.runnable_count + len(self.arrivals)
        _, slots, capacity = self.m.plans.shape
        if active < slots and max(6 * active + 32, 2 * keys) < capacity:
            return
        self.enlarge(max(slots, 2 * active), max(capacity, 12 * active + 64, 4 * keys))

    def finish(self, now_s: int) -> None:
        """Jobs that are done leave."""
        before = len(self.record.completed)
        ending = self.m.lists[mk.ENDING, : self.m.meta[mk.ENDS]]
        self.m.j[mk.DEADLINE, ending] = self.due_s[ending]
        self.leave(now_s)
        ended = self.record.completed[before:]
        self.record.worked_s[ended] = self.worked_s[ended]
        self.release(self.runnable(), everybody=True)

    def arrive(self, now_s: int) -> None:
        """Plan all jobs afresh if all promises hold, else continue with those made; admit jobs with a possible promise."""
        rows = self.runnable()
        out_of_time = self._out_of_time(rows, now_s)
        if self._afresh(rows, now_s):
            self._set_late(rows, out_of_time)
        else:
            self._go_on(now_s)
        self.is_resized = False
        newcomers = np.array(self.arrivals, np.int64)
        for row in newcomers[np.argsort(self.m.j[mk.DEADLINE, newcomers], kind="stable")].tolist():
            if self._promise(row, now_s):
                self.admit(row)
            else:
                self.refuse(row, self._because(row, now_s))

    def _afresh(self, rows: I64, now_s: int) -> bool:
        """Plan jobs on an empty cluster; if not all can be in time, nothing has changed."""
        ordered = rows[np.argsort(self.m.j[mk.DEADLINE, rows], kind="stable")]
        return self._or_undone(lambda: self._plan(ordered, now_s, fresh=True), ordered)

    def _beside(self, row: int, now_s: int) -> bool:
        """Plan a job in what the promises leave; if it would be late, nothing has changed."""
        rows = np.array([row], np.int64)
        return self._or_undone(lambda: self._plan(rows, now_s, fresh=False), rows)

    def _plan(self, rows: I64, now_s: int, *, fresh: bool) -> bool:
        """Plan and commit jobs in order, on an empty cluster (fresh) or beside the promises; whether all have a plan."""
        return bool(
            pk.plan_promises(self.m, self.costs, self.grid(now_s), rows, len(rows), fresh) == len(rows)
        )

    def _or_undone(self, attempt: Callable[[], bool], rows: I64) -> bool:
        """Whether planning some jobs succeeds; if not, every plan is as it was.

        Parameters
        ----------
        attempt : plans the jobs, and says whether that succeeded.
        rows : the jobs whose plans it may replace.
        """
        m = self.m
        slots = m.j[mk.SLOT, rows].copy()
        columns = m.j[mk.END : mk.PLANNED + 1, rows].copy()
        spare = m.free_slots.copy()
        keys = int(m.meta[mk.KEYS])
        free = m.free[:, :keys].copy()
        mine = slots[slots >= 0]
        longest = int(m.plan_n[mine].max(initial=1))
        plans, counts = m.plans[:, mine, :longest].copy(), m.plan_n[mine].copy()
        if attempt():
            return True
        m.plans[:, mine, :longest] = plans
        m.plan_n[mine] = counts
        m.j[mk.SLOT, rows] = slots
        m.j[mk.END : mk.PLANNED + 1, rows] = columns
        m.free_slots[:] = spare
        m.free[:, :keys] = free
        m.meta[mk.KEYS] = keys
        return False

    def _promise(self, row: int, now_s: int) -> bool:
        """Seek a plan for a new job: with all jobs planned afresh, or beside the promises."""
        return self._afresh(np.append(self.runnable(), row), now_s) or self._beside(row, now_s)

    def _out_of_time(self, rows: I64, now_s: int) -> BOOL:
        """Which jobs with a deadline cannot meet it at their best speed; the others that are late try to, once more."""
        if not self.replans:
            return np.zeros(len(rows), np.bool_)
        gone = now_s + self.m.left[rows] / self.best[rows] > self.due_s[rows] + SLIP_S
        self.m.j[mk.DEADLINE, rows] = np.where(gone, NO_DEADLINE_S, self.due_s[rows])
        return np.asarray(gone & (self.m.j[mk.SLO, rows] == 1))

    def _set_late(self, rows: I64, late: BOOL) -> None:
        """Note which jobs have no plan in time: they are planned without a deadline."""
        self.late[rows] = late
        self.m.j[mk.DEADLINE, rows] = np.where(late, NO_DEADLINE_S, self.due_s[rows])
        self.record.overrun_rows.update(rows[late].tolist())

    def _keeps_up(self, row: int, times: I64, gpus: I64) -> bool:
        """Whether a plan from now on does the work that its job has left by the plan's end, and in time."""
        m, seconds = self.m, self.costs.seconds[self.costs.row[row]]
        rate, floor_level = m.rate[m.j[mk.KIND, row]], m.floor_level
        end_s, last = min(int(m.j[mk.END, row]), int(self.due_s[row])), int(m.j[mk.LAST_GPUS, row])
        begun = bool(self.costs.begun[row])
        done = -self.pause_s[row] * rate[floor_level[last]] if last else 0.0
        for from_s, to_s, held in zip(
            times.tolist(), [*times[1:].tolist(), end_s], gpus.tolist(), strict=True
        ):
            if held:
                level = floor_level[held]
                before = -1 if not begun else floor_level[last] + 1 if last else 0
                lost_s = seconds[before, level + 1] if held != last else 0.0
                done += (max(0, min(to_s, end_s) - from_s) - lost_s) * rate[level]
                begun = True
            last = held
        return bool(done >= m.left[row] - SLIP_S * self.best[row])

    def _go_on(self, now_s: int) -> None:
        """Carry the promises on from now: what is past is cut off, what was done early is free; the rest plan anew.

        Jobs that are behind their plans, or late, are planned beside the promises of those that are not.
        """
        m = self.m
        rows = self.runnable()
        with_deadline = rows[m.j[mk.SLO, rows] == 1]
        behind = with_deadline[self.late[with_deadline]].tolist()
        changes: dict[int, int] = {}
        if self.is_resized:
            behind = with_deadline.tolist()
        for row in with_deadline[~np.isin(with_deadline, behind)].tolist():
            at, end_s = int(m.j[mk.SLOT, row]), int(m.j[mk.END, row])
            entries = int(m.plan_n[at])
            times, gpus = m.plans[0, at, :entries], m.plans[1, at, :entries]
            first = max(int(np.searchsorted(times, now_s, side="right")) - 1, 0)
            times, gpus = times[first:].copy(), gpus[first:].copy()
            times[0] = max(int(times[0]), now_s)
            if self.replans and not self._keeps_up(row, times, gpus):
                behind.append(row)
                continue
            m.plans[0, at, : len(times)], m.plans[1, at, : len(times)] = times, gpus
            m.plan_n[at] = len(times)
            before = 0
            for time_s, held in zip([*times.tolist(), end_s], [*gpus.tolist(), 0], strict=True):
                if time_s > end_s:
                    continue
                changes[time_s] = changes.get(time_s, 0) + before - held
                before = held
        at_s = sorted({now_s, *changes})
        levels = self.capacity + np.cumsum([changes.get(time_s, 0) for time_s in at_s])
        changed = np.flatnonzero(np.concatenate(([True], np.diff(levels) != 0)))
        self.reserve(len(changed) + len(rows))
        m = self.m
        m.free[0, : len(changed)] = np.array(at_s, np.int64)[changed]
        m.free[1, : len(changed)] = levels[changed]
        m.meta[mk.KEYS] = len(changed)
        late = [
            row
            for row in sorted(behind, key=lambda row: int(self.due_s[row]))
            if m.j[mk.DEADLINE, row] == NO_DEADLINE_S or not self._beside(row, now_s)
        ]
        self._set_late(with_deadline, np.isin(with_deadline, late))
        others = np.concatenate((np.array(late, np.int64), rows[m.j[mk.SLO, rows] == 0]))
        every = self._plan(others, now_s, fresh=False)
        assert every, "a job without a deadline has no plan"

    def _because(self, row: int, now_s: int) -> str:
        """Why nothing can be promised, and what would admit the job."""
        deadline = int(self.m.j[mk.DEADLINE, row])
        what = self.too_slow(row, now_s) or (
            f"capacity in [{now_s}, {deadline}] s: beside what is promised to others it would be late"
        )

        def admits() -> bool:
            promised = False

            def attempt() -> bool:
                nonlocal promised
                promised = self._promise(row, now_s)
                return False  # only asked: every plan stays as it was

            self._or_undone(attempt, np.append(self.runnable(), row))
            return promised

        return what + self.would_admit(row, admits, alone=False)

    def decide(self, now_s: int) -> None:
        """Everybody takes what the plan gives now, spare GPUs go out, jobs are placed."""
        rows = self.runnable()
        sort_by(rows, self.m.j[mk.DEADLINE, rows])
        self._take_turns(now_s)
        self.trials += pk.boost_promises(self.m, self.costs, self.grid(now_s), self.least_first)
        waiting = self.m.lists[mk.PENDING, : self.m.meta[mk.PENDING]]
        self._start(waiting[self.m.j[mk.GPUS, waiting] > 0])
        sort_by(rows, -self.m.j[mk.GPUS, rows])
        self.place_all(self.runnable(), now_s)
        self.note(now_s)

    def _take_turns(self, now_s: int) -> None:
        """Jobs hold what their plans give them now; waiting ones whose turn has come start."""
        m, rows = self.m, self.runnable()
        if not len(rows):
            return
        times, gpus = self._plans(rows)
        spot = np.count_nonzero(times <= now_s, axis=1) - 1
        held = np.where(spot >= 0, gpus[np.arange(len(rows)), spot], 0)
        m.j[mk.GPUS, rows] = held
        m.j[mk.LEVEL, rows] = np.where(held > 0, m.floor_level[held], -1)
        self._start(rows[((gpus > 0) & (times <= now_s)).any(axis=1)])

    def _start(self, turn: I64) -> None:
        """Jobs begin to run, those of them that wait."""
        m = self.m
        waiting = m.lists[mk.PENDING, : m.meta[mk.PENDING]]
        due = np.isin(waiting, turn)
        starting, still_waiting = waiting[due], waiting[~due]
        waiting[: len(still_waiting)] = still_waiting
        m.meta[mk.PENDING] = len(still_waiting)
        running = int(m.meta[mk.RUNNING])
        m.lists[mk.RUNNING, running : running + len(starting)] = starting
        m.meta[mk.RUNNING] += len(starting)
        m.j[mk.STATE, starting] = mk.HOLDING
        m.meta[mk.ACCEPTED] += np.count_nonzero(m.j[mk.SLO, starting])

    def charge(self, now_s: int) -> None:
        """Jobs whose GPUs changed pay; a communication group that is known costs less."""
        m = self.m
        rows = self.runnable()
        wait_s = self.wait_s(rows)
        for row in rows[m.j[mk.GPUS, rows] != m.j[mk.LAST_GPUS, rows]].tolist():
            gpus, before = int(m.j[mk.GPUS, row]), int(m.j[mk.LAST_GPUS, row])
            self.pause_s[row] = self._due_s(row) + wait_s * (gpus > before) if gpus else 0.0
            self.costs.begun[row] = 1
            m.j[mk.LAST_GPUS, row] = gpus
        for row in self.moved:
            self.pause_s[row] += self._due_s(row) + wait_s

    def settle(self, seats: SeatsTogether, wanted: Mapping[int, int], now_s: int) -> frozenset[int]:
        """Give jobs their GPUs; only those are moved whose plans can hold what that costs."""
        m, grid, before_s = self.m, self.grid(now_s), self.pause_s.copy()
        stay: set[int] = set()

        def holds(row: int, commits: bool) -> bool:
            self.pause_s[row] = before_s[row] + self._move_s(row)
            feasible = pk.plan_move(m, self.costs, grid, row, commits)
            self.pause_s[row] = before_s[row]
            return bool(feasible) or m.j[mk.DEADLINE, row] == NO_DEADLINE_S

        def may_move(row: int) -> bool:
            if row not in stay and not holds(row, commits=False):
                stay.add(row)
            return row not in stay

        while True:
            of, owner = seats.of, seats.owner.copy()
            moved = seats.settle(wanted, may_move)
            # one plan that holds a move may leave no GPUs for another's
            broken = [row for row in sorted(moved) if not holds(row, commits=True)]
            if not broken:
                return moved
            stay.update(broken)
            seats.of, seats.owner = of, owner

    def _move_s(self, row: int) -> float:
        """What a job loses at most that gets other GPUs, as many as it has."""
        gpus = int(self.m.j[mk.GPUS, row])
        if self.table is not None:
            return self.table.change_s(row, gpus, gpus) + self.table.longest_drain_s
        return float(overhead_s(gpus, False, False, self.charged_gpus))

    def _due_s(self, row: int) -> float:
        """What a job's change of GPUs costs it; never more than its plan contains."""
        if self.table is not None:
            before, gpus = int(self.m.j[mk.LAST_GPUS, row]), int(self.m.j[mk.GPUS, row])
            if not self.costs.begun[row]:
                return self.table.start_s(row, gpus)
            return self.table.change_s(row, before, gpus)
        known = bool(self.m.j[mk.HIT, row])
        return float(overhead_s(int(self.m.j[mk.GPUS, row]), False, known, self.charged_gpus))
