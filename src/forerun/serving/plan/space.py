"""What a planner may choose: per stage the hardware it was measured on, its batch sizes and numbers of replicas."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import Problem, ScenarioError, known_names
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import SOURCE, Floats, Pipeline, Service, Stage
from forerun.serving.inputs.prepare import prepare
from forerun.serving.inputs.profile import ARTIFACT_PRICES_USD_PER_H, Profile
from forerun.serving.inputs.routing import taken_edges
from forerun.serving.policies.greedy import Greedy
from forerun.serving.policy.envelope import mean_rate_rps
from forerun.serving.scenario import Sampled, Scenario, StageSpec, Tables

MAX_REPLICAS: Final = 60
#: why a scenario in which replicas come or go cannot be planned
KEPT: Final = "plans keep the number of replicas"


class Choice(NamedTuple):
    """How one stage is run.

    Parameters
    ----------
    hardware : what its replicas run on.
    max_batch : queries in the largest batch.
    replicas : how many there are.
    """

    hardware: str
    max_batch: int
    replicas: int


#: a choice a stage, in the space's order
Configuration = tuple[Choice, ...]


@dataclass(frozen=True)
class Offer:
    """A stage on one hardware.

    Parameters
    ----------
    hardware : its name.
    price : $ per hour and replica.
    batches : the batch sizes to choose from, ascending.
    table_ms : float64[largest batch + 1], time of a batch of n at index n.
    qps : by batch, queries a second that one replica carries.
    p99_ms : by batch, the measured 99th percentile of its time.
    """

    hardware: str
    price: float
    batches: tuple[int, ...]
    table_ms: Floats = field(repr=False)
    qps: Mapping[int, float] = field(repr=False)
    p99_ms: Mapping[int, float] = field(repr=False)


@dataclass(frozen=True)
class Traffic:
    """Queries as they come, and where they go.

    Parameters
    ----------
    arrivals_ms : float64[n], ascending.
    taken : per edge of the pipeline bool[n], who takes it (None: everybody at its parent).
    """

    arrivals_ms: Floats = field(repr=False)
    taken: tuple[NDArray[np.bool_] | None, ...] = field(repr=False)

    @property
    def queries(self) -> int:
        """How many there are."""
        return len(self.arrivals_ms)

    @property
    def rate_rps(self) -> float:
        """Arrivals a second over the trace; NaN if that is no time at all."""
        return mean_rate_rps(self.arrivals_ms)

    def scaled(self, factor: float) -> Traffic:
        """The same queries in a time `factor` as long."""
        return Traffic(self.arrivals_ms * factor, self.taken)


@dataclass(frozen=True)
class Space:
    """All configurations of a pipeline, and the objective they must meet.

    Parameters
    ----------
    names : of the stages, in topological order.
    parents : per stage, by number (SOURCE: the outside).
    offers : per stage, in the order listed.
    traffic : the queries that the pipeline must carry.
    slo_ms : latency above which a query misses.
    allowed : a configuration is feasible if no more queries than that miss.
    max_replicas : of one stage.
    """

    names: tuple[str, ...]
    parents: tuple[tuple[int, ...], ...]
    offers: tuple[tuple[Offer, ...], ...]
    traffic: Traffic
    slo_ms: float
    allowed: int
    max_replicas: int = MAX_REPLICAS

    @functools.cached_property
    def closures(self) -> tuple[tuple[int, ...], ...]:
        """Per stage: it and its ancestors, ascending."""
        closures: list[tuple[int, ...]] = []
        for s, parents in enumerate(self.parents):
            closures.append(tuple(sorted({s}.union(*(closures[p] for p in parents if p != SOURCE)))))
        return tuple(closures)

    @functools.cached_property
    def sinks(self) -> tuple[int, ...]:
        """The stages that lead nowhere."""
        inner = {p for parents in self.parents for p in parents}
        return tuple(s for s in range(len(self.names)) if s not in inner)

    @functools.cached_property
    def edge_at(self) -> tuple[int, ...]:
        """Where each stage's edges begin in `traffic.taken`."""
        return tuple(itertools.accumulate(map(len, self.parents), initial=0))

    @functools.cached_property
    def least_ms(self) -> tuple[float, ...]:
        """Per stage the shortest time that any batch takes on any hardware."""
        return tuple(min(float(offer.table_ms[1:].min()) for offer in offers) for offers in self.offers)

    @functools.cached_property
    def shares(self) -> tuple[float, ...]:
        """Per stage the share of all queries that come by."""
        shares = []
        for first, stop in pairwise(self.edge_at):
            # Where one edge is conditional all are written out; where none is, everybody comes by.
            masks = [mask for mask in self.traffic.taken[first:stop] if mask is not None]
            shares.append(float(np.logical_or.reduce(masks).mean()) if masks else 1.0)
        return tuple(shares)

    def longest_path_ms(self, ms: Sequence[float]) -> float:
        """The longest sum of `ms`, by stage, along any path through the pipeline."""
        ends: list[float] = []
        for s, parents in enumerate(self.parents):
            ends.append(ms[s] + max(0.0 if p == SOURCE else ends[p] for p in parents))
        return max(ends)

    def offer(self, stage: int, hardware: str) -> Offer:
        """The stage on one hardware."""
        return next(offer for offer in self.offers[stage] if offer.hardware == hardware)

    @functools.cached_property
    def _units(self) -> int:
        """Prices are whole multiples of 1 / units: sums and comparisons of costs are exact."""
        prices = [Fraction(repr(offer.price)) for offers in self.offers for offer in offers]
        return math.lcm(*(price.denominator for price in prices))

    @functools.cached_property
    def _whole(self) -> dict[float, int]:
        """Each price in whole units."""
        prices = {offer.price for offers in self.offers for offer in offers}
        return {price: int(Fraction(repr(price)) * self._units) for price in prices}

    def whole_price(self, offer: Offer) -> int:
        """The price of one of its offers in whole units."""
        return self._whole[offer.price]

    def whole_cost(self, configuration: Configuration) -> int:
        """The cost in whole units."""
        return sum(
            self.whole_price(self.offer(s, choice.hardware)) * choice.replicas
            for s, choice in enumerate(configuration)
        )

    def as_price(self, whole: int) -> float:
        """Whole units as $ per hour."""
        return float(Fraction(whole, self._units))

    def cost(self, configuration: Configuration) -> float:
        """$ per hour: the sum of price times replicas."""
        return self.as_price(self.whole_cost(configuration))

    def whole_budget(self, usd_per_h: float) -> int:
        """The most whole units within a budget."""
        return math.floor(Fraction(repr(usd_per_h)) * self._units)

    def under(self, **changes: object) -> Space:
        """The same space with another objective, traffic or bound."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def pipeline(self, configuration: Configuration, template: Pipeline) -> Pipeline:
        """The pipeline so configured, with greedy batching.

        Parameters
        ----------
        configuration : by stage; service times are those of the chosen hardware.
        template : gives the edges and the seed.
        """
        stages = tuple(
            Stage(
                stage.name,
                stage.edges,
                choice.max_batch,
                choice.replicas,
                Service(self.offer(s, choice.hardware).table_ms[: choice.max_batch + 1]),
                Greedy(),
            )
            for s, (stage, choice) in enumerate(zip(template.stages, configuration))
        )
        return Pipeline(stages, seed=template.seed)

    def named(self, configuration: Configuration) -> dict[str, list[str | int]]:
        """The configuration as plain data: stage -> [hardware, max batch, replicas]."""
        return {name: list(choice) for name, choice in zip(self.names, configuration)}


def traffic_of(inputs: Inputs) -> Traffic:
    """The queries of a prepared scenario; edges that everybody at their parent takes are None."""
    edges = inputs.pipeline.edges
    taken: Sequence[NDArray[np.bool_] | None] = [None] * len(edges)
    if not all(edge.always for edge in edges):
        taken = taken_edges(inputs.pipeline, len(inputs.arrivals_ms))
    return Traffic(inputs.arrivals_ms, tuple(taken))


def space_of(
    scenario: Scenario,
    *,
    max_replicas: int = MAX_REPLICAS,
    every_batch: bool = False,
    inputs: Inputs | None = None,
) -> Space:
    """The space of a scenario: every stage on all hardware it was measured on, batch sizes as measured.

    Parameters
    ----------
    scenario : its profiles and prices say what can be chosen; service times that it lists leave its own hardware only.
    max_replicas : of one stage (default: 60).
    every_batch : all whole batch sizes between the measured ones too (default: no).
    inputs : the scenario's, if they are there already (default: its files are read).

    Raises ScenarioError with all that cannot be planned: drawn service times, changes of replicas, batching other
    than greedy, hardware without a price.
    """
    problems = _unplannable(scenario)
    if problems:
        raise ScenarioError(*problems)
    ready = inputs or prepare(scenario)
    profile = ready.files.profile
    prices = {**ARTIFACT_PRICES_USD_PER_H, **scenario.prices_usd_per_h}
    specs = {spec.name: spec for spec in scenario.stages}
    offers = tuple(
        _offers(scenario, specs[stage.name], profile, prices, every_batch, problems)
        for stage in ready.pipeline.stages
    )
    if problems:
        raise ScenarioError(*problems)
    return Space(
        ready.pipeline.names,
        tuple(tuple(edge.parent for edge in stage.edges) for stage in ready.pipeline.stages),
        offers,
        traffic_of(ready),
        scenario.slo_ms,
        scenario.allowed_misses(len(ready.arrivals_ms)),
        max_replicas,
    )


def _unplannable(scenario: Scenario) -> list[Problem]:
    sampled, tuned = isinstance(scenario.service, Sampled), scenario.tuned
    drawn = "plans need service times that are not drawn: mean, p99, notebook or tables"
    checks = [
        (scenario.mode != "default", "mode", f"plans are made in mode default, not {scenario.mode!r}"),
        (sampled, "service", drawn),
        (tuned, "tuner", f"{KEPT}; plan with tuner: fixed (--set tuner=fixed)"),
    ]
    for name, placed in scenario.configuration.items():
        where, greedy = f"configuration.{name}", isinstance(placed.batching, Greedy)
        checks += [
            (not greedy, f"{where}.batching", "plans are made for greedy batching only"),
            (bool(placed.changes), f"{where}.changes", f"{KEPT}; remove the changes"),
        ]
    return [Problem(f"$.{where}", what) for wrong, where, what in checks if wrong]


def _offers(
    scenario: Scenario,
    spec: StageSpec,
    profile: Profile,
    prices: Mapping[str, float],
    every_batch: bool,
    problems: list[Problem],
) -> tuple[Offer, ...]:
    """What one stage can run on.

    Parameters
    ----------
    scenario : says which service times count.
    spec : the stage; its model is looked up under its name where none is given.
    profile : the measured surfaces.
    prices : $/h of a replica, by hardware.
    every_batch : all whole batch sizes between the measured ones too.
    problems : added to, where a price or the time of batch 1 is unknown.
    """
    model = spec.model or spec.name
    if isinstance(scenario.service, Tables):
        hardware = scenario.configuration[spec.name].hardware
        table = np.array([0.0, *scenario.service.tables_ms[spec.name]])
        sizes = tuple(range(1, len(table)))
        qps = {n: n * 1e3 / float(table[n]) for n in sizes}
        p99 = {n: float(table[n]) for n in sizes}
        return (Offer(hardware, prices[hardware], sizes, table, qps, p99),)
    offers = []
    for hardware in profile.hardware_of(model):
        if hardware not in prices:
            what = f"no price of {hardware!r}, which {model} was measured on; {known_names(hardware, prices)}"
            problems.append(Problem(f"$.prices_usd_per_h.{hardware}", what))
            continue
        rows = profile.rows(model, hardware)
        if rows[0].batch != 1:
            what = f"{model} on {hardware} was not measured at batch 1, so its smaller batches have no known time"
            problems.append(Problem(f"$.stages.{spec.name}", what))
            continue
        table = profile.table_ms(model, hardware, str(scenario.service), rows[-1].batch)
        sizes = tuple(range(1, rows[-1].batch + 1)) if every_batch else tuple(row.batch for row in rows)
        qps = {n: n * 1e3 / profile.service_ms(model, hardware, "mean", n) for n in sizes}
        p99 = {n: profile.service_ms(model, hardware, "p99", n) for n in sizes}
        if not every_batch:
            qps = {row.batch: row.throughput_qps for row in rows}
        offers.append(Offer(hardware, prices[hardware], sizes, table, qps, p99))
    return tuple(offers)
