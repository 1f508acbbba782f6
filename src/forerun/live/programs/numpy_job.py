"""Data-parallel training without torch: a perceptron in numpy, float64, whose ranks average their gradients at every step.

python -m forerun.live.programs.numpy_job --iterations 500 --batch 64 --hidden 256
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from forerun.live import job

F64 = NDArray[np.float64]


class Perceptron:
    """One hidden layer under squared error, learned by gradient descent with momentum.

    Parameters
    ----------
    inputs, hidden : sizes of the layers.
    seed : of the first weights.
    """

    RATE, MOMENTUM = 0.05, 0.9

    def __init__(self, inputs: int, hidden: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.first: F64 = random.normal(0, inputs**-0.5, (inputs, hidden))
        self.second: F64 = random.normal(0, hidden**-0.5, (hidden, 1))
        self.moved_first, self.moved_second = np.zeros_like(self.first), np.zeros_like(self.second)

    def gradients(self, samples: F64, targets: F64) -> tuple[F64, F64]:
        """Of the mean error over some samples."""
        active = np.tanh(samples @ self.first)
        error = (active @ self.second - targets) * (2 / len(samples))
        return samples.T @ ((error @ self.second.T) * (1 - active**2)), active.T @ error

    def descend(self, first: F64, second: F64) -> None:
        """One step along the gradients of the whole batch."""
        for weights, moved, gradient in (
            (self.first, self.moved_first, first),
            (self.second, self.moved_second, second),
        ):
            moved *= self.MOMENTUM
            moved -= self.RATE * gradient
            weights += moved

    def loss(self, samples: F64, targets: F64) -> float:
        """The mean squared error over some samples."""
        return float(np.mean((np.tanh(samples @ self.first) @ self.second - targets) ** 2))


def rule(samples: int, inputs: int, seed: int) -> tuple[F64, F64]:
    """Random samples, and what is to be learned of them: the sine of their sum."""
    random = np.random.default_rng([seed, 1])
    values = random.normal(size=(samples, inputs))
    return values, np.sin(values.sum(axis=1, keepdims=True) / inputs**0.5)


def train(
    me: job.Member, batch: int, *, inputs: int, hidden: int, samples: int, average: Callable[..., list[F64]] | None = None
) -> float:  # fmt: skip
    """Train as a rank of a job, and return the loss.

    Parameters
    ----------
    me : the rank.
    batch : samples of a step over all ranks.
    inputs, hidden, samples : sizes of the layers and of the data.
    average : how gradients are averaged over ranks (default: by sample, `me.average`).
    """
    model = Perceptron(inputs, hidden, me.seed)
    data = rule(samples, inputs, me.seed)
    me.state(
        first=model.first, second=model.second, moved_first=model.moved_first, moved_second=model.moved_second
    )
    for mine, targets in me.batches(data, batch):
        model.descend(*(average or me.average)(*model.gradients(mine, targets)))
        me.pace()
        me.step()
    return model.loss(*data)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="numpy_job", description="Train a perceptron in numpy.")
    for name, default, what in (
        ("iterations", 500, "steps, where no job file says how many"),
        ("batch", 64, "samples a step, where no job file says how many"),
        ("inputs", 32, "numbers in a sample"),
        ("hidden", 256, "width of the hidden layer"),
        ("samples", 4096, "samples to learn from"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default: {default})")
    given = parser.parse_args()
    with job.attach(iterations=given.iterations, torch=False) as me:
        loss = train(
            me, me.batch or given.batch, inputs=given.inputs, hidden=given.hidden, samples=given.samples
        )
        if me.rank == 0:
            print(f"loss {loss:.6f} after {me.done} steps")


if __name__ == "__main__":
    main()
