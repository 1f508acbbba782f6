"""What each job did with its time: stretches of constant allocation, waiting seconds by cause, useful seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.summary.spans import Spans


@dataclass(frozen=True, slots=True)
class Stretches(Spans):
    """Stretches of constant allocation, by (job, start).

    Parameters
    ----------
    from_s, to_s, gpus : as of `Spans`; at least one GPU.
    row : the job.
    """

    row: I64

    def held_s(self, jobs: int) -> F64:
        """Seconds in which each job had GPUs."""
        seconds: F64 = np.bincount(self.row, self.to_s - self.from_s, jobs).astype(np.float64)
        return seconds

    def gpu_s(self, jobs: int) -> F64:
        """GPU time of each job."""
        gpu_s: F64 = np.bincount(self.row, (self.to_s - self.from_s) * self.gpus, jobs).astype(np.float64)
        return gpu_s


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds each job waited, by cause, and the seconds it worked.

    They sum to end less submission for ended jobs, and to the time until the refusal for refused ones.

    Parameters
    ----------
    admission : before the policy took the job in or refused it.
    capacity : for GPUs in use by others.
    fragmentation : with enough GPUs free, but too spread.
    policy : with enough GPUs free, by the policy's choice.
    quota : because the quota of its user, or a limit, was used up.
    reconfiguration : with GPUs, before it worked: restarts, and the rest of slots.
    running : not waiting, but working.
    """

    admission: F64
    capacity: F64
    fragmentation: F64
    policy: F64
    quota: F64
    reconfiguration: F64
    running: F64

    def by_cause(self) -> dict[str, F64]:
        """The waiting seconds by cause: all columns but the seconds worked."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "running"}

    def total(self) -> F64:
        """All seconds, waiting and working."""
        return sum(self.by_cause().values(), np.zeros(len(self.running))) + self.running


def horizon_of(record: Record) -> tuple[float, float]:
    """First submission and the last instant anything happened."""
    times = record.events()[0]
    start = float(record.setting.jobs.submit_s[0])
    last = max(float(times[-1]) if len(times) else start, float(record.end_s.max(initial=start)))
    return start, max(last, float(record.logged_s.max(initial=start)))


def stretches_of(record: Record) -> Stretches:
    """The stretches in which jobs had a constant number of GPUs."""
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
    worked = (gpus > 0) & (until > times)
    return Stretches(times[worked], until[worked], gpus[worked], rows[worked])


def waits_of(record: Record, stretches: Stretches) -> Waits:
    """Every waiting second of every job, by its cause.

    Seconds in which too few GPUs were free count as capacity. Of the others those come first that the engine knows to
    be due to fragmentation or quotas; the rest is the policy's choice.
    """
    jobs = record.setting.jobs
    count = len(jobs)
    _, horizon = horizon_of(record)
    submit = jobs.submit_s.astype(np.float64)
    judged = np.fmax(record.judged_s, submit)
    judged = np.where(np.isnan(judged), submit, judged)
    end = np.where(record.end_s >= 0, record.end_s, np.where(record.admitted == 0, judged, horizon))
    end = np.maximum(end, submit)
    judged = np.minimum(judged, end)
    row, low, high = stretches.row, stretches.from_s, np.minimum(stretches.to_s, end[stretches.row])
    held_s: F64 = np.bincount(row, np.maximum(high - low, 0.0), count).astype(np.float64)
    useful = _useful_s(record, stretches, held_s)
    enough = _seconds_with_enough_free(record, row, low, high, judged, end)
    admission = np.minimum(judged - submit, np.maximum(end - submit - held_s, 0.0))
    waiting = np.maximum(end - submit - held_s, 0.0) - admission
    fragmentation = np.minimum(record.fragmentation_s, waiting)
    quota = np.minimum(record.quota_s, waiting - fragmentation)
    policy = np.clip(enough - fragmentation - quota, 0.0, waiting - fragmentation - quota)
    capacity = waiting - fragmentation - quota - policy
    return Waits(admission, capacity, fragmentation, policy, quota, held_s - useful, useful)


def _useful_s(record: Record, stretches: Stretches, held_s: F64) -> F64:
    """Seconds in which each job worked."""
    count = len(held_s)
    gpu_s = stretches.gpu_s(count)
    known = ~np.isnan(record.useful_gpu_s)
    share = np.divide(record.useful_gpu_s, gpu_s, out=np.ones(count), where=known & (gpu_s > 0))
    worked = np.where(known, held_s * np.clip(share, 0.0, 1.0), held_s - record.overhead_s)
    worked = np.where(np.isnan(record.worked_s), worked, record.worked_s)
    return np.clip(worked, 0.0, held_s)


def _seconds_with_enough_free(record: Record, row: I64, low: F64, high: F64, submit: F64, end: F64) -> F64:
    """Seconds each job waited, from `submit` on, while as many GPUs were free as it could start with.

    Elastic schedules can start a job on one GPU; others need what it asked for. With T(t) the time up to t in which
    enough were free, the waiting time is T over the job's life less T over its stretches.
    """
    times, _, _, free, _ = record.events()
    jobs = record.setting.jobs
    if not len(times):
        return np.zeros(len(jobs))
    if (first_s := float(jobs.submit_s[0])) < times[0]:  # until the first event all GPUs are free
        times, free = np.append(first_s, times), np.append(record.setting.cluster.gpus, free)
    elastic = (stretch_counts(record, row) > 1) & (jobs.kind >= 0)
    need = np.where(elastic, 1, jobs.gpus)
    enough = np.zeros(len(jobs))
    for gpus in np.unique(need):
        total = np.concatenate(([0.0], np.cumsum(np.diff(times) * (free[:-1] >= gpus))))
        who = need == gpus

        def upto(at: F64, total: F64 = total, open_end: bool = bool(free[-1] >= gpus)) -> F64:
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
    other = (gpus > 0) & (gpus != record.setting.jobs.gpus[rows])
    flag = np.ones(len(record.setting.jobs), np.int64)
    flag[rows[other]] = 2
    if other.any():
        flag[:] = 2
    return flag


def useful_gpu_s(record: Record, stretches: Stretches, waits: Waits) -> F64:
    """GPU time each job worked."""
    count = len(record.setting.jobs)
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
    jobs, profile = record.setting.jobs, record.setting.profile
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
