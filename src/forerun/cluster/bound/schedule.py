"""A schedule as pieces of time in which a job has so many GPUs, and its check in exact arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from forerun.cluster.bound.world import World
from forerun.core.errors import CheckFailed


class Piece(NamedTuple):
    """A span of time in which a job has `gpus` GPUs. Times are binary fractions, so they are exact."""

    start_s: float
    end_s: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which jobs run when, on how many GPUs.

    Parameters
    ----------
    pieces : of each job that runs, by its row, in order.
    """

    pieces: Mapping[int, Sequence[Piece]]

    def ends(self, world: World) -> dict[int, Fraction]:
        """When each job has done its work, exactly; jobs that never do are absent.

        Raises
        ------
        CheckFailed
            A job starts before its submission, has two counts of GPUs at once or one that is not legal, or more GPUs
            are used than there are.
        """
        ends, changes = {}, list[tuple[Fraction, int]]()
        for row, pieces in self.pieces.items():
            job, speed, left = world.jobs[row], dict(world.jobs[row].speed), Fraction(world.jobs[row].work)
            before = Fraction(job.release)
            for piece in pieces:
                start, end = Fraction(piece.start_s), Fraction(piece.end_s)
                if not before <= start < end or piece.gpus not in speed:
                    raise CheckFailed.at(
                        f"job {job.id}", f"cannot run on {piece.gpus} GPUs from {start} to {end} s"
                    )
                before = end
                changes += [(start, piece.gpus), (end, -piece.gpus)]
                rate = Fraction(speed[piece.gpus], job.unit)
                if 0 < left <= rate * (end - start):
                    ends[row] = start + left / rate
                left -= rate * (end - start)
        changes.sort()  # at one instant GPUs are given back before others are taken
        used = accumulate(change for _, change in changes)
        if (most := max(used, default=0)) > world.gpus:
            raise CheckFailed.at("schedule", f"uses {most} of {world.gpus} GPUs at once")
        return ends

    def met(self, world: World) -> int:
        """How many deadlines it meets, exactly. Raises CheckFailed if it is no schedule."""
        due = ((end, world.jobs[row].deadline) for row, end in self.ends(world).items())
        return sum(deadline is not None and end <= deadline for end, deadline in due)

    def rows(self, world: World) -> tuple[tuple[str, float, float, int], ...]:
        """Job, start [s], end [s] and GPUs of every piece, by start."""
        rows = [(world.jobs[row].id, *piece) for row, pieces in self.pieces.items() for piece in pieces]
        return tuple(sorted(rows, key=lambda one: (one[1], one[0])))
