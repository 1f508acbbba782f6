"""From a scenario to what is simulated: the pipeline, the arrivals, the prices. Everything wrong is found here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.llm.inputs import language_model_of
from forerun.domains.serving.llm.model import LanguageModel
from forerun.domains.serving.model import SOURCE, Edge, Floats, Law, Pipeline, Service, Stage, topological
from forerun.domains.serving.policy import Batching
from forerun.domains.serving.profile import (
    ALIASES,
    ARTIFACT_PRICES_USD_PER_H,
    Profile,
    embedded_profile,
    read_profile,
)
from forerun.domains.serving.scenario import (
    SOURCE_NAME,
    Generated,
    Listed,
    Placement,
    Replayed,
    Sampled,
    Scenario,
    StageSpec,
    Tables,
)
from forerun.domains.serving.sizes import check_drawn, check_iterations, most_queries, too_many
from forerun.errors import ForerunError, Problem, ScenarioError, TraceError, known_names
from forerun.rng import stream_key
from forerun.trace.reader import read_trace
from forerun.trace.requests import arrivals_ms
from forerun.trace.table import Trace


@dataclass(frozen=True)
class Inputs:
    """A scenario ready to be simulated.

    arrivals_ms: float64[queries], ascending. prices: $ per hour and replica, by stage. hardware: by stage. notes: what
    was mended or assumed. paid: by stage, where a tuner decides, (instant ms, replicas paid for from then on); None where
    replicas are paid for while they are there.
    """

    pipeline: Pipeline
    arrivals_ms: Floats
    prices_usd_per_h: tuple[float, ...]
    hardware: tuple[str, ...]
    notes: tuple[str, ...] = ()
    paid: tuple[tuple[tuple[float, int], ...], ...] | None = None


def prepare(scenario: Scenario, *, batching: Batching | None = None, seed: int | None = None) -> Inputs:
    """Everything a run needs. `batching` replaces every stage's policy; `seed` the scenario's, for other arrivals.

    Raises ScenarioError, ProfileError or TraceError with every problem found.
    """
    drawn = scenario.seed if seed is None else seed
    arrivals, trace, notes = arrivals_of(scenario, scenario.trace, drawn)
    aliases: list[str] = []
    problems: list[Problem] = []
    profile = _profile(scenario)
    stages = [_Placed(scenario, spec, profile, aliases, problems, drawn) for spec in _in_order(scenario)]
    for placed in stages:
        placed.place_model(trace, len(arrivals), drawn, notes, problems)
    edges = [_edges(scenario, placed.spec, stages, trace, len(arrivals), problems) for placed in stages]
    prices = [_price(scenario, placed, problems) for placed in stages]
    if problems:
        raise ScenarioError(*problems)
    _check_clock(stages, arrivals)
    built = tuple(placed.built(ways, batching) for placed, ways in zip(stages, edges))
    return Inputs(
        Pipeline(built, seed=drawn),
        arrivals,
        tuple(prices),
        tuple(placed.hardware for placed in stages),
        tuple(dict.fromkeys([*notes, *aliases])),
    )


class _Placed:
    """A stage with its hardware and service times looked up; what is wrong goes to `problems`."""

    def __init__(
        self,
        scenario: Scenario,
        spec: StageSpec,
        profile: Profile,
        aliases: list[str],
        problems: list[Problem],
        seed: int,
    ) -> None:
        self.spec = spec
        self.placement: Placement = scenario.configuration[spec.name]
        compat = scenario.mode == "compat"
        self.full = scenario.record == "full"
        self.model = _alias(spec.model or spec.name, profile.models, compat, aliases)
        self.hardware = _alias(self.placement.hardware, profile.hardware_of(self.model), compat, aliases)
        self.service: Service | None = None
        self.llm: LanguageModel | None = None
        if self.placement.llm is None:
            try:
                self.service = self._service(scenario, profile, seed)
            except ForerunError as error:
                problems.extend(error.problems)

    def place_model(
        self, trace: Trace | None, queries: int, seed: int, notes: list[str], problems: list[Problem]
    ) -> None:
        """If the stage serves a language model: what its replicas hold, and the requests they get."""
        if self.placement.llm is None:
            return
        try:
            self.llm, noted = language_model_of(self.placement.llm, self.spec.name, trace, queries, seed)
            where = f"$.configuration.{self.spec.name}.llm"
            check_iterations(self.llm, where, full=self.full)
        except ForerunError as error:
            problems.extend(error.problems)
        else:
            notes.extend(noted)
            self.service = Service(np.array([0.0, self.llm.cost.least_ms]))

    def _service(self, scenario: Scenario, profile: Profile, seed: int) -> Service:
        where, kind = f"$.configuration.{self.spec.name}", scenario.service
        most = self.placement.max_batch
        if isinstance(kind, Tables):
            return Service(np.array([0.0, *kind.tables_ms[self.spec.name][:most]]))
        if isinstance(kind, Sampled):
            key = stream_key(seed, "service", self.spec.name) & (2**64 - 1)
            if kind.law == "measured":
                return _measured(kind, self.spec.name, most, key)
            table = profile.table_ms(self.model, self.hardware, kind.around, most, where=where)
            return Service(table, Law[kind.law.upper()], cv=kind.cv, key=key)
        return Service(profile.table_ms(self.model, self.hardware, kind, most, where=where))

    def built(self, edges: tuple[Edge, ...], batching: Batching | None) -> Stage:
        """The stage as the simulator wants it."""
        assert self.service is not None
        placed = self.placement
        return Stage(
            self.spec.name,
            edges,
            placed.max_batch,
            placed.replicas,
            self.service,
            batching or placed.batching,
            tuple((change.at_s * 1e3, change.replicas) for change in placed.changes),
            self.llm,
        )


def _alias(name: str, known: tuple[str, ...], compat: bool, notes: list[str]) -> str:
    """The notebook's other spellings, accepted in compat mode and noted."""
    if compat and name not in known and ALIASES.get(name) in known:
        notes.append(f"repair: {name!r} was read as {ALIASES[name]!r}, as the notebook means it")
        return ALIASES[name]
    return name


