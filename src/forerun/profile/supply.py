"""How fast samples arrive: samples a second against readers.

A training step that needs `batch` samples cannot come more often than supply / batch a second, whatever computes it.
Taking the lesser of the two rates is exact for a loader that runs ahead without end; with a bounded buffer and random
times a little is lost where the two are nearly equal, and `min_law_error` says how much where it was simulated.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal

import numpy as np

from forerun.errors import ProfileError
from forerun.scenario.spec import Spec


class Supply(Spec, frozen=True, kw_only=True):
    """Samples a second that `readers` readers of one job get together, when nothing computes.

    `low_per_s` and `high_per_s` bound each figure (95 %). `min_law_error`: how far the lesser of supply and compute rate
    is from the simulated throughput at the loading scenario's own step, relative, positive where it promises too much;
    0 if it was not compared. `source` says which scenario this comes from.
    """

    profile: Literal["supply"] = "supply"
    spec_version: int = 1
    source: str = ""
    readers: tuple[int, ...]
    samples_per_s: tuple[float, ...]
    low_per_s: tuple[float, ...] = ()
    high_per_s: tuple[float, ...] = ()
    min_law_error: float = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """One positive figure a number of readers, readers ascending from at least 1."""
        found = []
        if not self.readers:
            found.append(("readers", "is empty; the supply of one reader at least is wanted"))
        elif self.readers[0] < 1 or any(b <= a for a, b in itertools.pairwise(self.readers)):
            found.append(("readers", "must rise from at least 1"))
        for name in ("samples_per_s", "low_per_s", "high_per_s"):
            values = getattr(self, name)
            if (values or name == "samples_per_s") and len(values) != len(self.readers):
                found.append((name, f"has {len(values)} figures for {len(self.readers)} numbers of readers"))
            found += [
                (f"{name}[{at}]", f"{value} samples/s is not positive and finite")
                for at, value in enumerate(values)
                if not 0 < value < math.inf
            ]
        return found

    def at(self, readers: int) -> float:
        """Samples a second that so many readers get together; straight between the simulated numbers.

        Raises ProfileError outside them: nobody knows when a store is full.
        """
        low, high = self.readers[0], self.readers[-1]
        if not low <= readers <= high:
            raise ProfileError.at(
                "supply profile",
                f"knows {low} to {high} readers, {readers} are asked for; make it again with --at up to {readers}",
            )
        return float(np.interp(readers, self.readers, self.samples_per_s))

    def step_s(self, compute_s: float, samples: float, readers: int) -> float:
        """Seconds a step of `samples` samples takes when computing alone takes `compute_s`."""
        return max(compute_s, samples / self.at(readers))
