"""Simulating what other numbers of replicas would have done: the planner's search over replicas alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.serving.inputs.pipeline import Floats
from forerun.serving.plan.exact import cheapest
from forerun.serving.plan.space import Choice, Configuration, Offer, Space, Traffic
from forerun.serving.plan.stage_runs import StageRuns
from forerun.serving.policy.handover import Handover


@dataclass(frozen=True)
class Scene:
    """Arrivals at the pipeline as planned, its numbers of replicas open. Batching is greedy, service the mean.

    Parameters
    ----------
    space : one hardware and one batch size a stage, so that replicas are all that is left to choose.
    """

    space: Space

    def faster(self, rate_rps: float) -> Scene:
        """Arrivals made for one a second, played faster.

        Parameters
        ----------
        rate_rps : queries a second that they come at then.
        """
        return Scene(self.space.under(traffic=self.space.traffic.scaled(1 / max(rate_rps, 1e-6))))

    def configuration(self, replicas: tuple[int, ...]) -> Configuration:
        """The planned choices with these replicas."""
        return tuple(
            Choice(offers[0].hardware, offers[0].batches[0], count)
            for offers, count in zip(self.space.offers, replicas)
        )

    def cost(self, replicas: tuple[int, ...]) -> float:
        """$ per hour."""
        return self.space.cost(self.configuration(replicas))


def evened(arrivals_ms: Floats, edges_ms: NDArray[np.floating[Any]]) -> Floats:
    """The arrivals between the first and the last edge, with each span between two edges stretched so that it
    contains one arrival a second: bursts within spans stay, what moves from span to span goes.

    Parameters
    ----------
    arrivals_ms : float64[n], ascending; those at the first edge and before are left out.
    edges_ms : float64[spans + 1], ascending.
    """
    inside = arrivals_ms[(arrivals_ms > edges_ms[0]) & (arrivals_ms <= edges_ms[-1])]
    counts = np.diff(np.searchsorted(inside, edges_ms, side="right"))
    begins = np.concatenate([[0.0], np.cumsum(counts) * 1e3])
    stretched: Floats = np.interp(inside, edges_ms, begins)
    return stretched


def scene_of(handover: Handover, arrivals_ms: Floats, rng: np.random.Generator, most_replicas: int) -> Scene:
    """The pipeline that was handed over, on some arrivals; who takes conditional edges is drawn by the planned shares.

    Parameters
    ----------
    handover : stages, prices, objective and shares, as planned.
    arrivals_ms : float64[n], ascending; as many may miss as the attainment allows of so many.
    rng : draws who takes conditional edges.
    most_replicas : of one stage.
    """
    stages = handover.pipeline.stages
    offers = tuple(
        (
            Offer(
                stage.name,
                price,
                (stage.max_batch,),
                stage.service.table_ms,
                {stage.max_batch: mu},
                {stage.max_batch: float(stage.service.table_ms[stage.max_batch])},
            ),
        )
        for stage, price, mu in zip(stages, handover.prices_usd_per_h, handover.mu_rps)
    )
    misses = math.floor((1 - Decimal(repr(handover.attainment))) * len(arrivals_ms))
    space = Space(
        handover.pipeline.names,
        tuple(tuple(edge.parent for edge in stage.edges) for stage in stages),
        offers,
        Traffic(arrivals_ms, _taken(handover, len(arrivals_ms), rng)),
        handover.slo_ms,
        misses,
        most_replicas,
    )
    return Scene(space)


def keeps(scene: Scene, replicas: tuple[int, ...]) -> bool:
    """Whether these replicas would have met the objective.

    Parameters
    ----------
    scene : the arrivals and the pipeline.
    replicas : by stage.
    """
    return StageRuns(scene.space, scene.space.traffic).misses(scene.configuration(replicas)) is not None


def cheapest_replicas(scene: Scene) -> tuple[int, ...] | None:
    """The cheapest numbers of replicas that would have met the objective; None if none would."""
    configuration = cheapest(scene.space).configuration
    return None if configuration is None else tuple(choice.replicas for choice in configuration)


def _taken(handover: Handover, queries: int, rng: np.random.Generator) -> tuple[np.ndarray | None, ...]:
    edges = handover.pipeline.edges
    if all(edge.always for edge in edges):
        return (None,) * len(edges)
    certain = tuple(
        replace(edge, share=None, recorded=None if edge.always else rng.random(queries) < share)
        for edge, share in zip(edges, handover.edge_share)
    )
    stages, at = [], 0
    for stage in handover.pipeline.stages:
        stages.append(replace(stage, edges=certain[at : at + len(stage.edges)]))
        at += len(stage.edges)
    from forerun.serving.inputs.routing import taken_edges

    return tuple(taken_edges(replace(handover.pipeline, stages=tuple(stages)), queries))
