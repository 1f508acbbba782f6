"""Scale up when the traffic leaves the envelope that the plan was made for, scale down to what came lately."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from forerun.core.scenario.numbers import NotNegative, Positive
from forerun.serving.policy.tuning import FleetView, Keep, Scale, Tuner, Tuning, bin_problems

if TYPE_CHECKING:
    from forerun.serving.policy.handover import Handover

#: added before rounding up, so that a whole number that a division missed by its last bit stays that number
_ROUNDING = 1e-12


class InferLine(Tuner, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="inferline"):
    """The high-frequency tuner of InferLine [Crankshaw et al., SoCC'20, section 5; thesis EECS-2019-171].

    Up: if in any window length the last minute saw more arrivals than the sample did, the largest of those rates r asks
    for ceil(r * s / (mu * rho)) replicas of each stage: s the share of queries that come by, mu what a replica carries at
    the planned batch, rho the planned load. Down: `settle_s` after the last change the largest rate of any `bin_s` in the
    last `look_s` asks likewise, with the pipeline's least load (`pipeline_min`) or each stage's own (`per_model`).
    """

    needs_sample: ClassVar[bool] = True

    settle_s: NotNegative = 15.0
    look_s: Positive = 30.0
    bin_s: Positive = 5.0
    history_s: Positive = 60.0
    scale_down_rho: Literal["pipeline_min", "per_model"] = "pipeline_min"

    def problems(self) -> list[tuple[str, str]]:
        if problems := bin_problems(self.look_s, self.bin_s):
            return problems
        bins = self.look_s / self.bin_s
        if abs(bins - round(bins)) > 1e-9:
            return [("bin_s", f"{self.bin_s:g} s does not divide look_s, {self.look_s:g} s")]
        return []

    def build(self, handover: Handover, rng: np.random.Generator) -> _InferLine:
        """The policy; it draws nothing."""
        return _InferLine(self, handover)


class _InferLine:
    def __init__(self, spec: InferLine, handover: Handover) -> None:
        from forerun.serving.policy.envelope import LiveEnvelope

        self._spec, self._handover = spec, handover
        windows_ms = handover.windows_ms
        self._windows_ms = np.array(windows_ms)
        self._planned = handover.sample_envelope
        self._live = LiveEnvelope(windows_ms, spec.history_s * 1e3)
        self._changed_ms = 0.0

    def decide(self, view: FleetView) -> Tuning:
        live = self._live.at(view.now_ms, view.arrivals_ms)
        above = live > self._planned
        if above.any():
            rate_rps = float((live[above] / self._windows_ms[above] * 1e3).max())
            needed = replicas_for(self._handover, rate_rps, self._handover.rho)
            return self._scaled(
                view, tuple(map(max, view.replicas, needed)), rate_rps, "traffic left its envelope"
            )
        spec = self._spec
        settled = view.now_ms - self._changed_ms >= spec.settle_s * 1e3
        if not settled or view.now_ms < spec.look_s * 1e3:
            return Keep()
        rate_rps = self._lately_rps(view)
        rho = self._handover.rho
        if spec.scale_down_rho == "pipeline_min":
            rho = (min(rho),) * len(rho)
        needed = replicas_for(self._handover, rate_rps, rho)
        fewer = tuple(max(1, min(k, n)) for k, n in zip(view.replicas, needed))
        return self._scaled(view, fewer, rate_rps, f"no more in {spec.look_s:g} s")

    def _scaled(self, view: FleetView, target: tuple[int, ...], rate_rps: float, why: str) -> Tuning:
        most = self._spec.max_replicas
        replicas = tuple(min(n, max(k, most)) for k, n in zip(view.replicas, target))
        if replicas == view.replicas:
            return Keep()
        self._changed_ms = view.now_ms
        return Scale(replicas, rate_rps, why)

    def _lately_rps(self, view: FleetView) -> float:
        """The largest rate of any bin: [now - look + bin i, the next)."""
        bin_ms = self._spec.bin_s * 1e3
        bins = round(self._spec.look_s / self._spec.bin_s)
        edges = view.now_ms - self._spec.look_s * 1e3 + bin_ms * np.arange(bins + 1)
        counts = np.diff(np.searchsorted(view.arrivals_ms, edges, side="left"))
        return float(counts.max()) / bin_ms * 1e3


def replicas_for(handover: Handover, rate_rps: float, rho: tuple[float, ...]) -> tuple[int, ...]:
    """Replicas that carry a rate at given loads, by stage.

    Parameters
    ----------
    handover : the share of queries that come by each stage, and what one replica carries there.
    rate_rps : queries a second from outside.
    rho : by stage, the load that its replicas should have.
    """
    return tuple(
        math.ceil(rate_rps * share / (mu_rps * load) - _ROUNDING)
        for share, mu_rps, load in zip(handover.share, handover.mu_rps, rho)
    )
