"""The machine behind a log, as far as it is given or was inferred, and what was found out about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np

from forerun.cluster.inputs.setting import Window
from forerun.core.errors import ScenarioError, known_names
from forerun.core.scenario.decode import decode
from forerun.core.scenario.spec import Spec
from forerun.core.scenario.text import read_document
from forerun.site.history import I64, History, Mask

Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]

#: what can be inferred, and so switched off
INFERRED: Final = ("pools", "windows", "latencies", "limits", "holds")


class Pool(Spec, frozen=True, kw_only=True):
    """Nodes that only some jobs use, and all of them alike.

    name: for people. nodes: how many. most_nodes: jobs that ask for no more belong to it, unless a smaller pool has them
    (default 0: all). partition: jobs of this partition, or of these, with commas between, belong to it, whatever they ask
    for (default: none). most_s: what a job without a requested time asks for (default 0: the longest request). launch_s:
    from the decision to the start (default 0). turnover_s: from an end until its nodes can be used (default 0).
    running_per_user: how many jobs of a user may run at once (default 0: any number).
    """

    name: str
    nodes: Positive
    most_nodes: Annotated[int, msgspec.Meta(ge=0)] = 0
    partition: str = ""
    most_s: Seconds = 0.0
    launch_s: Seconds = 0.0
    turnover_s: Seconds = 0.0
    running_per_user: Annotated[int, msgspec.Meta(ge=0)] = 0

    def takes(self, log: History) -> Mask:
        """bool[jobs]: those that may belong to it by their partition or size, however many nodes it has."""
        if not self.partition:
            return log.nodes <= (self.most_nodes or np.inf)
        codes = [code for code, name in enumerate(log.partition.names) if name in self.partition.split(",")]
        return np.isin(log.partition.codes, codes)


def first_of(taken: Sequence[Mask]) -> I64:
    """int64[jobs]: the number of the first pool that takes each job; -1: none does."""
    return np.where(np.any(taken, axis=0), np.argmax(taken, axis=0), -1)


def pool_of(log: History, pools: Sequence[Pool]) -> I64:
    """int64[jobs]: the pool of each job; -1: it fits in none, such as a job on the whole machine."""
    return first_of([pool.takes(log) & (log.nodes <= pool.nodes) for pool in pools])


class Outage(Spec, frozen=True, kw_only=True):
    """A time in which no job runs on some nodes. Times in seconds since 1970, on the log's clock.

    from_s, to_s: from when to when. announced_s: when the scheduler learns of it; no job starts after that whose request
    reaches into it. nodes: how many of which pool are away, by its name (default: all of all pools).
    """

    from_s: float
    to_s: float
    announced_s: float
    nodes: dict[str, Positive] = {}

    @classmethod
    def seen(cls, window: Window, pool: Pool, origin_s: float) -> Outage:
        """From a window of the last pool on the clock of a log: others are out as well, unless some of its nodes are not."""
        from_s, to_s, announced_s = (
            at_s + origin_s for at_s in (window.from_s, window.to_s, window.announced_s)
        )
        nodes = {pool.name: window.gpus} if window.gpus < pool.nodes else {}
        return cls(from_s=from_s, to_s=to_s, announced_s=announced_s, nodes=nodes)

    def of(self, pool: Pool) -> int:
        """How many nodes of a pool are away."""
        return min(self.nodes.get(pool.name, 0), pool.nodes) if self.nodes else pool.nodes

    def window(self, pool: Pool, origin_s: float) -> Window:
        """On the clock of a log, as a window of a pool; an outage of others takes none of its nodes."""
        from_s, to_s, announced_s = (at_s - origin_s for at_s in (self.from_s, self.to_s, self.announced_s))
        return Window(from_s=from_s, to_s=to_s, gpus=self.of(pool), announced_s=announced_s)


class System(Spec, frozen=True, kw_only=True):
    """A machine: its pools and outages, and whose waiting counts as being held.

    pools: smallest first. windows: outages (default: none). held_after_s: a job is held that still waits so long after the
    policy would have started it; 0: none is (default two days).
    """

    pools: tuple[Pool, ...]
    windows: tuple[Outage, ...] = ()
    held_after_s: Seconds = 172_800.0


class Finding(Spec, frozen=True, kw_only=True):
    """Something inferred from the log, with its evidence.

    about: what can be switched off, one of `INFERRED`. what: what was found. evidence: in what it shows.
    """

    about: str
    what: str
    evidence: str


def read_system(path: Path) -> System:
    """The machine that a file describes. Raises ScenarioError with every problem of the file."""
    document = read_document(path)
    system = decode(document, System)
    if not system.pools:
        raise ScenarioError.at(document.where(("pools",)), "a machine has at least one pool")
    names = [pool.name for pool in system.pools]
    for at, pool in enumerate(system.pools):
        if pool.name in names[:at]:
            raise ScenarioError.at(document.where(("pools", at)), f"two pools are named {pool.name!r}")
    for at, window in enumerate(system.windows):
        for name in window.nodes:
            if name not in names:
                place = ("windows", at, "nodes")
                raise ScenarioError.at(
                    document.where(place), f"no pool is named {name!r}; {known_names(name, names)}"
                )
        if not window.announced_s <= window.from_s < window.to_s:
            what = "a window is announced by the time it begins, and ends after that"
            raise ScenarioError.at(document.where(("windows", at)), what)
    return system
