"""Let the other replicas train on; one that comes back copies their state."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import msgspec

from forerun.core.scenario.numbers import Count
from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import Continuation
from forerun.spot.engine.replay import replay
from forerun.spot.policies.immediate import Immediate
from forerun.spot.policy import RecoveryPolicy, Setting


class TorchFT(RecoveryPolicy, frozen=True, kw_only=True, tag="torchft"):
    """A loss costs the running step, to its end, where the commit fails, and `pause_s` in the replicas that are left; a
    replica that comes back copies the state from its peers for `rejoin_s`, while they train, and joins at the end of a step.

    More than `tolerates` losses at one instant, or too few nodes left, restore the last durable checkpoint after the
    job's own reconfiguration.  On preemptible fleets the copy is part of a node's preparation.
    [Fault-tolerant replica groups, as in PyTorch's torchft.]
    """

    pause_s: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] = 10.0
    rejoin_s: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] = 60.0
    tolerates: Count = 1

    def continuation(self) -> Continuation:
        """Replicas go on; others join them."""
        return Continuation(pause_s=self.pause_s, tolerates=self.tolerates, rejoin_s=self.rejoin_s)

    def replay(self, setting: Setting) -> Replay:
        """The exact semantics, without the rollback; a node that returns is usable once it has its copy."""
        return replay(
            setting.fleet,
            replace(setting.job, prep_s=setting.job.prep_s + self.rejoin_s),
            Immediate(),
            setting.outlook,
            goal_steps=setting.goal_steps,
            continuation=self.continuation(),
        )
