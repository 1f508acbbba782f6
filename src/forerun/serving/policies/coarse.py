"""The whole pipeline as one unit, added and removed as the rate asks: what InferLine's tuner was compared with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np

from forerun.core.scenario.numbers import NotNegative, Positive
from forerun.serving.policy.tuning import FleetView, Keep, Scale, Tuner, Tuning, bin_problems

if TYPE_CHECKING:
    from forerun.serving.policy.handover import Handover


class Coarse(Tuner, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="coarse"):
    """Coarse-grained scaling: the pipeline is one black box, of which there are as many as the rate of `look_s` asks for.

    The baseline of InferLine [Crankshaw et al., SoCC'20, section 7], after AutoScale's rule for stateless services [Gandhi
    et al., TOCS'12]: as many copies of the planned pipeline as carry the `mean` rate of the last `look_s`, or its `peak`,
    the largest rate of any `bin_s` in it, at a load of `target` at the stage that carries least; fewer only once
    `settle_s` have passed since the last change.
    """

    look_s: Positive = 30.0
    bin_s: Positive = 1.0
    settle_s: NotNegative = 15.0
    target: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    rate: Literal["mean", "peak"] = "mean"

    def problems(self) -> list[tuple[str, str]]:
        return bin_problems(self.look_s, self.bin_s)

    def build(self, handover: Handover, rng: np.random.Generator) -> _Coarse:
        """The policy; it draws nothing."""
        return _Coarse(self, handover)


class _Coarse:
    def __init__(self, spec: Coarse, handover: Handover) -> None:
        self._spec, self._planned = spec, handover.replicas
        carried = [
            mu * k / share
            for mu, k, share in zip(handover.mu_rps, handover.replicas, handover.share)
            if share > 0
        ]
        self._unit_rps = spec.target * min(carried, default=math.inf)
        self._changed_ms = 0.0

    def decide(self, view: FleetView) -> Tuning:
        spec, now_ms = self._spec, view.now_ms
        look_ms = min(spec.look_s * 1e3, now_ms)
        bins = max(1, round(look_ms / (spec.bin_s * 1e3))) if spec.rate == "peak" else 1
        edges = np.linspace(now_ms - look_ms, now_ms, bins + 1)
        counts = np.diff(np.searchsorted(view.arrivals_ms, edges, side="right"))
        rate_rps = float(counts.max()) / (look_ms / bins) * 1e3
        units = max(1, math.ceil(rate_rps / self._unit_rps))
        target = tuple(min(units * k, spec.max_replicas) for k in self._planned)
        fewer = sum(target) < sum(view.replicas)
        if target == view.replicas or (fewer and now_ms - self._changed_ms < spec.settle_s * 1e3):
            return Keep()
        self._changed_ms = now_ms
        return Scale(target, rate_rps, f"{units} times the planned pipeline")
