"""The cache of a node: bounded, no other bytes than the store's, shared by processes, whole when they are killed."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader import BlockCache, BlockDataset
from forerun.blocks.reader.cache import BLOCK, PARTIAL
from forerun.blocks.reader.clients import Wrapping
from forerun.core.errors import DataError, StoreError, UsageError
from forerun.loading.measure.corpus import make_corpus

from ..conftest import cases

#: drawn worlds in a run of the suite; set FORERUN_CASES for more
CASES = cases(40)


@dataclass
class Memory:
    """A store of named bytes that counts what it sends."""

    blocks: dict[str, bytes]
    sent: int = 0
    forks: bool = True

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`."""
        assert what
        self.sent += length
        return self.blocks[name][first : first + length]


@dataclass
class Counting(Wrapping):
    """Counts what another client sends."""

    sent: list[int] = field(default_factory=list)

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """See `Client`."""
        self.sent.append(length)
        return self.client.read(name, first, length, what)


def files(cache: BlockCache) -> dict[str, int]:
    """Names and sizes of the blocks in a cache."""
    return {path.name: path.stat().st_size for path in Path(cache.folder).glob(f"*{BLOCK}")}


@pytest.mark.parametrize("part", range(4))
def test_what_came_first_stays_and_no_more_than_fits(tmp_path: Path, part: int) -> None:
    """Against a set of names: the same bytes from the store, the same blocks kept, the ledger their sum."""
    for case in range(part, CASES, 4):
        rng = np.random.default_rng((case, 5))
        blocks = {
            f"b{n:06d}.blk": rng.bytes(int(rng.integers(1, 400))) for n in range(int(rng.integers(1, 12)))
        }
        whole = sum(map(len, blocks.values()))
        cache = BlockCache(tmp_path / str(case), float(rng.uniform(0, 1.2)) * whole)
        cache.open()
        store, kept, expected = Memory(blocks), set[str](), 0
        for _ in range(int(rng.integers(1, 40))):
            name = str(rng.choice(list(blocks)))
            data = blocks[name]
            first = int(rng.integers(len(data)))
            length = int(rng.integers(1, len(data) - first + 1))
            got = cache.read(store, "digest", name, len(data), first, length, "sample")  # type: ignore[arg-type]
            assert bytes(got) == data[first : first + length]
            if name not in kept:
                fits = sum(len(blocks[one]) for one in kept) + len(data) <= cache.capacity_bytes
                expected += len(data) if fits else length
                kept |= {name} if fits else set()
            assert cache.used_bytes == sum(files(cache).values()) == sum(len(blocks[one]) for one in kept)
        assert store.sent == expected


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty blocks of two samples, all of one size."""
    folder = tmp_path_factory.mktemp("cached")
    files = folder / "files"
    files.mkdir()
    for number in range(80):
        (files / f"{number:03}.bin").write_bytes(np.random.default_rng(number).bytes(3000))
    pack(files, folder / "blocks", PackSpec(2))
    return folder / "blocks"


def counted(container: Path, cache: BlockCache, **options: Any) -> tuple[BlockDataset, Counting]:
    """A data set with a cache, and the client that counts what it reads from the store."""
    dataset = BlockDataset(container, seed=4, cache=cache, **options)
    client = Counting(dataset.source.client)
    dataset.source = replace(dataset.source, client=client)
    return dataset, client


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("batch_samples", [0, 5])
def test_later_epochs_read_what_does_not_fit(
    container: Path, tmp_path: Path, threads: int, batch_samples: int
) -> None:
    """A quarter of the data: each later epoch reads three quarters, in whatever order; samples are the store's."""
    cache = BlockCache(tmp_path / "cache", 240_000 / 4)
    dataset, client = counted(container, cache, threads=threads, batch_samples=batch_samples)
    plain = {key: bytes(sample) for key, sample in BlockDataset(container)}
    for epoch in range(3):
        dataset.set_epoch(epoch)
        client.sent.clear()
        assert {key: bytes(sample) for key, sample in dataset} == plain
        if epoch:
            assert sum(client.sent) == 240_000 * 3 / 4
    assert cache.used_bytes == 60_000 and len(files(cache)) == 10


def _epochs(dataset: BlockDataset, client: Counting, barrier: Any, results: Any) -> None:
    read = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        client.sent.clear()
        barrier.wait(60)
        samples = [key for key, _ in dataset]
        barrier.wait(60)
        read.append((sum(client.sent), len(samples)))
    results.put(read)


def test_processes_share_a_folder(container: Path, tmp_path: Path) -> None:
    """Four at once: together, the later epochs read the half that does not fit, and nothing that does."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(4), context.Queue()
    cache = BlockCache(tmp_path / "cache", 120_000)
    shares = [counted(container, cache, threads=2, rank=rank, world=4) for rank in range(4)]
    processes = [context.Process(target=_epochs, args=(*share, barrier, results)) for share in shares]
    for process in processes:
        process.start()
    reads = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    for epoch in range(3):
        assert sum(read[epoch][1] for read in reads) == 80
        assert sum(read[epoch][0] for read in reads) == (240_000 if epoch == 0 else 120_000)
    assert sum(files(cache).values()) == 120_000


FILLING = """
import sys
from forerun.blocks.reader.cache import BlockCache
class Store:
    def read(self, name, first, length, what):
        return name.encode()[:1] * length
