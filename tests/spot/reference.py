"""The exact semantics once more, slowly: whole tenths of a second, plain lists, nothing remembered that can be
looked up.  Written from the description of the world (docs/spot/reference.md, "What happens, exactly"), not from the
simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from forerun.spot.engine.history import Counts
from forerun.spot.engine.job import TrainingJob

NEVER = 10**12
Rows = Sequence[tuple[float, bool, str]]


def tenths(seconds: float) -> int:
    """Seconds as whole tenths; the reference implementation is for worlds whose times are."""
    assert abs(seconds * 10 - round(seconds * 10)) < 1e-9
    return round(seconds * 10)


class Reference:
    """One job on one fleet, for the growth rules that know no rates."""

    def __init__(self, rows: Rows, job: TrainingJob, growth: str) -> None:
        self.job, self.growth, self.t = job, growth, 0
        self.rows = [(tenths(t_s), is_add, int(name.lstrip("n"))) for t_s, is_add, name in rows]
        self.nodes: dict[int, list[Any]] = {}  # node -> [state, ready]
        self.state, self.size, self.until, self.saved = "idle", 0, 0, job.initial_saved
        self.wall = dict.fromkeys(("useful", "stall", "lost", "reconfig", "idle", "inflight"), 0)
        self.node = dict.fromkeys(
            ("useful", "stall", "lost", "reconfig", "inflight", "standby", "prepping"), 0
        )
        self.counts = dict.fromkeys((one.name for one in fields(Counts)), 0)
        self.begin = 0  # of the job's current state
        self.growing = self.due = False  # a checkpoint is awaited to grow with; it has come
        self.changed = -1  # when the fleet changed last

    # -- a segment of training is the list of its steps [start, end] and of its checkpoints [step, end, resume, durable]

    def train(self) -> None:
        self.state, self.begin = "training", self.t
        self.steps: list[list[int]] = []
        self.shots: list[list[int]] = []
        self.growing = False

    def next_step_end(self) -> int:
        resume = max([self.begin] + [end for _, end in self.steps] + [shot[2] for shot in self.shots])
        return resume + tenths(self.job.step_s[self.size])

    def open_shot(self) -> list[int] | None:
        return next((shot for shot in self.shots if shot[4] == 0), None)

    def end_step(self) -> None:
        self.steps.append([self.t - tenths(self.job.step_s[self.size]), self.t])
        self.counts["steps_executed"] += 1
        rule, done = self.job.checkpoint, len(self.steps)
        if self.open_shot() is not None:
            return
        if rule.rule == "every_steps":
            due = done % rule.steps == 0
        elif rule.rule == "back_to_back":
            due = True
        else:
            due = self.t - (self.shots[-1][1] if self.shots else self.begin) >= tenths(rule.period_s)
        if due:
            stall, write = tenths(self.job.stall_s), tenths(self.job.write_s)
            resume = self.t + stall + (write if rule.write == "sync" else 0)
            self.shots.append([done, self.t, resume, self.t + stall + write, 0])
            self.counts["checkpoints_started"] += 1

    def close(self, final: bool) -> None:
        """Book the current state's time up to now."""
        span, found = self.t - self.begin, dict.fromkeys(self.wall, 0)
        if self.state != "training":
            found["idle" if self.state == "idle" else "reconfig"] = span
        else:
            kept = [shot for shot in self.shots if shot[4]]
            retained = len(self.steps) if final else (kept[-1][0] if kept else 0)
            shots = self.shots if final else kept
            found["useful"] = retained * tenths(self.job.step_s[self.size])
            found["stall"] = sum(min(shot[2], self.t) - shot[1] for shot in shots)
            found["inflight" if final else "lost"] = span - found["useful"] - found["stall"]
            self.counts["steps_lost"] += len(self.steps) - retained
            self.counts["rollbacks"] += found["lost"] > 0
            self.counts["checkpoints_aborted"] += not final and len(kept) < len(self.shots)
            self.completed = self.saved + 1 + len(self.steps) - (kept[-1][0] if kept else 0)
        for line, spent in found.items():
            self.wall[line] += spent
            if line != "idle":
                self.node[line] += spent * self.size
        self.begin = self.t

    # -- the fleet

    def among(self, state: str) -> list[int]:
        return [node for node, (held, _) in self.nodes.items() if held == state]

    def change(self) -> None:
        lost = False
        for t, is_add, node in self.rows:
            if t == self.t and not is_add and node in self.nodes:
                state = self.nodes.pop(node)[0]
                self.counts["removed_provisioning" if state == "prepping" else f"removed_{state}"] += 1
                lost = lost or state == "active"
        for node, (state, ready) in list(self.nodes.items()):
            if state == "prepping" and ready <= self.t:
                self.nodes[node][0] = "standby"
        for t, is_add, node in self.rows:
            if t == self.t and is_add:
                self.counts["adds"] += 1
                wait = 0 if self.t == 0 and self.job.warm_start else tenths(self.job.prep_s)
                self.nodes[node] = ["prepping" if wait else "standby", self.t + wait]
        due, self.due = self.due, False
        self.settle(lost, due)

    def settle(self, lost: bool, due: bool = False) -> None:
        job, active = self.job, len(self.among("active"))
        pipelines = min(job.max_pipelines, (active + len(self.among("standby"))) // job.depth)
        if not lost:
            if pipelines * job.depth <= active:
                return
            start = self.t == 0 and self.state == "idle"
            training = self.state == "training"
            wants = {
                "immediate": True,
                "lazy": self.state == "idle",
                "lazy2": not (training and active >= 2 * job.depth),
                "drain": not training,
            }[self.growth]
            if not (wants or start or due):
                self.growing = self.growth == "drain"
                return
        was = self.state
        self.close(final=False)
        waiting = sorted((ready, node) for node, (state, ready) in self.nodes.items() if state == "standby")
        size = pipelines * job.depth
        for _, node in waiting[: max(0, size - active)]:
            self.nodes[node][0] = "active"
        for node in sorted(self.among("active"))[size:]:
            self.nodes[node][0] = "standby"
        self.size, self.growing = size, False
        if size == 0:
            self.state = "idle"
            self.counts["idle_spells"] += 1
        elif self.t == 0 and job.warm_start:
            self.train()
        else:
            again = was == "reconfiguring"
            self.counts["reconfig_restarts" if again else "reconfigs"] += 1
            start = self.until if again and job.reconfig_rule == "extend" else self.t
            self.state, self.until = "reconfiguring", start + tenths(job.reconfig_s)

    # -- time

    def run(self) -> Reference:
        horizon = tenths(self.job.horizon_s)
        while True:
            shot = self.open_shot() if self.state == "training" else None
            durable = shot[3] if shot else NEVER
            step = self.next_step_end() if self.state == "training" else NEVER
            rebuilt = self.until if self.state == "reconfiguring" else NEVER
            ready = [ready for state, ready in self.nodes.values() if state == "prepping"]
            fleet = min([*ready, *(t for t, _, _ in self.rows if t > self.changed), NEVER])
            now = min(durable, step, rebuilt, fleet)
            if self.due and now > self.t:
                self.due = False
                if self.t < horizon:
                    self.settle(lost=False, due=True)
                continue
            if now > horizon or (now == horizon and now < min(durable, step, rebuilt)):
                break
            self.advance(now)
            if durable == now:
                assert shot is not None
                self.saved += shot[0] - max([other[0] for other in self.shots if other[4]], default=0)
                shot[4] = 1
                self.counts["checkpoints_durable"] += 1
                self.due, self.growing = self.growing, False
            elif step == now:
                self.end_step()
            elif rebuilt == now:
                self.close(final=True)
                self.train()
            else:
                self.changed = now
                self.change()
        self.advance(horizon)
        self.completed = self.saved + 1
        self.close(final=True)
        return self

    def advance(self, t: int) -> None:
        self.node["standby"] += len(self.among("standby")) * (t - self.t)
        self.node["prepping"] += len(self.among("prepping")) * (t - self.t)
        self.t = t
