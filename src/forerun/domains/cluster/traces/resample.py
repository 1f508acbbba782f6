"""Job logs made of blocks of another log."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
import numpy as np

from forerun.domains.cluster.inputs.files import JobTable
from forerun.domains.cluster.inputs.setting import F64, I64, NO_DEADLINE_S
from forerun.errors import TraceError
from forerun.rng import stream
from forerun.scenario.spec import Input, Spec
from forerun.trace.reader import format_problems


class Resample(Spec, frozen=True, kw_only=True):
    """A log made of random blocks of time of another log, with replacement: bursts, sessions and days stay together.

    `format` as for a trace's file. `blocks` 0: as many as the log has.
    """

    file: Input
    format: str = ""
    block_s: Annotated[float, msgspec.Meta(gt=0)] = 86_400.0
    blocks: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0

    def problems(self) -> list[tuple[str, str]]:
        """A format that exists."""
        return format_problems(self.format, "native")


def _drawn_blocks(submit_s: F64, block_s: float, blocks: int, seed: int) -> tuple[I64, F64]:
    """Rows of the chosen blocks, one block after the other, and the seconds by which each row moves."""
    first_s = float(submit_s.min())
    block_of = ((submit_s - first_s) // block_s).astype(np.int64)
    there = int(block_of.max()) + 1
    drawn = stream(seed, "block bootstrap").integers(0, there, blocks or there)
    rows = [np.flatnonzero(block_of == block) for block in drawn]
    shift = [
        np.full(len(at), (k - int(block)) * block_s)
        for k, (at, block) in enumerate(zip(rows, drawn, strict=True))
    ]
    return np.concatenate(rows), np.concatenate(shift)


def resampled(table: JobTable, *, block_s: float, blocks: int, seed: int) -> JobTable:
    """A job log made of random blocks of another, with replacement; deadlines move with their jobs, ids get a number.

    Raises TraceError if the chosen blocks have no job.
    """
    submit_s = np.asarray(table.submit_s, np.float64)
    index, moved_s = _drawn_blocks(submit_s, float(math.ceil(block_s)), blocks, seed)
    if not len(index):
        raise TraceError.at(table.source, f"the blocks of {block_s:g} s that were drawn hold no job")
    origin_s = int(submit_s.min())
    moved = [int(by) - origin_s for by in moved_s]
    order = sorted(range(len(index)), key=lambda at: table.submit_s[index[at]] + moved[at])
    rows, moved = [int(index[at]) for at in order], [moved[at] for at in order]

    def shifted(column: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            column[row] if column[row] == NO_DEADLINE_S else column[row] + by
            for row, by in zip(rows, moved, strict=True)
        )

    columns: dict[str, Any] = {
        name: tuple(column[row] for row in rows) for name, column in table.columns().items()
    }
    columns |= {
        name: shifted(getattr(table, name)) for name in ("submit_s", "deadline_s", "written_deadline_s")
    }
    columns["job_id"] = tuple(f"{name}.{at}" for at, name in enumerate(columns["job_id"]))
    return JobTable(source=table.source, **columns)
