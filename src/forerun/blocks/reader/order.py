"""In which order an epoch's samples are read, and by whom: a function of seed, epoch, rank and worker alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from forerun.blocks.container.container import Index
from forerun.blocks.shuffling import through_buffer
from forerun.core.rng import stream

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Runs:
    """A sequence of samples as stretches of consecutive ones, each within one block.

    Parameters
    ----------
    first, last : int64, the numbers of each stretch's first sample and of the sample behind its last, in the container.
    """

    first: I64
    last: I64

    @cached_property
    def ends(self) -> I64:
        """How many samples of the sequence come before the end of each stretch."""
        return np.cumsum(self.last - self.first)

    @property
    def samples(self) -> int:
        """Samples of the sequence."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def numbers(self) -> I64:
        """The number of each sample, in order."""
        lengths = self.last - self.first
        begins = np.repeat(self.first - (self.ends - lengths), lengths)
        return (begins + np.arange(self.samples)).astype(np.int64)

    def cut(self, begin: int, end: int) -> Runs:
        """The samples from the `begin`-th to before the `end`-th of the sequence."""
        edges = self.ends[(self.ends > begin) & (self.ends < end)]
        return self._at(np.r_[begin, edges, end]) if begin < end else self._none()

    def dealt(self, worker: int, workers: int, batch: int = 0) -> Runs:
        """The part of one worker.

        With `batch`, worker w makes the batches w, w + W, ... of the sequence, so that a loader that takes the workers'
        batches in turn gives the sequence itself, whatever the number of workers. Without, the stretches are dealt out
        in turn and none is read in parts.

        Parameters
        ----------
        worker, workers : the worker's number, and how many there are; the whole sequence for one or none.
        batch : samples a batch (default 0: whole stretches).
        """
        if workers <= 1:
            return self
        if not batch:
            return Runs(self.first[worker::workers], self.last[worker::workers])
        edges = np.unique(np.r_[0, self.ends, np.arange(0, self.samples, batch), self.samples])
        mine = edges[:-1] // batch % workers == worker
        return self._at(edges, mine)

    def among(self, numbers: I64) -> Runs:
        """The samples of these numbers, in the order of the sequence.

        Parameters
        ----------
        numbers : some of the sequence's, in any order.
        """
        own = self.numbers()
        kept = np.flatnonzero(np.isin(own, numbers))
        if not len(kept):
            return self._none()
        # A stretch ends where a sample is left out, and where one ends here.
        apart = np.flatnonzero(np.diff(kept) > 1) + 1
        first, last = kept[np.r_[0, apart]], kept[np.r_[apart - 1, len(kept) - 1]] + 1
        edges = np.unique(np.r_[first, last, self.ends[self.ends <= last[-1]]])
        inside = np.searchsorted(first, edges[:-1], side="right") - 1
        return self._at(edges, (inside >= 0) & (edges[:-1] < last[inside]))

    def _at(self, edges: I64, chosen: NDArray[np.bool_] | None = None) -> Runs:
        """The stretches between consecutive places of the sequence, none of which has the edge of a stretch within."""
        begins, lengths = edges[:-1], np.diff(edges)
        if chosen is not None:
            begins, lengths = begins[chosen], lengths[chosen]
        inside = np.searchsorted(self.ends, begins, side="right")
        first = self.last[inside] - (self.ends[inside] - begins)
        return Runs(first.astype(np.int64), (first + lengths).astype(np.int64))

    @staticmethod
    def _none() -> Runs:
        return Runs(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class EpochOrder:
    """The order of every epoch, for one process of a job.

    All processes derive the same order of all samples and take consecutive parts of it, the same number each or one more.

    Parameters
    ----------
    index : of the container.
    shuffle : another order of the blocks each epoch; else as they are numbered. Within a block samples stay as packed.
    seed : of the orders.
    rank, world : which process of how many.
    equal_ranks : leave out up to `world` - 1 samples of an epoch, others in each, so that all have the same number.
    shuffle_samples : of a buffer that mixes samples of blocks which follow each other (default 0: none).
    """

    index: Index
    shuffle: bool
    seed: int
    rank: int
    world: int
    equal_ranks: bool
    shuffle_samples: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank {self.rank} of {self.world}")
        if self.seed < 0:
            raise ValueError(f"a seed is a non-negative integer, not {self.seed}")

    def span(self, samples: int, rank: int, world: int) -> tuple[int, int]:
        """Which part of so many samples one of several processes takes: from, and to before."""
        if self.equal_ranks:
            each = samples // world
            return rank * each, (rank + 1) * each
        return samples * rank // world, samples * (rank + 1) // world

    @property
    def samples(self) -> int:
        """Samples of an epoch that this process takes."""
        begin, end = self.span(self.index.samples, self.rank, self.world)
        return end - begin

    def runs(self, mark: tuple[int, ...]) -> Runs:
        """This process's samples of an epoch, in order.

        Parameters
        ----------
        mark : what the order is derived from beside the seed: the number of the epoch, and what else tells epochs apart; or
            that number, and how many processes had the epoch before and how many samples each took, as often as it was
            shared anew.
        """
        mark, before = (mark, ()) if len(mark) < 3 else (mark[:1], mark[1:])
        edges = self.index.first_sample
        blocks = np.arange(len(edges) - 1)
        if self.shuffle:
            blocks = stream(self.seed, "block order", *mark).permutation(len(blocks))
        runs = Runs(edges[blocks], edges[blocks + 1])
        while before:
            world, before = before[0], before[1:]
            spans = [self.span(runs.samples, rank, world) for rank in range(world)]
            left = [runs.cut(min(begin + taken, end), end) for taken, (begin, end) in zip(before, spans)]
            runs = Runs(
                *(np.concatenate([getattr(each, name) for each in left]) for name in ("first", "last"))
            )
            before = before[world:]
        return runs.cut(*self.span(runs.samples, self.rank, self.world))

    def mixed(self, runs: Runs, *mark: int) -> I64:
        """The numbers of samples as they leave the buffer, which takes a sequence in.

        Each sample takes the place of a random one, which leaves: none leaves before it came, or more than the buffer's
        size before the samples that came with it.

        Parameters
        ----------
        runs : the sequence.
        mark : what the places are derived from beside the seed.
        """
        return through_buffer(runs.numbers(), self.shuffle_samples, stream(self.seed, "sample order", *mark))
