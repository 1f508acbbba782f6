"""What is known about coming removals: the true process, or what the run has shown so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import comb


@dataclass(frozen=True, slots=True)
class KnownProcess:
    """The removal process is known: events at a constant rate, batches of known sizes, victims uniform.

    ``batch_share`` maps the number of nodes that vanish at one event to its probability.
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
    """Each node vanishes on its own, at a known rate."""

    removal_per_node_s: float

    def hit_rate_per_s(self, *, active: int, alive: int, t_s: float, hits: float) -> float:
        """The hazard of any of the active nodes."""
        return self.removal_per_node_s * active


@dataclass(frozen=True, slots=True)
class Observed:
    """The removal process is unknown: the rate is learned from the hits of this run.

    The estimate is the posterior mean of a Poisson rate under a gamma prior worth ``prior_hits`` hits in
    ``prior_s`` seconds; the default is one hit an hour, worth one hit.
    """

    prior_hits: float = 1.0
    prior_s: float = 3600.0

    def hit_rate_per_s(self, *, active: int, alive: int, t_s: float, hits: float) -> float:
        """Posterior mean of the hit rate."""
        return (hits + self.prior_hits) / (t_s + self.prior_s)


@lru_cache(maxsize=65_536)
def spared_probability(outside: int, alive: int, batch: int) -> float:
    """Probability that ``batch`` victims out of ``alive`` all lie among ``outside`` nodes; batches are cut to
    fit.
    """
    batch = min(batch, alive)
    return comb(outside, batch) / comb(alive, batch) if batch else 1.0
