"""The records of a serving scenario: a pipeline, its machines, its traffic, and the objective."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from forerun.core.errors import known_names
from forerun.core.scenario.checks import failing
from forerun.core.scenario.numbers import Count, NotNegative, Positive
from forerun.core.scenario.spec import Input, Spec, chosen_from
from forerun.serving.llm.scenario.language_model import Gateway, HistoryPrefixes, LanguageModelSpec, Replicas
from forerun.serving.policies.fixed import Fixed
from forerun.serving.policies.greedy import Greedy
from forerun.serving.policy.batching import Batching, batching_policies
from forerun.serving.policy.tuning import Tuner, tuner_policies
from forerun.serving.scenario.limits import MOST_BYTES, gib, may_miss
from forerun.serving.scenario.sessions import AnySessions, Conversations, Jobs, RecordedSessions
from forerun.serving.scenario.traces import AnyTrace, ClosedLoop, Generated, Listed, Replayed

#: bytes of a query; of each of its visits where everything is recorded; of a replica; of a seat of a language model
QUERY_BYTES: Final = 40
VISIT_BYTES: Final = 225
REPLICA_BYTES: Final = 64
SEAT_BYTES: Final = 16
#: queries that mode compat plays, event by event
MOST_COMPAT_QUERIES: Final = 5_000_000

SOURCE_NAME = "source"
#: of a replica, in $/h: so little that all replicas of a plan have a price
Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
#: what to do about costs that miss their own data
ACCEPT = "fit them again, or accept them with --accept-fit (accept_fit: true)"


class StageSpec(Spec, frozen=True, kw_only=True):
    """One stage.

    name: by which the rest of the scenario calls it.
    parents: names of stages, or `source`, in declared order.
    model: what it runs, as the profile calls it (default: the stage's name).
    """

    name: str
    parents: tuple[str, ...]
    model: str = ""


class EdgeSpec(Spec, frozen=True, kw_only=True):
    """An edge that not every query takes. Its place in the list numbers its draws.

    parent: where it comes from, a stage or `source`.
    stage: where it leads.
    share: probability with which a query takes it, drawn; give this or `recorded`.
    recorded: who takes it is in the trace's column `parent>stage`.
    """

    parent: str
    stage: str
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    recorded: bool = False

    def problems(self) -> list[tuple[str, str]]:
        if (self.share is None) != self.recorded:
            return [("", "give exactly one of share and recorded: true; edges not listed are always taken")]
        return []


class Change(Spec, frozen=True, kw_only=True):
    """From `at_s` on there are `replicas`; 0 where a language model is served, whose requests wait for the next change."""

    at_s: NotNegative
    replicas: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Placement(Spec, frozen=True, kw_only=True):
    """How a stage is run.

    hardware: what its replicas run on, as the profile calls it.
    max_batch: queries in the largest batch (default 1).
    replicas: at the start (default 1).
    batching: when a batch starts (default: greedy).
    changes: of replicas over time (default: none).
    llm: instead of batches, what its replicas hold and cost if they serve a language model.
    """

    hardware: str
    max_batch: Count = 1
    replicas: Replicas = 1
    batching: Annotated[Batching, chosen_from(batching_policies)] = msgspec.field(default_factory=Greedy)
    changes: tuple[Change, ...] = ()
    llm: LanguageModelSpec | None = None

    def problems(self) -> list[tuple[str, str]]:
        """Changes are in order and leave a replica; a language model batches by itself."""
        instants = [change.at_s for change in self.changes]
        late = [i for i in range(1, len(instants)) if instants[i] <= instants[i - 1]]
        found = [(f"changes.{i}.at_s", f"{instants[i]:g} s is not after {instants[i - 1]:g} s") for i in late]
        none = [i for i, change in enumerate(self.changes) if not change.replicas]
        if self.llm is None:
            what = "is 0; only a stage that serves a language model can be without a replica"
            return [*found, *((f"changes.{i}.replicas", what) for i in none)]
        if none and none[-1] == len(self.changes) - 1:
            what = "is 0 for the rest of the run; requests that come or wait then would never be served"
            found.append((f"changes.{none[-1]}.replicas", what))
        if self.llm.decode is not None and self.changes:
            found.append(
                ("changes", "do not apply to replicas that prefill while others decode; leave them out")
            )
        given = {"max_batch": self.max_batch != 1, "batching": not isinstance(self.batching, Greedy)}
        what = "says nothing about a stage with a language model, which batches continuously"
        return [*found, *((name, what) for name, wrong in given.items() if wrong)]


class Tables(Spec, frozen=True, kw_only=True):
    """Service times written out: per stage the ms that a batch of 1, 2, ... takes."""

    tables_ms: dict[str, tuple[Positive, ...]]


class Sampled(Spec, frozen=True, kw_only=True):
    """Service times drawn per batch, in start order, one stream a stage.

    law: `exponential`, `lognormal`, or `measured`: one of the values measured.
    around: what the profile's times are multiplied by the draw of: `mean` (default) or `p99`.
    cv: coefficient of variation of the law lognormal.
    measured_ms: values for the law measured, by stage and batch size.
    """

    law: Literal["exponential", "lognormal", "measured"]
    around: Literal["mean", "p99"] = "mean"
    cv: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    measured_ms: dict[str, dict[int, tuple[Positive, ...]]] = {}

    def problems(self) -> list[tuple[str, str]]:
        cv = f"is {self.cv:g}; lognormal needs one above 0, the other laws have none"
        measured = bool(self.measured_ms) != (self.law == "measured")
        return failing(
            [
                ((self.cv > 0) != (self.law == "lognormal"), "cv", cv),
                (measured, "measured_ms", "belongs to the law measured, which needs it"),
            ]
        )


class Compat(Spec, frozen=True, kw_only=True):
    """What only `mode: compat` knows.

    batching_delay_ms: the notebook's, between waking a replica and its batch (default 0).
    wake: the notebook's wake rule as written (default) or corrected.
    queue_series: record every stage's queue as the notebook does (default no).
    """

    batching_delay_ms: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    wake: Literal["notebook", "corrected"] = "notebook"
    queue_series: bool = False


class Intervals(Spec, frozen=True, kw_only=True):
    """Confidence intervals of the headline: from runs on fresh seeds for generated traces, batch means for replayed ones.

    replications: runs, this one among them (default 20; 0: no intervals).
    confidence: that an interval is right (default 0.95).
    """

    replications: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 20
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.95

    def problems(self) -> list[tuple[str, str]]:
        what = "1 gives no interval; 0 means none, 2 or more some"
        return failing([(self.replications == 1, "replications", what)])


class Scenario(Spec, frozen=True, kw_only=True):
    """A pipeline, the machines it runs on, the traffic it meets, and the objective.

    mode: `default`, or `compat`: the semantics of the InferLine notebook.
    seed: of everything that is drawn.
    trace: the arrivals: a process, a file, or instants; or clients who wait for answers.
    stages, edges: the pipeline; edges are those that not every query takes.
    configuration: by stage, how it is run.
    profiles: files of measured service times, added to the built-in ones.
    service: what a batch takes: by the profile's mean (default) or p99, as the notebook has it, written out, or drawn.
    slo_ms: latency above which a query misses (0, the default: none, where language models have objectives of their own).
    attainment: share of queries that must not miss (default 0.99).
    prices_usd_per_h: of a replica, by hardware, added to the built-in ones.
    tuner: who changes the numbers of replicas while the trace runs (default: nobody).
    sample: the traffic that the configuration was planned for, which some tuners compare with.
    record: `full` (default), `latency`, or `counts` of misses only.
    tie_rules: `both` adds the P99 under the notebook's rule for simultaneous events.
    compat: settings of mode compat.
    intervals: how confidence intervals are made.
    accept_fit: use fitted costs that miss their own data (left out: such costs are refused).
    max_concurrency: a query is not sent while so many are under way; latencies count from sending (left out: no limit).
    warm_up: queries, the first that are sent, that no figure counts (left out: none).
    sessions: how requests of a user or an agent follow each other (left out: each query stands alone).
    """

    domain: Literal["serving"] = "serving"
    spec_version: int = 1
    mode: Literal["default", "compat"] = "default"
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    trace: AnyTrace
    stages: tuple[StageSpec, ...]
    edges: tuple[EdgeSpec, ...] = ()
    configuration: dict[str, Placement]
    profiles: tuple[Input, ...] = ()
    service: Literal["mean", "p99", "notebook"] | Tables | Sampled = "mean"
    slo_ms: NotNegative = 0.0
    attainment: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.99
    prices_usd_per_h: dict[str, Price] = {}
    tuner: Annotated[Tuner, chosen_from(tuner_policies)] = msgspec.field(default_factory=Fixed)
    sample: Generated | Replayed | Listed | None = None
    record: Literal["counts", "latency", "full"] = "full"
    tie_rules: Literal["own", "both"] = "own"
    compat: Compat = Compat()
    intervals: Intervals = Intervals()
    accept_fit: bool | None = None
    max_concurrency: Count | None = None
    warm_up: Count | None = None
    sessions: AnySessions | None = None

    added_later: ClassVar[tuple[str, ...]] = ("accept_fit", "max_concurrency", "warm_up", "sessions")

    def problems(self) -> list[tuple[str, str]]:
        names = [stage.name for stage in self.stages]
        return [
            *self._stage_problems(names),
            *self._edge_problems(),
            *self._configuration_problems(names),
            *self._mode_problems(),
            *self._tuner_problems(),
            *self._client_problems(),
            *self._llm_problems(),
            *size_problems(self),
        ]

    def _stage_problems(self, names: list[str]) -> list[tuple[str, str]]:
        problems = [] if names else [("stages", "lists no stage")]
        for i, stage in enumerate(self.stages):
            if stage.name in ("", SOURCE_NAME) or ">" in stage.name:
                problems.append((f"stages.{i}.name", f"{stage.name!r} cannot name a stage"))
            if stage.name in names[:i]:
                problems.append((f"stages.{i}.name", f"{stage.name!r} names two stages"))
            if not stage.parents:
                problems.append(
                    (f"stages.{i}.parents", f"stage {stage.name!r} has no parent; write [source]")
                )
            for j, parent in enumerate(stage.parents):
                where = f"stages.{i}.parents.{j}"
                if parent != SOURCE_NAME and parent not in names:
                    problems.append(
                        (where, f"no stage named {parent!r}; {known_names(parent, [SOURCE_NAME, *names])}")
                    )
                if parent in stage.parents[:j]:
                    problems.append((where, f"{parent!r} stands twice among the parents"))
        return problems or self._cycle_problems()

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
        known_edges = {(parent, stage.name) for stage in self.stages for parent in stage.parents}
        problems = []
        seen: set[tuple[str, str]] = set()
        for i, edge in enumerate(self.edges):
            pair = (edge.parent, edge.stage)
            if pair not in known_edges:
                known = known_names(">".join(pair), [">".join(known) for known in known_edges])
                problems.append((f"edges.{i}", f"no edge {'>'.join(pair)}; {known}"))
            if pair in seen:
                problems.append((f"edges.{i}", f"{'>'.join(pair)} stands twice"))
            seen.add(pair)
        return problems

    def _configuration_problems(self, names: list[str]) -> list[tuple[str, str]]:
        problems = [
            (f"configuration.{name}", f"no stage named {name!r}; {known_names(name, names)}")
            for name in self.configuration
            if name not in names
        ]
        missing = [name for name in names if name not in self.configuration]
        if missing:
            problems.append(("configuration", f"does not say how to run {', '.join(missing)}"))
        if isinstance(self.service, Tables):
            for name in names:
                length, placed = len(self.service.tables_ms.get(name, ())), self.configuration.get(name)
                if placed is not None and placed.llm is None and length < placed.max_batch:
                    what = f"{length} service times for stage {name!r}, whose largest batch is {placed.max_batch}"
                    problems.append(("service.tables_ms", what))
        return problems

    def _mode_problems(self) -> list[tuple[str, str]]:
        if self.mode == "default":
            return failing([(self.compat != Compat(), "compat", "is read in mode compat only")])
        drawn, knows = isinstance(self.service, Sampled), "mode compat knows"
        checks = [
            (bool(self.edges), "edges", f"{knows} no conditional edges"),
            (drawn, "service", f"{knows} no drawn service times"),
        ]
        for name, placed in self.configuration.items():
            where, greedy = f"configuration.{name}", isinstance(placed.batching, Greedy)
            batching = f"{knows} greedy batching and compat.batching_delay_ms only"
            checks += [
                (bool(placed.changes), f"{where}.changes", f"{knows} no changes of replicas"),
                (not greedy, f"{where}.batching", batching),
            ]
        return failing(checks)

    @property
    def tuned(self) -> bool:
        """Whether anybody changes the numbers of replicas during the run."""
        return not isinstance(self.tuner, Fixed)

    def _tuner_problems(self) -> list[tuple[str, str]]:
        if not self.tuned:
            return []
        name, both = self.tuner.__struct_config__.tag, self.tie_rules == "both"
        checks = [
            (self.mode == "compat", "tuner", "mode compat knows no changes of replicas"),
            (both, "tie_rules", "the notebook's rule knows no changes of replicas; write own"),
        ]
        changes = f"the tuner {name!r} decides on replicas; leave out the changes, or the tuner"
        for stage, placed in self.configuration.items():
            where, most = f"configuration.{stage}", self.tuner.max_replicas
            kind = type(placed.batching).__name__
            unseen = f"the tuner {name!r} sees queues, which it cannot where batching policy {kind} has no compiled form"
            above = f"{placed.replicas} is above the tuner's max_replicas, {most}"
            checks += [
                (bool(placed.changes), f"{where}.changes", changes),
                (placed.replicas > most, f"{where}.replicas", above),
                (
                    self.tuner.sees != "arrivals" and placed.batching.compiled() is None,
                    f"{where}.batching",
                    unseen,
                ),
            ]
        what = (
            f"the tuner {name!r} compares with the traffic that the configuration was planned for; give it as sample (like "
            "trace: a process, a file, or arrivals)"
        )
        lacking = self.tuner.needs_sample and self.sample is None
        for stage, placed in self.configuration.items():
            if placed.llm is not None:
                where, seeing = f"configuration.{stage}.llm", self.tuner.sees != "arrivals"
                blind = (
                    f"the tuner {name!r} counts what a replica carries, which is not known of a language model; attainment, "
                    "ongoing and utilisation see its queues"
                )
                apart = f"the tuner {name!r} does not change replicas that prefill while others decode"
                checks += [
                    (not seeing, where, blind),
                    (placed.llm.decode is not None, f"{where}.decode", apart),
                ]
        models = any(placed.llm is not None for placed in self.configuration.values())
        unserved = f"{name!r} looks at language models, and no stage serves one"
        checks.append((self.tuner.sees == "requests" and not models, "tuner", unserved))
        return failing([*checks, (lacking, "sample", what)])

    @property
    def waits_for_answers(self) -> bool:
        """Whether it depends on answers when queries are sent."""
        return bool(self.load_in_words)

    @property
    def load_in_words(self) -> str:
        """What makes it depend on answers when queries are sent; empty where nothing does."""
        words, trace = [], self.trace
        if isinstance(trace, ClosedLoop):
            words.append(f"{trace.clients:,} clients who think {trace.think_s:g} s between answer and query")
        if self.sessions is not None:
            words.append(self.sessions.in_words)
        if self.max_concurrency is not None:
            words.append(f"at most {self.max_concurrency:,} queries under way")
        words += [f"a gateway before {name}" for name in self._gateways]
        return ", ".join(words)

    @property
    def _gateways(self) -> dict[str, Gateway]:
        """By stage."""
        models = {name: placed.llm for name, placed in self.configuration.items() if placed.llm is not None}
        return {name: llm.gateway for name, llm in models.items() if llm.gateway is not None}

    @property
    def gateway(self) -> tuple[int, int | None] | None:
        """Requests that a gateway passes on before one is answered, and those that wait there at most (None: no limit)."""
        for name, gateway in self._gateways.items():
            return gateway.per_replica * self.configuration[name].replicas, gateway.queue
        return None

    @property
    def _one_model(self) -> bool:
        """Whether all queries go to one stage, which serves a language model."""
        models = [placed.llm is not None for placed in self.configuration.values()]
        return len(self.stages) == 1 and all(models) and not self.edges

    def _client_problems(self) -> list[tuple[str, str]]:
        why = "when queries are sent depends on answers here"
        where = "sessions" if self.sessions else "max_concurrency"
        where = "trace.clients" if isinstance(self.trace, ClosedLoop) else where
        for name in self._gateways:
            where = f"configuration.{name}.llm.gateway"
        checks = [
            (
                self.waits_for_answers and self.mode == "compat",
                where,
                f"{why}, which mode compat does not know",
            ),
            (
                self.waits_for_answers and self.tuned and not self._one_model,
                where,
                f"{why}, which tuners know of one language model alone; leave out the tuner",
            ),
            (
                self.waits_for_answers and self.tie_rules == "both",
                where,
                f"{why}, which the notebook's tie rule does not know; write tie_rules: own",
            ),
            *self._session_checks(),
            (
                bool(self._gateways)
                and (
                    len(self.stages) > 1
                    or self.tuned
                    or any(one.changes for one in self.configuration.values())
                ),
                where,
                "stands before the only stage, whose replicas do not change",
            ),
        ]
        return failing(checks)

    def _session_checks(self) -> Iterator[tuple[bool, str, str]]:
        """Sessions have language models, whose tokens are stated once, and a trace that may have them."""
        recorded = isinstance(self.sessions, RecordedSessions)
        yield (
            recorded and not isinstance(self.trace, Replayed),
            "sessions.follow",
            "needs a trace with a file",
        )
        models = {name: placed.llm for name, placed in self.configuration.items() if placed.llm is not None}
        yield (
            self.sessions is not None and not models,
            "sessions",
            "need a stage that serves a language model",
        )
        for name, llm in models.items():
            where, history = f"configuration.{name}.llm", isinstance(llm.prefix_cache, HistoryPrefixes)
            own = isinstance(self.sessions, Conversations | Jobs)
            yield history and not own, f"{where}.prefix_cache.history", "needs sessions with turns or steps"
            whole = llm.prefix_cache is not None and not history
            yield own and whole, f"{where}.prefix_cache", "of sessions with turns or steps is {history: true}"
            twice = "the steps of sessions say the tokens; leave them out"
            yield isinstance(self.sessions, Jobs) and llm.tokens is not None, f"{where}.tokens", twice

    @property
    def latency_limit_ms(self) -> float:
        """Latency above which a query misses; infinite where none is stated."""
        return self.slo_ms or math.inf

    def _llm_problems(self) -> list[tuple[str, str]]:
        reasons = [
            (self.mode == "compat", "mode compat knows no language models"),
            (
                self.tie_rules == "both",
                "the notebook's tie rule knows no language models; write tie_rules: own",
            ),
        ]
        served = {name: placed.llm for name, placed in self.configuration.items() if placed.llm is not None}
        what = "is 0, or not stated: the latency above which a query misses"
        also = "; or say objectives of a language model, such as ttft_slo_ms" if served else ""
        missing = [
            (
                not self.accept_fit,
                f"configuration.{name}.llm.{where}.fit",
                f"these costs {fit.missing}; {ACCEPT}",
            )
            for name, llm in served.items()
            for where, fit in llm.fits.items()
            if fit.misses
        ]
        without = not self.slo_ms and not any(llm.limits for llm in served.values())
        return failing(
            [
                (without, "slo_ms", what + also),
                *((wrong, f"configuration.{name}.llm", why) for name in served for wrong, why in reasons),
                *missing,
            ]
        )

    def allowed_misses(self, queries: int) -> int:
        """Of so many queries, those that may miss."""
        return may_miss(self.attainment, queries)


def _query_bytes(scenario: Scenario) -> int:
    return QUERY_BYTES + VISIT_BYTES * len(scenario.stages) * (scenario.record == "full")


def _fixed_bytes(scenario: Scenario) -> int:
    """What replicas and seats take; every stage has arrays for as many replicas as the largest."""
    placed = scenario.configuration.values()
    most = max(
        (max(one.replicas, *(change.replicas for change in one.changes), 1) for one in placed), default=1
    )
    models = [(one.replicas, one.llm) for one in placed if one.llm is not None]
    seats = sum(replicas * llm.max_seqs for replicas, llm in models)
    decoders = [(llm.decode, llm.max_seqs) for _, llm in models if llm.decode is not None]
    seats += sum(pool.replicas * (pool.max_seqs or most) for pool, most in decoders)
    most = max([most, *(pool.replicas for pool, _ in decoders)])
    return REPLICA_BYTES * len(scenario.stages) * most + SEAT_BYTES * seats


def most_queries(scenario: Scenario) -> int:
    """The most queries that a run of the scenario may have."""
    most = max(0, MOST_BYTES - _fixed_bytes(scenario)) // _query_bytes(scenario)
    return min(most, MOST_COMPAT_QUERIES) if scenario.mode == "compat" else most


def size_problems(scenario: Scenario) -> list[tuple[str, str]]:
    """What is too large, before any file is read and any number is drawn."""
    fixed = _fixed_bytes(scenario)
    if fixed > MOST_BYTES:
        what = f"replicas and seats would take {gib(fixed)} of memory; at most {gib(MOST_BYTES)} are used"
        return [("configuration", what)]
    traces = {"trace": scenario.trace, "sample": scenario.sample}
    counts = {
        f"{name}.queries": trace.queries
        for name, trace in traces.items()
        if isinstance(trace, Generated | ClosedLoop)
    }
    return [
        (name, too_many(scenario, count)) for name, count in counts.items() if count > most_queries(scenario)
    ]


def too_many(scenario: Scenario, queries: int, counted: str = "") -> str:
    """What this many queries would take, and what to do.

    Parameters
    ----------
    scenario : whose stages and record say how many bytes a query takes.
    queries : how many there would be.
    counted : how many in words, where that is not known exactly (default: it is).
    """
    most = most_queries(scenario)
    if scenario.mode == "compat" and most == MOST_COMPAT_QUERIES:
        return f"{counted or f'{queries:,}'} queries; mode compat plays at most {most:,}, event by event"
    takes = f"{counted or f'{queries:,}'} queries recorded in {scenario.record!r} take {'more than ' * bool(counted)}"
    size = gib(_fixed_bytes(scenario) + _query_bytes(scenario) * queries)
    less = "; record: counts takes least" if scenario.record == "full" else ""
    return f"{takes}{size} of memory; at most {most:,} are simulated ({gib(MOST_BYTES)}){less}"
