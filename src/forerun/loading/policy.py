"""The decisions of the loading domain: tuners, what they may see, what they return.

A tuner asks for probes of cells (samples a block x threads), receives the measurements, and chooses a cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
#: a run that waits less than this share of its time shows no stall
HIDDEN: Final = 0.01

#: samples in a buffer that is never full
UNBOUNDED = int(np.iinfo(np.int64).max // 4)
#: where policies are looked for
_PACKAGE = "forerun.loading.policies"


@dataclass(frozen=True)
class Load:
    """The work of a loader, whatever its configuration.

    Parameters
    ----------
    samples : of an epoch.
    sample_bytes : their mean size.
    batch : samples a batch.
    step_s : seconds of a step.
    buffer_samples : decoded samples that may wait for the loop (default: any number).
    """

    samples: int
    sample_bytes: float
    batch: int
    step_s: float
    buffer_samples: int = UNBOUNDED


@dataclass(frozen=True, order=True)
class Cell:
    """A configuration of a loader.

    Parameters
    ----------
    block : samples a block.
    threads : of the loader, or of each worker's pool.
    workers : worker processes (default: 0: a loader of threads).
    cache_bytes : of a cache before the store (default: 0: none).
    sharing, cache_policy : of the caches of nodes, `cache_bytes` each (default: empty: no nodes).
    decoder : `cpu` or `gpu` (default: empty: as the scenario has it).
    """

    block: int
    threads: int
    workers: int = 0
    cache_bytes: float = 0.0
    sharing: str = ""
    cache_policy: str = ""
    decoder: str = ""

    @property
    def merged(self) -> str:
        """Its blocks in words."""
        return "single samples" if self.block == 1 else f"blocks of {self.block}"

    @property
    def many(self) -> str:
        """Its threads in words."""
        return "1 thread" if self.threads == 1 else f"{self.threads} threads"

    def __str__(self) -> str:
        text = f"{self.block} x {self.threads}"
        text += f" x {self.workers} workers" if self.workers else ""
        text += f" + {self.cache_bytes:g} bytes of cache" if self.cache_bytes else ""
        text += f", {self.cache_policy}, sharing {self.sharing}" if self.sharing else ""
        return text + (f", decoded on the {self.decoder}" if self.decoder else "")


@dataclass(frozen=True)
class Probe:
    """A measured run of a cell.

    Parameters
    ----------
    samples : read.
    total_s : seconds, the last step included.
    request_s, decode_s : mean seconds of a request and of decoding a sample.
    load_share : waits after the first batch, as a share of the total (default: nan: unknown).
    requests_s : float64, single requests, for intervals (default: None: not recorded).
    overhead_s : a thread's own work a request, beyond reading and decoding (None: not measured).
    decode_cpu_s : the part of decode_s that needed a core (0: not measured).
    cores_used : processor seconds of the whole process a second of the run (None: not measured).
    cores_wanted : the same, and the time in which its threads waited for a processor.
    """

    cell: Cell
    samples: int
    total_s: float
    request_s: float
    decode_s: float
    load_share: float = math.nan
    requests_s: F64 | None = None
    overhead_s: float | None = None
    decode_cpu_s: float = 0.0
    cores_used: float | None = None
    cores_wanted: float = 0.0


@dataclass(frozen=True)
class Ask:
    """A probe that a tuner asks for: a cell, and the number of samples to read."""

    cell: Cell
    samples: int


class Tuner(Protocol):
    """A tuner at work in one run: asks for probes, then chooses."""

    def ask(self) -> Ask | None:
        """The next probe, None if no more are needed."""

    def tell(self, probe: Probe) -> None:
        """Receive the measurement of the last probe."""

    def choice(self) -> Cell:
        """The cell to run."""


@dataclass(frozen=True)
class TunerView:
    """What a tuner may know.

    Parameters
    ----------
    cells : to choose from.
    load : the work.
    memory_bytes : that blocks in memory may take.
    rng : the tuner's own random stream.
    """

    cells: tuple[Cell, ...]
    load: Load
    memory_bytes: float
    rng: np.random.Generator


class TunerSpec(NamedSpec, frozen=True, kw_only=True):
    """A tuner as a file names it."""

    def build(self, view: TunerView) -> Tuner:
        """A tuner for one run."""
        raise NotImplementedError


@cache
def tuners() -> Registry[TunerSpec]:
    """The tuners."""
    return Registry("tuner", _PACKAGE, base=TunerSpec, group="forerun.loading.tuner")
