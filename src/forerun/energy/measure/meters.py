"""Meters of energy: joules from a counter of the machine, never invented.

`find_meter` tries NVML's total-energy counter, then sampled power of GPUs without one; RAPL for processors. Where none
can be read it says why and what would help.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

RAPL_ROOT = Path("/sys/class/powercap")
#: no processor package draws more: a counter that fell and would need more to have wrapped was reset
MOST_PACKAGE_W: Final = 5_000.0
#: how often power is read where a GPU has no counter of energy
SAMPLE_S: Final = 0.02


class CounterReset(OSError):
    """A counter began again from zero, so that its window gives no joules."""


class Meter(Protocol):
    """A counter of energy: differences of two readings are the energy used between them."""

    @property
    def sensor(self) -> str:
        """What is read, in words."""

    def read_j(self) -> float:
        """Joules counted so far; differences of two readings are the energy used between them.

        Raises CounterReset if the counter began again since the last reading, OSError if it cannot be read.
        """


@dataclass(frozen=True)
class NoMeter:
    """Nothing can be read.

    Parameters
    ----------
    reasons : one line a sensor, each with what would help.
    """

    reasons: tuple[str, ...]


@dataclass
class RaplMeter:
    """Package energy of the processors: microjoule counters that wrap at their stated range.

    Parameters
    ----------
    zones : folders of the packages.
    clock : reads seconds (default: the monotonic clock).
    """

    zones: tuple[Path, ...]
    clock: Callable[[], float] = time.monotonic
    _last: dict[Path, tuple[int, float]] = field(default_factory=dict)
    _total: dict[Path, int] = field(default_factory=dict)

    @property
    def sensor(self) -> str:
        """Which zones are read."""
        return f"RAPL {', '.join(zone.name for zone in self.zones)}: whole processor packages, memory not included"

    def read_j(self) -> float:
        """Joules since the first reading; must be read more often than the counter wraps (minutes).

        Raises CounterReset where a counter fell and did not wrap, OSError where one cannot be read.
        """
        reset = []
        for zone in self.zones:
            now, at_s = _number(zone / "energy_uj"), self.clock()
            before, before_s = self._last.get(zone, (now, at_s))
            self._last[zone] = now, at_s
            step = now - before
            if step < 0:
                step += _number(zone / "max_energy_range_uj") + 1
                if step > MOST_PACKAGE_W * 1e6 * (at_s - before_s):
                    reset.append(zone.name)
                    continue
            self._total[zone] = self._total.get(zone, 0) + step
        if reset:
            raise CounterReset(
                f"{', '.join(reset)} began again from zero (a suspended or restarted machine?)"
            )
        return sum(self._total.values()) / 1e6


def _number(path: Path) -> int:
    """The whole number in a file of the kernel. Raises OSError naming the file."""
    text = path.read_text().strip()
    if not text.isdigit():
        raise OSError(0, f"is {text[:40]!r}, not a number", str(path))
    return int(text)


@dataclass
class NvmlMeter:
    """A GPU's own total-energy counter (Volta and later), in millijoules since the driver was loaded.

    Parameters
    ----------
    nvml : the module of NVML.
    handle : its handle of the device.
    name : of the GPU.
    """

    nvml: Any
    handle: Any
    name: str
    _last_mj: int = -1

    @property
    def sensor(self) -> str:
        """Which GPU is read."""
        return f"NVML total energy of {self.name}"

    def read_j(self) -> float:
        """Joules since the driver was loaded. Raises CounterReset where it was loaded again, OSError if unreadable."""
        try:
            now = int(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle))
        except self.nvml.NVMLError as error:
            raise OSError(0, str(error), self.sensor) from error
        fell, self._last_mj = now < self._last_mj, now
        if fell:
            raise CounterReset("the GPU's counter began again from zero (its driver was loaded again?)")
        return now / 1e3


@dataclass
class SampledNvmlMeter:
    """Power of a GPU without a counter of energy, sampled and summed as trapezoids: an estimate, labelled as one.

    Sampling begins with the first `read_j` and ends with `stop`; `sample` may also be called by hand.

    Parameters
    ----------
    nvml : the module of NVML.
    handle : its handle of the device.
    name : of the GPU.
    clock : reads seconds (default: the monotonic clock).
    """

    nvml: Any
    handle: Any
    name: str
    clock: Callable[[], float] = time.monotonic
    _total_j: float = 0.0
    _last: tuple[float, float] | None = None
    _lock: Any = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    _ending: threading.Event = field(default_factory=threading.Event)

    @property
    def sensor(self) -> str:
        """Which GPU is read, and how."""
        return f"NVML power of {self.name}, sampled every {SAMPLE_S:g} s: an estimate, the GPU has no energy counter"

    def sample(self) -> float:
        """Read the power now and add the trapezoid since the last reading; joules so far."""
        with self._lock:
            now_s = self.clock()
            try:
                watts = self.nvml.nvmlDeviceGetPowerUsage(self.handle) / 1e3
            except self.nvml.NVMLError as error:
                raise OSError(0, str(error), self.sensor) from error
            if self._last is not None:
                before_s, before_w = self._last
                self._total_j += (now_s - before_s) * (watts + before_w) / 2
            self._last = now_s, watts
            return self._total_j

    def read_j(self) -> float:
        """Joules since the first sample."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True)
            self._thread.start()
        return self.sample()

    def stop(self) -> None:
        """End the sampling."""
        self._ending.set()

    def _sample_until_stopped(self) -> None:
        """Sample the power until `stop` is called."""
        while not self._ending.wait(SAMPLE_S):
            with contextlib.suppress(OSError):
                self.sample()


def find_meter(device: str, index: int = 0) -> Meter | NoMeter:
    """The meter for a device, or why there is none.

    Parameters
    ----------
    device : `cuda` or `cpu`.
    index : of the GPU.
    """
    return _nvml(index) if device == "cuda" else _rapl(RAPL_ROOT)


def _nvml(index: int) -> Meter | NoMeter:
    """The meter of an NVIDIA GPU: its energy counter, else its sampled power.

    Parameters
    ----------
    index : of the GPU.

    Returns the reasons where neither can be read.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        return NoMeter(
            ("NVML: the package nvidia-ml-py is not installed; `pip install nvidia-ml-py` would help",)
        )
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = str(nvml.nvmlDeviceGetName(handle))
    except nvml.NVMLError as error:
        return NoMeter((f"NVML: {error}; the energy counter needs an NVIDIA driver and a GPU from Volta on",))
    problem = ""
    for meter in (NvmlMeter(nvml, handle, name), SampledNvmlMeter(nvml, handle, name)):
        try:
            # Not `read_j`: that would begin to sample before there is anything to measure.
            _ = meter.read_j() if isinstance(meter, NvmlMeter) else meter.sample()
        except OSError as error:
            problem = str(error.strerror)
            continue
        return meter
    return NoMeter(
        (f"NVML: {name} reports neither its energy nor its power ({problem}); another driver might help",)
    )


def _rapl(root: Path) -> Meter | NoMeter:
    """The meter of the processor packages."""
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
