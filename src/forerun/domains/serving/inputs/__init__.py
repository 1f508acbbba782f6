"""From a scenario to what is simulated: files read, names resolved, arrivals made. Bad input is reported here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.engine import engine_of
from forerun.domains.serving.inputs.llm import language_model_of
from forerun.domains.serving.inputs.llm.medians import Medians, read_medians
from forerun.domains.serving.inputs.llm.model import LanguageModel
from forerun.domains.serving.inputs.pipeline import (
    SOURCE,
    Edge,
    Floats,
    Law,
    Pipeline,
    Service,
    Stage,
    topological,
)
from forerun.domains.serving.inputs.profile import (
    ARTIFACT_PRICES_USD_PER_H,
    Profile,
    embedded_profile,
    read_profile,
)
from forerun.domains.serving.scenario import SOURCE_NAME, Placement, Sampled, Scenario, StageSpec, Tables
from forerun.domains.serving.scenario.language_model import DrawnTokens
from forerun.domains.serving.scenario.limits import check_drawn, check_iterations, most_queries, too_many
from forerun.domains.serving.scenario.traces import Generated, Listed, Replayed
from forerun.errors import ForerunError, Problem, ScenarioError, TraceError, known_names
from forerun.rng import stream, stream_key
from forerun.scenario.spec import Input
from forerun.trace.reader import read_trace
from forerun.trace.requests import arrivals_ms
from forerun.trace.table import Trace


class ScenarioFiles:
    """The files that a scenario names, each read once, however often the scenario is prepared with other seeds."""

    def __init__(self, profiles: Sequence[Input] = ()) -> None:
        """profiles: files of measured service times, added to the built-in ones."""
        self._profiles = profiles
        self._traces: dict[str, Trace] = {}
        self._medians: dict[str, Medians] = {}

    def trace(self, given: Replayed | DrawnTokens) -> Trace:
        """A recorded trace: of arrivals, or of the tokens of requests. Raises TraceError."""
        key = repr(given)
        if key not in self._traces:
            file = given.file if isinstance(given, Replayed) else given.drawn_from
            self._traces[key] = read_trace(file.path, given.format, options=given.options)
        return self._traces[key]

    def medians(self, file: Input) -> Medians:
        """Measured iterations of language models. Raises ProfileError."""
        if file.path not in self._medians:
            self._medians[file.path] = read_medians(Path(file.path), file.path)
        return self._medians[file.path]

    @cached_property
    def profile(self) -> Profile:
        """The built-in surfaces with those of the scenario's files added. Raises ProfileError."""
        profile = embedded_profile()
        for given in self._profiles:
            profile = profile.joined(read_profile(Path(given.path), given.path))
        return profile


@dataclass(frozen=True)
class Inputs:
    """A scenario ready to be simulated.

    arrivals_ms: float64[queries], ascending. prices_usd_per_h: of a replica, by stage. hardware: by stage. carried_rps: by
    stage, the queries a second that one replica carries in full batches (NaN for a language model). sample_ms: the arrivals
    that a tuner compares with, from 0 on (empty: none). files: what was read. notes: what was repaired or assumed.
    """

    scenario: Scenario
    pipeline: Pipeline
    arrivals_ms: Floats
    prices_usd_per_h: tuple[float, ...]
    hardware: tuple[str, ...]
    carried_rps: tuple[float, ...]
    sample_ms: Floats
    files: ScenarioFiles = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()

    def with_seed(self, seed: int) -> Inputs:
        """The same scenario with everything that is random drawn from another seed. Reads no file."""
        return _prepared(self.scenario, self.files, seed)

    def replication(self, number: int) -> Inputs:
        """Fresh random numbers for replication `number` of an interval; 0 is the first beside the run itself."""
        return self.with_seed(int(stream(self.scenario.seed, "replication", number).integers(2**32)))


def prepare(scenario: Scenario) -> Inputs:
    """Read the scenario's files, resolve the names in it and make its arrivals.

    Raises ScenarioError, ProfileError or TraceError with every problem found.
    """
    return _prepared(scenario, ScenarioFiles(scenario.profiles), scenario.seed)


def _prepared(scenario: Scenario, files: ScenarioFiles, seed: int) -> Inputs:
    arrivals, trace, notes = _arrivals_of(scenario, files, scenario.trace, seed)
    aliases: list[str] = []
    problems: list[Problem] = []
    profile = files.profile
    stages = [_Placed(scenario, spec, profile, aliases, problems, seed) for spec in _in_order(scenario)]
    for placed in stages:
        placed.place_model(files, trace, len(arrivals), seed, notes, problems)
    edges = [_edges(scenario, placed.spec, stages, trace, len(arrivals), problems) for placed in stages]
    prices = [_price(scenario, placed, problems) for placed in stages]
    if problems:
        raise ScenarioError(*problems)
    _check_clock(stages, arrivals)
    return Inputs(
        scenario,
        Pipeline(tuple(placed.built(incoming) for placed, incoming in zip(stages, edges)), seed=seed),
        arrivals,
        tuple(prices),
        tuple(placed.hardware for placed in stages),
        tuple(placed.carried_rps(scenario, profile) for placed in stages),
        _sample_ms(scenario, files),
        files,
        tuple(dict.fromkeys([*notes, *aliases])),
    )


