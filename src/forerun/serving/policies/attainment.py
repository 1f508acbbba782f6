"""Replicas of language models by what requests experience: objectives met, queue, cache."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec

from forerun.core.scenario.numbers import NotNegative, Positive
from forerun.serving.policy.tuning import FleetView, Keep, ModelView, Scale, Tuner, Tuning

if TYPE_CHECKING:
    import numpy as np

    from forerun.serving.llm.inputs.model import LanguageModel
    from forerun.serving.policy.handover import Handover

#: a share of something, above 0
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class Attainment(Tuner, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="attainment"):
    """Language models get replicas by the share of tokens that come in time, by queue and by cache [after Chiron: Patke et
    al., 2025].

    A stage gets `growth` times its replicas, at least one more, when of its requests in the last `look_s` less than `target`
    met its objectives for the time to first token or between tokens, when more than `waiting` requests a replica wait, or
    when more than `kv_share` of the blocks are in use; not again before these replicas are active and `look_s` have passed.
    It loses one when for `calm_s` all of this held with a replica less: objectives met, nobody waiting, blocks enough. With
    `idle_s` above 0 it goes down to `min_replicas` when for so long no request was there; the next one brings the first
    replica back. Other stages keep what they have.

    target: share of requests (default 0.95).
    look_s: how far back tokens count (default 30 s).
    waiting: requests a replica (default 4).
    kv_share: of the blocks of active replicas (default 0.9).
    growth: factor (default 1.5).
    calm_s: patience before a replica goes (default 120 s).
    idle_s: patience before all that may go do (default 0: never).
    min_replicas: 0 scales to zero (default 1).
    """

    sees: ClassVar[Literal["arrivals", "queues", "requests"]] = "requests"

    target: Share = 0.95
    look_s: Positive = 30.0
    waiting: NotNegative = 4.0
    kv_share: Share = 0.9
    growth: Annotated[float, msgspec.Meta(ge=1, le=100)] = 1.5
    calm_s: NotNegative = 120.0
    idle_s: NotNegative = 0.0
    min_replicas: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 1

    def problems(self) -> list[tuple[str, str]]:
        """Bounds in order; who scales to zero says when."""
        found = []
        if self.min_replicas > self.max_replicas:
            found.append(("min_replicas", f"{self.min_replicas} is above max_replicas, {self.max_replicas}"))
        if not self.min_replicas and not self.idle_s:
            found.append(("min_replicas", "is 0, but idle_s does not say after how long: say idle_s: 5min"))
        return found

    def build(self, handover: Handover, rng: np.random.Generator) -> _Attainment:
        """The policy; it draws nothing."""
        return _Attainment(self, [stage.llm for stage in handover.pipeline.stages])


class _Attainment:
    def __init__(self, spec: Attainment, models: list[LanguageModel | None]) -> None:
        self._stages = [None if llm is None else _Watched(spec, llm) for llm in models]

    def decide(self, view: FleetView) -> Tuning:
        replicas, reasons = [], []
        for watched, model, now, active in zip(self._stages, view.models, view.replicas, view.active):
            if watched is None or model is None:
                replicas.append(now)
                continue
            count, why = watched.wanted(view.now_ms, model, now, active)
            replicas.append(count)
            reasons += [why] * (count != now)
        decided = tuple(replicas)
        return Scale(decided, why=", ".join(dict.fromkeys(reasons))) if reasons else Keep()


class _Watched:
    """One stage: what was seen of it lately."""

    def __init__(self, spec: Attainment, llm: LanguageModel) -> None:
        self._spec = spec
        self._limits_ms = {limit.kind: limit.limit_ms for limit in llm.limits}
        #: (instant, requests that met, requests)
        self._seen: deque[tuple[float, int, int]] = deque()
        self._busy_ms = self._strained_ms = 0.0
        self._again_ms = -math.inf

    def wanted(self, now_ms: float, model: ModelView, now: int, active: int) -> tuple[int, str]:
        """How many replicas, and why."""
        spec, there = self._spec, model.waiting + model.running
        for kind, values_ms in (("ttft", model.ttft_ms), ("tpot", model.tpot_ms)):
            if kind in self._limits_ms and len(values_ms):
                met = int((values_ms <= self._limits_ms[kind]).sum())
                self._seen.append((now_ms, met, len(values_ms)))
        while self._seen and self._seen[0][0] <= now_ms - spec.look_s * 1e3:
            self._seen.popleft()
        if there or len(model.ttft_ms):
            self._busy_ms = now_ms
        if now == 0:
            return (max(1, spec.min_replicas), "a request came") if there else (0, "")
        why = self._strain(model, active, now)
        if why:
            self._strained_ms = now_ms
            if now_ms < self._again_ms or now == spec.max_replicas:
                return now, ""
            self._again_ms = now_ms + (spec.activation_s + spec.look_s) * 1e3
            return min(spec.max_replicas, max(now + 1, math.ceil(now * spec.growth))), why
        if spec.idle_s and now > spec.min_replicas and now_ms - self._busy_ms >= spec.idle_s * 1e3:
            return spec.min_replicas, "nobody there"
        if model.waiting or now > active or model.kv_share * now > spec.kv_share * (now - 1):
            self._strained_ms = now_ms
        if now > max(1, spec.min_replicas) and now_ms - self._strained_ms >= spec.calm_s * 1e3:
            self._strained_ms = now_ms
            return now - 1, "calm"
        return now, ""

    def _strain(self, model: ModelView, active: int, now: int) -> str:
        """Why more replicas are needed; empty if they are not."""
        spec, seen = self._spec, sum(count for _, _, count in self._seen)
        if model.waiting > spec.waiting * now:
            return "requests wait"
        if seen and sum(met for _, met, _ in self._seen) < spec.target * seen:
            return "tokens are late"
        return "the cache is full" if active and model.kv_share > spec.kv_share else ""
