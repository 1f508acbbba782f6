"""A container as an iterable for training loops, of torch or without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from forerun.domains.loading.blocks.container import Blocks
from forerun.rng import stream


class BlockDataset:
    """Iterates (key, view of bytes) block by block, in a fresh seeded block order each epoch.

    Under a torch DataLoader each worker reads every W-th block of that order; torch need not be installed. `rank` and
    `world` split the blocks among processes of a job first. `set_epoch` fixes the order; it advances by itself.
    """

    def __init__(
        self, folder: str | Path, *, shuffle: bool = True, seed: int = 0, rank: int = 0, world: int = 1
    ) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world}")
        self.blocks = Blocks.open(Path(folder))
        self.shuffle, self.seed, self.rank, self.world = shuffle, seed, rank, world
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.blocks)

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order the next iteration takes."""
        self.epoch = epoch

    def order(self) -> list[int]:
        """The blocks this process reads in the current epoch, in order."""
        count = self.blocks.blocks
        order = (
            stream(self.seed, "block order", self.epoch).permutation(count) if self.shuffle else range(count)
        )
        return [int(block) for block in order][self.rank :: self.world]

    def __iter__(self) -> Iterator[tuple[str, memoryview]]:
        worker, workers = _torch_worker()
        order = self.order()[worker::workers]
        self.epoch += 1
        for block in order:
            first = int(self.blocks.index.first[block])
            for row, view in enumerate(self.blocks.read_block(block), start=first):
                yield self.blocks.index.key[row], view


def _torch_worker() -> tuple[int, int]:
    """Number and count of torch's loader workers; this process alone where torch is not in use."""
    torch_data = sys.modules.get("torch.utils.data")
    info = torch_data.get_worker_info() if torch_data is not None else None
    return (info.id, info.num_workers) if info is not None else (0, 1)
