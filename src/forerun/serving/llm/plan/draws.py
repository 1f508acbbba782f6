"""Worlds that a plan must hold in: the traffic that may come, with its tokens, and what iterations may really take.

World 0 is the scenario's own traffic at its costs as stated. The others have a fresh trace each, and a draw of all costs: of
the coefficients, as they go together, and of what figures are off beside that, which tightens or widens their limits.
Towards the knee figures are further off: a limit that is tightened is so as many times as its figure grows faster than
iterations (`growths`), as intervals are wider there. What widens one stays as it is, so runs at the limits as drawn say
which cells miss, and only cells that keep these need to be asked how near the knee they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from forerun.core.rng import stream
from forerun.serving.inputs.fresh import fresh
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.knee import DEVIATIONS, STEP, growth
from forerun.serving.llm.calibration.replay import possible
from forerun.serving.llm.inputs.model import Cost, LanguageModel
from forerun.serving.llm.scenario.language_model import FitRecord, Kind, Limit, Row
from forerun.serving.llm.summary.fitted import rerun
from forerun.serving.llm.summary.objectives import prefixes, token_objectives


def worlds(inputs: Inputs, numbers: Iterable[int]) -> Iterator[Inputs]:
    """The inputs in some worlds, one after the other.

    Parameters
    ----------
    inputs : of the scenario, or of a cell of its space: both get the same traffic, and equal costs the same draws.
    numbers : of the worlds; one number gives the same world in every plan.
    """
    seed = inputs.scenario.seed
    for number in numbers:
        if not number:
            yield inputs
            continue
        other = fresh(inputs, number)
        stages = (
            stage if stage.llm is None else replace(stage, llm=drawn(stage.llm, seed, number))
            for stage in other.pipeline.stages
        )
        yield replace(other, pipeline=replace(other.pipeline, stages=tuple(stages)))


def drawn(llm: LanguageModel, seed: int, number: int) -> LanguageModel:
    """A model with costs, and limits, as they may be in a world; as it is where nothing can be drawn.

    Parameters
    ----------
    seed : of the scenario.
    number : of the world.
    """
    pool, cost = llm.decode, llm.cost
    if pool is not None:
        llm = replace(llm, decode=replace(pool, llm=drawn(pool.llm, seed, number)))
    if cost.spread is None:
        return llm
    logs, off = _numbers(cost.terms, cost.spread, seed, number)
    values = np.array([*cost.terms, cost.request_ms, cost.hidden_prefill])
    # Launches take longer as iterations do; fits know nothing of them, and draws of other costs are of all together.
    launches = cost.launch_ms * math.exp(logs[0]), cost.launch_tokens
    other = Cost.of(np.array([*possible(values * np.exp(logs)), *launches]), cost.fit, cost.spread)
    limits = tuple(
        one._replace(limit_ms=one.limit_ms * math.exp(off[one.kind] * _beside(cost.fit, one)))
        for one in llm.limits
    )
    return replace(llm, cost=other, limits=limits)


def growths(inputs: Inputs) -> dict[str, float]:
    """By objective, how many times as fast as iterations what must be within it grows; empty where costs leave figures no
    error of their own. Runs the inputs three times.

    Parameters
    ----------
    inputs : the scenario's, or a cell's, on its own traffic and at its costs as stated: what intervals are of.
    """
    models = [stage.llm for stage in inputs.pipeline.stages if stage.llm is not None]
    if not any(llm.cost.spread and _beside(llm.cost.fit, one) for llm in models for one in llm.limits):
        return {}
    least_ms = []
    for factor in (1.0, 1 + STEP, 1 - STEP):
        sent, run = rerun(inputs, factor)
        every, share = token_objectives(sent.pipeline, run), inputs.scenario.attainment
        least_ms.append({one.key: one.least_ms(one.wanted or share) for one in every})
    value_ms, above_ms, below_ms = least_ms
    return {key: growth(own_ms, above_ms[key], below_ms[key]) for key, own_ms in value_ms.items()}


def grown(inputs: Inputs, stated: Inputs, factors: Mapping[str, float]) -> Inputs:
    """A world for a cell whose figures grow faster than iterations.

    Parameters
    ----------
    inputs : the cell's in the world.
    stated : the cell's in world 0.
    factors : see `growths`.
    """
    stages = list(inputs.pipeline.stages)
    for number, prefix in prefixes(inputs.pipeline).items():
        llm, own = stages[number].llm, stated.pipeline.stages[number].llm
        assert llm is not None and own is not None
        limits = (
            one._replace(limit_ms=tightened(one.limit_ms, of.limit_ms, factors.get(prefix + one.kind, 1.0)))
            for one, of in zip(llm.limits, own.limits)
        )
        stages[number] = replace(stages[number], llm=replace(llm, limits=tuple(limits)))
    return replace(inputs, pipeline=replace(inputs.pipeline, stages=tuple(stages)))


def tightened(drawn_ms: float, stated_ms: float, factor: float) -> float:
    """A limit as it is drawn, or tightened so many times as much; one that is widened stays so."""
    grows = factor > 1 and drawn_ms < stated_ms
    return stated_ms * (drawn_ms / stated_ms) ** factor if grows else drawn_ms


@functools.lru_cache(maxsize=4096)
def _numbers(
    terms: tuple[float, ...], spread: tuple[Row, ...], seed: int, number: int
) -> tuple[Floats, dict[Kind, float]]:
    """What is added to the logarithms of coefficients, and a standard normal number for each kind of figure.

    Costs that are written alike are one fit, whatever they stand for.
    """
    draws = stream(seed, "planning costs", repr((terms, spread)), number)
    logs = draws.normal(size=len(spread)) @ np.array(spread)
    ttft, tpot, itl, e2e = draws.normal(size=4).tolist()
    return logs, {"ttft": ttft, "tpot": tpot, "itl": itl, "e2e": e2e}


def _beside(fit: FitRecord | None, limit: Limit) -> float:
    """Standard deviation of what the logarithm of a limited figure is off by beside the error of iterations: of the
    percentile that a fit knows and that is nearest to the share that must keep the limit (99 % where it has none alone)."""
    if fit is None:
        return 0.0
    share = limit.wanted or 0.99
    nearest = min((50, 90, 99), key=lambda percent: abs(math.log((1.001 - share) / (1.001 - percent / 100))))
    own = fit.errors.get(f"{limit.kind}_p{nearest}_ms", fit.step_error)
    return math.sqrt(max(0.0, own**2 - fit.step_error**2)) / DEVIATIONS
