"""The rate at which samples arrive, by number of readers.

Training steps of `batch` samples cannot be more frequent than supply / batch per second, however fast the computing is.
The lesser of the two rates is exact for a loader with an unbounded buffer; with a bounded buffer and random times a
little is lost if the two are nearly equal, which `min_law_error` states if it was simulated.
"""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np

from forerun.core.errors import ProfileError
from forerun.core.scenario.numbers import Count, Positive
from forerun.core.scenario.spec import Spec


class Supply(Spec, frozen=True, kw_only=True):
    """Samples per second that the readers of one job receive together if nothing computes.

    source: the scenario it comes from (default: unknown). readers: numbers of readers, ascending. samples_per_s: the
    supply of each number. low_per_s, high_per_s: 95 % bounds of each figure (default: none). min_law_error: relative
    error of the lesser of supply and compute rate against the simulated throughput at the scenario's own step, positive
    if it promises too much (default 0: not compared).
    """

    profile: Literal["supply"] = "supply"
    spec_version: int = 1
    source: str = ""
    readers: tuple[Count, ...]
    samples_per_s: tuple[Positive, ...]
    low_per_s: tuple[Positive, ...] = ()
    high_per_s: tuple[Positive, ...] = ()
    min_law_error: float = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """One positive figure for each number of readers, which ascend from at least 1."""
        problems = []
        if not self.readers:
            problems.append(("readers", "is empty; the supply of one reader at least is wanted"))
        elif self.readers[0] < 1 or any(b <= a for a, b in itertools.pairwise(self.readers)):
            problems.append(("readers", "must rise from at least 1"))
        for name in ("samples_per_s", "low_per_s", "high_per_s"):
            values = getattr(self, name)
            if (values or name == "samples_per_s") and len(values) != len(self.readers):
                problems.append(
                    (name, f"has {len(values)} figures for {len(self.readers)} numbers of readers")
                )
        return problems

    def at(self, readers: int) -> float:
        """Samples per second of so many readers together, linear between the simulated numbers.

        Raises ProfileError outside them: the number of readers at which a store saturates is unknown.
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
