"""Blocks in training loops: every byte is the stored one, every sample comes once, and an epoch goes on where it stopped.

Orders are drawn and counted without a store; whole readers are then killed and resumed, read through forked and spawned
processes, and served by stores that fail.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import itertools
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import active_count
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.blocks.container.container import Blocks, Index, block_name
from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader import BlockDataset, BlockSampler, BlockSamples
from forerun.blocks.reader.ahead import Ahead
from forerun.blocks.reader.buffers import Buffers
from forerun.blocks.reader.order import EpochOrder, Runs
from forerun.blocks.reader.progress import Progress, Share
from forerun.core.cli.main import run as command_line
from forerun.core.errors import DataError, ForerunError, StoreError, UsageError
from forerun.core.rng import stream
from forerun.loading.measure.corpus import make_corpus
from forerun.loading.measure.store import LatencyStore, StoreSpec

from ..conftest import cases
from .workers import read_share, taken

#: looked for and not imported: processes that are started afresh import this module
HAS_TORCH = find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: pip install 'forerun[torch]'")

START_METHODS = [name for name in ("fork", "spawn") if name in multiprocessing.get_all_start_methods()]
#: drawn cases of each law in a run of the suite; set FORERUN_CASES for more
CASES = cases(100)
#: a store that fails in every way it knows: refuses, closes in the middle of a body, and stops there for a while
FAILING = StoreSpec(latency_s=0.001, error_share=0.06, reset_share=0.06, stall_share=0.02, stall_s=2.0)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Blocks:
    """90 samples, some of no bytes, in blocks of 7; five of three parts."""
    folder = tmp_path_factory.mktemp("reader")
    make_corpus(folder / "files", 80, mean_bytes=2000)
    rng = np.random.default_rng(5)
    for number in range(5):
        (folder / f"files/empty{number}.bin").write_bytes(b"")
        for part in ("jpg", "cls", "json"):
            (folder / f"files/s{number}.{part}").write_bytes(rng.bytes(100 + number))
    return pack(folder / "files", folder / "blocks", PackSpec(7, seed=4))


@pytest.fixture(scope="module")
def stored(blocks: Blocks) -> list[tuple[str, Any]]:
    """What was packed, by an independent walk of the files, in the order of the container."""
    files = blocks.folder.parent / "files"
    index, found = blocks.index, []
    for a, b in itertools.pairwise(index.starts.tolist()):
        parts = {key: (files / key).read_bytes() for key in index.key[a:b]}
        if b - a == 1:
            found.extend(parts.items())
        else:
            stem = index.key[a].partition(".")[0]
            found.append((stem, {key.removeprefix(f"{stem}."): value for key, value in parts.items()}))
    assert len(found) == 90 and sum(isinstance(sample, dict) for _, sample in found) == 5
    return found


def drawn_index(rng: np.random.Generator) -> Index:
    """Blocks of drawn numbers of samples, of no content."""
    sizes = rng.integers(1, 9, size=int(rng.integers(1, 12)))
    rows = int(sizes.sum())
    none = np.zeros(rows, np.int64)
    keys = tuple(map(str, range(rows)))
    return Index(np.arange(rows), np.repeat(np.arange(len(sizes)), sizes), none, none, none, keys)


def drawn_order(rng: np.random.Generator, index: Index, rank: int, world: int, equal: bool) -> EpochOrder:
    return EpochOrder(index, bool(rng.random() < 0.8), int(rng.integers(100)), rank, world, equal)


def in_turn(parts: list[list[int]], batch: int) -> list[int]:
    """What a loader gives that takes a batch of each worker in turn, and passes over those that have none left."""
    queues = [[part[at : at + batch] for at in range(0, len(part), batch)] for part in parts]
    given: list[int] = []
    while any(queues):
        for queue in queues:
            given += queue.pop(0) if queue else []
    return given


def test_every_sample_is_in_the_share_of_one_process_and_worker() -> None:
    """Drawn containers, ranks, workers and batches: shares are disjoint, complete and even; blocks are read once."""
    rng = np.random.default_rng(1)
    for _ in range(CASES):
        index = drawn_index(rng)
        world, workers, batch = (int(each) for each in rng.integers(1, 6, size=3))
        seed, shuffle, epoch = int(rng.integers(100)), bool(rng.random() < 0.8), int(rng.integers(5))
        for equal in (False, True):
            shares = []
            for rank in range(world):
                order = EpochOrder(index, shuffle, seed, rank, world, equal)
                runs = order.runs((epoch,))
                own = runs.numbers().tolist()
                assert len(own) == order.samples
                shares.append(own)
                # Workers that take batches in turn give the process's own order, however many they are.
                dealt = [runs.dealt(w, workers, batch).numbers().tolist() for w in range(workers)]
                assert in_turn(dealt, batch) == own
                whole = [runs.dealt(w, workers) for w in range(workers)]
                assert sorted(n for part in whole for n in part.numbers().tolist()) == sorted(own)
                assert sum(len(part.first) for part in whole) == len(runs.first)
                # Every stretch lies in one block.
                for part in (runs, *whole, *(runs.dealt(w, workers, batch) for w in range(workers))):
                    assert np.all(index.block[part.first] == index.block[part.last - 1]) and np.all(
                        part.last > part.first
                    )
            every = [number for share in shares for number in share]
            assert len(every) == len(set(every)) and max(map(len, shares)) - min(map(len, shares)) <= (
                not equal
            )
            assert len(every) == len(index) - (len(index) % world if equal else 0)


def test_cutting_a_sequence_anywhere_is_cutting_its_numbers() -> None:
    rng = np.random.default_rng(2)
    for _ in range(CASES):
        runs = drawn_order(rng, drawn_index(rng), 0, 1, False).runs((3,))
        numbers = runs.numbers().tolist()
        a, b = sorted(rng.integers(0, len(numbers) + 1, size=2).tolist())
        assert runs.cut(a, b).numbers().tolist() == numbers[a:b]
    assert Runs(np.zeros(0, np.int64), np.zeros(0, np.int64)).samples == 0


def test_orders_are_of_seed_and_epoch_alone(blocks: Blocks) -> None:
    first = BlockDataset(blocks.folder, seed=1)
    orders = []
    for epoch in range(4):
        first.set_epoch(epoch)
        orders.append(first.order())
    assert len({tuple(order) for order in orders}) == 4
    again = BlockDataset(blocks.folder, seed=1, threads=3)
    again.set_epoch(2)
    assert again.order() == orders[2]
    again = BlockDataset(blocks.folder, seed=2)
    assert again.order() != orders[0] and sorted(again.order()) == list(range(90))
    # What a seed means is written down in checkpoints: it stays.
    rows = blocks.index.first_sample
    shuffled = stream(1, "block order", 0).permutation(blocks.blocks)
    wanted = [n for block in shuffled for n in range(rows[block], rows[block + 1])]
    assert orders[0] == wanted


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_an_epoch_is_what_is_stored_in_the_order_that_was_said(
    blocks: Blocks, stored: list[tuple[str, Any]], threads: int
) -> None:
    for buffer_samples in (0, 5, 1000):
        found = BlockDataset(blocks.folder, threads=threads, buffer_samples=buffer_samples, seed=3)
        for _ in range(2):
            order = found.order()
            assert taken(found) == [stored[number] for number in order]


def test_killed_anywhere_an_epoch_goes_on_in_the_same_order(
    blocks: Blocks, stored: list[tuple[str, Any]]
) -> None:
    """Readers are left in the middle, as often as is drawn, and a new one continues from the JSON of their state."""
    rng = np.random.default_rng(3)
    for _ in range(CASES):
        world = int(rng.integers(1, 4))
        options: dict[str, Any] = {
            "seed": int(rng.integers(3)), "rank": int(rng.integers(world)), "world": world,
            "shuffle": bool(rng.random() < 0.8), "equal_ranks": bool(rng.random() < 0.3),
            "shuffle_samples": int(rng.integers(0, 40)) * int(rng.random() < 0.5),
        }  # fmt: skip
        fixed = bool(rng.random() < 0.5)

        def opened(options: dict[str, Any] = options) -> BlockDataset:
            return BlockDataset(
                blocks.folder,
                threads=int(rng.integers(0, 3)),
                buffer_samples=int(rng.integers(0, 40)),
                **options,
            )

        reader = opened()
        epoch = int(rng.integers(3)) if fixed else 0
        if fixed:
            reader.set_epoch(epoch)
        wanted = [stored[number] for number in reader.order()]
        got: list[tuple[str, Any]] = []
        for _ in range(int(rng.integers(1, 4))):
            got += taken(itertools.islice(iter(reader), int(rng.integers(0, len(wanted) - len(got) + 1))))
            state = json.loads(json.dumps(reader.state_dict()))
            reader = opened()
            reader.load_state_dict(state)
            assert reader.state_dict() == state
            if fixed:
                reader.set_epoch(epoch)  # as a training loop does, before each epoch
        got += taken(reader)
        assert got == wanted
        # The next epoch is whole again.
        if fixed:
            reader.set_epoch(epoch + 1)
        order = reader.order()
        assert reader.epoch == epoch + 1 and taken(reader) == [stored[number] for number in order]


def test_workers_killed_anywhere_go_on_with_any_number_of_them() -> None:
    """What a loader's batches say is enough: the epoch goes on in the same order with another number of workers."""
    rng = np.random.default_rng(4)
    for _ in range(CASES):
        index = drawn_index(rng)
        world, batch, epoch = (int(each) for each in rng.integers(1, 5, size=3))
        order = drawn_order(rng, index, int(rng.integers(world)), world, bool(rng.random() < 0.3))
        wanted = order.runs((epoch,)).numbers().tolist()
        got: list[int] = []
        state: dict[str, Any] | None = None
        while len(got) < len(wanted) or state is None:
            main = Progress(order, "d", batch)
            if state is not None:
                main.load(state)
            main.set_epoch(epoch)
            workers = int(rng.integers(1, 5))
            copies = [pickle.loads(pickle.dumps(main)) for _ in range(workers)]
            for copy in copies:
                copy._resumed_in = -1  # as in another process
            parts = [c.begin(w, workers, 77).runs.numbers().tolist() for w, c in enumerate(copies)]
            given = in_turn(parts, batch)
            assert given == wanted[len(got) :]
            batches = int(rng.integers(0, -(-len(given) // batch) + 1))
            got += given[: batches * batch]
            state = json.loads(json.dumps(main.state(min(batches * batch, len(given)))))
        assert got == wanted


def test_each_worker_goes_on_from_its_own_state() -> None:
    """As a loader does that keeps the state of every worker: with whole blocks dealt out, with batches, with buffers."""
    rng = np.random.default_rng(5)

    def given(share: Share) -> list[int]:
        """The numbers in the order in which they are given; they are those of the stretches that are read."""
        read = share.runs.numbers().tolist()
        if share.numbers is None:
            return read
        assert sorted(read) == sorted(share.numbers.tolist())
        return share.numbers.tolist()

    for _ in range(CASES):
        index = drawn_index(rng)
        workers, batch, size = int(rng.integers(1, 5)), int(rng.integers(0, 4)), int(rng.integers(0, 12))
        order = replace(drawn_order(rng, index, 0, 1, False), shuffle_samples=0 if batch else size)
        fixed = bool(rng.random() < 0.5)
        # A process without workers began the epoch; its state goes on in workers.
        alone = Progress(order, "d", batch)
        alone.set_epoch(2)
        every = given(alone.begin())
        alone.count = int(rng.integers(0, len(every) + 1)) if fixed else 0
        begun, got = alone.state(), every[: alone.count]
        for worker in range(workers):
            place = Progress(order, "d", batch)
            if fixed:
                place.load(begun)
                place.set_epoch(2)
            numbers = given(place.begin(worker, workers, base=9))
            place.count = int(rng.integers(0, len(numbers) + 1))
            state = json.loads(json.dumps(place.state()))
            again = Progress(order, "d", batch)
            if fixed:
                again.set_epoch(2)
            again.load(state)
            assert numbers[: place.count] + given(again.begin(worker, workers, base=10)) == numbers
            got += numbers
            if workers > 1:
                again.load(state)
                with pytest.raises(
                    UsageError, match=rf"is of worker {worker} of {workers}, this is a process without"
                ):
                    again.begin()
        assert sorted(got) == list(range(len(index)))


def test_a_buffer_mixes_no_further_than_its_size() -> None:
    """Every sample once, none before it was read, and none later than a random place allows: as the simulator mixes."""
    rng = np.random.default_rng(9)
    for _ in range(CASES):
        size = int(rng.integers(1, 12))
        order = replace(drawn_order(rng, drawn_index(rng), 0, 1, False), shuffle_samples=size)
        runs = order.runs((1,))
        read, given = runs.numbers().tolist(), order.mixed(runs, 1).tolist()
        assert sorted(read) == sorted(given)
        came = {number: at for at, number in enumerate(read)}
        assert all(came[number] <= at + size for at, number in enumerate(given))
        kept = rng.permutation(read)[: int(rng.integers(0, len(read) + 1))]
        part = runs.among(kept)
        assert part.numbers().tolist() == [number for number in read if number in set(kept.tolist())]
        if part.samples:
            assert np.all(order.index.block[part.first] == order.index.block[part.last - 1])


#: a training program that keeps a checkpoint every few samples, as a file that is there whole or not at all
TRAINING = """
import json, os, sys, time
from forerun.blocks.reader import BlockDataset

source, kept = sys.argv[1:]
dataset, done = BlockDataset(source, threads=2, seed=3), []
if os.path.exists(kept):
    checkpoint = json.load(open(kept))
    dataset.load_state_dict(checkpoint["state"])
    done = checkpoint["done"]
for key, _ in dataset:
    done.append(key)
    time.sleep(0.002)
    if len(done) % 3 == 0:
        with open(kept + "+", "w") as file:
            json.dump({"state": dataset.state_dict(), "done": done}, file)
        os.replace(kept + "+", kept)
print(json.dumps(done))
"""


def test_a_program_that_is_killed_trains_on_every_sample_once(
    blocks: Blocks, stored: list[tuple[str, Any]], tmp_path: Path
) -> None:
    """SIGKILL behind a store with latency, again and again; what the last checkpoint knows is continued."""
    kept = tmp_path / "checkpoint.json"
    with LatencyStore(blocks.folder, StoreSpec(latency_s=0.005)) as store:
        command = [sys.executable, "-c", TRAINING, store.url, str(kept)]
        for least in (9, 30, 60):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            deadline = time.monotonic() + 120
            while not kept.exists() or len(json.loads(kept.read_text())["done"]) < least:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.005)
            process.kill()
            process.wait()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    order = BlockDataset(blocks.folder, seed=3).order()
    assert json.loads(done.stdout) == [stored[number][0] for number in order]


def test_samples_by_number(blocks: Blocks, stored: list[tuple[str, Any]]) -> None:
    rng = np.random.default_rng(6)
    by_number = BlockSamples(blocks.folder, threads=2)
    assert len(by_number) == 90 and by_number[-1] == stored[-1] and by_number[0] == stored[0]
    for _ in range(100):
        numbers = rng.integers(0, 90, size=int(rng.integers(0, 20))).tolist()
        assert by_number.__getitems__(numbers) == [stored[number] for number in numbers]
    for number in (90, -91):
        with pytest.raises(IndexError, match="of 90"):
            by_number[number]
    sampler = BlockSampler(by_number, seed=3)
    assert list(sampler) == BlockDataset(blocks.folder, seed=3).order() and len(sampler) == 90
    sampler.set_epoch(4)
    wanted = list(sampler)
    begun = iter(sampler)
    got = [next(begun) for _ in range(31)]
    ahead, given = sampler.state_dict(), sampler.state_dict(20)  # a loader has drawn 31 and given 20
    for state, count in ((ahead, 31), (given, 20)):
        again = BlockSampler(by_number, seed=3)
        again.load_state_dict(state)
        again.set_epoch(4)
        assert got[:count] + list(again) == wanted and len(list(again)) == 90


def stored_digests(stored: list[tuple[str, Any]]) -> dict[str, str]:
    return {key: hashlib.sha256(repr(sample).encode()).hexdigest() for key, sample in stored}


@pytest.fixture(scope="module")
def sources(blocks: Blocks) -> Iterator[dict[str, str]]:
    """A container in a folder, behind HTTP, behind HTTP that fails, and through fsspec."""
    with (
        LatencyStore(blocks.folder, StoreSpec(latency_s=0.002)) as sound,
        LatencyStore(blocks.folder, FAILING) as failing,
    ):
        yield {
            "folder": str(blocks.folder), "http": sound.url, "failing": failing.url,
            "fsspec": f"file://{blocks.folder}",
        }  # fmt: skip
        # Processes of the tests share these out: one may ask this store nothing.
        assert failing.counters.errors > failing.counters.requests / 50 - 1


@pytest.mark.parametrize(
    ("workers", "method"),
    # A fork costs nothing, an interpreter does.
    [*itertools.product((4, 2, 1), START_METHODS)]
    if cases(0)
    else [*zip((4, 2), START_METHODS, strict=False)],
)
@pytest.mark.parametrize("kind", ["folder", "http", "failing", "fsspec"])
def test_processes_read_what_is_stored(
    sources: dict[str, str], stored: list[tuple[str, Any]], kind: str, workers: int, method: str
) -> None:
    """By digest, from readers that the parent has used before and goes on using meanwhile."""
    if kind == "fsspec":
        pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'forerun[stores]'")
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    shares = [
        BlockDataset(
            sources[kind],
            threads=2,
            buffer_samples=9,
            seed=7,
            rank=rank,
            world=workers,
            retries=8,
            timeout_s=0.5,
        )
        for rank in range(workers)
    ]
    next(iter(shares[0]))
    shares[0].set_epoch(0)
    crew = [context.Process(target=read_share, args=(share, results), daemon=True) for share in shares]
    for process in crew:
        process.start()
    try:
        ours = taken(shares[0])
        found = [results.get(timeout=120) for _ in crew]
    finally:
        for process in crew:
            process.join(10)
            process.kill()
    wanted = stored_digests(stored)
    assert all(isinstance(share, list) for share in found), found
    every = [pair for share in found for pair in share]
    assert dict(every) == wanted and len(every) == 90
    assert all(hashlib.sha256(repr(sample).encode()).hexdigest() == wanted[key] for key, sample in ours)


@needs_torch
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("kind", "method"), [("folder", "fork"), ("failing", "fork"), ("failing", "spawn")])
def test_torchs_workers_give_one_order_and_resume_it(
    sources: dict[str, str], stored: list[tuple[str, Any]], kind: str, method: str
) -> None:
    """Any number of workers, forked and spawned: the same batches; half of them continue what all began."""

    import torch.utils.data as data

    def batches(reader: BlockDataset, workers: int) -> Iterator[list[tuple[str, Any]]]:
        loader = data.DataLoader(
            reader, batch_size=8, num_workers=workers, collate_fn=list,
            multiprocessing_context=method if workers else None,
        )  # fmt: skip
        return iter(loader)

    def opened() -> BlockDataset:
        reader = BlockDataset(sources[kind], threads=2, seed=7, batch_samples=8, retries=8, timeout_s=0.5)
        reader.set_epoch(1)
        return reader

    wanted = [stored[number] for number in opened().order()]
    for workers in (0, 1, 2) if method == "fork" else (1,):
        assert [pair for batch in batches(opened(), workers) for pair in batch] == wanted
    begun = opened()
    most = 4 if method == "fork" else 2  # those that are started afresh import torch
    got = [pair for batch in itertools.islice(batches(begun, most), 5) for pair in batch]
    state = json.loads(json.dumps(begun.state_dict(samples=len(got))))
    again = opened()
    again.load_state_dict(state)
    assert got + [pair for batch in batches(again, most // 2) for pair in batch] == wanted
    with pytest.raises(UsageError, match="with batch_samples and set_epoch only"):
        BlockDataset(sources["folder"]).state_dict(samples=8)


@needs_torch
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_another_batch_size_is_an_error(blocks: Blocks, workers: int) -> None:
    """Batches that workers do not take turns by would come in another order, unnoticed."""
    import torch.utils.data as data

    def taken_by(batch_size: int | None, batch_samples: int) -> int:
        reader = BlockDataset(blocks.folder, batch_samples=batch_samples)
        loader = data.DataLoader(reader, batch_size=batch_size, num_workers=workers, collate_fn=list)
        return sum(len(each) if batch_size else 1 for each in loader)

    with pytest.raises(
        (UsageError, RuntimeError), match=r"batch_samples: is 8, and the loader's batch_size 6"
    ):
        taken_by(6, 8)
    assert (taken_by(6, 0), taken_by(8, 8), taken_by(None, 8)) == (90, 90, 90)


@needs_torch
def test_workers_that_stay_see_another_order_each_epoch(blocks: Blocks) -> None:
    """set_epoch does not reach their copies: they count on, from the epoch that was set."""
    import torch.utils.data as data

    reader = BlockDataset(blocks.folder, seed=7, batch_samples=8)
    loader = data.DataLoader(reader, batch_size=8, num_workers=2, persistent_workers=True, collate_fn=list)
    for epoch in range(3):
        reader.set_epoch(epoch)
        wanted = [key for key, _ in taken(BlockSamples(blocks.folder).__getitems__(reader.order()))]
        assert [key for batch in loader for key, _ in batch] == wanted


@needs_torch
def test_a_map_for_torch(blocks: Blocks, stored: list[tuple[str, Any]]) -> None:
    import torch.utils.data as data

    by_number = BlockSamples(blocks.folder, threads=2)
    sampler = BlockSampler(by_number, seed=1)
    for workers in (0, 2):
        sampler.set_epoch(3)
        loader = data.DataLoader(
            by_number, sampler=sampler, batch_size=8, num_workers=workers, collate_fn=list
        )
        assert [pair for batch in loader for pair in batch] == [stored[number] for number in sampler]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"batch_samples": 8}, {"shuffle_samples": 20}], ids=["blocks", "batches", "buffer"]
)
def test_a_loader_that_keeps_states_resumes_workers(
    blocks: Blocks, options: dict[str, int], fixed: bool, workers: int
) -> None:
    """torchdata's: a new one, with another seed of torch's, gives the rest of the epoch in order, and the next whole."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    import torch

    def loader(seed: int) -> Any:
        torch.manual_seed(seed)
        reader = BlockDataset(blocks.folder, threads=2, seed=3, **options)  # type: ignore[arg-type]
        if fixed:
            reader.set_epoch(1)
        return stateful.StatefulDataLoader(reader, batch_size=8, num_workers=workers, collate_fn=list)

    begun = loader(5)
    batches = iter(begun)
    got = [key for batch in itertools.islice(batches, 4) for key, _ in batch]
    state = begun.state_dict()
    rest = [key for batch in batches for key, _ in batch]
    again = loader(77)
    again.load_state_dict(state)
    assert [key for batch in again for key, _ in batch] == rest
    assert len(got) + len(rest) == len({*got, *rest}) == 90
    assert len({key for batch in again for key, _ in batch}) == 90


def test_threads_read_ahead_no_further_than_said() -> None:
    """Never more in hand than allowed, handed over in order, all threads end: drawn sizes, delays and limits."""
    rng = np.random.default_rng(8)
    before = active_count()
    for _ in range(60):
        sizes = rng.integers(0, 5, size=int(rng.integers(0, 30))).tolist()
        threads, most, helps = int(rng.integers(0, 5)), int(rng.integers(0, 12)), bool(rng.random() < 0.5)
        taken_until, worst = [0], [0]

        def make(
            number: int, sizes: list[int] = sizes, until: list[int] = taken_until, worst: list[int] = worst
        ) -> int:
            time.sleep(float(number % 3) * 1e-4)
            worst[0] = max(worst[0], sum(sizes[until[0] : number + 1]))
            return number

        found = []
        for number in Ahead(make, sizes, threads, most, helps=helps):
            found.append(number)
            taken_until[0] = number + 1
        assert found == list(range(len(sizes)))
        assert worst[0] <= max(most, max(sizes, default=0)) + (max(sizes, default=0) if threads else 0)
    for helps in (False, True):
        begun = iter(Ahead(lambda number: 1 // (number - 3), [1] * 9, 2, 4, helps=helps))
        assert [next(begun) for _ in range(3)] == [-1, -1, -1]
        with pytest.raises(ZeroDivisionError):
            next(begun)
    unfinished = iter(Ahead(lambda number: number, [1] * 1000, 3, 2))
    next(unfinished)
    unfinished.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 10
    while active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert active_count() <= before


@pytest.mark.parametrize("threads", [0, 2])
def test_what_somebody_looks_at_is_never_written_again(
    blocks: Blocks, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are read into memory that was used before: views that are kept, and arrays of them, stay as they were."""
    monkeypatch.delitem(
        sys.modules, "torch.utils.data", raising=False
    )  # where torch is in use, samples are bytes
    reader = BlockDataset(blocks.folder, threads=threads, buffer_samples=8)
    kept: list[tuple[Any, str]] = []
    for epoch in range(3):
        for number, (_, sample) in enumerate(reader):
            if number % 5 == epoch and not isinstance(sample, dict):
                assert sample.readonly
                view = np.frombuffer(sample, np.uint8) if number % 2 else sample[len(sample) // 3 :]
                kept.append((view, hashlib.sha256(view).hexdigest()))
    assert all(hashlib.sha256(view).hexdigest() == digest for view, digest in kept)


def test_memory_of_blocks_is_used_again() -> None:
    buffers = Buffers()
    first, other = buffers.take(1000), buffers.take(10)
    address = first.ctypes.data
    view = first.data[10:20].toreadonly()
    del first
    assert buffers.take(1000).ctypes.data != address  # somebody looks at it
    del view, other
    assert buffers.take(0).size == 0
    assert address in {each.ctypes.data for each in [buffers.take(1000) for _ in range(3)]}


@pytest.fixture
def copy(blocks: Blocks, tmp_path: Path) -> Path:
    return Path(shutil.copytree(blocks.folder, tmp_path / "copy"))


@pytest.mark.parametrize("served", [False, True])
def test_what_is_damaged_is_named_after_all_that_is_sound(
    copy: Path, stored: list[tuple[str, Any]], served: bool
) -> None:
    """A block that is cut short, a sample with another byte, a block that is gone: one line, and no wrong byte before."""
    whole = (copy / block_name(5)).read_bytes()
    with LatencyStore(copy) as store:
        url = store.url if served else str(copy)

        def read() -> list[tuple[str, Any]]:
            got: list[tuple[str, Any]] = []
            for pair in BlockDataset(url, threads=3, shuffle=False, retries=1):
                got += taken([pair])
            return got

        sound = int(Blocks.open(copy).index.first_sample[5])
        damages = {
            "cut": whole[:-10],
            "changed": whole[:-1] + bytes([whole[-1] ^ 1]),
            "empty": b"",
            "gone": None,
        }
        for kind, content in damages.items():
            if content is None:
                (copy / block_name(5)).unlink()
            else:
                (copy / block_name(5)).write_bytes(content)
            got: list[tuple[str, Any]] = []
            with pytest.raises((DataError, StoreError)) as raised:
                for pair in BlockDataset(url, threads=3, shuffle=False, retries=1):
                    got += taken([pair])
            message = str(raised.value)
            assert block_name(5) in message and "\n" not in message, kind
            assert ("fails its checksum" in message) is (kind == "changed")
            assert got == stored[:sound]
        (copy / block_name(5)).write_bytes(whole)
        assert read() == stored


@pytest.mark.parametrize("served", [False, True])
def test_a_container_that_is_packed_anew_under_way_is_refused(copy: Path, served: bool) -> None:
    with LatencyStore(copy) as store:
        reader = BlockDataset(store.url if served else copy, threads=0, shuffle=False, retries=1)
        state = reader.state_dict()
        begun = iter(reader)
        next(begun)
        files = copy.parent / "files"
        make_corpus(files, 60, mean_bytes=1000, seed=9)
        shutil.rmtree(copy)
        pack(files, copy, PackSpec(9))
        with pytest.raises(
            DataError, match=r"has changed since it was opened: its manifest names another index"
        ) as raised:
            list(begun)
        assert "\n" not in str(raised.value)
        with pytest.raises(UsageError, match=r"index_sha256 is '.*' in the state and '.*' here"):
            BlockDataset(copy).load_state_dict(state)


def test_what_cannot_be_opened_is_said_in_a_line(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[str, type[ForerunError], str]] = [
        (str(tmp_path / "nowhere"), DataError, r"manifest\.json: cannot be read: No such file"),
        (
            "http://127.0.0.1:9/blocks",
            StoreError,
            r"127\.0\.0\.1:9/blocks/manifest\.json: the file was asked for 1 times",
        ),
        ("nosuchscheme://x", UsageError, "cannot be opened"),
    ]
    for source, kind, message in cases:
        with pytest.raises(kind, match=message) as raised:
            BlockDataset(source, retries=0)
        assert "\n" not in str(raised.value)
    with LatencyStore(copy, StoreSpec(token="secret")) as store:
        with pytest.raises(StoreError, match="the server answers 401") as raised:
            BlockDataset(store.url)
        assert "secret" not in str(raised.value)
        assert len(list(BlockDataset(store.url, token="secret"))) == 90
    (copy / "index.parquet").write_bytes(b"PAR1 no such thing PAR1")
    with LatencyStore(copy) as store:
        for url in (store.url, str(copy)):
            with pytest.raises(DataError, match=r"index\.parquet: is not the index that the manifest names"):
                BlockDataset(url)
    (copy / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="is not a manifest"):
        BlockSamples(copy)
    for options in (
        {"threads": -1},
        {"rank": 2, "world": 2},
        {"seed": -1},
        {"batch_samples": -8},
        {"buffer_samples": -1},
    ):
        with pytest.raises(ValueError, match=r"-1|-8|rank 2 of 2"):
            BlockDataset(_fresh(tmp_path), **options)  # type: ignore[arg-type]


def test_a_server_without_a_manifest_says_so(tmp_path: Path) -> None:
    """http.server and nginx: one line, and the folder's files are not asked for."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(StoreError, match=r"/manifest\.json: .* answers 404$") as raised:
            BlockDataset(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert len(raised.value.problems) == 1


def _fresh(folder: Path) -> Path:
    """A small container."""
    if not (folder / "small/blocks").exists():
        make_corpus(folder / "small/files", 5, mean_bytes=100)
        pack(folder / "small/files", folder / "small/blocks", PackSpec(2))
    return folder / "small/blocks"


def test_without_keys_an_object_store_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'forerun[stores]'")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises((StoreError, UsageError), match=r"s3://bucket/blocks") as raised:
        BlockDataset("s3://bucket/blocks", retries=0, timeout_s=1)
    assert "\n" not in str(raised.value)


def test_a_decoder_that_fails_or_returns_nothing_is_named(blocks: Blocks) -> None:
    """A forgotten `return` is found where it is, and not where a batch of nothing is put together."""

    def broken(sample: Any) -> Any:
        raise ValueError("no such picture\nand more")

    for decode, said in ((lambda sample: None, "`decode` returned nothing"), (broken, "no such picture")):
        with pytest.raises(
            DataError, match=rf"b0\d+\.blk: sample '.*' cannot be decoded: ValueError: {said}$"
        ):
            list(BlockDataset(blocks.folder, decode=decode))


def test_states_that_do_not_fit_are_refused_and_change_nothing(blocks: Blocks, tmp_path: Path) -> None:
    reader = BlockDataset(blocks.folder, seed=1)
    taking = iter(reader)
    got = taken(itertools.islice(taking, 10))
    state = reader.state_dict()
    wrong: list[tuple[Any, str]] = [
        (None, "is not a state of the format"),
        ({}, "is not a state of the format"),
        (state | {"seed": 2}, "seed is 2 in the state and 1 here"),
        (state | {"world": 0}, "world is 0"),
        (state | {"shuffle": False}, "shuffle is False"),
        (state | {"shuffle_samples": 9}, "shuffle_samples is 9"),
        (state | {"taken": 91}, "91 samples were taken of 90"),
        (state | {"taken": -1, "epoch": "1", "mark": []}, "is damaged: epoch, taken, mark"),
        (state | {"index_sha256": "0" * 64}, "index_sha256"),
    ]
    for damaged, message in wrong:
        with pytest.raises(UsageError, match=message):
            reader.load_state_dict(damaged)
    assert got + taken(taking) == taken(BlockDataset(blocks.folder, seed=1))
    with pytest.raises(UsageError) as raised:
        reader.load_state_dict(state | {"seed": 2, "rank": 1})
    assert len(raised.value.problems) == 2
    sampler = BlockSampler(BlockSamples(blocks.folder))
    sampler.set_epoch(0)
    with pytest.raises(UsageError, match="91 samples of 90"):
        sampler.state_dict(91)
    shared = BlockDataset(blocks.folder, batch_samples=8)
    shared.set_epoch(0)
    assert shared.state_dict(88)["taken"] == 88 and shared.state_dict(90)["taken"] == 90
    with pytest.raises(
        UsageError, match="12 samples are no whole batches of 8: is that the loader's batch_size"
    ):
        shared.state_dict(12)
    with pytest.raises(UsageError, match="is iterated: import torch before it is made, or use BlockSamples"):
        shared[0]


@needs_torch
def test_workers_have_a_shuffle_buffer_each(blocks: Blocks, stored: list[tuple[str, Any]]) -> None:
    import torch.utils.data as data

    reader = BlockDataset(blocks.folder, shuffle_samples=20, seed=2)
    mixed, plain_order = reader.order(), BlockDataset(blocks.folder, seed=2).order()
    assert mixed != plain_order and sorted(mixed) == sorted(plain_order)
    for workers in (0, 2):
        reader.set_epoch(0)
        found = list(data.DataLoader(reader, batch_size=None, num_workers=workers))
        assert dict(found) == dict(stored) and len(found) == 90
        assert workers or taken(found) == [stored[number] for number in mixed]
    shared = BlockDataset(blocks.folder, shuffle_samples=20, batch_samples=8)
    with pytest.raises(
        UsageError, match="workers have a buffer each and share whole blocks: leave out batch_samples"
    ):
        list(data.DataLoader(shared, batch_size=8, num_workers=2, collate_fn=list))


def test_the_plans_own_lines_load_what_it_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `forerun plan` prints is a program; here with the container in place of its name."""
    make_corpus(tmp_path / "files", 90, mean_bytes=2000)
    folder = pack(tmp_path / "files", tmp_path / "blocks", PackSpec(7)).folder
    scenario = tmp_path / "loading.yaml"
    for mode, grid in (
        ("threads", "{blocks: [1, 7], threads: [1, 4]}"),
        ("threads, buffer_samples: 30", "{blocks: [7], threads: [4]}"),
        ("workers", "{blocks: [1, 7], threads: [1], workers: [1, 2]}"),
        ("pooled_workers", "{blocks: [1, 7], threads: [2], workers: [2]}"),
    ):
        mixing = ", shuffle: block+buffer, shuffle_buffer_samples: 20" if "buffer" in mode else ""
        scenario.write_text(
            f"domain: loading\nseed: 3\ndataset: {{samples: 90, sample_bytes: 2000{mixing}}}\n"
            "store: {latency_s: 20ms}\n"
            f"cpu: {{decode_s: 1ms}}\nloader: {{mode: {mode}}}\nstep: {{step_s: 10ms}}\nrun: {{batch: 8, epochs: 2}}\n"
            f"grid: {grid}\n"
        )
        assert command_line(["plan", str(scenario), "-q"]) == 0
        printed = capsys.readouterr().out
        code = forerun.plan(forerun.load(scenario)).code
        assert code in printed and "forerun pack FILES BLOCKS --block-samples 7" in code
        ours, _, others = code.partition("# or in a library of your own")
        assert "num_workers" in others and ("num_workers" in ours) is ("workers" in mode)
        assert ("shuffle_samples=20" in code) is ("buffer" in mode)
        if not HAS_TORCH:
            continue
        program = code.replace('"BLOCKS"', repr(str(folder))).replace("...  #", "seen.update(keys)  #")
        check = "seen = set()\n" + program + "\nassert len(seen) == 90, len(seen)\n"
        done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{code}\n{done.stderr}"
    energy = forerun.load(forerun.demo("energy").scenario, ["trials=0"])
    assert forerun.plan(energy).code == ""  # type: ignore[attr-defined]
