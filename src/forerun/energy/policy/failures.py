"""The named failures of a recurring job.

Each failure carries `kind`, a stable word for scripts and tests; the text says job, recurrence, batch size, bound and
what is still possible. Those that blame the input exit with 2, those that say "it cannot be done" with 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from forerun.core.errors import Infeasible, PolicyError, Problem, ScenarioError


class DefaultMissing(ScenarioError):
    """A policy that starts from the default batch size was given none."""

    kind: ClassVar[str] = "default_missing"


class DefaultNotInRange(ScenarioError):
    """The default batch size is not among those measured for the job on this GPU."""

    kind: ClassVar[str] = "default_not_in_range"

    @classmethod
    def of(cls, size: int, measured: Sequence[int], gpu: str = "") -> DefaultNotInRange:
        """With the sizes that were measured, and the one to take. gpu: the type (default: not said)."""
        fits = [other for other in measured if other <= size]
        offer = f"; the largest below it is {max(fits)}" if fits else ""
        what = f"default batch size {size} was not measured{f' on {gpu}' if gpu else ''}: "
        # A path of the scenario: the caller that read its file adds name and line.
        return cls(Problem("$.job.default_batch_size", what + ", ".join(map(str, measured)) + offer))


class NoBatchSizes(ScenarioError):
    """The trace has no row of this workload."""

    kind: ClassVar[str] = "no_batch_sizes"


class TargetNotInTrace(ScenarioError):
    """No run of the batch size that was asked for records the target metric."""

    kind: ClassVar[str] = "target_not_in_trace"


class WindowTooSmall(ScenarioError):
    """The window leaves fewer than two observations an arm, so that no variance can be estimated."""

    kind: ClassVar[str] = "window_too_small"


class ObservedOutOfOrder(PolicyError):
    """The exploration got a result it was not waiting for, or was asked twice without one."""

    kind: ClassVar[str] = "observed_out_of_order"


class BestNotProfiled(PolicyError):
    """A concurrent submission was to run a batch size whose power limit is not known yet."""

    kind: ClassVar[str] = "best_not_profiled"


class DefaultDidNotReach(Infeasible):
    """The very first attempt did not reach the target."""

    kind: ClassVar[str] = "default_did_not_reach"


class TriesExhausted(Infeasible):
    """One submission failed as often as it may."""

    kind: ClassVar[str] = "tries_exhausted"


class NothingSurvivedRound1(Infeasible):
    """No batch size reached the target in the first round of the exploration."""

    kind: ClassVar[str] = "nothing_survived_round_1"


class AllPruned(Infeasible):
    """No batch size survived the second round of the exploration."""

    kind: ClassVar[str] = "all_pruned"


class Livelock(Infeasible):
    """A group retries without end: the batch size it retries cannot reach the target within its bound."""

    kind: ClassVar[str] = "livelock"
