"""Containers of blocks in training loops: read from a folder or a store by threads, in an order that can be resumed.

`forerun pack` writes a container; `forerun plan` and `forerun measure loading` say with which blocks, threads and workers
loading hides behind the training step, and print the lines that do so:

    from forerun.blocks.reader import BlockDataset
    from torch.utils.data import DataLoader

    dataset = BlockDataset("https://store/blocks", threads=8, batch_samples=64, seed=1)
    for epoch in range(10):
        dataset.set_epoch(epoch)
        for keys, samples in DataLoader(dataset, batch_size=64):
            ...

torch is not needed; `for key, sample in dataset` does without.
"""

from forerun.blocks.reader.cache import BlockCache
from forerun.blocks.reader.dataset import BlockDataset
from forerun.blocks.reader.samples import BlockSampler, BlockSamples

__all__ = ["BlockCache", "BlockDataset", "BlockSampler", "BlockSamples"]
