"""Thompson sampling over all batch sizes, without exploration [You, Chung, Chowdhury, NSDI 2023, section 4.3]."""

from __future__ import annotations

import math
from collections import defaultdict

from forerun.core.errors import PolicyError, Problem
from forerun.energy.policy import BatchSizePolicy, BatchSizeSpec, Setting
from forerun.energy.policy.bandit import GaussianThompson, pooled_log_variance, precision_of
from forerun.energy.policy.view import AttemptOutcome, View


class Gts(BatchSizeSpec, frozen=True, kw_only=True, tag="gts"):
    """One bandit over all batch sizes; whether an attempt reached its target is ignored.

    reward_precision: of every arm [1/J^2] (default 0: estimated from each arm's rewards; in compat mode 0 is meant, and
    nothing is ever learned). learn_precision: estimate it there, too, and in place of a `reward_precision` (default no).
    prior_mean: mean reward before any is seen [J] (default 0). prior_precision: [1/J^2] (default 0). explorations: pulls
    of each arm before beliefs decide (default 1).
    """

    learn_precision: bool = False
    reward_precision: float = 0.0
    prior_mean: float = 0.0
    prior_precision: float = 0.0
    explorations: int = 1

    def build(self, setting: Setting) -> BatchSizePolicy:
        """A policy without beliefs."""
        return GtsPolicy(self, setting)


class GtsPolicy:
    """`history` lists (batch size, reward) of every observation, in order."""

    def __init__(self, spec: Gts, setting: Setting) -> None:
        self._spec = spec
        self.exploring = True
        self.bound_j: float | None = None
        self._pool = setting.rules.pooled_variance
        self._known_bugs = setting.known_bugs
        self._known_bugs["B23"] += not (spec.learn_precision or spec.reward_precision)
        self._learns = spec.learn_precision or (setting.rules.precision_learned and not spec.reward_precision)
        self.history: list[tuple[int, float]] = []
        self._rewards: dict[int, list[float]] = defaultdict(list)
        self.bandit = GaussianThompson(
            setting.sizes,
            setting.rng,
            reward_precision=spec.reward_precision,
            prior_mean=spec.prior_mean,
            prior_precision=spec.prior_precision,
            explorations=spec.explorations,
        )

    def choose(self, view: View) -> int:
        """The bandit's draw."""
        size = self.bandit.choose()
        self.exploring = self.bandit.observations[size] < self._spec.explorations
        return size

    def learn(self, outcome: AttemptOutcome) -> None:
        """One reward more. Raises PolicyError for a size that is no arm."""
        size, reward = outcome.batch_size, -outcome.observed_j
        if size not in self.bandit.mean:
            arms = ", ".join(map(str, self.bandit.arms))
            raise PolicyError(Problem(f"batch size {size}", f"is no arm of gts; arms: {arms}"))
        self.history.append((size, reward))
        if not self._learns:
            self.bandit.fit(size, [reward], reset=False)
            return
        self._rewards[size].append(reward)
        self.bandit.reward_precision[size] = self._precision(size)
        self.bandit.fit(size, self._rewards[size], reset=True)

    def beliefs(self) -> list[tuple[int, float, float, int]]:
        """Batch size, mean cost [J], its standard deviation [J] and observations of each arm."""
        return self.bandit.beliefs()

    def _precision(self, size: int) -> float:
        """Precision of a size's rewards; with pooled variance, finite even if they do not vary."""
        precision = precision_of(self._rewards[size])
        self._known_bugs["B22"] += math.isinf(precision)
        if not (self._pool and math.isinf(precision)):
            return precision
        rewards = self._rewards[size]
        mean = sum(rewards) / len(rewards)
        costs = ([-reward for reward in arm if reward < 0] for arm in self._rewards.values())
        return 1 / (mean * mean * pooled_log_variance(costs)) if mean else precision
