"""Laws of recovery policies, growth rules and deadline rules, tested on random fleets.

    class TestMine(GrowthContract):
        policy = EveryOtherTime()

runs all laws on a growth rule: ledgers sum, no policy sees the future, names and earlier runs change nothing.
`RecoveryContract` does so for a recovery policy, `DeadlineContract` for a deadline rule. Random cases are small and follow
from a number (`drawn_scene(n)`, `drawn_market(n)`), so that a failing law names one that can be examined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

from forerun.core.rng import stream
from forerun.core.testing import written_and_read
from forerun.spot.engine.deadline import DeadlineRun, run_deadline
from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import Checkpoints, TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.outlook import Observed
from forerun.spot.engine.replay import replay
from forerun.spot.engine.state import RunState
from forerun.spot.policies.immediate import Immediate
from forerun.spot.policies.restart import Restart
from forerun.spot.policy import (
    DeadlineJob,
    DeadlineRule,
    GrowthPolicy,
    GrowthRule,
    Held,
    RecoveryPolicy,
    Setting,
)

_RELATIVE = 1e-9
Row = tuple[float, bool, str]


@dataclass(frozen=True, slots=True)
class Scene:
    """A fleet's history and a job on it.

    number: of the case, which makes it again. rows: (time in s, whether the node is added, its name). job: what trains.
    """

    number: int
    rows: tuple[Row, ...]
    job: TrainingJob

    @property
    def fleet(self) -> Membership:
        """The history by instants, as engines take it."""
        return Membership.from_rows(self.rows)

    def alive_node_s(self, until_s: float) -> float:
        """Node-seconds until an instant, straight from the rows.

        until_s: the instant; later changes do not count.
        """
        return math.fsum(
            (1 if is_add else -1) * (until_s - min(t_s, until_s)) for t_s, is_add, _ in self.rows
        )

    def __str__(self) -> str:
        return f"random case {self.number}"


def drawn_scene(number: int) -> Scene:
    """The `number`-th random case: up to a dozen nodes and thirty changes within an hour or two.

    Changes lie on a grid of ten seconds, so that several fall on one instant, and on ends of steps. Fleets begin empty,
    small, full or with nodes to spare. Checkpoints follow any rule, beside training or not.
    """
    draw = stream(number, "drawn fleet")
    depth, pipelines = int(draw.integers(1, 4)), int(draw.integers(1, 4))
    write: Literal["async", "sync"] = "sync" if draw.random() < 0.25 else "async"
    rules: list[Checkpoints] = [
        Checkpoints(write=write),
        Checkpoints(rule="every_steps", steps=int(draw.integers(1, 8)), write=write),
        Checkpoints(rule="every_seconds", period_s=float(draw.integers(10, 400)), write=write),
    ]
    first_s = float(draw.choice([20.0, 18.0, 7.5]))
    job = TrainingJob(
        depth=depth,
        max_pipelines=pipelines,
        step_s={depth * n: first_s / n ** float(draw.choice([0.6, 0.9])) for n in range(1, pipelines + 1)},
        reconfig_s=float(draw.choice([0.0, 30.0, 88.0])),
        prep_s=float(draw.choice([0.0, 60.0, 180.0])),
        write_s=float(draw.choice([0.0, 20.0, 89.0])),
        stall_s=float(draw.choice([0.0, 0.0, 5.0])),
        checkpoint=rules[int(draw.integers(0, 3))],
        horizon_s=float(draw.choice([1800.0, 3600.0, 7200.0])),
        warm_start=bool(draw.random() < 0.8),
    )
    alive = [f"n{at}" for at in range(int(draw.integers(0, depth * pipelines + 3)))]
    rows: list[Row] = [(0.0, True, name) for name in alive]
    fresh, t_s = len(alive), 0.0
    born = dict.fromkeys(alive, 0.0)
    for _ in range(int(draw.integers(0, 31))):
        t_s += float(draw.choice([0.0, 10.0, 90.0, 200.0, 600.0]))
        leaves = [name for name in alive if born[name] < t_s]  # nobody comes and goes at one instant
        if leaves and draw.random() < 0.5:
            gone = leaves[int(draw.integers(0, len(leaves)))]
            alive.remove(gone)
            rows.append((t_s, False, gone))
        elif t_s > 0:
            rows.append((t_s, True, f"n{fresh}"))
            alive.append(f"n{fresh}")
            born[f"n{fresh}"] = t_s
            fresh += 1
    return Scene(number, tuple(rows), job)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=1e-6)


def _before(done: Replay, until_s: float) -> list[tuple[str, int, float, float]]:
    """The job's states until an instant: (state, nodes, start, end), those without length left out."""
    joined: list[tuple[str, int, float, float]] = []
    for spell in done.spells:
        if spell.start_s >= until_s or spell.start_s == spell.end_s:
            continue
        joined.append((spell.state, spell.world_size, spell.start_s, min(spell.end_s, until_s)))
    return joined


