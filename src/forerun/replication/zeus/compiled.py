"""The published policies under the published simulator's rules, compiled: many seeds a second.

Covers `pruning-gts` and `gts` with `jit` in `mode: compat`. The domain finds it through the entry point group
`forerun.energy.engine`.
"""

from __future__ import annotations

import numpy as np

from forerun.energy.engine.batch import Attempts, CompiledLoops, Work, columns
from forerun.energy.inputs.workload import Workload
from forerun.energy.policies.gts import Gts
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import Pair
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import Floats, Ints
from forerun.replication.zeus import kernels
from forerun.replication.zeus.kernels import CompiledJob, Optimiser


class CompiledZeus(CompiledLoops):
    """What the compiled loops need of one job and policy, laid out once for all seeds.

    Parameters
    ----------
    work : workload, published policy and compat rules, with recurrences or with the rows of a group.
    """

    name = "compat"

    @classmethod
    def runs(cls, work: Work) -> bool:
        """Whether the policy is one of the published ones, under all known bugs and without drift."""
        spec = work.spec
        published = (
            isinstance(spec, Pair) and type(spec.limit) is Jit and type(spec.batch_size) in (PruningGts, Gts)
        )
        return published and work.rules == Rules.of("compat") and not work.drift

    def __init__(self, work: Work) -> None:
        assert isinstance(work.spec, Pair)
        super().__init__(work)
        workload = work.workload
        self._optimiser = _optimiser(work.spec, workload)
        self._limits = chosen_limits(workload, work.eta)
        possible = bool(workload.count.sum(axis=1).all()) and self._optimiser.default >= 0
        self._job = _compiled_job(work, self._limits) if possible else None
        self._starts = np.array([row.start_s for row in work.rows])
        self._ends = np.array([row.end_s for row in work.rows])

    def run(self, seed: int) -> Attempts:
        """The attempts of one seed.

        A run that fails is repeated by the readable loops, which raise the named failure. The same seed starts the stream of
        paths and that of the policy.

        Parameters
        ----------
        seed : of both streams.
        """
        if self._job is None:
            return self._readable(seed)
        streams = np.random.default_rng(seed), np.random.default_rng(seed)
        if self.work.rows:
            log, learned, status = kernels.group(
                self._job, self._optimiser, self._starts, self._ends, *streams
            )
            log = log[learned]
        else:
            log, status = kernels.sequence(self._job, self._optimiser, self.work.recurrences, *streams)
        return self._columns(log) if status == kernels.OK else self._readable(seed)

    def _readable(self, seed: int) -> Attempts:
        """One run by the readable loops, which raise the named failures."""
        return columns(self.work.run(seed)[1], self.work.workload)

    def _columns(self, log: Floats) -> Attempts:
        """The kernels' log of attempts as columns. log: float64[attempts, COLUMNS]."""
        names = (kernels.RECURRENCE, kernels.ATTEMPT, kernels.SIZE, kernels.EPOCHS, kernels.ENDED)
        recurrence, attempt, size, epochs, ended = log[:, names].T.astype(np.int64)
        return Attempts(
            recurrence=recurrence,
            attempt=attempt,
            size=size,
            limit_w=self.work.workload.limits_w[self._limits[size]],
            epochs=epochs,
            energy_j=log[:, kernels.ENERGY].copy(),
            time_s=log[:, kernels.TIME].copy(),
            cost_j=log[:, kernels.COST].copy(),
            ended=ended,
            profiled=log[:, kernels.PROFILED] > 0,
        )


def chosen_limits(workload: Workload, eta: float) -> Ints:
    """Index of the limit that `jit` chooses for each size: the one with the least cost of an epoch.

    Parameters
    ----------
    workload : the measured epochs.
    eta : weight of energy against time, 0 ... 1.

    Returns
    -------
    int64[sizes], -1 where nothing was measured.
    """
    chosen = []
    for size in range(len(workload.sizes)):
        measured = workload.measured(size)
        costs = measured.epoch_cost_j(eta)
        chosen.append(workload.limit_index(measured.limits_w[costs.index(min(costs))]) if costs else -1)
    return np.array(chosen, np.int64)


def _optimiser(spec: Pair, workload: Workload) -> Optimiser:
    """The parameters of a published policy for the kernels.

    Parameters
    ----------
    spec : a pair with `pruning-gts` or `gts`.
    workload : gives the index of the default batch size.
    """
    policy = spec.batch_size
    default = workload.size_index(workload.job.default_batch_size)
    if isinstance(policy, PruningGts):
        prior = policy.prior_mean, policy.prior_precision
        return Optimiser(0, default, policy.window, policy.concurrency, *prior, 0.0, 2)
    assert isinstance(policy, Gts)
    kind = 2 if policy.learn_precision else 1
    prior = policy.prior_mean, policy.prior_precision
    return Optimiser(kind, max(default, 0), 0, True, *prior, policy.reward_precision, policy.explorations)


def _compiled_job(work: Work, limits: Ints) -> CompiledJob:
    """The arrays of a job for the kernels, each size at its chosen limit.

    Parameters
    ----------
    work : workload, weight of energy and bound.
    limits : int64[sizes], index of the chosen limit of each size.
    """
    workload = work.workload
    rows = np.arange(len(workload.sizes))
    return CompiledJob(
        workload.start[rows, limits],
        workload.count[rows, limits],
        workload.epochs,
        workload.epoch_s,
        workload.epoch_j,
        workload.split_s,
        workload.split_j,
        workload.top_limit_w,
        float(workload.max_power_w),
        workload.job.max_epochs,
        float(work.eta),
        float(work.beta),
    )
