"""Power limits of a GPU: which can be set, and always put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from forerun.measure.energy.meters import NvmlMeter


@contextmanager
def restored(meter: NvmlMeter) -> Iterator[None]:
    """Whatever happens inside, the limit that was set before is set again."""
    before = meter.nvml.nvmlDeviceGetPowerManagementLimit(meter.handle)
    try:
        yield
    finally:
        if meter.nvml.nvmlDeviceGetPowerManagementLimit(meter.handle) != before:
            meter.nvml.nvmlDeviceSetPowerManagementLimit(meter.handle, before)


def current_w(meter: NvmlMeter) -> float:
    """The limit in force [W]; NVML counts milliwatts."""
    return float(meter.nvml.nvmlDeviceGetPowerManagementLimit(meter.handle)) / 1e3


def settable(meter: NvmlMeter, wanted_w: Sequence[float]) -> tuple[list[float], str]:
    """The wanted limits that the GPU accepts, and why others cannot be set (empty: all can).

    Tries to set the limit in force again, which changes nothing and shows whether one may.
    """
    nvml: Any = meter.nvml
    now = nvml.nvmlDeviceGetPowerManagementLimit(meter.handle)
    try:
        low, high = nvml.nvmlDeviceGetPowerManagementLimitConstraints(meter.handle)
        nvml.nvmlDeviceSetPowerManagementLimit(meter.handle, now)
    except nvml.NVMLError as error:
        return [
            now / 1e3
        ], f"power limits may not be set ({error}); root would help: one limit, {now / 1e3:g} W"
    inside = [limit for limit in wanted_w if low <= 1e3 * limit <= high] or [now / 1e3]
    outside = [f"{limit:g}" for limit in wanted_w if not low <= 1e3 * limit <= high]
    reason = (
        f"limits outside {low / 1e3:g} to {high / 1e3:g} W left out: {', '.join(outside)}" if outside else ""
    )
    return sorted(inside, reverse=True), reason


def set_limit(meter: NvmlMeter, limit_w: float) -> None:
    """Limit the GPU [W]."""
    meter.nvml.nvmlDeviceSetPowerManagementLimit(meter.handle, round(1e3 * limit_w))
