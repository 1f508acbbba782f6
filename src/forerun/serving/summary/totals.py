"""Figures of a whole run: latency, misses, cost, offered load; and its ledgers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.core.result.ledger import Ledger
from forerun.serving.engine.outcome import Outcome, Run
from forerun.serving.engine.tuning import paid_replica_ms
from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import Floats, Stage
from forerun.serving.inputs.routing import visited_stages
from forerun.serving.llm.summary.load import least_decode_ms, least_work_ms
from forerun.serving.policy.envelope import mean_rate_rps
from forerun.serving.scenario.traces import ClosedLoop
from forerun.serving.summary.latency_split import BATCH, JOIN, PREEMPTED, QUEUE, Account

HEADLINE = ("latency_p50_ms", "latency_p99_ms", "attainment", "misses", "cost_usd_per_h")
#: the same for a pipeline with one language model
LLM_HEADLINE = (
    "latency_p50_ms",
    "latency_p99_ms",
    "attainment",
    "ttft_p99_ms",
    "tpot_p99_ms",
    "cost_usd_per_h",
    "misses",
    "ttft_p50_ms",
    "tpot_p50_ms",
    "goodput_rps",
    "goodput_share",
)

#: those of sessions, where there are some
SESSION_HEADLINE = ("session_p50_ms", "session_p99_ms", "sessions", "sessions_abandoned", "sessions_refused")


def headline_names(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """The figures to show first; behind the attainment, the share that meets each objective where there are several; at the
    end those of sessions."""
    sessions = tuple(name for name in SESSION_HEADLINE if name in summary)
    names = (*(LLM_HEADLINE if "ttft_p50_ms" in summary else HEADLINE), *sessions)
    each = tuple(name for name in summary if name.endswith("_attainment"))
    after = names.index("attainment") + 1
    return (*names[:after], *each, *names[after:])


def totals(outcome: Outcome, run: Run, loads: Mapping[str, float]) -> dict[str, Any]:
    """Figures of the whole run under names that carry units.

    Parameters
    ----------
    run : what of the outcome's run is recorded.
    loads : by stage, as of `offered_loads`.
    """
    inputs, scenario = outcome.inputs, outcome.inputs.scenario
    queries = len(inputs.arrivals_ms)
    allowed = scenario.allowed_misses(queries)
    cost, hours = _cost(outcome)
    busiest = max(loads, key=lambda name: loads[name])
    figures: dict[str, Any] = {
        "queries": queries,
        "rate_rps": sent_rate_rps(inputs, outcome.run),
        **({"slo_ms": scenario.slo_ms} if scenario.slo_ms else {}),
        "attainment_wanted": scenario.attainment,
        "misses": run.misses,
        "misses_allowed": allowed,
        "slo_met": run.misses <= allowed,
        "attainment": 1 - run.misses / queries,
        "cost_usd_per_h": cost,
        "tie_count": run.tie_count,
        "busiest_stage": busiest,
        "busiest_load": loads[busiest],
        "overloaded_stages": ", ".join(name for name, load in loads.items() if load >= 1),
    }
    if len(run.finish_ms):
        figures |= latency_figures(run.served_ms)
        figures["makespan_ms"] = float(run.finish_ms.max())
        figures["cost_usd"] = cost * hours
    return figures


def latency_figures(latency: Floats) -> dict[str, float]:
    """Mean, quantiles (linear between order statistics) and maximum of the latencies."""
    p50, p95, p99 = np.quantile(latency, [0.5, 0.95, 0.99])
    return {
        "latency_mean_ms": float(latency.mean()),
        "latency_p50_ms": float(p50),
        "latency_p95_ms": float(p95),
        "latency_p99_ms": float(p99),
        "latency_max_ms": float(latency.max()),
    }


def sent_rate_rps(inputs: Inputs, run: Run) -> float:
    """Queries a second: of those that come whatever the answers are over the time in which they come (NaN if that is none);
    of clients who wait for answers until the last answer, because the first are sent all at once."""
    begin_ms, end_ms = run.horizon_ms
    if _held_back(inputs) and end_ms > begin_ms:
        return len(inputs.arrivals_ms) * 1e3 / (end_ms - begin_ms)
    return mean_rate_rps(inputs.arrivals_ms)


def _held_back(inputs: Inputs) -> bool:
    """Whether no more is asked for than is carried, because clients wait for answers."""
    return isinstance(inputs.scenario.trace, ClosedLoop) or inputs.scenario.max_concurrency is not None


def offered_loads(inputs: Inputs, run: Run) -> dict[str, float]:
    """Per stage the queries offered a second over the most its replicas can carry, at their most and best batch size.

    Where language models are served it is the least work that the requests can mean over the time there is, with what the
    prefix cache spared in this run. Clients who wait for answers ask for no more than is carried, so there it is below 1.
    """
    most = np.nextafter(1.0, 0.0) if _held_back(inputs) else np.inf
    rate = sent_rate_rps(inputs, run)
    visited = visited_stages(inputs.pipeline, len(inputs.arrivals_ms))
    loads = {}
    for number, (stage, came) in enumerate(zip(inputs.pipeline.stages, visited)):
        offered = rate * float(came.mean()) if np.isfinite(rate) else 0.0
        requests = run.requests[number] if run.requests else None
        if stage.llm is None or requests is None:
            load = offered / capacity_rps(stage)
        else:
            load = offered * least_work_ms(stage.llm, came, requests.hit_tokens) / (stage.most_replicas * 1e3)
            if stage.llm.decode is not None:
                decode_ms = offered * least_decode_ms(stage.llm, came)
                load = max(load, decode_ms / (stage.llm.decode.replicas * 1e3))
        loads[stage.name] = float(min(load, most))
    return loads


def capacity_rps(stage: Stage) -> float:
    """The most queries a second that a stage's replicas can carry, over all batch sizes."""
    sizes = np.arange(1, stage.max_batch + 1)
    return float((stage.most_replicas * sizes * 1e3 / stage.service.table_ms[1 : stage.max_batch + 1]).max())


