"""Joules, read where the machine offers a counter, and never made up.

`find_meter` tries NVML's total-energy counter, then RAPL. Where neither can be read it says why and what would help.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

RAPL_ROOT = Path("/sys/class/powercap")


class Meter(Protocol):
    """A counter of energy."""

    @property
    def sensor(self) -> str:
        """What is read, in words."""

    def read_j(self) -> float:
        """Joules counted so far; differences of two readings are what was used between them."""


@dataclass(frozen=True)
class NoMeter:
    """Nothing can be read: one line a sensor, each with what would help."""

    reasons: tuple[str, ...]


@dataclass
class RaplMeter:
    """Package energy of the processors: microjoule counters that wrap at their stated range."""

    zones: tuple[Path, ...]
    _last: dict[Path, int] = field(default_factory=dict)
    _total: dict[Path, int] = field(default_factory=dict)

    @property
    def sensor(self) -> str:
        """Which zones are read."""
        return f"RAPL {', '.join(zone.name for zone in self.zones)}: whole processor packages, memory not included"

    def read_j(self) -> float:
        """Joules since the first reading; must be read more often than the counter wraps (minutes)."""
        for zone in self.zones:
            now = int((zone / "energy_uj").read_text())
            before = self._last.get(zone, now)
            step = now - before
            if step < 0:
                step += int((zone / "max_energy_range_uj").read_text()) + 1
            self._total[zone] = self._total.get(zone, 0) + step
            self._last[zone] = now
        return sum(self._total.values()) / 1e6


@dataclass
class NvmlMeter:
    """A GPU's own total-energy counter (Volta and later), in millijoules since the driver was loaded."""

    nvml: Any
    handle: Any
    name: str

    @property
    def sensor(self) -> str:
        """Which GPU is read."""
        return f"NVML total energy of {self.name}"

    def read_j(self) -> float:
        """Joules since the driver was loaded."""
        return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1e3


def find_meter(device: str, index: int = 0) -> Meter | NoMeter:
    """The meter for a device, `cuda` or `cpu`, or why there is none."""
    return _nvml(index) if device == "cuda" else _rapl(RAPL_ROOT)


def _nvml(index: int) -> Meter | NoMeter:
    try:
        nvml = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        return NoMeter(
            ("NVML: the package nvidia-ml-py is not installed; `pip install nvidia-ml-py` would help",)
        )
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        meter = NvmlMeter(nvml, handle, str(nvml.nvmlDeviceGetName(handle)))
        meter.read_j()
    except nvml.NVMLError as error:
        return NoMeter((f"NVML: {error}; the energy counter needs an NVIDIA driver and a GPU from Volta on",))
    return meter


def _rapl(root: Path) -> Meter | NoMeter:
    zones = sorted(root.glob("intel-rapl:[0-9]")) if root.is_dir() else []
    if not zones:
        return NoMeter(
            (
                f"RAPL: {root} has no intel-rapl zone; a virtual machine or another processor. "
                "Measuring on bare metal, or on a GPU with NVML, would help",
            )
        )
    try:
        meter = RaplMeter(tuple(zones))
        meter.read_j()
    except OSError as error:
        help_with = f"`sudo chmod a+r {zones[0]}/energy_uj` would help"
        return NoMeter((f"RAPL: {error.filename} cannot be read ({error.strerror}); {help_with}",))
    return meter
