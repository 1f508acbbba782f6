"""The records of a serving scenario: a pipeline, its machines, its traffic, and the objective."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from forerun.domains.serving.policies.fixed import Fixed
from forerun.domains.serving.policies.greedy import Greedy
from forerun.domains.serving.policy import Batching, Tuner, batching_policies, tuner_policies
from forerun.domains.serving.scenario.language_model import LanguageModelSpec
from forerun.domains.serving.scenario.limits import size_problems
from forerun.domains.serving.scenario.traces import Generated, Listed, Replayed
from forerun.errors import known_names
from forerun.scenario.spec import Input, Spec, chosen_from

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Replicas = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]

SOURCE_NAME = "source"


class StageSpec(Spec, frozen=True, kw_only=True):
    """One stage: the model it runs (empty: the stage's name) and its parents in declared order."""

    name: str
    parents: tuple[str, ...]
    model: str = ""


class EdgeSpec(Spec, frozen=True, kw_only=True):
    """An edge, from `parent` into `stage`, that not every query takes: with probability `share`, drawn, or as
    `recorded` in the trace's column `parent>stage`. The edge's place in the list numbers its draws."""

    parent: str
    stage: str
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    recorded: bool = False

    def problems(self) -> list[tuple[str, str]]:
        if (self.share is None) != self.recorded:
            return [("", "give exactly one of share and recorded: true; edges not listed are always taken")]
        return []


class Change(Spec, frozen=True, kw_only=True):
    """From `at_s` on there are `replicas`."""

    at_s: NotNegative
    replicas: Replicas


class Placement(Spec, frozen=True, kw_only=True):
    """How a stage is run: hardware, largest batch, replicas, how batches form, and changes of replicas over time.

    llm: instead of batches, what its replicas hold and cost if they serve a language model.
    """

    hardware: str
    max_batch: Count = 1
    replicas: Replicas = 1
    batching: Annotated[Batching, chosen_from(batching_policies)] = msgspec.field(default_factory=Greedy)
    changes: tuple[Change, ...] = ()
    llm: LanguageModelSpec | None = None

    def problems(self) -> list[tuple[str, str]]:
        if self.llm is not None:
            given = {
                "max_batch": self.max_batch != 1,
                "batching": not isinstance(self.batching, Greedy),
                "changes": bool(self.changes),
            }
            what = "says nothing about a stage with a language model, whose replicas are constant and batch continuously"
            return [(name, what) for name, wrong in given.items() if wrong]
        instants = [change.at_s for change in self.changes]
        late = [i for i in range(1, len(instants)) if instants[i] <= instants[i - 1]]
        return [(f"changes.{i}.at_s", f"{instants[i]:g} s is not after {instants[i - 1]:g} s") for i in late]


class Tables(Spec, frozen=True, kw_only=True):
    """Service times written out: per stage the ms that a batch of 1, 2, ... takes."""

    tables_ms: dict[str, tuple[Positive, ...]]


class Sampled(Spec, frozen=True, kw_only=True):
    """Service times drawn per batch, in start order, one stream a stage.

    law `exponential` or `lognormal` (then with `cv`): around the profile's `around`. law `measured`: one of the values
    in `measured_ms`, by stage and batch size.
    """

    law: Literal["exponential", "lognormal", "measured"]
    around: Literal["mean", "p99"] = "mean"
    cv: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    measured_ms: dict[str, dict[int, tuple[Positive, ...]]] = {}

    def problems(self) -> list[tuple[str, str]]:
        found = []
        if (self.cv > 0) != (self.law == "lognormal"):
            found.append(
                ("cv", f"{self.cv:g} was found; lognormal needs one above 0, the other laws have none")
            )
        if bool(self.measured_ms) != (self.law == "measured"):
            found.append(("measured_ms", "belongs to the law measured, which needs it"))
        return found


class Compat(Spec, frozen=True, kw_only=True):
    """What only `mode: compat` knows: the notebook's batching delay, and its wake rule as written or corrected."""

    batching_delay_ms: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    wake: Literal["notebook", "corrected"] = "notebook"
    queue_series: bool = False


class Intervals(Spec, frozen=True, kw_only=True):
    """Confidence intervals of the headline: from runs on fresh seeds for generated traces, batch means for replayed ones.

    replications: runs, this one among them (default 20; 0: no intervals). confidence: default 0.95.
    """

    replications: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 20
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.95

    def problems(self) -> list[tuple[str, str]]:
        return (
            [("replications", "1 gives no interval; 0 means none, 2 or more some")]
            if self.replications == 1
            else []
        )


class Scenario(Spec, frozen=True, kw_only=True):
    """A pipeline, the machines it runs on, the traffic it meets, and the objective.

    tuner: who changes the numbers of replicas while the trace runs. sample: the traffic that the configuration was planned
    for, which some tuners compare with.
    """

    domain: Literal["serving"] = "serving"
    spec_version: int = 1
    mode: Literal["default", "compat"] = "default"
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    trace: Generated | Replayed | Listed
    stages: tuple[StageSpec, ...]
    edges: tuple[EdgeSpec, ...] = ()
    configuration: dict[str, Placement]
    profiles: tuple[Input, ...] = ()
    service: Literal["mean", "p99", "notebook"] | Tables | Sampled = "mean"
    slo_ms: Positive
    attainment: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.99
    prices_usd_per_h: dict[str, NotNegative] = {}
    tuner: Annotated[Tuner, chosen_from(tuner_policies)] = msgspec.field(default_factory=Fixed)
    sample: Generated | Replayed | Listed | None = None
    record: Literal["counts", "latency", "full"] = "full"
    tie_rules: Literal["own", "both"] = "own"
    compat: Compat = Compat()
    intervals: Intervals = Intervals()

    def problems(self) -> list[tuple[str, str]]:
        names = [stage.name for stage in self.stages]
        return [
            *self._stage_problems(names),
            *self._edge_problems(),
            *self._configuration_problems(names),
            *self._mode_problems(),
            *self._tuner_problems(),
            *self._llm_problems(),
            *size_problems(self),
        ]

    def _stage_problems(self, names: list[str]) -> list[tuple[str, str]]:
        found = [] if names else [("stages", "lists no stage")]
        for i, stage in enumerate(self.stages):
            if stage.name in ("", SOURCE_NAME) or ">" in stage.name:
                found.append((f"stages.{i}.name", f"{stage.name!r} cannot name a stage"))
            if stage.name in names[:i]:
                found.append((f"stages.{i}.name", f"{stage.name!r} names two stages"))
            if not stage.parents:
                found.append((f"stages.{i}.parents", f"stage {stage.name!r} has no parent; write [source]"))
            for j, parent in enumerate(stage.parents):
                where = f"stages.{i}.parents.{j}"
                if parent != SOURCE_NAME and parent not in names:
                    found.append(
                        (where, f"no stage named {parent!r}; {known_names(parent, [SOURCE_NAME, *names])}")
                    )
                if parent in stage.parents[:j]:
                    found.append((where, f"{parent!r} stands twice among the parents"))
        return found or self._cycle_problems()

    def _cycle_problems(self) -> list[tuple[str, str]]:
        placed = {SOURCE_NAME}
        waiting = list(enumerate(self.stages))
        while ready := [(i, stage) for i, stage in waiting if set(stage.parents) <= placed]:
            placed |= {stage.name for _, stage in ready}
            waiting = [item for item in waiting if item not in ready]
        return [
            (f"stages.{i}.parents", f"{stage.name!r} is part of a cycle or behind one")
            for i, stage in waiting
        ]

    def _edge_problems(self) -> list[tuple[str, str]]:
        ways = {(parent, stage.name) for stage in self.stages for parent in stage.parents}
        found = []
        seen: set[tuple[str, str]] = set()
        for i, edge in enumerate(self.edges):
            way = (edge.parent, edge.stage)
            if way not in ways:
                known = known_names(">".join(way), [">".join(known) for known in ways])
                found.append((f"edges.{i}", f"no edge {'>'.join(way)}; {known}"))
            if way in seen:
                found.append((f"edges.{i}", f"{'>'.join(way)} stands twice"))
            seen.add(way)
        return found

    def _configuration_problems(self, names: list[str]) -> list[tuple[str, str]]:
        found = [
            (f"configuration.{name}", f"no stage named {name!r}; {known_names(name, names)}")
            for name in self.configuration
            if name not in names
        ]
        missing = [name for name in names if name not in self.configuration]
        if missing:
            found.append(("configuration", f"does not say how to run {', '.join(missing)}"))
        if isinstance(self.service, Tables):
            for name in names:
                length, placed = len(self.service.tables_ms.get(name, ())), self.configuration.get(name)
                if placed is not None and placed.llm is None and length < placed.max_batch:
                    what = f"{length} service times for stage {name!r}, whose largest batch is {placed.max_batch}"
                    found.append(("service.tables_ms", what))
        return found

    def _mode_problems(self) -> list[tuple[str, str]]:
        if self.mode == "default":
            return [] if self.compat == Compat() else [("compat", "is read in mode compat only")]
        found = [("edges", "mode compat knows no conditional edges")] if self.edges else []
        if isinstance(self.service, Sampled):
            found.append(("service", "mode compat knows no drawn service times"))
        for name, placed in self.configuration.items():
            if placed.changes:
                found.append((f"configuration.{name}.changes", "mode compat knows no changes of replicas"))
            if not isinstance(placed.batching, Greedy):
                what = "mode compat knows greedy batching and compat.batching_delay_ms only"
                found.append((f"configuration.{name}.batching", what))
        return found

    @property
    def tuned(self) -> bool:
        """Whether anybody changes the numbers of replicas during the run."""
        return not isinstance(self.tuner, Fixed)

    def _tuner_problems(self) -> list[tuple[str, str]]:
        if not self.tuned:
            return []
        found = []
        name = self.tuner.__struct_config__.tag
        if self.mode == "compat":
            found.append(("tuner", "mode compat knows no changes of replicas"))
        if self.tie_rules == "both":
            found.append(("tie_rules", "the notebook's rule knows no changes of replicas; write own"))
        for stage, placed in self.configuration.items():
            if placed.changes:
                what = f"the tuner {name!r} decides on replicas; leave out the changes, or the tuner"
                found.append((f"configuration.{stage}.changes", what))
            if placed.replicas > self.tuner.max_replicas:
                what = f"{placed.replicas} is above the tuner's max_replicas, {self.tuner.max_replicas}"
                found.append((f"configuration.{stage}.replicas", what))
        if self.tuner.needs_sample and self.sample is None:
            what = f"the tuner {name!r} compares with the traffic that the configuration was planned for; give it as sample"
            found.append(("sample", f"{what} (like trace: a process, a file, or arrivals)"))
        return found

    def _llm_problems(self) -> list[tuple[str, str]]:
        found = []
        for name, placed in self.configuration.items():
            if placed.llm is None:
                continue
            where = f"configuration.{name}.llm"
            if self.mode == "compat":
                found.append((where, "mode compat knows no language models"))
            if self.tie_rules == "both":
                found.append(
                    (where, "the notebook's tie rule knows no language models; write tie_rules: own")
                )
            if self.tuned:
                found.append(
                    (where, "tuners do not change the replicas of language models; leave out the tuner")
                )
        return found

    def allowed_misses(self, queries: int) -> int:
        """floor((1 - attainment) * queries) in exact decimals: 0.99 of 20,000 allows 200."""
        from decimal import Decimal

        return math.floor((1 - Decimal(repr(self.attainment))) * queries)
