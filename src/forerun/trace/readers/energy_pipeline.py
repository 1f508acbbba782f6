"""Measured operations of a pipeline-parallel training: seconds and joules of each stage's passes at each frequency.

One row a (stage, instruction, frequency), `stage,instruction,frequency,time_s,energy_j`: stages from 0, `forward` or
`backward`, MHz, seconds and joules of one microbatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.trace.repair import Complaints, RepairLog
from forerun.trace.rows import Chunk, Field, gathered, read_rows
from forerun.trace.source import Source

INSTRUCTIONS: Final = ("forward", "backward")
FIELDS = (
    Field(name="stage", kind="int", minimum=0, meaning="stage, from 0"),
    Field(name="instruction", kind="text", meaning="forward or backward"),
    Field(name="frequency_mhz", column="frequency", unit="MHz", meaning="clock of the GPU"),
    Field(name="time_s", unit="s", meaning="time of one microbatch"),
    Field(name="energy_j", unit="J", meaning="energy of one microbatch"),
)


@dataclass(frozen=True, slots=True)
class PipelineTrace:
    """Measured operations in file order.

    `stage` int64[rows], `instruction` a row; `frequency_mhz`, `time_s` [s], `energy_j` [J] float64[rows].
    """

    stage: NDArray[np.int64]
    instruction: tuple[str, ...]
    frequency_mhz: NDArray[np.float64]
    time_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]
    source: str = ""

    def __len__(self) -> int:
        return len(self.stage)


def read_pipeline(path: str | Path, repairs: RepairLog | None = None) -> PipelineTrace:
    """The measured operations in a CSV; every stage up to the last has both passes.

    Identical duplicates are dropped and noted. Raises TraceError naming file, line and column.
    """
    log = repairs if repairs is not None else RepairLog()
    source = Source(Path(path), repairs=log)
    complaints = Complaints()
    rows = gathered(read_rows(source, FIELDS, complaints=complaints))
    instruction = rows.columns["instruction"].tolist()
    for at, name in enumerate(instruction):
        if name not in INSTRUCTIONS:
            where = source.at(int(rows.lines[at]), "instruction")
            complaints.add(where, f"{name!r} is neither forward nor backward")
    for field in FIELDS[-3:]:
        values = rows.columns[field.name]
        for at in np.flatnonzero(~(values > 0)).tolist():
            complaints.add(source.at(int(rows.lines[at]), field.header), f"{values[at]:g} is not above 0")
    kept = _without_duplicates(source, rows, instruction, log, complaints)
    seen = {(int(rows.columns["stage"][at]), instruction[at]) for at in kept}
    for stage in range(max((stage for stage, _ in seen), default=-1) + 1):
        for name in INSTRUCTIONS:
            if (stage, name) not in seen:
                complaints.add(source.name, f"stage {stage} has no {name} pass")
    complaints.finish()
    return PipelineTrace(
        stage=rows.columns["stage"][kept],
        instruction=tuple(instruction[at] for at in kept),
        frequency_mhz=rows.columns["frequency_mhz"][kept],
        time_s=rows.columns["time_s"][kept],
        energy_j=rows.columns["energy_j"][kept],
        source=source.name,
    )


def _without_duplicates(
    source: Source, rows: Chunk, instruction: list[str], log: RepairLog, complaints: Complaints
) -> list[int]:
    """Rows to keep: the first of identical ones; those that conflict are complaints."""
    first: dict[tuple[int, str, float], int] = {}
    kept, dropped = [], []
    keys = zip(rows.columns["stage"].tolist(), instruction, rows.columns["frequency_mhz"].tolist())
    for at, key in enumerate(keys):
        before = first.setdefault(key, at)
        if before == at:
            kept.append(at)
            continue
        same = all(rows.columns[name][before] == rows.columns[name][at] for name in ("time_s", "energy_j"))
        where = source.at(int(rows.lines[at]), "frequency")
        if same:
            dropped.append(where)
            continue
        text = f"stage {key[0]} {key[1]} at {key[2]:g} MHz is measured otherwise in line {rows.lines[before]}"
        complaints.add(where, f"conflicts with another row: {text}")
    log.note_many("duplicate row, dropped", dropped[:3], len(dropped))
    return kept
