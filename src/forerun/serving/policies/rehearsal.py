"""Rehearse the last minute, faster than it was, with fewer and with more replicas; take the cheapest that would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
import numpy as np

from forerun.core.scenario.numbers import NotNegative, Positive
from forerun.serving.policy.tuning import FleetView, Keep, Scale, Tuner, Tuning, bin_problems

if TYPE_CHECKING:
    from forerun.serving.policy.handover import Handover


class Rehearsal(Tuner, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="rehearsal"):
    """Our own tuner: what each number of replicas would have done is simulated, not estimated from rates.

    The last `look_s` of arrivals (at the beginning filled up with the sample's end), every `bin_s` of them stretched to the
    same rate, are played at `headroom` times the largest rate of the last `react_s`, through the pipeline as planned but
    for its replicas. More replicas come when those decided on would not keep the objective: the cheapest numbers that
    would. Fewer come when cheaper ones would also have done at the largest rate of the last `look_s`, at most every
    `settle_s`. `headroom` is what rise of the rate is survived while new replicas come up: a jump beyond it is met too
    late, whatever a tuner does afterwards.
    """

    needs_sample: ClassVar[bool] = True

    headroom: Annotated[float, msgspec.Meta(ge=1)] = 1.5
    look_s: Positive = 30.0
    bin_s: Positive = 5.0
    react_s: Positive = 5.0
    settle_s: NotNegative = 5.0

    def problems(self) -> list[tuple[str, str]]:
        return bin_problems(self.look_s, self.bin_s)

    def build(self, handover: Handover, rng: np.random.Generator) -> _Rehearsal:
        """The policy; `rng` draws who takes conditional edges in rehearsals, by the planned shares."""
        return _Rehearsal(self, handover, rng)


class _Rehearsal:
    def __init__(self, spec: Rehearsal, handover: Handover, rng: np.random.Generator) -> None:
        self._spec, self._handover, self._rng = spec, handover, rng
        self._changed_ms = 0.0
        # The sample's end, as if it had come just before the run began.
        sample = handover.sample_ms
        self._before = (
            sample[sample > sample[-1] - spec.look_s * 1e3] - sample[-1] - 1e3 / handover.sample_rps
        )

    def decide(self, view: FleetView) -> Tuning:
        from forerun.serving.policy.rehearse import cheapest_replicas, evened, keeps, scene_of

        spec, now_ms = self._spec, view.now_ms
        look_ms = spec.look_s * 1e3
        lately = view.arrivals_ms[np.searchsorted(view.arrivals_ms, now_ms - look_ms, side="right") :]
        if now_ms < look_ms:
            lately = np.concatenate([self._before[self._before > now_ms - look_ms], lately])
        if len(lately) < 2:
            return Keep()
        bins = max(1, int(spec.look_s / spec.bin_s + 1e-9))
        edges = now_ms - spec.bin_s * 1e3 * np.arange(bins, -1, -1)
        rates = np.diff(np.searchsorted(lately, edges, side="right")) / spec.bin_s
        recent = max(1, int(spec.react_s / spec.bin_s + 1e-9))
        scene = scene_of(self._handover, evened(lately, edges), self._rng, spec.max_replicas)
        fast_rps = float(rates[-recent:].max())
        hurried = scene.faster(spec.headroom * fast_rps)
        if not keeps(hurried, view.replicas):
            cheapest = cheapest_replicas(hurried)
            more = None if cheapest is None else tuple(map(max, view.replicas, cheapest))
            return self._decided(view, more, fast_rps, "rehearsed, those there are would not do")
        if now_ms - self._changed_ms < spec.settle_s * 1e3:
            return Keep()
        slow_rps = float(rates.max())
        cheapest = cheapest_replicas(scene.faster(spec.headroom * slow_rps))
        if cheapest is None or scene.cost(cheapest) >= scene.cost(view.replicas):
            return Keep()
        return self._decided(view, cheapest, slow_rps, "rehearsed, fewer would do")

    def _decided(self, view: FleetView, target: tuple[int, ...] | None, rate_rps: float, why: str) -> Tuning:
        if target is None or target == view.replicas:
            return Keep()
        self._changed_ms = view.now_ms
        return Scale(target, rate_rps, why)
