"""Evaluations as the file lists them."""

from __future__ import annotations

from forerun_evaluation.policy import Order, View


class InOrder(Order, tag="in-order", frozen=True, kw_only=True):
    """Evaluations in the order of the file (Graham, Bell System Technical Journal 45, 1966: at most 2 - 1/m of the
    optimum).
    """

    def choose(self, view: View) -> int:
        """The first that remains."""
        return 0
