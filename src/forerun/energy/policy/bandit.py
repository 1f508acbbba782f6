"""Thompson sampling with Gaussian beliefs, one arm a batch size.

Belief of an arm: its mean reward is normal with mean `mean` and precision `precision`. After N rewards of known
precision rho the posterior precision is k + N rho and the mean (k m + rho * sum) / (k + N rho). The bandit maximises
reward; costs enter with a minus sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from forerun.energy.policy.curve import hazard


class GaussianThompson:
    """Beliefs over arms. A choice draws one permutation of the arms, then one normal an arm, in arm order.

    arms: their names. rng: of the draws. reward_precision: of each arm's rewards (default 0). prior_mean, prior_precision:
    belief before any reward (default 0, 0). explorations: how often each arm must be tried before beliefs decide
    (default 1).
    """

    def __init__(
        self,
        arms: Sequence[int],
        rng: np.random.Generator,
        *,
        reward_precision: float = 0.0,
        prior_mean: float = 0.0,
        prior_precision: float = 0.0,
        explorations: int = 1,
    ) -> None:
        self.arms = list(arms)
        self._rng = rng
        self._prior = (prior_mean, prior_precision)
        self._explorations = explorations
        self.mean = dict.fromkeys(self.arms, prior_mean)
        self.precision = dict.fromkeys(self.arms, prior_precision)
        self.reward_precision = dict.fromkeys(self.arms, reward_precision)
        self.observations = dict.fromkeys(self.arms, 0)

    def fit(self, arm: int, rewards: Sequence[float], *, reset: bool) -> None:
        """Update one arm with rewards of its known precision.

        rewards: minus costs. reset: whether to start from the prior, instead of from the present belief.
        """
        if reset:
            self.mean[arm], self.precision[arm] = self._prior
            self.observations[arm] = 0
        if not rewards:
            return
        total, rho = float(np.sum(rewards)), self.reward_precision[arm]
        if math.isinf(rho):
            self.precision[arm] = math.inf
            self.mean[arm] = total / len(rewards)
        else:
            before = self.precision[arm]
            precision = before + len(rewards) * rho
            weighted = before * self.mean[arm] + rho * total
            self.mean[arm] = weighted / precision if precision else math.nan
            self.precision[arm] = precision
        self.observations[arm] += len(rewards)

    def choose(self) -> int:
        """The arm to pull: one not tried often enough yet, in random order, else the largest sample."""
        order = self._rng.choice(self.arms, len(self.arms), replace=False)
        for arm in order.tolist():
            if self.observations[arm] < self._explorations:
                return int(arm)
        sd = [
            math.inf if self.precision[arm] == 0 else math.sqrt(1 / self.precision[arm]) for arm in self.arms
        ]
        samples = self._rng.normal([self.mean[arm] for arm in self.arms], sd)
        return self.arms[int(np.argmax(samples))]

    def beliefs(self) -> list[tuple[int, float, float, int]]:
        """Arm, mean cost, its standard deviation (nan before anything is known) and observations."""
        rows = []
        for arm in self.arms:
            precision = self.precision[arm]
            sd = math.sqrt(1 / precision) if precision else math.nan
            rows.append((arm, -self.mean[arm], sd, self.observations[arm]))
        return rows


def precision_of(rewards: Sequence[float]) -> float:
    """One over the population variance; infinite where the rewards do not vary."""
    variance = float(np.var(rewards))
    return math.inf if variance == 0 else 1 / variance


#: what the spread of log cost is taken to be before anything is known, worth one observation
PRIOR_LOG_SD = 0.05


def pooled_log_variance(groups: Iterable[Sequence[float]]) -> float:
    """Variance of log cost within arms, pooled over arms [-].

    `groups` are the positive costs of each arm. One observation's worth of `PRIOR_LOG_SD` keeps it above zero where
    no arm has varied yet.
    """
    squares, freedom = PRIOR_LOG_SD**2, 1
    for costs in groups:
        if len(costs) > 1:
            logs = np.log(costs)
            squares += float(((logs - logs.mean()) ** 2).sum())
            freedom += len(costs) - 1
    return squares / freedom


def uncensored(costs: Sequence[float], stopped: Sequence[bool], log_variance: float) -> list[float]:
    """Costs with the stopped ones, which are lower limits, replaced by what they would have been on average.

    Log cost is normal with known variance; a stopped attempt at c becomes exp(E[log X | X > c]), with the mean
    estimated jointly by the usual expectation step, repeated until it settles.
    """
    if not any(stopped):
        return list(costs)
    sd = math.sqrt(log_variance)
    limits = np.log(costs)
    cut = np.array(stopped)
    filled = limits.copy()
    for _ in range(25):
        mean = filled.mean()
        z = (limits[cut] - mean) / sd
        raised = mean + sd * np.array([hazard(float(value)) for value in z])
        change = float(np.max(np.abs(raised - filled[cut])))
        filled[cut] = raised
        if change < 1e-6:
            break
    values: list[float] = np.exp(filled).tolist()
    return values
