"""Redundant stages on a ring: the neighbour takes over, and training goes on, slower."""

from __future__ import annotations

from forerun.domains.spot.model import Counts, NodeSpell, Replay, Spell
from forerun.domains.spot.policy import RecoveryPolicy, Setting
from forerun.domains.spot.rendezvous import MENDED, Change, RingJob, RingRun, run_ring


class Bamboo(RecoveryPolicy, frozen=True, kw_only=True, tag="bamboo"):
    """Each node also holds the next stage; two neighbours lost at once are fatal and roll back.

    The simulator published with the paper, its defects mended.  `depth` is the number of stages, `prep_s` the
    time to readiness; `local_s` and `global_s` are the rendezvous after a step and after a fatal failure,
    `snapshot_s` the time between durable snapshots.  Redundant computation is part of the given step times.
    [Thorpe et al., Bamboo, NSDI'23, sections 4 to 6.]
    """

    local_s: float = 20.0
    global_s: float = 30.0
    snapshot_s: float = 600.0

    def problems(self) -> list[tuple[str, str]]:
        """Times are positive and finite."""
        return [
            (name, f"{getattr(self, name)} is not positive and finite")
            for name in ("local_s", "global_s", "snapshot_s")
            if not 0 < getattr(self, name) < 1e9
        ]

    def replay(self, setting: Setting) -> Replay:
        """The ring on the fleet's history, to the millisecond."""
        job = setting.job
        ring = RingJob(
            stages=job.depth,
            step_ms={size // job.depth: round(seconds * 1000) for size, seconds in job.step_s.items()},
            samples_per_step=setting.samples_per_step,
            capacity=10**9,
            local_ms=round(self.local_s * 1000),
            global_ms=round(self.global_s * 1000),
            ready_ms=round(job.prep_s * 1000),
            snapshot_ms=round(self.snapshot_s * 1000),
        )
        rows: list[Change] = [
            (round(t_s * 1000), is_add, name)
            for t_s, is_add, name in setting.fleet.rows()
            if t_s < job.horizon_s
        ]
        done = run_ring(
            ring, rows, defects=MENDED, goal_steps=setting.goal_steps, stop_ms=round(job.horizon_s * 1000)
        )
        return _replay(done, setting)


def _replay(done: RingRun, setting: Setting) -> Replay:
    """The ring's books in the room's words; node time is split by wall time, which node held what is not
    kept.
    """
    wall_s = {line: ms / 1000.0 for line, ms in done.wall_ms.items()} | {"stall": 0.0}
    end_s = sum(wall_s.values())
    alive_node_s = sum(
        nodes * (min(to_ms, round(end_s * 1000)) - from_ms) / 1000.0
        for (from_ms, nodes), (to_ms, _) in zip(done.changes, [*done.changes[1:], (round(end_s * 1000), 0)])
        if from_ms < round(end_s * 1000)
    )
    share = alive_node_s / end_s if end_s else 0.0
    node_s = {line: seconds * share for line, seconds in wall_s.items() if line != "idle"}
    finished = setting.goal_steps is not None and done.steps >= setting.goal_steps
    spell = Spell("training", 0, 0.0, end_s, "start", wall_s, 0, len(done.step_end_ms), done.steps)
    lost = len(done.step_end_ms) - done.steps
    last = done.changes[-1][1] if done.changes else 0
    no_nodes: list[NodeSpell] = []
    return Replay(
        end_s=end_s,
        steps_completed=done.steps,
        steps_durable=done.steps,
        wall_s=wall_s,
        node_s=node_s | {"standby": wall_s["idle"] * share, "prepping": 0.0},
        counts=Counts(
            reconfigs=done.versions,
            rollbacks=done.fatal,
            steps_executed=len(done.step_end_ms),
            steps_lost=lost,
            removed_active=len(done.removals_ms),
        ),
        final_state="training" if done.steps else "idle",
        final_active=last,
        final_standby=0,
        final_prepping=0,
        spells=[spell],
        node_spells=no_nodes,
        finished_s=end_s if finished else None,
    )
