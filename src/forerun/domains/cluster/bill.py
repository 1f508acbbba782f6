"""What other rooms found, put to work here: slower steps where data do not arrive in time, joules, money and CO2e.

A supply profile caps the iterations of a job: readers x supply / batch, one reader a node, on as few nodes as its GPUs
fill. A power limit slows every step by what was measured. A GPU that works draws its profile's watts for the share of
the time that it does not wait for data, and idles for the rest; a free or restarting GPU idles. Jobs do not share one
store here: a supply is one job's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.domains.cluster.model import F64, I64, Cluster, Jobs, Profile
from forerun.domains.cluster.outcome import (
    Stretches,
    Waits,
    horizon_of,
    stretches_of,
    useful_gpu_s,
    waits_of,
    why_of,
)
from forerun.domains.cluster.record import Record
from forerun.domains.cluster.refusals import because, refusals
from forerun.domains.cluster.scenario import Bill, Loading, Scenario
from forerun.domains.cluster.tables import BILL
from forerun.errors import ProfileError, ScenarioError
from forerun.profile.files import read_profile
from forerun.profile.power import Power
from forerun.profile.supply import Supply
from forerun.result.ledger import Ledger
from forerun.result.run import Result
from forerun.result.tables import Table
from forerun.trace.signal import Signal
from forerun.trace.steps import signal

KWH_J: Final = 3.6e6
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Per kind of job and GPU count, float64[kinds, top + 1]: share of a step that computes, watts while it does."""

    computing: F64
    draw_w: F64


def slowed(profile: Profile, scenario: Scenario, cluster: Cluster) -> tuple[Profile, Terms, tuple[str, ...]]:
    """The profile at the speed that power limit and data supply allow, the terms of the bill, and what to know.

    Raises ProfileError for profiles of another kind or that do not reach as far as the jobs do.
    """
    shape = (len(profile.kinds), int(profile.levels[-1]) + 1)
    computing, draw_w = np.ones(shape), np.full(shape, scenario.bill.busy_w if scenario.bill else 0.0)
    rate, notes = profile.rate.copy(), []
    if scenario.bill is not None and scenario.bill.power:
        notes += _limited(profile, scenario.bill, rate, draw_w)
    for loading in scenario.loading:
        notes += _supplied(profile, loading, cluster, rate, computing)
    return replace(profile, rate=rate), Terms(computing, draw_w), tuple(notes)


def stretched(jobs: Jobs, before: Profile, after: Profile) -> Jobs:
    """The jobs with durations as long as the slower steps make them, on the GPUs they ask for.

    Policies that keep a job on what it asks for work off its recorded duration, which knew nothing of the slowing.
    """
    known = np.flatnonzero((jobs.kind >= 0) & (jobs.gpus <= int(before.levels[-1])))
    kind, gpus = jobs.kind[known], jobs.gpus[known]
    fast, slow = before.rate_at()[kind, gpus], after.rate_at()[kind, gpus]
    factor = np.divide(fast, slow, out=np.ones(len(known)), where=slow > 0)
    duration_s = jobs.duration_s.copy()
    duration_s[known] = np.maximum(1, np.rint(duration_s[known] * factor)).astype(np.int64)
    return replace(jobs, duration_s=duration_s)


def _limited(profile: Profile, bill: Bill, rate: F64, draw_w: F64) -> list[str]:
    """Draws and speeds of the measured power profiles."""
    notes = []
    for given in bill.power:
        power = read_profile(given.file, Power)
        beyond = set()
        for row in _rows(profile, given.models, given.file.path):
            batch = profile.kinds[row][1]
            for column, count in enumerate(profile.levels.tolist()):
                if not rate[row, column] > 0:
                    continue
                local = batch / count
                watts, speed = power.at(local, given.limit_w)
                draw_w[row, count] = watts
                rate[row, column] *= speed
                if not power.measured(local):
                    beyond.add(profile.kinds[row])
        limit = given.limit_w or power.limits_w[0]
        notes.append(f"power: {power.source}, at {limit:g} W")
        if beyond:
            notes.append(
                f"power: {len(beyond)} kinds of job run batches per GPU that were not measured; the nearest is taken"
            )
    return notes


