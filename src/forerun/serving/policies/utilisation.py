"""Keep replicas busy to a target: the horizontal autoscaler of Kubernetes."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec

from forerun.core.scenario.numbers import NotNegative, Positive
from forerun.serving.policy.tuning import FleetView, Keep, Scale, Tuner, Tuning

if TYPE_CHECKING:
    import numpy as np

    from forerun.serving.policy.handover import Handover


class Utilisation(Tuner, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="utilisation"):
    """Each stage by itself gets ceil(replicas * utilisation / `target`), unless that is within `tolerance` of what it has.

    The rule of Kubernetes' HorizontalPodAutoscaler (sync period 15 s, tolerance 0.1, downscale stabilisation 300 s: of
    the wishes of the last `stabilise_s` the largest counts), with the share of active replicas that are serving, averaged
    over the time since the last look, as the metric.
    """

    sees: ClassVar[Literal["arrivals", "queues", "requests"]] = "queues"

    target: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.7
    tolerance: NotNegative = 0.1
    look_s: Positive = 15.0
    stabilise_s: NotNegative = 300.0

    def build(self, handover: Handover, rng: np.random.Generator) -> _Utilisation:
        """The policy; it draws nothing."""
        return _Utilisation(self, len(handover.replicas))


class _Utilisation:
    def __init__(self, spec: Utilisation, stages: int) -> None:
        self._spec = spec
        self._busy = [0.0] * stages
        self._samples = 0
        self._looked_ms = 0.0
        self._wishes: deque[tuple[float, tuple[int, ...]]] = deque()

    def decide(self, view: FleetView) -> Tuning:
        spec, now_ms = self._spec, view.now_ms
        self._samples += 1
        for s, (working, active) in enumerate(zip(view.working, view.active)):
            # Replicas that retire still serve: no more than all are busy.
            self._busy[s] += min(1.0, working / active)
        if now_ms - self._looked_ms < spec.look_s * 1e3:
            return Keep()
        wished = []
        for s, now in enumerate(view.replicas):
            ratio = self._busy[s] / self._samples / spec.target
            within = abs(ratio - 1) <= spec.tolerance
            wished.append(now if within else min(max(1, math.ceil(now * ratio)), spec.max_replicas))
        self._busy, self._samples, self._looked_ms = [0.0] * len(wished), 0, now_ms
        self._wishes.append((now_ms, tuple(wished)))
        while self._wishes[0][0] < now_ms - spec.stabilise_s * 1e3:
            self._wishes.popleft()
        largest = tuple(map(max, zip(*(wish for _, wish in self._wishes))))
        replicas = tuple(max(w, min(now, most)) for w, now, most in zip(wished, view.replicas, largest))
        return Scale(replicas, why="utilisation") if replicas != view.replicas else Keep()