class _Placed:
    """A stage with its hardware and service times resolved; what is wrong is added to `problems`."""

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
        self.full = scenario.record == "full"
        also = engine_of(scenario).aliases
        self.model = _alias(spec.model or spec.name, profile.models, also, aliases)
        self.hardware = _alias(self.placement.hardware, profile.hardware_of(self.model), also, aliases)
        self.service: Service | None = None
        self.llm: LanguageModel | None = None
        if self.placement.llm is None:
            try:
                self.service = self._service(scenario, profile, seed)
            except ForerunError as error:
                problems.extend(error.problems)

    def place_model(
        self,
        files: ScenarioFiles,
        trace: Trace | None,
        queries: int,
        seed: int,
        notes: list[str],
        problems: list[Problem],
    ) -> None:
        """Resolve the language model of the stage, if it serves one: its limits, its costs, the tokens of its requests."""
        if self.placement.llm is None:
            return
        try:
            self.llm, noted = language_model_of(
                self.placement.llm, self.spec.name, files, trace, queries, seed
            )
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

    def carried_rps(self, scenario: Scenario, profile: Profile) -> float:
        """Queries a second that one replica carries in full batches: as measured where service is the mean, else batch
        over time."""
        if self.llm is not None:
            return math.nan
        assert self.service is not None
        most = self.placement.max_batch
        between = most * 1e3 / float(self.service.table_ms[most])
        if scenario.service != "mean":
            return between
        measured = {row.batch: row.throughput_qps for row in profile.rows(self.model, self.hardware)}
        return measured.get(most, between)

    def built(self, edges: tuple[Edge, ...]) -> Stage:
        """The stage as the engines want it."""
        assert self.service is not None
        placed = self.placement
        return Stage(
            self.spec.name,
            edges,
            placed.max_batch,
            placed.replicas,
            self.service,
            placed.batching,
            tuple((change.at_s * 1e3, change.replicas) for change in placed.changes),
            self.llm,
        )


def _alias(name: str, known: tuple[str, ...], also: Mapping[str, str], notes: list[str]) -> str:
    """The known name that is meant by another spelling which the engine accepts; noted."""
    if name not in known and also.get(name) in known:
        notes.append(f"repair: {name!r} was read as {also[name]!r}, as the notebook means it")
        return also[name]
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


def _arrivals_of(
    scenario: Scenario,
    files: ScenarioFiles,
    given: Generated | Replayed | Listed,
    seed: int,
    where: str = "$.trace",
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
    trace = files.trace(given)
    if not len(trace):
        raise TraceError.at(given.file.path, "holds no arrival")
    if len(trace) > most:
        raise TraceError.at(given.file.path, too_many(scenario, len(trace)))
    notes = [f"repair: {repair['rule']}, {repair['count']} times" for repair in trace.provenance.repairs]
    return arrivals_ms(trace), trace, notes


def _sample_ms(scenario: Scenario, files: ScenarioFiles) -> Floats:
    """The sample's arrivals where a tuner compares with them, the first at 0. Generated ones are drawn on a stream of their
    own, the same in every replication: the plan was made once."""
    if scenario.sample is None or not scenario.tuned:
        return np.empty(0)
    seed = int(stream(scenario.seed, "sample").integers(2**32))
    arrivals, _, _ = _arrivals_of(scenario, files, scenario.sample, seed, "$.sample")
    begun: Floats = arrivals - arrivals[0]
    return begun


def _check_clock(stages: list[_Placed], arrivals: Floats) -> None:
    """Instants must be distinguishable: adding the shortest service to the last arrival must move the clock."""
    least = min((placed.service.least_ms for placed in stages if placed.service is not None), default=1.0)
    last = float(arrivals[-1])
    if least > 0 and not last + least > last:
        what = f"instants near {last:g} ms cannot tell a service of {least:g} ms; begin the trace nearer to 0"
        raise TraceError.at("$.trace", what)


def mean_rate_rps(arrivals: Floats) -> float:
    """Arrivals per second over the trace: gaps over the time they span; NaN if that is no time at all."""
    span_ms = float(arrivals[-1] - arrivals[0])
    return (len(arrivals) - 1) * 1e3 / span_ms if span_ms > 0 else math.nan
