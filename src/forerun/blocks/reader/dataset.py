"""A container as an iterable for training loops, of torch or without it."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Iterator
from functools import cache as remembered
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Self, cast

from forerun.blocks.reader.ahead import Ahead
from forerun.blocks.reader.buffers import Buffers
from forerun.blocks.reader.cache import BlockCache
from forerun.blocks.reader.objects import PATIENCE_S, TIMEOUT_S
from forerun.blocks.reader.order import I64, EpochOrder, Runs
from forerun.blocks.reader.progress import Progress, Resumable
from forerun.blocks.reader.source import Decode, Source
from forerun.core.errors import UsageError


class BlockDataset(Resumable):
    """Iterates a container block by block, which threads read ahead, in a fresh seeded order of blocks each epoch.

    Gives pairs of key and sample. A sample is a view of its block's bytes, or what `decode` makes of it. One of several
    parts is a dictionary of views by the parts' names (`jpg`, `cls`), and its key is their stem. Every sample comes once
    an epoch, and its checksum is compared. What cannot be read is asked for again; then the iteration ends with an error
    that names block and sample, after all samples before it were given.

    torch need not be installed. Where `torch.utils.data` has been imported, a `BlockDataset` is an `IterableDataset`,
    to be given to a `DataLoader`: its workers share the epoch, each with threads of its own, and samples are `bytes`, since
    views cannot be sent between processes. For `s3`, `gs` and `az`, workers are started by `spawn` or `forkserver`.

    `set_epoch` fixes the order, also in workers that stay for several epochs (`persistent_workers`). Else it advances by
    itself, except in torch's workers of a job of several processes: these see one order until `set_epoch` is called.

    Parameters
    ----------
    source : folder of the container, or the URL of such a folder: http(s) by itself, s3, gs, az and what fsspec opens with
        `pip install 'forerun[stores]'`; keys come from the environment.
    threads : that read blocks ahead and decode them (default: 1; 0: blocks are read when they are asked for). More than one
        are of use where a store has latency, or decoding takes long outside of the interpreter. From a folder the iterating
        thread reads, too, instead of waiting, so one thread keeps two cores busy; more compete for the interpreter.
    buffer_samples : samples that wait beside the blocks in the threads' hands, at least (default: 256, as the simulator has
        it). Memory: these, a block a thread, and the block that is being taken.
    shuffle : another order of the blocks in each epoch (default: yes); without it they come as they are numbered.
        Samples within a block come as they were packed, which `forerun pack` shuffles.
    shuffle_samples : of a buffer that mixes the samples of several blocks, as the simulator has it: each sample takes the
        place of a random one, which is given. Workers have a buffer each, and take no `batch_samples` (default 0: none).
    seed : of the orders (default: 0).
    rank, world : which process of how many of a job this is; they share each epoch (default: the only one).
    equal_ranks : leave out up to `world` - 1 samples of an epoch, others in each, so that every process has the same
        number (default: no).
    batch_samples : the loader's batch size: workers then take every W-th batch of one order, which a `DataLoader` of that
        `batch_size` gives whatever the number of workers, and an epoch is resumed with another number of them. A block that
        belongs to several batches is read in parts (default 0: workers take whole blocks in turn). A loader of another
        `batch_size` is an error.
    verify : compare every sample's checksum (default: yes).
    decode : makes something of a sample, in the reading threads; one that is a function of a module also works in
        spawned workers (default: samples are views of bytes).
    token : bearer token of an HTTP store (default: none).
    retries, timeout_s, patience_s : of requests to a store: attempts after the first, with growing pauses, the longest wait
        for an answer, and how long to repeat where `retries` says no number (defaults: none, 20, 180).
    cache : a `BlockCache` of this node, in which whole blocks stay for later epochs and for all processes that name its
        folder; one that is damaged is read from the store again (default: none).

    Raises DataError or StoreError for a container that cannot be opened, UsageError for a URL that nobody opens.
    """

    #: what samples are made of: views, as they are
    _give: ClassVar[type[bytes] | None] = None

    def __new__(cls, *_args: Any, **_options: Any) -> Self:
        """An instance; of torch's kind where torch is in use."""
        data = sys.modules.get("torch.utils.data")
        if data is None or issubclass(cls, data.IterableDataset):
            return super().__new__(cls)
        return super().__new__(_of_torch(cast(type, cls), data.IterableDataset))

    def __init__(
        self,
        source: str | Path,
        *,
        threads: int = 1,
        buffer_samples: int = 256,
        shuffle: bool = True,
        shuffle_samples: int = 0,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        equal_ranks: bool = False,
        batch_samples: int = 0,
        verify: bool = True,
        decode: Decode | None = None,
        token: str = "",
        retries: int | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        cache: BlockCache | None = None,
    ) -> None:
        for name, number in (
            ("threads", threads),
            ("buffer_samples", buffer_samples),
            ("batch_samples", batch_samples),
            ("shuffle_samples", shuffle_samples),
        ):
            if number < 0:
                raise ValueError(f"{name} is {number}, and cannot be negative")
        self.source = Source.open(
            source,
            token=token,
            retries=retries,
            timeout_s=timeout_s,
            patience_s=patience_s,
        ).cached(cache)
        self.threads, self.buffer_samples = threads, buffer_samples
        self.verify, self.decode = verify, decode
        self._buffers = Buffers()
        order = EpochOrder(self.source.index, shuffle, seed, rank, world, equal_ranks, shuffle_samples)
        self._progress = Progress(order, self.source.digest, batch_samples)

    def __reduce__(self) -> tuple[Any, ...]:
        # The class that torch is shown is made here and has no name of its own.
        return _again, (dict(self.__dict__),)

    def __getitem__(self, number: Any) -> Any:
        raise UsageError.at(
            "BlockDataset",
            "is iterated: import torch before it is made, or use BlockSamples, which has numbers",
        )

    @property
    def epoch(self) -> int:
        """The epoch that comes next."""
        return self._progress.epoch

    def order(self) -> list[int]:
        """The numbers of the samples that this process takes in the next epoch, in order, from its beginning on."""
        return [int(number) for number in self._progress.numbers()]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        self._progress.renew()  # at once: what is set later is for later iterations
        return self._iterate()

    def _iterate(self) -> Iterator[tuple[str, Any]]:
        """The samples of an iteration, which begins with the first of them."""
        worker, workers, base = _torch_worker()
        progress = self._progress
        share = progress.begin(worker, workers, base)
        progress.check_batch(_batch_of_loader(inspect.currentframe()))
        read = itertools.chain.from_iterable(self._ahead(share.runs))
        given = read if share.numbers is None else _reordered(read, share.runs.numbers(), share.numbers)
        yield from progress.counted(given)

    def _ahead(self, runs: Runs) -> Iterator[list[tuple[str, Any]]]:
        """The samples of each stretch, read ahead by the threads."""
        first, last = runs.first.tolist(), runs.last.tolist()
        sizes = [b - a for a, b in zip(first, last)]
        most = self.threads * max(sizes, default=0) + self.buffer_samples

        def read(number: int) -> list[tuple[str, Any]]:
            return self.source.read(
                first[number],
                last[number],
                verify=self.verify,
                give=None if self.decode else self._give,
                decode=self.decode,
                buffers=self._buffers,
            )

        return iter(Ahead(read, sizes, self.threads, most, helps=self.source.local))


