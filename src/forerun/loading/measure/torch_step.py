"""torch, which is optional, and a training step in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from forerun.core.errors import UsageError


def require_torch() -> Any:
    """The module torch. Raises UsageError where it is not installed."""
    try:
        import torch.utils.data
    except ImportError as error:
        raise UsageError.at("--set loader", "torch is not installed: pip install 'forerun[torch]'") from error
    return torch


@cache
def small_step() -> Callable[[], None]:
    """A training step of a small network: some milliseconds of a processor.

    Made once a process: 256 inputs, 512 hidden units, 10 classes, 64 samples, SGD.
    """
    torch = require_torch()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    inputs, classes = torch.randn(64, 256), torch.randint(0, 10, (64,))

    def step() -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), classes).backward()
        optimiser.step()

    return step
