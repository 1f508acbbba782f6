"""A small real training: a two-layer network learns a curved boundary, timed and metered epoch by epoch.

Full trainings to a target over seeds give the epochs; timed epochs after a warm-up give seconds, and joules where
there is a meter. Needs torch.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.core.errors import Problem, UsageError
from forerun.energy.measure.meters import Meter

SAMPLES, HELD_OUT, INPUTS, HIDDEN = 4096, 1024, 16, 64
RATE_AT_32 = 0.05
#: how long a window with a meter is at least: counters of GPUs are renewed ten to fifty times a second
WINDOW_S = 1.0


@dataclass(frozen=True)
class Epochs:
    """Timed epochs of one configuration.

    Parameters
    ----------
    batch_size : samples a step.
    limit_w : power limit that was set [W] (0: none was).
    seconds : of an epoch, one for each window.
    joules : (joules, seconds) of an epoch, for each window that a meter could read (default: none).
    lost : the reason of each window that gave no joules, though there is a meter (default: none).
    """

    batch_size: int
    limit_w: float
    seconds: tuple[float, ...]
    joules: tuple[tuple[float, float], ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def mean_s(self) -> float:
        """Mean seconds of an epoch."""
        return math.fsum(self.seconds) / len(self.seconds)

    @property
    def mean_w(self) -> float:
        """Mean watts; nan without a meter."""
        if not self.joules:
            return math.nan
        return math.fsum(each for each, _ in self.joules) / math.fsum(seconds for _, seconds in self.joules)


class Trainer:
    """Data and model on one device; every training starts from its seed.

    Raises UsageError without torch, and for a device that torch does not see.
    """

    def __init__(self, device: str) -> None:
        try:
            self.torch: Any = importlib.import_module("torch")
        except ModuleNotFoundError as error:
            what = "needs torch; `pip install 'forerun[torch]'` would help"
            raise UsageError(Problem("forerun measure energy", what)) from error
        if device == "cuda" and not self.torch.cuda.is_available():
            raise UsageError(
                Problem("--device cuda", "torch sees no GPU here; --device cpu works everywhere")
            )
        self.device = device
        torch = self.torch
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(SAMPLES + HELD_OUT, INPUTS, generator=generator)
        y = ((x[:, :4] ** 2).sum(1) + x[:, 4] * x[:, 5] > 4.0).long()
        self._train = x[:SAMPLES].to(device), y[:SAMPLES].to(device)
        self._held_out = x[SAMPLES:].to(device), y[SAMPLES:].to(device)

    def start(self, batch_size: int, seed: int) -> tuple[Any, Any, Any]:
        """Model, optimizer and sample order of a fresh training.

        Parameters
        ----------
        batch_size : samples a step, to which the learning rate is proportional.
        seed : of weights and order.
        """
        torch = self.torch
        torch.manual_seed(seed)
        model = torch.nn.Sequential(
            torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 2)
        ).to(self.device)
        rate = RATE_AT_32 * batch_size / 32  # linear rule of stochastic gradient descent
        return (
            model,
            torch.optim.SGD(model.parameters(), lr=min(rate, 2.0)),
            torch.Generator().manual_seed(seed),
        )

    def epoch(self, model: Any, optimizer: Any, order: Any, batch_size: int) -> None:
        """One pass over the data in a new order.

        Parameters
        ----------
        model, optimizer, order : as `start` returns them; all three are changed.
        batch_size : samples a step; the last step of an epoch may have fewer.
        """
        x, y = self._train
        shuffled = self.torch.randperm(SAMPLES, generator=order).to(self.device)
        for first in range(0, SAMPLES, batch_size):
            rows = shuffled[first : first + batch_size]
            optimizer.zero_grad()
            self.torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def accuracy(self, model: Any) -> float:
        """Share of held-out samples that are classified correctly."""
        x, y = self._held_out
        with self.torch.no_grad():
            return float((model(x).argmax(1) == y).float().mean())

    def epochs_to(self, targets: Sequence[float], batch_size: int, seed: int, most: int) -> dict[float, int]:
        """First epoch at which each target was reached; targets that were not are absent.

        Parameters
        ----------
        targets : shares of held-out samples.
        most : epochs after which a training is given up.
        """
        model, optimizer, order = self.start(batch_size, seed)
        reached_at: dict[float, int] = {}
        for number in range(1, most + 1):
            self.epoch(model, optimizer, order, batch_size)
            reached = self.accuracy(model)
            for target in targets:
                if reached >= target:
                    reached_at.setdefault(target, number)
            if len(reached_at) == len(targets):
                break
        return reached_at

    def timed(
        self,
        batch_size: int,
        limit_w: float,
        repeats: int,
        meter: Meter | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> Epochs:
        """Seconds and joules of an epoch from `repeats` windows, after one epoch to warm up.

        With a meter a window is as many epochs as take `WINDOW_S`, so that it spans many updates of the counter. A
        window in which the counter began again or could not be read gives seconds only, and is counted as lost.

        Parameters
        ----------
        batch_size : samples a step.
        limit_w : the power limit that is set, which is recorded with the times [W] (0: none).
        repeats : windows.
        meter : reads joules (None: each window is one epoch, and gives seconds only).
        clock : reads seconds (default: `time.perf_counter`).
        """
        model, optimizer, order = self.start(batch_size, seed=0)
        began = clock()
        self.epoch(model, optimizer, order, batch_size)
        warm_s = clock() - began
        epochs = max(1, math.ceil(WINDOW_S / warm_s)) if meter and warm_s > 0 else 1
        seconds, joules, lost = [], [], []
        for _ in range(repeats):
            before, problem = _reading(meter)
            began = clock()
            for _ in range(epochs):
                self.epoch(model, optimizer, order, batch_size)
            took = clock() - began
            after, later = _reading(meter)
            seconds.append(took / epochs)
            if problem or later:
                lost.append(problem or later)
            elif meter:
                joules.append(((after - before) / epochs, took / epochs))
        return Epochs(batch_size, limit_w, tuple(seconds), tuple(joules), tuple(lost))


def _reading(meter: Meter | None) -> tuple[float, str]:
    """Joules now, or NaN and why there are none; 0 without a meter."""
    if meter is None:
        return 0.0, ""
    try:
        return meter.read_j(), ""
    except OSError as error:
        return math.nan, str(error.strerror or error)
