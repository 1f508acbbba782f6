"""Small models for processors: what a replica computes for a batch. Inputs are made where they are used, not sent.

A model is a function from nothing to a function that serves a batch of n. `module:function` names one of your own.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from typing import Final

from forerun.core.errors import UsageError, known_names

#: serves one batch of this many queries
Serve = Callable[[int], object]


def matrix() -> Serve:
    """A chain of 320 dense layers of 256 x 256 weights: much of a product's cost is the same for one query and for many."""
    import numpy as np

    rng = np.random.default_rng(1)
    layers = [rng.standard_normal((256, 256), dtype=np.float32) / 16 for _ in range(8)]
    queries = rng.standard_normal((1024, 256), dtype=np.float32)

    def serve(size: int) -> object:
        values = queries[:size]
        for _ in range(40):
            for layer in layers:
                values = np.maximum(values @ layer, 0.0)
        return values

    return serve


def forest() -> Serve:
    """A tree ensemble: 2,000 trees of depth 12, every query walked down each."""
    import numpy as np

    rng = np.random.default_rng(2)
    trees, depth, features = 2000, 12, 32
    nodes = 2**depth
    feature = rng.integers(0, features, (trees, nodes))
    threshold = rng.standard_normal((trees, nodes))
    queries = rng.standard_normal((1024, features))
    every = np.arange(trees)[:, None]

    def serve(size: int) -> object:
        values = queries[:size]
        rows = np.arange(size)[None, :]
        at = np.ones((trees, size), dtype=np.int64)
        for _ in range(depth - 1):
            right = values[rows, feature[every, at]] > threshold[every, at]
            at = 2 * at + right
        return at.sum(axis=0)

    return serve


def hashing() -> Serve:
    """Digests: a query is 4 MiB, hashed as a whole; a batch takes n times as long as one."""
    block = bytes(4 * 2**20)

    def serve(size: int) -> object:
        return [hashlib.blake2b(block).digest() for _ in range(size)]

    return serve


def perceptron() -> Serve:
    """A small convolutional classifier in torch, on one thread. Needs torch."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        what = "the model perceptron needs torch: pip install 'forerun[torch]'; matrix, forest and hashing do without"
        raise UsageError.at("--model", what) from error
    torch.set_num_threads(1)
    torch.manual_seed(3)
    nn = torch.nn
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 8 * 8, 64), nn.ReLU(), nn.Linear(64, 10),
    ).eval()  # fmt: skip
    queries = torch.randn(256, 3, 32, 32)

    def serve(size: int) -> object:
        with torch.no_grad():
            return network(queries[:size]).argmax(1)

    return serve


MODELS: Final[dict[str, Callable[[], Serve]]] = {
    "matrix": matrix,
    "forest": forest,
    "hashing": hashing,
    "perceptron": perceptron,
}


def model_named(name: str) -> Callable[[], Serve]:
    """A model by its name, or `module:function`. Raises UsageError with what is known."""
    if name in MODELS:
        return MODELS[name]
    module, colon, function = name.partition(":")
    if not colon:
        what = f"no model named {name!r}; {known_names(name, MODELS)}; your own is written module:function"
        raise UsageError.at("--model", what)
    try:
        model: Callable[[], Serve] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError.at("--model", f"{name!r} cannot be loaded: {error}") from error
    return model
