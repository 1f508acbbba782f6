"""The laws of a scheduling policy, checked after every event of random settings.

    class TestMine(SchedulerContract):
        policy = LeastServed()

checks all of them: no GPU has two jobs and no more GPUs are in use than there are, work is conserved, all jobs end, the same
setting gives the same run. Settings are small and random by number (`drawn_world(n)`), so a failure names one that can be
repeated. `Witness` is the observer that checks the laws; it can observe any run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import msgspec
import numpy as np

from forerun.domains.cluster.engine.allocator import AllocatorRules, Terms
from forerun.domains.cluster.engine.kernels import allocator as ak
from forerun.domains.cluster.engine.plan_ahead import PlanAheadRules
from forerun.domains.cluster.engine.priority import PriorityRules
from forerun.domains.cluster.engine.record import Record
from forerun.domains.cluster.engine.rules import Rules
from forerun.domains.cluster.engine.run import rules_for, run_rules
from forerun.domains.cluster.inputs.setting import (
    Cluster,
    Jobs,
    NodeGroup,
    Setting,
    ThroughputTable,
)
from forerun.domains.cluster.inputs.throughput import analytic
from forerun.domains.cluster.policies.gandiva import GandivaRules
from forerun.domains.cluster.policies.themis import ThemisSlots
from forerun.domains.cluster.policies.tiresias import TiresiasRules
from forerun.domains.cluster.policy import Policy, Schedule
from forerun.domains.cluster.summary.gpus import nodes_of
from forerun.domains.cluster.summary.ledgers import ledger_of
from forerun.domains.cluster.summary.waits import stretches_of, waits_of
from forerun.rng import stream
from forerun.scenario.spec import to_data

_PLACEMENTS = ("anywhere", "first-fit", "best-fit", "consolidated", "buddy", "random")
_TOLERANCE_S = 1e-6
_RIGID_RULES = (TiresiasRules, GandivaRules, ThemisSlots, PriorityRules)


@dataclass(frozen=True, slots=True)
class Scene:
    """A setting and the terms around it: placement, restart costs, quotas. number: makes it again."""

    number: int
    setting: Setting
    terms: Terms

    def __str__(self) -> str:
        return f"random setting {self.number}"


@cache
def profiles() -> tuple[ThroughputTable, ThroughputTable]:
    """Throughput of two GPU types: an invented model, and the same 2.5 times as fast."""
    slow = analytic([("a", 64), ("b", 32)], "balanced", levels=(1, 2, 4, 8))
    slow = replace(slow, gpu_type="slow")
    return slow, replace(slow, gpu_type="fast", rate=slow.rate * 2.5)


def drawn_world(number: int, *, published: bool = False) -> Scene:
    """The `number`-th small random setting: four to twelve jobs on four to sixteen GPUs.

    Best-effort jobs stand beside such with deadlines (loose, tight, some before submission), elastic ones beside rigid
    ones, submissions tie. Nodes differ in size and type; placement, costs and quotas are random. published: equal nodes of
    eight and no terms, which is all that published schedules know; the caller chooses switches (default: no).
    """
    draw = stream(number, "drawn world")  # the name is part of the numbers
    count = int(draw.integers(4, 13))
    slow, fast = profiles()
    mixed = not published and bool(draw.random() < 0.25)
    if published:
        cluster = Cluster.uniform(1, int(draw.choice([1, 2])), 8, "slow")
    elif mixed:
        cluster = Cluster((NodeGroup("x", 1, 4, "slow"), NodeGroup("y", int(draw.integers(1, 3)), 4, "fast")))
    else:
        cluster = Cluster((NodeGroup("x", 1, 4, "slow"), NodeGroup("y", int(draw.integers(1, 3)), 2, "slow")))
    per_type = min(np.bincount([0 if name == "slow" else 1 for name in cluster.node_types()]).max() * 4, 8)
    sizes = [size for size in (1, 1, 2, 4, 8) if size <= min(per_type, 4 if not published else 8)]
    submit = np.cumsum(draw.choice([0, 0, 7, 60, 200], count)).astype(np.int64)
    gpus = draw.choice(sizes, count).astype(np.int64)
    duration = np.rint(10 ** draw.uniform(1.0, 3.3, count)).astype(np.int64)
    kind = draw.integers(0, 2, count)
    if not published:
        kind = np.where(draw.random(count) < 0.3, -1, kind)
    rate = slow.rate_at()
    iterations = np.where(kind >= 0, np.maximum(1, (duration * rate[kind, gpus]).astype(np.int64)), 0)
    effort = draw.random(count) < 0.3
    written = submit + np.rint(duration * draw.uniform(-0.05, 4.0, count)).astype(np.int64)
    jobs = Jobs.of(
        submit,
        gpus,
        duration,
        id=tuple(f"j{row}" for row in range(count)),
        iterations=iterations,
        kind=kind,
        model=tuple(slow.kinds[at][0] if at >= 0 else "" for at in kind.tolist()),
        batch=[slow.kinds[at][1] if at >= 0 else 0 for at in kind.tolist()],
        deadline_s=written,
        best_effort=effort,
        user=tuple(draw.choice(["u", "v", "w"], count).tolist()),
    )
    setting = Setting(
        jobs,
        cluster,
        slow,
        int(draw.choice([30, 60, 240])),
        "slow",
        seed=number,
        profiles=(slow, fast) if mixed else (),
    )
    return Scene(number, setting, Terms() if published else _drawn_terms(draw, jobs, cluster))


def _drawn_terms(draw: np.random.Generator, jobs: Jobs, cluster: Cluster) -> Terms:
    cost_s = draw.choice([0.0, 0.0, 3.0, 20.0], 3)
    quota = None
    if draw.random() < 0.3:
        users = len(dict.fromkeys(jobs.user))
        # a quota below the largest request would keep a job waiting for ever
        limits = [int(draw.integers(jobs.gpus.max(), cluster.gpus + 1)) for _ in range(users)]
        quota = np.array([*limits, int(draw.random() < 0.5)], np.int64)
    return Terms(
        placement=str(draw.choice(_PLACEMENTS)),
        restart_s=float(cost_s[0]),
        grow_s=float(cost_s[1]),
        shrink_s=float(cost_s[2]),
        penalty=(1.0, 1.0, 0.8, 0.6),
        quota=quota,
    )


class Witness:
    """Asserts the laws of a run after every event; `close` asserts those of its end.

    `rules` are the policy at work; what they hold of GPUs on nodes and of work left is compared with the witness's own
    books, made from the allocation changes alone.
    """

    def __init__(self, scene: Scene, rules: Rules, record: Record) -> None:
        self.scene, self.rules, self.record = scene, rules, record
        self.events = 0
        self._seen = 0
        self._held = np.zeros(len(scene.setting.jobs), np.int64)
        self._before_s = -math.inf
        count = len(scene.setting.jobs)
        self._started: set[int] = set()
        self._done_s, self._since_s, self._speed = np.zeros(count), np.zeros(count), np.zeros(count)

    def instant(self, now_s: float, record: Record) -> None:
        """One event is over."""
        self.rules.flush()
        self._replay()
        assert now_s >= self._before_s, f"{self.scene}: time went back from {self._before_s:g} to {now_s:g} s"
        self._before_s = now_s
        if isinstance(self.rules, AllocatorRules):
            self._compare_state(now_s)
        if isinstance(self.rules, PlanAheadRules):
            self._compare_sets(now_s)

    def close(self) -> None:
        """The run is over."""
        self._replay()
        self._accounts()
        self._sums()
        self._tracks()

    def _replay(self) -> None:
        """Every change so far, one instant after another: capacity, and nobody holds who may not."""
        times, rows, gpus = self.record.changes()
        setting = self.scene.setting
        at = self._seen
        while at < len(times):
            now_s = times[at]
            while at < len(times) and times[at] == now_s:
                assert gpus[at] >= 0, self._at(now_s, rows[at], f"holds {gpus[at]} GPUs")
                self._book(now_s, int(rows[at]), int(gpus[at]))
                self._held[rows[at]] = gpus[at]
                at += 1
            self.events += 1
            total = int(self._held.sum())
            assert total <= setting.cluster.gpus, (
                f"{self.scene}, t={now_s:g} s: {total} GPUs are held, {setting.cluster.gpus} are there"
            )
            holding = np.flatnonzero(self._held)
            for row in holding.tolist():
                assert setting.jobs.submit_s[row] <= now_s, self._at(now_s, row, "holds GPUs before it came")
                assert self.record.admitted[row] != 0, self._at(
                    now_s, row, "holds GPUs though it was refused"
                )
        self._seen = at

    @property
    def _keeps_books(self) -> bool:
        """Whether speed hangs on the count alone, so that the witness can work out the work by itself."""
        if not isinstance(self.rules, AllocatorRules) or self.rules.terms.placement != "anywhere":
            return False
        return not self.scene.setting.profiles and self.scene.setting.costs is None

    def _book(self, now_s: float, row: int, gpus: int) -> None:
        """Work of a job until now, and from when on it works at its new speed."""
        if not self._keeps_books:
            return
        terms, before = self.scene.terms, float(self._speed[row])
        self._done_s[row] += max(0.0, now_s - self._since_s[row]) * before
        assert isinstance(self.rules, AllocatorRules)
        speed = float(ak.speed_of(self.rules.state, row, gpus, 0)) if gpus else 0.0
        pause_s = 0.0
        if gpus and before > 0:
            pause_s = terms.grow_s if gpus > self._held[row] else terms.shrink_s
        elif gpus and row in self._started:
            pause_s = terms.restart_s
        if gpus:
            self._started.add(row)
        self._since_s[row], self._speed[row] = now_s + pause_s, speed

    def _compare_work(self, now_s: float) -> None:
        """Work done by the witness's books and work left in the engine's state are all the work there is."""
        assert isinstance(self.rules, AllocatorRules)
        state = self.rules.state
        mine = self._done_s + np.maximum(0.0, now_s - self._since_s) * self._speed
        running = state.i[ak.HELD] > 0
        since_s = np.where(running, np.maximum(0.0, now_s - state.f[ak.SINCE]), 0.0)
        theirs = state.f[ak.LEFT] - since_s * state.f[ak.SPEED]
        np.testing.assert_allclose(
            mine + theirs,
            state.f[ak.WORK],
            rtol=1e-9,
            atol=1e-5,
            err_msg=f"{self.scene}, t={now_s:g} s: work done and left is not all work",
        )

    def _compare_state(self, now_s: float) -> None:
        """The engine's state: GPUs by owner, by type, and work left, against the books."""
        assert isinstance(self.rules, AllocatorRules)
        state = self.rules.state
        held = state.i[ak.HELD]
        np.testing.assert_array_equal(held, self._held, err_msg=f"{self.scene}, t={now_s:g} s")
        used = np.bincount(state.i[ak.TYPE], held, len(state.type_size))
        np.testing.assert_array_equal(
            state.type_free + used, state.type_size, err_msg=f"{self.scene}, t={now_s:g} s: free GPUs"
        )
        if len(state.owner):
            owned = np.bincount(state.owner[state.owner >= 0], minlength=len(held))
            np.testing.assert_array_equal(
                owned, held, err_msg=f"{self.scene}, t={now_s:g} s: a GPU is held twice, or by nobody"
            )
            self._one_type_each(now_s)
        if self._keeps_books:
            self._compare_work(now_s)
        left = state.f[ak.LEFT]
        assert (left >= -_TOLERANCE_S * (1 + state.f[ak.WORK])).all(), (
            f"{self.scene}, t={now_s:g} s: work below 0"
        )
        if self.scene.terms.quota is not None and not self.scene.terms.quota[-1]:
            users = np.bincount(state.i[ak.USER], held, len(self.scene.terms.quota) - 1)
            assert (users <= self.scene.terms.quota[:-1]).all(), (
                f"{self.scene}, t={now_s:g} s: a quota is exceeded"
            )
        done = state.i[ak.STATE] == ak.DONE
        assert not held[done].any(), f"{self.scene}, t={now_s:g} s: a job that ended holds GPUs"
        states = state.i[ak.STATE]
        arrived = int(np.count_nonzero(self.scene.setting.jobs.submit_s <= now_s))
        there = {name: int(np.count_nonzero(states == value)) for name, value in _states().items()}
        assert sum(there.values()) == arrived, f"{self.scene}, t={now_s:g} s: {arrived} arrived, {there}"

    def _one_type_each(self, now_s: float) -> None:
        assert isinstance(self.rules, AllocatorRules)
        state = self.rules.state
        types = np.repeat(state.node_type, np.diff(state.node_first))
        owned = state.owner >= 0
        np.testing.assert_array_equal(
            types[owned],
            state.i[ak.TYPE, state.owner[owned]],
            err_msg=f"{self.scene}, t={now_s:g} s: a job holds GPUs of a type it does not run on",
        )

    def _compare_sets(self, now_s: float) -> None:
        """The published machine: sets of nodes are disjoint, and no set holds more than it has."""
        from forerun.domains.cluster.engine.kernels import plan_state as mk

        assert isinstance(self.rules, PlanAheadRules)
        m, per_node = self.rules.places, self.scene.setting.cluster.gpus_per_node
        nodes: list[int] = []
        for which in np.unique(m.node_set[m.node_set >= 0]).tolist():
            first, cap = int(m.sets[mk.FIRST_NODE, which]), int(m.sets[mk.CAP, which])
            used = int(m.sets[mk.USED, which])
            assert 0 <= used <= cap, f"{self.scene}, t={now_s} s: {used} of {cap} GPUs of a set are used"
            mates = m.set_jobs[which, : m.sets[mk.JOBS_IN, which]]
            assert int(m.j[mk.GPUS, mates].sum()) == used, (
                f"{self.scene}, t={now_s} s: a set's jobs hold other GPUs"
            )
            nodes += m.set_nodes[first : first + cap // per_node].tolist()
        assert len(nodes) == len(set(nodes)), f"{self.scene}, t={now_s} s: a node is in two sets"

    def _accounts(self) -> None:
        """Everybody ends, is refused, or the run says why not; nobody starts early; work was done in full."""
        record, jobs = self.record, self.scene.setting.jobs
        ended, refused = record.end_s >= 0, record.admitted == 0
        assert not (ended & refused).any(), f"{self.scene}: a refused job ended"
        for row in np.flatnonzero(ended).tolist():
            assert record.end_s[row] >= jobs.submit_s[row], self._at(
                record.end_s[row], row, "ended before it came"
            )
            assert self._credits_others or record.first_start_s[row] >= jobs.submit_s[row], self._at(
                record.first_start_s[row], row, "started before it came"
            )
        assert sorted(record.completed) == np.flatnonzero(ended).tolist(), (
            f"{self.scene}: ends and completions differ"
        )
        if isinstance(self.rules, PlanAheadRules):
            self._work_within_a_slot()
        elif isinstance(self.rules, _RIGID_RULES) and not self._credits_others:
            self._held_long_enough()

    @property
    def _credits_others(self) -> bool:
        """Gandiva as published credits elapsed time to the jobs that have a turn now, not to those that had the GPUs."""
        return isinstance(self.rules, GandivaRules) and not self.rules.acts_between

    def _work_within_a_slot(self) -> None:
        """Elastic schedules as published: GPU time times throughput is a job's iterations, but for overhead and a slot."""
        record, jobs = self.record, self.scene.setting.jobs
        assert self.scene.setting.profile is not None
        rate = self.scene.setting.profile.rate_at()
        stretches = stretches_of(record)
        to_s = np.minimum(stretches.to_s, np.where(record.end_s >= 0, record.end_s, np.inf)[stretches.row])
        held_s = np.maximum(to_s - stretches.from_s, 0.0)
        speed = rate[jobs.kind[stretches.row], stretches.gpus]
        done = np.bincount(stretches.row, held_s * speed, len(jobs))
        fastest = np.zeros(len(jobs))
        np.maximum.at(fastest, stretches.row, speed)
        for row in np.flatnonzero(record.end_s >= 0).tolist():
            owed = float(jobs.iterations[row]) - self.scene.setting.slot_s * fastest[row] - 1.0
            assert done[row] >= owed, self._at(
                record.end_s[row], row, f"did {done[row]:g} of {jobs.iterations[row]} iterations"
            )

    def _held_long_enough(self) -> None:
        """A rigid job holds its GPUs for its duration at least (a slot less where ends are seen a slot early)."""
        record, jobs = self.record, self.scene.setting.jobs
        stretches = stretches_of(record)
        to_s = np.minimum(stretches.to_s, np.where(record.end_s >= 0, record.end_s, np.inf)[stretches.row])
        held_s = np.bincount(stretches.row, np.maximum(to_s - stretches.from_s, 0.0), len(jobs))
        grace_s = self.scene.setting.slot_s if isinstance(self.rules, ThemisSlots) else 0
        for row in np.flatnonzero(record.end_s >= 0).tolist():
            assert held_s[row] >= jobs.duration_s[row] - grace_s - _TOLERANCE_S, self._at(
                record.end_s[row], row, f"held GPUs for {held_s[row]:g} of {jobs.duration_s[row]} s"
            )

    def _sums(self) -> None:
        """Waits and the ledger of GPU time sum."""
        record, jobs = self.record, self.scene.setting.jobs
        stretches = stretches_of(record)
        waits = waits_of(record, stretches)
        ledger_of(record, stretches, waits).check()
        for cause, seconds in (*waits.by_cause().items(), ("running", waits.running)):
            assert (seconds >= -_TOLERANCE_S).all(), f"{self.scene}: {cause} is negative"
        ended = record.end_s >= 0
        np.testing.assert_allclose(
            waits.total()[ended],
            (record.end_s - jobs.submit_s)[ended],
            atol=_TOLERANCE_S,
            err_msg=f"{self.scene}: seconds by cause do not sum to end less submission",
        )
        refused = record.admitted == 0
        np.testing.assert_allclose(
            waits.total()[refused],
            (record.judged_s - jobs.submit_s)[refused],
            atol=_TOLERANCE_S,
            err_msg=f"{self.scene}: seconds by cause do not sum to refusal less submission",
        )

    def _tracks(self) -> None:
        """On the timeline no GPU has two jobs at once."""
        stretches = stretches_of(self.record)
        places = nodes_of(self.record, stretches)
        assert places is not None
        spans: dict[int, list[tuple[float, float, int]]] = {}
        for number, runs in enumerate(places):
            row = int(stretches.row[number])
            assert sum(length for _, length in runs) == stretches.gpus[number], self._at(
                stretches.from_s[number], row, "is drawn on another number of GPUs than it holds"
            )
            for first, length in runs:
                for gpu in range(first, first + length):
                    spans.setdefault(gpu, []).append((stretches.from_s[number], stretches.to_s[number], row))
        for gpu, held in spans.items():
            held.sort()
            for one, other in itertools.pairwise(held):
                assert one[1] <= other[0], f"{self.scene}: GPU {gpu} is held twice at {other[0]:g} s"

    def _at(self, now_s: float, row: int, what: str) -> str:
        return f"{self.scene}, t={now_s:g} s, job {self.scene.setting.jobs.id[int(row)]}: {what}"


def _states() -> dict[str, int]:
    return {"waiting": ak.WAITING, "running": ak.HOLDING, "done": ak.DONE}


def play(policy: Policy, scene: Scene, *, watch: bool = True) -> tuple[Record, int]:
    """A run of a policy in a setting, with a witness; its record and how many events were looked at."""
    record = Record(scene.setting)
    rules = rules_for(policy, scene.setting, record, scene.terms, scene.number)
    witness = Witness(scene, rules, record)
    run_rules(rules, [lambda now_s: witness.instant(now_s, record)] if watch else [])
    if watch:
        witness.close()
    return record, witness.events


def same_run(one: Record, other: Record) -> bool:
    """Whether two runs left the same allocation changes and ends, bit for bit."""
    return all(
        first.tobytes() == second.tobytes()
        for first, second in zip((*one.changes(), one.end_s), (*other.changes(), other.end_s), strict=True)
    )


class SchedulerContract:
    """Every law of a scheduling policy, each a test. Derive a class named `Test...` and set `policy`.

    worlds: how many random settings (default 30). first_world: the number of the first (default 0).
    """

    policy: ClassVar[Policy]
    worlds: ClassVar[int] = 30
    first_world: ClassVar[int] = 0

    def scenes(self) -> Sequence[Scene]:
        """The settings in which the laws are checked."""
        published = isinstance(self.policy, Schedule)
        numbers = range(self.first_world, self.first_world + self.worlds)
        return [drawn_world(number, published=published) for number in numbers]

    def test_laws_hold_after_every_event(self) -> None:
        """No GPU has two jobs, only present jobs have GPUs, and no more than there are; work, waits and GPU time add up.

        A policy that gives GPUs it cannot give, or raises, ends here with a PolicyError naming job and instant.
        """
        for scene in self.scenes():
            play(self.policy, scene)

    def test_everybody_ends_or_is_refused(self) -> None:
        """Nobody waits for ever once no more jobs come."""
        for scene in self.scenes():
            record, _ = play(self.policy, scene, watch=False)
            there = (record.end_s < 0) & (record.admitted != 0)
            names = ", ".join(str(scene.setting.jobs.id[row]) for row in np.flatnonzero(there)[:5])
            assert not there.any(), (
                f"{scene}: {names} never end; {record.ended_because or 'no reason was given'}"
            )

    def test_the_same_world_gives_the_same_run(self) -> None:
        """Twice from the same seed, and again after another setting: no hidden randomness, no state left behind."""
        scenes = self.scenes()[:10]
        first = [play(self.policy, scene, watch=False)[0] for scene in scenes]
        for scene, before in zip(scenes, first, strict=True):
            again, _ = play(self.policy, scene, watch=False)
            assert same_run(before, again), f"{scene}: a second run differs"

    def test_names_do_not_matter(self) -> None:
        """Jobs by any other name run alike."""
        for scene in self.scenes()[:10]:
            jobs = scene.setting.jobs
            renamed = replace(jobs, id=tuple(f"x{len(jobs) - row}" for row in range(len(jobs))))
            other = replace(scene, setting=replace(scene.setting, jobs=renamed))
            one, two = (play(self.policy, each, watch=False)[0] for each in (scene, other))
            assert same_run(one, two), f"{scene}: other names, another run"

    def test_what_comes_later_changes_nothing_before(self) -> None:
        """Without the jobs to come, everything before they come is the same.

        Published schedules are left out: some of them look at coming arrivals, and that is part of what they are.
        """
        if isinstance(self.policy, Schedule):
            return
        for scene in self.scenes()[:10]:
            jobs = scene.setting.jobs
            until_s = float(jobs.submit_s[-1])
            count = int(np.count_nonzero(jobs.submit_s < until_s))
            if not count:
                continue
            known = dict.fromkeys(jobs.user[:count])
            if scene.terms.quota is not None and len(known) < len(dict.fromkeys(jobs.user)):
                continue  # users are numbered as they come: a quota belongs to its number
            short = replace(scene, setting=replace(scene.setting, jobs=jobs.take(range(count))))
            whole, part = (play(self.policy, each, watch=False)[0] for each in (scene, short))
            for one, other in zip(_before(whole, until_s), _before(part, until_s), strict=True):
                np.testing.assert_array_equal(
                    one, other, err_msg=f"{scene}: the future was known before {until_s:g} s"
                )

    def test_the_recipe_can_be_written_to_a_file(self) -> None:
        """A policy is data: a name and parameters that a scenario file can hold and give back."""
        data = to_data(self.policy)
        assert data.get("name"), "the class has no tag: class Mine(Allocator, tag='mine', frozen=True)"
        again = msgspec.convert(data, type(self.policy))
        assert again == self.policy, f"written and read, {self.policy} became {again}"
        hash(self.policy)


def _before(record: Record, until_s: float) -> tuple[Any, ...]:
    times, rows, gpus = record.changes()
    early = times < until_s
    return times[early], rows[early], gpus[early]
