"""A policy over real jobs: it observes what they do, and answers with decisions.

`Online` drives the same rules as a simulation (`engine.rules`), by observations in place of their model of work. It does
no I/O and reads no clock: whoever drives it waits until `expected_s` or until something is observed, and then asks for
the decision. Jobs may be submitted and taken back, and nodes come and go, at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from forerun.cluster.engine import Engine
from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import AnyObservingRules, ObservingRules, Progress, whole_s
from forerun.cluster.inputs.arrays import BOOL, F64, NEVER_S, Jobs
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import Allocator, Policy
from forerun.core.errors import ScenarioError
from forerun.core.registry import member_name
from forerun.core.rng import stream
from forerun.live.seats import Seats


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy decides at one instant, as data.

    Parameters
    ----------
    now_s : the instant, in seconds of the run.
    gpus : GPUs from now on of every job that has any, by row.
    slots : which GPUs these are, by row: numbers through the cluster, ascending. A job whose number of GPUs is unchanged
        keeps its own, except where others do not fit without it.
    admitted : rows admitted since the last decision.
    refused : why, by row refused since the last decision.
    late : rows so far behind their plans that no plan is in time any more, of policies that promise ends.
    """

    now_s: float
    gpus: Mapping[int, int]
    slots: Mapping[int, tuple[int, ...]]
    admitted: tuple[int, ...] = ()
    refused: Mapping[int, str] | None = None
    late: tuple[int, ...] = ()