class _FleetLaws:
    """Laws of a job on a fleet; subclasses define how a run is made and which policy it tests.

    worlds: how many random cases. first_world: the number of the first.
    """

    policy: ClassVar[RecoveryPolicy | GrowthRule]
    worlds: ClassVar[int] = 40
    first_world: ClassVar[int] = 0

    def policies(self, scene: Scene) -> tuple[RecoveryPolicy, GrowthPolicy]:
        """The recovery policy and the growth policy that run a case."""
        raise AssertionError(f"{type(self).__name__} does not say how it runs")

    def run(self, scene: Scene, *, goal_steps: int | None = None) -> Replay:
        """One run of a case. goal_steps: steps at which it ends (default: none)."""
        recovery, growth = self.policies(scene)
        return recovery.replay(
            Setting(
                fleet=scene.fleet, job=scene.job, growth=growth, outlook=Observed(), goal_steps=goal_steps
            )
        )

    def scenes(self) -> Sequence[Scene]:
        """The cases that the laws are tested on."""
        return [drawn_scene(self.first_world + at) for at in range(self.worlds)]

    def test_the_ledgers_sum(self) -> None:
        """Every second of the run and of every node is in one line of its ledger, and no line is negative."""
        for scene in self.scenes():
            done = self.run(scene)
            assert _close(done.end_s, scene.job.horizon_s), f"{scene}: ends at {done.end_s:g} s"
            wall_s = math.fsum(done.wall_s.values())
            assert _close(wall_s, done.end_s), f"{scene}: the lines sum to {wall_s:g} of {done.end_s:g} s"
            alive_s = scene.alive_node_s(done.end_s)
            assert _close(done.alive_node_s, alive_s), (
                f"{scene}: {done.alive_node_s:g} node-seconds are in the ledger, nodes were alive for {alive_s:g}"
            )
            for line, seconds in (*done.wall_s.items(), *done.node_s.items()):
                assert seconds >= -1e-6, f"{scene}: {line} is {seconds:g} s"
            assert 0 <= done.steps_durable <= done.steps_completed, (
                f"{scene}: {done.steps_durable} durable of {done.steps_completed} completed steps"
            )

    def test_states_follow_one_another(self) -> None:
        """The job is in one state at a time, from 0 to the end, and trains on whole pipelines that are alive."""
        for scene in self.scenes():
            done, now_s = self.run(scene), 0.0
            for spell in done.spells:
                assert _close(spell.start_s, now_s), f"{scene}: no interval contains {now_s:g} s"
                now_s = spell.end_s
                alive = sum(1 if is_add else -1 for t_s, is_add, _ in scene.rows if t_s <= spell.start_s)
                assert spell.world_size <= alive or spell.state != "training", (
                    f"{scene}: {spell.world_size} nodes train at {spell.start_s:g} s, {alive} are alive"
                )
            assert _close(now_s, done.end_s), f"{scene}: no interval contains {now_s:g} s and later"

    def test_what_comes_later_changes_nothing_before(self) -> None:
        """With another future, everything before it is the same."""
        for scene in self.scenes():
            whole = self.run(scene)
            until_s = scene.job.horizon_s / 2
            early = tuple(row for row in scene.rows if row[0] < until_s)
            more = tuple((until_s, True, f"later{at}") for at in range(3))
            for rows in (early, (*early, *more)):
                other = self.run(replace(scene, rows=rows))
                for one, two in zip(_before(whole, until_s), _before(other, until_s), strict=True):
                    assert one[:2] == two[:2] and all(map(_close, one[2:], two[2:])), (
                        f"{scene}: {two} in place of {one}: the future was known before {until_s:g} s"
                    )

    def test_the_same_case_gives_the_same_run(self) -> None:
        """Twice, and again after another case: no hidden randomness, no state left behind."""
        scenes = self.scenes()
        first = [self.run(scene) for scene in scenes]
        for scene, before in zip(scenes, first, strict=True):
            assert self.run(scene) == before, f"{scene}: run again, the result differs"

    def test_names_do_not_matter(self) -> None:
        """Nodes by other names in the same order are treated alike."""
        for scene in self.scenes():
            renamed = tuple((t_s, is_add, f"vm-{int(name[1:]) + 100}") for t_s, is_add, name in scene.rows)
            one, two = self.run(scene), self.run(replace(scene, rows=renamed))
            assert (one.wall_s, one.node_s, one.counts) == (two.wall_s, two.node_s, two.counts), (
                f"{scene}: other names, another run"
            )

    def test_without_nodes_nothing_happens(self) -> None:
        """A fleet that never is leaves the job idle."""
        for scene in self.scenes():
            done = self.run(replace(scene, rows=()))
            assert done.steps_completed <= scene.job.initial_saved + 1, f"{scene}: steps without nodes"
            assert _close(done.wall_s["idle"], scene.job.horizon_s), f"{scene}: not idle without nodes"

    def test_a_goal_ends_the_run_when_it_is_reached(self) -> None:
        """Wanted steps that are done within the horizon end the run; before that, nothing differs."""
        for scene in self.scenes():
            whole = self.run(scene)
            goal = whole.steps_completed // 2
            if goal < 1:
                continue
            done = self.run(scene, goal_steps=goal)
            assert done.finished_s is not None and _close(done.finished_s, done.end_s), (
                f"{scene}: {goal} steps are complete, and the run does not end"
            )
            assert done.steps_completed == goal, (
                f"{scene}: ended after {done.steps_completed} steps, not {goal}"
            )
            assert _close(math.fsum(done.wall_s.values()), done.end_s), (
                f"{scene}: cut short, the ledger differs"
            )

    def test_the_spec_can_be_written_to_a_file(self) -> None:
        """A policy spec is data: a name and parameters that can be written to a scenario file and read back."""
        written_and_read(self.policy)


