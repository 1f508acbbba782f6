"""The batch size policy that explores first, pruning sizes that fail, and then samples the survivors."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from forerun.core.errors import Problem
from forerun.energy.policy import Setting, cheapest_known
from forerun.energy.policy.bandit import (
    GaussianThompson,
    pooled_log_variance,
    precision_of,
    uncensored,
)
from forerun.energy.policy.explorer import ROUNDS, Explorer
from forerun.energy.policy.failures import AllPruned, NothingSurvivedRound1, WindowTooSmall
from forerun.energy.policy.view import AttemptOutcome, View


@dataclass(frozen=True, kw_only=True)
class SamplerOptions:
    """How to explore and sample.

    prior_mean, prior_precision: belief about each reward before any is seen [J], [1/J^2] (default 0, 0). window: latest
    rewards a size that count (default 0: all). rounds: walks over the sizes (default 2). explorations: pulls of each
    survivor before beliefs decide (default 2). concurrency: an observation counts for the exploration only if it waits for
    that size. cheapest_beside_others: submissions beside a pending exploration get the cheapest size known. short_window:
    windows of one are allowed. pool_variance: costs that do not vary borrow the pooled variance of log cost. censor: the
    cost of a stopped attempt is a lower limit (these five: default no). bound_j: cost that stops an attempt [J] (default
    None: the simulator's).
    """

    prior_mean: float = 0.0
    prior_precision: float = 0.0
    window: int = 0
    rounds: int = ROUNDS
    explorations: int = 2
    concurrency: bool = False
    cheapest_beside_others: bool = False
    short_window: bool = False
    pool_variance: bool = False
    censor: bool = False
    bound_j: float | None = None


class ExploreThenSample:
    """Exploring until `bandit` is there, then sampling.

    `history` lists (batch size, reward) of every observation, in order. Beliefs are refitted when next needed:
    refitting draws nothing, so this is the same as refitting at each observation.
    """

    def __init__(self, style: SamplerOptions, setting: Setting) -> None:
        self._style = style
        self._rng = setting.rng
        self._known_bugs = setting.known_bugs
        self.bound_j = style.bound_j
        self.explorer = Explorer(setting.sizes, setting.default(), style.rounds)
        self.bandit: GaussianThompson | None = None
        self.history: list[tuple[int, float]] = []
        self._rewards: dict[int, list[float]] = defaultdict(list)
        self._stopped: dict[int, list[bool]] = defaultdict(list)
        self._stale: dict[int, None] = {}

    @property
    def exploring(self) -> bool:
        """Whether the exploration goes on."""
        return self.bandit is None

    def choose(self, view: View) -> int:
        """The explorer's next size, or the bandit's; beside others, the cheapest known while exploring."""
        if self.bandit is None:
            if view.in_flight and self.explorer.expecting and self._style.cheapest_beside_others:
                return cheapest_known(view, self.explorer.in_play)
            size = self._next_to_explore(view)
            if size is not None:
                return size
            self.bandit = self._start_sampling(view)
        self.refresh()
        return self.bandit.choose()

    def _next_to_explore(self, view: View) -> int | None:
        """The explorer's next size, None at the end; its errors name the job, the last failure and the bound."""
        try:
            return self.explorer.ask()
        except (NothingSurvivedRound1, AllPruned) as error:
            where = f"{view.job} recurrence {view.recurrence}"
            last = f"; the last to fail was {self.history[-1][0]}, the bound now is {view.bound_j:g} J"
            raise type(error)(Problem(where, error.problems[0].what + last)) from error

    def learn(self, outcome: AttemptOutcome) -> None:
        """Note the reward; answer the explorer where it waits for this size."""
        size = outcome.batch_size
        self.history.append((size, -outcome.observed_j))
        self._rewards[size].append(-outcome.observed_j)
        self._stopped[size].append(not outcome.reached)
        self._stale[size] = None
        if self.bandit is None and (not self._style.concurrency or size == self.explorer.expecting):
            self.explorer.answer(size, outcome.observed_j, outcome.reached)

    def refresh(self) -> None:
        """Refit the beliefs about sizes that were observed since."""
        if self.bandit is not None:
            for size in self._stale:
                self._refit(self.bandit, size)
            self._stale.clear()

    def beliefs(self) -> list[tuple[int, float, float, int]]:
        """Batch size, mean cost [J], its standard deviation [J] and observations of each survivor."""
        self.refresh()
        return self.bandit.beliefs() if self.bandit is not None else []

    def _start_sampling(self, view: View) -> GaussianThompson:
        """The bandit over the survivors. Raises WindowTooSmall if a window has less than two rewards."""
        style, arms = self._style, self.explorer.sizes
        bandit = GaussianThompson(
            arms,
            self._rng,
            prior_mean=style.prior_mean,
            prior_precision=style.prior_precision,
            explorations=style.explorations,
        )
        for arm in arms:
            seen = len(self._latest(arm))
            self._known_bugs["B8"] += seen < 2
            if seen < 2 and not style.short_window:
                where = f"{view.job} recurrence {view.recurrence}"
                what = f"window {style.window} leaves {seen} cost of batch size {arm}: a variance needs two"
                raise WindowTooSmall(Problem(where, what))
        self._stale = dict.fromkeys(arms)
        return bandit

    def _latest(self, size: int) -> list[float]:
        """The rewards of a size that count."""
        return self._rewards[size][-self._style.window :]

    def _refit(self, bandit: GaussianThompson, size: int) -> None:
        """Fit the belief of one size to its latest rewards again."""
        style = self._style
        rewards = self._latest(size)
        stopped = self._stopped[size][-style.window :]
        self._known_bugs["B20"] += any(stopped)
        if style.censor and any(stopped) and all(rewards):
            costs = uncensored([-reward for reward in rewards], stopped, self._log_variance())
            rewards = [-cost for cost in costs]
        precision = precision_of(rewards)
        self._known_bugs["B22"] += len(rewards) > 1 and math.isinf(precision)
        pooled = style.pool_variance or (style.short_window and len(rewards) < 2)
        if pooled and math.isinf(precision):
            mean = sum(rewards) / len(rewards)
            precision = 1 / (mean * mean * self._log_variance()) if mean else precision
        bandit.reward_precision[size] = precision
        bandit.fit(size, rewards, reset=True)
        if style.short_window:  # the walks have tried each survivor, however short the window
            bandit.observations[size] = max(bandit.observations[size], len(self._rewards[size]))

    def _log_variance(self) -> float:
        """Pooled over the completed costs of all sizes."""
        completed = []
        for size, rewards in self._rewards.items():
            pairs = zip(rewards[-self._style.window :], self._stopped[size][-self._style.window :])
            completed.append([-reward for reward, stopped in pairs if not stopped and reward < 0])
        return pooled_log_variance(completed)
