"""Who is in the fleet when.

Times are seconds from the start of the run. A node is known by its rank in the natural order of the names (`node2`
before `node10`), so that ties between nodes never depend on spelling or on hashing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache


@lru_cache(maxsize=65_536)
def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Order of node names: text as text, runs of digits as numbers."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple(
        (0, int(part), part) if part.isdigit() and part.isascii() else (1, 0, part) for part in parts
    )


@dataclass(frozen=True, slots=True)
class Instant:
    """All membership changes at one time.

    Parameters
    ----------
    t_s : when.
    removed, added : ranks of the nodes that vanish and come.
    """

    t_s: float
    removed: tuple[int, ...]
    added: tuple[int, ...]

    def shifted(self, by: int) -> Instant:
        """The same changes where the ranks of the nodes are greater."""
        removed, added = (tuple(node + by for node in nodes) for nodes in (self.removed, self.added))
        return Instant(self.t_s, removed, added)


@dataclass(frozen=True, slots=True)
class Membership:
    """Who was in the fleet when.

    Parameters
    ----------
    instants : in order of time, with nodes as ranks into `names`.
    names : of all nodes that were ever there, in natural order.
    """

    instants: tuple[Instant, ...]
    names: tuple[str, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[float, bool, str]]) -> Membership:
        """Group rows (time in s, whether the node is added, name) by instant; rows of one instant in any order."""
        listed = list(rows)
        names = tuple(sorted({name for _, _, name in listed}, key=natural_key))
        rank = {name: number for number, name in enumerate(names)}
        grouped: dict[float, tuple[list[int], list[int]]] = {}
        for t_s, is_add, name in listed:
            grouped.setdefault(t_s, ([], []))[1 if is_add else 0].append(rank[name])
        instants = tuple(
            Instant(t_s, tuple(sorted(removed)), tuple(sorted(added)))
            for t_s, (removed, added) in sorted(grouped.items())
        )
        return cls(instants, names)

    def rows(self) -> Iterator[tuple[float, bool, str]]:
        """The changes as rows again, removals before additions within an instant."""
        for instant in self.instants:
            for node in instant.removed:
                yield instant.t_s, False, self.names[node]
            for node in instant.added:
                yield instant.t_s, True, self.names[node]

    @property
    def end_s(self) -> float:
        """Time of the last change; 0 for a trace without rows."""
        return self.instants[-1].t_s if self.instants else 0.0

    def with_on_demand(self, nodes: int) -> Membership:
        """The fleet with nodes that never vanish beside it.

        Parameters
        ----------
        nodes : how many. They come first in every order, so they fill pipelines first.
        """
        if nodes == 0:
            return self
        names = tuple(f"on-demand-{i}" for i in range(nodes)) + self.names
        shifted = [instant.shifted(nodes) for instant in self.instants]
        start = Instant(0.0, (), ())
        if shifted and shifted[0].t_s <= 0:
            start = shifted.pop(0)
        first = Instant(0.0, start.removed, (*range(nodes), *start.added))
        return Membership((first, *shifted), names)
