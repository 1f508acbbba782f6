"""The jobs of one pool as a replay takes them: who can start when, and who is held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.cluster.engine.kernels.overtaking import overtaken
from forerun.cluster.inputs.setting import Window
from forerun.site.replay.history import F64, I64, History, Mask
from forerun.site.replay.system import Pool, System

#: jobs that came so much later overtake a waiting one
_PATIENCE_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs of a pool that started, by submission. Times in seconds from the log's origin.

    Parameters
    ----------
    pool : their nodes.
    rows : int64[jobs], where they stand in the history.
    submit_s, start_s, end_s : what happened; the end of a job that still runs is when it is believed to end.
    eligible_s : from when on it could start.
    nodes, request_s : what it asks for; the pool's most, or the longest request, where it has none.
    user : int64[jobs], 0: not known.
    doubted_s : when it is first overtaken; infinite: never. From then on no policy is asked about it.
    held_s : from when on it is taken for held; infinite: never, as before `play.with_holds`.
    released_s : when a policy last would have started it while it was held; minus infinity: it was not held.
    windows : outages.
    begin_s : from when on history is complete.
    """

    pool: Pool
    rows: I64
    submit_s: F64
    start_s: F64
    end_s: F64
    eligible_s: F64
    nodes: I64
    request_s: F64
    user: I64
    doubted_s: F64
    held_s: F64
    released_s: F64
    windows: tuple[Window, ...]
    begin_s: float

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def held(self) -> Mask:
        """bool[jobs]: whether it was ever seen to be held."""
        return np.isfinite(self.held_s)

    @property
    def since_s(self) -> F64:
        """float64[jobs]: from when on its wait gives it priority; it gathers none while it is held."""
        return np.maximum(self.submit_s, self.released_s)

    @property
    def users(self) -> int:
        """How many users there are, that of unknown ones included."""
        return int(self.user.max(initial=0)) + 1


def pool_of(log: History, pools: Sequence[Pool]) -> I64:
    """int64[jobs]: the pool of each job; -1: it fits in none, such as a job on the whole machine."""
    of = np.full(len(log), -1)
    names = {name: code for code, name in enumerate(log.partition.names)}
    for number, pool in enumerate(pools):
        if pool.partition:
            mine = np.isin(log.partition.codes, [names.get(name, -2) for name in pool.partition.split(",")])
        else:
            mine = log.nodes <= (pool.most_nodes or pool.nodes)
        of[(of < 0) & mine & (log.nodes <= pool.nodes)] = number
    return of


def case_of(log: History, system: System, number: int) -> Case:
    """The jobs of one pool.

    Parameters
    ----------
    log : the history.
    system : the machine.
    number : of the pool.
    """
    pool = system.pools[number]
    rows = np.flatnonzero((pool_of(log, system.pools) == number) & log.started)
    mine = log.of(rows)
    most_s = pool.most_s or float(np.nanmax(mine.requested_s, initial=1.0))
    request_s = np.where(np.isnan(mine.requested_s), most_s, np.maximum(mine.requested_s, 1.0))
    believed_s = np.maximum(mine.start_s + request_s, log.last_s + 1.0)
    end_s = np.where(np.isnan(mine.end_s), believed_s, mine.end_s)
    eligible_s = np.where(np.isnan(mine.eligible_s), mine.submit_s, mine.eligible_s)
    never_s = np.full(len(rows), np.inf)
    doubted_s = never_s.copy()
    if system.held_after_s:
        order = np.argsort(mine.start_s, kind="stable")
        overtaken(mine.submit_s, mine.start_s, mine.nodes, request_s, order, _PATIENCE_S, doubted_s)
    return Case(
        pool=pool,
        rows=rows,
        submit_s=mine.submit_s,
        start_s=mine.start_s,
        end_s=end_s,
        eligible_s=eligible_s,
        nodes=mine.nodes,
        request_s=request_s,
        user=mine.user.codes + 1,
        doubted_s=doubted_s,
        held_s=never_s,
        released_s=-never_s,
        windows=windows_of(log, system, pool),
        begin_s=log.complete_from_s,
    )


def windows_of(log: History, system: System, pool: Pool) -> tuple[Window, ...]:
    """All outages on the log's clock, as windows of a pool; one of others takes none of its nodes."""
    return tuple(
        Window(
            from_s=window.from_s - log.origin_s,
            to_s=window.to_s - log.origin_s,
            gpus=window.of(pool),
            announced_s=window.announced_s - log.origin_s,
        )
        for window in system.windows
    )
