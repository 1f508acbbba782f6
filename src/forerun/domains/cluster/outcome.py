"""From the record of a run to its result: waits by cause, ledger, tables, timeline, summary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.domains.cluster.allocator import Allocator
from forerun.domains.cluster.model import F64, I64
from forerun.domains.cluster.record import Record, runs_of
from forerun.domains.cluster.refusals import because, refusals, sentences
from forerun.domains.cluster.scenario import Scenario
from forerun.domains.cluster.tables import ALLOCATIONS, EVENTS, JOBS
from forerun.registry import member_name
from forerun.result.ledger import Ledger
from forerun.result.run import Interval, Result
from forerun.result.stats import normal_quantile, proportion_interval, standard_error
from forerun.result.tables import Table
from forerun.result.timeline import Timeline
from forerun.scenario.spec import Recipe

#: allocation rows above which nodes and GPU tracks are left out
MOST_TRACKED: int = 60_000


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of constant allocation, by (job, start): `row` of the job, `from_s`, `to_s`, `gpus` above 0."""

    row: I64
    from_s: F64
    to_s: F64
    gpus: I64

    def held_s(self, jobs: int) -> F64:
        """Seconds each job held GPUs."""
        held: F64 = np.bincount(self.row, self.to_s - self.from_s, jobs).astype(np.float64)
        return held

    def gpu_s(self, jobs: int) -> F64:
        """GPU time each job held."""
        held: F64 = np.bincount(self.row, (self.to_s - self.from_s) * self.gpus, jobs).astype(np.float64)
        return held


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds each job waited, by cause, and the seconds it worked.

    They sum to end less submission for ended jobs, and to the time until the refusal for refused ones.
    """

    admission: F64
    capacity: F64
    fragmentation: F64
    policy: F64
    quota: F64
    reconfiguration: F64
    running: F64

    def total(self) -> F64:
        """All seconds, waiting and working."""
        return (
            self.admission + self.capacity + self.fragmentation + self.policy + self.quota
            + self.reconfiguration + self.running
        )  # fmt: skip


def horizon_of(record: Record) -> tuple[float, float]:
    """First submission and the last instant anything happened."""
    times = record.events()[0]
    start = float(record.world.jobs.submit_s[0])
    last = max(float(times[-1]) if len(times) else start, float(record.end_s.max(initial=start)))
    return start, max(last, float(record.logged_s.max(initial=start)))


def stretches_of(record: Record) -> Stretches:
    """Stretches in which jobs held a constant number of GPUs."""
    times, rows, gpus = record.changes()
    if record.moves:
        moved = [np.array(column) for column in zip(*record.moves, strict=True)]
        times, rows, gpus = (np.concatenate(both) for both in zip((times, rows, gpus), moved, strict=True))
    order = np.lexsort((times, rows))
    times, rows, gpus = times[order], rows[order], gpus[order]
    _, last = horizon_of(record)
    until = np.append(times[1:], last)
    ends_job = np.append(rows[1:] != rows[:-1], True) if len(rows) else np.zeros(0, np.bool_)
    until = np.where(ends_job, last, until)
    kept = (gpus > 0) & (until > times)
    return Stretches(rows[kept], times[kept], until[kept], gpus[kept])


def waits_of(record: Record, stretches: Stretches) -> Waits:
    """Every waiting second of every job, by its cause."""
    jobs = record.world.jobs
    count = len(jobs)
    _, horizon = horizon_of(record)
    submit = jobs.submit_s.astype(np.float64)
    judged = np.fmax(record.judged_s, submit)
    judged = np.where(np.isnan(judged), submit, judged)
    end = np.where(record.end_s >= 0, record.end_s, np.where(record.admitted == 0, judged, horizon))
    end = np.maximum(end, submit)
    judged = np.minimum(judged, end)
    row, low, high = stretches.row, stretches.from_s, np.minimum(stretches.to_s, end[stretches.row])
    held: F64 = np.bincount(row, np.maximum(high - low, 0.0), count).astype(np.float64)
    useful = _useful_s(record, stretches, held)
    enough = _seconds_with_enough_free(record, row, low, high, judged, end)
    admission = np.minimum(judged - submit, np.maximum(end - submit - held, 0.0))
    waiting = np.maximum(end - submit - held, 0.0) - admission
    fragmentation = np.minimum(record.fragmentation_s, waiting)
    quota = np.minimum(record.quota_s, waiting - fragmentation)
    policy = np.clip(enough - fragmentation - quota, 0.0, waiting - fragmentation - quota)
    capacity = waiting - fragmentation - quota - policy
    return Waits(admission, capacity, fragmentation, policy, quota, held - useful, useful)


def _useful_s(record: Record, stretches: Stretches, held: F64) -> F64:
    """Seconds each job worked while it held GPUs."""
    count = len(held)
    gpu_s = stretches.gpu_s(count)
    known = ~np.isnan(record.useful_gpu_s)
    share = np.divide(record.useful_gpu_s, gpu_s, out=np.ones(count), where=known & (gpu_s > 0))
    worked = np.where(known, held * np.clip(share, 0.0, 1.0), held - record.overhead_s)
    worked = np.where(np.isnan(record.worked_s), worked, record.worked_s)
    return np.clip(worked, 0.0, held)


def _seconds_with_enough_free(record: Record, row: I64, low: F64, high: F64, submit: F64, end: F64) -> F64:
    """Seconds each job waited, from `submit` on, while as many GPUs were free as it could start with.

    Elastic schedules can start a job on one GPU; others need what it asked for. With T(t) the time up to t in which
    enough were free, the waiting time is T over the job's life less T over the stretches it held GPUs.
    """
    times, _, _, free, _ = record.events()
    jobs = record.world.jobs
    if not len(times):
        return np.zeros(len(jobs))
    elastic = (stretch_counts(record, row) > 1) & (jobs.kind >= 0)
    need = np.where(elastic, 1, jobs.gpus)
    enough = np.zeros(len(jobs))
    for wanted in np.unique(need):
        total = np.concatenate(([0.0], np.cumsum(np.diff(times) * (free[:-1] >= wanted))))
        who = need == wanted

        def upto(at: F64, total: F64 = total, open_end: bool = bool(free[-1] >= wanted)) -> F64:
            """The time up to some instants in which enough GPUs were free."""
            inside: F64 = np.interp(at, times, total)
            return inside + np.where(open_end, np.maximum(at - times[-1], 0.0), 0.0)

        enough[who] = upto(end[who]) - upto(submit[who])
        mine = who[row]
        during = np.maximum(upto(high[mine]) - upto(low[mine]), 0.0)
        enough -= np.bincount(row[mine], during, len(jobs)) * who
    return np.maximum(enough, 0.0)


def stretch_counts(record: Record, row: I64) -> I64:
    """Per job, whether the run showed it on other counts than it asked for (2) or not (1)."""
    _, rows, gpus = record.changes()
    other = (gpus > 0) & (gpus != record.world.jobs.gpus[rows])
    flag = np.ones(len(record.world.jobs), np.int64)
    flag[rows[other]] = 2
    if other.any():
        flag[:] = 2
    return flag


def useful_gpu_s(record: Record, stretches: Stretches, waits: Waits) -> F64:
    """GPU time each job worked."""
    count = len(record.world.jobs)
    gpu_s, held_s = stretches.gpu_s(count), stretches.held_s(count)
    working = np.divide(waits.running, held_s, out=np.zeros(count), where=held_s > 0)
    known = ~np.isnan(record.useful_gpu_s)
    useful: F64 = np.where(known, np.minimum(record.useful_gpu_s, gpu_s), gpu_s * working)
    return useful


def one_gpu_work(record: Record, stretches: Stretches, waits: Waits) -> tuple[float, float]:
    """Useful GPU time of elastic jobs, and the GPU time that the same work takes on one GPU each.

    The latter is the sum of throughput over one-GPU throughput over the seconds worked. Jobs without a one-GPU throughput
    are in neither.
    """
    jobs, profile = record.world.jobs, record.world.profile
    if profile is None:
        return 0.0, 0.0
    rate = profile.rate_at()
    kind = jobs.kind[stretches.row]
    known = (kind >= 0) & (rate[kind, 1] > 0) & (stretches.gpus < rate.shape[1])
    row, gpus, kind = stretches.row[known], stretches.gpus[known], kind[known]
    held_s = stretches.held_s(len(jobs))
    working = np.divide(waits.running, held_s, out=np.zeros(len(jobs)), where=held_s > 0)
    worked_s = (stretches.to_s - stretches.from_s)[known] * working[row]
    share = rate[kind, gpus] / rate[kind, 1]
    return math.fsum(worked_s * gpus), math.fsum(worked_s * share)


def ledger_of(record: Record, stretches: Stretches, waits: Waits) -> Ledger:
    """Where every GPU-second from the first submission to the last event went."""
    world = record.world
    start, last = horizon_of(record)
    whole = world.cluster.gpus * (last - start)
    gpu_s = stretches.gpu_s(len(world.jobs))
    useful_each = useful_gpu_s(record, stretches, waits)
    held, useful = math.fsum(gpu_s), math.fsum(useful_each)
    times, pending, _, free, _ = record.events()
    spans = np.diff(np.append(times, last)) if len(times) else np.zeros(0)
    queued = math.fsum(free * spans * (pending > 0)) if len(times) else 0.0
    fragmented = min(record.fragmented_gpu_s, queued)
    idle_queue = queued - fragmented
    parts = {
        "useful": useful,
        "overhead": held - useful,
        "fragmented": fragmented,
        "idle with queue": idle_queue,
        "idle, nobody waits": whole - held - fragmented - idle_queue,
    }
    meanings = {
        "useful": "work was done",
        "overhead": "held by a job that was restarting, or to the end of its slot",
        "fragmented": "free, wanted by a waiting job, but too spread for it",
        "idle with queue": "free while somebody waited",
        "idle, nobody waits": "free while nobody waited",
    }
    return Ledger("GPU time", "GPU-s", whole, {name: float(part) for name, part in parts.items()}, meanings)


def time_ledger(record: Record, waits: Waits) -> tuple[Ledger, ...]:
    """Where the time of the mean ended job went, from its submission to its end; none if no job ended."""
    ended = record.end_s >= 0
    if not ended.any():
        return ()
    names = {
        "running": ("running", "it worked"),
        "restarting": ("reconfiguration", "it held GPUs and did not work yet"),
        "waiting for admission": ("admission", "the policy had not taken it in"),
        "waiting for GPUs": ("capacity", "others had them"),
        "waiting for GPUs together": ("fragmentation", "enough were free, but too spread"),
        "waiting by the policy's choice": ("policy", "enough were free"),
        "waiting for its quota": ("quota", "its user had its whole quota in use"),
    }
    parts = {part: float(getattr(waits, field)[ended].mean()) for part, (field, _) in names.items()}
    meanings = {part: meaning for part, (_, meaning) in names.items()}
    return (Ledger("time of a job", "s", math.fsum(parts.values()), parts, meanings),)


def nodes_of(record: Record, stretches: Stretches) -> list[list[tuple[int, int]]] | None:
    """GPUs (first, count runs) each stretch is drawn on; None for very long runs.

    Where a placement names GPUs these are they. Schedules that do not name nodes are packed here, only to be drawn: first
    free ones, in time order; a job that keeps its GPUs is not moved.
    """
    if len(stretches.row) > MOST_TRACKED:
        return None
    if record.places and len(record.places) <= MOST_TRACKED:
        stretch = zip(stretches.row.tolist(), stretches.from_s.tolist(), strict=True)
        return [record.places[row, from_s] for row, from_s in stretch]
    total = record.world.cluster.gpus
    free = np.ones(total, np.bool_)
    opening = np.lexsort((-stretches.gpus, stretches.from_s))
    closing = np.argsort(stretches.to_s, kind="stable")
    where: list[I64] = [np.zeros(0, np.int64)] * len(stretches.row)
    at = 0
    for number in opening:
        while at < len(closing) and stretches.to_s[closing[at]] <= stretches.from_s[number]:
            free[where[closing[at]]] = True
            at += 1
        chosen = np.flatnonzero(free)[: stretches.gpus[number]]
        free[chosen] = False
        where[number] = chosen
    return [runs_of(chosen) for chosen in where]


def timeline_of(
    record: Record, stretches: Stretches, places: list[list[tuple[int, int]]] | None
) -> Timeline | None:
    """One track a GPU: which job held it, from when to when. Left out for very long runs."""
    if places is None:
        return None
    cluster, jobs = record.world.cluster, record.world.jobs
    gpu: list[int] = []
    number: list[int] = []
    for at, runs in enumerate(places):
        for first, count in runs:
            gpu += range(first, first + count)
            number += [at] * count
    stretch = np.array(number, np.int64)
    node = np.repeat(np.arange(cluster.nodes), cluster.node_gpus())
    firsts = np.concatenate(([0], np.cumsum(cluster.node_gpus())))
    names = tuple(f"node {n} GPU {g - firsts[n]}" for g, n in enumerate(node.tolist()))
    rows = stretches.row[stretch]
    return Timeline(
        entities=names,
        states=("running",),
        entity=np.array(gpu, np.int64),
        state=np.zeros(len(stretch), np.int64),
        from_s=stretches.from_s[stretch],
        to_s=stretches.to_s[stretch],
        label=np.array([f"job {jobs.id[row]}" for row in rows], dtype=object),
        groups=tuple(f"node {n}" for n in node.tolist()),
    )


def result_of(scenario: Scenario, record: Record, notes: tuple[str, ...]) -> Result:
    """The result of a run."""
    stretches = stretches_of(record)
    waits = waits_of(record, stretches)
    ledger = ledger_of(record, stretches, waits)
    places = nodes_of(record, stretches)
    summary, intervals = summary_of(record, waits, ledger)
    held_gpu_s, one_gpu_s = one_gpu_work(record, stretches, waits)
    if held_gpu_s > 0:
        summary |= {"elastic_useful_gpu_s": held_gpu_s, "elastic_useful_at_one_gpu_gpu_s": one_gpu_s}
        summary["scaling_efficiency"] = one_gpu_s / held_gpu_s
    refused = refusals((record.world.jobs.id[row], why) for row, why in sorted(record.refusals.items()))
    notes = (*notes, *sentences(refused))
    if record.spread_gpu_s:
        summary["spread_gpu_s"] = record.spread_gpu_s
        notes = (*notes, _spread_note(record, stretches))
    if record.world.slowness is not None:
        summary["overrun_jobs"] = len(record.overrun_rows)
        notes = (*notes, _overrun_note(record))
    if record.ended_because:
        notes = (*notes, record.ended_because)
    return Result(
        scenario=scenario,
        summary=summary,
        tables={
            "jobs": jobs_table(record, stretches, waits),
            "allocations": allocations_table(record, stretches, places),
            "events": events_table(record),
        },
        ledgers=(ledger, *time_ledger(record, waits)),
        timeline=timeline_of(record, stretches, places),
        why=why_of(summary, waits, ledger, scenario.policy, because(refused)),
        notes=notes,
        intervals=intervals,
        headline=tuple(
            name
            for name in (
                "deadline_ratio",
                "jct_mean_s",
                "refused_jobs",
                "gpu_time_useful_share",
                "makespan_s",
            )
            if name in summary
        ),
        next_steps=_next_steps(scenario, record),
    )


def _spread_note(record: Record, stretches: Stretches) -> str:
    """What it took to place every planned job where nodes cannot be halved."""
    held_gpu_s = math.fsum(stretches.gpu_s(len(record.world.jobs)))
    jobs = len(record.spread_rows)
    return (
        f"{jobs} {'job' if jobs == 1 else 'jobs'} ran on more nodes than they need (at most {record.most_nodes}) for "
        f"{record.spread_gpu_s / 3600:.4g} GPU-h, {100 * record.spread_gpu_s / held_gpu_s:.2g} % of the GPU time held: "
        "the plans count GPUs, which the buddy placement could not place. They run at the profile's speed, unpenalised"
    )


def _overrun_note(record: Record) -> str:
    """What became of jobs slower than their profile, and of the others."""
    world, behind = record.world, sorted(record.overrun_rows)
    assert world.slowness is not None
    in_time = (record.end_s >= 0) & (record.end_s <= world.jobs.deadline_s)
    others = (record.admitted == 1) & world.jobs.has_deadline & (world.slowness == 1)
    return (
        f"{int(np.count_nonzero(world.slowness > 1))} jobs are slower than their throughput says; {len(behind)} admitted "
        f"jobs fell so far behind that no plan was in time and went on as best effort, {int(in_time[behind].sum())} of them "
        f"ended in time; of {int(others.sum())} admitted jobs that are not slower {int((others & in_time).sum())} did"
    )


def _next_steps(scenario: Scenario, record: Record) -> tuple[str, ...]:
    """A comparison of policies that can run these jobs, and nodes if they were left out."""
    profile, cluster = record.world.profile, record.world.cluster
    elastic = cluster.is_uniform and (profile is None or bool((record.world.jobs.kind >= 0).all()))
    chosen = ("ef-accessctrl", "edf", "srtf") if elastic else ("fifo", "srtf", "las")
    compare = " ".join(f"--policy {name}" for name in chosen)
    views = isinstance(scenario.policy, Allocator)  # published schedules place by rules of their own
    placed = (
        ("forerun simulate {scenario} --set placement=best-fit",)
        if views and scenario.placement == "anywhere"
        else ()
    )
    return (f"forerun compare {{scenario}} {compare}", *placed)


def jobs_table(record: Record, stretches: Stretches, waits: Waits) -> Table:
    """One row a job."""
    jobs = record.world.jobs
    has_deadline = jobs.has_deadline
    ended = record.end_s >= 0
    return Table.of(
        JOBS,
        job=np.array([str(name) for name in jobs.id], dtype=object),
        user=np.array(jobs.user, dtype=object),
        model=np.array(jobs.model, dtype=object),
        batch=jobs.batch,
        gpus=jobs.gpus,
        submit_s=jobs.submit_s,
        deadline_s=np.where(has_deadline, jobs.deadline_s.astype(np.float64), np.nan),
        admitted=record.admitted != 0,
        first_start_s=np.where(record.first_start_s >= 0, record.first_start_s, np.nan),
        end_s=np.where(ended, record.end_s, np.nan),
        met=ended & (~has_deadline | (record.end_s <= jobs.deadline_s)),
        met_reference=record.met_reference,
        wait_admission_s=waits.admission,
        wait_capacity_s=waits.capacity,
        wait_fragmentation_s=waits.fragmentation,
        wait_policy_s=waits.policy,
        wait_quota_s=waits.quota,
        wait_reconfiguration_s=waits.reconfiguration,
        running_s=waits.running,
        gpu_s=stretches.gpu_s(len(jobs)),
        preemptions=record.preempts,
        refused_because=np.array([record.refusals.get(row, "") for row in range(len(jobs))], dtype=object),
    )


def allocations_table(
    record: Record, stretches: Stretches, places: list[list[tuple[int, int]]] | None
) -> Table:
    """One row a stretch of constant allocation."""
    jobs = record.world.jobs
    names = [str(name) for name in jobs.id]
    node = np.repeat(np.arange(record.world.cluster.nodes), record.world.cluster.node_gpus())
    texts = [""] * len(stretches.row) if places is None else [_nodes_text(runs, node) for runs in places]
    numbers = [""] * len(texts) if places is None else [_numbers_text(runs) for runs in places]
    return Table.of(
        ALLOCATIONS,
        job=np.array([names[row] for row in stretches.row], dtype=object),
        from_s=stretches.from_s,
        to_s=stretches.to_s,
        gpus=stretches.gpus,
        nodes=np.array(texts, dtype=object),
        gpu_numbers=np.array(numbers, dtype=object),
    )


def _numbers_text(runs: list[tuple[int, int]]) -> str:
    return " ".join(str(first) if count == 1 else f"{first}-{first + count - 1}" for first, count in runs)


def _nodes_text(runs: list[tuple[int, int]], node: I64) -> str:
    count: dict[int, int] = {}
    for first, length in runs:
        for number in node[first : first + length].tolist():
            count[number] = count.get(number, 0) + 1
    return " ".join(f"{number}:{held}" for number, held in count.items())


def events_table(record: Record) -> Table:
    """One row a scheduling event."""
    times, pending, running, free, efficiency = record.events()
    submit = record.world.jobs.submit_s
    taken = np.sort(submit[record.admitted != 0])
    return Table.of(
        EVENTS,
        time_s=times,
        pending=pending,
        running=running,
        free=free,
        efficiency=efficiency,
        submitted=np.searchsorted(submit, times, side="right"),
        admitted=np.searchsorted(taken, times, side="right"),
    )


def summary_of(record: Record, waits: Waits, ledger: Ledger) -> tuple[dict[str, Any], dict[str, Interval]]:
    """The run in figures, and intervals for those that are averages over jobs."""
    jobs = record.world.jobs
    has_deadline = jobs.has_deadline
    ended = record.end_s >= 0
    jct = (record.end_s - jobs.submit_s)[ended]
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
        "unfinished_jobs": int(np.count_nonzero(~ended & (record.admitted != 0))),
        "accepted_reference": int(record.accepted),
        "declined_reference": record.declined_count,
        "makespan_s": float(record.end_s.max() - start) if ended.any() else 0.0,
        "horizon_s": last - start,
        "gpus": record.world.cluster.gpus,
        "events": len(times),
        "preemptions": int(record.preempts.sum()),
    }
    intervals: dict[str, Interval] = {}
    if with_deadline:
        summary |= {
            "deadlines_met": met,
            "deadlines_met_reference": by_rule,
            "deadline_ratio": met / with_deadline,
            "deadline_ratio_reference": by_rule / with_deadline,
        }
        intervals["deadline_ratio"] = proportion_interval(
            met, with_deadline, method="Wilson score, over the jobs of this trace"
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
    for name in ("admission", "capacity", "fragmentation", "policy", "quota", "reconfiguration"):
        summary[f"wait_{name}_mean_s"] = float(getattr(waits, name).mean()) if len(jobs) else 0.0
    summary |= {f"gpu_time_{_key(name)}_share": share for name, share in ledger.shares().items()}
    whole = last - start
    summary["efficiency_mean"] = float((efficiency * spans).sum() / whole) if whole > 0 else 0.0
    return summary, intervals


def _key(name: str) -> str:
    return name.replace(", nobody waits", "_empty").replace(" ", "_")


def why_of(
    summary: dict[str, Any], waits: Waits, ledger: Ledger, policy: Recipe, refused_because: str
) -> str:
    """One sentence: what decided the outcome. refused_because: the constraints of refused jobs, most frequent first."""
    name = member_name(type(policy))
    causes = {
        "GPUs in use by others": float(waits.capacity.sum()),
        "the policy's choice": float(waits.policy.sum()),
        "fragmentation": float(waits.fragmentation.sum()),
        "quotas": float(waits.quota.sum()),
        "restarts and slot ends": float(waits.reconfiguration.sum()),
    }
    total = sum(causes.values())
    shares = ledger.shares()
    used = f"{100 * shares['useful']:.0f} % of the GPU time was useful"
    also = ""
    if number := summary["refused_jobs"]:
        also += f"; {number} {'job was' if number == 1 else 'jobs were'} refused"
        also += f" ({refused_because})" if refused_because else ""
    if number := summary["unfinished_jobs"]:
        also += f"; {number} {'job' if number == 1 else 'jobs'} never ended"
    if not summary["finished_jobs"]:
        return f"under {name} no job ended, {used}{also}"
    if total <= 0:
        return f"under {name} nobody waited, {used}{also}"
    worst = max(causes, key=lambda cause: causes[cause])
    return f"under {name} {100 * causes[worst] / total:.0f} % of all waiting was for {worst}, {used}{also}"
