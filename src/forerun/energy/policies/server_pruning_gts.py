"""Pruning exploration and Thompson sampling as a service for many submitters [Zeus project, batch size server]."""

from __future__ import annotations

from forerun.core.scenario.numbers import Count, Whole
from forerun.energy.policy import BatchSizePolicy, BatchSizeSpec, Setting
from forerun.energy.policy.sampler import ExploreThenSample, SamplerOptions


class ServerPruningGts(BatchSizeSpec, frozen=True, kw_only=True, tag="server-pruning-gts"):
    """The published policy for submissions that overlap.

    While a result of the exploration is pending, other submissions get the cheapest size known; rewards that do not vary
    borrow the variance of the other sizes.

    rounds: walks over the sizes (default 2). window: number of latest rewards that count (default 0: all). explorations:
    pulls of each survivor before beliefs decide (default 2). early_stopping: stop attempts at the simulator's bound
    (default yes). prior_mean, prior_precision: of an arm's reward [J], [1/J^2] (default 0, 0).
    """

    rounds: Count = 2
    window: Whole = 0
    explorations: Whole = 2
    early_stopping: bool = True
    prior_mean: float = 0.0
    prior_precision: float = 0.0

    def build(self, setting: Setting) -> BatchSizePolicy:
        """A policy at the start of its exploration. Raises DefaultMissing or DefaultNotInRange."""
        style = SamplerOptions(
            prior_mean=self.prior_mean,
            prior_precision=self.prior_precision,
            window=self.window,
            rounds=self.rounds,
            explorations=self.explorations,
            concurrency=True,
            cheapest_beside_others=True,
            short_window=True,
            pool_variance=True,
            censor=setting.rules.censored_costs,
            bound_j=None if self.early_stopping else float("inf"),
        )
        return ExploreThenSample(style, setting)
