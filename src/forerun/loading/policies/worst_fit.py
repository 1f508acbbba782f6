"""The emptiest node on which the worker fits, its chunks with it."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.loading.policy import PlacementView, RankingSpec, free_share


class WorstFit(RankingSpec, frozen=True, kw_only=True, tag="worst_fit"):
    """The emptiest node on which the worker fits, its chunks with it."""

    def rank(self, view: PlacementView, node: int, fitting: Sequence[int]) -> float:
        """The node's rank, least first."""
        return -free_share(view, node, fitting)
