"""Policies that decide through a view: the clock that calls them, and what becomes of their answers.

A compiled kernel advances arrivals and ends; between its calls the policy is shown a view and answers with an allocation,
which is checked, placed on nodes, charged for restarts, and recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from forerun.cluster.engine.kernels import allocator as ak
from forerun.cluster.engine.kernels.placement import BUDDY
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import Column, ObservingRules, Progress, Step, longer
from forerun.cluster.inputs.arrays import (
    BOOL,
    F64,
    I64,
    NEVER_S,
    NO_DEADLINE_S,
    Jobs,
    ThroughputTable,
)
from forerun.cluster.inputs.limits import Tally, of_quotas
from forerun.cluster.inputs.reach import WHOLE_NODE, Reach, entries_of, reach_of
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import AbsentJob, Allocation, Allocator, Ranked, Scheduler
from forerun.core.errors import PolicyError, ScenarioError

#: placements by name, as scenarios say them; `anywhere` does not look at nodes
PLACEMENTS: Final = ("anywhere", "first-fit", "best-fit", "consolidated", "buddy", "random")

#: decisions with no GPU in use and no job to come after which a run is ended
MOST_IDLE_ROUNDS: Final = 1000

_FAULTS: Final = {
    1: "was given {gpus} GPUs; a count is not negative",
    2: "was given {gpus} GPUs of {type}, a count it cannot run on",
    3: "was given {gpus} GPUs, which with the jobs before it are more than the {size} of {type}",
}


#: no job has named GPUs
_NO_NAMES: Final = (np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class Terms:
    """What a scenario adds around a policy that decides through a view.

    Parameters
    ----------
    placement : one of `PLACEMENTS` (default: nodes do not matter).
    restart_s, grow_s, shrink_s : seconds that a job loses when it starts again, grows or shrinks (default: 0).
    penalty : by number of nodes, the speed of a job on this many, relative to one (default: 1).
    quota : GPUs of each user, and at the end 1 if what is idle may be borrowed (default: no quotas).
    checkpoint_s : seconds of work between checkpoints, up to the last of which the work of a job that is put back into the
        queue stays (default 0: none does).
    """

    placement: str = "anywhere"
    restart_s: float = 0.0
    grow_s: float = 0.0
    shrink_s: float = 0.0
    penalty: tuple[float, ...] = (1.0, 1.0)
    quota: I64 | None = None
    checkpoint_s: float = 0.0


class AllocatorRules(ObservingRules[float]):
    """A run under a policy that decides through a view.

    A kernel advances arrivals and ends; the policy decides in between.

    Parameters
    ----------
    setting : what is run.
    record : written: what happens.
    policy : the policy's spec: how often it decides, what it sees, and whether it names nodes.
    scheduler : the policy at work.
    terms : placement, costs and quotas.

    Attributes
    ----------
    state : the kernel's state.
    limits : those of the setting, or hard quotas; None: there are none.
    view : what the scheduler is shown, filled anew before each decision.
    coming_s : the next arrival or end.
    wake_s : when the policy wants to decide again.
    idle_rounds, stuck_rounds, lull : decisions in a row without GPUs in use, without work, and without an arrival or end.
    undrawn : decisions whose changes of GPUs are not in the record yet: (end in the log, jobs waiting).
    """

    order = (Step.ADVANCE, Step.DECIDE)

    def __init__(
        self, setting: Setting, record: Record, policy: Allocator, scheduler: Scheduler, terms: Terms
    ) -> None:
        if not 0 <= policy.round_s < math.inf:
            raise ScenarioError.at(
                "$.policy.round_s", f"is {policy.round_s:g}; 0 (at every arrival and end) or more is required"
            )
        self.setting, self.record, self.policy, self.scheduler = setting, record, policy, scheduler
        self.terms = terms
        profiles = setting.profiles or ((setting.profile,) if setting.profile else ())
        self.types = _type_names(setting)
        confined = not reach_of(setting.jobs, setting.cluster).is_everywhere
        if (policy.places or confined or setting.failures) and terms.placement == "anywhere":
            terms = self.terms = replace(terms, placement="first-fit")
        self.placement = PLACEMENTS.index(terms.placement)
        self.state = build_state(setting, profiles, self.types, terms, policy)
        count = len(setting.jobs)
        self.view = policy.sees(setting.cluster.gpus, self.state.rate, self.state.type_size, count)
        self.view.quota, self.view.limits = terms.quota, setting.limits
        self.limits, quota = setting.limits, terms.quota
        if quota is not None and not quota[-1]:
            owner: list[int] = self.state.i[ak.USER].tolist()
            self.limits = of_quotas(quota[:-1], owner, len(self.types), ("",) * (len(quota) - 1))
        self.view.slot_s, self.view.costs = float(setting.slot_s), self.state.cost
        self.view.types, self.view.standing = self.types, self._standing
        self.view.placement, self.view.seed = terms.placement, setting.seed
        if len(self.state.owner):
            self.view.node_gpus = np.diff(self.state.node_first)
            self.view.node_type = self.state.node_type
            self.view.nodes_of_job, self.view.seats_for = self._on_nodes, self._seats_for
            self._learn_reach()
            self._require_places()
        self.now_s = 0.0
        self.coming_s = float(self.state.f[ak.SUBMIT, 0])  # whoever follows another job comes later
        record.moved_s[self.state.f[ak.DELAY] >= 0] = np.inf
        leaves_s = setting.jobs.leaves_s
        #: jobs that leave if they have not started, the next one last
        self.leaving: list[int] = np.argsort(-leaves_s, kind="stable")[
            np.count_nonzero(leaves_s == NEVER_S) :
        ].tolist()
        #: failures of nodes that are to come, the next one last
        self.failing = list(reversed(setting.failures))
        self.wake_s = math.inf
        self.idle_rounds = 0
        self.stuck_rounds = 0
        self.left_s = math.inf
        self.paused_s = 0.0
        self.lull = (0, 0.0, (-1, -1))
        #: decisions whose changes of GPUs are not in the record yet: (end in the log, jobs waiting)
        self.undrawn: list[tuple[int, int]] = []

    def _learn_reach(self) -> None:
        """Which nodes jobs may use, where nodes are tracked."""
        setting, view, i = self.setting, self.view, self.state.i
        if not len(self.state.owner):
            return
        view.reach = reach = reach_of(setting.jobs, setting.cluster)
        view.entries = entries_of(setting.jobs, setting.cluster)
        self.state = self.state._replace(reach=reach.nodes.astype(np.int64))
        view.types_of.clear()
        i[ak.REACH], i[ak.NODES], i[ak.ALONE] = reach.kind, reach.said, reach.each == WHOLE_NODE

    def next_moment(self) -> float | None:
        """The next arrival or end, or the next round at which anybody is there; None when nothing can change."""
        moment = self._next_moment()
        if moment is None:
            self.flush()
        return moment

    def _next_moment(self) -> float | None:
        """As `next_moment`; says in the record why a run ends early."""
        if self.state.meta[ak.ENDED] == len(self.setting.jobs):
            return None
        running = int(self.state.meta[ak.RUNNING])
        if self.stuck_rounds > MOST_IDLE_ROUNDS:
            self.record.ended_because = (
                f"at {self.now_s:g} s: the policy restarted jobs at {MOST_IDLE_ROUNDS} decisions in a row before any of "
                f"them did any work; {int(self.state.meta[ak.ACTIVE])} jobs are unfinished"
            )
            return None
        if not running and math.isinf(min(self.coming_s, self._next_leaves_s())):
            self.idle_rounds += 1
            if (not self.policy.round_s and math.isinf(self.wake_s)) or self.idle_rounds > MOST_IDLE_ROUNDS:
                self._starved()
                return None
        else:
            self.idle_rounds = 0
        return self._next_decision_s()

    def _next_decision_s(self) -> float:
        """The next arrival, end or wake-up, or the round after it; infinite if there is none."""
        if not (step := self.policy.round_s):
            return min(self.coming_s, self.wake_s, self._next_leaves_s())
        waiting = int(self.state.meta[ak.ACTIVE]) > 0
        after = self.now_s + step if waiting else self.coming_s
        return step * math.ceil(after / step - 1e-9) if after < math.inf else after

    def _next_leaves_s(self) -> float:
        """When the next job leaves that has not started; infinite: none does."""
        while self.leaving and self.state.i[ak.STARTS, self.leaving[-1]]:
            self.leaving.pop()
        return float(self.setting.jobs.leaves_s[self.leaving[-1]]) if self.leaving else math.inf

    def close(self) -> None:
        """Let the scheduler end what it has started."""
        getattr(self.scheduler, "close", lambda: None)()

    def work(self) -> F64:
        """Seconds of work on the requested GPUs."""
        seconds: F64 = self.state.f[ak.WORK].copy()
        return seconds

    def instant(self, now_s: float) -> float:
        """The clock is continuous."""
        return now_s

    def pace(self, gpus: I64, now_s: float) -> tuple[F64, F64]:
        """Jobs work at their present speed, from when their changes are over."""
        f, holds = self.state.f, gpus > 0
        return np.where(holds, f[ak.SPEED], 0.0), np.where(holds, np.maximum(f[ak.SINCE] - now_s, 0.0), 0.0)

    def slots(self, gpus: Mapping[int, int]) -> Mapping[int, tuple[int, ...]] | None:
        """Those of the scenario's placement, where it has one."""
        owner = self.state.owner
        return {row: tuple(np.flatnonzero(owner == row).tolist()) for row in gpus} if len(owner) else None

    def expected_s(self) -> float | None:
        """The next arrival, end or wake-up, or the next round at which anybody is there."""
        moment = self._next_decision_s()
        return moment if moment < math.inf else None

    def ended(self, row: int, end_s: float) -> None:
        """A job ended: the rules act on it at once, or in the next round."""
        self.coming_s = min(self.coming_s, max(end_s, self.now_s))

    def observe(self, now_s: float, seen: Progress) -> None:
        """Jobs end when they are seen to end; until then the kernel knows no end."""
        self.seen = seen
        ak.set_ends(self.state, seen.ended_s)

    def columns(self) -> list[Column]:
        """The state's columns."""
        return [self.state.f, self.state.i, self.state.active, self.state.end_at]

    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs."""
        self.setting = setting
        state, view, count = self.state, self.view, len(setting.jobs)
        f, i = longer(state.f, count), longer(state.i, count)
        f[ak.SUBMIT, state.f.shape[1] :] = np.inf
        f[ak.DELAY, state.f.shape[1] :] = -1.0
        i[[ak.FOLLOWER, ak.SIBLING], state.i.shape[1] :] = -1
        self.state = state._replace(
            f=f,
            i=i,
            active=longer(state.active, count),
            coming=longer(state.coming, count),
            coming_s=longer(state.coming_s, count),
            end_at=longer(state.end_at, count),
        )
        view.float_columns, view.int_columns = (
            longer(view.float_columns, count),
            longer(view.int_columns, count),
        )
        self._learn_reach()

    def take_in(self, row: int, alone: Self, setting: Setting) -> None:
        """A job takes a spare row; the policy is asked when it comes."""
        names = tuple(dict.fromkeys(setting.jobs.user[: row + 1]))
        active = int(self.state.active[row])
        super().take_in(row, alone, setting)
        self.setting, self.state.active[row] = setting, active
        self.state.i[ak.ROW, row], self.state.i[ak.USER, row] = row, names.index(setting.jobs.user[row])
        self._learn_reach()
        self.coming_s = min(self.coming_s, float(self.state.f[ak.SUBMIT, row]))

    def cancel(self, row: int, now_s: float) -> None:
        """A job is taken back: one that waits is gone at once, one that runs at the next decision."""
        if self.state.i[ak.STATE, row] == ak.HOLDING:
            self.ended(row, now_s)
        elif self.state.i[ak.STATE, row] != ak.DONE:
            self._leaves(row, now_s)
            self.wake_s = min(self.wake_s, max(now_s, self.now_s))

    def _leaves(self, row: int, now_s: float) -> None:
        """A job that does not run is done with; who waits for its end comes."""
        ak.leave(self.state, row, now_s)
        self.coming_s = min(self.coming_s, ak.next_arrival_s(self.state))

    def resize(self, setting: Setting, up: BOOL, lost: Sequence[int], now_s: float) -> None:
        """Other nodes offer GPUs from now on. Raises ScenarioError for nodes of a GPU type that is not there yet."""
        known = set(setting.cluster.node_types())
        if unknown := sorted(known - set(self.types)):
            raise ScenarioError.at("node", f"GPU type {unknown[0]!r} was not there when the run began")
        for row in lost:
            ak.stop(self.state, row, now_s)
        self._decided(0)
        self.setting, state, view = setting, self.state, self.view
        node_gpus, total = setting.cluster.node_gpus(), setting.cluster.gpus
        node_type = np.array([self.types.index(name) for name in setting.cluster.node_types()], np.int64)
        used = state.type_size - state.type_free
        state.type_size[:] = np.bincount(node_type[up], node_gpus[up], len(self.types))
        state.type_free[:] = state.type_size - used
        node_first = np.concatenate(([0], np.cumsum(node_gpus))).astype(np.int64)
        owner = state.owner
        if len(owner):
            owner = np.concatenate((owner, np.full(total - len(owner), -1, np.int64)))
            offered = np.repeat(up, node_gpus)
            owner[~offered] = ak.NOBODY
            owner[offered & (owner == ak.NOBODY)] = -1
            view.node_gpus, view.node_type = node_gpus * up, node_type
        grown = max(len(state.log_row), _log_room(total, 0))
        self.state = state._replace(
            owner=owner,
            node_first=node_first,
            node_type=node_type,
            end_order=longer(state.end_order, total + 1),
            end_key=longer(state.end_key, total + 1),
            log_time=longer(state.log_time, grown),
            log_row=longer(state.log_row, grown),
            log_gpus=longer(state.log_gpus, grown),
        )
        self._learn_reach()
        view.total = int(state.type_size.sum())
        view.usable_of.clear()
        self.wake_s = min(self.wake_s, max(now_s, self.now_s))

    def advance(self, now_s: float) -> None:
        """Play arrivals and ends up to now, and nodes that fail."""
        while self.failing and self.failing[-1].at_s <= now_s:
            failure = self.failing.pop()
            self._play(failure.at_s)
            first = self.state.node_first
            gpus = [self.state.owner[first[node] : first[node + 1]] for node in failure.nodes]
            for row in np.unique(np.concatenate(gpus)).tolist():
                if 0 <= row < ak.TRIED:
                    self._requeue(row, failure.requeue_s, failure.at_s)
            self._decided(0)
        self._play(now_s)

    def _play(self, now_s: float) -> None:
        """Play arrivals and ends up to an instant."""
        if 2 * int(self.state.meta[ak.LOGGED]) > len(self.state.log_row):
            self.flush()  # what is left covers any end, stop and start until the next instant
        while True:
            self.coming_s = ak.advance(self.state, float(now_s))
            if self.coming_s > now_s:
                break
            self._decided(0)
            self.flush()
        self.now_s = now_s
        while self._next_leaves_s() <= now_s:
            self.cancel(self.leaving.pop(), now_s)
        if (seen := self.seen) is not None:
            state, waiting = self.state, self.state.active[: self.state.meta[ak.ACTIVE]]
            # They ended after they were stopped, or were taken back before they came.
            gone = waiting[(state.i[ak.STATE, waiting] == ak.WAITING) & seen.has_ended(waiting)]
            state.i[ak.STATE, gone] = ak.DONE
            state.f[ak.END, gone] = seen.ended_s[gone]
            state.meta[ak.ENDED] += len(gone)
            self.record.end_all(gone, seen.ended_s[gone])
            state.f[ak.LEFT, waiting] = seen.left[waiting]
            self.coming_s = ak.see(state, now_s, seen.left, seen.owed_s)

    def decide(self, now_s: float) -> None:
        """Ask the policy and carry its answer out."""
        try:
            self._decide(now_s)
        except PolicyError:
            self._decided(0)
            self.flush()  # the run so far stays readable
            raise

    def _decide(self, now_s: float) -> None:
        """Show the policy a view, check its answer, and carry it out.

        An answer without GPU types gets them here where there are several. What a hard quota forbids is taken away.
        Raises PolicyError for an answer that cannot be carried out, except that jobs for which there are no admissible
        nodes keep waiting.
        """
        state, view = self.state, self.view
        view.now_s = now_s
        jobs = self.setting.jobs
        view.ids, view.users, view.labels = jobs.id, jobs.user, jobs.labels
        view.count = ak.gather(state, float(now_s), view.float_columns, view.int_columns)
        came = view.job[self.record.admitted[view.job] < 0]
        self.record.admitted[came] = 1
        moved = came[state.f[ak.DELAY, came] >= 0]
        self.record.moved_s[moved] = state.f[ak.CHANGED, moved]
        view.free = int(state.type_free.sum())
        if self.setting.maintenance:
            windows = self.setting.maintenance
            view.windows = tuple(each for each in windows if each.announced_s <= now_s < each.to_s)
        self._look_for_progress()
        self._count_lull(now_s)
        if not view.count:
            self.wake_s = math.inf
            self._decided(0)
            return
        if len(state.owner):
            view.node_free = np.add.reduceat(state.owner < 0, state.node_first[:-1]).astype(np.int64)
            view.owner, view.node_of = state.owner, np.arange(len(state.owner))
            if self.placement != BUDDY:
                view.node_of = np.repeat(np.arange(len(state.node_type)), np.diff(state.node_first))
        answer = self._ask()
        gpus = np.asarray(answer.gpus)
        if gpus.shape != (view.count,) or gpus.dtype.kind not in "iu":
            if gpus.dtype.kind == "f" and np.isnan(gpus).any():
                raise self._wrong(int(np.argmax(np.isnan(gpus))), "was given nan GPUs")
            raise self._fault(
                f"the allocation is {gpus.dtype} of shape {gpus.shape}; int64[{view.count}] is expected",
            )
        gpus = gpus.astype(np.int64)
        free_choice = answer.gpu_type is None and not answer.nodes and not answer.seats
        if free_choice and len(self.types) > 1 and 0 <= gpus.min() <= gpus.sum() <= view.total:
            answer = self._on_some_type(answer, gpus)
            gpus = answer.gpus
        types = view.gpu_type.copy() if answer.gpu_type is None else np.asarray(answer.gpu_type, np.int64)
        rows = view.job
        gpus[self._beyond_limits(gpus, types)] = 0
        named, named_first = _NO_NAMES
        if answer.nodes or answer.seats:
            seats = {at: seats for at, seats in (answer.seats or {}).items() if gpus[at]}
            if answer.nodes:
                seats |= self._named(answer, gpus, types)
            named = np.array([gpu for at in sorted(seats) for gpu in seats[at]], np.int64)
            lengths = [len(seats.get(at, ())) for at in range(view.count)]
            named_first = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        fault, at = ak.check(state, rows, gpus, types, view.count)
        if fault:
            name = self.types[types[at]] or "the cluster"
            what = _FAULTS[fault].format(gpus=int(gpus[at]), type=name, size=int(state.type_size[types[at]]))
            raise self._wrong(at, what)
        for at, delay_s in (answer.requeued or {}).items():
            if gpus[at] or not view.held[at]:
                raise self._wrong(
                    at, "was put back into the queue; only one that runs, and is given no GPUs, can be"
                )
            self._requeue(int(rows[at]), delay_s, now_s)
        ak.apply(
            state, float(now_s), rows, gpus, types, view.count, self.placement, self.setting.seed, named, named_first,
        )  # fmt: skip
        for job, why in (answer.refused or {}).items():
            self._refuse(int(job), why, gpus, now_s)
        self.wake_s = min(answer.wake_s if answer.wake_s > now_s else math.inf, self._next_mark_s(now_s))
        waiting = int(np.count_nonzero(state.i[ak.STATE, rows] == ak.WAITING))
        self._name_places(now_s)
        if state.meta[ak.RUNNING]:
            self.coming_s = min(self.coming_s, state.f[ak.END, state.end_order[0]])
        self._decided(waiting)

    def _requeue(self, row: int, delay_s: float, now_s: float) -> None:
        """A running job loses its GPUs and work, and comes again after a while; infinite: never."""
        ak.requeue(self.state, row, float(now_s), float(delay_s), self.terms.checkpoint_s)
        if delay_s == math.inf:
            self.record.cancel(row, now_s)
        else:
            self.record.away.append((row, now_s, now_s + delay_s))
        self.coming_s = min(self.coming_s, ak.next_arrival_s(self.state))

    def _refuse(self, row: int, why: str, gpus: I64, now_s: float) -> None:
        """A job leaves the queue for good. Raises PolicyError unless it waits, and never had GPUs."""
        state = self.state
        (at,) = np.flatnonzero(self.view.job == row)[:1] if row in self.view.job else (-1,)
        if at < 0:
            raise self._fault(f"refuses job number {row}, which is neither waiting nor running")
        if gpus[at] or state.i[ak.STARTS, row]:
            raise self._wrong(
                int(at), "was refused, but has GPUs or had some; only a job that never ran can be refused"
            )
        self._leaves(row, now_s)
        self.record.refuse(row, why, now_s)

    def _next_mark_s(self, now_s: float) -> float:
        """When maintenance is next announced, begins or ends, or a node fails; infinite: never."""
        windows = self.setting.maintenance
        marks = [
            at_s for each in windows for at_s in (each.announced_s, each.from_s, each.to_s) if at_s > now_s
        ]
        return min([*marks, *(one.at_s for one in self.failing[-1:])], default=math.inf)

    def _ask(self) -> Allocation:
        """The policy's answer to the view. Raises PolicyError, also for whatever the policy raises."""
        try:
            answer = self.scheduler.allocate(self.view)
        except PolicyError:
            raise
        except AbsentJob as error:
            raise self._absent(error) from None
        except Exception as error:  # a policy is somebody else's code
            raise self._fault(f"the policy raised {type(error).__name__}: {error}") from error
        if not isinstance(answer, Allocation):
            raise self._fault(f"the policy answered {type(answer).__name__}; an Allocation is expected")
        return answer

    def _fault(self, what: str, of: str = "") -> PolicyError:
        """What is wrong with the present decision. of: whom it is about."""
        return PolicyError.at(f"t={self.view.now_s:g} s{of}", what)

    def _wrong(self, at: int, what: str) -> PolicyError:
        """What is wrong with the GPUs given to the job at a position of the view."""
        return self._fault(what, f", job {self.setting.jobs.id[int(self.view.job[at])]}")

    def _standing(self, order: Ranked) -> tuple[I64, F64]:
        """See `View.standing`."""
        return order.best_standing(self.setting.jobs, self.setting.cluster)

    def _on_nodes(self, row: int) -> dict[int, int]:
        """GPUs by node that a job holds."""
        held = np.flatnonzero(self.state.owner == row)
        node = np.searchsorted(self.state.node_first, held, side="right") - 1
        where, count = np.unique(node, return_counts=True)
        return dict(zip(where.tolist(), count.tolist(), strict=True))

    def _seats_for(self, at: int, owner: I64, gpus: int, gpu_type: int) -> I64:
        """See `View.seats_for`."""
        return self._seats_of(int(self.view.job[at]), owner, gpus, gpu_type)

    def _seats_of(self, row: int, owner: I64, gpus: int, gpu_type: int) -> I64:
        """The same for a job by its row."""
        tried = self.state._replace(owner=owner.copy())
        if not ak.find_nodes(tried, row, ak.TRIED, gpus, gpu_type, self.placement, self.setting.seed):
            return np.zeros(0, np.int64)
        return np.flatnonzero(tried.owner == ak.TRIED)

    def _require_places(self) -> None:
        """Raise ScenarioError if the placement could not even put a job on nodes that are all free."""
        assert self.view.reach is not None
        empty, jobs = np.full(len(self.state.owner), -1, np.int64), self.setting.jobs

        def has_place(row: int) -> bool:
            gpus = int(jobs.gpus[row])
            return any(len(self._seats_of(row, empty, gpus, number)) for number in range(len(self.types)))

        if not self.policy.places:
            require_places(jobs, self.view.reach, self.terms.placement, has_place)

    def _named(self, answer: Allocation, gpus: I64, types: I64) -> dict[int, list[int]]:
        """The GPUs, by position, of jobs for which an answer names nodes on which they are not yet.

        A job whose nodes are those that it has already stays. Raises PolicyError for nodes that do not exist, are of
        two types, or are given more GPUs than they have left.

        Parameters
        ----------
        answer : the policy's.
        gpus : GPUs by position, after quotas.
        types : changed: GPU types by position, which follow the nodes.
        """
        assert answer.nodes is not None
        state, view = self.state, self.view
        if not len(state.owner):
            raise self._fault(
                "the policy names nodes, of which there is no account; set `places = True` in its class, or "
                "a placement in the scenario",
            )
        named_by = (answer.nodes, *answer.nodes.values()) if isinstance(answer.nodes, Mapping) else (None,)
        if not all(isinstance(by_node, Mapping) for by_node in named_by):
            raise self._fault("the nodes named are no mapping of positions to {node: GPUs}")
        sizes = view.node_gpus
        names: dict[int, dict[int, int]] = {}
        for at, by_node in answer.nodes.items():
            if not 0 <= at < view.count:
                raise self._fault(f"nodes are named for position {at}; the view has {view.count} jobs")
            if gpus[at] == 0 and answer.gpus[at] > 0:
                continue  # a quota took them
            names[at] = self._checked_names(at, by_node, int(gpus[at]))
            if names[at]:
                types[at] = state.node_type[next(iter(names[at]))]
        moving = {
            at: by_node
            for at, by_node in names.items()
            if by_node and by_node != self._on_nodes(int(view.job[at]))
        }
        stays = (view.held > 0) & (gpus == view.held) & (types == view.gpu_type)
        stays[list(moving)] = False
        owner = np.where(np.isin(state.owner, view.job[(view.held > 0) & ~stays]), -1, state.owner)
        seats: dict[int, list[int]] = {}
        for at, by_node in moving.items():
            mine: list[int] = []
            for node, count in sorted(by_node.items()):
                begin = int(state.node_first[node])
                free = begin + np.flatnonzero(owner[begin : state.node_first[node + 1]] < 0)
                if count > len(free):
                    what = f"was given {count} GPUs of node {node}, which has {sizes[node]}"
                    rest = f" and {len(free)} left beside those that others keep or were given"
                    raise self._wrong(at, what + (rest if len(free) < sizes[node] else ""))
                owner[free[:count]] = view.job[at]
                mine += free[:count].tolist()
            seats[at] = mine
        return seats

    def _checked_names(self, at: int, named: Mapping[int, int], gpus: int) -> dict[int, int]:
        """The nodes named for one job, as plain numbers."""
        state, nodes = self.state, len(self.view.node_gpus)
        by_node: dict[int, int] = {}
        for node, count in named.items():
            if not isinstance(node, (int, np.integer)) or not 0 <= node < nodes:
                raise self._wrong(at, f"was given GPUs of node {node}; nodes are numbered 0 to {nodes - 1}")
            if not isinstance(count, (int, np.integer)) or count < 0:
                raise self._wrong(at, f"was given {count} GPUs of node {node}; a count is expected")
            if count:
                by_node[int(node)] = int(count)
            if count and not self.state.reach[self.state.i[ak.REACH, self.view.job[at]], node]:
                raise self._wrong(
                    at, f"was given GPUs of node {node}, which its partition or GPU type leaves out"
                )
        if sum(by_node.values()) != gpus:
            raise self._wrong(
                at,
                f"was given {gpus} GPUs, but {sum(by_node.values())} on its nodes; they must be as many",
            )
        if len({int(state.node_type[node]) for node in by_node}) > 1:
            raise self._wrong(at, f"was given nodes {', '.join(map(str, by_node))}, of several GPU types")
        return by_node

    def _on_some_type(self, answer: Allocation, gpus: I64) -> Allocation:
        """The same with a GPU type for each job, where the policy names none: those that run keep theirs first.

        A job that needs more than the free GPUs of any single type keeps waiting.
        """
        some = self.view.on_types(np.argsort(self.view.held == 0, kind="stable"), gpus)
        return replace(answer, gpus=some.gpus, gpu_type=some.gpu_type, nodes=some.nodes, seats=some.seats)

    def _beyond_limits(self, gpus: I64, types: I64) -> BOOL:
        """Which jobs limits or hard quotas keep from what they are given: those that run go first, then by submission."""
        view, beyond = self.view, np.zeros(self.view.count, np.bool_)
        if self.limits is None:
            return beyond
        tally = Tally(self.limits)
        order = np.argsort(view.held == 0, kind="stable")
        order = order[gpus[order] > 0]
        columns = (order, view.job[order], types[order], gpus[order])
        for at, job, number, given in zip(*(column.tolist() for column in columns), strict=True):
            if tally.fits(job, number, given):
                tally.add(job, number, given)
            else:
                beyond[at] = True
        return beyond

    def _absent(self, error: AbsentJob) -> PolicyError:
        """The fault of giving GPUs to a job that is not there: it does not exist, has ended, or comes later."""
        jobs = self.setting.jobs
        row = error.job
        if not 0 <= row < len(jobs):
            where, what = f"job number {row}", f"does not exist; there are {len(jobs)}"
        elif self.state.i[ak.STATE, row] == ak.DONE:
            where, what = f"job {jobs.id[row]}", f"ended at {self.state.f[ak.END, row]:g} s"
        else:
            where, what = f"job {jobs.id[row]}", f"is not submitted before {jobs.submit_s[row]} s"
        return self._fault(f"was given {error.gpus} GPUs, but {what}", f", {where}")

    def _count_lull(self, now_s: float) -> None:
        """Reject to be asked again and again while time stands still."""
        happened = (int(self.state.meta[ak.ARRIVED]), int(self.state.meta[ak.ENDED]))
        decisions, from_s, before = self.lull
        if happened != before or decisions == MOST_IDLE_ROUNDS:
            if happened == before and now_s - from_s < 1.0:
                raise self._fault(
                    f"the policy decided {MOST_IDLE_ROUNDS} times within a second in which no job came or ended",
                )
            decisions, from_s = 0, now_s
        self.lull = (decisions + 1, from_s, happened)

    def _look_for_progress(self) -> None:
        """Count decisions that restarted jobs while none came, ended or did any work in between."""
        count = self.view.count
        left_s = float(self.view.float_columns[4, :count].sum()) + count
        if left_s != self.left_s:
            self.left_s, self.stuck_rounds = left_s, 0
            return
        paused_s = float(self.state.f[ak.PAUSED].sum())
        self.stuck_rounds += paused_s > self.paused_s
        self.paused_s = paused_s

    def _name_places(self, now_s: float) -> None:
        """Which GPUs the jobs hold whose allocation just changed, or of which type they are."""
        state = self.state
        rows = np.unique(state.log_row[: state.meta[ak.LOGGED]])
        rows = rows[state.i[ak.HELD, rows] > 0]
        if not len(state.owner):
            if len(self.types) > 1 and len(rows):
                first = np.array([np.argmax(state.node_type == number) for number in state.i[ak.TYPE, rows]])
                self.record.seat_all(
                    np.full(len(rows), now_s), rows, state.node_first[first], state.i[ak.HELD, rows]
                )
            return
        for row in rows.tolist():
            held = int(state.i[ak.HELD, row])
            self.record.seat(now_s, row, np.flatnonzero(state.owner == row))
            if held == self.record.held[row]:
                self.record.moves.append((now_s, row, held))

    def _decided(self, waiting: int) -> None:
        """A decision is over: its changes of GPUs, and those of ends before it, are events of their own."""
        self.undrawn.append((int(self.state.meta[ak.LOGGED]), waiting))
        if len(self.state.owner):
            self.flush()  # places are named by the record

    def flush(self) -> None:
        """Hand changes of GPUs to the record, as events, and jobs that ended; a decision without change is no event."""
        state, record = self.state, self.record
        undrawn, self.undrawn = self.undrawn, []
        count = int(state.meta[ak.LOGGED])
        if not count:
            return
        times, rows, gpus = (
            state.log_time[:count],
            state.log_row[:count].copy(),
            state.log_gpus[:count].copy(),
        )
        ends, waiting = np.array(undrawn, np.int64).T
        fresh = np.zeros(count + 1, np.bool_)
        fresh[0] = True
        fresh[1:count] = times[1:] != times[:-1]
        fresh[ends] = True  # decisions at one instant are events apart
        first = np.flatnonzero(fresh[:count])
        pending = waiting[np.searchsorted(ends, first, side="right")]
        record.add_events(times[first], pending, np.append(first, count), rows, gpus)
        state.meta[ak.LOGGED] = 0
        touched = np.unique(rows)
        record.preempts[touched] = state.i[ak.PREEMPTS, touched]
        # a job's last change is its end, if it has ended
        backwards = rows[::-1]
        latest, back = np.unique(backwards, return_index=True)
        ended = state.i[ak.STATE, latest] == ak.DONE
        done = latest[ended][np.argsort(count - back[ended], kind="stable")]
        record.end_all(done, state.f[ak.END, done])
        record.useful_gpu_s[done] = state.f[ak.USEFUL, done]
        record.worked_s[done] = state.f[ak.WORKED, done]
        record.lost_gpu_s[touched] = state.f[ak.LOST, touched]

    def _starved(self) -> None:
        """Say in the record that waiting jobs will never get GPUs."""
        waiting = len(self.setting.jobs) - int(self.state.meta[ak.ENDED])
        self.record.ended_because = (
            f"at {self.now_s:g} s nothing runs, nothing arrives and the policy gives GPUs to none of "
            f"{waiting} waiting jobs"
        )


