"""Synchronous checkpoints every few steps; growth only with a checkpoint or a failure."""

from __future__ import annotations

from dataclasses import replace

from forerun.core.scenario.numbers import Count
from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import Checkpoints
from forerun.spot.engine.replay import replay
from forerun.spot.policies.drain import Drain
from forerun.spot.policy import RecoveryPolicy, Setting


class Varuna(RecoveryPolicy, frozen=True, kw_only=True, tag="varuna"):
    """Write every `every_steps` steps while training waits; roll back to what is durable.

    The job's checkpoint rule and growth rule are replaced by the system's own.
    [Athlur et al., Varuna, EuroSys'22, sections 4.3 and 5.]  The Oobleck artefact's model of it, with that
    model's defects, is `forerun.replication.oobleck.simulator`.
    """

    every_steps: Count = 10

    def replay(self, setting: Setting) -> Replay:
        """The exact semantics with synchronous writes."""
        checkpoint = Checkpoints(rule="every_steps", steps=self.every_steps, write="sync")
        job = replace(setting.job, checkpoint=checkpoint)
        return replay(setting.fleet, job, Drain(), setting.outlook, goal_steps=setting.goal_steps)
