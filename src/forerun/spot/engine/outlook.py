"""What is known about coming removals: the true process, or what the run has shown so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import comb


@dataclass(frozen=True, slots=True)
class KnownProcess:
    """The removal process is known: events at a constant rate, batches of known sizes, victims uniform.

    Parameters
    ----------
    events_per_s : rate of events that remove nodes, from the whole fleet.
    batch_share : from the number of nodes that vanish at one event to its probability.
    """

    events_per_s: float
    batch_share: Mapping[int, float]

    def hit_rate_per_s(self, *, active: int, alive: int, t_s: float, hits: float) -> float:
        """Event rate times the exact probability that a batch takes an active node."""
        spared = sum(
            share * spared_probability(alive - active, alive, n) for n, share in self.batch_share.items()
        )
        return self.events_per_s * (1.0 - spared)


@dataclass(frozen=True, slots=True)
class KnownHazard:
    """Each node vanishes on its own, at a known rate.

    Parameters
    ----------
    removal_per_node_s : the hazard of a node, a second.
    """

    removal_per_node_s: float

    def hit_rate_per_s(self, *, active: int, alive: int, t_s: float, hits: float) -> float:
        """The hazard of any of the active nodes."""
        return self.removal_per_node_s * active


@dataclass(frozen=True, slots=True)
class Observed:
    """The removal process is unknown: the rate is learned from the hits of this run.

    The estimate is the posterior mean of a Poisson rate under a gamma prior.

    Parameters
    ----------
    prior_hits : hits that the prior is worth (default: 1).
    prior_s : seconds in which it has seen them (default: an hour).
    """

    prior_hits: float = 1.0
    prior_s: float = 3600.0

    def hit_rate_per_s(self, *, active: int, alive: int, t_s: float, hits: float) -> float:
        """Posterior mean of the hit rate."""
        return (hits + self.prior_hits) / (t_s + self.prior_s)


@lru_cache(maxsize=65_536)
def spared_probability(outside: int, alive: int, batch: int) -> float:
    """Probability that all victims of one event lie outside the pipelines.

    Parameters
    ----------
    outside, alive : nodes in no pipeline, and all nodes.
    batch : victims, drawn uniformly without replacement; cut to `alive`.
    """
    batch = min(batch, alive)
    return comb(outside, batch) / comb(alive, batch) if batch else 1.0