def _reordered(read: Iterator[tuple[str, Any]], numbers: I64, wanted: I64) -> Iterator[tuple[str, Any]]:
    """Samples in another order; those that come early wait for their turn.

    Parameters
    ----------
    read : samples as they come.
    numbers : of them.
    wanted : the same numbers as they are given.
    """
    coming, early = zip(numbers.tolist(), read), {}
    for number in wanted.tolist():
        while number not in early:
            came, pair = next(coming)
            early[came] = pair
        yield early.pop(number)


@remembered
def _of_torch(kind: type, iterable: type) -> type:
    """The same class, which torch takes for one of its own; bytes can be sent between processes, views cannot."""
    return type(
        kind.__name__,
        (kind, iterable),
        {"_give": bytes, "__doc__": kind.__doc__, "__module__": kind.__module__},
    )


def _again(state: dict[str, Any]) -> BlockDataset:
    """A data set in another process."""
    made = BlockDataset.__new__(BlockDataset)
    made.__dict__.update(state)
    return made


def _batch_of_loader(frame: FrameType | None) -> int:
    """The batch size of torch's loader that takes samples; 0 where that cannot be seen.

    A loader does not tell a data set its `batch_size`. Its fetcher takes a batch with a list of as many entries, which can
    be seen in the frame that asks for the first sample. Where another version of torch, or another loader, asks in other
    words, nothing is known and nothing is checked.

    Parameters
    ----------
    frame : of the iteration.
    """
    caller = frame.f_back if frame is not None else None
    if caller is None or caller.f_code.co_name != "fetch":
        return 0
    batch = caller.f_locals.get("possibly_batched_index")
    return len(batch) if isinstance(batch, list) else 0


def _torch_worker() -> tuple[int, int, int]:
    """Number, count and base seed of torch's loader workers; no workers where this is none."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return (info.id, info.num_workers, info.seed - info.id) if info is not None else (0, 0, 0)