class Online:
    """A policy at work on jobs whose progress is observed.

    Parameters
    ----------
    engine : of the scenario's mode.
    policy : the spec that a scenario names.
    setting : the jobs known beforehand, none or more, and the cluster.
    terms : placement, costs and quotas, for policies that decide through a view.
    seed : of the policy's own random numbers.
    is_open : whether more jobs may always come; nothing then rests on which of them are known beforehand (default: no).
    capacity : jobs that fit into the arrays at the start; they grow for more (default: those known beforehand).

    Attributes
    ----------
    jobs : how many jobs are known; they have the rows from 0.
    work : float64[jobs], the work of each in the unit of the policy's rules, in which `Progress.left` counts.
    record : what was decided so far; it judges ends by the jobs' deadlines. Its columns have spare rows.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        setting: Setting,
        terms: Terms,
        seed: int,
        *,
        is_open: bool = False,
        capacity: int = 0,
    ) -> None:
        self.engine, self.policy, self.terms, self.seed = engine, policy, terms, seed
        setting = replace(setting, placement_kept=True)  # whoever really moves pays for it
        self.jobs = len(setting.jobs)
        require_live(policy, setting, terms, is_open=is_open)
        self.setting = setting = with_room(setting, max(capacity, self.jobs, 1))
        self.record = Record(setting)
        self.record.seeks_remedies = False
        self.rules = online_rules(engine, policy, setting, self.record, terms, seed)
        self.rules.stop_at_each_instant()
        if is_open:
            self.rules.open_up()
        self.work: F64 = self.rules.work()[: self.jobs]
        self.seats = Seats(setting.cluster.node_gpus())
        self._admitted = np.full(len(self.record.admitted), -1, np.int8)
        self._cancelled: dict[int, float] = {}
        self._ended: set[int] = set()
        self._decided: Mapping[int, tuple[int, ...]] = {}

    def expected_s(self) -> float | None:
        """The next instant at which the policy wants to decide, None if it waits for an observation."""
        return self.rules.expected_s() if self.seats.gpus else None

    def planned_end_s(self, row: int) -> float | None:
        """When a job ends by the policy's present plan; None where it has none."""
        return self.rules.planned_end_s(row)

    def ended(self, row: int, end_s: float) -> None:
        """Note an end; the policy acts on it at the next instant that it expects."""
        self._ended.add(row)
        self.rules.ended(row, end_s)

    def submit(self, job: Jobs, now_s: float) -> int:
        """Take a job in; the policy decides on it at the next instant that it expects. Its row.

        Parameters
        ----------
        job : one job; it counts as submitted now, unless its own submission is later.
        now_s : the present instant.

        Raises ScenarioError, TraceError or ProfileError for a job that the policy cannot schedule at all, or that comes
        before one that is known already.
        """
        assert len(job) == 1, "jobs are submitted one by one"
        row, known = self.jobs, self.setting.jobs
        at_s = max(int(job.submit_s[0]), whole_s(now_s))
        if row and at_s < known.submit_s[row - 1]:
            raise ScenarioError.at(
                f"job {job.id[0]}",
                f"comes at {at_s} s, before job {known.id[row - 1]}, which is known to come at {known.submit_s[row - 1]} s",
            )
        job = replace(job, submit_s=np.array([at_s]))
        alone = replace(self.setting, jobs=job, slowness=None)
        if alone.costs is not None:
            alone = replace(alone, costs=alone.costs.of(job))
        its = online_rules(self.engine, self.policy, alone, Record(alone), self.terms, self.seed)
        if row == len(known):
            self._grow(2 * row)
        self._write(row, job)
        self.jobs += 1
        self.work = np.append(self.work, its.work())
        self.record.setting = self.setting
        self.rules.take_in(row, its, self.setting)  # type: ignore[arg-type]  # of the same class
        return row

    def cancel(self, row: int, now_s: float) -> None:
        """Take a job back that has not ended; from the next decision on it has no GPUs."""
        if row in self._cancelled or row in self._ended:
            return
        self._cancelled[row] = now_s
        self.record.cancel(row, now_s)
        if self.record.admitted[row] == 1:
            self.rules.cancel(row, now_s)

    def node_down(self, node: int, now_s: float) -> None:
        """A node offers no GPUs any more, because it is gone or drained; jobs on it lose all of theirs."""
        nodes = {row: self.seats.node_of(np.array(slots)) for row, slots in self._decided.items()}
        lost = [row for row, where in nodes.items() if node in where and row not in self._ended]
        up = self.seats.up.copy()
        up[node] = False
        self._resize(up, lost, now_s)

    def node_up(self, node: int, now_s: float) -> None:
        """A node offers its GPUs again."""
        up = self.seats.up.copy()
        up[node] = True
        self._resize(up, [], now_s)

    def decide(self, now_s: float, seen: Progress) -> Decision:
        """The decision at an instant, of what was observed by then. Raises PolicyError for an impossible one.

        Parameters
        ----------
        now_s : the instant that `expected_s` says.
        seen : of all jobs that are known.
        """
        if not self.seats.gpus:
            self._decided = {}
            return Decision(now_s, {}, {})
        self.rules.act(now_s, self._patched(seen))
        record = self.record
        fresh = np.flatnonzero(record.admitted != self._admitted)
        self._admitted = record.admitted.copy()
        for row in fresh[record.admitted[fresh] == 1].tolist():
            if row in self._cancelled:
                self.rules.cancel(row, now_s)
        held = [row for row in np.flatnonzero(record.held).tolist() if row not in self._cancelled]
        gpus = dict(zip(held, record.held[held].tolist(), strict=True))
        self._decided = self._slots(gpus)
        return Decision(
            now_s,
            gpus,
            self._decided,
            tuple(fresh[record.admitted[fresh] == 1].tolist()),
            {row: record.refusals[row] for row in fresh[record.admitted[fresh] == 0].tolist()},
            self._late(),
        )

    def _patched(self, seen: Progress) -> Progress:
        """What was observed, with spare rows; a job that was taken back has ended."""
        more = len(self.setting.jobs) - len(seen.left)
        ended_s = np.append(seen.ended_s, np.full(more, np.nan))
        for row, at_s in self._cancelled.items():
            ended_s[row] = at_s
        return Progress(np.append(seen.left, np.zeros(more)), np.append(seen.owed_s, np.zeros(more)), ended_s)

    def _slots(self, gpus: Mapping[int, int]) -> Mapping[int, tuple[int, ...]]:
        """The GPUs of each job that has some: those of the policy's own placement, where it has one."""
        if (slots := self.rules.slots(gpus)) is not None:
            return slots
        self.seats.settle(gpus)
        return {row: tuple(self.seats.of[row].tolist()) for row in gpus}

    def _late(self) -> tuple[int, ...]:
        rows = self.rules.late_rows()
        return tuple(row for row in rows if self.record.end_s[row] < 0 and row not in self._cancelled)

    def _resize(self, up: BOOL, lost: list[int], now_s: float) -> None:
        self.rules.resize(self.setting, up, lost, now_s)
        self.seats.offer(self.setting.cluster.node_gpus(), up, lost)
        self.record.setting = self.setting
        self._decided = {row: slots for row, slots in self._decided.items() if row not in lost}

    def _grow(self, capacity: int) -> None:
        self.setting = with_room(self.setting, capacity)
        self.record.grow(self.setting)
        self.rules.grow(self.setting)
        more = capacity - len(self._admitted)
        self._admitted = np.append(self._admitted, np.full(more, -1, np.int8))

    def _write(self, row: int, job: Jobs) -> None:
        """Put a job into a spare row of the setting."""
        jobs, costs = self.setting.jobs, self.setting.costs
        count = len(jobs)
        jobs = jobs.take(range(row)).followed_by(job).followed_by(jobs.take(range(row + 1, count)))
        if costs is not None:
            costs.row[row] = costs.of(job).row[0]
        self.setting = replace(self.setting, jobs=jobs)


