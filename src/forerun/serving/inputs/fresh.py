"""Traffic that may come instead of a scenario's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from forerun.core.errors import UsageError
from forerun.core.rng import stream
from forerun.serving.inputs.clients import Clients
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import Floats, Ints
from forerun.serving.inputs.prepare import prepare
from forerun.serving.inputs.routing import as_drawn
from forerun.serving.scenario.sessions import RecordedSessions
from forerun.serving.scenario.traces import ClosedLoop, Listed, Replayed


def fresh(inputs: Inputs, number: int) -> Inputs:
    """The inputs on other traffic.

    The same process, clients or law of sessions on other streams, tokens and all; a recorded trace as a moving-block
    bootstrap of its requests, or of its sessions, with the gaps before them (circular, blocks of about the cube root of its
    length squared).

    Parameters
    ----------
    number : of the trace; one number gives the same trace in every plan.
    """
    scenario, draws = inputs.scenario, stream(inputs.scenario.seed, "planning trace", number)
    if isinstance(scenario.trace, Replayed | Listed):
        return _resampled(inputs, draws)
    return prepare(scenario, inputs.files, int(draws.integers(2**32)))


def check_fresh(inputs: Inputs, others: Iterable[Inputs]) -> None:
    """Raises UsageError where no traffic that may come instead (see `fresh`) is other traffic."""
    if all(np.array_equal(*pair) for other in others for pair in zip(_drawn(other), _drawn(inputs))):
        what = "the same is sent whatever the seed, so there are no fresh traces to plan for"
        raise UsageError.at("traces", what)


def _drawn(inputs: Inputs) -> list[Floats | Ints]:
    """What of the traffic a seed may change."""
    clients, models = inputs.clients, [stage.llm for stage in inputs.pipeline.stages if stage.llm]
    waits = [] if clients is None else [clients.pause_ms, clients.think_ms]
    return [inputs.arrivals_ms, *waits, *(one.prompt for one in models), *(one.output for one in models)]


def _resampled(inputs: Inputs, draws: np.random.Generator) -> Inputs:
    scenario, load = inputs.scenario, inputs.clients or Clients.single(inputs.arrivals_ms)
    order = np.argsort(load.begin_ms, kind="stable")
    chosen, at_ms = _blocks(load.begin_ms[order], draws)
    if scenario.sessions is not None and not isinstance(scenario.sessions, RecordedSessions):
        # Its rows are begins of sessions, which are drawn as those of any trace.
        trace, seed = Listed(arrivals_ms=tuple(at_ms.tolist())), int(draws.integers(2**32))
        return replace(prepare(scenario.with_(trace=trace), inputs.files, seed), scenario=scenario)
    rows, load = load.sessions_at(order[chosen], at_ms)
    pipeline, clients = as_drawn(inputs.pipeline, len(inputs.arrivals_ms)).rows(rows), inputs.clients and load
    return replace(inputs, pipeline=pipeline, arrivals_ms=load.planned_ms, clients=clients)


def _blocks(begin_ms: Floats, draws: np.random.Generator) -> tuple[Ints, Floats]:
    """Places among some instants, in ascending order, and the new instants of these."""
    n = len(begin_ms)
    block = max(1, round(n ** (2 / 3)))
    starts = draws.integers(0, n, size=-(-n // block))
    rows = ((starts[:, None] + np.arange(block)) % n).ravel()[:n]
    gaps_ms = np.diff(begin_ms, prepend=begin_ms[0])
    # The first has no gap before it; a block that wraps around takes the mean instead.
    gaps_ms[0] = gaps_ms[1:].mean() if n > 1 else 0.0
    drawn_ms = gaps_ms[rows]
    drawn_ms[0] = 0.0
    return rows, np.cumsum(drawn_ms)


def sped_up(inputs: Inputs, share: float) -> Inputs:
    """The inputs with the same requests at `share` times their rate; of a closed loop, of so many times its clients."""
    trace, clients = inputs.scenario.trace, inputs.clients
    if clients is not None and isinstance(trace, ClosedLoop):
        many = min(max(1, round(share * trace.clients)), clients.sessions)
        joins_ms = np.linspace(0, trace.ramp_up_s * 1e3, many, endpoint=False)
        return replace(inputs, clients=replace(clients, joins_ms=joins_ms))
    clients = clients and replace(clients, planned_ms=clients.planned_ms / share)
    return replace(inputs, arrivals_ms=inputs.arrivals_ms / share, clients=clients)