def require_room(jobs: Jobs, most: int, there: str, need: I64 | None = None) -> None:
    """Raise ScenarioError if a job needs more than `most` GPUs.

    Parameters
    ----------
    there : how many there are, in words.
    need : GPUs that jobs cannot do without (default: those that they ask for).
    """
    too_large = np.flatnonzero((jobs.gpus if need is None else need) > most)
    if len(too_large):
        row = int(too_large[0])
        more = f" (and {len(too_large) - 1} more)" if len(too_large) > 1 else ""
        raise ScenarioError.at(f"job {jobs.id[row]}", f"asks for {jobs.gpus[row]} GPUs, {there}{more}")


def require_places(jobs: Jobs, reach: Reach, placement: str, has_place: Callable[[int], bool]) -> None:
    """Raise ScenarioError for a job that a placement cannot even put on nodes that are all free.

    Parameters
    ----------
    reach : of the jobs; those of a class that ask alike are asked about once.
    has_place : whether the job of a row has a place.
    """
    asked = np.array([jobs.gpus, reach.kind, reach.said, reach.each])
    for row in sorted(np.unique(asked, axis=1, return_index=True)[1].tolist()):
        if not has_place(row):
            what = f"for which the placement {placement} has no nodes even when all nodes are free"
            raise ScenarioError.at(f"job {jobs.id[row]}", f"asks for {jobs.gpus[row]} GPUs, {what}")


