"""What each job did with its time: stretches of constant allocation, waiting seconds by cause, useful seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import F64
from forerun.cluster.summary.causes import BY_COUNT, CAUSES, Causes, Decided, Waiting, causes_of
from forerun.cluster.summary.spans import Stretches


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds each job waited, by cause, and the seconds it worked.

    They sum to end less submission for ended jobs, and to the time until the refusal for refused ones; the submission is
    that of the log, before the job was eligible. A job that comes after the end of another counts from then on.

    Parameters
    ----------
    admission : before the policy took the job in or refused it.
    causes : of waiting for GPUs.
    reconfiguration : with GPUs, before it worked: restarts, and the rest of slots.
    running : not waiting, but working.
    lost_gpu_s : GPU-seconds of that work which a failure or a scheduler that put the job back into the queue undid.
    """

    admission: F64
    causes: Causes
    reconfiguration: F64
    running: F64
    lost_gpu_s: F64

    def by_cause(self) -> dict[str, F64]:
        """The waiting seconds by cause: all but the seconds worked."""
        return {"admission": self.admission, **self.causes.columns(), "reconfiguration": self.reconfiguration}

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


def waits_of(
    record: Record,
    stretches: Stretches,
    decided: Decided = BY_COUNT,
    *,
    checkpoint_s: float = 0.0,
    focus: int = -1,
) -> Waits:
    """Every waiting second of every job, by its cause.

    Parameters
    ----------
    record, stretches : what happened, and who had GPUs.
    decided : by what (default: by the number of GPUs alone).
    checkpoint_s : seconds of work between checkpoints (default: there are none).
    focus : a job whose stretches of waiting are noted (default: none).
    """
    jobs = record.setting.jobs
    count = len(jobs)
    _, horizon = horizon_of(record)
    submit: F64 = np.minimum(record.came_s, horizon).astype(np.float64)
    judged = np.fmax(record.judged_s, submit)
    judged = np.where(np.isnan(judged), submit, judged)
    end = np.where(record.end_s >= 0, record.end_s, np.where(record.admitted == 0, judged, horizon))
    started = record.first_start_s >= 0
    for gone, left_s in record.cancelled.items():
        ran = started[gone] and jobs.censored[gone]
        end[gone] = record.first_start_s[gone] + jobs.duration_s[gone] if ran else left_s
    end = np.minimum(end, horizon)
    end = np.maximum(end, submit)
    judged = np.minimum(judged, end)
    row, low, high = stretches.row, stretches.from_s, np.minimum(stretches.to_s, end[stretches.row])
    held_s: F64 = np.bincount(row, np.maximum(high - low, 0.0), count).astype(np.float64)
    useful = _useful_s(record, stretches, held_s)
    waiting = _waiting(record, stretches, judged, end)
    seats = record.seats(row, low) if record.has_seats else None
    causes = causes_of(
        record.setting,
        stretches,
        waiting,
        decided,
        seats=seats,
        named=record.names_gpus,
        focus=focus,
    )
    waited: F64 = np.bincount(waiting.row, waiting.to_s - waiting.from_s, count).astype(np.float64)
    admission = np.maximum(end - submit - held_s - waited, 0.0)
    away = np.zeros(count)
    for at, from_s, to_s in _away(record, end):
        away[at] += to_s - from_s
    causes.waited_s[:, list(CAUSES).index("not_eligible")] += away
    lost = record.lost_gpu_s + _undone(record, useful * jobs.gpus, checkpoint_s)
    return Waits(np.maximum(admission - away, 0.0), causes, held_s - useful, useful, lost)


def _away(record: Record, end: F64) -> list[tuple[int, float, float]]:
    """When jobs that were put back into the queue could not start: (row, from, to). end: of each job."""
    return [
        (row, from_s, min(to_s, float(end[row]))) for row, from_s, to_s in record.away if from_s < end[row]
    ]


def _undone(record: Record, worked_gpu_s: F64, checkpoint_s: float) -> F64:
    """The GPU-seconds of runs of the log that the next run of the same job has to do again; as of `waits_of`."""
    jobs, lost = record.setting.jobs, np.zeros(len(worked_gpu_s))
    before = jobs.predecessor()
    if jobs.labels is None or not (before >= 0).any():
        return lost
    broken = before[(before >= 0) & (jobs.labels.attempt > 1)]
    kept_s = jobs.duration_s[broken] // checkpoint_s * checkpoint_s if checkpoint_s else 0.0
    lost[broken] = worked_gpu_s[broken] * (1.0 - kept_s / jobs.duration_s[broken])
    return lost


def _waiting(record: Record, stretches: Stretches, judged: F64, end: F64) -> Waiting:
    """The stretches in which jobs have no GPUs, from when the policy took them in to their end."""
    jobs, row = record.setting.jobs, stretches.row
    first = np.append(True, row[1:] != row[:-1])[: len(row)]
    until = np.minimum(stretches.from_s, end[row])
    since = np.where(first, judged[row], np.append(0.0, stretches.to_s[:-1])[: len(row)])
    last = judged.copy()
    np.maximum.at(last, row, stretches.to_s)
    rows = np.concatenate((row, np.arange(len(jobs))))
    from_s = np.maximum(np.concatenate((since, last)), judged[rows])
    back = {(row, stopped_s): back_s for row, stopped_s, back_s in _away(record, end)}
    for at in np.flatnonzero(np.isin(rows, [row for row, _ in back])).tolist():
        from_s[at] = back.get((int(rows[at]), float(from_s[at])), from_s[at])
    to_s = np.concatenate((until, end))
    starts = np.concatenate((stretches.from_s < end[row], np.zeros(len(jobs), np.bool_)))
    real = to_s > from_s
    order = np.flatnonzero(real)[np.lexsort((rows[real], from_s[real]))]
    rows = rows[order]
    needs = np.where(_is_elastic(record) & (jobs.kind[rows] >= 0), 1, jobs.gpus[rows])
    return Waiting(from_s[order], to_s[order], needs, rows, starts[order])


def _useful_s(record: Record, stretches: Stretches, held_s: F64) -> F64:
    """Seconds in which each job worked."""
    count = len(held_s)
    gpu_s = stretches.gpu_s(count)
    known = ~np.isnan(record.useful_gpu_s)
    share = np.divide(record.useful_gpu_s, gpu_s, out=np.ones(count), where=known & (gpu_s > 0))
    worked = np.where(known, held_s * np.clip(share, 0.0, 1.0), held_s - record.overhead_s)
    worked = np.where(np.isnan(record.worked_s), worked, record.worked_s)
    return np.clip(worked, 0.0, held_s)


def _is_elastic(record: Record) -> bool:
    """Whether jobs had other numbers of GPUs than they asked for, so that they can start on one."""
    _, rows, gpus = record.changes()
    return bool(((gpus > 0) & (gpus != record.setting.jobs.gpus[rows])).any())


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