def with_room(setting: Setting, capacity: int) -> Setting:
    """A setting with spare rows, up to a number of jobs; a spare row comes never, until a job takes it."""
    jobs, profile = setting.jobs, setting.profile
    more = capacity - len(jobs)
    kind = -1 if profile is None else int(np.argmax((np.nan_to_num(profile.rate) > 0).any(axis=1)))
    ones = np.ones(more, np.int64)
    spare = Jobs.of(ones * NEVER_S, ones, ones, id=("",) * more, iterations=1, kind=kind, best_effort=True)
    setting = replace(setting, jobs=jobs.followed_by(spare))
    if setting.costs is not None:
        row = np.append(setting.costs.row, np.zeros(more, np.int64))
        setting = replace(setting, costs=replace(setting.costs, row=row))
    if setting.slowness is not None:
        setting = replace(setting, slowness=np.append(setting.slowness, np.ones(more)))
    return setting


def require_live(policy: Policy, setting: Setting, terms: Terms, *, is_open: bool) -> None:
    """Raise ScenarioError where a policy cannot decide over real jobs as a scenario asks."""
    if is_open and terms.quota is not None:
        raise ScenarioError.at(
            "$.quota", "is by the users of a trace; where jobs are submitted it cannot be had"
        )
    if is_open and "requested_s" in policy.needs:
        raise ScenarioError.at(
            "$.policy",
            f"{member_name(type(policy))} plans by requested times, which submitted jobs do not have",
        )


def online_rules(
    engine: Engine, policy: Policy, setting: Setting, record: Record, terms: Terms, seed: int
) -> AnyObservingRules:
    """The rules of a policy that decide one instant at a time."""
    if isinstance(policy, Allocator):
        return AllocatorRules(setting, record, policy, policy.build(stream(seed, "policy")), terms)
    rules = engine.rules(policy, setting, record, terms, seed)
    if not isinstance(rules, ObservingRules):
        name = member_name(type(policy))
        raise ScenarioError.at(
            "$.policy", f"{name} decides by its own model of progress; it cannot follow real jobs"
        )
    if problems := engine.against_live(policy, rules, setting):
        raise ScenarioError(*problems)
    return rules
