"""From a scenario to what is simulated: files read, names resolved, arrivals made. Bad input is reported here."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import ForerunError, Problem, ScenarioError, TraceError, known_names
from forerun.core.rng import stream, stream_key
from forerun.core.trace.requests import arrivals_ms
from forerun.core.trace.table import Trace
from forerun.serving.engine import engine_of
from forerun.serving.inputs.clients import UNLIMITED, Clients
from forerun.serving.inputs.inputs import Inputs, ScenarioFiles
from forerun.serving.inputs.pipeline import (
    SOURCE,
    Edge,
    Floats,
    Law,
    Pipeline,
    Service,
    Stage,
    topological,
)
from forerun.serving.inputs.profile import ARTIFACT_PRICES_USD_PER_H
from forerun.serving.inputs.sessions import Sessions, drawn_ms, sessions_of
from forerun.serving.llm.inputs.model import LanguageModel
from forerun.serving.llm.inputs.resolve import language_model_of
from forerun.serving.llm.scenario.language_model import LanguageModelSpec
from forerun.serving.policy.envelope import mean_rate_rps
from forerun.serving.policy.tuning import Tuner
from forerun.serving.scenario import (
    SOURCE_NAME,
    Placement,
    Sampled,
    Scenario,
    StageSpec,
    Tables,
    most_queries,
    too_many,
)
from forerun.serving.scenario.limits import check_decisions, check_language_model
from forerun.serving.scenario.traces import AnyTrace, ClosedLoop, Generated, Listed


def prepare(scenario: Scenario, files: ScenarioFiles | None = None, seed: int | None = None) -> Inputs:
    """Read the scenario's files, resolve the names in it and make its arrivals.

    Parameters
    ----------
    files : those that were read for other inputs, and are not read again (default: none).
    seed : of everything that is random (default: the scenario's).

    Raises ScenarioError, ProfileError or TraceError with every problem.
    """
    files = ScenarioFiles(scenario.profiles) if files is None else files
    seed = scenario.seed if seed is None else seed
    arrivals, trace, notes = _arrivals_of(scenario, files, scenario.trace, seed)
    sessions = None
    if scenario.sessions is not None:
        sessions = sessions_of(scenario.sessions, arrivals, trace, seed)
        if len(sessions) > most_queries(scenario):
            raise ScenarioError.at("$.sessions", too_many(scenario, len(sessions)))
        arrivals = sessions.planned_ms
        # The rows of a trace are begins of sessions then, not requests.
        trace = trace if sessions.base is None else None
    if (scenario.warm_up or 0) >= len(arrivals):
        what = f"{scenario.warm_up} queries are left out of {len(arrivals)}; some must be counted"
        raise ScenarioError.at("$.warm_up", what)
    return _Preparation(scenario, files, seed, arrivals, trace, sessions, notes).inputs()


@dataclass(frozen=True)
class _Placed:
    """A stage with its names resolved.

    Parameters
    ----------
    spec, placement : as the scenario gives them.
    model, hardware : as the profile spells them.
    service : what a batch takes (None: something is wrong with the stage).
    llm : what its replicas run, if they serve a language model.
    """

    spec: StageSpec
    placement: Placement
    model: str
    hardware: str
    service: Service | None
    llm: LanguageModel | None


@dataclass
class _Preparation:
    """A scenario whose names are being resolved; problems are gathered, so that all are reported at once.

    Parameters
    ----------
    scenario : as it was given.
    files : the files that it names, read when they are needed.
    seed : of everything that is drawn.
    arrivals_ms : float64[queries], ascending.
    trace : where they come from, if that is a file; it may have routing and tokens too.
    sessions : which follow which (None: none does).
    notes : what a reader of the result should know.
    aliases : notes on names that were read as others.
    problems : what is wrong.
    """

    scenario: Scenario
    files: ScenarioFiles
    seed: int
    arrivals_ms: Floats
    trace: Trace | None
    sessions: Sessions | None
    notes: list[str]
    aliases: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def inputs(self) -> Inputs:
        """The inputs. Raises ScenarioError with every problem."""
        specs = _in_order(self.scenario)
        stages = [self._placed(spec) for spec in specs]
        numbers = {SOURCE_NAME: SOURCE} | {spec.name: number for number, spec in enumerate(specs)}
        edges = [self._edges(spec, numbers) for spec in specs]
        prices = [self._price(placed) for placed in stages]
        decode_usd_per_h = [self._decode_usd_per_h(placed) for placed in stages]
        if self.problems:
            raise ScenarioError(*self.problems)
        clients = _clients(self.scenario, self.arrivals_ms, self.sessions, self.seed)
        last_ms = float(self.arrivals_ms[-1]) if clients is None else clients.latest_ms
        _check_clock(stages, last_ms)
        sample_ms = _sample_ms(self.scenario, self.files)
        if self.scenario.tuned:
            _check_tuner(self.scenario.tuner, last_ms, sample_ms)
        return Inputs(
            self.scenario,
            Pipeline(tuple(map(_built, stages, edges)), seed=self.seed),
            self.arrivals_ms,
            tuple(prices),
            tuple(placed.hardware for placed in stages),
            tuple(self._carried_rps(placed) for placed in stages),
            tuple(decode_usd_per_h),
            sample_ms,
            self.files,
            tuple(dict.fromkeys([*self.notes, *self.aliases])),
            clients,
        )

    def _placed(self, spec: StageSpec) -> _Placed:
        """The stage with its model, its hardware, its service times and its language model."""
        placement, profile = self.scenario.configuration[spec.name], self.files.profile
        model = self._alias(spec.model or spec.name, profile.models)
        hardware = self._alias(placement.hardware, profile.hardware_of(model))
        service, llm = None, None
        try:
            if placement.llm is None:
                service = self._service(spec.name, placement, model, hardware)
            else:
                tuned = self.scenario.tuner.max_replicas if self.scenario.tuned else 0
                most = max(placement.replicas, tuned, *(change.replicas for change in placement.changes), 1)
                llm = self._language_model(spec.name, placement.llm, most)
                service = Service(np.array([0.0, llm.cost.least_ms]))
        except ForerunError as error:
            self.problems.extend(error.problems)
        return _Placed(spec, placement, model, hardware, service, llm)

    def _alias(self, name: str, known: tuple[str, ...]) -> str:
        """The known name that is meant by another spelling which the engine accepts; noted."""
        also = engine_of(self.scenario).aliases
        if name not in known and also.get(name) in known:
            self.aliases.append(f"repair: {name!r} was read as {also[name]!r}, as the notebook means it")
            return also[name]
        return name

    def _language_model(self, stage: str, spec: LanguageModelSpec, replicas: int) -> LanguageModel:
        """The stage's limits, its costs, the tokens of its requests."""
        queries = len(self.arrivals_ms)
        llm, noted = language_model_of(spec, stage, self.files, self.trace, queries, self.seed, self.sessions)
        first, pool = self.scenario.warm_up or 0, llm.decode
        pool = pool and replace(pool, llm=replace(pool.llm, warm_up=first))
        llm = replace(llm, warm_up=first, decode=pool)
        where, full = f"$.configuration.{stage}.llm", self.scenario.record == "full"
        check_language_model(llm, replicas, where, full=full)
        self.notes.extend(noted)
        return llm

    def _service(self, stage: str, placement: Placement, model: str, hardware: str) -> Service:
        """What a batch takes at a stage: from the scenario's tables, from a measured surface, or drawn.

        Parameters
        ----------
        stage : its name.
        placement : its largest batch.
        model, hardware : as the profile spells them.

        Raises ScenarioError or ProfileError where a time is not known.
        """
        where, kind, most = f"$.configuration.{stage}", self.scenario.service, placement.max_batch
        if isinstance(kind, Tables):
            return Service(np.array([0.0, *kind.tables_ms[stage][:most]]))
        table_of = functools.partial(self.files.profile.table_ms, model, hardware, where=where)
        if not isinstance(kind, Sampled):
            return Service(table_of(kind, most))
        key = stream_key(self.seed, "service", stage) & (2**64 - 1)
        if kind.law == "measured":
            return _measured(kind, stage, most, key)
        return Service(table_of(kind.around, most), Law[kind.law.upper()], cv=kind.cv, key=key)

    def _carried_rps(self, placed: _Placed) -> float:
        """Queries a second that one replica carries in full batches: as measured where service is the mean, else batch
        over time."""
        if placed.llm is not None:
            return math.nan
        assert placed.service is not None
        most = placed.placement.max_batch
        between = most * 1e3 / float(placed.service.table_ms[most])
        if self.scenario.service != "mean":
            return between
        rows = self.files.profile.rows(placed.model, placed.hardware)
        return {row.batch: row.throughput_qps for row in rows}.get(most, between)

    def _edges(self, spec: StageSpec, numbers: Mapping[str, int]) -> tuple[Edge, ...]:
        """The stage's edges, in declared order.

        Parameters
        ----------
        spec : the stage.
        numbers : of all stages, by name.
        """
        listed = {(edge.parent, edge.stage): number for number, edge in enumerate(self.scenario.edges)}
        edges = []
        for parent in spec.parents:
            number = listed.get((parent, spec.name))
            if number is None:
                edges.append(Edge(numbers[parent]))
            elif self.scenario.edges[number].recorded:
                column = self._routing(f"{parent}>{spec.name}", f"$.edges[{number}]")
                edges.append(Edge(numbers[parent], recorded=column))
            else:
                edges.append(Edge(numbers[parent], share=self.scenario.edges[number].share, number=number))
        return tuple(edges)

    def _routing(self, column: str, where: str) -> NDArray[np.bool_]:
        if self.trace is not None and column in self.trace:
            return self.trace[column].astype(np.bool_)
        known = [name for name in self.trace.columns if ">" in name] if self.trace is not None else []
        what = f"the trace has no routing column {column!r}; {known_names(column, known)}"
        self.problems.append(Problem(where, what))
        return np.zeros(len(self.arrivals_ms), dtype=np.bool_)

    def _decode_usd_per_h(self, placed: _Placed) -> float:
        pool = placed.placement.llm.decode if placed.placement.llm is not None else None
        if pool is None:
            return 0.0
        where = f"$.configuration.{placed.spec.name}.llm.decode.hardware"
        return pool.replicas * self._price_of(pool.hardware or placed.hardware, where)

    def _price(self, placed: _Placed) -> float:
        return self._price_of(placed.hardware, f"$.configuration.{placed.spec.name}.hardware")

    def _price_of(self, hardware: str, where: str) -> float:
        """$/h of a replica; a problem where it is not known."""
        prices: Mapping[str, float] = {**ARTIFACT_PRICES_USD_PER_H, **self.scenario.prices_usd_per_h}
        if hardware in prices:
            return prices[hardware]
        known = known_names(hardware, prices)
        what = f"no price of {hardware!r}; {known}; give it as prices_usd_per_h.{hardware}"
        self.problems.append(Problem(where, what))
        return 0.0


def _built(placed: _Placed, edges: tuple[Edge, ...]) -> Stage:
    """The stage as the engines want it."""
    assert placed.service is not None
    placement = placed.placement
    return Stage(
        placed.spec.name,
        edges,
        placement.max_batch,
        placement.replicas,
        placed.service,
        placement.batching,
        tuple((change.at_s * 1e3, change.replicas) for change in placement.changes),
        placed.llm,
    )


def _measured(kind: Sampled, stage: str, most: int, key: int) -> Service:
    """A service that draws one of the measured values, by batch size.

    Parameters
    ----------
    kind : the values, in ms, by stage and batch size.
    stage : name of the stage.
    most : largest batch of the stage; every size up to it needs a value.
    key : of the stage's stream of draws.

    Raises ScenarioError for a size without a value.
    """
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


def _arrivals_of(
    scenario: Scenario,
    files: ScenarioFiles,
    given: AnyTrace,
    seed: int,
    where: str = "$.trace",
) -> tuple[Floats, Trace | None, list[str]]:
    """Arrivals in ms, the trace they come from if it is a file, and what was noted.

    Parameters
    ----------
    scenario : whose limits on the number of queries count.
    files : reads the trace of a file.
    given : a process, a file, or the instants themselves.
    seed : of a process's random numbers.
    where : path in the scenario, for messages (default: `$.trace`).

    Raises ScenarioError or TraceError, also where there are more than can be simulated.
    """
    most = most_queries(scenario)
    if isinstance(given, Listed):
        return np.array(given.arrivals_ms), None, []
    if isinstance(given, ClosedLoop):
        return np.zeros(given.queries), None, []
    if isinstance(given, Generated):
        _check_drawn(scenario, given, where)
        n = given.queries or None
        instants = given.process.arrivals_ms(seed, n=n, horizon_s=None if n else given.horizon_s, most=most)
        if len(instants) > most:
            raise ScenarioError.at(f"{where}.horizon_s", too_many(scenario, most, f"more than {most:,}"))
        if not len(instants):
            raise ScenarioError.at(where, f"no query arrives within {given.horizon_s:g} s")
        return instants, None, []
    trace = files.trace(given)
    if not len(trace):
        raise TraceError.at(given.file.path, "contains no arrival")
    if len(trace) > most:
        raise TraceError.at(given.file.path, too_many(scenario, len(trace)))
    made = trace.provenance
    notes = [f"repair: {repair['rule']}, {repair['count']} times" for repair in made.repairs]
    if "assumed" in made.options:
        notes.append(f"{made.source} is read as {made.format}: {made.options['assumed']}")
    return arrivals_ms(trace), trace, notes


def _clients(scenario: Scenario, planned_ms: Floats, sessions: Sessions | None, seed: int) -> Clients | None:
    """What is sent where it depends on the answers; None where it does not.

    Parameters
    ----------
    planned_ms : float64[queries], none is sent before.
    sessions : which follow which (None: none does).
    seed : of the times that clients think.
    """
    if not scenario.waits_for_answers:
        return None
    trace, n, joins_ms, think_ms = scenario.trace, len(planned_ms), np.empty(0), np.zeros(len(planned_ms))
    if isinstance(trace, ClosedLoop):
        joins_ms = np.arange(min(trace.clients, trace.queries), dtype=np.float64) * (
            trace.ramp_up_s * 1e3 / trace.clients
        )
        think_ms = drawn_ms(trace.think_s, trace.think_cv, n, stream(seed, "think"))
    most = min(scenario.max_concurrency or UNLIMITED, UNLIMITED)
    if sessions is not None:
        clients = sessions.clients(joins_ms, think_ms, most)
    else:
        clients = Clients.single(planned_ms, joins_ms=joins_ms, think_ms=think_ms, most=most)
    if scenario.gateway is not None:
        gate, queue = scenario.gateway
        line = UNLIMITED if queue is None else min(queue, UNLIMITED)
        clients = replace(clients, gate=min(gate, UNLIMITED), queue=line)
    return clients


def _check_drawn(scenario: Scenario, trace: Generated, where: str) -> None:
    """Reject a horizon within which, at the process's own rate, far more queries arrive than can be simulated.

    Parameters
    ----------
    scenario : whose limit counts.
    trace : a process with a rate, and a horizon; a trace of so many queries passes.
    where : path of the trace in the scenario, for messages.

    Raises ScenarioError.
    """
    rate_rps = getattr(trace.process, "rate_rps", None)
    if trace.horizon_s and isinstance(rate_rps, (int, float)):
        expected = rate_rps * trace.horizon_s
        if expected > 2 * most_queries(scenario) + 1000:
            what = too_many(scenario, most_queries(scenario), f"about {expected:.3g}")
            raise ScenarioError.at(f"{where}.horizon_s", what)


def _sample_ms(scenario: Scenario, files: ScenarioFiles) -> Floats:
    """The sample's arrivals where a tuner compares with them, the first at 0. Generated ones are drawn on a stream of their
    own, the same in every replication: the plan was made once."""
    if scenario.sample is None or not scenario.tuned:
        return np.empty(0)
    seed = int(stream(scenario.seed, "sample").integers(2**32))
    arrivals, _, _ = _arrivals_of(scenario, files, scenario.sample, seed, "$.sample")
    begun: Floats = arrivals - arrivals[0]
    return begun


def _check_tuner(tuner: Tuner, last_ms: float, sample_ms: Floats) -> None:
    """A tuner is not asked without end, and compares with a sample that has a rate. Raises ScenarioError."""
    check_decisions(last_ms, tuner.period_s)
    if tuner.needs_sample and math.isnan(mean_rate_rps(sample_ms)):
        what = f"{len(sample_ms)} arrivals at one instant have no rate, which the tuner compares with"
        raise ScenarioError.at("$.sample", what)


def _check_clock(stages: list[_Placed], last_ms: float) -> None:
    """Instants must be distinguishable: adding the shortest service to the last arrival must move the clock.

    Parameters
    ----------
    last_ms : when the last query arrives; where that depends on answers, at the latest if these take no time.
    """
    least = min((placed.service.least_ms for placed in stages if placed.service is not None), default=1.0)
    models = [placed.llm for placed in stages if placed.llm is not None]
    last_ms += sum(llm.cost.request_ms + (llm.decode.longest_ms if llm.decode else 0.0) for llm in models)
    if least > 0 and not last_ms + least > last_ms:
        waits = ", or let clients wait less" if models else ""
        what = f"instants near {last_ms:g} ms cannot tell a service of {least:g} ms; begin the trace nearer to 0{waits}"
        raise TraceError.at("$.trace", what)
