"""Go on with whoever is left, from the last completed step."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forerun.core.scenario.numbers import Count
from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import Continuation
from forerun.spot.engine.replay import replay
from forerun.spot.policies.lazy import Lazy
from forerun.spot.policy import RecoveryPolicy, Setting


class Oobleck(RecoveryPolicy, frozen=True, kw_only=True, tag="oobleck"):
    """A loss costs the running step and `pause_s`; a replica in another pipeline still has every
    stage.

    More than `tolerates` losses at one instant, or too few nodes left, restore the last durable checkpoint
    after the job's own reconfiguration.  Returning nodes are taken up at the next failure.  For templates of
    any node count give the job depth 1, and step times and `min_pipelines` by node count.
    [Jang et al., Oobleck, SOSP'23, sections 4 and 5.]
    """

    pause_s: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] = 2.0
    tolerates: Count = 1

    def continuation(self) -> Continuation:
        """Survivors go on; returning nodes are taken up at the next failure."""
        return Continuation(pause_s=self.pause_s, tolerates=self.tolerates)

    def replay(self, setting: Setting) -> Replay:
        """The exact semantics, without the rollback."""
        return replay(
            setting.fleet,
            setting.job,
            Lazy(),
            setting.outlook,
            goal_steps=setting.goal_steps,
            continuation=self.continuation(),
        )