def _type_names(setting: Setting) -> tuple[str, ...]:
    return tuple(dict.fromkeys(setting.cluster.node_types()))


def build_state(
    setting: Setting,
    profiles: tuple[ThroughputTable, ...],
    types: tuple[str, ...],
    terms: Terms,
    policy: Allocator,
) -> ak.AllocatorState:
    """The packed state at the start of a run. Work is in seconds at the requested count.

    Raises ScenarioError if a job needs more GPUs than the cluster has of one type, or a GPU type has no profile.

    Parameters
    ----------
    setting : what is run.
    profiles : throughput by GPU type; none: jobs run rigid.
    types : the GPU types, in the order in which they are numbered.
    terms : placement and costs.
    policy : it says whether jobs need what they ask for, or may have fewer GPUs.
    """
    jobs = setting.jobs
    count, total = len(jobs), setting.cluster.gpus
    node_gpus = setting.cluster.node_gpus()
    node_type = np.array([types.index(name) for name in setting.cluster.node_types()], np.int64)
    type_size = np.bincount(node_type, node_gpus, len(types)).astype(np.int64)
    most = int(type_size.max())
    of_one = f", at most {most} of one type" if len(types) > 1 else ""
    rate, scale, work = _speeds(setting, profiles, types)
    need, scales = jobs.gpus.copy(), (scale > 0) & (not policy.keeps_requests)
    need[scales] = np.argmax((rate > 0).any(axis=0), axis=1)[
        jobs.kind[scales]
    ]  # the fewest on which they run
    require_room(jobs, most, f"the cluster has {total}{of_one}", need)
    f = np.zeros((ak.FLOATS, count))
    i = np.zeros((ak.INTS, count), np.int64)
    f[ak.SUBMIT] = np.where(jobs.submit_s < NEVER_S, jobs.submit_s, np.inf)
    f[ak.DEADLINE] = np.where(jobs.deadline_s < NO_DEADLINE_S, jobs.deadline_s, np.inf)
    f[ak.LEFT] = f[ak.WORK] = work
    f[ak.SCALE] = scale
    f[ak.REQUEST] = np.maximum(jobs.request_s, 1.0)
    i[ak.ROW] = np.arange(count)
    i[ak.WANT] = jobs.gpus
    i[ak.KIND] = np.where(scale > 0, jobs.kind, -1)
    before = jobs.predecessor()
    f[ak.DELAY] = -1.0
    i[[ak.FOLLOWER, ak.SIBLING]] = -1
    for row in np.flatnonzero(before >= 0)[::-1].tolist():
        assert jobs.labels is not None
        f[ak.DELAY, row] = jobs.labels.after_delay_s[row]
        i[ak.SIBLING, row] = i[ak.FOLLOWER, before[row]]
        i[ak.FOLLOWER, before[row]] = row
    restarts = (before >= 0) & (jobs.labels.attempt > 1) if jobs.labels is not None else before >= 0
    f[ak.SUBMIT, before >= 0] = np.inf
    for row in np.flatnonzero(restarts).tolist():  # a restart keeps the place of its job
        f[ak.SUBMIT, row] = f[ak.SUBMIT, before[row]]
    users = {name: number for number, name in enumerate(dict.fromkeys(jobs.user))}
    i[ak.USER] = [users[name] for name in jobs.user]
    i[ak.EFFORT] = jobs.best_effort
    if setting.costs is not None:
        i[ak.COSTS] = setting.costs.row
    placed = terms.placement != "anywhere"
    capacity = _log_room(total, count)
    return ak.AllocatorState(
        f=f,
        i=i,
        active=np.zeros(count, np.int64),
        coming=np.zeros(count, np.int64),
        coming_s=np.zeros(count),
        end_order=np.zeros(total + 1, np.int64),
        end_key=np.zeros(total + 1),
        end_at=np.full(count, -1, np.int64),
        rate=rate,
        type_free=type_size.copy(),
        type_size=type_size,
        owner=np.full(total if placed else 0, -1, np.int64),
        node_first=np.concatenate(([0], np.cumsum(node_gpus))).astype(np.int64),
        node_type=node_type,
        reach=np.ones((1, len(node_type)), np.int64),
        cost=setting.costs.curves(int(max(total, 1))) if setting.costs else _plain_costs(terms),
        penalty=np.array(terms.penalty),
        meta=np.zeros(8, np.int64),
        log_time=np.zeros(capacity),
        log_row=np.zeros(capacity, np.int64),
        log_gpus=np.zeros(capacity, np.int64),
    )


