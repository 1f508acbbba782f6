"""One thread more, one thread fewer: the usual autotuner, to set beside the others.

tf.data's autotuning climbs like this, a step at a time, from what the loop waits [Murray et al., VLDB'21].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.loading.policy import Pace, PacePolicy, PaceSpec, PaceView


class HillClimb(PaceSpec, frozen=True, kw_only=True, tag="hill_climb"):
    """The next higher number of threads where the loop waited more than `stalled`, the next lower below `idle`.

    It knows no law, so it takes a step at a time, and tries fewer again and again where these do not suffice. Block sizes
    it leaves alone.
    """

    stalled: float = 0.05
    idle: float = 0.001

    def problems(self) -> list[tuple[str, str]]:
        """Shares, the lower one below."""
        problems = super().problems()
        if not 0 <= self.idle <= self.stalled <= 1:
            problems.append(
                ("stalled", f"0 <= idle <= stalled <= 1 is required, not {self.idle:g} and {self.stalled:g}")
            )
        return problems

    def build(self, rng: np.random.Generator) -> PacePolicy:
        """A policy that keeps nothing."""
        return _HillClimb(self)


@dataclass
class _HillClimb:
    spec: HillClimb

    def adjust(self, view: PaceView) -> Pace:
        waited, now = view.waited_share, view.threads
        fitting = [n for n in view.offered_threads if n * view.block_samples <= self.most_samples(view)]
        if waited > self.spec.stalled:
            more = min((n for n in fitting if n > now), default=now)
            return Pace(more, why=f"the loop waited {waited:.1%} of the time")
        if waited < self.spec.idle:
            fewer = max((n for n in view.offered_threads if n < now), default=now)
            return Pace(fewer, why="the loop did not wait")
        return Pace(now, why=f"the loop waited {waited:.1%} of the time")

    def most_samples(self, view: PaceView) -> float:
        """Samples of blocks that fit the memory, at the mean size seen."""
        samples = float(view.samples.sum())
        return (
            view.memory_bytes * samples / float(view.block_bytes.sum())
            if samples and view.block_bytes.sum()
            else np.inf
        )