def _supplied(profile: Profile, loading: Loading, cluster: Cluster, rate: F64, computing: F64) -> list[str]:
    """Rates capped by what a supply profile delivers."""
    supply = read_profile(loading.file, Supply)
    bound: dict[str, int] = {}
    per_node = cluster.gpus_per_node
    # Counts that the cluster does not have are never taken.
    top = min(int(profile.levels[-1]), cluster.gpus)
    if math.ceil(top / per_node) > supply.readers[-1]:
        raise ProfileError.at(
            loading.file.path,
            f"knows {supply.readers[0]} to {supply.readers[-1]} readers; jobs here read from up to "
            f"{math.ceil(top / per_node)} nodes ({top} GPUs, {per_node} a node)",
        )
    for row in _rows(profile, loading.models, loading.file.path):
        model, batch = profile.kinds[row]
        for column, count in enumerate(profile.levels.tolist()):
            free = rate[row, column]
            if not free > 0 or count > top:
                continue
            capped = min(free, supply.at(-(-count // per_node)) / batch)
            rate[row, column] = capped
            computing[row, count] = capped / free
            if capped < free:
                bound[model] = bound.get(model, 0) + 1
    what = ", ".join(f"{model} ({cells} counts of GPUs)" for model, cells in sorted(bound.items()))
    return [f"data: {supply.source}; {'slows ' + what if what else 'hides behind every step'}"]


def _rows(profile: Profile, models: tuple[str, ...], where: str) -> list[int]:
    known = {model for model, _ in profile.kinds}
    if unknown := [model for model in models if model not in known]:
        raise ScenarioError.at(
            where, f"is given for {unknown[0]!r}, which no job is profiled for: {', '.join(sorted(known))}"
        )
    return [row for row, (model, _) in enumerate(profile.kinds) if not models or model in models]


def with_other_rooms(result: Result, scenario: Scenario, record: Record, terms: Terms | None) -> Result:
    """The result with what the other rooms' profiles add: time spent waiting for data, and the bill."""
    stretches = stretches_of(record)
    waits = waits_of(record, stretches)
    working = _working(record, stretches, waits)
    computing, draw_w = _terms_of(record, stretches, terms, scenario.bill)
    gpu_s = stretches.gpus * (stretches.to_s - stretches.from_s)
    waiting = gpu_s * working[stretches.row] * (1 - computing)
    if scenario.loading:
        result = _with_data_wait(result, scenario, waits, math.fsum(waiting))
    if scenario.bill is not None:
        parts = _Parts(record, stretches, scenario.bill, working, computing, draw_w)
        result = _with_bill(result, scenario.bill, record, parts, waiting)
    return result


def _with_data_wait(result: Result, scenario: Scenario, waits: Waits, waiting: float) -> Result:
    """The GPU time ledger with the time its holders waited for data taken out of the useful time."""
    ledger = result.ledgers[0]
    parts = {"useful": ledger.parts["useful"] - waiting, "waiting for data": waiting}
    parts |= {name: part for name, part in ledger.parts.items() if name != "useful"}
    meanings = {**(ledger.meanings or {}), "waiting for data": "held by a job whose data had not come"}
    split = Ledger(ledger.name, ledger.unit, ledger.whole, parts, meanings)
    shares = split.shares()
    summary = {
        **result.summary,
        "gpu_time_useful_share": shares["useful"],
        "gpu_time_waiting_for_data_share": shares["waiting for data"],
        "data_wait_gpu_s": waiting,
    }
    held = split.parts["useful"] + waiting
    share = waiting / held if held > 0 else 0.0
    jobs = result.tables["jobs"]
    refused = refusals(zip(jobs["job"].tolist(), jobs["refused_because"].tolist(), strict=True))
    why = why_of(summary, waits, split, scenario.policy, because(refused))
    why += f"; jobs at work waited {100 * share:.0f} % of their GPU time for data"
    return replace(result, summary=summary, ledgers=(split, *result.ledgers[1:]), why=why)


def _working(record: Record, stretches: Stretches, waits: Waits) -> F64:
    """Share of the GPU time each job held in which it worked."""
    held = stretches.gpu_s(len(record.world.jobs))
    useful = useful_gpu_s(record, stretches, waits)
    share: F64 = np.divide(useful, held, out=np.zeros(len(held)), where=held > 0)
    return share


def _terms_of(
    record: Record, stretches: Stretches, terms: Terms | None, bill: Bill | None
) -> tuple[F64, F64]:
    """Per stretch: share of its working time that computes, and watts of a GPU that does.

    Raises ScenarioError for a bill without the watts of a job that ran.
    """
    jobs, row, gpus = record.world.jobs, stretches.row, stretches.gpus
    computing, draw_w = np.ones(len(row)), np.full(len(row), bill.busy_w if bill is not None else 0.0)
    if terms is not None:
        known = (jobs.kind[row] >= 0) & (gpus < terms.draw_w.shape[1])
        kind, held = jobs.kind[row][known], gpus[known]
        computing[known], draw_w[known] = terms.computing[kind, held], terms.draw_w[kind, held]
    if bill is not None and (without := np.flatnonzero(draw_w <= 0)).size:
        name = jobs.id[int(row[without[0]])]
        raise ScenarioError.at("$.bill.busy_w", f"is wanted: no power profile covers job {name}, which ran")
    return computing, draw_w


def _with_bill(result: Result, bill: Bill, record: Record, parts: _Parts, waiting: F64) -> Result:
    """The result with its energy ledger, what it costs and emits, and the bill of every job."""
    world = record.world
    start_s, last_s = horizon_of(record)
    energy = parts.energy(start_s, last_s)
    hours = (last_s - start_s) / _HOUR_S
    summary = {
        **result.summary,
        "energy_j": energy.whole_j * bill.pue,
        "power_mean_w": energy.whole_j * bill.pue / max(last_s - start_s, 1e-300),
    }
    ledgers = [*result.ledgers, Ledger("energy", "J", energy.whole_j, energy.parts_j, _MEANINGS)]
    headline = [*result.headline, "energy_j"]
    price = signal(bill.price, unit="$/kWh", name="bill.price")
    carbon = signal(bill.carbon, unit="g/kWh", name="bill.carbon")
    job_usd = parts.gpu_s * bill.gpu_usd_per_h / _HOUR_S
    job_gco2 = np.full(len(world.jobs), math.nan)
    if price is not None or bill.gpu_usd_per_h:
        rent = world.cluster.gpus * hours * bill.gpu_usd_per_h
        bought = {k: bill.pue * v for k, v in parts.weighed(price, start_s, last_s).items()} if price else {}
        electricity = math.fsum(bought.values())
        summary |= {"rent_usd": rent, "electricity_usd": electricity, "cost_usd": rent + electricity}
        if met := summary.get("deadlines_met", 0):
            summary["cost_usd_per_met_deadline"] = (rent + electricity) / met
        money = {"rent": rent, **{f"electricity, {part}": amount for part, amount in bought.items()}}
        ledgers.append(Ledger("cost", "$", rent + electricity, money))
        if price is not None:
            job_usd = job_usd + bill.pue * parts.per_job(price)
        headline.append("cost_usd")
    if carbon is not None:
        summary["co2e_g"] = bill.pue * math.fsum(parts.weighed(carbon, start_s, last_s).values())
        job_gco2 = bill.pue * parts.per_job(carbon)
        headline.append("co2e_g")
    table = Table.of(
        BILL,
        job=np.array([str(name) for name in world.jobs.id], dtype=object),
        energy_j=bill.pue * parts.job_j,
        data_wait_gpu_s=_per_job(parts.stretches.row, waiting, len(world.jobs)),
        cost_usd=job_usd,
        co2e_g=job_gco2,
    )
    return replace(
        result,
        summary=summary,
        headline=tuple(headline),
        ledgers=tuple(ledgers),
        tables={**result.tables, "bill": table},
    )


_MEANINGS: Final = {
    "computing": "drawn by GPUs that worked",
    "waiting for data": "idle draw of GPUs that held a job whose data had not come",
    "restarting": "idle draw of GPUs held by a job that did not work",
    "free": "idle draw of GPUs that nobody held",
}


@dataclass(frozen=True, slots=True)
class _Energy:
    """Joules of the run, computed from the power over time, and split by cause, computed job by job."""

    whole_j: float
    parts_j: dict[str, float]


class _Parts:
    """The watts of every stretch of constant allocation, by cause.

    Within a stretch the power is taken as constant: restarts, which the record holds as seconds and not as instants,
    are spread over the job's stretches.
    """

    def __init__(
        self,
        record: Record,
        stretches: Stretches,
        bill: Bill,
        working: F64,
        computing: F64,
        draw_w: F64,
    ) -> None:
        self.bill, self.stretches = bill, stretches
        self.total_gpus = record.world.cluster.gpus
        jobs, row, gpus = len(record.world.jobs), stretches.row, stretches.gpus
        busy = working[row] * computing
        self.span_s = stretches.to_s - stretches.from_s
        #: watts by cause, float64[stretches]
        self.watts: dict[str, F64] = {
            "computing": gpus * np.maximum(draw_w, bill.idle_w) * busy,
            "waiting for data": gpus * bill.idle_w * working[row] * (1 - computing),
            "restarting": gpus * bill.idle_w * (1 - working[row]),
        }
        self.stretch_w: F64 = np.sum(list(self.watts.values()), axis=0)
        self.gpu_s: F64 = stretches.gpu_s(jobs)
        self.job_j: F64 = _per_job(row, self.stretch_w * self.span_s, jobs)

    def energy(self, start_s: float, last_s: float) -> _Energy:
        """Joules over [start, last): the whole from the cluster's power over time, the parts job by job."""
        stretches = self.stretches
        steps = np.concatenate([stretches.from_s, stretches.to_s])
        change = np.concatenate([self.stretch_w, -self.stretch_w])
        gpus = np.concatenate([stretches.gpus, -stretches.gpus])
        order = np.argsort(steps, kind="stable")
        at = np.append(steps[order], last_s)
        power = np.cumsum(change[order]) + self.bill.idle_w * (self.total_gpus - np.cumsum(gpus[order]))
        first = float(at[0]) if len(order) else last_s
        whole = math.fsum(power * np.diff(at)) + self.bill.idle_w * self.total_gpus * (first - start_s)
        parts = {name: math.fsum(watts * self.span_s) for name, watts in self.watts.items()}
        free = self.total_gpus * (last_s - start_s) - math.fsum(stretches.gpus * self.span_s)
        return _Energy(whole, {**parts, "free": self.bill.idle_w * free})

    def weighed(self, value: Signal, start_s: float, last_s: float) -> dict[str, float]:
        """What each part takes of a value per kWh that changes over time."""
        over = value.integral(self.stretches.from_s, self.stretches.to_s) / KWH_J
        found = {name: math.fsum(watts * over) for name, watts in self.watts.items()}
        all_time = float(value.integral(start_s, last_s)) / KWH_J
        free = self.total_gpus * all_time - math.fsum(self.stretches.gpus * over)
        return {**found, "free": self.bill.idle_w * free}

    def per_job(self, value: Signal) -> F64:
        """What each job's own GPUs take of a value per kWh."""
        over = value.integral(self.stretches.from_s, self.stretches.to_s) / KWH_J
        return _per_job(self.stretches.row, self.stretch_w * over, len(self.gpu_s))


def _per_job(row: I64, amount: F64, jobs: int) -> F64:
    found: F64 = np.bincount(row, amount, jobs).astype(np.float64)
    return found
