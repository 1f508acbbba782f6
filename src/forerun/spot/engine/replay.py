"""The event loop: one job on one history of a fleet, exactly. The reference of the Monte Carlo kernel."""

from __future__ import annotations

from collections.abc import Callable

from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import Continuation, TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.state import RunState
from forerun.spot.policy import GrowthPolicy, Outlook


def replay(
    fleet: Membership,
    job: TrainingJob,
    growth: GrowthPolicy,
    outlook: Outlook,
    *,
    goal_steps: int | None = None,
    continuation: Continuation | None = None,
    after_event: Callable[[RunState], None] | None = None,
) -> Replay:
    """Run a job on a fleet until the job's horizon, or until `goal_steps` are complete.

    Completions exactly at the horizon count, changes of the fleet there do not.

    Parameters
    ----------
    fleet : who is there when.
    job : what trains.
    growth : when returning nodes join.
    outlook : what is known about removals.
    goal_steps : steps at which the run ends (default: none, it ends at the horizon).
    continuation : with it, a loss does not roll back to the last durable checkpoint unless too many nodes vanish at
        once.
    after_event : called with the state after every event, which it must not change (tests check conservation laws).
    """
    state = RunState(job, fleet, growth, outlook, continuation)
    finished_s = state.advance(job.horizon_s, goal_steps, after_event)
    return state.finish(job.horizon_s if finished_s is None else finished_s, finished_s)
