"""The logs that the published simulator writes, of our runs, so that the two can be laid side by side with `diff`.

`job.csv` has one row a completed job, in order of completion (refused jobs never appear): `start_time` is the last
restart, `time` when the schedule noticed the end. `scheduling_events.csv` has one row a scheduling event: which job holds
each GPU from then on (empty: none), and `ce`, the cluster efficiency. GPUs of schedules that name no nodes are packed as
for the drawing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import NO_DEADLINE_S
from forerun.cluster.summary.gpus import nodes_of
from forerun.cluster.summary.waits import stretches_of
from forerun.core.atomic_write import refuse_foreign, write_text
from forerun.core.errors import UsageError

JOB_COLUMNS: Final = (
    "time",
    "job_id",
    "num_gpu",
    "submit_time",
    "start_time",
    "end_time",
    "ddl",
    "executed_time",
    "JCT",
    "pending_time",
    "preempt",
    "promote",
    "best_effort_job",
)


class Logs:
    """An observer that keeps the run's record; `write` makes the two files once the run is over.

    Pass it to `forerun.simulate` among the observers of a cluster run.
    """

    def __init__(self) -> None:
        self.record: Record | None = None

    def instant(self, now_s: float, record: Record) -> None:
        """Keep the record, once an event is over.

        Parameters
        ----------
        now_s : time of the event [s].
        record : the same object at every event.
        """
        self.record = record

    def write(self, folder: Path) -> tuple[Path, ...]:
        """Write both files into a folder, which is made if absent; their paths.

        Parameters
        ----------
        folder : where to.

        Raises
        ------
        UsageError : nothing was simulated, or the run has too many allocations to name GPUs.
        StoreError : a file of the same name that is not such a log is there, or writing failed.
        """
        if self.record is None:
            raise UsageError.at("reference logs", "nothing was simulated")
        made = {
            "job.csv": _text(JOB_COLUMNS, job_rows(self.record)),
            "scheduling_events.csv": _text(*event_rows(self.record)),
        }
        for name, text in made.items():
            refuse_foreign(folder, [name], marker=name, sign=text.partition("\n")[0].encode())
        for name, text in made.items():
            write_text(folder / name, text)
        return tuple(folder / name for name in made)


def job_rows(record: Record) -> list[tuple[Any, ...]]:
    """The rows of `job.csv`: one a completed job, in order of completion.

    Parameters
    ----------
    record : of a run that is over.

    Returns
    -------
    Values in the order of `JOB_COLUMNS`, times in seconds.
    """
    jobs = record.setting.jobs
    stretches = stretches_of(record)
    until = np.minimum(stretches.to_s, np.where(record.end_s >= 0, record.end_s, np.inf)[stretches.row])
    held_s = np.bincount(stretches.row, np.maximum(until - stretches.from_s, 0.0), len(jobs))
    rows = []
    for row in record.completed:
        jct_s = record.end_s[row] - jobs.submit_s[row]
        rows.append(
            (
                record.logged_s[row],
                jobs.id[row],
                jobs.gpus[row],
                jobs.submit_s[row],
                record.start_s[row],
                record.end_s[row],
                jobs.written_deadline_s[row] if jobs.written_deadline_s[row] < NO_DEADLINE_S else "",
                held_s[row],
                jct_s,
                max(jct_s - held_s[row], 0.0),
                record.preempts[row],
                0,
                int(jobs.best_effort[row]),
            )
        )
    return rows


def event_rows(record: Record) -> tuple[tuple[str, ...], list[list[Any]]]:
    """The header and rows of `scheduling_events.csv`.

    Parameters
    ----------
    record : of a run that is over.

    Raises
    ------
    UsageError : the run is too long to name GPUs.
    """
    cluster, jobs = record.setting.cluster, record.setting.jobs
    stretches = stretches_of(record)
    places = nodes_of(record, stretches)
    if places is None:
        raise UsageError.at(
            "reference logs", f"{len(stretches.row)} allocations are too many to name GPUs; shorten the trace"
        )
    sizes = cluster.node_gpus().tolist()
    names = tuple(f"gpu{node}-{k}" for node, size in enumerate(sizes) for k in range(size))
    times, _, _, _, efficiency = record.events()
    owner = np.full(cluster.gpus, -1, np.int64)
    opening = np.argsort(stretches.from_s, kind="stable").tolist()
    closing = np.argsort(stretches.to_s, kind="stable").tolist()
    opened = closed = 0
    rows: list[list[Any]] = []
    for time_s, ce in zip(times.tolist(), efficiency.tolist(), strict=True):
        while closed < len(closing) and stretches.to_s[closing[closed]] <= time_s:
            _set(owner, places[closing[closed]], -1)
            closed += 1
        while opened < len(opening) and stretches.from_s[opening[opened]] <= time_s:
            which = opening[opened]
            if stretches.to_s[which] > time_s:
                _set(owner, places[which], int(stretches.row[which]))
            opened += 1
        rows.append([time_s, *("" if row < 0 else jobs.id[row] for row in owner.tolist()), ce])
    return ("time", *names, "ce"), rows


def _set(owner: Any, runs: Sequence[tuple[int, int]], row: int) -> None:
    """Give some GPUs to a row, or to none with -1. runs: (first GPU, count) of each consecutive stretch of GPUs."""
    for first, count in runs:
        owner[first : first + count] = row


def _text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A CSV text of a header and rows, with plain line ends."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([[_cell(value) for value in row] for row in rows])
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Whole numbers without a fraction, as the published logs have them."""
    number = value.item() if hasattr(value, "item") else value
    return int(number) if isinstance(number, float) and number.is_integer() else number
