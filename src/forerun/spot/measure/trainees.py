"""What is trained: a model whose state can be copied, written, loaded and stepped in shards.

`numpy` is a perceptron of three layers under Adam, with numpy alone; `torch` a small transformer under AdamW.  Both learn
a rule from data drawn by step number, so a step is the same work, on the same data, whoever does it.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

KINDS = ("numpy", "torch")
CHUNK_BYTES = 1 << 20


class Trainee(Protocol):
    """A model in training, as one process of a data-parallel job has it.

    Gradients are summed over the processes, and every process applies the sum, so all have the same state.
    """

    def gradient(self, step: int, rank: int, world: int) -> tuple[float, bytes]:
        """Loss and gradient of this rank's share of a step's batch, both already weighted by that share.

        The gradient is float32, as bytes.

        Parameters
        ----------
        step : names the batch.
        rank, world : which share of how many.
        """
        ...

    def apply(self, gradient: Floats) -> None:
        """One step of the optimiser with the whole batch's gradient."""
        ...

    def snapshot(self) -> Any:
        """A copy of the whole state; training is blocked while it is made."""
        ...

    def write(self, copy: Any, path: Path, bytes_per_s: float) -> None:
        """Make a copy durable, whole or not at all.

        Parameters
        ----------
        copy : as `snapshot` returns it.
        path : of the file.
        bytes_per_s : at most so fast (0: as fast as it goes).
        """
        ...

    def load(self, path: Path) -> None:
        """Take up the state at `path`."""
        ...


def trainee(kind: str, parameters: int, batch: int) -> Trainee:
    """A fresh model to train.

    Parameters
    ----------
    kind : `torch` for a transformer in torch, anything else for a perceptron in numpy.
    parameters : about how many weights it has.
    batch : samples of a step, all processes together.
    """
    if kind == "torch":
        return TorchTransformer(parameters, batch)
    return NumpyPerceptron(parameters, batch)


def shares(batch: int, rank: int, world: int) -> slice:
    """The samples of a rank: consecutive, as even as possible.

    Parameters
    ----------
    batch : samples of a step.
    rank, world : which share of how many.
    """
    return slice(batch * rank // world, batch * (rank + 1) // world)


def write_whole(chunks: Iterable[memoryview], path: Path, bytes_per_s: float) -> None:
    """Write beside a path, sync, and move there, so that a file is whole or not at all.

    Parameters
    ----------
    chunks : its bytes.
    bytes_per_s : the rate to which writing is slowed (0: as fast as it goes).
    """
    beside = path.with_suffix(".partial")
    start, written = time.monotonic(), 0
    with beside.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            written += len(chunk)
            if bytes_per_s:
                time.sleep(max(0.0, start + written / bytes_per_s - time.monotonic()))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def in_chunks(data: memoryview) -> Iterable[memoryview]:
    """Bytes by the megabyte."""
    return (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))


