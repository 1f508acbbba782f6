"""Published figures about failures of training clusters, read from `published.json`.

`read` says how each number is known: seen in the paper's text or quoted from it, or as notes on the paper report it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec


class Cause(msgspec.Struct, frozen=True):
    """A row of Llama 3's table of interruptions: how many, and the share of all that is printed beside."""

    cause: str
    component: str
    count: int
    printed_percent: float


class Llama3(msgspec.Struct, frozen=True):
    """Interruptions of the pre-training of Llama 3 405B; `effective_percent` is a bound, with no setting beside it."""

    source: str
    days: int
    gpus: int
    gpus_per_node: int
    interruptions: int
    planned: int
    unexpected: int
    hardware_percent: float
    gpu_percent: float
    effective_percent: float
    causes: tuple[Cause, ...]


class Cluster(msgspec.Struct, frozen=True):
    """The failure rate of a cluster, and how it is known."""

    failures_per_1000_node_days: float
    read: str


class Mttf(msgspec.Struct, frozen=True):
    """Mean hours between failures of a job: projected from the rate, or measured."""

    gpus: int
    hours: float
    projected: bool
    read: str


class Ettr(msgspec.Struct, frozen=True):
    """An effective training time ratio; the tolerance is None where the number is shown and not judged."""

    cluster: str
    gpus: int
    interval_min: float
    write_min: float
    restart_min: float
    published: float
    tolerance: float | None
    version: str
    read: str


class Meta(msgspec.Struct, frozen=True):
    """The numbers of "Revisiting Reliability"."""

    source: str
    versions: dict[str, str]
    gpus_per_node: int
    clusters: dict[str, Cluster]
    mttf: tuple[Mttf, ...]
    ettr: tuple[Ettr, ...]


class _File(msgspec.Struct, frozen=True):
    llama3: Llama3
    meta: Meta


_DATA: Final = msgspec.json.decode(Path(__file__).with_name("published.json").read_bytes(), type=_File)
LLAMA3: Final = _DATA.llama3
META: Final = _DATA.meta
