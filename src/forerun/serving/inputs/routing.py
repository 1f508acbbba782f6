"""Which edges each query takes: a function of (seed, edge, query), never of the state of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from forerun.serving.inputs.pipeline import SOURCE, Bools, Pipeline

Words = NDArray[np.uint64]

_MASK = 2**64 - 1


def mix(x: int) -> int:
    """The SplitMix64 finaliser on one integer, mod 2^64."""
    return int(_mixed(np.array([x & _MASK], dtype=np.uint64))[0])


def edge_key(seed: int, number: int) -> int:
    """The key of a drawn edge: its query `id` draws mix(key + id).

    Parameters
    ----------
    seed : of the run.
    number : of the edge in the scenario's list of edges.
    """
    return mix(mix(seed) + number)


def draws(seed: int, number: int, queries: int) -> NDArray[np.float64]:
    """float64[queries] in [0, 1): what each query draws at an edge, a multiple of 2^-53.

    Parameters
    ----------
    seed : of the run.
    number : of the edge in the scenario's list of edges.
    queries : how many the run has; the first of more draw the same.
    """
    ids = np.arange(queries, dtype=np.uint64)
    words = _mixed(ids + np.uint64(edge_key(seed, number))) >> np.uint64(11)
    return words.astype(np.float64) * 2.0**-53


def taken_edges(pipeline: Pipeline, queries: int) -> list[Bools]:
    """Per edge of the pipeline bool[queries]: the query visits the edge's parent and takes the edge.

    What a stage's language model refuses goes no further from there.

    Parameters
    ----------
    pipeline : with its edges in order, stage by stage; its seed fixes the drawn ones.
    queries : how many the run has; recorded columns may be longer.
    """
    taken: list[Bools] = []
    visited: list[Bools] = []
    everyone = np.ones(queries, dtype=np.bool_)
    for stage in pipeline.stages:
        here = np.zeros(queries, dtype=np.bool_)
        for edge in stage.edges:
            at_parent = everyone if edge.parent == SOURCE else visited[edge.parent]
            if edge.recorded is not None:
                takes = at_parent & edge.recorded[:queries]
            elif edge.share is not None:
                takes = at_parent & (draws(pipeline.seed, edge.number, queries) < edge.share)
            else:
                takes = at_parent
            taken.append(takes)
            here = here | takes
        visited.append(here if stage.llm is None else here & ~stage.llm.refused[:queries])
    return taken


def as_drawn(pipeline: Pipeline, queries: int) -> Pipeline:
    """The pipeline with what its queries draw at edges written out, which no longer goes with their numbers.

    Parameters
    ----------
    queries : how many the run has.
    """
    columns = iter(taken_edges(pipeline, queries))
    stages = []
    for stage in pipeline.stages:
        edges = [
            edge if edge.share is None else replace(edge, share=None, recorded=column)
            for edge, column in zip(stage.edges, columns)
        ]
        stages.append(replace(stage, edges=tuple(edges)))
    return replace(pipeline, stages=tuple(stages))


def incoming_edges(pipeline: Pipeline, queries: int) -> list[list[tuple[int, Bools]]]:
    """Per stage its edges: (parent, bool[queries]: who takes it).

    Parameters
    ----------
    pipeline, queries : as for `taken_edges`.
    """
    columns = iter(taken_edges(pipeline, queries))
    return [[(edge.parent, next(columns)) for edge in stage.edges] for stage in pipeline.stages]


def visited_stages(pipeline: Pipeline, queries: int) -> list[Bools]:
    """Per stage bool[queries]: the query comes by.

    Parameters
    ----------
    pipeline, queries : as for `taken_edges`.
    """
    return [
        np.logical_or.reduce([takes for _, takes in incoming])
        for incoming in incoming_edges(pipeline, queries)
    ]


def refused_queries(pipeline: Pipeline, queries: int) -> Bools:
    """bool[queries]: the query comes by a stage whose language model refuses it."""
    refused = np.zeros(queries, dtype=np.bool_)
    for stage, came in zip(pipeline.stages, visited_stages(pipeline, queries)):
        if stage.llm is not None:
            refused |= came & stage.llm.refused[:queries]
    return refused


def _mixed(words: Words) -> Words:
    z = words + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
