"""Job logs made of blocks of another log."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64, I64, NO_DEADLINE_S
from forerun.cluster.inputs.files import JobTable
from forerun.core.errors import TraceError
from forerun.core.rng import stream
from forerun.core.scenario.spec import Input, Spec
from forerun.core.trace.reader import format_problems


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


def _drawn_blocks(submit_s: F64, block_s: float, blocks: int, seed: int) -> tuple[I64, F64, int]:
    """Rows of the chosen blocks, one block after the other, the seconds by which each row moves, and the log's blocks."""
    first_s = float(submit_s.min())
    block_of = ((submit_s - first_s) // block_s).astype(np.int64)
    there = int(block_of.max()) + 1
    drawn = stream(seed, "block bootstrap").integers(0, there, blocks or there)
    rows = [np.flatnonzero(block_of == block) for block in drawn]
    shift = [
        np.full(len(at), (k - int(block)) * block_s)
        for k, (at, block) in enumerate(zip(rows, drawn, strict=True))
    ]
    return np.concatenate(rows), np.concatenate(shift), there


def resampled(table: JobTable, *, block_s: float, blocks: int, seed: int) -> JobTable:
    """A job log made of random blocks of another, with replacement; deadlines move with their jobs, ids get a number.

    Raises TraceError if the chosen blocks have no job.
    """
    submit_s, block_s = table.jobs.submit_s.astype(np.float64), float(math.ceil(block_s))
    index, moved_s, there = _drawn_blocks(submit_s, block_s, blocks, seed)
    gpus = float(table.jobs.gpus @ table.jobs.duration_s) / max(float(np.ptp(submit_s)), block_s)
    if not len(index):
        raise TraceError.at(table.source, f"the blocks of {block_s:g} s that were drawn hold no job")
    moved = moved_s.astype(np.int64) - table.jobs.submit_s.min()
    order = np.argsort(table.jobs.submit_s[index] + moved, kind="stable")
    moved, drawn = moved[order], table.take(index[order])
    jobs = drawn.jobs
    due, written = (
        np.where(column == NO_DEADLINE_S, column, column + moved)
        for column in (jobs.deadline_s, jobs.written_deadline_s)
    )
    jobs = replace(
        jobs,
        id=tuple(f"{name}.{at}" for at, name in enumerate(jobs.id)),
        submit_s=jobs.submit_s + moved,
        deadline_s=due,
        written_deadline_s=written,
    )
    return replace(
        drawn, jobs=jobs, read_as="", most_held=0.0, origin_s=None, recorded=None, resampled=(there, gpus)
    )
