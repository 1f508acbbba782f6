"""A target number of requests under way for each replica: the autoscaling of Ray Serve."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, ClassVar, Literal

from forerun.core.scenario.numbers import Count, NotNegative, Positive
from forerun.serving.policy.tuning import FleetView, Keep, Scale, Tuner, Tuning

if TYPE_CHECKING:
    import numpy as np

    from forerun.serving.policy.handover import Handover


class Ongoing(Tuner, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ongoing"):
    """Each stage by itself gets ceil(queries under way / `target`) replicas, queued and in service, averaged over `look_s`.

    The rule and the defaults of Ray Serve's autoscaling (target_ongoing_requests 2, look_back_period_s 30, upscale_delay_s
    30, downscale_delay_s 600), read in its documentation: more replicas once they were needed at every instant for
    `up_delay_s`, fewer once for `down_delay_s`. Ray counts requests of a deployment without batches; where batches form,
    `target` is best near the largest batch. Never below `min_replicas`.
    """

    sees: ClassVar[Literal["arrivals", "queues", "requests"]] = "queues"

    target: Positive = 2.0
    look_s: Positive = 30.0
    up_delay_s: NotNegative = 30.0
    down_delay_s: NotNegative = 600.0
    min_replicas: Count = 1

    def build(self, handover: Handover, rng: np.random.Generator) -> _Ongoing:
        """The policy; it draws nothing."""
        return _Ongoing(self, len(handover.replicas))


class _Ongoing:
    def __init__(self, spec: Ongoing, stages: int) -> None:
        self._spec = spec
        self._seen: deque[tuple[float, tuple[int, ...]]] = deque()
        self._sums = [0] * stages
        #: by stage since when more, and since when fewer, have been needed at every instant
        self._more_since_ms: list[float | None] = [None] * stages
        self._fewer_since_ms: list[float | None] = [None] * stages

    def decide(self, view: FleetView) -> Tuning:
        spec, now_ms = self._spec, view.now_ms
        self._seen.append((now_ms, view.ongoing))
        self._sums = [total + count for total, count in zip(self._sums, view.ongoing)]
        # What is seen now counts, however short the look back.
        while len(self._seen) > 1 and self._seen[0][0] <= now_ms - spec.look_s * 1e3:
            _, gone = self._seen.popleft()
            self._sums = [total - count for total, count in zip(self._sums, gone)]
        replicas = []
        for s, (now, total) in enumerate(zip(view.replicas, self._sums)):
            needed = math.ceil(total / len(self._seen) / spec.target)
            needed = min(max(needed, spec.min_replicas), spec.max_replicas)
            replicas.append(self._patient(s, now, needed, now_ms))
        decided = tuple(replicas)
        return Scale(decided, why="queries under way") if decided != view.replicas else Keep()

    def _patient(self, s: int, now: int, needed: int, now_ms: float) -> int:
        """`needed`, once it has been on the same side of `now` for the delay of that side; else `now`."""
        sides = (
            (self._more_since_ms, needed > now, self._spec.up_delay_s),
            (self._fewer_since_ms, needed < now, self._spec.down_delay_s),
        )
        for since_ms, differs, delay_s in sides:
            began_ms = since_ms[s]
            since_ms[s] = (now_ms if began_ms is None else began_ms) if differs else None
            if differs and now_ms - (began_ms if began_ms is not None else now_ms) >= delay_s * 1e3:
                since_ms[s] = None
                return needed
        return now
