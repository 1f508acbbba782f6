"""A tree-structured Parzen estimator with ten evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.loading.policy import Cell, Tuner, TunerSpec, TunerView
from forerun.replication.cndlsys.random_ten import Drawing


class TpeTen(TunerSpec, frozen=True, kw_only=True, tag="tpe_ten"):
    """TPE in earnest, so that the comparison is fair: `random` draws, then cells that resemble the best quarter.

    Per axis, densities of the good and the other cells seen, each value counted once more than seen; of `candidates`
    draws from the good density the one with the highest ratio is probed [Bergstra et al., NeurIPS'11].
    """

    draws: int = 10
    random: int = 4
    best_share: float = 0.25
    candidates: int = 24
    data_share: float = 0.5

    def build(self, view: TunerView) -> Tuner:
        """A tuner that learns where the good cells are."""
        return _Parzen(view, self.draws, max(1, int(view.load.samples * self.data_share)), True, spec=self)


@dataclass
class _Parzen(Drawing):
    spec: TpeTen | None = None

    def pick(self) -> Cell:
        assert self.spec is not None
        if len(self.seen) <= self.spec.random:
            return super().pick()
        ranked = [cell for _, cell in sorted(self.seen)]
        good = ranked[: max(1, int(np.ceil(self.spec.best_share * len(ranked))))]
        rest = ranked[len(good) :]
        block, block_ratio = self.axis(good, rest, lambda cell: cell.block)
        threads, thread_ratio = self.axis(good, rest, lambda cell: cell.threads)
        known = set(self.view.cells)
        score = {
            Cell(b, t): block_ratio[b] * thread_ratio[t]
            for b, t in zip(block, threads)
            if Cell(b, t) in known
        }
        return max(score, key=lambda cell: score[cell]) if score else super().pick()

    def axis(
        self, good: Sequence[Cell], rest: Sequence[Cell], value: Callable[[Cell], int]
    ) -> tuple[list[int], dict[int, float]]:
        """Draws of one axis from the good density, and the ratio of the densities at each value."""
        assert self.spec is not None
        values = sorted({value(cell) for cell in self.view.cells})
        density = [
            np.array([1 + sum(value(cell) == v for cell in cells) for v in values], float)
            for cells in (good, rest)
        ]
        density = [d / d.sum() for d in density]
        picked = self.view.rng.choice(len(values), self.spec.candidates, p=density[0])
        return [values[i] for i in picked], {v: a / b for v, a, b in zip(values, *density)}
