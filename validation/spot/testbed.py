"""Train on processes that a trace kills, and compare with the domain's prediction.

The prediction is the spot domain's exact simulator on the trace, with times measured before on the same machine; nothing is
fitted to the run.  The measured ledger is taken from the run's own log by the same rules.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.core.errors import TraceError
from forerun.spot.engine.job import TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.outlook import Observed
from forerun.spot.engine.replay import replay
from forerun.spot.measure.fleet import CompletedStep, Fleet, FleetLog, Segment
from forerun.spot.measure.profile import Profile
from forerun.spot.policies.immediate import Immediate

#: seconds since the start, whether it is an addition, the node
Change = tuple[float, bool, str]

LINES = ("useful", "stall", "lost", "reconfig", "idle", "inflight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A run and its prediction.

    Parameters
    ----------
    end_s : length of the run.
    measured_s, predicted_s : seconds by ledger line; each sums to the run.
    measured, predicted : counts by name: steps, re-plans, and active nodes lost.
    first_loss, last_loss : of the training, to see that it learnt.
    """

    end_s: float
    measured_s: dict[str, float]
    predicted_s: dict[str, float]
    measured: dict[str, int]
    predicted: dict[str, int]
    first_loss: float
    last_loss: float

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "end_s": self.end_s,
            "ledger": {
                line: {"measured_s": self.measured_s[line], "predicted_s": self.predicted_s[line]}
                for line in LINES
            },
            "counts": {
                name: {"measured": count, "predicted": self.predicted[name]}
                for name, count in self.measured.items()
            },
            "first_loss": self.first_loss,
            "last_loss": self.last_loss,
        }


def schedule(fleet: Membership, speed: float, end_s: float) -> tuple[Change, ...]:
    """A trace's changes as a run makes them.

    Parameters
    ----------
    fleet : the trace.
    speed : how many times as fast they come.
    end_s : of the run; later changes are left out.

    Raises TraceError for a trace that begins without a node.
    """
    rows = tuple((t_s / speed, added, node) for t_s, added, node in fleet.rows() if t_s / speed < end_s)
    if not any(t_s == 0 and added for t_s, added, _ in rows):
        raise TraceError.at("trace", "has no node at its first instant; the run needs one to start with")
    return rows


def run(
    profile: Profile,
    changes: Sequence[Change],
    end_s: float,
    progress: Callable[[str], None] = lambda _: None,
) -> Compared:
    """Train under a trace, then predict the same.

    Parameters
    ----------
    profile : measured means.
    changes : of the fleet.
    end_s : seconds of the clock.
    progress : called with a line on what goes on (default: no progress is reported).
    """
    with (
        tempfile.TemporaryDirectory(prefix="forerun-testbed-") as folder,
        Fleet(profile.work, Path(folder)) as fleet,
    ):
        for t_s, added, node in changes:
            if t_s == 0 and added:
                fleet.add(node)
        fleet.await_ready()
        progress(
            f"training for {end_s:g} s; {sum(not added for _, added, _ in changes)} processes will be killed"
        )
        fleet.start()
        killed_active = follow(fleet, changes, end_s)
        log = fleet.finish(end_s)
    return compare(profile, changes, log, killed_active)


def follow(fleet: Fleet, changes: Sequence[Change], end_s: float) -> int:
    """Do what a trace says when it says it, and train in between; returns how many nodes in pipelines were killed.

    Parameters
    ----------
    changes : of the fleet, in order of time.
    end_s : when the run ends.
    """
    pending = sorted(change for change in changes if 0 < change[0] < end_s)
    at = killed_active = 0
    while (now_s := fleet.now_s) < end_s:
        lost = False
        while at < len(pending) and pending[at][0] <= now_s:
            _, added, name = pending[at]
            at += 1
            if added:
                fleet.add(name)
            elif name in fleet.nodes:
                was_active = fleet.remove(name)
                killed_active += was_active
                lost |= was_active
        fleet.settle(lost)
        fleet.listen(min(end_s, pending[at][0] if at < len(pending) else end_s))
    return killed_active


def compare(profile: Profile, changes: Sequence[Change], log: FleetLog, killed_active: int) -> Compared:
    """The ledger of a log beside that of the exact simulator with the measured means.

    Parameters
    ----------
    changes : of the fleet, which both have.
    log : what happened to the processes.
    killed_active : nodes in pipelines that were killed.
    """
    done = replay(Membership.from_rows(changes), job_of(profile, log.end_s), Immediate(), Observed())
    steps = [step for segment in log.segments for step in segment.steps]
    return Compared(
        end_s=log.end_s,
        measured_s=ledger(log),
        predicted_s={line: done.wall_s[line] for line in LINES},
        measured={
            "steps completed": _completed(log),
            "steps executed": len(steps),
            "re-plans": len(log.segments) - 1,
            "active nodes lost": killed_active,
        },
        predicted={
            "steps completed": done.steps_completed,
            "steps executed": done.counts.steps_executed,
            "re-plans": sum(spell.state == "training" for spell in done.spells) - 1,
            "active nodes lost": done.counts.removed_active,
        },
        first_loss=steps[0].loss if steps else math.nan,
        last_loss=steps[-1].loss if steps else math.nan,
    )


def job_of(profile: Profile, horizon_s: float) -> TrainingJob:
    """The spot domain's job with the measured means.

    Parameters
    ----------
    profile : seconds of steps, stalls, writes, restarts and preparation.
    horizon_s : end of the run.
    """
    return TrainingJob(
        depth=profile.work.depth,
        max_pipelines=profile.work.max_pipelines,
        step_s={size: timing.mean_s for size, timing in profile.step.items()},
        reconfig_s=profile.restart.mean_s,
        prep_s=profile.prep.mean_s,
        write_s=profile.write.mean_s,
        stall_s=profile.stall.mean_s,
        horizon_s=horizon_s,
    )


def ledger(log: FleetLog) -> dict[str, float]:
    """Seconds by line; they sum to the run.

    Within a segment everything up to the last retained step and its stall is useful or stall, the rest lost, or, at the end
    of the run, the step in flight.
    """
    parts = dict.fromkeys(LINES, 0.0)
    before_s = 0.0
    idle = sum(end_s - start_s for start_s, end_s in log.idle)
    for segment in log.segments:
        parts["reconfig"] += segment.ready_s - before_s
        retained, final = _retained(segment), segment.cause == "end"
        upto_s = retained[-1].end_s if retained else segment.ready_s
        counted = [one for one in segment.checkpoints if final or one.durable_s < math.inf]
        stall_s = sum(one.copied_s - one.start_s for one in counted)
        upto_s = max([upto_s, *(one.copied_s for one in counted)])
        parts["useful"] += upto_s - segment.ready_s - stall_s
        parts["stall"] += stall_s
        parts["inflight" if final else "lost"] += segment.end_s - upto_s
        before_s = segment.end_s
    parts["reconfig"] += log.end_s - before_s - idle
    parts["idle"] += idle
    return parts


def _retained(segment: Segment) -> list[CompletedStep]:
    """Steps of a segment that are not rolled back: all at the end of the run, else those durable."""
    if segment.cause == "end":
        return segment.steps
    durable = [one.step for one in segment.checkpoints if one.durable_s < math.inf]
    return [step for step in segment.steps if durable and step.number <= max(durable)]


def _completed(log: FleetLog) -> int:
    """Steps complete at the end."""
    return sum(len(_retained(segment)) for segment in log.segments)
