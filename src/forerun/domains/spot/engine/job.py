"""The job that trains: its shape, its times, and when it takes checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ROUNDING_S = 1e-9
"""Two instants closer than this are the same instant when a checkpoint rule compares them."""


def whole_steps(span_s: float, step_s: float) -> int:
    """Fewest steps, at least one, that last ``span_s``; a step short by rounding counts as whole."""
    return max(1, math.ceil(span_s / step_s - ROUNDING_S))


@dataclass(frozen=True, slots=True)
class BackToBack:
    """Start the next checkpoint at the first step end at which the last one is durable."""

    write: Literal["async", "sync"] = "async"

    def first_steps(self, step_s: float) -> int:
        """Steps of a segment before its first checkpoint."""
        return 1

    def due(self, steps: int, step_s: float, since_checkpoint_s: float) -> bool:
        """Whether to checkpoint after step number ``steps`` of the segment, no write being outstanding."""
        return True

    def spacing_steps(self, step_s: float, stall_s: float, write_s: float) -> int:
        """Steps from one checkpoint to the next."""
        return whole_steps(write_s, step_s)


@dataclass(frozen=True, slots=True)
class EverySteps:
    """Checkpoint after every ``steps`` steps of a segment; one missed behind a running write is skipped."""

    steps: int
    write: Literal["async", "sync"] = "async"

    def first_steps(self, step_s: float) -> int:
        """Steps of a segment before its first checkpoint."""
        return self.steps

    def due(self, steps: int, step_s: float, since_checkpoint_s: float) -> bool:
        """Whether to checkpoint after step number ``steps`` of the segment, no write being outstanding."""
        return steps % self.steps == 0

    def spacing_steps(self, step_s: float, stall_s: float, write_s: float) -> int:
        """Steps from one checkpoint to the next."""
        return self.steps * whole_steps(write_s, self.steps * step_s)


@dataclass(frozen=True, slots=True)
class EverySeconds:
    """Checkpoint at the first step end at least ``period_s`` after the step last checkpoint (or the segment
    start).
    """

    period_s: float
    write: Literal["async", "sync"] = "async"

    def first_steps(self, step_s: float) -> int:
        """Steps of a segment before its first checkpoint."""
        return whole_steps(self.period_s, step_s)

    def due(self, steps: int, step_s: float, since_checkpoint_s: float) -> bool:
        """Whether to checkpoint after step number ``steps`` of the segment, no write being outstanding."""
        return since_checkpoint_s >= self.period_s - ROUNDING_S

    def spacing_steps(self, step_s: float, stall_s: float, write_s: float) -> int:
        """Steps from one checkpoint to the next."""
        blocked_s = stall_s + (write_s if self.write == "sync" else 0.0)
        hidden_s = 0.0 if self.write == "sync" else write_s
        return max(whole_steps(self.period_s - blocked_s, step_s), whole_steps(hidden_s, step_s))


CheckpointRule = BackToBack | EverySteps | EverySeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What trains: its shape, how long its steps and pauses last, and when it saves itself.

    ``step_s`` maps world size (nodes training, a multiple of ``depth``) to seconds a step.  A step is the
    same work at any world size.  ``reconfig_s`` includes loading the last durable checkpoint (``load_s`` of
    it); ``write_s`` counts from the end of the stall; ``stall_s`` blocks training.
    """

    depth: int
    max_pipelines: int
    step_s: Mapping[int, float]
    reconfig_s: float
    prep_s: float
    write_s: float
    stall_s: float
    checkpoint: CheckpointRule
    horizon_s: float
    load_s: float = 0.0
    min_pipelines: int = 1
    reconfig_rule: Literal["restart", "extend"] = "restart"
    warm_start: bool = True
    initial_saved: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Survivors go on without rolling back: after ``pause_s``, if at most ``tolerates`` nodes vanish at
    once.
    """

    pause_s: float
    tolerates: int = 1
