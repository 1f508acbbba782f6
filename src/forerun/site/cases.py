"""The jobs of one pool as a replay takes them: who can start when, and who is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.cluster.inputs.setting import Window
from forerun.site.history import F64, I64, History, Mask
from forerun.site.kernels.overtaking import overtaken
from forerun.site.machine import Pool, System, pool_of

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
    def run_s(self) -> F64:
        """float64[jobs]: how long each runs."""
        return self.end_s - self.start_s

    @property
    def wait_s(self) -> F64:
        """float64[jobs]: how long each waited in history."""
        return self.start_s - self.submit_s

    @property
    def extra_s(self) -> float:
        """For how much longer than it runs a job has its nodes."""
        return self.pool.launch_s + self.pool.turnover_s

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
    request_s = mine.request_s(pool.most_s)
    believed_s = np.maximum(mine.start_s + request_s, log.last_s + 1.0)
    end_s = np.where(np.isnan(mine.end_s), believed_s, mine.end_s)
    eligible_s = np.where(np.isnan(mine.eligible_s), mine.submit_s, mine.eligible_s)
    never_s = np.full(len(rows), np.inf)
    doubted_s = overtakings(mine, request_s, _PATIENCE_S)[0] if system.held_after_s else never_s
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
        windows=tuple(window.window(pool, log.origin_s) for window in system.windows),
        begin_s=log.complete_from_s,
    )


def overtakings(
    jobs: History, request_s: F64, patience_s: float, since_s: float = -np.inf
) -> tuple[F64, I64]:
    """When each job was first overtaken while it waited, infinite: never; and how many times.

    Parameters
    ----------
    jobs : all of a pool.
    request_s : what they ask for.
    patience_s : only jobs that came so much later overtake it.
    since_s : from when on starts are looked at (default: all are).
    """
    first_s, times = np.full(len(jobs), np.inf), np.zeros(len(jobs), np.int64)
    began = np.flatnonzero(jobs.start_s > since_s)
    began = began[np.argsort(jobs.start_s[began], kind="stable")]
    gone_s = np.where(jobs.started, jobs.start_s, jobs.end_s)
    overtaken(jobs.submit_s, gone_s, jobs.nodes, request_s, began, patience_s, first_s, times)
    return first_s, times
