"""Orders of delivery, for the reader and the simulation: a shuffle buffer, and how well an order is shuffled."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


def through_buffer(put_block: I64, size: int, rng: np.random.Generator) -> I64:
    """The order of delivery through a shuffle buffer of `size`: each sample replaces a random one, which is delivered.

    Parameters
    ----------
    put_block : int64, the block of each sample as it enters the buffer.
    size : samples in the buffer (0: none).
    rng : of the places.
    """
    if not size:
        return put_block
    waiting, out = put_block[:size].tolist(), []
    places = rng.integers(size, size=max(0, len(put_block) - size)).tolist()
    for block, place in zip(put_block[size:].tolist(), places):
        out.append(waiting[place])
        waiting[place] = block
    return np.array(out + [waiting[at] for at in rng.permutation(len(waiting)).tolist()], np.int64)


def neighbours(put_block: I64, batch_samples: Iterable[int], blocks: int) -> tuple[float, float]:
    """Shuffle quality of a delivery order: neighbour share, and mean batch spread.

    Neighbour share: samples that follow one of the same block. Spread: distinct blocks in a batch over min(batch, blocks).

    Parameters
    ----------
    put_block : int64, the block of each sample in the order of delivery.
    batch_samples : samples of each batch.
    blocks : of the epoch.
    """
    if len(put_block) < 2:
        return 0.0, 1.0
    share = float(np.mean(put_block[1:] == put_block[:-1]))
    spread, at = [], 0
    for size in batch_samples:
        spread.append(len(np.unique(put_block[at : at + size])) / min(size, blocks))
        at += size
    return share, float(np.mean(spread))