class NumpyPerceptron:
    """64 inputs, two hidden layers, one output; squared error against a fixed random rule.

    State: weights, both moments of Adam and the count of steps, in one array.
    """

    INPUTS = 64
    RATE, BETA1, BETA2 = 1e-3, 0.9, 0.999

    def __init__(self, parameters: int, batch: int) -> None:
        hidden = max(4, round(((self.INPUTS**2 + 4 * parameters) ** 0.5 - self.INPUTS) / 2))
        self.batch = batch
        self.shapes = [(self.INPUTS, hidden), (hidden, hidden), (hidden, 1)]
        sizes = [rows * columns for rows, columns in self.shapes]
        self.edges = np.cumsum([0, *sizes])
        random = np.random.default_rng(0)
        # Weights, both moments and the count of steps are one array: a copy of it is the whole state.
        self.state: Floats = np.zeros(3 * int(self.edges[-1]) + 1, dtype=np.float32)
        for (rows, _), low, high in zip(self.shapes, self.edges, self.edges[1:], strict=False):
            self.state[low:high] = random.normal(0, rows**-0.5, high - low)
        self.rule = random.normal(0, 1, self.INPUTS).astype(np.float32)

    def _layers(self) -> list[Floats]:
        """The weights of each layer, as views of the state."""
        return [
            self.state[low:high].reshape(shape)
            for shape, low, high in zip(self.shapes, self.edges, self.edges[1:], strict=False)
        ]

    def gradient(self, step: int, rank: int, world: int) -> tuple[float, bytes]:
        """By hand: two rectified layers and a linear one."""
        inputs = np.random.default_rng(step + 1).normal(size=(self.batch, self.INPUTS)).astype(np.float32)
        mine = inputs[shares(self.batch, rank, world)]
        targets = np.tanh(mine @ self.rule / 8)[:, None]
        one, two, three = self._layers()
        first = np.maximum(mine @ one, 0)
        second = np.maximum(first @ two, 0)
        error = (second @ three - targets) / self.batch
        back_two = (error @ three.T) * (second > 0)
        back_one = (back_two @ two.T) * (first > 0)
        parts = (mine.T @ back_one, first.T @ back_two, second.T @ error)
        loss = float((error * error).sum() * self.batch / 2)
        return loss, np.concatenate([part.ravel() for part in parts]).astype(np.float32).tobytes()

    def apply(self, gradient: Floats) -> None:
        """Adam."""
        size = int(self.edges[-1])
        weights, mean, square = (self.state[i * size : (i + 1) * size] for i in range(3))
        self.state[-1] += 1
        count = float(self.state[-1])
        mean += (1 - self.BETA1) * (gradient - mean)
        square += (1 - self.BETA2) * (gradient * gradient - square)
        scale = self.RATE * (1 - self.BETA2**count) ** 0.5 / (1 - self.BETA1**count)
        weights -= scale * mean / (np.sqrt(square) + 1e-8)

    def snapshot(self) -> Floats:
        """The state array, copied."""
        return self.state.copy()

    def write(self, copy: Floats, path: Path, bytes_per_s: float) -> None:
        """Its bytes."""
        write_whole(in_chunks(memoryview(copy.view(np.uint8).data)), path, bytes_per_s)

    def load(self, path: Path) -> None:
        """Its bytes again."""
        self.state = np.fromfile(path, dtype=np.float32)


class TorchTransformer:
    """Two encoder layers over sequences of 32 symbols, each the sum of the two before it modulo 64."""

    SYMBOLS, LENGTH, HEADS, LAYERS = 64, 32, 4, 2

    def __init__(self, parameters: int, batch: int) -> None:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        torch.manual_seed(0)
        width = max(self.HEADS, round((parameters / (12 * self.LAYERS)) ** 0.5 / self.HEADS) * self.HEADS)
        layer = torch.nn.TransformerEncoderLayer(width, self.HEADS, 4 * width, dropout=0.0, batch_first=True)
        self.torch, self.batch = torch, batch
        self.model = torch.nn.Sequential(
            torch.nn.Embedding(self.SYMBOLS, width),
            torch.nn.TransformerEncoder(layer, self.LAYERS),
            torch.nn.Linear(width, self.SYMBOLS),
        )
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def gradient(self, step: int, rank: int, world: int) -> tuple[float, bytes]:
        """Cross-entropy of the next symbol after each sequence."""
        torch = self.torch
        random = np.random.default_rng(step + 1)
        series = np.empty((self.batch, self.LENGTH + 1), dtype=np.int64)
        series[:, :2] = random.integers(0, self.SYMBOLS, (self.batch, 2))
        for i in range(2, self.LENGTH + 1):
            series[:, i] = (series[:, i - 1] + series[:, i - 2]) % self.SYMBOLS
        mine = torch.from_numpy(series[shares(self.batch, rank, world)])
        self.optimiser.zero_grad()
        logits = self.model(mine[:, :-1])[:, -1]
        loss = torch.nn.functional.cross_entropy(logits, mine[:, -1], reduction="sum") / self.batch
        loss.backward()
        flat = torch.cat([weights.grad.reshape(-1) for weights in self.model.parameters()])
        return float(loss.detach()), flat.numpy().tobytes()

    def apply(self, gradient: Floats) -> None:
        """AdamW."""
        whole, at = self.torch.from_numpy(gradient.copy()), 0
        for weights in self.model.parameters():
            weights.grad = whole[at : at + weights.numel()].view_as(weights)
            at += weights.numel()
        self.optimiser.step()

    def snapshot(self) -> Any:
        """Weights and moments, copied."""
        torch = self.torch

        def copied(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: copied(item) for key, item in value.items()}
            if isinstance(value, list):
                return [copied(item) for item in value]
            return value.detach().clone() if isinstance(value, torch.Tensor) else value

        return copied({"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()})

    def write(self, copy: Any, path: Path, bytes_per_s: float) -> None:
        """As torch saves it."""
        import io

        buffer = io.BytesIO()
        self.torch.save(copy, buffer)
        write_whole(in_chunks(buffer.getbuffer()), path, bytes_per_s)

    def load(self, path: Path) -> None:
        """As torch loads it, tensors only."""
        state = self.torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
