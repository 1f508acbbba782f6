"""The longest evaluation first."""

from __future__ import annotations

import numpy as np

from forerun_evaluation.policy import Order, View


class LongestFirst(Order, tag="longest-first", frozen=True, kw_only=True):
    """The longest remaining evaluation (Graham, SIAM Journal on Applied Mathematics 17, 1969: at most 4/3 - 1/(3m) of the
    optimum).
    """

    def choose(self, view: View) -> int:
        """The longest that remains, the first among equals."""
        return int(np.argmax(view.duration_s))
