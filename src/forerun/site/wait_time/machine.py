"""What the jobs of a log show of the machine that they ran on: pools of nodes, and maintenance at regular times.

Everything here uses only the history that it is given: as of an instant, it is what could be known then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.cluster.inputs.setting import Window
from forerun.site.replay.history import History, Mask
from forerun.site.replay.machine import ceiling, in_use, outages_of, small_pool

_HOUR_S: Final = 3600.0
_DAY_S: Final = 24 * _HOUR_S
#: the pool has the nodes that were in use in the last weeks
FULL_S: Final = 28 * _DAY_S
#: maintenance: an outage of so long that comes back after whole days, this precisely
OUTAGE_S: Final = 3 * _HOUR_S
REGULAR_S: Final = 4 * _HOUR_S


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that some of the jobs run on, and no others.

    Parameters
    ----------
    least, most : nodes of its smallest and largest jobs; infinite: any.
    partition : its name in the log; empty where pools differ in the size of jobs.
    """

    least: int = 1
    most: float = np.inf
    partition: str = ""

    def has(self, log: History) -> Mask:
        """bool[jobs], those that run in it."""
        if self.partition:
            code = log.partition.names.index(self.partition)
            return np.asarray(log.partition.codes == code)
        return (log.nodes >= self.least) & (log.nodes <= self.most)

    def __str__(self) -> str:
        if self.partition:
            return f"partition {self.partition}"
        if self.least <= 1 and np.isinf(self.most):
            return "all nodes"
        return (
            f"jobs of {self.least} nodes and more"
            if np.isinf(self.most)
            else f"jobs of up to {self.most:.0f} nodes"
        )


def pools_of(known: History) -> tuple[Pool, ...]:
    """The pools that the sizes of jobs tell apart, smallest first; one, if they do not.

    Parameters
    ----------
    known : as of the instant.
    """
    small = small_pool(known)
    if small is None:
        return (Pool(),)
    most = small[0].most_nodes
    return Pool(most=most), Pool(least=most + 1)


def nodes_of(known: History, at_s: float) -> int:
    """Nodes of a pool whose jobs these are: the most in use lately, for more than a moment. 0: nothing ever ran.

    Parameters
    ----------
    known : the pool's jobs, as of the instant.
    at_s : the instant.
    """
    ran = known.of(known.started & ~(known.end_s <= at_s - FULL_S) & (known.start_s <= at_s))
    return max(ceiling(*in_use(ran, at_s - FULL_S, at_s))[0], int(ran.nodes.max(initial=0)))


def regular_maintenance(known: History, at_s: float) -> tuple[Window, ...]:
    """The next maintenance, where the last ones came at equal distances of whole days; else none.

    Parameters
    ----------
    known : the pool's jobs, as of the instant.
    at_s : the instant.
    """
    outages = [
        one
        for one in outages_of(known, int(known.nodes.max(initial=0)), 0)
        if one.to_s - one.from_s >= OUTAGE_S
    ]
    if len(outages) < 2:
        return ()
    last_s = outages[-1].from_s
    days = round((last_s - outages[-2].from_s) / _DAY_S)
    if days < 1 or abs(last_s - outages[-2].from_s - days * _DAY_S) > REGULAR_S:
        return ()
    length_s = float(np.median([one.to_s - one.from_s for one in outages[-3:]]))
    begin_s = last_s + days * _DAY_S
    if at_s >= begin_s + length_s:  # it did not come
        return ()
    return (Window(from_s=begin_s, to_s=begin_s + length_s, gpus=0, announced_s=at_s),)
