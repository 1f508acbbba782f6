"""How sure a plan is: what it costs to be surer or less sure, how it does in further worlds, and what would settle it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from forerun.core.errors import Problem, ScenarioError
from forerun.core.result.stats import Interval, proportion_interval
from forerun.serving.inputs.fresh import check_fresh
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.prepare import prepare
from forerun.serving.llm.inputs.model import LanguageModel
from forerun.serving.llm.plan.draws import grown, worlds
from forerun.serving.llm.plan.runs import whole
from forerun.serving.llm.plan.search import Search, VisitedCell, World
from forerun.serving.llm.plan.space import Cell, Space
from forerun.serving.llm.scenario.language_model import Row
from forerun.serving.scenario.limits import may_miss

#: worlds of a first answer; so many times more while a plan turns out to hold in fewer than was asked for, up to a limit
WORLDS: Final = 32
MORE: Final = 4
MOST_WORLDS: Final = 512
#: further worlds that a plan is tried in: so many, and as many again while the share is not clearly above or below what was
#: asked for
FRESH: Final = 60
MOST_FRESH: Final = 240
#: shares of the worlds that a plan is also made for
CONFIDENCES: Final = (0.5, 0.9, 0.99)
#: runs that may be made for the plan of a lower confidence
MOST_RUNS: Final = 4096
#: a measurement settles costs if its mean time between tokens is so many times less uncertain than they make it
FINER: Final = 3
LEAST_MINUTES: Final = 5


def worlds_of(space: Space, inputs: Inputs, numbers: range) -> list[World]:
    """Worlds of a space, each with its costs and traffic. Raises ScenarioError where costs cannot be drawn, and UsageError
    where they are exact, and traffic is the same in all worlds."""
    problems, exact = [], True
    for stage in space.stages:
        spreads = {variant: _spreads(model) for variant, model in stage.models.items()}
        unknown = dict.fromkeys(variant.hardware for variant, known in spreads.items() if None in known)
        exact &= not any(np.any(spread or 0) for known in spreads.values() for spread in known)
        if unknown:
            what = (
                f"how unsure the costs of {', '.join(unknown)} are is not known, so no plan holds with a confidence: fit "
                "them (`forerun fit` writes it), or say `unsure: 0.05` in cost (0: they are exact)"
            )
            problems.append(Problem(f"$.configuration.{stage.name}.llm", what))
    if problems:
        raise ScenarioError(*problems)
    drawn = list(worlds(inputs, numbers))
    if exact:
        check_fresh(inputs, drawn)
    return [World(number, space.drawn(number), other) for number, other in zip(numbers, drawn)]


def _spreads(model: LanguageModel) -> list[tuple[Row, ...] | None]:
    """What draws add to the costs of a model, and of the pool behind it."""
    return [model.cost.spread] if model.decode is None else [model.cost.spread, model.decode.llm.cost.spread]


class Tried(NamedTuple):
    """How a plan does in worlds that it was not made for.

    Parameters
    ----------
    worlds : how many.
    kept : in how many of them it keeps the objectives.
    share : the interval of the share of all worlds.
    """

    worlds: int
    kept: int
    share: Interval


def tried_in(search: Search, best: VisitedCell, behind: int, asked: float) -> Tried:
    """Try a plan in further worlds: more of them while the interval contains what was asked for.

    Parameters
    ----------
    behind : the number of the last world that is known.
    asked : the share of the worlds that it should keep the objectives in.
    """
    inputs, factors = search.inputs, best.growths or {}
    planned = prepare(search.space.placed(best.cell), inputs.files, inputs.pipeline.seed)
    kept, tried = 0, 0
    while True:
        for world in worlds(planned, range(behind + tried + 1, behind + tried + FRESH + 1)):
            kept += whole(grown(world, planned, factors)).met
        tried += FRESH
        share = proportion_interval(kept, tried)
        if tried >= MOST_FRESH or not share.low <= asked <= share.high:
            return Tried(tried, kept, share)


class Step(NamedTuple):
    """What a confidence costs.

    Parameters
    ----------
    tried : a cell that keeps the objectives in so many worlds (None: none does).
    cheapest : none that is cheaper does; else one may.
    """

    tried: VisitedCell | None
    cheapest: bool


#: by share of the worlds, lowest first
Ladder: TypeAlias = Mapping[float, Step]


def ladder(search: Search, best: VisitedCell, confidence: float) -> Ladder:
    """Plans at some confidences, the one that was asked for among them.

    At a lower one every cheaper cell must be run in many more worlds; where that is too much (`MOST_RUNS`), those are passed
    over that one world speaks against.
    """
    steps, cheaper = {}, [one for one in search.tried if one.key < best.key]
    for share in sorted({*CONFIDENCES, confidence}):
        other = search.allowing(may_miss(share, len(search.worlds)))
        # Whatever is cheaper than the plan misses in too many worlds for a higher confidence, too.
        left = 0 if other.failing <= search.failing else sum(not other.excluded(one) for one in cheaper)
        exact = left * len(search.worlds) <= MOST_RUNS
        found = best if other.failing == search.failing else other.cheapest(quick=not exact)
        steps[share] = Step(found, exact)
    return steps


@dataclass(frozen=True)
class Measurement:
    """A load whose measurement would say whether a cheaper cell does.

    Parameters
    ----------
    cell : the cheaper one.
    holds : share of the draws of its costs in which it keeps the objectives on the scenario's own traffic.
    saving_usd_per_h : expected, if its costs were known.
    rates_rps : by stage, requests of this traffic to send to one replica.
    minutes : for how long.
    """

    cell: Cell
    holds: float
    saving_usd_per_h: float
    rates_rps: dict[str, float]
    minutes: float


def settling(search: Search, best: VisitedCell, steps: Ladder) -> Measurement | None:
    """The one measurement that is worth most: of the cheaper plans of lower confidence, that whose costs, once known, save
    most in expectation; None where costs do not decide whether one of them does.

    Parameters
    ----------
    best : the plan.
    steps : plans at other confidences.
    """
    space, cost = search.space, search.space.cost(best.cell)
    others = {one.tried.cell: one.tried for one in steps.values() if one.tried is not None}
    saved = {cell: float(cost - space.cost(cell)) for cell in others}
    found = [_measured(search, one, saved[cell]) for cell, one in others.items() if saved[cell] > 0]
    settles = [one for one in found if 0 < one.holds < 1]
    return max(settles, key=lambda one: one.saving_usd_per_h, default=None)


def _measured(search: Search, cheaper: VisitedCell, saved_usd_per_h: float) -> Measurement:
    """What measuring a cell's costs is worth.

    Parameters
    ----------
    cheaper : the cell.
    saved_usd_per_h : what it costs less than the plan.
    """
    space, cell, inputs = search.space, cheaper.cell, search.inputs
    drawn = [whole(search.placed(cheaper, world, inputs)) for world in search.worlds]
    holds = sum(figures.met for figures in drawn) / len(drawn)
    own = whole(space.inputs(cell, inputs))
    rates_rps = {
        stage.name: own.came_rps[stage.name] / choice.replicas for stage, choice in zip(space.stages, cell)
    }
    of_draws = float(np.std(np.log([figures.tpot_p99_ms for figures in drawn])))
    requests = (FINER * own.tpot_spread / of_draws) ** 2 if of_draws > 0 else math.nan
    minutes = max(LEAST_MINUTES, requests / min(rates_rps.values()) / 60)
    return Measurement(cell, holds, holds * saved_usd_per_h, rates_rps, minutes)
