"""Roll back to the last durable checkpoint and build the pipelines anew."""

from __future__ import annotations

from forerun.spot.engine.history import Replay
from forerun.spot.engine.replay import replay
from forerun.spot.policy import RecoveryPolicy, Setting


class Restart(RecoveryPolicy, frozen=True, kw_only=True, tag="restart"):
    """Checkpoint and restart with asynchronous checkpoints, as the measured elastic system does it.

    [Thorpe et al., Bamboo, NSDI'23, the checkpointing baseline; checkpoints as in Mohan et al., CheckFreq,
    FAST'21.]
    """

    def replay(self, setting: Setting) -> Replay:
        """The exact semantics of `docs/spot/reference.md`."""
        return replay(
            setting.fleet, setting.job, setting.growth, setting.outlook, goal_steps=setting.goal_steps
        )
