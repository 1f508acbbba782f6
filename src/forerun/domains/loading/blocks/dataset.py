"""A container as an iterable for training loops, of torch or without it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Self, cast

from forerun.domains.loading.blocks.container import Blocks
from forerun.domains.loading.blocks.samples import member_stem, part_name, undecodable
from forerun.rng import stream


class BlockDataset:
    """Iterates (key, sample) block by block, in a fresh seeded block order each epoch.

    A sample is a view of its block's bytes, or what `decode` makes of it. One of several parts is a dictionary of
    views by the parts' names (`jpg`, `cls`), and its key is their stem. `set_epoch` fixes the order; else it advances
    by itself, except in torch's workers of a job of several processes: these see the order of one epoch until
    `set_epoch` is called.

    torch need not be installed. Where `torch.utils.data` has been imported, a `BlockDataset` is an `IterableDataset`,
    to be given to a `DataLoader`: each worker reads every W-th block of the order, and samples are `bytes`, since
    views cannot be sent between processes.

    Parameters
    ----------
    folder : of the container.
    shuffle : another order of the blocks in each epoch (default: yes); without it they come as they are numbered.
        Samples within a block come as they were packed.
    seed : of the orders (default: 0).
    rank, world : which process of how many of a job this is; the blocks are split among them (default: the only one).
    verify : compare every sample's checksum (default: yes).
    decode : makes something of a sample (default: samples are views of bytes).

    Raises DataError, naming sample and block, for a sample that fails its checksum or that `decode` throws at.
    """

    def __new__(cls, *_args: Any, **_options: Any) -> Self:
        """An instance; of torch's kind where torch is in use."""
        data = sys.modules.get("torch.utils.data")
        if data is None or issubclass(cls, data.IterableDataset):
            return super().__new__(cls)
        return super().__new__(_of_torch(cast(type, cls), data.IterableDataset))

    def __init__(
        self,
        folder: str | Path,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        verify: bool = True,
        decode: Callable[[Any], Any] | None = None,
    ) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world}")
        self.blocks = Blocks.open(Path(folder))
        self.shuffle, self.seed, self.rank, self.world = shuffle, seed, rank, world
        self.verify, self.decode = verify, decode
        self.epoch = 0
        self.fixed = False

    def __reduce__(self) -> tuple[Any, ...]:
        # The class that torch is shown is made here and has no name of its own.
        state = {name: value for name, value in self.__dict__.items() if name != "blocks"}
        return _again, (str(self.blocks.folder), state)

    def __len__(self) -> int:
        """Samples of all blocks; a process of several (`world`) sees its share of them."""
        if self.world == 1:
            return len(self.blocks)
        first = self.blocks.index.first_sample
        return int(sum(first[block + 1] - first[block] for block in self.order()))

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order every iteration takes from now on.

        Parameters
        ----------
        epoch : from 0; every process of a job is given the same one.
        """
        self.epoch = epoch
        self.fixed = True

    def order(self, mark: tuple[int, ...] = ()) -> list[int]:
        """The blocks this process reads in the current epoch, in order.

        Every process of a job derives the same order and takes each `world`-th block of it.

        Parameters
        ----------
        mark : what the order is derived from beside the seed (default: the epoch).
        """
        count = self.blocks.blocks
        rng = stream(self.seed, "block order", *(mark or (self.epoch,)))
        order = rng.permutation(count) if self.shuffle else range(count)
        return [int(block) for block in order][self.rank :: self.world]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        worker, workers, base = _torch_worker()
        # A worker is a copy: the epoch it counts is lost with it. torch draws a base seed each epoch; it tells them apart.
        # Other processes of the job draw another base seed: with it they would not share one order between them.
        alone = self.world == 1
        mark = (self.epoch, base) if workers and alone and not self.fixed else (self.epoch,)
        order = self.order(mark)[worker :: max(1, workers)]
        if not self.fixed:
            self.epoch += 1
        for block in order:
            index = self.blocks.index
            first = int(index.first[block])
            views = self.blocks.read_block(block)
            if self.verify:
                for row, view in enumerate(views, start=first):
                    self.blocks.check(row, view)
            starts = index.starts[index.first_sample[block] : index.first_sample[block + 1] + 1].tolist()
            for a, b in itertools.pairwise(starts):
                sample: Any = views[a - first]
                key = index.key[a]
                if b - a > 1:
                    key = member_stem(key)
                    sample = {part_name(index.key[row]): views[row - first] for row in range(a, b)}
                yield key, self._given(sample) if self.decode is None else self._decoded(a, sample)

    def _given(self, sample: Any) -> Any:
        """A sample without `decode`: as it is."""
        return sample

    def _decoded(self, row: int, sample: Any) -> Any:
        """What `decode` makes of a sample; a library says what it cannot read, not which sample that was."""
        assert self.decode is not None
        try:
            return self.decode(sample)
        except Exception as error:
            path = self.blocks.block_path(int(self.blocks.index.block[row]))
            raise undecodable(path, f"sample {self.blocks.index.key[row]!r}", error) from error


@cache
def _of_torch(kind: type, iterable: type) -> type:
    """The same class, which torch takes for one of its own."""

    def given(self: Any, sample: Any) -> Any:
        if isinstance(sample, dict):
            return {part: bytes(view) for part, view in sample.items()}
        return bytes(sample)

    return type(
        kind.__name__,
        (kind, iterable),
        {"_given": given, "__doc__": kind.__doc__, "__module__": kind.__module__},
    )


def _again(folder: str, state: dict[str, Any]) -> BlockDataset:
    """A data set in another process."""
    made = BlockDataset(folder)
    made.__dict__.update(state)
    return made


def _torch_worker() -> tuple[int, int, int]:
    """Number, count and base seed of torch's loader workers; no workers where this is none."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return (info.id, info.num_workers, info.seed - info.id) if info is not None else (0, 0, 0)
