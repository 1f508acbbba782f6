"""How near the variants of a comparison are to the best possible, which lies between a bound and what is reached.

A bound depends on jobs and machines, not on the policy: variants that share them share one. Where jobs are random there is
one for each seed, and the means over the seeds are compared. What a variant reaches is reached, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun.core.domain import find_domain
from forerun.core.errors import InputError, UsageError
from forerun.core.result.bound import Bounded, Bounder, Bracket
from forerun.core.scenario.spec import AnyScenario
from forerun.core.study.compared import Best, Comparison, Standing
from forerun.core.study.expand import Cell, StudyPlan


def bounder_of(domain: str, figure: str = "") -> Bounder[Any]:
    """What bounds a summary figure of a domain (default: any).

    Raises UsageError if nothing does, naming what is bounded.
    """
    known = find_domain(domain)
    bounder = known.bounder if known is not None else None
    if bounder is None:
        raise UsageError.at("--bound", f"no bounds are known in the {domain} domain")
    if figure and figure not in bounder.figures:
        what = (
            f"no bound of {figure} is known; known: {', '.join(bounder.figures)}; choose one by --objective"
        )
        raise UsageError.at("--bound", what)
    return bounder


def with_best(comparison: Comparison, progress: Callable[[str], None] = lambda _: None) -> Comparison:
    """The comparison with the best possible beside each variant, as far as it is known.

    Parameters
    ----------
    comparison : as `compare` makes it.
    progress : called with a message at each bound.

    Raises
    ------
    UsageError
        The objective has no bound.
    """
    figure = comparison.objective.key
    bounder = bounder_of(comparison.domain, figure)
    search = _Search(comparison, bounder, bounder.figures[figure], progress)
    return replace(comparison, standings=tuple(map(search.beside, comparison.standings)))


class _Search:
    """Brackets by what they depend on, and the best that variants reach of each."""

    def __init__(
        self, comparison: Comparison, bounder: Bounder[Any], bounded: Bounded, progress: Callable[[str], None]
    ) -> None:
        self.comparison, self.bounder, self.bounded, self.progress = comparison, bounder, bounded, progress
        self.higher = comparison.objective.better == "higher"
        self.seeds = range(first := int(comparison.scenario["seed"]), first + comparison.seeds)
        self.brackets: dict[Hashable, Bracket] = {}
        self.reached: dict[Hashable, float | None] = {}
        self.keys: dict[str, list[Hashable]] = {}
        self.why_not: dict[str, str] = {}
        for standing in comparison.standings:
            self._bound(standing)

    def beside(self, standing: Standing) -> Standing:
        """A standing with the best possible of its scenario."""
        name = standing.variant.name
        if name in self.why_not:
            return replace(standing, best=Best(why_not=self.why_not[name]))
        keys = self.keys[name]
        bound = float(np.mean([self._in_figure(key, self.brackets[key].bound) for key in keys]))
        known = [self.reached[key] for key in keys]
        reached = None if None in known else float(np.mean([one for one in known if one is not None]))
        first = self.brackets[keys[0]]
        return replace(
            standing,
            best=Best(reached, bound, *self._shares(standing.value, reached, bound), first.gpus, first.jobs),
        )

    def _bound(self, standing: Standing) -> None:
        """Search for the bounds of one variant, and keep what it reaches."""
        name = standing.variant.name
        try:
            keys = []
            for seed in self.seeds:
                scenario = self._scenario(standing, seed)
                key = self.bounder.key(scenario)
                keys.append(key)
                if key not in self.brackets:
                    *_, self.brackets[key] = self.bounder.search(scenario, self.bounded.objective)
                    self.reached[key] = self._in_figure(key, self.brackets[key].reached)
                    self.progress(f"bounding {name}: {len(keys)} of {len(self.seeds)} seeds")
        except InputError as error:
            self.why_not[name] = str(error).splitlines()[0]
            return
        self.keys[name] = keys
        if why := self.bounder.not_about(self.comparison.objective.key, standing.figures):
            self.why_not[name] = why
            return
        ends = zip(keys, standing.draws)
        beyond = [
            value for key, value in ends if self._ahead(value, self._in_figure(key, self.brackets[key].bound))
        ]
        if beyond:
            self.why_not[name] = "it is beyond the bound: its simulation does more than its throughput says"
            return
        for key, value in zip(keys, standing.draws):
            reached = self.reached[key]
            if reached is None or self._ahead(value, reached):
                self.reached[key] = value

    def _scenario(self, standing: Standing, seed: int) -> AnyScenario:
        plan = StudyPlan("compare", dict(self.comparison.scenario), Path.cwd(), (), (seed,), ())
        scenario: AnyScenario = plan.scenario(Cell(0, standing.variant.overrides, seed))
        return scenario

    def _ahead(self, one: float, other: float | None) -> bool:
        """Whether a value is better than another by more than rounding."""
        if other is None:
            return True
        gap = one - other if self.higher else other - one
        return gap > 1e-9 * max(abs(one), abs(other))

    def _in_figure(self, key: Hashable, value: float | None) -> float | None:
        """A value of a bracket as the summary counts it."""
        if value is None or not self.bounded.share:
            return value
        return value / max(1, self.brackets[key].of)

    def _shares(self, value: float, reached: float | None, bound: float) -> tuple[float | None, float | None]:
        """The least and the most share of the best possible that a value is; None where that is not known."""
        pairs = [(value, end) if self.higher else (end, value) for end in (bound, reached) if end is not None]
        shares = [one / other for one, other in pairs if other > 0]
        least = min(shares, default=None)
        return least, max(shares, default=None) if reached is not None else 1.0 if shares else None


def shared(comparison: Comparison) -> Best | None:
    """The best possible, where it is known and the same for all variants that have one."""
    known = [one.best for one in comparison.standings if one.best is not None and not one.best.why_not]
    ends = {(one.reached, one.bound, one.gpus, one.jobs) for one in known}
    return known[0] if len(ends) == 1 else None


def notes(comparison: Comparison) -> Mapping[str, tuple[str, ...]]:
    """Why variants have no best possible beside them, each reason with their names."""
    reasons: dict[str, list[str]] = {}
    for one in comparison.standings:
        if one.best is not None and one.best.why_not:
            reasons.setdefault(one.best.why_not, []).append(one.variant.name)
    return {why: tuple(names) for why, names in reasons.items()}