class RecoveryContract(_FleetLaws):
    """Every law of a recovery policy, each a test. Derive a class named `Test...` and set `policy`.

    `worlds`: how many random cases; `first_world`: the number of the first.
    """

    policy: ClassVar[RecoveryPolicy]

    def policies(self, scene: Scene) -> tuple[RecoveryPolicy, GrowthPolicy]:
        """The policy, with immediate growth."""
        return self.policy, Immediate()


class GrowthContract(_FleetLaws):
    """Every law of a growth rule, each a test. Derive a class named `Test...` and set `policy`.

    `worlds`: how many random cases; `first_world`: the number of the first. The rule is built for each run, with the random
    stream of the case.
    """

    policy: ClassVar[GrowthRule]

    def policies(self, scene: Scene) -> tuple[RecoveryPolicy, GrowthPolicy]:
        """Checkpoint and restart, under the rule."""
        return Restart(), self.policy.build(stream(scene.number, "growth"))

    def test_laws_hold_after_every_event(self) -> None:
        """Both ledgers sum, whole pipelines train, nodes are where they are counted, at every event."""
        for scene in self.scenes():
            growth = self.policies(scene)[1]
            replay(scene.fleet, scene.job, growth, Observed(), after_event=RunState.check)


@dataclass(frozen=True, slots=True)
class Market:
    """A job with a deadline in a spot market.

    number: of the case, which makes it again. job: work, deadline and prices. available: whether spot is there, by tick.
    """

    number: int
    job: DeadlineJob
    available: tuple[bool, ...]

    def __str__(self) -> str:
        return f"random market {self.number}"


def drawn_market(number: int) -> Market:
    """The `number`-th market: hours of work with some slack, spot that comes and goes in spells.

    Long after the deadline spot is available for good, so that a rule that waits for it ends as well.
    """
    draw = stream(number, "drawn market")
    tick_s = float(draw.choice([60.0, 300.0, 600.0]))
    changeover_s = float(draw.choice([0.0, tick_s / 2, tick_s]))
    work_s = tick_s * int(draw.integers(5, 60)) - float(draw.choice([0.0, tick_s / 3]))
    deadline_s = work_s + 2 * changeover_s + tick_s * int(draw.integers(2, 30))
    ticks, spot, available = math.ceil(deadline_s / tick_s), bool(draw.random() < 0.7), []
    change = float(draw.choice([0.05, 0.2, 0.5]))
    for _ in range(2 * ticks):
        spot = spot if draw.random() > change else not spot
        available.append(spot)
    job = DeadlineJob(
        work_s=work_s, deadline_s=deadline_s, tick_s=tick_s, changeover_s=changeover_s, spot_usd_per_h=1.0
    )
    return Market(number, job, (*available, *[True] * (3 * ticks)))


