"""What supply and power profiles add to a result: time spent waiting for data, joules, money and CO2e.

A GPU that works draws its profile's watts for the share of the time that it does not wait for data, and its idle watts for
the rest; a free or restarting GPU draws its idle watts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import Outcome
from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.inputs.step_use import StepUse
from forerun.cluster.scenario import Bill, Scenario
from forerun.cluster.summary.refusals import because, refusals
from forerun.cluster.summary.spans import Stretches
from forerun.cluster.summary.tables import BILL
from forerun.cluster.summary.waits import Waits, horizon_of, useful_gpu_s
from forerun.cluster.summary.why import why_of
from forerun.core.errors import ScenarioError
from forerun.core.result.ledger import Ledger
from forerun.core.result.run import Result
from forerun.core.result.tables import Table
from forerun.core.trace.signal import Signal
from forerun.core.trace.steps import signal

KWH_J: Final = 3.6e6
_HOUR_S: Final = 3600.0


def with_steps_and_bill(result: Result, outcome: Outcome, stretches: Stretches, waits: Waits) -> Result:
    """The result with the time that jobs wait for data, and with the bill, where the scenario has them."""
    scenario, record = outcome.inputs.scenario, outcome.record
    working = _working(record, stretches, waits)
    computing, draw_w = _by_stretch(record, stretches, outcome.inputs.step_use, scenario.bill)
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
    held_gpu_s = split.parts["useful"] + waiting
    share = waiting / held_gpu_s if held_gpu_s > 0 else 0.0
    jobs = result.tables["jobs"]
    refused = refusals(zip(jobs["job"].tolist(), jobs["refused_because"].tolist(), strict=True))
    why = why_of(summary, waits, split, scenario.policy, because(refused))
    why += f"; jobs at work waited {100 * share:.0f} % of their GPU time for data"
    return replace(result, summary=summary, ledgers=(split, *result.ledgers[1:]), why=why)


def _working(record: Record, stretches: Stretches, waits: Waits) -> F64:
    """Share of its GPU time in which each job worked."""
    held_gpu_s = stretches.gpu_s(len(record.setting.jobs))
    useful = useful_gpu_s(record, stretches, waits)
    share: F64 = np.divide(useful, held_gpu_s, out=np.zeros(len(held_gpu_s)), where=held_gpu_s > 0)
    return share


def _by_stretch(
    record: Record, stretches: Stretches, use: StepUse | None, bill: Bill | None
) -> tuple[F64, F64]:
    """Per stretch: share of its working time that computes, and watts of a GPU that does.

    Raises ScenarioError for a bill without the watts of a job that ran.
    """
    jobs, row, gpus = record.setting.jobs, stretches.row, stretches.gpus
    computing, draw_w = np.ones(len(row)), np.full(len(row), bill.busy_w if bill is not None else 0.0)
    if use is not None:
        known = (jobs.kind[row] >= 0) & (gpus < use.draw_w.shape[1])
        kind, count = jobs.kind[row][known], gpus[known]
        computing[known], draw_w[known] = use.computing[kind, count], use.draw_w[kind, count]
    if bill is not None and (without := np.flatnonzero(draw_w <= 0)).size:
        name = jobs.id[int(row[without[0]])]
        raise ScenarioError.at("$.bill.busy_w", f"is required: no power profile covers job {name}, which ran")
    return computing, draw_w


def _with_bill(result: Result, bill: Bill, record: Record, parts: _Parts, waiting: F64) -> Result:
    """The result with its energy ledger, what it costs and emits, and the bill of every job.

    Parameters
    ----------
    bill : prices, and the draw of idle GPUs.
    parts : the watts of every stretch.
    waiting : GPU-seconds of every stretch in which its job waited for data.
    """
    setting = record.setting
    start_s, last_s = horizon_of(record)
    whole_j, parts_j = parts.energy(start_s, last_s)
    hours = (last_s - start_s) / _HOUR_S
    summary = {
        **result.summary,
        "energy_j": whole_j * bill.pue,
        "power_mean_w": whole_j * bill.pue / max(last_s - start_s, 1e-300),
    }
    ledgers = [*result.ledgers, Ledger("energy", "J", whole_j, parts_j, _MEANINGS)]
    headline = [*result.headline, "energy_j"]
    price = signal(bill.price, unit="$/kWh", name="bill.price")
    carbon = signal(bill.carbon, unit="g/kWh", name="bill.carbon")
    job_usd = parts.gpu_s * bill.gpu_usd_per_h / _HOUR_S
    job_gco2 = np.full(len(setting.jobs), math.nan)
    if price is not None or bill.gpu_usd_per_h:
        rent = setting.cluster.gpus * hours * bill.gpu_usd_per_h
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
        job=np.array([str(name) for name in setting.jobs.id], dtype=object),
        energy_j=bill.pue * parts.job_j,
        data_wait_gpu_s=_per_job(parts.stretches.row, waiting, len(setting.jobs)),
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


class _Parts:
    """The watts of every stretch of constant allocation, by cause.

    Within a stretch the power is taken as constant: restarts, which the record has as seconds and not as instants, are
    spread over the job's stretches.

    Parameters
    ----------
    record, stretches, bill : what happened, and what an idle GPU draws.
    working : float64[jobs], share of its GPU time in which each job worked.
    computing : float64[stretches], share of that in which it did not wait for data.
    draw_w : float64[stretches], watts of a GPU that computes.

    Attributes
    ----------
    watts, stretch_w : watts by cause, and in all, of each stretch.
    gpu_s, job_j : GPU-seconds and joules of each job.
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
        self.total_gpus = record.setting.cluster.gpus
        jobs, row, gpus = len(record.setting.jobs), stretches.row, stretches.gpus
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

    def energy(self, start_s: float, last_s: float) -> tuple[float, dict[str, float]]:
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
        return whole, {**parts, "free": self.bill.idle_w * free}

    def weighed(self, value: Signal, start_s: float, last_s: float) -> dict[str, float]:
        """What each part takes of a value per kWh that changes over time."""
        over = value.integral(self.stretches.from_s, self.stretches.to_s) / KWH_J
        parts = {name: math.fsum(watts * over) for name, watts in self.watts.items()}
        all_time = float(value.integral(start_s, last_s)) / KWH_J
        free = self.total_gpus * all_time - math.fsum(self.stretches.gpus * over)
        return {**parts, "free": self.bill.idle_w * free}

    def per_job(self, value: Signal) -> F64:
        """What each job's own GPUs take of a value per kWh."""
        over = value.integral(self.stretches.from_s, self.stretches.to_s) / KWH_J
        return _per_job(self.stretches.row, self.stretch_w * over, len(self.gpu_s))


def _per_job(row: I64, amount: F64, jobs: int) -> F64:
    total: F64 = np.bincount(row, amount, jobs).astype(np.float64)
    return total
