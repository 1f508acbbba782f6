"""Plans that hold tomorrow: cheapest on all but a few of many fresh traces, then tried on traces never seen.

A plan made from one sample overfits it: it uses up the whole allowance of misses there, and breaks on the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from forerun.domains.serving.plan.exact import Found, Search
from forerun.domains.serving.plan.space import Configuration, Space, Traffic
from forerun.domains.serving.plan.stage_runs import StageRuns
from forerun.result.stats import proportion_interval


def traces_allowed_to_fail(confidence: float, traces: int) -> int:
    """floor((1 - confidence) * traces), in exact decimals: 0.9 of 10 traces leaves 1, which float arithmetic misses."""
    return math.floor((1 - Decimal(repr(confidence))) * traces)


def cheapest_on_most(space: Space, traffics: Sequence[Traffic], confidence: float) -> Found:
    """The cheapest configuration that keeps the objective on all but few of the traces.

    Among equals the one that fails on fewest, then the one with fewest misses. `misses` are in the order of the traces.

    Parameters
    ----------
    space : what can be chosen, and the misses that are allowed on each trace.
    traffics : the traces, all equally long.
    confidence : it may fail on floor((1 - confidence) * traces) of them.
    """
    search = Search(space, traffics, failing=traces_allowed_to_fail(confidence, len(traffics)))
    return search.cheapest()


@dataclass(frozen=True)
class Survival:
    """How a configuration does on fresh traces, and what that says about the next one.

    Parameters
    ----------
    met : traces on which it met the objective, of `traces` in all.
    low, high : confidence interval of the share of traces on which it keeps the objective.
    confidence : that the interval is right.
    """

    met: int
    traces: int
    low: float
    high: float
    confidence: float

    def __str__(self) -> str:
        span = f"{self.low:.0%} to {self.high:.0%}"
        return f"kept on {self.met} of {self.traces} fresh traces ({self.confidence:.0%} interval {span})"


def survival(
    space: Space, configuration: Configuration, fresh: Sequence[Traffic], *, confidence: float = 0.95
) -> Survival:
    """Try a configuration on traces that it was not made from, with Wilson's score interval.

    Parameters
    ----------
    space : the objective, and the misses that are allowed on each trace.
    configuration : what is tried.
    fresh : the traces, at least one.
    confidence : of the interval (default: 0.95).
    """
    met = sum(StageRuns(space, traffic).misses(configuration) is not None for traffic in fresh)
    interval = proportion_interval(met, len(fresh), confidence)
    return Survival(met, len(fresh), interval.low, interval.high, confidence)
