"""Epochs in workers that stay: whatever is set, looked at, broken off or resumed, every sample of an epoch comes once.

Sequences of events are drawn and played to a short description of what must come: first with processes that are only
numbers, then with real ones, then with torch's loaders on every store.
"""

from __future__ import annotations

import copy
import itertools
import json
import multiprocessing
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from forerun.blocks.container.container import Index
from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader import BlockCache, BlockDataset
from forerun.blocks.reader import progress as progress_module
from forerun.blocks.reader.order import EpochOrder
from forerun.blocks.reader.progress import Progress
from forerun.core.errors import UsageError
from forerun.loading.measure.corpus import make_corpus
from forerun.loading.measure.store import LatencyStore, StoreSpec

from ..conftest import cases

CASES = cases(40)
SEQUENCES = max(3, cases(0) // 100)
METHODS = [
    name for name in ("fork", "spawn", "forkserver") if name in multiprocessing.get_all_start_methods()
]
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed: pip install 'forerun[torch]'"
)


@dataclass
class Expected:
    """What one process of a job must be given: the reference that the events are played to."""

    epoch: int = 0
    start: int = 0
    begun: bool = False

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch or self.begun:
            self.start = 0
        self.epoch, self.begun = epoch, False

    def load(self, epoch: int, start: int) -> None:
        self.epoch, self.start, self.begun = epoch, start, False


class Processes:
    """Processes that are only numbers: a copy of an object that shares its memory, in a process of another number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current, self._last = 1, 1
        monkeypatch.setattr(progress_module, "os", SimpleNamespace(getpid=lambda: self.current))

    def new(self) -> int:
        self._last += 1
        return self._last


class Loader:
    """What torch's loader does with a data set: workers that are copies, whose batches it takes in turn."""

    def __init__(self, main: Progress, home: int, workers: int, stays: bool, processes: Processes) -> None:
        self.main, self.home, self.workers, self.stays = main, home, workers, stays
        self.processes = processes
        self._crew: list[tuple[int, Progress]] = []

    def __iter__(self) -> Iterator[list[int]]:
        batch = self.main.batch
        if not self.workers:
            self.processes.current = self.home
            self.main.renew()
            numbers = self.main.begin().runs.numbers().tolist()
            for at in range(0, len(numbers), batch):
                self.main.count += len(numbers[at : at + batch])
                yield numbers[at : at + batch]
            return
        if not (self.stays and self._crew):
            self._crew = []
            for _ in range(self.workers):
                same = Progress.__new__(Progress)
                same.__dict__.update(self.main.__dict__)
                self._crew.append((self.processes.new(), same))
        queues: list[list[list[int]]] = []
        for worker, (process, one) in enumerate(self._crew):
            self.processes.current = process
            one.renew()
            numbers = one.begin(worker, self.workers, 77).runs.numbers().tolist()
            queues.append([numbers[at : at + batch] for at in range(0, len(numbers), batch)])
        self.processes.current = self.home
        while any(queues):
            for queue in queues:
                if queue:
                    yield queue.pop(0)


def given(due: Expected, loader: Loader, batches: int | None = None) -> list[int]:
    """Some batches of an iteration, compared with what is due; all of it where `batches` says no number."""
    whole = loader.main.order.runs((due.epoch,)).numbers().tolist()[due.start :]
    got = list(itertools.chain.from_iterable(itertools.islice(iter(loader), batches)))
    assert got == (whole if batches is None else whole[: len(got)])
    due.begun = due.begun or batches != 0
    return got


def drawn_order_of(number: int, rank: int, world: int) -> EpochOrder:
    """Nine blocks of drawn sizes, the same for the same number."""
    sizes = np.random.default_rng(number).integers(1, 9, size=9)
    rows = int(sizes.sum())
    none = np.zeros(rows, np.int64)
    index = Index(
        np.arange(rows), np.repeat(np.arange(9), sizes), none, none, none, tuple(map(str, range(rows)))
    )
    return EpochOrder(index, True, 5, rank, world, False)