def overload_notes(inputs: Inputs, loads: Mapping[str, float]) -> list[str]:
    """One sentence per stage that gets more than it can carry."""
    rate = mean_rate_rps(inputs.arrivals_ms)
    notes = []
    for stage in inputs.pipeline.stages:
        load = loads[stage.name]
        if load >= 1:
            carried = capacity_rps(stage) if stage.llm is None else rate / load
            growth = (load - 1) * carried * 3600
            notes.append(
                f"overload: {stage.name} is offered {load * carried:.4g} queries/s and can carry {carried:.4g} "
                f"(of {rate:.4g} that arrive); its queue grows by {growth:,.0f} queries an hour, so latencies depend on "
                "how long the trace is"
            )
    return notes


def ledger_of(account: Account, run: Run, name: str) -> Ledger:
    """The mean latency, split; parts that are nothing everywhere are left out, and so are refused queries.

    Parameters
    ----------
    account : the split of every query's latency.
    name : of the ledger.
    """
    parts_ms = account.parts_ms if run.refused is None else account.parts_ms[:, ~run.refused]
    means = parts_ms.mean(axis=1)
    parts = {
        f"{stage}: {kind}" if stage else kind: float(mean)
        for (stage, kind), mean, row in zip(account.names, means, parts_ms)
        if row.any() or (not stage and kind == JOIN)
    }
    return Ledger(name, "ms", float(run.served_ms.mean()), parts)


def wait_shares(critical: Account, run: Run) -> dict[str, float]:
    """Per stage the share of all latency that queries wait there, on the path that decides their latency.

    Parameters
    ----------
    critical : the split along critical paths; waiting in the queue, for the batch, and after preemptions counts.
    run : the latencies that are shared out.
    """
    whole = float(run.latency_ms.sum())
    shares: dict[str, float] = {}
    for (stage, kind), row in zip(critical.names, critical.parts_ms):
        if kind in (QUEUE, BATCH, PREEMPTED):
            shares[stage] = shares.get(stage, 0.0) + (float(row.sum()) / whole if whole else 0.0)
    return shares


def _cost(outcome: Outcome) -> tuple[float, float]:
    """$ per hour, averaged over the run, and its hours (NaN if only misses were counted)."""
    inputs, (begin_ms, end_ms) = outcome.inputs, outcome.run.horizon_ms
    hours = (end_ms - begin_ms) / 3.6e6
    priced = list(zip(inputs.pipeline.stages, inputs.prices_usd_per_h))
    changing = outcome.control is not None or any(stage.capacity for stage in inputs.pipeline.stages)
    if not (changing and hours > 0):
        return sum(price * stage.replicas for stage, price in priced) + sum(inputs.decode_usd_per_h), hours
    return sum(stage_costs_usd(outcome)) / hours, hours


def stage_costs_usd(outcome: Outcome) -> list[float]:
    """By stage, what its replicas cost from the first arrival to the last finish, in $.

    Parameters
    ----------
    outcome : prices, replicas and their changes; where a tuner decides, they are paid for from the decision on.
    """
    begin_ms, end_ms = outcome.run.horizon_ms
    stages = outcome.inputs.pipeline.stages
    paid = [outcome.paid(s) for s in range(len(stages))]
    times_ms = paid_replica_ms([stage.replicas for stage in stages], paid, begin_ms, end_ms)
    inputs = outcome.inputs
    return [
        price * ms / 3.6e6 + decode * (end_ms - begin_ms) / 3.6e6
        for price, ms, decode in zip(inputs.prices_usd_per_h, times_ms, inputs.decode_usd_per_h)
    ]
