"""Traces that could have come instead of the scenario's own, with the tokens of their requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from forerun.core.errors import UsageError
from forerun.core.rng import stream
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import Floats, Ints, Pipeline
from forerun.serving.inputs.prepare import prepare
from forerun.serving.scenario.traces import Generated


def fresh(inputs: Inputs, numbers: range) -> Iterator[Inputs]:
    """The inputs on other traffic, one after the other.

    The same process on other streams, tokens and all; a recorded trace as a moving-block bootstrap of its requests with the
    gaps before them (circular, blocks of about the cube root of its length squared).

    Parameters
    ----------
    inputs : of the scenario, or of a cell of its space: both get the same traffic.
    numbers : of the traces; one number gives the same trace in every plan.

    Raises UsageError where the seed changes nothing.
    """
    scenario = inputs.scenario
    for number in numbers:
        if isinstance(scenario.trace, Generated):
            seed = int(stream(scenario.seed, "planning trace", number).integers(2**32))
            other = prepare(inputs.scenario, inputs.files, seed)
            if np.array_equal(other.arrivals_ms, inputs.arrivals_ms):
                what = "the process gives the same arrivals whatever the seed, so there are no fresh traces to plan for"
                raise UsageError.at("traces", what)
            yield other
        else:
            yield _resampled(inputs, number)


def _resampled(inputs: Inputs, number: int) -> Inputs:
    arrivals_ms = inputs.arrivals_ms
    n = len(arrivals_ms)
    block = max(1, round(n ** (2 / 3)))
    starts = stream(inputs.scenario.seed, "planning trace", number).integers(0, n, size=-(-n // block))
    rows = ((starts[:, None] + np.arange(block)) % n).ravel()[:n]
    gaps_ms = np.diff(arrivals_ms, prepend=arrivals_ms[0])
    # The first query has no gap before it; a block that wraps around takes the mean instead.
    gaps_ms[0] = gaps_ms[1:].mean() if n > 1 else 0.0
    drawn_ms = gaps_ms[rows]
    drawn_ms[0] = 0.0
    return _with_rows(inputs, rows, np.cumsum(drawn_ms))


def _with_rows(inputs: Inputs, rows: Ints, arrivals_ms: Floats) -> Inputs:
    """The inputs with other queries: those of the rows, with tokens, prefixes and recorded edges."""
    stages = []
    for stage in inputs.pipeline.stages:
        edges = tuple(
            edge if edge.recorded is None else replace(edge, recorded=edge.recorded[rows])
            for edge in stage.edges
        )
        llm = stage.llm
        if llm is not None:
            shared = None if llm.shared is None else llm.shared.rows(rows)
            llm = replace(llm, prompt=llm.prompt[rows], output=llm.output[rows], shared=shared)
            if len(llm.keys):
                # A request that is drawn twice is guessed alike both times only by chance.
                keys = (llm.keys[rows] + np.arange(len(rows)) * 0x61C88647) % 2**32
                llm = replace(llm, keys=keys)
        stages.append(replace(stage, edges=edges, llm=llm))
    pipeline = Pipeline(tuple(stages), seed=inputs.pipeline.seed)
    return replace(inputs, pipeline=pipeline, arrivals_ms=arrivals_ms)
