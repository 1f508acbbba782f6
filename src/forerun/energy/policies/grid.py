"""Every configuration once, then the cheapest: grid search without early stopping."""

from __future__ import annotations

import math
from collections import deque

from forerun.core.errors import Infeasible, Problem
from forerun.energy.policy import KnobPolicy, KnobSpec, Setting
from forerun.energy.policy.view import AttemptOutcome, Knobs, View


class Grid(KnobSpec, frozen=True, kw_only=True, tag="grid"):
    """Batch sizes ascending, limits descending, no bound; a batch size that fails is dropped."""

    def build(self, setting: Setting) -> KnobPolicy:
        """A policy at the start of the grid."""
        return GridPolicy(setting, bounded=False)


class GridPolicy(KnobPolicy):
    """`ahead` are the configurations not tried yet; `best` the cheapest seen, as (cost J, batch size, limit W)."""

    def __init__(self, setting: Setting, *, bounded: bool) -> None:
        self._job = setting.job
        self._first = setting.default() if bounded else 0
        self._bounded = bounded
        self._ahead: deque[tuple[int, float]] | None = None
        self._dropped: set[int] = set()
        self._best = (math.inf, 0, 0.0)

    def choose(self, view: View) -> Knobs:
        """The next of the grid, or the cheapest seen."""
        bound = None if self._bounded else math.inf
        if self._ahead is None:
            self._ahead = deque((size, limit) for size in view.sizes for limit in view.limits_w[size])
            if self._first:
                first = (self._first, view.limits_w[self._first][0])
                self._ahead.remove(first)
                self._ahead.appendleft(first)
        while self._ahead and self._ahead[0][0] in self._dropped:
            self._ahead.popleft()
        if self._ahead:
            size, limit = self._ahead.popleft()
            return Knobs(size, limit, bound, exploring=True)
        _, size, limit = self._best
        if size:
            return Knobs(size, limit, bound)
        # The whole grid is running and nothing has ended yet: begin it again.
        alive = [size for size in view.sizes if size not in self._dropped]
        if not alive:
            tried = ", ".join(map(str, view.sizes))
            raise Infeasible(Problem(str(self._job), f"no batch size of {tried} reached the target"))
        return Knobs(alive[0], view.limits_w[alive[0]][0], bound, exploring=True)

    def learn(self, outcome: AttemptOutcome) -> None:
        """Remember the cheapest; drop a size that failed before it ever was the cheapest."""
        if outcome.reached:
            self._best = min(self._best, (outcome.cost_j, outcome.batch_size, outcome.limit_w))
        elif outcome.batch_size != self._best[1]:
            self._dropped.add(outcome.batch_size)
