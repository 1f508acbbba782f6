"""Pruning exploration, then Thompson sampling [You, Chung, Chowdhury, NSDI 2023, section 4]."""

from __future__ import annotations

from forerun.core.scenario.numbers import NotNegative, Whole
from forerun.energy.policy import BatchSizePolicy, BatchSizeSpec, Setting
from forerun.energy.policy.sampler import ExploreThenSample, SamplerOptions


class PruningGts(BatchSizeSpec, frozen=True, kw_only=True, tag="pruning-gts"):
    """Walk twice over the batch sizes from the default, dropping those that fail; then sample the survivors.

    prior_mean, prior_precision: of an arm's reward [J], [1/J^2] (default 0, 0). window: number of latest rewards that count
    (default 0: all). concurrency: let a submission that runs beside others answer for the exploration (default no).
    """

    prior_mean: float = 0.0
    prior_precision: NotNegative = 0.0
    window: Whole = 0
    concurrency: bool = False

    def build(self, setting: Setting) -> BatchSizePolicy:
        """A policy at the start of its exploration. Raises DefaultMissing or DefaultNotInRange."""
        rules = setting.rules
        style = SamplerOptions(
            prior_mean=self.prior_mean,
            prior_precision=self.prior_precision,
            window=self.window,
            concurrency=self.concurrency or rules.best_by_mean,
            cheapest_beside_others=rules.best_by_mean,
            short_window=rules.window_pooled,
            pool_variance=rules.pooled_variance,
            censor=rules.censored_costs,
        )
        return ExploreThenSample(style, setting)
