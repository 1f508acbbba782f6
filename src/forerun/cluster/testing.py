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

import numpy as np

from forerun.cluster.engine import Engine, engines
from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.kernels import allocator as ak
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import AnyRules
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import BOOL, F64, I64, Cluster, Jobs, NodeGroup, ThroughputTable
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.inputs.throughput import analytic
from forerun.cluster.policy import Policy, Schedule
from forerun.cluster.summary.gpus import nodes_of
from forerun.cluster.summary.ledgers import ledger_of
from forerun.cluster.summary.spans import Stretches
from forerun.cluster.summary.waits import stretches_of, waits_of
from forerun.core.rng import stream
from forerun.core.testing import written_and_read

_PLACEMENTS = ("anywhere", "first-fit", "best-fit", "consolidated", "buddy", "random")
_TOLERANCE_S = 1e-6


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
        requested_s=_drawn_requests(number, duration),
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


def _drawn_requests(number: int, duration_s: I64) -> I64:
    """Requested times from half to four times what jobs take."""
    factor = stream(number, "drawn requested times").uniform(0.5, 4.0, len(duration_s))
    return np.maximum(1, np.rint(duration_s * factor)).astype(np.int64)


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

    def __init__(self, scene: Scene, rules: AnyRules, record: Record) -> None:
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
        self._require(now_s >= self._before_s, now_s, f"time went back from {self._before_s:g} s")
        self._before_s = now_s
        if isinstance(self.rules, AllocatorRules):
            self._compare_state(self.rules.state, now_s)
        for what in self.rules.faults():
            self._require(False, now_s, what)

    def close(self) -> None:
        """The run is over."""
        self._replay()
        self._accounts()
        self._sums()
        self._tracks()

    def _require(self, holds: object, now_s: float, what: str, row: int | None = None) -> None:
        """Assert a law of an instant, and of a job where one is given. what: how it is violated."""
        job = "" if row is None else f", job {self.scene.setting.jobs.id[row]}"
        assert holds, f"{self.scene}, t={now_s:g} s{job}: {what}"

    def _require_of_all(self, holds: BOOL, at_s: F64, what: str) -> None:
        """Assert a law of every job, naming the first that violates it, at its instant."""
        for row in np.flatnonzero(~holds)[:1].tolist():
            self._require(False, at_s[row], what, row)

    def _require_equal(
        self, one: Any, other: Any, now_s: float, what: str, *, rtol: float = 0.0, atol: float = 0.0
    ) -> None:
        """Assert that two columns are equal, to a relative and an absolute tolerance (default: exactly)."""
        said = f"{self.scene}, t={now_s:g} s: {what}"
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, err_msg=said)

    def _replay(self) -> None:
        """Every change so far, one instant after another: capacity, and no GPUs for those who may not have any."""
        times, rows, gpus = self.record.changes()
        jobs, total = self.scene.setting.jobs, self.scene.setting.cluster.gpus
        at = self._seen
        while at < len(times):
            now_s = times[at]
            while at < len(times) and times[at] == now_s:
                row, count = int(rows[at]), int(gpus[at])
                self._require(count >= 0, now_s, f"holds {count} GPUs", row)
                self._book(now_s, row, count)
                self._held[row] = count
                at += 1
            self.events += 1
            held = int(self._held.sum())
            self._require(held <= total, now_s, f"{held} GPUs are held, {total} are there")
            when, holding = np.full(len(jobs), now_s), self._held > 0
            self._require_of_all(~holding | (jobs.submit_s <= now_s), when, "holds GPUs before it came")
            admitted = self.record.admitted != 0
            self._require_of_all(~holding | admitted, when, "holds GPUs though it was refused")
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

    def _compare_state(self, state: ak.AllocatorState, now_s: float) -> None:
        """The engine's state against the books: GPUs by owner, by type and by user, states of jobs, and work left."""
        held, states, left = state.i[ak.HELD], state.i[ak.STATE], state.f[ak.LEFT]
        self._require_equal(held, self._held, now_s, "other GPUs are held than were given")
        used = np.bincount(state.i[ak.TYPE], held, len(state.type_size))
        self._require_equal(state.type_free + used, state.type_size, now_s, "free GPUs")
        if len(state.owner):
            owned = state.owner >= 0
            by_job = np.bincount(state.owner[owned], minlength=len(held))
            self._require_equal(by_job, held, now_s, "a GPU counts for two jobs, or for none")
            types = np.repeat(state.node_type, np.diff(state.node_first))[owned]
            mine = state.i[ak.TYPE, state.owner[owned]]
            self._require_equal(types, mine, now_s, "a job holds GPUs of a type it does not run on")
        if self._keeps_books:
            done = self._done_s + np.maximum(0.0, now_s - self._since_s) * self._speed
            since_s = np.where(held > 0, np.maximum(0.0, now_s - state.f[ak.SINCE]), 0.0)
            work = done + left - since_s * state.f[ak.SPEED]
            what = "work done and left is not all work"
            self._require_equal(work, state.f[ak.WORK], now_s, what, rtol=1e-9, atol=1e-5)
        self._require((left >= -_TOLERANCE_S * (1 + state.f[ak.WORK])).all(), now_s, "work below 0")
        quota = self.scene.terms.quota
        if quota is not None and not quota[-1]:
            users = np.bincount(state.i[ak.USER], held, len(quota) - 1)
            self._require((users <= quota[:-1]).all(), now_s, "a quota is exceeded")
        self._require(not held[states == ak.DONE].any(), now_s, "a job that ended holds GPUs")
        arrived = int(np.count_nonzero(self.scene.setting.jobs.submit_s <= now_s))
        there = int(np.count_nonzero(np.isin(states, (ak.WAITING, ak.HOLDING, ak.DONE))))
        self._require(there == arrived, now_s, f"{arrived} jobs arrived, {there} wait, run or have ended")

    def _accounts(self) -> None:
        """Everybody ends, is refused, or the run says why not; nobody starts early; work was done in full."""
        record, jobs = self.record, self.scene.setting.jobs
        ended, end_s = record.end_s >= 0, record.end_s
        assert not (ended & (record.admitted == 0)).any(), f"{self.scene}: a refused job ended"
        self._require_of_all(~ended | (end_s >= jobs.submit_s), end_s, "ended before it came")
        if not self.rules.credits_others:
            early = ended & (record.first_start_s < jobs.submit_s)
            self._require_of_all(~early, record.first_start_s, "started before it came")
        completed = sorted(record.completed) == np.flatnonzero(ended).tolist()
        assert completed, f"{self.scene}: ends and completions differ"
        stretches = stretches_of(record)
        to_s = np.minimum(stretches.to_s, np.where(ended, end_s, np.inf)[stretches.row])
        held_s = np.maximum(to_s - stretches.from_s, 0.0)
        if self.rules.scales_in_slots:
            self._work_within_a_slot(stretches, held_s)
        elif self.rules.is_rigid and not self.rules.credits_others:
            # a rigid job holds its GPUs for its duration; a slot less where ends are seen a slot early
            longest_s = np.bincount(stretches.row, held_s, len(jobs)) + self.rules.early_s + _TOLERANCE_S
            enough = ~ended | (longest_s >= jobs.duration_s)
            self._require_of_all(enough, end_s, "held GPUs for less than its duration")

    def _work_within_a_slot(self, stretches: Stretches, held_s: F64) -> None:
        """Elastic schedules as published: GPU time times throughput is a job's iterations, but for overhead and a slot."""
        record, jobs = self.record, self.scene.setting.jobs
        assert self.scene.setting.profile is not None
        rate = self.scene.setting.profile.rate_at()
        speed = rate[jobs.kind[stretches.row], stretches.gpus]
        done = np.bincount(stretches.row, held_s * speed, len(jobs))
        fastest = np.zeros(len(jobs))
        np.maximum.at(fastest, stretches.row, speed)
        owed = jobs.iterations - self.scene.setting.slot_s * fastest - 1.0
        enough = (record.end_s < 0) | (done >= owed)
        self._require_of_all(enough, record.end_s, "did fewer than its iterations")

    def _sums(self) -> None:
        """Waits and the ledger of GPU time sum."""
        record, jobs = self.record, self.scene.setting.jobs
        stretches = stretches_of(record)
        waits = waits_of(record, stretches)
        ledger_of(record, stretches, waits).check()
        for cause, seconds in (*waits.by_cause().items(), ("running", waits.running)):
            assert (seconds >= -_TOLERANCE_S).all(), f"{self.scene}: {cause} is negative"
        last_s = {
            "end": (record.end_s >= 0, record.end_s),
            "refusal": (record.admitted == 0, record.judged_s),
        }
        for name, (who, until_s) in last_s.items():
            what = f"seconds by cause do not sum to {name} less submission"
            total_s, life_s = waits.total()[who], (until_s - jobs.submit_s)[who]
            self._require_equal(total_s, life_s, self._before_s, what, rtol=1e-7, atol=_TOLERANCE_S)

    def _tracks(self) -> None:
        """On the timeline no GPU has two jobs at once."""
        stretches = stretches_of(self.record)
        places = nodes_of(self.record, stretches)
        assert places is not None
        spans: dict[int, list[tuple[float, float, int]]] = {}
        for number, runs in enumerate(places):
            row, from_s = int(stretches.row[number]), float(stretches.from_s[number])
            drawn = sum(length for _, length in runs)
            what = "is drawn on another number of GPUs than it holds"
            self._require(drawn == stretches.gpus[number], from_s, what, row)
            for first, length in runs:
                for gpu in range(first, first + length):
                    spans.setdefault(gpu, []).append((from_s, stretches.to_s[number], row))
        for gpu, held in spans.items():
            held.sort()
            for one, other in itertools.pairwise(held):
                self._require(one[1] <= other[0], other[0], f"GPU {gpu} is held twice at {other[0]:g} s")


def play(
    policy: Policy, scene: Scene, *, watch: bool = True, engine: Engine | None = None
) -> tuple[Record, int]:
    """A run of a policy in a setting, with a witness; its record and how many events were looked at.

    engine: what plays it (default: that of the first mode that does).
    """
    record = Record(scene.setting)
    engine = engine or engines().get((policy.modes or ("default",))[0])({})
    rules = engine.rules(policy, scene.setting, record, scene.terms, scene.number)
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

    def test_the_spec_can_be_written_to_a_file(self) -> None:
        """A policy is data: a name and parameters that a scenario file can hold and give back."""
        written_and_read(self.policy)


def _before(record: Record, until_s: float) -> tuple[Any, ...]:
    times, rows, gpus = record.changes()
    early = times < until_s
    return times[early], rows[early], gpus[early]
