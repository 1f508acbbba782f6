"""The machine that something was measured on, and how quiet it was."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Probe:
    """What the machine does besides: load average, time stolen by others on the same hardware, sleeps that last longer.

    Parameters
    ----------
    load_average : over the last minute.
    oversleep_p99_ms : 99th percentile of how much longer a sleep of 1 ms takes.
    stolen_ticks, ticks : of the processors since the machine started: stolen, and all.
    """

    load_average: float
    oversleep_p99_ms: float
    stolen_ticks: int
    ticks: int


def probe() -> Probe:
    """Look now; takes a third of a second."""
    late = []
    for _ in range(200):
        began_s = time.monotonic()
        time.sleep(0.001)
        late.append(time.monotonic() - began_s - 0.001)
    stolen, ticks = _ticks()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return Probe(load, float(np.quantile(late, 0.99)) * 1e3, stolen, ticks)


def described(before: Probe, after: Probe) -> dict[str, Any]:
    """The host as a record: what it is, and how quiet it was between two probes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    ticks = max(1, after.ticks - before.ticks)
    load = max(before.load_average, after.load_average)
    return {
        "processor": _processor(),
        "cores": cores,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load_average": round(load, 2),
        "stolen_share": round((after.stolen_ticks - before.stolen_ticks) / ticks, 4),
        "oversleep_p99_ms": round(max(before.oversleep_p99_ms, after.oversleep_p99_ms), 3),
        "quiet": load <= 2 * cores,
    }


def _ticks() -> tuple[int, int]:
    """(stolen, all) processor ticks since the machine started; (0, 0) where nobody counts them."""
    try:
        fields = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:]
    except (OSError, IndexError):
        return 0, 0
    counts = [int(value) for value in fields[:8]]
    return (counts[7] if len(counts) > 7 else 0), sum(counts)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.machine()
