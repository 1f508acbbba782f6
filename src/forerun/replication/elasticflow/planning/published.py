"""The clock, costs and known bugs that the published schedules which plan ahead share.

`Switched` overrides what `plan_ahead` leaves open, as the switches say; `PublishedRules` has the published clock of events,
and jobs that pay at each for restarts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import Column, Progress, longer
from forerun.cluster.inputs.arrays import BOOL, F64, I64, ThroughputTable
from forerun.cluster.inputs.costs import CostTable
from forerun.cluster.inputs.setting import Setting
from forerun.core.errors import PolicyError
from forerun.replication.elasticflow.kernels import events as ev
from forerun.replication.elasticflow.kernels import plan_state as mk
from forerun.replication.elasticflow.kernels.restarts import overhead_s
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.planning.plan_ahead import PlanAheadRules
from forerun.replication.elasticflow.standstill import Standstill

#: largest useful GPU counts that the published ElasticFlow code fixes by hand, by GPU type, model and batch
_A100_LIMITS: Final = {
    ("gpt2", 128): 16,
    ("gpt2", 256): 32,
    ("bert", 64): 8,
    ("inception3", 64): 16,
    ("inception3", 128): 32,
    ("resnet50", 64): 32,
    ("vgg16", 64): 32,
}
_T4_LIMITS: Final = {"bert": 16, "cifar10": 16, "yolov3": 4, "ncf": 1}


def fixed_limit(gpu_type: str, model: str, batch: int) -> int:
    """The GPU count beyond which the published ElasticFlow code never scales a job."""
    if gpu_type == "T4":
        return 32 if (model, batch) == ("deepspeech2", 320) else _T4_LIMITS.get(model, 64)
    if model == "bert":
        return _A100_LIMITS.get((model, batch), 16)
    return _A100_LIMITS.get((model, batch), batch if model == "deepspeech2" else min(batch, 64))


def usable_levels(profile: ThroughputTable, counts: I64) -> I64:
    """How many of the profile's levels lie within each of some GPU counts."""
    levels: I64 = np.searchsorted(profile.levels, counts, side="right").astype(np.int64)
    return levels


#: restarts that a plan keeps time for, where overhead is reserved at admission
RESERVED_RESTARTS: Final = 4


class Switched(PlanAheadRules):
    """What the switches change in any schedule that plans ahead.

    Parameters
    ----------
    setting : what is run.
    record : written: what happens.
    corrected : the known bugs that it does without.
    """

    #: known bugs that must be corrected before the rules decide over real jobs, because they misstate work or costs
    needs: frozenset[str] = frozenset()

    def __init__(self, setting: Setting, record: Record, corrected: Corrections) -> None:
        self.corrected = corrected
        super().__init__(setting, record)

    def levels(self, profile: ThroughputTable) -> I64:
        """Up to the count of greatest throughput, or as published."""
        if "max_gpus_rule" in self.corrected:
            return super().levels(profile)
        return usable_levels(profile, self.most_gpus(profile))

    def most_gpus(self, profile: ThroughputTable) -> I64:
        """How many GPUs each job may use as published: up to a limit that is fixed by hand."""
        gpu_type, kind = self.setting.gpu_type, self.setting.jobs.kind
        limits = [fixed_limit(gpu_type, model, batch) for model, batch in profile.kinds]
        return np.array(limits, np.int64)[kind]

    def charges(self) -> CostTable | None:
        """The table of costs, if it is not ignored."""
        return super().charges() if "cost_table" in self.corrected else None

    def place_by_count(self, rows: I64, now_s: int) -> None:
        """Jobs are spread over nodes, or the run ends."""
        planned, total = int(self.m.j[mk.GPUS, rows].sum()), self.setting.cluster.gpus
        if planned <= total and "buddy_only" in self.corrected:
            super().place_by_count(rows, now_s)
            return
        node = self.gpus_per_node
        odd = "" if node & (node - 1) == 0 else f" (nodes of {node} GPUs cannot be halved down to one)"
        raise PolicyError.at(
            f"t={now_s} s",
            f"the buddy placement, by halves of nodes and whole nodes, has none for {planned} planned GPUs of "
            f"{total}{odd}; compat.buddy_only: corrected also spreads jobs over nodes",
        )

    def learn_groups(self, rows: I64) -> None:
        """Groups are known by their real GPUs, or by first rank and size."""
        if len(self.owner) or "rank_cache" in self.corrected:
            super().learn_groups(rows)
        else:
            ev.learn_groups(self.places, rows, len(rows), self.gpus_per_node)

    def met(self, groups: Sequence[tuple[int, ...]], ranks: I64, levels: I64) -> Sequence[bool] | BOOL:
        """Which communication groups were met before, by their real GPUs, or by first rank and size."""
        if "rank_cache" in self.corrected:
            return super().met(groups, ranks, levels)
        known: BOOL = self.places.known[ranks, levels]
        self.places.known[ranks, levels] = True
        return known


