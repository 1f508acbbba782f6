"""The power that a GPU draws while it trains, by batch size and power limit, and the speed that a limit costs."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from forerun.core.errors import ProfileError
from forerun.core.scenario.numbers import Count, Positive
from forerun.core.scenario.spec import Spec


class Draw(Spec, frozen=True, kw_only=True):
    """One measured configuration of one GPU.

    batch_size: samples a step. limit_w: power limit [W]. draw_w: mean draw [W]. speed: over that at the highest limit
    of this batch size.
    """

    batch_size: Count
    limit_w: Positive
    draw_w: Positive
    speed: Positive


class Power(Spec, frozen=True, kw_only=True):
    """The measured draws of one training job on one GPU type.

    source: where they come from (default: unknown). gpu_type: its name (default: unknown). points: one a configuration.
    """

    profile: Literal["power"] = "power"
    spec_version: int = 1
    source: str = ""
    gpu_type: str = ""
    points: tuple[Draw, ...]

    def problems(self) -> list[tuple[str, str]]:
        """At least one configuration is measured, none twice."""
        if not self.points:
            return [("points", "is empty; one measured draw at least is wanted")]
        seen: set[tuple[int, float]] = set()
        problems = []
        for at, point in enumerate(self.points):
            key = (point.batch_size, point.limit_w)
            if key in seen:
                problems.append((f"points[{at}]", f"batch size {key[0]} at {key[1]:g} W appears twice"))
            seen.add(key)
        return problems

    @property
    def limits_w(self) -> tuple[float, ...]:
        """The measured limits, highest first."""
        return tuple(sorted({point.limit_w for point in self.points}, reverse=True))

    def at(self, batch_size: float, limit_w: float = 0.0) -> tuple[float, float]:
        """Watts drawn and relative speed at a batch size on one GPU, under a limit (0: the highest).

        Linear in the logarithm between measured batch sizes; the nearest one outside them. Raises
        ProfileError for a limit that was not measured.
        """
        limit = limit_w or self.limits_w[0]
        known = sorted(
            (point.batch_size, point.draw_w, point.speed) for point in self.points if point.limit_w == limit
        )
        if not known:
            limits = ", ".join(f"{each:g}" for each in self.limits_w)
            raise ProfileError.at("power profile", f"{limit:g} W was not measured; measured limits: {limits}")
        sizes, draws, speeds = np.array(known, np.float64).T
        at = math.log(batch_size)
        return float(np.interp(at, np.log(sizes), draws)), float(np.interp(at, np.log(sizes), speeds))

    def measured(self, batch_size: float) -> bool:
        """Whether a batch size lies within the measured ones."""
        sizes = [point.batch_size for point in self.points]
        return min(sizes) <= batch_size <= max(sizes)