def test_every_sequence_of_events_gives_each_sample_of_an_epoch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped and repeated epochs, ranks that look, epochs that are broken off, checkpoints and resumes."""
    rng = np.random.default_rng(11)
    processes = Processes(monkeypatch)
    for _ in range(CASES):
        world, batch = int(rng.integers(1, 4)), int(rng.integers(1, 5))
        orders = [drawn_order_of(world, rank, world) for rank in range(world)]

        def started(rank: int, orders: list[EpochOrder] = orders, batch: int = batch) -> tuple[int, Progress]:
            processes.current = home = processes.new()
            return home, Progress(orders[rank], "d", batch)

        mains = [started(rank) for rank in range(world)]

        def loader(rank: int, mains: list[tuple[int, Progress]] = mains) -> Loader:
            home, main = mains[rank]
            return Loader(main, home, int(rng.integers(0, 4)), bool(rng.random() < 0.8), processes)

        expected = [Expected() for _ in mains]
        loaders = [loader(rank) for rank in range(world)]

        epoch = 0
        for _ in range(int(rng.integers(2, 7))):
            epoch = int(rng.choice([epoch, epoch + 1, epoch + 3, 0]))
            for rank, (home, main) in enumerate(mains):
                processes.current = home
                main.set_epoch(epoch)
                expected[rank].set_epoch(epoch)
                if rng.random() < 0.3:  # one rank looks at a batch, and says again which epoch comes
                    given(expected[rank], loaders[rank], 1)
                    processes.current = home
                    main.set_epoch(epoch)
                    expected[rank].set_epoch(epoch)
            event = rng.choice(["whole", "broken off", "resumed"])
            if event == "whole":
                starts = [each.start for each in expected]
                every = [number for rank in range(world) for number in given(expected[rank], loaders[rank])]
                assert len(every) == len(set(every))
                assert any(starts) or sorted(every) == list(range(len(orders[0].index)))
                continue
            for rank in range(world):
                start, (home, main) = expected[rank].start, mains[rank]
                got = given(expected[rank], loaders[rank], int(rng.integers(0, 6)))
                if event == "broken off":
                    continue
                processes.current = home
                state = json.loads(json.dumps(main.state(len(got))))
                assert (state["epoch"], state["before"] + state["taken"]) == (epoch, start + len(got))
                if rng.random() < 0.5:  # in a new process; else in this one, with the workers it has
                    mains[rank] = started(rank)
                    loaders[rank] = loader(rank)
                home, main = mains[rank]
                processes.current = home
                main.load(state)
                expected[rank].load(epoch, start + len(got))
            if event == "resumed":  # the loop says which epoch it resumes
                for rank, (home, main) in enumerate(mains):
                    processes.current = home
                    main.set_epoch(epoch)
                    expected[rank].set_epoch(epoch)
                    rest = given(expected[rank], loaders[rank])
                    assert len(rest) == orders[rank].samples - expected[rank].start


def test_an_epoch_goes_on_with_another_number_of_processes() -> None:
    """As often as is drawn; by the states of all, or by one where all have taken as many: each sample comes once."""
    rng = np.random.default_rng(12)
    for _ in range(CASES):
        states: list[dict[str, Any]] = []
        alike = False
        got: list[int] = []
        batch = int(rng.integers(1, 5))
        for _ in range(int(rng.integers(2, 5))):
            world, together = int(rng.integers(1, 5)), bool(rng.random() < 0.5)
            mains = [Progress(drawn_order_of(5, rank, world), "d", batch) for rank in range(world)]
            steps, parts = int(rng.integers(0, 4)), []
            for main in mains:
                if states:
                    main.load(
                        states if rng.random() < 0.5 or not alike or len(states) == world else states[0]
                    )
                main.set_epoch(2)
                parts.append(main.begin().runs.numbers().tolist())
            states = []
            for main, part in zip(mains, parts):
                main.count = min(len(part), (steps if together else int(rng.integers(0, 4))) * batch)
                got += part[: main.count]
                states.append(json.loads(json.dumps(main.state())))
            alike = len({state["before"] + state["taken"] for state in states}) == 1
        for rank in range(2):
            last = Progress(drawn_order_of(5, rank, 2), "d", batch)
            last.load(states)
            last.set_epoch(2)
            got += last.begin().runs.numbers().tolist()
        assert sorted(got) == list(range(len(mains[0].order.index)))
    with pytest.raises(UsageError, match="rank is 0 in the state and 1 here"):
        Progress(drawn_order_of(5, 1, 7), "d").load([states[0], states[0]])


def test_copies_are_apart_and_workers_are_not() -> None:
    order = drawn_order_of(1, 0, 1)
    one = Progress(order, "d", 4)
    one.set_epoch(3)
    for other in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        other.set_epoch(5)
        assert (other.epoch, one.epoch, one._board.read()[0]) == (5, 3, 3)
    for wrong in (-1, 2**63):
        with pytest.raises(ValueError, match="must be from 0 to"):
            one.set_epoch(wrong)
    assert one.epoch == 3


def _stays(reader: BlockDataset, worker: int, workers: int, pipe: Any) -> None:
    """A worker without torch, which begins an iteration whenever it is asked to."""
    while pipe.recv():
        progress = reader._progress
        progress.renew()
        pipe.send(progress.begin(worker, workers).runs.numbers().tolist())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """504 samples in blocks of 7."""
    base = tmp_path_factory.mktemp("epochs")
    make_corpus(base / "files", 504, mean_bytes=300)
    return pack(base / "files", base / "blocks", PackSpec(7, seed=4)).folder


@pytest.mark.parametrize("method", METHODS)
def test_what_is_set_reaches_real_processes_however_they_were_started(folder: Path, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    reader = BlockDataset(folder, seed=7, batch_samples=8)
    reader.set_epoch(0)
    pipes = [context.Pipe() for _ in range(2)]
    crew = [
        context.Process(target=_stays, args=(reader, worker, 2, theirs), daemon=True)
        for worker, (_, theirs) in enumerate(pipes)
    ]
    for process in crew:
        process.start()
    try:
        for epoch, start in ((0, 0), (0, 0), (3, 0), (1, 0), (1, 40), (1, 0), (2, 0), (2, 16)):
            reader.set_epoch(epoch)
            if start:
                reader.load_state_dict(reader.state_dict(samples=start))
            due = reader.order()[start:]
            for ours, _ in pipes:
                ours.send(True)
            for worker, (ours, _) in enumerate(pipes):
                assert ours.poll(120)
                wanted = [
                    due[at : at + 8]
                    for number, at in enumerate(range(0, len(due), 8))
                    if number % 2 == worker
                ]
                assert ours.recv() == list(itertools.chain.from_iterable(wanted))
    finally:
        for process in crew:
            process.kill()
            process.join(10)


STORES = ["folder", "http", "failing", "fsspec", "cache"]


@pytest.fixture(scope="module")
def opened(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    failing = StoreSpec(latency_s=0.001, error_share=0.05, reset_share=0.05)
    with LatencyStore(folder, StoreSpec()) as sound, LatencyStore(folder, failing) as broken:
        places = {"http": sound.url, "cache": sound.url, "failing": broken.url, "fsspec": f"file://{folder}"}
        cache = BlockCache(tmp_path_factory.mktemp("cache"), 100e3)

        def make(kind: str, **options: Any) -> BlockDataset:
            return BlockDataset(
                places.get(kind, str(folder)), seed=7, batch_samples=8,
                cache=cache if kind == "cache" else None, **options,
            )  # fmt: skip

        yield make


@needs_torch
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("kind", "method"), [*((kind, "fork") for kind in STORES), ("folder", "spawn")])
def test_torchs_workers_that_stay_follow_every_sequence_of_events(
    opened: Any, kind: str, method: str
) -> None:
    """Loaders of two workers each; what was given before a checkpoint and after it is an epoch, once."""
    import torch.utils.data as data

    if kind == "fsspec":
        pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'forerun[stores]'")
    rng = np.random.default_rng(STORES.index(kind))
    world, sequences = (
        (2, SEQUENCES) if method == "fork" else (1, 1)
    )  # others import torch anew in each worker

    def loaders(readers: list[BlockDataset]) -> list[Any]:
        return [
            data.DataLoader(
                reader, batch_size=8, num_workers=2, persistent_workers=True, collate_fn=list,
                multiprocessing_context=method,
            )
            for reader in readers
        ]  # fmt: skip

    def keys(loader: Any, batches: int | None = None) -> list[str]:
        return [key for batch in itertools.islice(loader, batches) for key, _ in batch]

    def begun() -> tuple[list[BlockDataset], list[Any]]:
        readers = [opened(kind, rank=rank, world=world) for rank in range(world)]
        return readers, loaders(readers)

    readers, running = begun()
    for number in range(1, 1 + sequences):
        epoch = int(rng.integers(0, 3))
        for looks in (True, False):  # the first rank looks at a batch
            for rank in range(1 if looks else world):
                readers[rank].set_epoch(epoch)
                if looks:
                    keys(running[rank], 1)
        got = [keys(running[rank], int(rng.integers(1, 12))) for rank in range(world)]
        states = [reader.state_dict(samples=len(part)) for reader, part in zip(readers, got)]
        if number % 2 == 0:
            readers, running = begun()
        for reader, state in zip(readers, states):
            reader.load_state_dict(json.loads(json.dumps(state)))
            reader.set_epoch(epoch)
        every = [key for part, loader in zip(got, running) for key in (*part, *keys(loader))]
        assert len(every) == len(set(every)) == 504
        for reader in readers:  # the same epoch again, whole
            reader.set_epoch(epoch)
        assert len({key for loader in running for key in keys(loader)}) == 504
