"""Recorded trainings of recurring jobs, as the Zeus project publishes them (`summary_train.csv`).

One row a (workload, batch size, run, target metric): the epoch at which that run had reached the target, `nan` if it
never did. Not a trace in time but a table of measured points, in file order: a simulator that draws a run by its
position must see the file's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.trace.repair import RepairLog
from forerun.trace.rows import LARGEST_INT, Field
from forerun.trace.source import Source
from forerun.trace.tabular import Rows

#: what a row is of; a file of one job may leave them out
WORKLOAD_FIELDS = (
    Field(name="dataset", kind="text", required=False, meaning="data set"),
    Field(name="network", kind="text", required=False, meaning="network"),
    Field(name="optimizer", kind="text", required=False, meaning="optimizer"),
)
FIELDS = (
    *WORKLOAD_FIELDS[:2],
    Field(name="batch_size", kind="int", minimum=1, meaning="samples a step"),
    *WORKLOAD_FIELDS[2:],
    Field(
        name="learning_rate", kind="text", required=False, missing=("",), meaning="learning rate, not used"
    ),
    Field(name="run", kind="text", required=False, missing=("",), meaning="repetition of the training"),
    Field(name="target_metric", required=False, meaning="metric to reach"),
    Field(name="target_epoch", missing=("nan", "NaN", ""), meaning="first epoch at which it was reached"),
)


@dataclass(frozen=True, slots=True)
class TrainTrace:
    """Recorded trainings in file order.

    `workload` (dataset, network, optimizer) a row; `batch_size`, `target_epoch` int64[rows] (epoch 0 = never
    reached); `target_metric` float64[rows]; `line` int64[rows], where each row stands in `source`. A column that the
    file does not have is empty, or nan.
    """

    workload: tuple[tuple[str, str, str], ...]
    batch_size: NDArray[np.int64]
    target_metric: NDArray[np.float64]
    target_epoch: NDArray[np.int64]
    line: NDArray[np.int64]
    source: str = ""

    def __len__(self) -> int:
        return len(self.workload)


def read_train(path: str | Path, repairs: RepairLog | None = None) -> TrainTrace:
    """The trainings in a CSV. Raises TraceError naming file, line and column."""
    log = repairs if repairs is not None else RepairLog()
    source = Source(Path(path), repairs=log)
    rows = Rows.read(source, FIELDS)
    epochs = rows["target_epoch"]
    never = np.isnan(epochs)
    whole = (epochs >= 1) & (epochs <= LARGEST_INT) & (epochs == np.floor(epochs))
    rows.reject(
        ~never & ~whole,
        "target_epoch",
        lambda row: f"{epochs[row]:g} is not a whole number of epochs from 1 on; write nan for never",
    )
    rows.complaints.finish()
    return TrainTrace(
        workload=workloads(rows),
        batch_size=rows.columns["batch_size"],
        target_metric=rows.columns.get("target_metric", np.full(len(rows), np.nan)),
        target_epoch=np.where(never, 0, epochs).astype(np.int64),
        line=rows.lines,
        source=source.name,
    )


def workloads(rows: Rows) -> tuple[tuple[str, str, str], ...]:
    """(dataset, network, optimizer) of each row, equal ones shared; empty where the file has no such column."""
    none = [""] * len(rows)
    columns: list[Any] = [
        rows.columns[field.name].tolist() if field.name in rows.columns else none for field in WORKLOAD_FIELDS
    ]
    seen: dict[tuple[str, str, str], tuple[str, str, str]] = {}
    return tuple(seen.setdefault(key, key) for key in zip(*columns))
