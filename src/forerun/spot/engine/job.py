"""The job that trains: its shape, its times, and when it takes checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from forerun.core.scenario.numbers import NotNegative, Positive, Whole
from forerun.core.scenario.spec import Spec

ROUNDING_S = 1e-9
"""Two instants closer than this are the same instant when a checkpoint rule compares them."""


def whole_steps(span_s: float, step_s: float) -> int:
    """Fewest steps, at least one, that last `span_s`; a step short by rounding counts as whole."""
    return max(1, math.ceil(span_s / step_s - ROUNDING_S))


class Checkpoints(Spec, frozen=True, kw_only=True):
    """When the job saves itself, and whether training waits for the write.

    rule: `back_to_back` (default) starts the next checkpoint at the first step end at which the last one is durable;
    `every_steps` after every `steps` steps of a segment, but for one missed behind a running write; `every_seconds` at the
    first step end at least `period_s` after the step last checkpoint, or the segment start.
    steps, period_s: the number that the rule needs.
    write: beside training (`async`, default), or while it waits (`sync`).
    """

    rule: Literal["back_to_back", "every_steps", "every_seconds"] = "back_to_back"
    steps: Whole = 0
    period_s: NotNegative = 0.0
    write: Literal["async", "sync"] = "async"

    def problems(self) -> list[tuple[str, str]]:
        """The rule has its number."""
        if self.rule == "every_steps" and self.steps < 1:
            return [("steps", f"every_steps needs at least 1, not {self.steps}")]
        if self.rule == "every_seconds" and not self.period_s:
            return [("period_s", f"every_seconds needs a positive period, not {self.period_s}")]
        return []

    def due(self, steps: int, since_checkpoint_s: float) -> bool:
        """Whether a checkpoint is due at a step's end, no write being outstanding.

        Parameters
        ----------
        steps : of the segment so far.
        since_checkpoint_s : since the last checkpoint, or the segment's start.
        """
        if self.rule == "every_steps":
            return steps % self.steps == 0
        return self.rule == "back_to_back" or since_checkpoint_s >= self.period_s - ROUNDING_S

    def first_steps(self, step_s: float) -> int:
        """Steps of a segment before its first checkpoint."""
        if self.rule == "every_steps":
            return self.steps
        return 1 if self.rule == "back_to_back" else whole_steps(self.period_s, step_s)

    def spacing_steps(self, step_s: float, blocked_s: float, hidden_s: float) -> int:
        """Steps from one checkpoint to the next.

        Parameters
        ----------
        step_s : of a step.
        blocked_s, hidden_s : of a checkpoint, as `times` gives them.
        """
        if self.rule == "every_steps":
            return self.steps * whole_steps(hidden_s, self.steps * step_s)
        hidden_steps = whole_steps(hidden_s, step_s)
        if self.rule == "back_to_back":
            return hidden_steps
        return max(whole_steps(self.period_s - blocked_s, step_s), hidden_steps)

    def times(self, stall_s: float, write_s: float) -> tuple[float, float]:
        """Seconds for which a checkpoint blocks training, and seconds of it that are written beside training."""
        return (stall_s + write_s, 0.0) if self.write == "sync" else (stall_s + 0.0, write_s)


BACK_TO_BACK: Final = Checkpoints()


class Tier(Spec, frozen=True, kw_only=True):
    """A fast tier of checkpoints in front of the job's own, such as the memory of a neighbour, or the disk of a node.

    name: of the tier. every_s: between checkpoints, in whole steps that last at least so long; one that meets the tier's own
    running write is skipped.
    stall_s: time for which a checkpoint blocks training (default 0). write_s: until it is durable, beside training (default
    0).
    survives: the failures that leave its copy: of a `process` (a local disk), or of a `node` as well (a neighbour's memory).
    load_s: part of a restart from it, in place of the load from the job's own store (default 0).
    """

    name: str
    every_s: Positive
    survives: Literal["process", "node"]
    stall_s: NotNegative = 0.0
    write_s: NotNegative = 0.0
    load_s: NotNegative = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What trains: its shape, how long its steps and pauses last, and when it saves itself.

    Parameters
    ----------
    depth : nodes in a pipeline.
    max_pipelines, min_pipelines : most, and fewest, that train (fewest: 1).
    step_s : seconds a step by nodes training, a multiple of `depth`; a step is the same work on any number.
    reconfig_s : pause to rebuild pipelines, which contains load_s, the load of the last durable checkpoint (default:
        0).
    prep_s : from the grant of a node until it is usable.
    write_s : from the end of the stall until a checkpoint is durable.
    stall_s : time a checkpoint blocks training.
    horizon_s : end of the run.
    checkpoint : when checkpoints are taken (default: back to back).
    reconfig_rule : whether an event during a pause restarts it (default), or extends it by another pause.
    warm_start : nodes of the first instant are ready, and the first pipelines built, at once (default).
    initial_saved : the last durable step at the start (default: -1: none).
    tiers : fast tiers of checkpoints, on reserved clusters (default: none).
    """

    depth: int
    max_pipelines: int
    step_s: Mapping[int, float]
    reconfig_s: float
    prep_s: float
    write_s: float
    stall_s: float
    horizon_s: float
    checkpoint: Checkpoints = BACK_TO_BACK
    load_s: float = 0.0
    min_pipelines: int = 1
    reconfig_rule: Literal["restart", "extend"] = "restart"
    warm_start: bool = True
    initial_saved: int = -1
    tiers: tuple[Tier, ...] = ()

    @property
    def checkpoint_s(self) -> tuple[float, float]:
        """Seconds for which a checkpoint blocks training, and seconds of it that are written beside training."""
        return self.checkpoint.times(self.stall_s, self.write_s)

    def nodes_in_use(self, nodes: int) -> int:
        """How many of `nodes` train: whole pipelines, none if they are fewer than the job needs."""
        pipelines = min(self.max_pipelines, nodes // self.depth)
        return pipelines * self.depth if pipelines >= self.min_pipelines else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Survivors go on without rolling back.

    Parameters
    ----------
    pause_s : the pause after a loss.
    tolerates : most nodes that may vanish at once (default: 1).
    rejoin_s : replicas commit steps together: a loss costs the running step to its end, where the commit fails; only they go
        on, and a replica that comes back copies their state for so long while they train, and joins at the end of a
        step (default: None, a loss stops training at once, and returning nodes join at the next loss, with its pause).
    """

    pause_s: float
    tolerates: int = 1
    rejoin_s: float | None = None

    @property
    def commits(self) -> bool:
        """Whether replicas commit steps together."""
        return self.rejoin_s is not None
