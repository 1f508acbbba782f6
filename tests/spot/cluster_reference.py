"""A slow simulator of a job on a reserved cluster, step by step over named nodes.

It takes the failures (when, of which class, at which node, with which repair) from the kernel's log. Training goes step by
step with each checkpoint as a record; every node has a list of what it was from when to when; work that is kept is a list of
pieces, each clean or corrupted. The kernel has closed forms, counters and a heap in their places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from forerun.spot.engine.job import Continuation, TrainingJob, whole_steps
from forerun.spot.reserved.scenario import Cluster

TIE_S = 1e-7


@dataclass
class Checkpoint:
    taken_s: float
    durable_s: float
    steps: int
    tier: int = -1
    stall_s: float = 0.0  # of all until it is taken, its own block included


@dataclass
class Segment:
    """Training from `start_s` on `world` nodes."""

    job: TrainingJob
    start_s: float
    world: int
    ends_s: list[float] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    corrupted_s: float = math.inf

    def walk(self, until_s: float, most: float = math.inf) -> None:
        """All steps that end by an instant, and the checkpoints after them."""
        step_s, (blocked_s, hidden_s) = self.job.step_s[self.world], self.job.checkpoint_s
        now, last = self.start_s, self.start_s
        self.ends_s, self.checkpoints = [], []
        while now + step_s <= until_s + TIE_S and len(self.ends_s) < most:
            now += step_s
            self.ends_s.append(now)
            is_writing = self.checkpoints and self.checkpoints[-1].durable_s > now + TIE_S
            if not is_writing and self.job.checkpoint.due(len(self.ends_s), now - last):
                last = now
                taken = now
                now += blocked_s
                self.checkpoints.append(Checkpoint(taken, now + hidden_s, len(self.ends_s)))

    def walk_tiers(self, until_s: float, most: float = math.inf) -> None:
        """The same with several tiers, whose intervals are in steps; -1 is the job's own store."""
        job, step_s, (blocked_s, hidden_s) = self.job, self.job.step_s[self.world], self.job.checkpoint_s
        rule = job.checkpoint
        tiers = {
            -1: (
                rule.first_steps(step_s),
                rule.spacing_steps(step_s, blocked_s, hidden_s),
                blocked_s,
                hidden_s,
            )
        }
        for i, tier in enumerate(job.tiers):
            steps = whole_steps(tier.every_s, step_s)
            tiers[i] = (steps, steps, tier.stall_s, tier.write_s)
        now, stall, writing = self.start_s, 0.0, dict.fromkeys(tiers, -math.inf)
        self.ends_s, self.checkpoints, self.blocks = [], [], []
        while now + step_s <= until_s + 1e-9 and len(self.ends_s) < most:
            now += step_s
            k = len(self.ends_s) + 1
            self.ends_s.append(now)
            taken = [
                i for i, (first, every, _, _) in tiers.items()
                if k >= first and (k - first) % every == 0 and writing[i] <= now + TIE_S
            ]  # fmt: skip
            block = sum(tiers[i][2] for i in taken)
            self.blocks.append((now, block))
            stall += block
            for i in taken:
                writing[i] = now + block + tiers[i][3]
                self.checkpoints.append(Checkpoint(now, writing[i], k, i, stall))
            now += block

    blocks: list[tuple[float, float]] = field(default_factory=list)

    def stall_s(self, until_s: float) -> float:
        if self.blocks:
            return math.fsum(max(0.0, min(block, until_s - at)) for at, block in self.blocks)
        blocked_s, _ = self.job.checkpoint_s
        return math.fsum(max(0.0, min(blocked_s, until_s - one.taken_s)) for one in self.checkpoints)


@dataclass
class Piece:
    """Steps that are kept so far."""

    steps: int
    useful_s: float
    stall_s: float
    world: int
    is_clean: bool


@dataclass
class Copy:
    """A checkpoint that a tier has: the step that it holds."""

    step: int
    is_clean: bool = True


