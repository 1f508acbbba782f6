"""What a run needs: a scenario with every file that it names read, once."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.core.errors import TraceError
from forerun.core.profile.supply import Supply
from forerun.core.trace.signal import Signal
from forerun.spot.engine.job import TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.outlook import KnownHazard, KnownProcess, Observed
from forerun.spot.inputs.prices import spot_price
from forerun.spot.inputs.recorded import Recording, recording
from forerun.spot.policy import Outlook
from forerun.spot.reserved.scenario import Cluster
from forerun.spot.scenario import Fleet, Recorded, Scenario, SpotPrice
from forerun.spot.scenario.processes import PerNode, Poisson, Tick, generate

HOME = "fleet"
"""The name of the scenario's own fleet among the markets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """Spot nodes of one zone: which nodes there are when, and what a node costs.

    Parameters
    ----------
    name : of the zone; `fleet` for the scenario's own fleet.
    source : the recording or the process that nodes come from.
    recorded : the history, where it is one of a file; None for a process, which generates one for each trial.
    usd_per_h : the price of a node over time.
    outlook : what policies know about coming removals.
    seed : of generated histories; zones are independent, so each has its own.
    notes : what a reader of the result should know about the recording.
    """

    name: str
    source: Fleet
    recorded: Membership | None
    usd_per_h: Signal
    outlook: Outlook
    seed: int
    notes: tuple[str, ...] = ()

    def history(self, trial: int, horizon_s: float) -> Membership:
        """The nodes of one trial until the horizon; a recording is the same in all trials."""
        if self.recorded is not None:
            return self.recorded
        assert not isinstance(self.source, Recorded | Cluster)
        return generate(self.source, seed=self.seed, horizon_s=horizon_s, trial=trial)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A scenario with its files read.

    Parameters
    ----------
    scenario : as it was given.
    markets : the scenario's own fleet first, then its zones.
    job : what trains, until the horizon, with the step times that its supply of data allows.
    supply : the profile of the job's loader; None if the job names none.
    """

    scenario: Scenario
    markets: tuple[Market, ...]
    job: TrainingJob
    supply: Supply | None

    @property
    def home(self) -> Market:
        """The scenario's own fleet."""
        return self.markets[0]

    @property
    def cluster(self) -> Cluster:
        """The reserved cluster, in scenarios that have one."""
        assert isinstance(self.scenario.fleet, Cluster)
        return self.scenario.fleet

    @property
    def horizon_s(self) -> float:
        """How long to simulate: the scenario's horizon, else the length of its recording."""
        return self.job.horizon_s

    @property
    def mean_spot_usd_per_h(self) -> float:
        """The spot price of the scenario's own fleet, averaged until the horizon."""
        return self.home.usd_per_h.mean(0.0, self.horizon_s)

    def history(self, trial: int) -> Membership:
        """The spot nodes of the scenario's own fleet in one trial."""
        return self.home.history(trial, self.horizon_s)


def prepare(scenario: Scenario) -> Inputs:
    """Read the fleets, the prices and the loader's profile that a scenario names.

    Raises TraceError or ProfileError for files that cannot be read or contain something else.
    """
    record = _read(scenario.fleet, scenario.seed)
    horizon_s = scenario.horizon_s or (record.end_s if record is not None else 0.0)
    if isinstance(scenario.fleet, Recorded) and horizon_s <= 0:
        raise TraceError.at(
            scenario.fleet.file.path,
            "ends at its first instant; give the run a horizon, such as `horizon: 6h`",
        )
    markets = [_market(HOME, scenario.fleet, scenario.prices, record, scenario.seed, horizon_s)]
    supply = scenario.job.read_supply()
    job = scenario.job.built(horizon_s, supply)
    for i, zone in enumerate(scenario.zones):
        seed = scenario.seed + 1_000_003 * (i + 1)
        markets.append(_market(zone.name, zone.fleet, zone, _read(zone.fleet, seed), seed, horizon_s))
    return Inputs(scenario=scenario, markets=tuple(markets), job=job, supply=supply)


def _read(fleet: Fleet, seed: int) -> Recording | None:
    """The recording that a fleet names; None for a process."""
    return recording(fleet, seed) if isinstance(fleet, Recorded) else None


def _market(
    name: str, source: Fleet, price: SpotPrice, record: Recording | None, seed: int, horizon_s: float
) -> Market:
    """A zone with its price, its outlook and what to know about its recording.

    Parameters
    ----------
    name : of the zone.
    source : the recording or the process that nodes come from.
    price : of a node: one, or one that changes over time.
    record : the recording, read (None: `source` is a process).
    seed : of generated histories.
    horizon_s : end of the run; a recording that ends before gets a note.
    """
    notes = list(record.notes) if record is not None else []
    if record is not None and record.end_s < horizon_s:
        notes.append(f"the trace ends at {record.end_s:g} s; from then on the fleet stays as it is")
    return Market(
        name=name,
        source=source,
        recorded=record.fleet if record is not None else None,
        usd_per_h=spot_price(price),
        outlook=outlook_of(source),
        seed=seed,
        notes=tuple(notes),
    )


def outlook_of(fleet: Fleet) -> Outlook:
    """What policies know about a fleet: the rates of a process, or what a run has seen of a recording."""
    if isinstance(fleet, PerNode):
        return KnownHazard(fleet.removal_per_node_h / 3600.0)
    if not isinstance(fleet, Poisson | Tick):
        return Observed()
    sizes = fleet.removal_sizes() if isinstance(fleet, Poisson) else fleet.removal_batch.probabilities()
    shares = {n + 1: float(p) for n, p in enumerate(sizes) if p > 0}
    return KnownProcess(fleet.removals_per_min / 60.0, shares)
