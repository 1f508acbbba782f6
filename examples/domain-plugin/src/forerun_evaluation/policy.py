"""What a policy sees and decides: the remaining evaluations, and which of them starts next."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec


@dataclass(frozen=True)
class View:
    """What a policy may know: now_s, and the measured durations of the remaining evaluations, in the order of the file."""

    now_s: float
    duration_s: NDArray[np.float64]


class Order(NamedSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chooses the evaluation that starts on an idle GPU."""

    def choose(self, view: View) -> int:
        """The position, among the remaining evaluations, of the one that starts now."""
        raise AssertionError(f"{type(self).__name__} chooses nothing")


@functools.cache
def orders() -> Registry[Order]:
    """The policies of this package and of others."""
    return Registry(
        "order of evaluations",
        "forerun_evaluation.policies",
        base=Order,
        group="forerun.evaluation.policy",
    )
