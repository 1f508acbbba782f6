"""Power limits of a GPU: which can be set, and how they are restored."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """A GPU whose power limit can be set.

    Parameters
    ----------
    nvml : the module of NVML.
    handle : its handle of the device.
    """

    nvml: Any
    handle: Any


@contextmanager
def restored(gpu: Gpu) -> Iterator[None]:
    """A context at whose end the limit is set that was set before.

    That is so whatever happens inside, a request to end (SIGTERM, SIGHUP) too.
    """
    before = gpu.nvml.nvmlDeviceGetPowerManagementLimit(gpu.handle)
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            handlers[number] = signal.signal(number, _leave)
    try:
        yield
    finally:
        try:
            if gpu.nvml.nvmlDeviceGetPowerManagementLimit(gpu.handle) != before:
                gpu.nvml.nvmlDeviceSetPowerManagementLimit(gpu.handle, before)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _leave(number: int, _frame: object) -> None:
    """End as after an interrupt, so that `finally` blocks run."""
    raise SystemExit(128 + number)


def current_w(gpu: Gpu) -> float:
    """The limit in force [W]; NVML counts milliwatts."""
    return float(gpu.nvml.nvmlDeviceGetPowerManagementLimit(gpu.handle)) / 1e3


def clocks_mhz(gpu: Gpu) -> dict[str, int]:
    """Clocks of the streaming multiprocessors and of the memory now [MHz]; empty where they cannot be read."""
    try:
        return {
            "sm": int(gpu.nvml.nvmlDeviceGetClockInfo(gpu.handle, gpu.nvml.NVML_CLOCK_SM)),
            "memory": int(gpu.nvml.nvmlDeviceGetClockInfo(gpu.handle, gpu.nvml.NVML_CLOCK_MEM)),
        }
    except (gpu.nvml.NVMLError, AttributeError):
        return {}


def settable(gpu: Gpu, asked_w: Sequence[float]) -> tuple[list[float], str]:
    """Those of the limits `asked_w` that the GPU accepts, and why others cannot be set (empty: all can).

    Tries to set the limit in force again, which changes nothing and shows whether one may.
    """
    nvml: Any = gpu.nvml
    now = nvml.nvmlDeviceGetPowerManagementLimit(gpu.handle)
    try:
        low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu.handle)
        nvml.nvmlDeviceSetPowerManagementLimit(gpu.handle, now)
    except nvml.NVMLError as error:
        return [
            now / 1e3
        ], f"power limits may not be set ({error}); root would help: one limit, {now / 1e3:g} W"
    inside = [limit for limit in asked_w if low <= 1e3 * limit <= high] or [now / 1e3]
    outside = [f"{limit:g}" for limit in asked_w if not low <= 1e3 * limit <= high]
    reason = (
        f"limits outside {low / 1e3:g} to {high / 1e3:g} W left out: {', '.join(outside)}" if outside else ""
    )
    return sorted(inside, reverse=True), reason


def set_limit(gpu: Gpu, limit_w: float) -> None:
    """Limit the GPU [W]."""
    gpu.nvml.nvmlDeviceSetPowerManagementLimit(gpu.handle, round(1e3 * limit_w))
