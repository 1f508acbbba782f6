"""How a job trains under Pollux: what it knows of its own speed, and how fast it really goes.

`MeasuredTraining` has an application's measurements: its global batch is elastic and it learns its step model while it
runs. `FixedTraining` has a throughput table or a duration only: its batch stays, its speed at each count is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import F64
from forerun.cluster.inputs.step_model import StepModel
from forerun.replication.pollux.applications import Application
from forerun.replication.pollux.fit import fit_step_model

_REFIT_ERROR: Final = 0.05


class MeasuredTraining:
    """A job of a measured application; progress counts iterations of the initial batch.

    The scheduler sees only what the job has measured so far: until its first run speed is taken to grow with GPUs,
    and it may hold at most twice the GPUs it has ever run on.
    """

    def __init__(self, application: Application) -> None:
        self.application = application
        self.epoch = 0
        self.rate = 0.0
        self._limits = application.limits()
        self._seen: dict[tuple[int, int, int], tuple[float, ...]] = {}
        self._model: StepModel | None = None
        self._gradients = application.gradients(application.init_batch, 0)
        self._most_gpus = 0
        self._placement: tuple[int, ...] = ()

    @property
    def target(self) -> float:
        """Progress at which the current epoch ends."""
        return self.application.progress_at(self.epoch)

    def cap(self, total_gpus: int) -> int:
        """The most GPUs the job may be given now."""
        app = self.application
        batch = app.fixed_batch or app.most_batch
        return max(1, min(total_gpus, 2 * self._most_gpus, int(batch // app.least_local)))

    def goodput(self, within: F64, across: F64, node_gpus: int, reach: int) -> None:
        """What the job believes it would achieve on up to `reach` GPUs, on one node and on several, into two tables."""
        from forerun.replication.pollux.kernels import goodput_table

        if self._model is None:
            within[: node_gpus + 1] = np.arange(node_gpus + 1)
            across[2:] = np.arange(2, len(across))
            return
        sqr, var = self._gradients
        fixed = self.application.fixed_batch
        goodput_table(self._model.array(), self._limits, fixed, sqr, var, node_gpus, reach, within, across)

    def configure(self, placement: Sequence[int]) -> None:
        """Run on these GPUs: choose the batch, measure the step, learn from it."""
        self._placement = tuple(count for count in placement if count)
        self._run()

    def next_epoch(self) -> bool:
        """An epoch ended; whether it was the last. Gradients are measured anew, the batch chosen again."""
        self.epoch += 1
        if self.epoch >= self.application.epochs:
            return True
        self._run()
        return False

    def _run(self) -> None:
        """Choose a batch for the present placement, measure a step with it, and learn from that."""
        nodes, replicas = len(self._placement), sum(self._placement)
        if not replicas:
            self.rate = 0.0
            return
        app = self.application
        local, passes = self._batch(nodes, replicas)
        step_s, exchange_s = app.step_and_exchange_s(self._placement, local)
        gradients_s = step_s - exchange_s
        batch = float(replicas * local * (passes + 1))
        sqr, var = app.gradients(batch, self.epoch)
        scale = batch / app.init_batch
        gain = (var + sqr) / (var / scale + sqr)
        self.rate = gain / (step_s + passes * gradients_s)
        self._gradients = (sqr, var)
        self._most_gpus = max(self._most_gpus, replicas)
        self._learn(nodes, replicas, local, step_s, gradients_s)

    def _batch(self, nodes: int, replicas: int) -> tuple[int, int]:
        """Local batch and passes of accumulation: the best the job knows, else the initial batch."""
        from forerun.replication.pollux.kernels import best_batch

        app = self.application
        low, high = app.local_range(self._placement)
        if self._model is not None:
            limits = self._limits.copy()
            limits[2:] = low, high
            sqr, var = self._gradients
            _, local, passes = best_batch(
                self._model.array(), float(nodes), replicas, limits, app.fixed_batch, sqr, var
            )
            if local:
                return int(local), int(passes)
        share = max(app.fixed_batch or app.init_batch, float(low * replicas)) / replicas
        passes = math.ceil(share / high) - 1
        return min(max(math.ceil(share / (passes + 1)), low), high), passes

    def _learn(self, nodes: int, replicas: int, local: int, step_s: float, gradients_s: float) -> None:
        """Keep a new measurement; fit again if it is of a new kind or the model is off by more than 5 %."""
        key = (nodes, replicas, local)
        if key in self._seen:
            return
        kinds = {(n > 1, r) for n, r, _ in self._seen}
        self._seen[key] = (nodes, replicas, local, step_s, gradients_s)
        if self._model is not None and (nodes > 1, replicas) in kinds:
            predicted = self._model.step_s(nodes, replicas, local)
            if abs(predicted / step_s - 1.0) <= _REFIT_ERROR:
                return
        self._model = fit_step_model(np.array(list(self._seen.values())), self._model).model


class FixedTraining:
    """A job with a known speed at each legal GPU count and a batch that stays; progress counts iterations."""

    def __init__(self, rate_by_gpus: F64, iterations: float) -> None:
        self.rate = 0.0
        self.target = iterations
        self._rate = rate_by_gpus

    def cap(self, total_gpus: int) -> int:
        """The largest count at which it runs."""
        able = np.flatnonzero(self._rate > 0)
        return min(total_gpus, int(able[-1])) if len(able) else 0

    def goodput(self, within: F64, across: F64, node_gpus: int, reach: int) -> None:
        """Iterations per second by GPUs; placement makes no difference that the table knows."""
        known = min(len(within), len(self._rate))
        within[: min(known, node_gpus + 1)] = self._rate[: min(known, node_gpus + 1)]
        across[2:known] = self._rate[2:known]

    def configure(self, placement: Sequence[int]) -> None:
        """Run on these GPUs."""
        gpus = sum(placement)
        self.rate = float(self._rate[gpus]) if gpus < len(self._rate) else 0.0

    def next_epoch(self) -> bool:
        """All work is one stretch."""
        return True


Training = MeasuredTraining | FixedTraining
