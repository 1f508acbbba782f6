"""The cheapest cell that keeps the objectives: cells in ascending cost, all of them up to the first level that has one.

Nothing is concluded from "more replicas" or "more seats": either may make things worse. A cell is passed over only where
bounds exclude it; every other cell that is cheaper than the plan is run until it is certain that it misses, first in the
worlds that ask most of it. Of several at the plan's cost those that do best in one world are run in all.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, Literal, NamedTuple, TypeVar

from forerun.serving.inputs.inputs import Inputs
from forerun.serving.llm.plan.bounds import Bound, Bounds
from forerun.serving.llm.plan.draws import grown, growths
from forerun.serving.llm.plan.runs import Figures, attempt
from forerun.serving.llm.plan.space import Cell, Space, output_tokens
from forerun.serving.llm.scenario.language_model import PLAN_AXES

#: what a plan minimises: $ per hour, or $ per token of the answers that the traffic gets
Objective = Literal["cost", "token-cost"]

#: cells that are run before it is asked whether one is good enough
TOGETHER: Final = 16
#: of cells that cost the same, so many are compared in one world, and so many of these in all
FEW: Final = 64
FINAL: Final = 4

T = TypeVar("T")


class World(NamedTuple):
    """What a plan must hold in (see `plan.draws`).

    Parameters
    ----------
    number : of the world.
    space : what may be chosen, with the costs of the world.
    inputs : the scenario's, on its traffic.
    """

    number: int
    space: Space
    inputs: Inputs


@dataclass(frozen=True)
class VisitedCell:
    """A cell that was looked at.

    Parameters
    ----------
    cell : hardware, replicas and settings by stage.
    key : what the plan minimises, exactly.
    bounds : in the worlds that exclude it, the place of a stage among those of the space and its bound, by number.
    figures : in the worlds that it was run in, by number; None where it misses an objective.
    growths : how near the knee it is (see `draws.growths`; None: it is not known, and limits are as drawn).
    """

    cell: Cell
    key: Fraction
    bounds: Mapping[int, tuple[int, Bound]]
    figures: Mapping[int, Figures | None] = field(default_factory=dict)
    growths: Mapping[str, float] | None = None

    @property
    def missed(self) -> tuple[int, ...]:
        """Numbers of the worlds that it was run in and misses an objective."""
        return tuple(number for number, figures in self.figures.items() if figures is None)

    @property
    def failing(self) -> int:
        """Worlds in which it is known to miss the objectives."""
        return len(self.bounds) + len(self.missed)


class Search:
    """A search over one space in one or more worlds."""

    def __init__(self, own: World, worlds: Sequence[World], failing: int, objective: Objective) -> None:
        """Begin with no cell looked at.

        Parameters
        ----------
        own : the scenario's own world: what may be chosen at costs as stated, on its own traffic.
        worlds : those that a plan must hold in, at least one.
        failing : in how many of them a cell may miss an objective.
        objective : what is minimised.
        """
        self.space, self.inputs, self.worlds = own.space, own.inputs, worlds
        self.failing, self.objective = failing, objective
        self._bounds = [Bounds(world.space, world.inputs) for world in worlds]
        self._known: dict[Cell, VisitedCell] = {}
        #: by what else decides a run, the seats that each that missed had, and the most that were taken in it
        self._missed: dict[Hashable, list[tuple[tuple[int, int], ...]]] = defaultdict(list)
        self._tokens: dict[tuple[tuple[int, str], ...], int] = {}
        of = self._bounds[0]
        keyed = sorted(
            (self.key(cell), of.load(cell), number, cell) for number, cell in enumerate(own.space.cells())
        )
        #: cells in ascending cost, those of one cost together, those first that have least to do in the first world
        self._levels = [
            [one[-1] for one in level] for _, level in itertools.groupby(keyed, key=lambda one: one[0])
        ]

    def allowing(self, failing: int) -> Search:
        """The same search where a cell may miss an objective in so many worlds; what one learns the other knows."""
        other = copy.copy(self)
        other.failing = failing
        return other

    def among(self, worlds: Sequence[World], failing: int) -> Search:
        """The search with further worlds; what is known of cells stays known.

        Parameters
        ----------
        failing : in how many of all worlds a cell may miss an objective.
        """
        other = self.allowing(failing)
        more = [Bounds(world.space, world.inputs) for world in worlds]
        other.worlds, other._bounds = (*self.worlds, *worlds), [*self._bounds, *more]
        other._known = {
            cell: replace(one, bounds={**one.bounds, **_excluded(cell, worlds, more)})
            for cell, one in self._known.items()
        }
        return other

    def key(self, cell: Cell) -> Fraction:
        """What is minimised, exactly: $ per hour; or, for tokens, that over the tokens of all answers in the first world."""
        cost = self.space.cost(cell)
        if self.objective == "cost":
            return cost
        # What is refused depends on the size of the caches, and on what a scheduler reserves there.
        models = [stage.models[choice.variant] for stage, choice in zip(self.space.stages, cell)]
        caches = tuple((model.kv_blocks, model.rules.reserved) for model in models)
        if caches not in self._tokens:
            self._tokens[caches] = output_tokens(self.space.inputs(cell, self.worlds[0].inputs))
        return cost / max(1, self._tokens[caches])

    def cheapest(self, *, quick: bool = False) -> VisitedCell | None:
        """The cheapest cell that keeps the objectives; of several the first by `rank` of those that were run in all worlds
        (None: there is none).

        Cells are looked at in ascending cost until one keeps the objectives, and in one world those that cost the same: all
        of them, or while there are several worlds the first few that have least to do. So `tried` has every cheaper cell.

        Parameters
        ----------
        quick : pass over those that miss in a world in which as many others as they may miss in ask more of them, so there
            may be cheaper ones (default: no).
        """
        few, final, harder = (TOGETHER, 1, self.failing) if quick else (FEW, FINAL, 0)
        for level in self._levels:
            for some in _cut(level, len(level) if len(self.worlds) == 1 else few):
                left = [one for one in self.look(some, harder) if one.failing <= self.failing]
                left = [one for one in left if not quick or self._may_keep(one)]
                for best in _cut(sorted(left, key=rank), final):
                    kept = [one for one in self.look([one.cell for one in best]) if self.keeps(one)]
                    if kept:
                        return min(kept, key=rank)
        return None

    @property
    def tried(self) -> tuple[VisitedCell, ...]:
        """The cells looked at so far, by what is minimised."""
        return tuple(sorted(self._known.values(), key=lambda one: one.key))

    def excluded(self, tried: VisitedCell) -> bool:
        """Whether bounds alone say that a cell misses the objectives in too many worlds."""
        return len(tried.bounds) > self.failing

    def keeps(self, tried: VisitedCell) -> bool:
        """Whether a cell is known to keep the objectives in enough worlds."""
        looked = len(tried.bounds) + len(tried.figures)
        known = tried.growths is not None and looked == len(self.worlds)
        return tried.failing <= self.failing and known

    def look(self, cells: Sequence[Cell], harder: int | None = None) -> list[VisitedCell]:
        """Look at some cells; those that bounds do not exclude are run side by side, until they miss in too many worlds.

        Parameters
        ----------
        harder : run them in that world only in which so many others ask more of each (default: in all).
        """
        groups: dict[Hashable, list[Cell]] = defaultdict(list)
        for cell in cells:
            groups[self._alike(cell)].append(cell)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            # Kernels let go of the interpreter; cells of one group spare each other runs, and say the same without.
            for looked in pool.map(lambda some: [self._looked(one, harder) for one in some], groups.values()):
                self._known |= {one.cell: one for one in looked}
        return [self._known[cell] for cell in cells]

    def placed(self, tried: VisitedCell, world: World, traffic: Inputs) -> Inputs:
        """A cell on some traffic, with the costs and limits of a world."""
        inputs, factors = world.space.inputs(tried.cell, traffic), tried.growths
        return grown(inputs, self.space.inputs(tried.cell, traffic), factors) if factors else inputs

    def _may_keep(self, tried: VisitedCell) -> bool:
        """Whether a cell keeps the objectives in the world that as many others as it may miss in go before."""
        return any(tried.figures[world.number] for world in self._ranked(tried, self.failing))

    def _looked(self, cell: Cell, harder: int | None) -> VisitedCell:
        tried = self._known.get(cell)
        if tried is None:
            bounds = _excluded(cell, self.worlds, self._bounds)
            # In the scenario's own world limits are as stated.
            factors: dict[str, float] | None = None if self.worlds[0].number else {}
            tried = VisitedCell(cell, self.key(cell), bounds, growths=factors)
        tried = self._run(tried, harder)
        if harder is None and tried.growths is None and tried.failing <= self.failing:
            # It keeps the limits as drawn: only now it matters how much tighter they are near the knee.
            factors = growths(self.space.inputs(cell, self.inputs))
            kept = {} if any(factor > 1 for factor in factors.values()) else tried.figures
            tried = replace(tried, growths=factors, figures={**dict.fromkeys(tried.missed), **kept})
            tried = self._run(tried, None)
        return tried

    def _run(self, tried: VisitedCell, harder: int | None) -> VisitedCell:
        """A cell run in worlds that it was not run in, until it misses in too many."""
        for world in self._ranked(tried, harder):
            if tried.failing <= self.failing and world.number not in tried.figures:
                tried = replace(tried, figures={**tried.figures, world.number: self._ran(tried, world)})
        return tried

    def _ran(self, tried: VisitedCell, world: World) -> Figures | None:
        """What a run of a cell in a world gives; it misses, too, where another did that differs in nothing but seats of
        which some were always free in that run, and would have been in this one."""
        missed = self._missed[world.number, str(tried.growths), self._alike(tried.cell)]
        seats = [stage.models[one.variant].max_seqs for stage, one in zip(self.space.stages, tried.cell)]
        like = (zip(seats, run) for run in missed)
        if any(all(own == theirs or most < min(own, theirs) for own, (theirs, most) in run) for run in like):
            return None
        figures, seated = attempt(self.placed(tried, world, world.inputs))
        if figures is None:
            taken = (seated[stage.number] or have for stage, have in zip(self.space.stages, seats))
            missed.append(tuple(zip(seats, taken)))
        return figures

    def _alike(self, cell: Cell) -> Hashable:
        """Equal for cells that do the same as long as they have free seats."""
        if self.inputs.clients is not None:
            return cell
        return tuple(stage.alike(choice) for stage, choice in zip(self.space.stages, cell))

    def _ranked(self, tried: VisitedCell, harder: int | None) -> Sequence[World]:
        """Worlds that do not exclude a cell, those first that ask most of it; or the one of them that `harder` others of all
        go before."""
        ranked = sorted(
            (-of.load(tried.cell), world.number, world)
            for world, of in zip(self.worlds, self._bounds)
            if world.number not in tried.bounds
        )
        worlds = [world for *_, world in ranked]
        return worlds if harder is None else worlds[max(0, harder - len(tried.bounds)) :][:1]


def _excluded(cell: Cell, worlds: Sequence[World], bounds: Sequence[Bounds]) -> dict[int, tuple[int, Bound]]:
    """The bounds that exclude a cell, by number of the world."""
    excludes = ((world.number, of.excludes(cell)) for world, of in zip(worlds, bounds))
    return {number: bound for number, bound in excludes if bound is not None}


def _cut(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Items in their order, at most so many at once."""
    return (items[begin : begin + most] for begin in range(0, len(items), most))


def rank(tried: VisitedCell) -> tuple[int, int, int, float]:
    """Fewest worlds that it fails in, then fewest pools apart, then fewest misses, then the earliest first tokens.

    Pools apart gained nothing where somebody measured them beside as many replicas that do both
    (`benchmarks/serving/settings.py`), so they are no plan for the sake of a few misses.
    """
    kept = [figures for figures in tried.figures.values() if figures is not None]
    apart = sum(dict(zip(PLAN_AXES, choice.variant.settings))["decode"] is not None for choice in tried.cell)
    misses, first_ms = sum(figures.misses for figures in kept), sum(one.ttft_p99_ms for one in kept)
    return tried.failing, apart, misses, first_ms
