"""Measured points of training jobs in CSV, in file order: tables that energy scenarios read, not traces in time.

`read_train` and `read_power` read what the Zeus project publishes of recurring jobs, `read_pipeline` the operations of a
pipeline-parallel training. A simulator that draws a run by its position must see the file's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import LARGEST_INT, Field
from forerun.core.trace.tabular import Rows

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

#: what a row is of; a file of one job may leave them out
_DATASET = Field(name="dataset", kind="text", required=False, meaning="data set")
_NETWORK = Field(name="network", kind="text", required=False, meaning="network")
_OPTIMIZER = Field(name="optimizer", kind="text", required=False, meaning="optimizer")
_BATCH = Field(name="batch_size", kind="int", minimum=1, meaning="samples a step")
_TRAIN: Final = (
    _DATASET,
    _NETWORK,
    _BATCH,
    _OPTIMIZER,
    Field(
        name="learning_rate", kind="text", required=False, missing=("",), meaning="learning rate, not used"
    ),
    Field(name="run", kind="text", required=False, missing=("",), meaning="repetition of the training"),
    Field(name="target_metric", required=False, meaning="metric to reach"),
    Field(name="target_epoch", missing=("nan", "NaN", ""), meaning="first epoch at which it was reached"),
)
_POWER: Final = (
    _DATASET,
    _NETWORK,
    _BATCH,
    _OPTIMIZER,
    Field(name="limit_w", column="power_limit", unit="W", meaning="power limit set"),
    Field(name="epoch_s", column="time_per_epoch", unit="s", meaning="time of one epoch"),
    Field(name="power_w", column="average_power", unit="W", meaning="average draw during the epoch"),
)
#: a draw this far above its limit is flagged
SUSPICIOUS_SHARE: Final = 1.5
#: a draw this far above its limit is in another unit
MILLIWATTS: Final = 200.0
INSTRUCTIONS: Final = ("forward", "backward")
_PIPELINE: Final = (
    Field(name="stage", kind="int", minimum=0, meaning="stage, from 0"),
    Field(name="instruction", kind="text", meaning="forward or backward"),
    Field(name="frequency_mhz", column="frequency", unit="MHz", meaning="clock of the GPU"),
    Field(name="time_s", unit="s", meaning="time of one microbatch"),
    Field(name="energy_j", unit="J", meaning="energy of one microbatch"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workloads:
    """Rows of recurring jobs, in file order.

    Parameters
    ----------
    workload : (dataset, network, optimizer) of each, empty where the file does not say.
    batch_size : int64[rows].
    line : int64[rows], where each row stands in `source`.
    """

    workload: tuple[tuple[str, str, str], ...]
    batch_size: I64
    line: I64
    source: str = ""

    def __len__(self) -> int:
        return len(self.workload)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainTrace(_Workloads):
    """Recorded trainings.

    Parameters
    ----------
    target_metric : float64[rows], nan if the file has none.
    target_epoch : int64[rows], the first epoch at which the training had reached the target, 0 if it never did.
    """

    target_metric: F64
    target_epoch: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTrace(_Workloads):
    """Measured epochs. Draws above the limit occur in the public files (up to 1.21 times) and are kept.

    Parameters
    ----------
    limit_w : float64[rows], the power limit set [W].
    epoch_s : float64[rows], time of an epoch [s].
    power_w : float64[rows], average draw [W].
    """

    limit_w: F64
    epoch_s: F64
    power_w: F64


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTrace:
    """Measured operations of a pipeline, in file order.

    Parameters
    ----------
    stage : int64[rows], from 0.
    instruction : `forward` or `backward`, a row.
    frequency_mhz : float64[rows], clock of the GPU.
    time_s, energy_j : float64[rows], of one microbatch [s, J].
    source : the file.
    """

    stage: I64
    instruction: tuple[str, ...]
    frequency_mhz: F64
    time_s: F64
    energy_j: F64
    source: str = ""

    def __len__(self) -> int:
        return len(self.stage)


def read_train(path: str | Path, repairs: RepairLog | None = None) -> TrainTrace:
    """The recorded trainings in a CSV, one row a (workload, batch size, run, target metric).

    Raises TraceError naming file, line and column.
    """
    rows = Rows.of_file(path, _TRAIN, repairs)
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
        **_workloads(rows),
        target_metric=rows.columns.get("target_metric", np.full(len(rows), np.nan)),
        target_epoch=np.where(never, 0, epochs).astype(np.int64),
    )


def read_power(path: str | Path, repairs: RepairLog | None = None) -> PowerTrace:
    """The measured epochs in a CSV, one row a (workload, batch size, power limit).

    A draw above 1.5 times its limit is noted, and rejected where only another unit explains it. Raises TraceError naming
    file, line and column.
    """
    rows = Rows.of_file(path, _POWER, repairs)
    rows.reject_unless_positive(_POWER[-3:])
    power_w, limit_w = rows["power_w"], rows["limit_w"]
    share = power_w / np.maximum(limit_w, 1e-300)

    def other_unit(row: int) -> str:
        unit = "milliwatts?" if share[row] > 1 else "is the limit in milliwatts?"
        return f"{power_w[row]:g} W under a limit of {limit_w[row]:g} W is a factor {share[row]:.3g} ({unit})"

    rows.reject((share > MILLIWATTS) | (share < 1 / MILLIWATTS), "average_power", other_unit)
    high = (share > SUSPICIOUS_SHARE) & (share <= MILLIWATTS)
    rows.note(high, "average power above 1.5 times its limit, kept", "average_power")
    rows.complaints.finish()
    return PowerTrace(**_workloads(rows), limit_w=limit_w, epoch_s=rows["epoch_s"], power_w=power_w)


def _workloads(rows: Rows) -> dict[str, Any]:
    """What both tables of recurring jobs share; equal workloads are one object."""
    none = [""] * len(rows)
    columns: list[Any] = [
        rows[field.name].tolist() if field.name in rows else none
        for field in (_DATASET, _NETWORK, _OPTIMIZER)
    ]
    seen: dict[tuple[str, str, str], tuple[str, str, str]] = {}
    return {
        "workload": tuple(seen.setdefault(key, key) for key in zip(*columns)),
        "batch_size": rows["batch_size"],
        "line": rows.lines,
        "source": rows.source.name,
    }


def read_pipeline(path: str | Path, repairs: RepairLog | None = None) -> PipelineTrace:
    """The measured operations in a CSV; every stage up to the last has both passes.

    Identical duplicates are dropped and noted. Raises TraceError naming file, line and column.
    """
    rows = Rows.of_file(path, _PIPELINE, repairs)
    instruction = rows["instruction"]
    rows.reject(
        ~np.isin(instruction.tolist(), INSTRUCTIONS),
        "instruction",
        lambda row: f"{instruction[row]!r} is neither forward nor backward",
    )
    rows.reject_unless_positive(_PIPELINE[-3:])
    rows.keep(_without_duplicates(rows))
    seen = set(zip(rows["stage"].tolist(), rows["instruction"].tolist()))
    for stage in range(max((stage for stage, _ in seen), default=-1) + 1):
        for name in INSTRUCTIONS:
            if (stage, name) not in seen:
                rows.complaints.add(rows.source.name, f"stage {stage} has no {name} pass")
    rows.complaints.finish()
    numbers = {name: rows[name] for name in ("stage", "frequency_mhz", "time_s", "energy_j")}
    return PipelineTrace(**numbers, instruction=tuple(rows["instruction"].tolist()), source=rows.source.name)


def _without_duplicates(rows: Rows) -> list[int]:
    """Rows to keep: the first of identical ones; those that conflict are complaints."""
    first: dict[tuple[int, str, float], int] = {}
    positions = []
    duplicate = np.zeros(len(rows), np.bool_)
    keys = zip(*(rows[name].tolist() for name in ("stage", "instruction", "frequency_mhz")))
    for at, key in enumerate(keys):
        before = first.setdefault(key, at)
        if before == at:
            positions.append(at)
        elif all(rows[name][before] == rows[name][at] for name in ("time_s", "energy_j")):
            duplicate[at] = True
        else:
            stage, name, mhz = key
            text = f"stage {stage} {name} at {mhz:g} MHz is measured otherwise in line {rows.lines[before]}"
            rows.complaints.add(rows.at(at, "frequency"), f"conflicts with another row: {text}")
    rows.note(duplicate, "duplicate row, dropped", "frequency")
    return positions
