"""A container by the numbers of its samples, and an order of numbers that keeps its blocks together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, starmap
from pathlib import Path
from typing import Any

from forerun.blocks.reader.ahead import Ahead
from forerun.blocks.reader.objects import PATIENCE_S, TIMEOUT_S
from forerun.blocks.reader.order import EpochOrder
from forerun.blocks.reader.progress import Progress, Resumable
from forerun.blocks.reader.source import Decode, Source


class BlockSamples:
    """The samples of a container by number, as torch's data sets of the map style are; torch is not needed.

    Several numbers at once (`__getitems__`, which torch's loader uses for a batch) are read with one request for each
    stretch of consecutive samples of a block, in threads. `BlockSampler` gives numbers in such stretches; with a sampler
    that draws single samples, each is a request of its own, as it is with single files.

    Parameters
    ----------
    source, threads, verify, decode, token, retries, timeout_s, patience_s : as for `BlockDataset`.

    Raises as `BlockDataset` does.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        threads: int = 1,
        verify: bool = True,
        decode: Decode | None = None,
        token: str = "",
        retries: int | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        if threads < 0:
            raise ValueError(f"threads is {threads}, and cannot be negative")
        self.source = Source.open(
            source,
            token=token,
            retries=retries,
            timeout_s=timeout_s,
            patience_s=patience_s,
        )
        self.threads, self.verify, self.decode = threads, verify, decode

    def __len__(self) -> int:
        """Samples of the container."""
        return self.source.index.samples

    def __getitem__(self, number: int) -> tuple[str, Any]:
        """Key and sample of a number, in the order in which samples were packed. Raises IndexError for one that is none."""
        (sample,) = self.__getitems__([number])
        return sample

    def __getitems__(self, numbers: Sequence[int]) -> list[tuple[str, Any]]:
        """Keys and samples of several numbers, in their order.

        Parameters
        ----------
        numbers : from 0, negative ones from the end.

        Raises IndexError for a number that is none, and what `BlockDataset` raises for a sample that cannot be had.
        """
        count, index = len(self), self.source.index
        wanted = [number + count if number < 0 else number for number in numbers]
        for number in wanted:
            if not 0 <= number < count:
                raise IndexError(f"sample {number} of {count}")
        blocks = index.block[index.starts[wanted]].tolist()
        stretches: list[list[int]] = []  # [first, behind the last] of each
        for at, number in enumerate(wanted):
            if stretches and number == stretches[-1][1] and blocks[at] == blocks[at - 1]:
                stretches[-1][1] = number + 1
            else:
                stretches.append([number, number + 1])

        def read(number: int) -> list[tuple[str, Any]]:
            first, last = stretches[number]
            # Bytes can be sent between processes, views cannot; what is decoded is not sent.
            return self.source.read(
                first,
                last,
                verify=self.verify,
                give=bytes if self.decode is None else None,
                decode=self.decode,
            )

        sizes = [last - first for first, last in stretches]
        threads = self.threads if len(stretches) > 1 else 0
        return [sample for samples in Ahead(read, sizes, threads, sum(sizes)) for sample in samples]


class BlockSampler(Resumable):
    """Numbers of samples for `BlockSamples`, in the order of `BlockDataset`: a fresh seeded order of blocks each epoch.

    A sampler for torch's `DataLoader`; its batches are the same whatever the number of workers.

    Parameters
    ----------
    samples : the container.
    shuffle, seed, rank, world, equal_ranks : as for `BlockDataset`.
    """

    def __init__(
        self,
        samples: BlockSamples,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        equal_ranks: bool = False,
    ) -> None:
        order = EpochOrder(samples.source.index, shuffle, seed, rank, world, equal_ranks)
        self._progress = Progress(order, samples.source.digest, batch=1)

    def __iter__(self) -> Iterator[int]:
        runs = self._progress.begin().runs
        stretches = zip(runs.first.tolist(), runs.last.tolist())
        yield from self._progress.counted(chain.from_iterable(starmap(range, stretches)))
