"""Measured epochs of recurring jobs, as the Zeus project publishes them (`summary_power_GPU.csv`).

One row a (workload, batch size, power limit): seconds an epoch takes and watts it draws on average. A table of
measured points in file order, not a trace in time. Draws above the limit occur in the public files (up to 1.21
times) and are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.trace.readers.energy_train import WORKLOAD_FIELDS, workloads
from forerun.trace.repair import RepairLog
from forerun.trace.rows import Field
from forerun.trace.source import Source
from forerun.trace.tabular import Rows

FIELDS = (
    *WORKLOAD_FIELDS[:2],
    Field(name="batch_size", kind="int", minimum=1, meaning="samples a step"),
    *WORKLOAD_FIELDS[2:],
    Field(name="limit_w", column="power_limit", unit="W", meaning="power limit set"),
    Field(name="epoch_s", column="time_per_epoch", unit="s", meaning="time of one epoch"),
    Field(name="power_w", column="average_power", unit="W", meaning="average draw during the epoch"),
)
#: a draw this far above its limit is flagged
SUSPICIOUS_SHARE: Final = 1.5
#: a draw this far above its limit is in another unit
MILLIWATTS: Final = 200.0


@dataclass(frozen=True, slots=True)
class PowerTrace:
    """Measured epochs in file order.

    `workload` (dataset, network, optimizer) a row; `batch_size` int64[rows]; `limit_w` the limit set [W], `epoch_s`
    the time of an epoch [s], `power_w` the average draw [W], float64[rows]; `line` int64[rows] in `source`.
    A column that the file does not have is empty.
    """

    workload: tuple[tuple[str, str, str], ...]
    batch_size: NDArray[np.int64]
    limit_w: NDArray[np.float64]
    epoch_s: NDArray[np.float64]
    power_w: NDArray[np.float64]
    line: NDArray[np.int64]
    source: str = ""

    def __len__(self) -> int:
        return len(self.workload)


def read_power(path: str | Path, repairs: RepairLog | None = None) -> PowerTrace:
    """The measured epochs in a CSV. Raises TraceError naming file, line and column."""
    log = repairs if repairs is not None else RepairLog()
    source = Source(Path(path), repairs=log)
    rows = Rows.read(source, FIELDS)
    rows.reject_unless_positive(FIELDS[-3:])
    _flag_units(rows)
    rows.complaints.finish()
    return PowerTrace(
        workload=workloads(rows),
        batch_size=rows.columns["batch_size"],
        limit_w=rows.columns["limit_w"],
        epoch_s=rows.columns["epoch_s"],
        power_w=rows.columns["power_w"],
        line=rows.lines,
        source=source.name,
    )


def _flag_units(rows: Rows) -> None:
    """Draws far above their limit: flagged above 1.5 times, rejected where only another unit explains them."""
    power_w, limit_w = rows["power_w"], rows["limit_w"]
    share = power_w / np.maximum(limit_w, 1e-300)

    def other_unit(row: int) -> str:
        unit = "milliwatts?" if share[row] > 1 else "is the limit in milliwatts?"
        return f"{power_w[row]:g} W under a limit of {limit_w[row]:g} W is a factor {share[row]:.3g} ({unit})"

    rows.reject((share > MILLIWATTS) | (share < 1 / MILLIWATTS), "average_power", other_unit)
    high = (share > SUSPICIOUS_SHARE) & (share <= MILLIWATTS)
    rows.note(high, "average power above 1.5 times its limit, kept", "average_power")
