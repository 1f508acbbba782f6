"""The event loop: one job on one history of a fleet, exactly. The reference of the Monte Carlo kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from forerun.domains.spot.engine.events import CheckpointDurable, FleetChange, ReconfigEnd, StepEnd
from forerun.domains.spot.engine.history import Replay
from forerun.domains.spot.engine.job import Continuation, TrainingJob
from forerun.domains.spot.engine.membership import Membership
from forerun.domains.spot.engine.state import RunState
from forerun.domains.spot.policy import GrowthPolicy, Outlook


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
    """Run a job on a fleet until the job's horizon, or until the wanted steps are complete.

    fleet: who is there when. job: what trains. growth: when returning nodes join. outlook: what is known about removals.
    goal_steps: steps at which the run ends (default: none, it ends at the horizon).
    continuation: with it, a loss does not roll back to the last durable checkpoint unless too many nodes vanish at once.
    after_event: called with the state after every event, which it must not change (tests check conservation laws).

    Completions exactly at the horizon count, changes of the fleet there do not.
    """
    state = RunState(job, fleet, growth, outlook, continuation)
    finished_s: float | None = None
    while finished_s is None:
        event = state.next_event()
        if event.t_s > job.horizon_s:
            break
        match event:
            case CheckpointDurable(t_s):
                state.complete_checkpoint(t_s)
            case StepEnd(t_s):
                state.complete_step(t_s)
                if after_event is None:
                    t_s = state.coast(job.horizon_s, goal_steps)
                if state.steps_completed == goal_steps:
                    finished_s = t_s
                else:
                    state.grow_if_due(t_s)
            case ReconfigEnd(t_s):
                state.start_training(t_s)
            case FleetChange(t_s):
                if t_s == job.horizon_s:
                    break
                state.change_fleet(t_s)
            case _:
                assert_never(event)
        if after_event is not None:
            after_event(state)
    return state.finish(job.horizon_s if finished_s is None else finished_s, finished_s)