def _measured(kind: Sampled, stage: str, most: int, key: int) -> Service:
    by_size = kind.measured_ms.get(stage, {})
    missing = [size for size in range(1, most + 1) if not by_size.get(size)]
    if missing:
        what = f"no value was measured for stage {stage!r} at batch {missing[0]}; known: {sorted(by_size)}"
        raise ScenarioError(Problem("$.service.measured_ms", what))
    values = tuple(np.array(by_size[size]) for size in range(1, most + 1))
    means = np.array([0.0, *(float(v.mean()) for v in values)])
    return Service(means, Law.MEASURED, measured_ms=(np.zeros(1), *values), key=key)


def _in_order(scenario: Scenario) -> list[StageSpec]:
    numbers = {stage.name: number for number, stage in enumerate(scenario.stages)} | {SOURCE_NAME: SOURCE}
    order = topological([[numbers[parent] for parent in stage.parents] for stage in scenario.stages])
    return [scenario.stages[number] for number in order]


def _edges(
    scenario: Scenario,
    spec: StageSpec,
    stages: list[_Placed],
    trace: Trace | None,
    queries: int,
    problems: list[Problem],
) -> tuple[Edge, ...]:
    numbers = {placed.spec.name: number for number, placed in enumerate(stages)} | {SOURCE_NAME: SOURCE}
    listed = {(edge.parent, edge.stage): number for number, edge in enumerate(scenario.edges)}
    ways = []
    for parent in spec.parents:
        number = listed.get((parent, spec.name))
        if number is None:
            ways.append(Edge(numbers[parent]))
        elif scenario.edges[number].recorded:
            column = _routing(trace, f"{parent}>{spec.name}", f"$.edges[{number}]", queries, problems)
            ways.append(Edge(numbers[parent], recorded=column))
        else:
            ways.append(Edge(numbers[parent], share=scenario.edges[number].share, number=number))
    return tuple(ways)


