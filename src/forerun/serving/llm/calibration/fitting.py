"""The coefficients of an iteration under which replays are most like measurements.

Coefficients are searched by their logarithms, so all stay positive, by the method of Levenberg and Marquardt from several
starts. What is minimised is the squared distance of the logarithms of measured figures, each over the precision that it can
have, plus that of the coefficients from where the search began (`physics`): data that say nothing of a coefficient leave it
there, and the report says so. A figure that a slightly longer iteration changes much, as near saturation, counts little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.serving.engine.outcome import Iterations
from forerun.serving.inputs.pipeline import Floats
from forerun.serving.llm.calibration.experiment import Experiment
from forerun.serving.llm.calibration.knee import STEP
from forerun.serving.llm.calibration.physics import Physics
from forerun.serving.llm.calibration.replay import COEFFICIENTS, TERMS, possible, replay
from forerun.serving.llm.inputs.model import Cost, LanguageModel

#: relative precision of each figure: what repeats of a measurement, and what the model leaves out, amount to
PRECISION: Final[Mapping[str, float]] = {
    "tpot_mean_ms": 0.015,
    "tpot_p50_ms": 0.02,
    "e2e_mean_ms": 0.015,
    "e2e_p50_ms": 0.02,
    "e2e_p90_ms": 0.03,
    "e2e_p99_ms": 0.05,
    "ttft_mean_ms": 0.03,
    "ttft_p50_ms": 0.05,
    "ttft_p90_ms": 0.08,
    "ttft_p99_ms": 0.12,
    "throughput_rps": 0.02,
}
#: relative error of iterations that a model of this form has at best
STEP_ERROR: Final = 0.02
#: change of each logarithm by which slopes are taken: replays jump where a request just makes an iteration, so what
#: matters little must change much to be seen above the jumps
SLOPE_STEPS: Final = (0.03, 0.05, 0.25, 0.25, 0.4, 0.1, 0.25)
#: the farthest a coefficient may be from its start, as a factor
FARTHEST: Final = 50.0
STARTS: Final = 4
#: steps of a search from each start, and of the best of them
ROUGH_STEPS: Final = 2
MOST_STEPS: Final = 8
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """An experiment ready to be replayed.

    Parameters
    ----------
    experiment : the load and what was measured.
    model : limits of the server with the tokens of the load.
    replicas : of the server.
    """

    experiment: Experiment
    model: LanguageModel = field(repr=False)
    replicas: int

    def figures(self, values: Floats, factor: float = 1.0) -> dict[str, float]:
        """What a replay with these coefficients shows, with iterations so many times as long (default: as they say)."""
        cost = Cost.of(values).longer(factor)
        return replay(self.model, self.replicas, self.experiment.load, cost).figures

    def iterations(self, values: Floats) -> Iterations:
        """Those of a replay with these coefficients."""
        run = replay(self.model, self.replicas, self.experiment.load, Cost.of(values), keep=True)
        assert run.iterations is not None
        return run.iterations

    @property
    def compared(self) -> tuple[str, ...]:
        """The figures that were measured and can be compared: of a client that holds requests back its rate and the whole
        latency, because the time to the first token is then the client's own."""
        names = [name for name, value in self.experiment.measured.items() if name in PRECISION and value > 0]
        if self.experiment.holds_back:
            return tuple(name for name in names if name in ("throughput_rps", "e2e_mean_ms", "e2e_p50_ms"))
        return tuple(name for name in names if name != "throughput_rps")