class PublishedRules(Switched):
    """The published clock: events within a slot are postponed to its end, and at each event jobs pay for their restarts.

    Attributes
    ----------
    begun : whether each job has run before: first starts have a cost of their own in a table.
    """

    anchor_s = -1

    def __init__(self, setting: Setting, record: Record, corrected: Corrections) -> None:
        super().__init__(setting, record, corrected)
        self.standstill = Standstill(record)
        self.begun: BOOL = np.zeros(len(setting.jobs), np.bool_)

    def columns(self) -> list[Column]:
        """Those of the machine, and whether each job has run."""
        return [*super().columns(), self.begun]

    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs."""
        super().grow(setting)
        self.begun = longer(self.begun, len(setting.jobs))

    def next_moment(self) -> int | None:
        """Events within a slot are postponed to its end; a single last event is not."""
        everybody_came = self.m.meta[mk.ARRIVED] == len(self.setting.jobs)
        if everybody_came and self.standstill.check(self.now_s, self._done):
            return None
        moment = int(ev.go_on(self.m, self.now_s, self.setting.slot_s if self.started else 0))
        if moment < 0:
            idle_s = self.idle_s()
            if idle_s is None:
                return None
            moment = idle_s
            ev.take_events(self.m, moment)
        self._go_to(moment)
        return moment

    def idle_s(self) -> int | None:
        """Where to go on if no event is left; nowhere."""
        return None

    def expected_s(self) -> int | None:
        """The next event; events within a slot are postponed to its end, but for a single last one."""
        moment = ev.next_instant(self.m, self.now_s, self.setting.slot_s if self.started else 0)
        return self.idle_s() if moment < 0 else int(moment)

    def owed_s(self) -> F64:
        """What is left of the restart of each job."""
        owed_s: F64 = self.m.j[mk.CHARGED].astype(np.float64)
        return owed_s

    def ended(self, row: int, end_s: float) -> None:
        """A job ended: its end event is then, wherever it was expected."""
        self.m.j[mk.EVENT_AT, row] = max(math.ceil(end_s), self.now_s)

    def observe(self, now_s: int, seen: Progress) -> None:
        """Take the events up to now; jobs whose end was expected by now and was not seen are expected to end later."""
        self.seen = seen
        ev.take_events(self.m, now_s)
        self._go_to(now_s)

    def open_up(self) -> None:
        """More jobs may always come."""
        super().open_up()
        self.m.meta[mk.OPEN] = 1

    def wake_at(self, time_s: int) -> None:
        """Ask for an instant, which may be postponed like all others."""
        ev.add_wake(self.m, time_s)

    def _go_to(self, moment: int) -> None:
        """Move the clock."""
        self.elapsed_s = moment - self.now_s if self.started else 0
        self.started = True
        self.now_s = moment
        self.reserve()

    def _done(self) -> tuple[int, int, float]:
        return int(self.m.meta[mk.FINISHED]), int(self.m.meta[mk.RUNNING]), float(self.m.left.sum())

    def reserve(self) -> None:
        """Enlarge the tables of plans before an instant that may need more."""
        active = self.runnable_count + len(self.arrivals)
        _, slots, keys = self.m.plans.shape
        if active < slots and 2 * active + 16 < keys:
            return
        self.enlarge(max(slots, 2 * active), max(keys, 4 * active + 32))

    def advance(self, now_s: int) -> None:
        """Count the work done since the last instant."""
        if self.seen is None:
            ev.progress(self.m, self.elapsed_s, now_s)
        else:
            ev.see(self.m, self.elapsed_s, now_s, self.seen.left, self.seen.owed_s, self.seen.ended_s)

    def finish(self, now_s: int) -> None:
        """Jobs that are done leave; they are late by their real ends."""
        self.leave(now_s)

    def charge(self, now_s: int) -> None:
        """Running jobs that have GPUs pay."""
        self.pay(self.running())

    def pay(self, rows: I64) -> None:
        """Jobs pay for their restarts; on some events all communication groups are forgotten first."""
        rebuilt = ev.tick(self.places, self.setting.slot_s)
        if rebuilt:
            self.groups.clear()
        if self.table is not None:
            self._pay_by_table(self.table, rows)
            return
        unchanged_free = "overhead_when_unchanged" in self.corrected
        if self.moved:
            self.m.j[mk.LAST_GPUS, list(self.moved)] = -1  # no number that they have
        ev.charge(self.m, rows, len(rows), rebuilt, unchanged_free, self.charged_gpus)

    def _pay_by_table(self, table: CostTable, rows: I64) -> None:
        """Jobs whose GPUs changed pay what the table says, rounded up to whole seconds."""
        m, wait_s = self.m, self.wait_s(rows)
        cost_s = np.zeros(len(rows), np.int64)
        for at, row in enumerate(rows.tolist()):
            gpus, before = int(m.j[mk.GPUS, row]), int(m.j[mk.LAST_GPUS, row])
            if gpus and (gpus != before or row in self.moved):
                needed_s = table.change_s(row, before, gpus) if self.begun[row] else table.start_s(row, gpus)
                needed_s += wait_s if gpus > before or row in self.moved else 0.0
                cost_s[at] = math.ceil(needed_s - 1e-9)
            self.begun[row] |= gpus > 0
        ev.charge_each(m, rows, cost_s)

    def restart_reserve_s(self, restarts: int = RESERVED_RESTARTS) -> I64:
        """Seconds per job that a plan keeps for overhead: restarts at the job's largest count, all groups new."""
        largest = self.m.levels[np.maximum(self.m.j[mk.TOP] - 1, 0)]
        if self.table is not None:
            return np.ceil(restarts * self.table.worst_s(largest)).astype(np.int64)
        total = self.charged_gpus
        each = {int(gpus): overhead_s(int(gpus), False, False, total) for gpus in np.unique(largest)}
        return np.array([restarts * each[int(gpus)] for gpus in largest], np.int64)

    def running(self) -> I64:
        """Jobs that have been started."""
        return self.m.lists[mk.RUNNING, : self.m.meta[mk.RUNNING]]
