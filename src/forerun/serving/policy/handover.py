"""What a tuner is given when a run begins: the pipeline as planned, and the traffic that it was planned for."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from forerun.serving.inputs.pipeline import SOURCE, Floats, Pipeline
from forerun.serving.policy.envelope import doubling_windows_ms, envelope, mean_rate_rps


@dataclass(frozen=True)
class Handover:
    """The pipeline as planned; by stage, in topological order, unless said otherwise.

    Parameters
    ----------
    pipeline : stages, edges, planned batches and replicas, service times.
    prices_usd_per_h : of a replica.
    mu_rps : queries a second that one replica carries in batches of the planned size.
    share : of all queries, those that come by.
    edge_share : by edge, of the queries at its parent, those that take it.
    sample_ms : arrivals that the plan was made for, from 0 on, empty if none are known.
    slo_ms : latency above which a query misses.
    attainment : the share of queries that must not miss.
    """

    pipeline: Pipeline
    prices_usd_per_h: tuple[float, ...]
    mu_rps: tuple[float, ...]
    share: tuple[float, ...]
    edge_share: tuple[float, ...]
    sample_ms: Floats = field(repr=False)
    slo_ms: float
    attainment: float

    @property
    def replicas(self) -> tuple[int, ...]:
        """As planned."""
        return tuple(stage.replicas for stage in self.pipeline.stages)

    @property
    def sample_rps(self) -> float:
        """Arrivals a second in the sample."""
        return mean_rate_rps(self.sample_ms)

    @property
    def rho(self) -> tuple[float, ...]:
        """The planned load: what comes in the sample over what the planned replicas carry."""
        rate = self.sample_rps
        return tuple(rate * share / (mu * k) for share, mu, k in zip(self.share, self.mu_rps, self.replicas))

    @functools.cached_property
    def longest_service_ms(self) -> float:
        """The longest path through the pipeline, every batch as large as planned."""
        ends: list[float] = []
        for stage in self.pipeline.stages:
            before = max(0.0 if edge.parent == SOURCE else ends[edge.parent] for edge in stage.edges)
            ends.append(before + float(stage.service.table_ms[stage.max_batch]))
        return max(ends)

    @property
    def windows_ms(self) -> tuple[float, ...]:
        """The window lengths of envelopes: the longest path of service, doubled up to a minute."""
        return doubling_windows_ms(self.longest_service_ms)

    @functools.cached_property
    def sample_envelope(self) -> np.ndarray:
        """int64[windows]: the sample's."""
        return envelope(self.sample_ms, self.windows_ms)
