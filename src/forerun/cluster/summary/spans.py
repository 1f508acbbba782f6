"""Who had how much from when to when, and what that is in sum at an instant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.cluster.inputs.arrays import F64, I64


@dataclass(frozen=True, slots=True)
class Spans:
    """GPUs or nodes that jobs have, or that they wait for.

    Parameters
    ----------
    from_s, to_s : begin, and end (not included); nan and infinite: never.
    gpus : how many throughout.
    """

    from_s: F64
    to_s: F64
    gpus: I64

    def at(self, at_s: F64) -> I64:
        """How many in all right after each of some instants."""
        instants, total = self.levels()
        return np.append(0, total)[np.searchsorted(instants, at_s, "right")]

    def levels(self) -> tuple[F64, I64]:
        """How many in all over time: the instants of change, ascending, and how many from each on."""
        began = np.isfinite(self.from_s)
        ended = began & np.isfinite(self.to_s)
        instants, place = np.unique(
            np.concatenate([self.from_s[began], self.to_s[ended]]), return_inverse=True
        )
        change = np.zeros(len(instants), np.int64)
        np.add.at(change, place, np.concatenate([self.gpus[began], -self.gpus[ended]]))
        return instants, np.cumsum(change)


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
class Stretch:
    """A stretch in which a job waited for one cause.

    Parameters
    ----------
    from_s, to_s : begin and end.
    cause : of those that the explanation knows.
    """

    from_s: float
    to_s: float
    cause: str

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.to_s - self.from_s
