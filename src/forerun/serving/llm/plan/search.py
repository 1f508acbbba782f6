"""The cheapest cell that keeps the objectives: cells in ascending cost, all of them up to the first level that has one.

Nothing is concluded from "more replicas" or "more seats": either may make things worse. A cell is passed over only where a
bound excludes it; every other cell that is cheaper than the plan is run, until it is certain that it misses.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal

from forerun.serving.inputs.inputs import Inputs
from forerun.serving.llm.plan.bounds import Bound, Bounds
from forerun.serving.llm.plan.runs import Figures, attempt
from forerun.serving.llm.plan.space import Cell, Space, output_tokens
from forerun.serving.llm.scenario.language_model import PLAN_AXES

#: what a plan minimises: $ per hour, or $ per token of the answers that the traffic gets
Objective = Literal["cost", "token-cost"]

#: cells that are run before it is asked whether one is good enough
TOGETHER: Final = 16


@dataclass(frozen=True)
class VisitedCell:
    """A cell that was looked at.

    Parameters
    ----------
    cell : hardware, replicas and settings by stage.
    key : what the plan minimises, exactly.
    figures : on each trace that it keeps the objectives on; of one that it misses, None. Empty where a bound excludes it.
        Traces behind the last that could make a difference are missing.
    bounds : what excludes it: the place of a stage among those of the space and its bound, for each of the first traces.
    """

    cell: Cell
    key: Fraction
    figures: tuple[Figures | None, ...] = ()
    bounds: tuple[tuple[int, Bound], ...] = ()

    @property
    def failing(self) -> int:
        """Traces that it is known to miss the objectives on."""
        return self.figures.count(None)


@dataclass(frozen=True)
class Found:
    """The outcome of a search.

    Parameters
    ----------
    best : the cheapest cell that keeps the objectives; of several the one that fails on fewest traces, then one without
        pools apart, then the one with fewest misses (None: there is none).
    tried : all cells that were looked at, by what is minimised; every cell that is cheaper than the best is among them.
    """

    best: VisitedCell | None
    tried: tuple[VisitedCell, ...] = field(repr=False)


class Search:
    """A search over one space and one or more traces."""

    def __init__(
        self, space: Space, traffics: Sequence[Inputs], *, failing: int = 0, objective: Objective = "cost"
    ) -> None:
        """Begin with no cell looked at.

        Parameters
        ----------
        space : what may be chosen.
        traffics : the scenario's inputs on each trace, at least one.
        failing : on how many traces a cell may miss an objective (default: on none).
        objective : what is minimised (default: $ per hour).
        """
        self.space, self.traffics, self.failing, self.objective = space, traffics, failing, objective
        self._bounds = [Bounds(space, inputs) for inputs in traffics[: failing + 1]]
        self._known: dict[Cell, VisitedCell] = {}
        self._tokens: dict[tuple[tuple[int, str], ...], int] = {}

    def key(self, cell: Cell) -> Fraction:
        """What is minimised, exactly: $ per hour; or, for tokens, that over the tokens of all answers on the first trace."""
        cost = self.space.cost(cell)
        if self.objective == "cost":
            return cost
        # What is refused depends on the size of the caches, and on what a scheduler reserves there.
        models = [stage.models[choice.variant] for stage, choice in zip(self.space.stages, cell)]
        caches = tuple((model.kv_blocks, model.rules.reserved) for model in models)
        if caches not in self._tokens:
            self._tokens[caches] = output_tokens(
                self.space.pipeline(cell, self.traffics[0]), len(self.traffics[0].arrivals_ms)
            )
        return cost / max(1, self._tokens[caches])

    def cheapest(self) -> Found:
        """Look at cells in ascending cost until one keeps the objectives, and at all that cost the same."""
        for group in self._groups():
            self.look(group)
            kept = [self._known[cell] for cell in group if self.keeps(self._known[cell])]
            if kept:
                least = min(one.key for one in kept)
                best = min((one for one in kept if one.key == least), key=rank)
                return Found(best, self.tried)
        return Found(None, self.tried)

    @property
    def tried(self) -> tuple[VisitedCell, ...]:
        """The cells looked at so far, by what is minimised."""
        return tuple(sorted(self._known.values(), key=lambda one: one.key))

    def keeps(self, tried: VisitedCell) -> bool:
        """Whether a cell keeps the objectives on enough traces."""
        return not tried.bounds and tried.failing <= self.failing

    def look(self, cells: Sequence[Cell]) -> list[VisitedCell]:
        """Look at some cells; those that no bound excludes are run side by side."""
        new = [cell for cell in dict.fromkeys(cells) if cell not in self._known]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            # Kernels let go of the interpreter; what a cell gives does not depend on the others.
            self._known |= zip(new, pool.map(self._tried, new))
        return [self._known[cell] for cell in cells]

    def _groups(self) -> Iterator[list[Cell]]:
        """Cells in ascending cost, several levels of cost together while they are few; no level is cut."""
        keyed = sorted(((self.key(cell), number, cell) for number, cell in enumerate(self.space.cells())))
        group: list[Cell] = []
        for _, level in itertools.groupby(keyed, key=lambda one: one[0]):
            group += [cell for _, _, cell in level]
            if len(group) >= TOGETHER:
                yield group
                group = []
        if group:
            yield group

    def _tried(self, cell: Cell) -> VisitedCell:
        key = self.key(cell)
        bounds = [one for each in self._bounds if (one := each.excludes(cell)) is not None]
        if len(bounds) > self.failing:
            return VisitedCell(cell, key, bounds=tuple(bounds))
        figures: list[Figures | None] = []
        for inputs in self.traffics:
            figures.append(attempt(self.space, cell, inputs))
            if figures.count(None) > self.failing:
                break
        return VisitedCell(cell, key, tuple(figures))


def rank(tried: VisitedCell) -> tuple[int, int, int, float]:
    """Fewest traces that it fails on, then fewest pools apart, then fewest misses, then the earliest first tokens.

    Pools apart gained nothing where somebody measured them beside as many replicas that do both
    (`benchmarks/serving/settings.py`), so they are no plan for the sake of a few misses.
    """
    kept = [figures for figures in tried.figures if figures is not None]
    apart = sum(dict(zip(PLAN_AXES, choice.variant.settings))["decode"] is not None for choice in tried.cell)
    misses, first_ms = sum(figures.misses for figures in kept), sum(one.ttft_p99_ms for one in kept)
    return tried.failing, apart, misses, first_ms