def _routing(
    trace: Trace | None, column: str, where: str, queries: int, problems: list[Problem]
) -> NDArray[np.bool_]:
    known = [name for name in trace.columns if ">" in name] if trace is not None else []
    if trace is None or column not in trace:
        problems.append(
            Problem(where, f"the trace has no routing column {column!r}; {known_names(column, known)}")
        )
        return np.zeros(queries, dtype=np.bool_)
    return trace[column].astype(np.bool_)


def _price(scenario: Scenario, placed: _Placed, problems: list[Problem]) -> float:
    prices: Mapping[str, float] = {**ARTIFACT_PRICES_USD_PER_H, **scenario.prices_usd_per_h}
    if placed.hardware not in prices:
        known = known_names(placed.hardware, prices)
        what = f"no price of {placed.hardware!r}; {known}; give it as prices_usd_per_h.{placed.hardware}"
        problems.append(Problem(f"$.configuration.{placed.spec.name}.hardware", what))
        return 0.0
    return prices[placed.hardware]


def _profile(scenario: Scenario) -> Profile:
    profile = embedded_profile()
    for given in scenario.profiles:
        profile = profile.joined(read_profile(Path(given.path), given.path))
    return profile


def arrivals_of(
    scenario: Scenario, given: Generated | Replayed | Listed, seed: int, where: str = "$.trace"
) -> tuple[Floats, Trace | None, list[str]]:
    """Arrivals in ms, the trace they come from if it is a file, and what was noted on the way.

    Raises ScenarioError or TraceError, also where there are more than can be simulated.
    """
    most = most_queries(scenario)
    if isinstance(given, Listed):
        return np.array(given.arrivals_ms), None, []
    if isinstance(given, Generated):
        check_drawn(scenario, given, where)
        n = given.queries or None
        instants = given.process.arrivals_ms(seed, n=n, horizon_s=None if n else given.horizon_s, most=most)
        if len(instants) > most:
            raise ScenarioError.at(f"{where}.horizon_s", too_many(scenario, most, f"more than {most:,}"))
        if not len(instants):
            raise ScenarioError.at(where, f"no query arrives within {given.horizon_s:g} s")
        return instants, None, []
    trace = read_trace(given.file.path, given.format, options=given.options)
    if not len(trace):
        raise TraceError.at(given.file.path, "holds no arrival")
    if len(trace) > most:
        raise TraceError.at(given.file.path, too_many(scenario, len(trace)))
    notes = [f"repair: {repair['rule']}, {repair['count']} times" for repair in trace.provenance.repairs]
    return arrivals_ms(trace), trace, notes


def throughput_rps(scenario: Scenario, inputs: Inputs) -> tuple[float, ...]:
    """By stage, the queries a second that one replica carries in full batches: as measured where service is the mean, else
    batch over time."""
    if scenario.service != "mean":
        tables = [stage.service.table_ms for stage in inputs.pipeline.stages]
        return tuple((len(table) - 1) * 1e3 / float(table[-1]) for table in tables)
    profile, models = _profile(scenario), {spec.name: spec.model or spec.name for spec in scenario.stages}
    found = []
    for stage, hardware in zip(inputs.pipeline.stages, inputs.hardware):
        rows = {row.batch: row.throughput_qps for row in profile.rows(models[stage.name], hardware)}
        between = stage.max_batch * 1e3 / float(stage.service.table_ms[stage.max_batch])
        found.append(rows.get(stage.max_batch, between))
    return tuple(found)


def _check_clock(stages: list[_Placed], arrivals: Floats) -> None:
    """Instants must be told apart: adding the shortest service to the last arrival must move the clock."""
    least = min((placed.service.least_ms for placed in stages if placed.service is not None), default=1.0)
    last = float(arrivals[-1])
    if least > 0 and not last + least > last:
        what = f"instants near {last:g} ms cannot tell a service of {least:g} ms; begin the trace nearer to 0"
        raise TraceError.at("$.trace", what)


def mean_rate_rps(arrivals: Floats) -> float:
    """Arrivals per second over the trace: gaps over the time they span; NaN if that is no time at all."""
    span_ms = float(arrivals[-1] - arrivals[0])
    return (len(arrivals) - 1) * 1e3 / span_ms if span_ms > 0 else math.nan
