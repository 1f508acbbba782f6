"""Redundant stages on a ring: the neighbour takes over, and training goes on, slower."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from forerun.spot.engine.events import JobStateName, NodeState
from forerun.spot.engine.history import NODE_LINES, Counts, NodeSpell, Replay, Spell
from forerun.spot.policies.bamboo.ring import (
    Change,
    NodeStatus,
    Ring,
    RingJob,
    RingRun,
    RingStatus,
    Stretch,
)
from forerun.spot.policy import RecoveryPolicy, Setting


class Bamboo(RecoveryPolicy, frozen=True, kw_only=True, tag="bamboo"):
    """Each node also has the next stage; two neighbours lost at once are fatal and roll back.

    The simulator published with the paper, its known bugs corrected.  `depth` is the number of stages, `prep_s` the
    time to readiness; `local_s` and `global_s` are the rendezvous after a step and after a fatal failure,
    `snapshot_s` the time between durable checkpoints.  Redundant computation is part of the given step times.
    [Thorpe et al., Bamboo, NSDI'23, sections 4 to 6.]
    """

    local_s: Annotated[float, msgspec.Meta(gt=0, lt=1e9)] = 20.0
    global_s: Annotated[float, msgspec.Meta(gt=0, lt=1e9)] = 30.0
    snapshot_s: Annotated[float, msgspec.Meta(gt=0, lt=1e9)] = 600.0

    def replay(self, setting: Setting) -> Replay:
        """The ring on the fleet's history, to the millisecond."""
        job = setting.job
        ring = RingJob(
            stages=job.depth,
            step_ms={size // job.depth: round(seconds * 1000) for size, seconds in job.step_s.items()},
            local_ms=round(self.local_s * 1000),
            global_ms=round(self.global_s * 1000),
            ready_ms=round(job.prep_s * 1000),
            checkpoint_ms=round(self.snapshot_s * 1000),
            warm_start=job.warm_start,
        )
        rows: list[Change] = [
            (round(instant.t_s * 1000), is_add, str(node))
            for instant in setting.fleet.instants
            if instant.t_s < job.horizon_s
            for is_add, nodes in ((False, instant.removed), (True, instant.added))
            for node in nodes
        ]
        done = Ring(ring).run(rows, round(job.horizon_s * 1000), setting.goal_steps)
        return _replay(done, setting)


_STATES: Final[dict[RingStatus, JobStateName]] = {
    "stopped": "idle",
    "rendezvous": "reconfiguring",
    "running": "training",
}
_NODE_STATES: Final[dict[NodeStatus, NodeState]] = {
    "creating": "prepping",
    "waiting": "standby",
    "running": "active",
}


def _replay(done: RingRun, setting: Setting) -> Replay:
    """The ring's run as a replay.  The node time of a stretch is split as its wall time is."""
    wall_s = {line: ms / 1000.0 for line, ms in done.wall_ms.items()} | {"stall": 0.0}
    end_s = sum(wall_s.values())
    node_spells = [
        NodeSpell(int(one.node), _NODE_STATES[one.state], one.start_ms / 1000.0, one.end_ms / 1000.0)
        for one in done.node_stretches
    ]
    node_s = dict.fromkeys(NODE_LINES, 0.0)
    for spell in node_spells:
        if spell.state != "active":
            node_s[spell.state] += spell.end_s - spell.start_s
    spells: list[Spell] = []
    first = 0
    for stretch, active_s in zip(done.stretches, _active_node_s(done), strict=True):
        parts = _parts_s(stretch, last=stretch is done.stretches[-1])
        span_s = (stretch.end_ms - stretch.start_ms) / 1000.0
        for line, spent_s in parts.items():
            if line != "idle":
                node_s[line] += active_s * spent_s / span_s
        at = (stretch.start_ms / 1000.0, stretch.end_ms / 1000.0)
        cause = "rendezvous" if spells else "start"
        state, steps = _STATES[stretch.status], (first, stretch.steps, stretch.retained)
        spells.append(Spell(state, stretch.nodes, *at, cause, parts, *steps))
        first += stretch.retained
    finished = setting.goal_steps is not None and done.steps >= setting.goal_steps
    counts = Counts(
        reconfigs=done.versions,
        rollbacks=done.fatal,
        steps_executed=len(done.step_end_ms),
        steps_lost=len(done.step_end_ms) - done.steps,
        removed_active=done.removed["running"],
        removed_standby=done.removed["waiting"],
        removed_provisioning=done.removed["creating"],
        adds=done.added,
        idle_spells=sum(spell.state == "idle" for spell in spells),
    )
    return Replay(
        end_s=end_s,
        steps_completed=done.steps,
        steps_durable=done.steps,
        wall_s=wall_s,
        node_s=node_s,
        counts=counts,
        final_state=spells[-1].state if spells else "idle",
        final_active=done.alive["running"],
        final_standby=done.alive["waiting"],
        final_provisioning=done.alive["creating"],
        spells=spells,
        node_spells=node_spells,
        finished_s=end_s if finished else None,
    )


def _parts_s(stretch: Stretch, *, last: bool) -> dict[str, float]:
    """What became of a stretch's time; of the last, a running step is in flight."""
    span_ms = stretch.end_ms - stretch.start_ms
    if stretch.status != "running":
        return {"idle" if stretch.status == "stopped" else "reconfig": span_ms / 1000.0}
    rest_ms = span_ms - stretch.useful_ms - stretch.slowdown_ms
    return {
        "useful": stretch.useful_ms / 1000.0,
        "slowdown": stretch.slowdown_ms / 1000.0,
        "inflight" if last else "lost": rest_ms / 1000.0,
    }


def _active_node_s(done: RingRun) -> list[float]:
    """Node time in pipelines during each stretch: the integral of the number of nodes that have a stage."""
    changes: dict[int, int] = {}
    for one in done.node_stretches:
        if one.state == "running":
            changes[one.start_ms] = changes.get(one.start_ms, 0) + 1
            changes[one.end_ms] = changes.get(one.end_ms, 0) - 1
    times = sorted(changes)
    node_s, nodes, at, i = [], 0, 0, 0
    for stretch in done.stretches:
        node_ms, at = 0, stretch.start_ms
        while i < len(times) and times[i] <= stretch.end_ms:
            node_ms += nodes * (times[i] - at)
            nodes, at = nodes + changes[times[i]], times[i]
            i += 1
        node_s.append((node_ms + nodes * (stretch.end_ms - at)) / 1000.0)
    return node_s