cache = BlockCache(sys.argv[1], float(sys.argv[2]))
cache.open()
print("ready", flush=True)
for number in range(4000):
    cache.read(Store(), "digest", f"{'abcdefgh'[number % 8]}{number}", 200_000, 0, 10, "sample")
"""


def test_killed_writers_leave_nothing_half_written(tmp_path: Path) -> None:
    """Killed at drawn instants, two at a time: every block is whole, and each counts one block too many at most,
    until the next to open counts what is there."""
    rng, cache = np.random.default_rng(3), BlockCache(tmp_path / "cache", 60e6)
    for _ in range(4):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", FILLING, str(cache.folder), "60e6"], stdout=subprocess.PIPE
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        time.sleep(float(rng.uniform(0, 0.03)))
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
        for path in Path(cache.folder).glob(f"*{BLOCK}"):
            assert path.read_bytes() == path.name.split("-")[1][:1].encode() * 200_000
        sums = sum(files(cache).values())
        assert sums <= cache.used_bytes <= min(cache.capacity_bytes, sums + 2 * 200_000)
        cache.open()
        assert not list(Path(cache.folder).glob(f"*{PARTIAL}")) and cache.used_bytes == sums


def test_a_damaged_block_is_read_from_the_store(container: Path, tmp_path: Path) -> None:
    """Other bytes fail the checksum, another length is seen at once; both are read again, the first is replaced."""
    cache = BlockCache(tmp_path / "cache", 1e9)
    dataset, client = counted(container, cache, threads=0)
    plain = {key: bytes(sample) for key, sample in dataset}
    paths = sorted(Path(cache.folder).glob(f"*{BLOCK}"))
    paths[0].write_bytes(bytes(6000))
    paths[1].write_bytes(b"short")
    client.sent.clear()
    assert {key: bytes(sample) for key, sample in dataset} == plain
    assert client.sent == [6000, 6000] and paths[0].read_bytes() != bytes(6000)


def test_a_full_disk_is_a_full_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written is not kept, and training goes on; what else fails is said."""
    cache, store = BlockCache(tmp_path / "cache", 1e9), Memory({"b": bytes(100)})
    cache.open()

    def failing(code: int) -> None:
        def write(_path: Path, _data: bytes) -> int:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(Path, "write_bytes", write)

    failing(errno.ENOSPC)
    assert bytes(cache.read(store, "digest", "b", 100, 0, 10, "sample")) == bytes(10)  # type: ignore[arg-type]
    assert cache.used_bytes == 0 and not files(cache)
    failing(errno.EIO)
    with pytest.raises(StoreError, match="cannot be written"):
        cache.read(store, "digest", "b", 100, 0, 10, "sample")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="capacity_bytes"):
        BlockCache(tmp_path, -1)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used as a cache"):
        BlockCache(tmp_path / "file", 1).open()


@pytest.mark.parametrize("capacity_bytes", [0, 1e9])
def test_what_the_store_has_damaged_is_read_once_more_and_does_not_stay(
    tmp_path: Path, capacity_bytes: float
) -> None:
    make_corpus(tmp_path / "files", 40, mean_bytes=300)
    folder = pack(tmp_path / "files", tmp_path / "blocks", PackSpec(10)).folder
    path = folder / "b000002.blk"
    whole = path.read_bytes()
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    cache = BlockCache(tmp_path / "cache", capacity_bytes)
    reader = BlockDataset(folder, shuffle=False, threads=0, cache=cache)
    counting = Counting(reader.source.client)
    reader.source = replace(reader.source, client=counting)
    given: list[str] = []
    with pytest.raises(DataError, match=r"b000002\.blk: sample .* fails its checksum") as raised:
        given += [key for key, _ in reader]
    assert len(raised.value.problems) == 1 and len(counting.sent) == 4
    assert not [*Path(cache.folder).glob("*b000002*")], "it does not stay"
    path.write_bytes(whole)
    assert len(list(reader)) == 40 and len(files(cache)) == (4 if capacity_bytes else 0)
    # Damaged in the cache: once more from the store, and then it stays.
    if capacity_bytes:
        (kept,) = Path(cache.folder).glob(f"*b000002*{BLOCK}")
        kept.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        sent = len(counting.sent)
        assert len(list(reader)) == 40 and len(counting.sent) == sent + 1 and kept.read_bytes() == whole
        # Cut in the cache: the same.
        kept.write_bytes(whole[:-1])
        assert len(list(reader)) == 40 and len(counting.sent) == sent + 2 and kept.read_bytes() == whole


@pytest.mark.parametrize("cached", [False, True])
def test_what_was_damaged_on_the_way_is_read_once_more(container: Path, tmp_path: Path, cached: bool) -> None:
    class Noisy(Counting):
        """Every second answer has a wrong bit."""

        def read(self, name: str, first: int, length: int, what: str) -> bytes:
            data = super().read(name, first, length, what)
            return data if len(self.sent) % 2 == 0 else bytes([data[0] ^ 1]) + data[1:]

    reader = BlockDataset(
        container, shuffle=False, threads=0, cache=BlockCache(tmp_path, 1e9) if cached else None
    )
    sound = list(BlockDataset(container, shuffle=False, threads=0))
    reader.source = replace(reader.source, client=Noisy(reader.source.client))
    assert [(key, bytes(sample)) for key, sample in reader] == [(key, bytes(one)) for key, one in sound]
