"""From what happened to the result: figures with intervals, tables, ledgers, the timeline, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import Outcome, terms_of
from forerun.cluster.policies.backfilling.base import BACKFILLING
from forerun.cluster.policy import Allocator, played_in
from forerun.cluster.scenario import Scenario
from forerun.cluster.summary.bill import with_steps_and_bill
from forerun.cluster.summary.causes import Decided
from forerun.cluster.summary.gpus import nodes_of, timeline_of
from forerun.cluster.summary.ledgers import ledger_of, time_ledger
from forerun.cluster.summary.operators import (
    calendar,
    causes_by_partition,
    groups_of,
    history_of,
    wait_figures,
)
from forerun.cluster.summary.refusals import because, refusals, sentences
from forerun.cluster.summary.spans import Stretches
from forerun.cluster.summary.tables import allocations_table, came_or_submitted_s, events_table, jobs_table
from forerun.cluster.summary.uncounted import uncounted
from forerun.cluster.summary.waits import (
    Waits,
    horizon_of,
    one_gpu_work,
    stretches_of,
    waits_of,
)
from forerun.cluster.summary.why import why_of
from forerun.core.registry import member_name
from forerun.core.result.ledger import Ledger
from forerun.core.result.run import Result
from forerun.core.result.stats import Interval, normal_quantile, proportion_interval, standard_error

#: the figures that are printed first, where a run has them
HEADLINE: Final = (
    "deadline_ratio",
    "wait_mean_s",
    "wait_p90_s",
    "jct_mean_s",
    "refused_jobs",
    "gpu_time_useful_share",
    "makespan_s",
)


def summarize(outcome: Outcome) -> Result:
    """The result of a run: figures with intervals, tables, ledgers, the timeline, and why.

    A run that a PolicyError ended has a result too, without data wait and bill. Raises ScenarioError for a bill without the
    watts of a job that ran.
    """
    scenario, record = outcome.inputs.scenario, outcome.record
    stretches = stretches_of(record)
    notes = (*outcome.inputs.notes, *record.notes, *uncounted(record, stretches))
    if outcome.error:
        notes = (*notes, f"stopped early: {outcome.error}")
    terms = terms_of(scenario, record.setting)
    decided = Decided.by(outcome.inputs.policy, terms, record.setting, named=record.names_gpus)
    waits = waits_of(record, stretches, decided, checkpoint_s=terms.checkpoint_s)
    ledger = ledger_of(record, stretches, waits)
    places = nodes_of(record, stretches)
    summary, intervals = summary_of(record, waits, ledger)
    if outcome.inputs.resampled is not None:
        blocks, gpus = outcome.inputs.resampled
        summary |= {"resampled_blocks": blocks, "resampled_load": gpus / record.setting.cluster.gpus}
    held_gpu_s, one_gpu_s = one_gpu_work(record, stretches, waits)
    if held_gpu_s > 0:
        summary |= {"elastic_useful_gpu_s": held_gpu_s, "elastic_useful_at_one_gpu_gpu_s": one_gpu_s}
        summary["scaling_efficiency"] = one_gpu_s / held_gpu_s
    refused = refusals((record.setting.jobs.id[row], why) for row, why in sorted(record.refusals.items()))
    notes = (*notes, *sentences(refused))
    if record.refusals and scenario.policy.plans_slots:
        what = f"with slot_s at {scenario.slot_s}; other slots, longer or shorter, admit other jobs, more or fewer"
        notes = (*notes, f"{len(record.refusals)} jobs were refused {what}: forerun explain shows how many")
    if record.spread_gpu_s:
        summary["spread_gpu_s"] = record.spread_gpu_s
        notes = (*notes, _spread_note(record, stretches))
    if record.setting.slowness is not None:
        summary["overrun_jobs"] = len(record.overrun_rows)
        notes = (*notes, _overrun_note(record))
    if record.ended_because:
        notes = (*notes, record.ended_because)
    submitted = calendar(np.rint(came_or_submitted_s(record)).astype(np.int64), outcome.inputs)
    result = Result(
        scenario=scenario,
        summary=summary,
        tables={
            "jobs": jobs_table(record, stretches, waits, submitted),
            "allocations": allocations_table(record, stretches, places),
            "events": events_table(record),
        },
        ledgers=(ledger, *time_ledger(record, waits)),
        timeline=timeline_of(record, stretches, places),
        why=why_of(summary, waits, ledger, scenario.policy, because(refused)),
        notes=notes,
        intervals=intervals,
        headline=tuple(name for name in HEADLINE if name in summary),
        next_steps=_next_steps(scenario, record),
    )
    if not outcome.error and (scenario.loading or scenario.bill is not None):
        result = with_steps_and_bill(result, outcome, stretches, waits)
    beside, sentence = history_of(outcome)
    why = f"{beside['caution']}; {result.why}" if "caution" in beside else result.why
    lead = {"history": sentence} if sentence else {}
    groups: dict[str, dict[str, dict[str, Any]]] = (
        groups_of(result) if scenario.trace.file is not None else {}
    )
    if causes := causes_by_partition(waits, outcome):
        groups["causes"] = causes
    if "by_partition" in groups:
        lead["by_partition"] = (
            "as simulated; GPU time share: of all GPU time from the first submission to the end"
        )
        lead |= {"causes": "mean wait of a job, by the first test that it fails"} if causes else {}
        for name, row in groups["by_partition"].items():
            row |= {"top_cause": causes[name]["mostly"]} if name in causes else {}
    return replace(result, summary={**result.summary, **beside, **groups}, why=why, lead=lead)


def summary_of(record: Record, waits: Waits, ledger: Ledger) -> tuple[dict[str, Any], dict[str, Interval]]:
    """The run in figures, and intervals for those that are averages over jobs.

    Parameters
    ----------
    record : what happened.
    waits : what each job waited for.
    ledger : where the GPU time went.
    """
    jobs = record.setting.jobs
    has_deadline = jobs.has_deadline
    ended = record.end_s >= 0
    came_s = record.came_s
    jct = (record.end_s - came_s)[ended]
    with_deadline = int(np.count_nonzero(has_deadline))
    met = int(np.count_nonzero(has_deadline & ended & (record.end_s <= jobs.deadline_s)))
    by_rule = int(np.count_nonzero(has_deadline & record.met_reference))
    start, last = horizon_of(record)
    times, _, _, _, efficiency = record.events()
    spans = np.diff(np.append(times, last)) if len(times) else np.zeros(0)
    summary: dict[str, Any] = {
        "jobs": len(jobs),
        "jobs_with_deadline": with_deadline,
        "finished_jobs": int(np.count_nonzero(ended)),
        "refused_jobs": int(np.count_nonzero(record.admitted == 0)),
        "unfinished_jobs": int(np.count_nonzero(~ended & (record.admitted != 0) & ~jobs.censored)),
        "accepted_reference": int(record.accepted),
        "declined_reference": record.declined_count,
        "makespan_s": float(record.end_s.max() - start) if ended.any() else 0.0,
        "horizon_s": last - start,
        "gpus": record.setting.cluster.gpus,
        "events": len(times),
        "preemptions": int(record.preempts.sum()),
    }
    if jobs.censored.any():
        summary["cancelled_jobs"] = int(np.count_nonzero(jobs.censored))
    intervals: dict[str, Interval] = {}
    if (started := (record.first_start_s >= 0) & ~jobs.censored).any():
        summary |= wait_figures((record.first_start_s - came_s)[started])
    if with_deadline:
        summary |= {
            "deadlines_met": met,
            "deadlines_met_reference": by_rule,
            "deadline_ratio": met / with_deadline,
            "deadline_ratio_reference": by_rule / with_deadline,
        }
        intervals["deadline_ratio"] = proportion_interval(
            met, with_deadline, over="over the jobs of this trace"
        )
    if len(jct):
        summary |= {
            "jct_mean_s": float(jct.mean()),
            "jct_p50_s": float(np.quantile(jct, 0.5)),
            "jct_p99_s": float(np.quantile(jct, 0.99)),
        }
        half = normal_quantile(0.975) * standard_error(jct) if len(jct) > 1 else 0.0
        mean = float(jct.mean())
        intervals["jct_mean_s"] = Interval(
            max(0.0, mean - half), mean + half, 0.95, "normal, over the jobs of this trace"
        )
    for name, waited_s in waits.by_cause().items():
        counted_s = waited_s[~jobs.censored]
        summary[f"wait_{name}_mean_s"] = float(counted_s.mean()) if len(counted_s) else 0.0
    summary |= {f"gpu_time_{_key(name)}_share": share for name, share in ledger.shares().items()}
    whole = last - start
    summary["efficiency_mean"] = float((efficiency * spans).sum() / whole) if whole > 0 else 0.0
    return summary, intervals


def _spread_note(record: Record, stretches: Stretches) -> str:
    """What it took to place every planned job where nodes cannot be halved."""
    held_gpu_s = math.fsum(stretches.gpu_s(len(record.setting.jobs)))
    jobs = len(record.spread_rows)
    return (
        f"{jobs} {'job' if jobs == 1 else 'jobs'} ran on more nodes than they need (at most {record.most_nodes}) for "
        f"{record.spread_gpu_s / 3600:.4g} GPU-h, {100 * record.spread_gpu_s / held_gpu_s:.2g} % of the GPU time held: "
        "the plans count GPUs, which the buddy placement could not place. They run at the profile's speed, unpenalised"
    )


def _overrun_note(record: Record) -> str:
    """What became of jobs slower than their profile, and of the others."""
    setting, behind = record.setting, sorted(record.overrun_rows)
    assert setting.slowness is not None
    in_time = (record.end_s >= 0) & (record.end_s <= setting.jobs.deadline_s)
    others = (record.admitted == 1) & setting.jobs.has_deadline & (setting.slowness == 1)
    return (
        f"{int(np.count_nonzero(setting.slowness > 1))} jobs are slower than their throughput says; {len(behind)} admitted "
        f"jobs fell so far behind that no plan was in time and went on as best effort, {int(in_time[behind].sum())} of them "
        f"ended in time; of {int(others.sum())} admitted jobs that are not slower {int((others & in_time).sum())} did"
    )


def _next_steps(scenario: Scenario, record: Record) -> tuple[str, ...]:
    """A comparison of policies that can run these jobs, and nodes if they were left out."""
    profile, cluster = record.setting.profile, record.setting.cluster
    elastic = cluster.is_uniform and (profile is None or bool((record.setting.jobs.kind >= 0).all()))
    chosen: tuple[str, ...] = ("elasticflow", "edf", "srtf") if elastic else ("fifo", "srtf", "las")
    if "requested_s" in scenario.policy.needs:
        own = member_name(type(scenario.policy))
        chosen = tuple(name for name in BACKFILLING if name != own)
    compare = " ".join(f"--policy {name}" for name in played_in(scenario.mode, chosen))
    views = isinstance(scenario.policy, Allocator)  # published schedules place by rules of their own
    placed = (
        ("forerun simulate {scenario} --set placement=best-fit",)
        if views and scenario.placement == "anywhere"
        else ()
    )
    return (f"forerun compare {{scenario}} {compare}", *placed)


def _key(name: str) -> str:
    return name.replace(", nobody waits", "_empty").replace(" ", "_")
