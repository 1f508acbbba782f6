"""Leases by the wall's clock: until when each group may run on a node, and from when its slots may be given away.

A node runs a group until its lease ends, by its own clock: the node's stamp in the heartbeat that was answered, and the
term. The controller does not know that clock. It counts from its answer, which came after the stamp, and adds a share for
clocks that differ in speed and a grace for the processes to end: from then on nobody of the group can still run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from forerun.cluster.scenario import Live
from forerun.live.engines.engine import Heartbeat, Term

#: by how much the speed of two clocks may differ
DRIFT: Final = 0.01
_Key = tuple[str, int, str]


class LeaseKeeper:
    """The leases of a run.

    Parameters
    ----------
    terms : how long they go.
    """

    def __init__(self, terms: Live) -> None:
        self.terms = terms
        self._stamps: dict[str, Term] = {}
        self._heard_s: dict[str, float] = {}
        self._ends_s: dict[_Key, float] = {}

    @property
    def safe_s(self) -> float:
        """Seconds from an answer until the slots of a group that is not renewed any more may be given away."""
        return self.terms.lease_s * (1 + DRIFT) + self.terms.grace_s

    def heard(self, node: str, boot: str, stamp_s: float, wall_s: float) -> None:
        """A node gave a sign of life.

        Parameters
        ----------
        node, boot : which, in which life.
        stamp_s : its own clock when it sent it.
        wall_s : the controller's clock now.
        """
        known = self._stamps.get(node)
        if known is None or known.boot != boot or stamp_s + self.terms.lease_s > known.end_s:
            self._stamps[node] = Term(boot, stamp_s + self.terms.lease_s)
        self._heard_s[node] = wall_s

    def expects(self, node: str, wall_s: float) -> None:
        """A node is expected to give a sign of life from now on."""
        self._heard_s.setdefault(node, wall_s)

    def lost(self, node: str) -> None:
        """A node is away; it is no longer expected to give signs of life."""
        self._heard_s.pop(node, None)

    def start(self, job: str, epoch: int, nodes: Iterable[str], wall_s: float) -> dict[str, Term]:
        """The terms of a start that is sent now, by node."""
        terms = {}
        for node in nodes:
            self._ends_s[job, epoch, node] = wall_s + self.safe_s
            if node in self._stamps:
                terms[node] = self._stamps[node]
        return terms

    def resume(self, groups: Iterable[_Key], wall_s: float) -> None:
        """Another controller gave these leases, nobody knows when: they count from now."""
        for key in groups:
            self._ends_s[key] = wall_s + self.safe_s

    def answer(self, beat: Heartbeat, groups: Mapping[str, int], wall_s: float) -> None:
        """A heartbeat is answered now: the leases of these groups go on, of those that the node has."""
        for job, epoch in groups.items():
            if beat.holds.get(job) == epoch and (job, epoch, beat.node) in self._ends_s:
                self._ends_s[job, epoch, beat.node] = wall_s + self.safe_s

    def freed(self, job: str, epoch: int, node: str) -> None:
        """A lease is over."""
        self._ends_s.pop((job, epoch, node), None)

    def expired(self, wall_s: float) -> list[_Key]:
        """Leases that are over by now, and the grace after them."""
        return sorted(key for key, end_s in self._ends_s.items() if end_s <= wall_s)

    def silent(self, wall_s: float) -> list[str]:
        """Nodes that have been silent for the term of a lease."""
        return sorted(node for node, at_s in self._heard_s.items() if wall_s >= at_s + self.terms.lease_s)

    def next_s(self) -> float:
        """When the next lease ends or the next node counts as silent; infinite if nothing is there to wait for."""
        silent_s = min(self._heard_s.values(), default=float("inf")) + self.terms.lease_s
        return min(min(self._ends_s.values(), default=float("inf")), silent_s)