def work_on_request_s(setting: Setting) -> F64:
    """Seconds of work of each job on the GPUs that it asks for, of the first type."""
    profiles = setting.profiles or ((setting.profile,) if setting.profile else ())
    return _speeds(setting, profiles, _type_names(setting))[2]


def _log_room(total: int, jobs: int) -> int:
    """Changes of GPUs that the log can hold; what one decision changes takes no more than half of it."""
    return 8 * total + 4 * min(jobs, 1 << 14) + 4096


def _plain_costs(terms: Terms) -> F64:
    """The same seconds for all, by kind of change; moving is restarting, first starts and drains take no time."""
    return np.array([terms.restart_s, terms.grow_s, terms.shrink_s, terms.restart_s, 0.0, 0.0]).reshape(
        1, 6, 1
    )


def _speeds(
    setting: Setting, profiles: tuple[ThroughputTable, ...], types: tuple[str, ...]
) -> tuple[F64, F64, F64]:
    """`rate[type, kind, gpus]`, and by job the factor from it to speed (0: rigid) and the work in seconds."""
    jobs = setting.jobs
    duration = jobs.duration_s.astype(np.float64)
    if not profiles:
        return np.zeros((len(types), 1, 1)), np.zeros(len(jobs)), duration
    named = {profile.gpu_type: profile for profile in profiles}
    chosen = [named.get(name, profiles[0] if len(profiles) == 1 else None) for name in types]
    for name, profile in zip(types, chosen, strict=True):
        if profile is None:
            raise ScenarioError.at(
                "machines", f"GPU type {name!r} has no profile; known: {', '.join(sorted(named))}"
            )
    tables = [profile.rate_at() for profile in chosen if profile is not None]
    rate = np.zeros((len(types), len(tables[0]), max(table.shape[1] for table in tables)))
    for at, table in enumerate(tables):
        rate[at, :, : table.shape[1]] = table
    top = rate.shape[2] - 1
    base = np.where(jobs.kind >= 0, rate[0, jobs.kind, np.minimum(jobs.gpus, top)], 0.0)
    base = np.where(jobs.gpus <= top, base, 0.0)
    scale = np.divide(1.0, base, out=np.zeros(len(jobs)), where=base > 0)
    work = np.where((scale > 0) & (jobs.iterations > 0), jobs.iterations * scale, duration)
    return rate, scale, work