class DeadlineContract:
    """Every law of a deadline rule, each a test. Derive a class named `Test...` and set `policy`.

    `keeps_deadlines`: whether the rule promises to be in time wherever on-demand from the start is (default: no).
    `worlds`: how many random markets; `first_world`: the number of the first.
    """

    policy: ClassVar[DeadlineRule]
    keeps_deadlines: ClassVar[bool] = False
    worlds: ClassVar[int] = 100
    first_world: ClassVar[int] = 0

    def markets(self) -> Sequence[Market]:
        """The markets that the laws are tested on."""
        return [drawn_market(self.first_world + at) for at in range(self.worlds)]

    def run(self, market: Market) -> DeadlineRun:
        """The rule in a market."""
        return run_deadline(market.job, self.policy, market.available)

    def test_what_was_held_is_paid_and_did_the_work(self) -> None:
        """Cost and finish follow from what was held; spot is held only where it is there."""
        for market in self.markets():
            done, job = self.run(market), market.job
            usd = math.fsum(job.price_usd(held) for held in done.held)
            assert _close(done.cost_usd, usd), f"{market}: ${done.cost_usd:g} for what costs ${usd:g}"
            work_s, before, over_s = 0.0, Held.NONE, 0.0
            # Nothing is held in the first tick, and the last is a surplus.
            for at, held in enumerate(done.held[1:-1]):
                assert held is not Held.SPOT or market.available[at], (
                    f"{market}: spot in tick {at} without any"
                )
                taken = before is Held.SPOT and not market.available[at]
                if held is not Held.NONE and (held is not before or taken):
                    over_s = job.changeover_s
                worked_s = max(job.tick_s - over_s, 0.0) if held is not Held.NONE else 0.0
                over_s -= job.tick_s - worked_s if held is not Held.NONE else 0.0
                work_s, before = work_s + worked_s, held
            finish_s = (len(done.held) - 2) * job.tick_s
            assert _close(done.finish_s, finish_s), (
                f"{market}: finished at {done.finish_s:g}, not {finish_s:g} s"
            )
            assert work_s >= job.work_s - 1e-6, f"{market}: {work_s:g} of {job.work_s:g} s of work were done"

    def test_deadlines_are_kept_where_that_is_promised(self) -> None:
        """In every random market on-demand alone would be in time."""
        if not self.keeps_deadlines:
            return
        for market in self.markets():
            done = self.run(market)
            assert done.finish_s <= market.job.deadline_s + 1e-6, (
                f"{market}: finished at {done.finish_s:g} s, wanted by {market.job.deadline_s:g}"
            )

    def test_what_comes_later_changes_nothing_before(self) -> None:
        """With another future, the same is held before it."""
        for market in self.markets():
            whole = self.run(market)
            half = len(whole.held) // 2
            turned = tuple(not spot for spot in market.available[half : 2 * half])
            other = replace(
                market, available=(*market.available[:half], *turned, *market.available[2 * half :])
            )
            again = self.run(other)
            assert list(again.held[: half + 1]) == list(whole.held[: half + 1]), (
                f"{market}: the future was known before tick {half}"
            )

    def test_the_same_market_gives_the_same_run(self) -> None:
        """Twice, and again after another market."""
        markets = self.markets()
        first = [self.run(market) for market in markets]
        for market, before in zip(markets, first, strict=True):
            assert self.run(market) == before, f"{market}: run again, the result differs"

    def test_the_spec_can_be_written_to_a_file(self) -> None:
        """A rule is data: a name and parameters that can be written to a scenario file and read back."""
        written_and_read(self.policy)


#: the contract of each kind of policy
CONTRACTS: Final[Mapping[type[Any], type]] = {
    RecoveryPolicy: RecoveryContract, GrowthRule: GrowthContract, DeadlineRule: DeadlineContract
}  # fmt: skip