@dataclass(frozen=True)
class Fit:
    """Coefficients, and how much of them the data said.

    Parameters
    ----------
    values : float64[7], in the order of `replay.COEFFICIENTS`.
    start : where the search began.
    covariance : float64[7, 7], of their logarithms, after the data.
    loss : what was minimised.
    """

    values: Floats
    start: Physics = field(repr=False)
    covariance: Matrix = field(repr=False)
    loss: float

    @property
    def spread(self) -> Floats:
        """float64[7], standard deviation of the logarithm of each."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def bounded(self) -> tuple[str, ...]:
        """The coefficients that end at the least that hardware allows: data would have them lower."""
        least = self.start.least
        return tuple(np.array(COEFFICIENTS)[(least > 0) & (self.values <= least * (1 + 1e-6))].tolist())

    def supported(self) -> dict[str, bool]:
        """Whether the data, more than the start or a bound, say what each coefficient is, and within about a third."""
        # The share of each coefficient's uncertainty that the data took away.
        said = 1 - (self.spread / self.start.spread) ** 2
        clear = (said >= 0.75) & (self.spread <= 0.3) & ~np.isin(COEFFICIENTS, self.bounded)
        return {name: bool(one) for name, one in zip(COEFFICIENTS, clear)}


class _Problem:
    """Residuals of coefficients, given by their logarithms relative to the start.

    Parameters
    ----------
    trials : the experiments.
    start : where the search begins.
    """

    def __init__(self, trials: Sequence[Trial], start: Physics) -> None:
        self.trials, self.start = trials, start
        self._precision: list[Floats] = []
        #: logarithms below which no hardware goes
        self.least = np.maximum(np.log(np.maximum(start.least, 1e-300) / start.values), -np.log(FARTHEST))

    def logs(self, x: Floats) -> list[Floats]:
        """The logarithms of replayed over measured figures, trial by trial."""
        values = self.values(x)
        found = []
        for trial in self.trials:
            shown = trial.figures(values)
            measured = trial.experiment.measured
            found.append(
                np.array([np.log(max(shown[name], 1e-9) / measured[name]) for name in trial.compared])
            )
        return found

    def weigh(self, x: Floats) -> None:
        """Take the precision of each figure at these coefficients: its own, and what `STEP_ERROR` changes in it."""
        in_iterations = np.arange(len(x)) < TERMS
        base, longer = self.logs(x), self.logs(x + np.log(1 + STEP) * in_iterations)
        self._precision = []
        for trial, one, other in zip(self.trials, base, longer):
            own = np.array([PRECISION[name] for name in trial.compared])
            if trial.experiment.holds_back:
                # With a constant number under way, rate and whole latency are one figure (Little's law).
                own *= np.sqrt(len(own))
            excess = np.maximum(np.abs(other - one) / STEP - 1.5, 0.0)
            self._precision.append(np.sqrt(own**2 + (STEP_ERROR * excess) ** 2))

    def values(self, x: Floats) -> Floats:
        """The coefficients."""
        return possible(self.start.values * np.exp(x))

    def residuals(self, x: Floats) -> Floats:
        """What is squared and summed."""
        parts = [logs / precision for logs, precision in zip(self.logs(x), self._precision)]
        return np.concatenate([*parts, x / self.start.spread])


def fit(trials: Sequence[Trial], start: Physics, *, near: Floats | None = None, seed: int = 0) -> Fit:
    """The coefficients under which replays are most like the measurements.

    Parameters
    ----------
    trials : the experiments, at least one.
    start : where the search begins, and how far it may go.
    near : coefficients to begin at instead, with no other start (default: search from several).
    seed : of the other starts.
    """
    problem = _Problem(trials, start)
    if near is None:
        rng = np.random.default_rng(seed)
        starts = [np.zeros(len(COEFFICIENTS)), *(rng.normal(0.0, start.spread) for _ in range(STARTS - 1))]
        tried = []
        for x in starts:
            problem.weigh(x)
            tried.append(_descend(problem.residuals, x, problem.least, ROUGH_STEPS, rough=True)[0])
        # Losses are compared under one set of weights, those of the first.
        problem.weigh(tried[0])
        losses = [float((problem.residuals(x) ** 2).sum()) for x in tried]
        x = tried[int(np.argmin(losses))]
        problem.weigh(x)
        x, _, _ = _descend(problem.residuals, x, problem.least, MOST_STEPS, rough=True)
    else:
        x = np.log(near / start.values)
    problem.weigh(x)
    x, loss, slopes = _descend(problem.residuals, x, problem.least, MOST_STEPS, rough=False)
    covariance: Matrix = np.linalg.inv(slopes.T @ slopes).astype(np.float64)
    return Fit(problem.values(x), start, covariance, loss)


def _descend(
    residuals: Callable[[Floats], Floats], x: Floats, least: Floats, most: int, *, rough: bool
) -> tuple[Floats, float, Matrix]:
    """A local minimum of the sum of squares: the place, the sum, and the slopes there.

    Parameters
    ----------
    residuals : of a place.
    x : where to begin.
    least : bounds below, of each coordinate.
    most : steps at most.
    rough : take slopes to one side, with half the replays.
    """
    x = np.maximum(x, least)
    here = residuals(x)
    loss, damping = float(here @ here), 1e-2
    slopes = _slopes(residuals, x, here, rough=rough)
    for _ in range(most):
        normal, pull = slopes.T @ slopes, slopes.T @ here
        better = False
        for _ in range(5):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -pull)
            place = np.clip(x + np.clip(step, -1.0, 1.0), least, np.log(FARTHEST))
            there = residuals(place)
            new = float(there @ there)
            if new < loss:
                better = True
                break
            damping *= 5
        if not better:
            break
        gained = loss - new
        x, here, loss, damping = place, there, new, damping / 5
        slopes = _slopes(residuals, x, here, rough=rough)
        if gained < 3e-3 * loss + 1e-6:
            break
    return x, loss, slopes


def _slopes(residuals: Callable[[Floats], Floats], x: Floats, here: Floats, *, rough: bool) -> Matrix:
    """Differences, a column a coefficient: to both sides, or ahead of the residuals here."""
    columns = []
    for i, change in enumerate(SLOPE_STEPS):
        ahead, behind = x.copy(), x.copy()
        ahead[i] += change
        behind[i] -= change
        after = residuals(ahead)
        columns.append((after - here) / change if rough else (after - residuals(behind)) / (2 * change))
    return np.stack(columns, axis=1)
