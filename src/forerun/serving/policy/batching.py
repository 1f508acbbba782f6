"""What batching policies see, and what they may decide.

A *batching policy* is asked, at an instant, for one idle replica of one stage, after completions and arrivals of that
instant. It sees the stage's own queue and nothing else, and answers with one of three decisions.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class QueueView:
    """What a batching policy may know of its own stage.

    Parameters
    ----------
    now_ms : the instant.
    queued : queries waiting.
    oldest_ms : when the oldest of them came (inf if none waits).
    max_batch : most in one batch.
    idle : replicas idle.
    woken : replicas woken that have not taken their batch yet.
    """

    now_ms: float
    queued: int
    oldest_ms: float
    max_batch: int
    idle: int
    woken: int


@dataclass(frozen=True, slots=True)
class Start:
    """The oldest min(max_batch, queued) queries start now; the queue must not be empty."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing starts; ask again at the next arrival or completion here, and at `until_ms` if that is finite."""

    until_ms: float = float("inf")


@dataclass(frozen=True, slots=True)
class Wake:
    """One idle replica is woken: `after_ms` (> 0) from now it takes what is queued then; an empty take goes idle."""

    after_ms: float


Decision: TypeAlias = Start | Wait | Wake


class BatchingPolicy(Protocol):
    """Decides when batches start. A fresh one is built for every stage of every run."""

    def decide(self, view: QueueView) -> Decision:
        """What one idle replica does now."""
        ...


class Batching(NamedSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name"):
    """The spec of a batching policy: its parameters. Files name it by its tag: `batching: {name: timeout, delay: 5ms}`."""

    def build(self, rng: np.random.Generator) -> BatchingPolicy:
        """A fresh policy for one stage of one run.

        Parameters
        ----------
        rng : its own random stream, named after the stage.
        """
        raise TypeError(f"{type(self).__name__} must say how its policy is built")

    def compiled(self) -> tuple[str, float] | None:
        """How the compiled kernels spell this policy: ("hold" | "wake", delay in ms); None if they cannot."""
        return None


@functools.cache
def batching_policies() -> Registry[Batching]:
    """All batching policies: the files of `policies/` and what installed packages announce."""
    return Registry(
        "batching policy",
        "forerun.serving.policies",
        base=Batching,
        group="forerun.serving.batching",
    )