class Reference:
    def __init__(
        self,
        job: TrainingJob,
        cluster: Cluster,
        lazy: bool,
        parts_s: tuple[float, ...],
        goal: int,
        log: Any,
        going_on: Continuation | None = None,
    ) -> None:
        # Replicas that go on: whether the present state of them is what the job goes on from.
        self.going_on, self.live, self.pausing = going_on, False, False
        self.tiered = bool(job.tiers) or going_on is not None
        self.job, self.cluster, self.lazy, self.parts_s, self.goal = job, cluster, lazy, parts_s, goal
        self.failures = [tuple(row) for row in log if row[1] >= 0]
        self.members: list[int] = []
        self.spares = list(range(cluster.nodes))
        self.down: dict[int, float] = {}
        self.lives: dict[int, list[tuple[float, str]]] = {node: [(0.0, "spare")] for node in self.spares}
        self.kept: list[Piece] = []
        self.base = job.initial_saved + 1
        self.wall: dict[str, float] = {}
        self.node: dict[str, float] = {}
        classes = len(cluster.failures)
        self.by_class = [[0.0] * 4 for _ in range(classes + 2)]
        self.growth, self.maintenance = classes, classes + 1
        self.state, self.since, self.until, self.cause = "waiting", 0.0, math.inf, classes
        self.segment: Segment | None = None
        self.pipelines = 0
        self.corrupt: int | None = None
        self.suspects: dict[int, float] = {}
        self.check_at = math.inf
        self.counts = {"interruptions": 0, "restarts": 0}
        # What each fast tier has, and all that the job's own store ever had that was not rolled back, the latest last.
        self.copies: dict[int, Copy] = {}
        self.store = [Copy(self.base)]
        self.loaded = self.store[-1]
        self.corrupt_rank = 0
        # When a replica has its copy of the state, how many there are then, and processes that died since the last restart.
        self.join_at, self.joined, self.dead = math.inf, 0, 0
        self.load_s = parts_s[3]

    @property
    def steps(self) -> int:
        return self.base + sum(piece.steps for piece in self.kept)

    def add(self, line: str, seconds: float, world: int | None = None) -> None:
        self.wall[line] = self.wall.get(line, 0.0) + seconds
        if world is not None:
            self.node[line] = self.node.get(line, 0.0) + seconds * world

    # ---- nodes

    def become(self, t: float, node: int, state: str) -> None:
        self.lives[node].append((t, state))

    def relabel(self, t: float) -> None:
        """Members are in the job's state, whatever it is now."""
        for node in self.members:
            self.become(t, node, self.state)

    def take(self, t: float, node: int, repair_s: float) -> bool:
        """Send a node to repair; whether it was in the job."""
        was_member = node in self.members
        if was_member:
            at = self.members.index(node)
            self.members[at] = self.members[-1]
            self.members.pop()
            self.spares.insert(0, node)
        at = self.spares.index(node)
        self.spares[at] = self.spares[-1]
        self.spares.pop()
        self.down[node] = t + repair_s
        self.suspects.pop(node, None)
        self.become(t, node, "repair")
        return was_member

    # ---- the job

    def enter(self, t: float, state: str, until: float) -> None:
        self.state, self.since, self.until = state, t, until
        self.relabel(t)

    def rebuild(self, t: float, warm: bool = False) -> None:
        everyone = self.members + self.spares
        pipelines = min(self.job.max_pipelines, len(everyone) // self.job.depth)
        if self.rejoins and self.live:
            ready = (
                self.joined
                if self.cause == self.growth
                else (len(self.members) - self.dead) // self.job.depth
            )
            if ready >= self.job.min_pipelines:
                pipelines = min(pipelines, ready)
        self.dead = 0
        if pipelines < self.job.min_pipelines:
            pipelines = 0
        self.pipelines, world = pipelines, pipelines * self.job.depth
        self.members, self.spares = everyone[:world], everyone[world:]
        for node in self.spares:
            self.become(t, node, "spare")
        if world == 0:
            self.enter(t, "waiting", math.inf)
            return
        self.counts["restarts"] += not warm
        self.pausing = self.live and self.going_on is not None
        if self.pausing:
            assert self.going_on is not None
            joins = self.rejoins and self.cause == self.growth
            self.enter(t, "restarting", t if joins else t + self.going_on.pause_s)
            return
        self.enter(t, "restarting", t if warm else t + sum(self.parts_s[:3]) + self.load_s)

    @property
    def rejoins(self) -> bool:
        return self.going_on is not None and self.going_on.rejoin_s is not None

    @property
    def possible(self) -> int:
        return min(self.job.max_pipelines, (len(self.members) + len(self.spares)) // self.job.depth)

    def may_join(self, t: float) -> None:
        """Nodes of another replica are there: it begins to copy the state."""
        if self.rejoins and self.possible > self.pipelines and self.join_at == math.inf:
            assert self.going_on is not None and self.going_on.rejoin_s is not None
            self.join_at, self.joined = t + self.going_on.rejoin_s, self.possible

    def step_end(self, t: float) -> float:
        """When the running step ends; `t` between two steps."""
        assert self.segment is not None
        self.segment.walk_tiers(self.job.horizon_s + 10 * self.job.step_s[self.segment.world])
        ends = [self.segment.start_s, *self.segment.ends_s]
        return next(end for end in ends if end >= t - TIE_S)

    def join(self, t: float) -> None:
        """It joins at the end of a step."""
        end = self.step_end(t)
        if end > t + TIE_S:
            self.join_at = end
            return
        self.join_at = math.inf
        if self.possible > self.pipelines:
            self.live = True
            self.close(t, self.growth)
            self.rebuild(t)

    def close_stop(self, t: float) -> None:
        spent = t - self.since
        self.by_class[self.cause][3] += spent
        if self.state != "restarting":
            self.add(
                {"detecting": "detection", "maintaining": "maintenance"}.get(self.state, self.state), spent
            )
            return
        if self.pausing:
            self.add("communicator", spent)
            return
        for name, part in zip(("schedule", "start", "communicator"), self.parts_s, strict=False):
            self.add(name, min(spent, part))
            spent -= min(spent, part)
        self.add("load", spent)

    def rank(self, by: int) -> int:
        """What a cause destroys: 0 processes, 1 a node, 2 more."""
        if by >= len(self.cluster.failures):
            return 0
        return {"process": 0, "gpu": 1, "node": 1, "group": 2}[self.cluster.failures[by].takes]

    def lose_copies(self, by: int, is_check: bool) -> None:
        """A failure destroys copies; a check those of the nodes that it takes, and all that are corrupted."""
        rank = self.corrupt_rank if is_check else self.rank(by)
        self.copies = {
            i: copy
            for i, copy in self.copies.items()
            if (self.job.tiers[i].survives == "node") >= rank and (copy.is_clean or not is_check)
        }
        if is_check:
            self.store = [copy for copy in self.store if copy.is_clean]

    def fall_back(self, by: int, is_check: bool = False) -> None:
        """Load the latest copy that is left, the fastest of equals; what was kept beyond it is lost."""
        self.live = self.live and not is_check
        self.lose_copies(by, is_check)
        if self.live:  # the replicas have it all
            self.loaded = Copy(self.steps, self.corrupt is None)
            return
        candidates = [*sorted(self.copies.items()), (-1, self.store[-1])]
        latest = max(copy.step for _, copy in candidates)
        tier, self.loaded = next((i, copy) for i, copy in candidates if copy.step == latest)
        self.load_s = self.job.tiers[tier].load_s if tier >= 0 else self.parts_s[3]
        while self.steps > latest:
            piece = self.kept.pop()
            self.add("lost", piece.useful_s + piece.stall_s, piece.world)
            self.by_class[by][2] += piece.useful_s + piece.stall_s
        assert self.steps == latest

    def heal(self) -> None:
        self.suspects, self.corrupt, self.check_at, self.corrupt_rank = {}, None, math.inf, 0

    def close_tiered(self, t: float, by: int, is_planned: bool, is_check: bool) -> None:
        """Close training with several tiers: pieces from copy to copy, so that any of them can be the last."""
        segment, start = self.segment, self.steps
        assert segment is not None
        segment.walk_tiers(t)
        step_s, world = self.job.step_s[segment.world], segment.world
        done_steps, done_stall, kept_s = 0, 0.0, 0.0
        # Work is kept in pieces between the checkpoints that may ever be loaded.
        splits = [(one.steps, one.stall_s) for one in self.take_copies(t, start)]
        if is_planned or self.live:
            splits.append((len(segment.ends_s), segment.stall_s(t)))
        for upto_steps, upto_stall in sorted(splits):
            if upto_steps > done_steps:
                steps, stall = upto_steps - done_steps, upto_stall - done_stall
                self.kept.append(Piece(steps, steps * step_s, stall, world, True))
                kept_s += steps * step_s + stall
                done_steps, done_stall = upto_steps, upto_stall
        if is_planned:
            # The stall of a checkpoint after the last step is kept with it.
            self.kept.append(Piece(0, 0.0, segment.stall_s(t) - done_stall, world, True))
            kept_s += segment.stall_s(t) - done_stall
            clean = [copy.step for copy in self.store if copy.is_clean][-1]
            self.store.append(Copy(self.steps, self.corrupt is None or self.steps == clean))
            self.copies, self.load_s, self.live, self.loaded = {}, self.parts_s[3], False, self.store[-1]
        lost = max(0.0, t - segment.start_s - kept_s)
        self.add("lost", lost, world)
        self.by_class[by][2] += lost
        if not is_planned:
            self.fall_back(by, is_check)
        if by < len(self.cluster.failures):
            self.by_class[by][1] += 1
            self.counts["interruptions"] += 1
        self.segment = None

    def take_copies(self, t: float, start: int) -> list[Checkpoint]:
        """The durable checkpoints of the segment go to their tiers: all to the store, to the others the latest."""
        assert self.segment is not None
        durable = [one for one in self.segment.checkpoints if one.durable_s <= t + TIE_S]
        for one in durable:
            copy = Copy(start + one.steps, one.taken_s <= self.segment.corrupted_s)
            if one.tier < 0:
                self.store.append(copy)
            else:
                self.copies[one.tier] = copy
        return durable

    def close(self, t: float, by: int, *, is_check: bool = False, is_planned: bool = False) -> None:
        if self.state != "training":
            self.close_stop(t)
            if self.tiered and is_check:
                self.fall_back(by, is_check)
        elif self.tiered:
            self.close_tiered(t, by, is_planned, is_check)
        else:
            assert self.segment is not None
            segment = self.segment
            segment.walk(t)
            step_s = self.job.step_s[segment.world]
            durable = [one for one in segment.checkpoints if one.durable_s <= t + TIE_S]
            clean = [one for one in durable if one.taken_s <= segment.corrupted_s]
            last = durable if not is_check else clean
            steps, stall = (last[-1].steps if last else 0), len(last) * self.job.checkpoint_s[0]
            if is_planned:
                steps, stall = len(segment.ends_s), segment.stall_s(t)
            sure = min(steps, clean[-1].steps if clean else 0)
            sure_stall = len(clean) * self.job.checkpoint_s[0] if sure else 0.0
            if self.corrupt is None:
                sure, sure_stall = steps, stall
            self.kept.append(Piece(sure, sure * step_s, sure_stall, segment.world, True))
            if steps > sure:
                self.kept.append(
                    Piece(steps - sure, (steps - sure) * step_s, stall - sure_stall, segment.world, False)
                )
            lost = max(0.0, t - segment.start_s - steps * step_s - stall)
            self.add("lost", lost, segment.world)
            self.by_class[by][2] += lost
            if by < len(self.cluster.failures):
                self.by_class[by][1] += 1
                self.counts["interruptions"] += 1
            self.segment = None
        if is_check and not self.tiered:
            for piece in self.kept:
                if not piece.is_clean:
                    self.add("lost", piece.useful_s + piece.stall_s, piece.world)
                    self.by_class[by][2] += piece.useful_s + piece.stall_s
            self.kept = [piece for piece in self.kept if piece.is_clean]
        is_clean = self.loaded.is_clean if self.tiered else all(piece.is_clean for piece in self.kept)
        if self.corrupt is not None and (is_check or is_clean):
            if is_check:
                for node, repair_s in sorted(self.suspects.items()):
                    if node not in self.down:
                        self.take(t, node, repair_s)
            self.heal()
        self.cause, self.until, self.join_at = by, math.inf, math.inf

    def run(self) -> None:
        job, cluster = self.job, self.cluster
        self.rebuild(0.0, warm=True)
        planned, k = cluster.maintenance, 1
        at = 0
        while True:
            goal_at = math.inf
            if self.state == "training" and self.goal >= 0:
                assert self.segment is not None
                left = self.goal - self.steps
                (self.segment.walk_tiers if self.tiered else self.segment.walk)(job.horizon_s + 1, left)
                if len(self.segment.ends_s) == left:
                    goal_at = self.segment.ends_s[-1]
            maintain_at = planned.every_s * k if planned else math.inf
            back_at, back = min(((t, node) for node, t in self.down.items()), default=(math.inf, -1))
            fail_at = self.failures[at][0] if at < len(self.failures) else math.inf
            t = min(goal_at, self.until, self.check_at, maintain_at, self.join_at, back_at, fail_at)
            over = t > job.horizon_s or (t == job.horizon_s and goal_at > t)
            if over:
                t = job.horizon_s
            if over or goal_at <= t:
                if self.corrupt is None:
                    self.finish(t, done=not over)
                    return
                by = self.corrupt
                if over:
                    self.close_at_end(t, by)
                    return
                self.close(t, by, is_check=True)
                self.rebuild(t)
            elif self.until <= t:
                self.close_stop(t)
                if self.state == "restarting":
                    self.segment = Segment(job, t, len(self.members))
                    if self.corrupt is not None:
                        self.segment.corrupted_s = -math.inf
                    self.enter(t, "training", math.inf)
                    self.may_join(t)
                else:
                    self.rebuild(t)
            elif self.check_at <= t:
                was, until = self.state, self.until
                assert self.corrupt is not None
                self.close(t, self.corrupt, is_check=True)
                if was in ("detecting", "maintaining"):
                    self.enter(t, was, until)
                else:
                    self.rebuild(t)
            elif maintain_at <= t:
                k += 1
                if self.state != "maintaining":
                    assert planned is not None
                    save_s = sum(job.checkpoint_s) if self.state == "training" else 0.0
                    self.close(t, self.maintenance, is_planned=True)
                    self.enter(t, "maintaining", t + planned.lasts_s + save_s)
            elif self.join_at <= t:
                self.join(t)
            elif back_at <= t:
                del self.down[back]
                self.spares.append(back)
                self.become(t, back, "spare")
                possible = min(job.max_pipelines, (len(self.members) + len(self.spares)) // job.depth)
                if self.state == "waiting" and possible >= job.min_pipelines:
                    self.close_stop(t)
                    self.rebuild(t)
                elif not self.lazy and self.state in ("training", "restarting") and possible > self.pipelines:
                    self.close(t, self.growth)
                    self.rebuild(t)
                elif self.state == "training":
                    self.may_join(t)
            else:
                _, c, victim, repair_s = self.failures[at]
                at += 1
                self.fail(t, int(c), int(victim), repair_s)

    def fail(self, t: float, c: int, victim: int, repair_s: float) -> None:
        one = self.cluster.failures[c]
        if one.check_s:
            if self.state == "training" and victim in self.members:
                self.by_class[c][0] += 1
                if one.takes != "process":
                    self.suspects[victim] = repair_s
                if self.corrupt is None:
                    assert self.segment is not None
                    self.corrupt, self.segment.corrupted_s = c, t
                self.corrupt_rank = max(self.corrupt_rank, self.rank(c))
                self.check_at = min(self.check_at, one.check_s * (math.floor(t / one.check_s) + 1))
            return
        before = len(self.members)
        if one.takes == "process":
            hit = victim in self.members
            self.by_class[c][0] += hit
        else:
            size = max(1, one.group_nodes)
            group = [node for node in range(self.cluster.nodes) if node // size == victim // size]
            up = [node for node in group if node not in self.down]
            hit = sum(self.take(t, node, repair_s) for node in up) > 0
            self.by_class[c][0] += bool(up)
        if not hit or self.state in ("waiting", "maintaining"):
            return
        if self.going_on is not None:
            self.dead += one.takes == "process"
            possible = self.possible
            if self.rejoins:
                possible = min(self.job.max_pipelines, (len(self.members) - self.dead) // self.job.depth)
            gone = before - len(self.members) if one.takes != "process" else 1
            self.live = (
                (self.state == "training" or self.live)
                and self.pipelines >= 2
                and possible >= self.job.min_pipelines
                and gone <= self.going_on.tolerates
            )
        if self.tiered and self.state != "training":
            self.fall_back(c)
            if self.corrupt is not None and self.loaded.is_clean:
                self.heal()
        commits = self.rejoins and self.live
        if self.state == "detecting":
            if not commits:
                self.until = min(self.until, t + one.detection_s)
            return
        noticed = t + one.detection_s
        if commits and self.state == "training":
            noticed = max(noticed, self.step_end(t))
        self.close(t, c)
        if noticed > t + TIE_S:
            self.enter(t, "detecting", noticed)
        else:
            self.rebuild(t)

    def close_at_end(self, t: float, by: int) -> None:
        interruptions, of_class = self.counts["interruptions"], self.by_class[by][1]
        self.close(t, by, is_check=True)
        self.counts["interruptions"], self.by_class[by][1] = interruptions, of_class  # the end stops nothing
        self.ended(t, 0, 0)

    def finish(self, t: float, done: bool) -> None:
        complete = durable = 0
        if self.state == "training":
            assert self.segment is not None
            segment = self.segment
            left = self.goal - self.steps if done else math.inf
            (segment.walk_tiers if self.tiered else segment.walk)(t, left)
            step_s, complete = self.job.step_s[segment.world], len(segment.ends_s)
            durable = max((one.steps for one in segment.checkpoints if one.durable_s <= t + TIE_S), default=0)
            stall = segment.stall_s(t)
            self.add("useful", complete * step_s, segment.world)
            self.add("stall", stall, segment.world)
            self.add("inflight", t - segment.start_s - complete * step_s - stall, segment.world)
        else:
            self.close_stop(t)
        self.ended(t, complete, durable)
        self.done = done

    done = False

    def ended(self, t: float, complete: int, durable: int) -> None:
        for piece in self.kept:
            self.add("useful", piece.useful_s, piece.world)
            self.add("stall", piece.stall_s, piece.world)
        self.end_s, self.steps_completed, self.steps_durable = t, self.steps + complete, self.steps + durable
        for life in self.lives.values():
            for (start, state), (end, _) in zip(life, [*life[1:], (t, "")], strict=True):
                line = {"detecting": "detection", "restarting": "restart", "maintaining": "maintenance"}.get(
                    state, state
                )
                if line != "training":  # training is split by its pieces
                    self.node[line] = self.node.get(line, 0.0) + end - start
