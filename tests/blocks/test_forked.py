"""Clients and loaders across a fork: worker processes, forked or started afresh, read the bytes that were asked for."""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from forerun.blocks.container.container import Blocks
from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader.clients import Client, HttpFiles, LocalFiles
from forerun.blocks.reader.objects import FsspecFiles
from forerun.blocks.reader.processes import PerProcess
from forerun.core.cli.main import run as command_line
from forerun.core.errors import StoreError
from forerun.loading.measure import torch_loader as torches
from forerun.loading.measure.corpus import make_corpus, open_corpus
from forerun.loading.measure.store import LatencyStore, StoreSpec

from ..conftest import cases
from .workers import Wanted, read_all

START_METHODS = [name for name in ("fork", "spawn") if name in multiprocessing.get_all_start_methods()]
#: workers, and how they are started: a fork costs nothing, an interpreter does
CREWS = (
    [*itertools.product((4, 2), START_METHODS)] if cases(0) else [*zip((4, 2), START_METHODS, strict=False)]
)
#: passes of each worker over everything there is
PASSES = 2


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Blocks:
    folder = tmp_path_factory.mktemp("forked")
    make_corpus(folder / "files", 96, mean_bytes=20_000, sigma=0.0)  # of one size: lengths tell nothing
    return pack(folder / "files", folder / "blocks", PackSpec(8))


@pytest.fixture(scope="module")
def files(blocks: Blocks) -> Path:
    return blocks.folder.parent / "files"


def wanted_of(folder: Path) -> list[Wanted]:
    """Every file of a folder whole, and the middle of each."""
    found: list[Wanted] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data, name = path.read_bytes(), path.relative_to(folder).as_posix()
            for part, first in ((data, 0), (data[len(data) // 3 : len(data) // 2], len(data) // 3)):
                found.append((name, first, hashlib.sha256(part).hexdigest(), len(part)))
    return found


def wrong_reads(client: Client, wanted: list[Wanted], workers: int, method: str) -> list[str]:
    """What workers read wrongly from a client that this process has used already."""
    context: Any = multiprocessing.get_context(method)
    results, together = context.Queue(), context.Barrier(workers)
    crew = [
        context.Process(target=read_all, args=(n, client, wanted, PASSES, together, results), daemon=True)
        for n in range(workers)
    ]
    for process in crew:
        process.start()
    try:
        # The parent goes on reading meanwhile: a connection that is shared mixes up its answers too.
        for name, first, digest, length in wanted:
            assert hashlib.sha256(client.read(name, first, length, "x")).hexdigest() == digest
        return [line for _ in crew for line in results.get(timeout=120)]
    finally:
        for process in crew:
            process.join(10)
            process.kill()


@pytest.mark.parametrize(("workers", "method"), CREWS)
@pytest.mark.parametrize("kind", ["http", "local", "fsspec"])
def test_workers_read_what_they_ask_for(files: Path, kind: str, workers: int, method: str) -> None:
    wanted = wanted_of(files)
    with LatencyStore(files, StoreSpec(latency_s=0.002)) as store:
        clients: dict[str, Callable[[], Client]] = {
            "http": lambda: HttpFiles(store.url),
            "local": lambda: LocalFiles(files),
            "fsspec": lambda: FsspecFiles(f"file://{files}"),
        }
        if kind == "fsspec":
            pytest.importorskip("fsspec")
        client = clients[kind]()
        assert len(list(client.names())) == 96  # as when a corpus is opened
        assert wrong_reads(client, wanted, workers, method) == []


class _WrongRanges(BaseHTTPRequestHandler):
    """Answers every range with the file's first bytes, as a connection does whose answers are mixed up."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(206)
        self.send_header("Content-Length", "4")
        if self.path != "/silent":
            self.send_header("Content-Range", "bytes 0-3/100")
        self.end_headers()
        self.wfile.write(b"abcd")

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_an_answer_with_other_bytes_than_asked_for_is_not_believed() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _WrongRanges) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        client = HttpFiles(f"http://127.0.0.1:{server.server_port}", retries=1, backoff_s=0.001)
        assert client.read("a", 0, 4, "x") == b"abcd"
        with pytest.raises(StoreError, match=r"/a: block 1 .*Content-Range 'bytes 0-3/100' for bytes 8-11"):
            client.read("a", 8, 4, "block 1")
        with pytest.raises(StoreError, match=r"Content-Range ''"):
            client.read("silent", 0, 4, "block 1")
        server.shutdown()


def check_marked(sample: memoryview) -> object:
    """Decode a sample of `marked`: its first 32 bytes are the digest of the others."""
    if hashlib.sha256(sample[32:]).digest() != sample[:32]:
        raise ValueError("not the bytes that were written")
    return None


@pytest.mark.parametrize(
    ("workers", "block", "pool_threads", "method"),
    [
        *itertools.product((2, 4), (1,), (0,), START_METHODS),
        *((4, 8, pool_threads, "fork") for pool_threads in (0, 2) if "fork" in START_METHODS),
        (2, 8, 2, "spawn"),
    ],
)
def test_torchs_workers_decode_the_bytes_of_a_server(
    tmp_path: Path, workers: int, block: int, pool_threads: int, method: str
) -> None:
    """Files (block 1) have no checksum that is known, so the decoder checks; blocks are checked as they are read."""
    pytest.importorskip("torch", reason="torch is not installed: pip install 'forerun[torch]'")
    draws = np.random.default_rng(0)
    (tmp_path / "files").mkdir()
    for number in range(64):
        body = draws.bytes(2000)
        (tmp_path / "files" / f"{number:03d}.bin").write_bytes(hashlib.sha256(body).digest() + body)
    pack(tmp_path / "files", tmp_path / "blocks", PackSpec(8))
    served = tmp_path / ("files" if block == 1 else "blocks")
    with LatencyStore(served, StoreSpec(latency_s=0.001)) as store, open_corpus(store.url) as corpus:
        run = torches.run_workers(
            corpus, block=block, samples=256, workers=workers, batch=16, step_s=0.0, decode_s=0.0,
            pool_threads=pool_threads, decoder=check_marked, start=method,
        )  # fmt: skip
    assert sum(run.samples) == 256


def test_the_verb_measures_torchs_workers_over_http(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'forerun[torch]'")
    for number in range(64):
        np.save(tmp_path / f"{number:03d}.npy", np.full(100, number))
    with LatencyStore(tmp_path) as store:
        arguments = [
            "measure",
            "loading",
            store.url,
            "--set",
            "loader=workers",
            "--set",
            "workers=[1,2]",
        ]
        assert (
            command_line([*arguments, "--decoder", "numpy", "--batch", "16", "--step", "1ms", "--json"]) == 0
        )
    assert len(json.loads(capsys.readouterr().out)["workers"]) == 2


@pytest.mark.skipif("fork" not in START_METHODS, reason="no processes are forked here")
def test_a_fork_drops_what_its_parent_uses() -> None:
    kept = PerProcess(object)
    ours = kept.get()
    assert kept.get() is ours
    receiving, sending = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=lambda: sending.send((kept.get() is ours, kept.get() is kept.get()))
    )
    process.start()
    assert receiving.recv() == (False, True)
    process.join()
    assert kept.get() is ours
