"""The node that already stores most of the worker's chunks; the lowest on ties."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.loading.policy import PlacementView, RankingSpec


class MostResident(RankingSpec, frozen=True, kw_only=True, tag="most_resident"):
    """The node that already stores most of the worker's chunks; the lowest on ties."""

    def rank(self, view: PlacementView, node: int, fitting: Sequence[int]) -> float:
        """The node's rank, least first."""
        return -view.worker.resident(node)
