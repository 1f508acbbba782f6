"""Other orders of what happens at one instant: arrivals a hair earlier or later, and those of one instant apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from forerun.domain import Orders, Untied
from forerun.domains.serving.inputs import prepare
from forerun.domains.serving.scenario import Listed, Scenario
from forerun.domains.serving.simulate import simulate
from forerun.rng import stream
from forerun.scenario.spec import to_data

#: a hair, in ms: far below any service time, far above the rounding of instants up to a week
HAIR_MS = 1e-6


def orders(scenario: Scenario) -> Orders | Untied:
    """Arrivals before or after the completions of their instant, and one after the other instead of together."""
    if any(edge.recorded for edge in scenario.edges):
        return Untied("its edges are recorded beside the arrivals, so arrivals cannot be moved without them")
    what = "arrivals come before or after completions of their instant, and arrivals of one instant apart"
    return Orders(what, lambda number: simulate(permuted(scenario, number)))


def permuted(scenario: Scenario, number: int) -> Scenario:
    """The scenario with its ties broken in order `number`.

    Each arrival instant moves by a hair or not at all, so that it comes before or after the completions that fall on
    it. Arrivals of one instant, which would enter a queue together, follow each other in pieces: all apart in order 0,
    in drawn pieces in the others. An arrival that moves keeps its row, and with it what is drawn for it.
    """
    inputs = prepare(scenario)
    arrivals = inputs.arrivals_ms
    draws = stream(scenario.seed, "ties", number)
    first = np.concatenate([[True], np.diff(arrivals) > 0])
    group = np.cumsum(first) - 1
    shift = draws.integers(-1, 2, size=int(group[-1]) + 1)[group]
    apart = ~first & ((number == 0) | (draws.random(len(arrivals)) < 0.5))
    pieces = np.cumsum(apart)
    within = pieces - pieces[np.flatnonzero(first)][group]
    moved = np.sort(np.maximum(arrivals + HAIR_MS * (shift + within), 0.0))
    data: dict[str, Any] = to_data(scenario) | {"trace": to_data(Listed(arrivals_ms=tuple(moved.tolist())))}
    for stage in inputs.pipeline.stages:
        if stage.llm is not None:  # requests keep their tokens, wherever those came from
            pairs = np.stack([stage.llm.prompt, stage.llm.output], axis=1).tolist()
            data["configuration"][stage.name]["llm"]["tokens"] = {"pairs": pairs}
    # The intervals of a run are not asked for here.
    data["intervals"] = {"replications": 0}
    return _decoded(data)


def _decoded(data: dict[str, object]) -> Scenario:
    from forerun.scenarios import from_data

    found = from_data(data)
    assert isinstance(found, Scenario)
    return found
