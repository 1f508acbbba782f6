"""Many seeds of one job at once, by the compiled loops where they apply and by the readable ones elsewhere.

The compiled loops know the published pair (`pruning-gts` or `gts` with `jit`) under compat rules; every other policy
and the corrected rules go through `simulate`. Both give the same attempts, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forerun.domains.energy.model import Floats, GroupRow, Ints, Rules
from forerun.domains.energy.policies.gts import Gts
from forerun.domains.energy.policies.jit import Jit
from forerun.domains.energy.policies.pruning_gts import PruningGts
from forerun.domains.energy.policy import KnobRecipe, Pair
from forerun.domains.energy.simulate import Drift, Run, Shop, group, sequence
from forerun.domains.energy.workload import Workload

if TYPE_CHECKING:
    from forerun.domains.energy.kernels import Optimiser, World


@dataclass(frozen=True)
class Attempts:
    """The attempts of one run as columns, in the order learned; energy and time as run, without the group's ratio.

    `size` index into the workload's sizes; `limit_w` [W]; `ended` 0 reached, 1 bound, 2 max epochs, 3 never ran;
    int64 or float64[attempts].
    """

    recurrence: Ints
    attempt: Ints
    size: Ints
    limit_w: Floats
    epochs: Ints
    energy_j: Floats
    time_s: Floats
    cost_j: Floats
    ended: Ints
    profiled: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.size)

    def per_recurrence(self, values: Floats, recurrences: int) -> Floats:
        """Sums over the attempts of each recurrence, float64[recurrences]."""
        return np.bincount(self.recurrence, values, minlength=recurrences).astype(np.float64)


ENDINGS = ("reached", "bound", "max_epochs", "never_ran")


def run_many(
    workload: Workload,
    recipe: KnobRecipe,
    *,
    eta: float,
    beta: float,
    rules: Rules,
    seeds: Iterable[int],
    recurrences: int = 0,
    rows: Sequence[GroupRow] = (),
    drift: Sequence[Drift] = (),
    compile_above: int = 20_000,
) -> list[Attempts]:
    """One run a seed: `recurrences` in sequence, or the submissions of `rows`.

    The compiled loops are used above `compile_above` recurrences in all, where compiling them pays.
    Raises what `simulate.sequence` and `simulate.group` raise.
    """
    seeds = list(seeds)
    work = len(seeds) * (len(rows) or recurrences)
    if compiled(recipe, rules) and not drift and work > compile_above:
        assert isinstance(recipe, Pair)
        prepared = _Compiled(workload, recipe, eta, beta, recurrences, rows)
        return [prepared.run(seed) for seed in seeds]
    runs = []
    for seed in seeds:
        shop = Shop(workload, recipe, eta=eta, beta=beta, rules=rules, seed=seed, drift=drift)
        runs.append(columns(group(shop, rows) if rows else sequence(shop, recurrences), workload))
    return runs


def compiled(recipe: KnobRecipe, rules: Rules) -> bool:
    """Whether the compiled loops know this policy under these rules."""
    known = (
        isinstance(recipe, Pair)
        and type(recipe.limit) is Jit
        and type(recipe.batch_size) in (PruningGts, Gts)
    )
    return known and rules == Rules.of("compat")


def columns(run: Run, workload: Workload) -> Attempts:
    """The attempts of a run as columns."""
    outcomes = [line.outcome for line in run.attempts]
    place = {size: at for at, size in enumerate(workload.sizes.tolist())}
    return Attempts(
        recurrence=np.array([line.recurrence for line in run.attempts], np.int64),
        attempt=np.array([line.attempt for line in run.attempts], np.int64),
        size=np.array([place[outcome.batch_size] for outcome in outcomes], np.int64),
        limit_w=np.array([outcome.limit_w for outcome in outcomes]),
        epochs=np.array([outcome.epochs for outcome in outcomes], np.int64),
        energy_j=np.array([outcome.energy_j for outcome in outcomes]),
        time_s=np.array([outcome.time_s for outcome in outcomes]),
        cost_j=np.array([outcome.cost_j for outcome in outcomes]),
        ended=np.array([ENDINGS.index(outcome.ended_by) for outcome in outcomes], np.int64),
        profiled=np.array([outcome.measured is not None for outcome in outcomes], bool),
    )


def kept_limits(workload: Workload, eta: float) -> Ints:
    """Index of the limit that a full profile keeps for each size, -1 where nothing was measured."""
    kept = []
    for size in range(len(workload.sizes)):
        measured = workload.measured(size)
        costs = measured.epoch_cost_j(eta)
        kept.append(workload.limit_index(measured.limits_w[costs.index(min(costs))]) if costs else -1)
    return np.array(kept, np.int64)


class _Compiled:
    """What the compiled loops need of one job and policy, laid out once for all seeds."""

    def __init__(
        self,
        workload: Workload,
        recipe: Pair,
        eta: float,
        beta: float,
        recurrences: int,
        rows: Sequence[GroupRow],
    ) -> None:
        self._workload, self._recipe, self._eta, self._beta = workload, recipe, eta, beta
        self._recurrences, self._rows = recurrences, rows
        self._optimiser = _optimiser(recipe, workload)
        self._kept = kept_limits(workload, eta)
        self._possible = bool(workload.count.sum(axis=1).all()) and self._optimiser.default >= 0
        self._world = _world(workload, self._kept, eta, beta) if self._possible else None
        self._starts = np.array([row.start_s for row in rows])
        self._ends = np.array([row.end_s for row in rows])

    def run(self, seed: int) -> Attempts:
        """The attempts of one seed."""
        from forerun.domains.energy import kernels

        if self._world is None:
            return self._readable(seed)
        streams = np.random.default_rng(seed), np.random.default_rng(seed)
        if self._rows:
            log, learned, status = kernels.group(
                self._world, self._optimiser, self._starts, self._ends, *streams
            )
            log = log[learned]
        else:
            log, status = kernels.sequence(self._world, self._optimiser, self._recurrences, *streams)
        return self._columns(log) if status == kernels.OK else self._readable(seed)

    def _readable(self, seed: int) -> Attempts:
        """The same run by the readable loops, which tell a failure with its words."""
        rules = Rules.of("compat")
        shop = Shop(self._workload, self._recipe, eta=self._eta, beta=self._beta, rules=rules, seed=seed)
        run = group(shop, self._rows) if self._rows else sequence(shop, self._recurrences)
        return columns(run, self._workload)

    def _columns(self, log: Floats) -> Attempts:
        from forerun.domains.energy import kernels

        names = (kernels.RECURRENCE, kernels.ATTEMPT, kernels.SIZE, kernels.EPOCHS, kernels.ENDED)
        recurrence, attempt, size, epochs, ended = log[:, names].T.astype(np.int64)
        return Attempts(
            recurrence=recurrence,
            attempt=attempt,
            size=size,
            limit_w=self._workload.limits_w[self._kept[size]],
            epochs=epochs,
            energy_j=log[:, kernels.ENERGY].copy(),
            time_s=log[:, kernels.TIME].copy(),
            cost_j=log[:, kernels.COST].copy(),
            ended=ended,
            profiled=log[:, kernels.PROFILED] > 0,
        )


def _optimiser(recipe: Pair, workload: Workload) -> Optimiser:
    from forerun.domains.energy.kernels import Optimiser

    chooser = recipe.batch_size
    default = workload.size_index(workload.job.default_batch_size)
    if isinstance(chooser, PruningGts):
        prior = chooser.prior_mean, chooser.prior_precision
        return Optimiser(0, default, chooser.window, chooser.concurrency, *prior, 0.0, 2)
    assert isinstance(chooser, Gts)
    kind = 2 if chooser.learn_precision else 1
    prior = chooser.prior_mean, chooser.prior_precision
    return Optimiser(kind, max(default, 0), 0, True, *prior, chooser.reward_precision, chooser.explorations)


def _world(workload: Workload, kept: Ints, eta: float, beta: float) -> World:
    from forerun.domains.energy.kernels import World

    rows = np.arange(len(workload.sizes))
    return World(
        workload.start[rows, kept],
        workload.count[rows, kept],
        workload.epochs,
        workload.epoch_s,
        workload.epoch_j,
        workload.split_s,
        workload.split_j,
        workload.top_limit_w,
        float(workload.max_power_w),
        workload.job.max_epochs,
        float(eta),
        float(beta),
    )
