"""Real loaders: what is measured, and everything that can go wrong on the way."""

from __future__ import annotations

import ast
import io
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.blocks.container.container import Blocks, block_name
from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader import BlockDataset
from forerun.blocks.reader.clients import HttpFiles, LocalFiles
from forerun.core.cli.main import run as command_line
from forerun.core.errors import DataError, StoreError, UsageError
from forerun.loading.engine.calibration import fit_profile, fit_single_requests, predict
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import Corpus, make_corpus, open_corpus
from forerun.loading.measure.decoders import decoder_named
from forerun.loading.measure.probing import answer, run_cell
from forerun.loading.measure.runner import Piece, busy, python, run_loader
from forerun.loading.measure.store import LatencyStore, StoreSpec
from forerun.loading.policy import Ask, Cell, Load, Probe


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Blocks:
    folder = tmp_path_factory.mktemp("real")
    make_corpus(folder / "files", 320, mean_bytes=20_000)
    return pack(folder / "files", folder / "blocks", PackSpec(16))


@pytest.fixture
def copy(blocks: Blocks, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in blocks.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


# --- what is measured --------------------------------------------------------------------------------------------


def test_decoders_use_the_processor_time_they_are_asked_for() -> None:
    begun_s = time.thread_time()
    busy(0.02)
    python(0.02)
    assert time.thread_time() - begun_s >= 0.04


def test_threads_that_compete_for_cores_are_detected() -> None:
    """Four threads that decode no faster than one: the fit finds one core and says so."""
    load = Load(64, 20_000.0, 64, 0.0, 256)
    a = Probe(Cell(1, 1), 64, 64 * 0.005, 0.001, 0.004, overhead_s=0.0, decode_cpu_s=0.004)
    b = Probe(Cell(16, 1), 64, 64 * 0.004 + 4 * 0.001, 0.001, 0.004, overhead_s=0.0, decode_cpu_s=0.004)
    c = Probe(Cell(16, 4), 64, 64 * 0.004 + 0.001, 0.001, 0.016, overhead_s=0.0, decode_cpu_s=0.004)
    profile = fit_profile(a, b, c, load)
    assert profile.cores < 1.5 and "decode more slowly than one" in profile.notes[-1]
    assert predict(profile, load, Cell(16, 4)) >= 64 * 0.004 / profile.cores * 0.99


def files_probe(threads: int, request_s: float, decode_s: float, rate: float, **measured: float) -> Probe:
    """A probe of 100 single files of 50 kB, all requests alike; `rate` samples/s."""
    return Probe(
        Cell(1, threads), 100, 100 / rate, request_s, decode_s, 0.9, np.full(100, request_s), 0.0, **measured
    )


@pytest.mark.parametrize(
    ("measured", "decode_s"),
    [
        ({"cores_used": 0.95, "cores_wanted": 0.99}, 0.004),  # one interpreter, or one core
        (
            {"cores_used": 0.5, "cores_wanted": 1.2},
            0.004,
        ),  # the other processors' time goes to other programs
        ({"cores_used": 0.6, "cores_wanted": 0.6}, 0.009),  # decodes take longer than alone
    ],
)
def test_competing_for_processors_is_not_taken_for_a_link(
    measured: dict[str, float], decode_s: float
) -> None:
    """Requests that take six times as long with eight threads: a link only if processors and decodes are as alone."""
    load = Load(2000, 50_000.0, 64, 0.0, 256)
    sizes = np.full(100, 5e4)
    alone = files_probe(1, 0.006, 0.004, 100.0, decode_cpu_s=0.004, cores_used=0.45, cores_wanted=0.45)
    many = files_probe(8, 0.038, decode_s, 160.0, decode_cpu_s=0.004, **measured)
    found = fit_single_requests(alone, many, sizes, load)
    assert found.shared_bytes_per_s == math.inf
    assert any("a shared link is not identifiable" in note for note in found.notes)
    assert load.samples / predict(found, load, Cell(1, 8)) == pytest.approx(160, rel=0.1)
    assert load.samples / predict(found, load, Cell(1, 1)) == pytest.approx(100, rel=0.05)
    link = files_probe(8, 0.038, 0.004, 160.0, decode_cpu_s=0.004, cores_used=0.65, cores_wanted=0.7)
    found = fit_single_requests(alone, link, sizes, load)
    assert (
        found.shared_bytes_per_s == pytest.approx(8 * 50_000 / 0.032)
        and "taken for a shared link" in found.notes[1]
    )
    # Blocks tell the same: what a link carries makes blocks of many threads slower, and nothing else.
    blocks = [
        replace(probe, cell=Cell(16, probe.cell.threads), request_s=16 * probe.request_s)
        for probe in (alone, many, link)
    ]
    assert fit_profile(alone, blocks[0], blocks[1], load).shared_bytes_per_s == math.inf
    assert fit_profile(alone, blocks[0], blocks[2], load).shared_bytes_per_s < math.inf


def test_single_files_tell_latency_and_admit_what_they_cannot() -> None:
    rng = np.random.default_rng(5)
    load = Load(20_000, 50_000.0, 64, 0.1, 256)
    covered = 0
    for trial in range(200):
        sizes = 50_000 * np.exp(0.5 * rng.standard_normal(100))
        seconds = 0.04 * np.exp(0.2 * rng.standard_normal(100)) + sizes / 2e6
        a = Probe(Cell(1, 1), 100, 6.5, float(seconds.mean()), 0.001, 0.9, seconds, 0.0)
        c = Probe(Cell(1, 8), 300, 2.5, float(seconds.mean()), 0.001, 0.9, seconds, 0.0)
        found = fit_single_requests(a, c, sizes, load)
        covered += 1.4e6 <= found.conn_bytes_per_s <= 3.5e6
        if trial == 0:
            flat = fit_single_requests(a, c, np.full(100, 5e4), load)
            assert flat.conn_bytes_per_s == np.inf and "not identifiable" in flat.notes[0]
    assert covered >= 180


# --- what goes wrong ---------------------------------------------------------------------------------------------


def load_all(corpus: Corpus, block: int = 16) -> Any:
    return run_cell(corpus, Job(step_s=0.0, decode_s=0.0), Ask(Cell(block, 4), corpus.samples))


def test_files_that_go_missing_while_a_run_reads(copy: Path) -> None:
    with open_corpus(str(copy)) as corpus:
        assert load_all(corpus).samples == 320
        (copy / "b000007.blk").unlink()
        with pytest.raises(
            StoreError, match=r"b000007\.blk: block 7, sample '\d+/.*' cannot be read: No such file"
        ):
            load_all(corpus)


def test_blocks_that_are_cut_short_or_spoilt(copy: Path) -> None:
    path = copy / "b000005.blk"
    whole = path.read_bytes()
    with open_corpus(str(copy)) as corpus:
        path.write_bytes(whole[:-1])
        with pytest.raises(
            StoreError, match=rf"b000005\.blk: block 5, .*: received {len(whole) - 1} of {len(whole)}"
        ):
            load_all(corpus)
        path.write_bytes(whole[:100] + bytes([whole[100] ^ 255]) + whole[101:])
        with pytest.raises(
            DataError, match=r"b000005\.blk: sample '.*\.bin' \(block 5, .*\) fails its checksum"
        ):
            load_all(corpus)
        with pytest.raises(DataError, match=r"b000005\.blk: sample '.*\.bin' fails its checksum"):
            list(BlockDataset(copy))
        assert len(list(BlockDataset(copy, verify=False))) == 320


def test_a_store_that_dies_in_the_middle(blocks: Blocks) -> None:
    """Retries with a growing pause, then an end that names block and sample; the loop does not hang."""
    store = LatencyStore(blocks.folder, StoreSpec(latency_s=0.01)).__enter__()
    client = HttpFiles(store.url, retries=2, backoff_s=0.01, timeout_s=2)
    corpus = Corpus(store.url, client, blocks.index)
    killer = threading.Timer(0.15, store.__exit__, args=(None, None, None))
    killer.start()
    with pytest.raises(StoreError, match=r"block \d+, sample '.*' was asked for 3 times; last: \w+Error"):
        for _ in range(50):
            load_all(corpus, 1)
    assert client.retried >= 2
    killer.join()


def test_answers_that_are_cut_off_or_stall_are_asked_for_again(blocks: Blocks) -> None:
    whole = blocks.block_path(0).read_bytes()
    with LatencyStore(blocks.folder, StoreSpec(reset_share=0.3, stall_share=0.2, stall_s=5, seed=2)) as store:
        client = HttpFiles(store.url, retries=12, backoff_s=0.001, timeout_s=0.1)
        for at in range(12):
            assert client.read(block_name(0), at, 900, "x") == whole[at : at + 900]
        assert client.retried >= 3


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes what is asked and says nothing."""
    server = socket.create_server(("127.0.0.1", 0))
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    server.close()


def test_a_server_that_never_answers(silent: str, blocks: Blocks) -> None:
    client = HttpFiles(silent, retries=1, backoff_s=0.001, timeout_s=0.2)
    with pytest.raises(StoreError, match=r"block \d+, sample '.*' was asked for 2 times; last: TimeoutError"):
        load_all(Corpus(silent, client, blocks.index))


def test_samples_that_cannot_be_decoded_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    for number in range(80):
        buffer = io.BytesIO()
        np.save(buffer, np.arange(number + 1))
        (folder / f"{number:03d}.npy").write_bytes(buffer.getvalue())
    blocks = pack(folder, tmp_path / "blocks", PackSpec(8))
    with open_corpus(str(blocks.folder)) as corpus:
        run = run_cell(corpus, Job(step_s=0.0, decode="numpy"), Ask(Cell(8, 2), 80))
        assert run.samples == 80 and run.decode_cpu_s > 0
    (folder / "040.npy").write_bytes(b"\x93NUMPY\x01\x00 nonsense")
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (folder / "041.npy").write_bytes(buffer.getvalue())
    pack(folder, tmp_path / "spoilt", PackSpec(8, order="sorted"))
    assert command_line(["measure", "loading", str(tmp_path / "spoilt"), "--decoder", "numpy", "-q"]) == 2
    said = capsys.readouterr().err
    assert (
        "b000005.blk: sample '040.npy' (block 5" in said
        and "cannot be decoded" in said
        and "Traceback" not in said
    )
    piece = Piece("041.npy", 0, (len(buffer.getvalue()),), "a file of its own", keys=("041.npy",))
    with pytest.raises(DataError, match=r"sample '041\.npy' .* cannot be decoded: ValueError: Object arrays"):
        run_loader(
            LocalFiles(folder),
            [piece],
            threads=1,
            batch=1,
            step_s=0,
            decode_s=0,
            decoder=decoder_named("numpy"),
        )
    with pytest.raises(UsageError, match="no decoder 'jpeg'"):
        decoder_named("jpeg")


@pytest.mark.parametrize("sizes", [[0] * 80, [0, 5, 0, 0, 9] * 20])
def test_files_of_no_bytes(tmp_path: Path, sizes: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    for number, size in enumerate(sizes):
        path = tmp_path / "files" / f"{number:03d}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
    blocks = pack(tmp_path / "files", tmp_path / "blocks", PackSpec(16))
    assert sum(len(sample) for _, sample in blocks) == sum(sizes)
    with open_corpus(str(tmp_path / "files")) as corpus:
        job = Job(batch=16, step_s=0.0, decode_s=0.0)
        tried = (answer(corpus, job, threads=(1, 2), probe_s=0.2) for _ in range(5))
        # what hides on a machine this busy is for the measurement to say, and where all did, there is no profile
        assert any(found.profile is not None for found in tried)
    with LatencyStore(tmp_path / "files") as store, open_corpus(store.url) as corpus:
        assert load_all(corpus, 1).samples == len(sizes)
    assert (
        command_line(
            [
                "measure",
                "loading",
                str(tmp_path / "blocks"),
                "--step",
                "0s",
                "--decode",
                "0s",
                "--probe",
                "200ms",
                "--json",
            ]
        )
        == 0
    )
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "workers=[0]"], "$.workers[0]: 0 is not between 1 and 256"),
        (["--set", "workers=[1,x]"], "$.workers[1]: 'x' was found: expected int"),
        (["--step", "-1s"], "$.step: '-1s' is negative"),
        (["--set", "memory=0MB"], "$.memory: '0MB' is not above 0"),
        (["--set", "cald=true"], "unknown key 'cald'; did you mean 'cold'?"),
        (["--decode", "1 parsec"], "$.decode: "),
        (["--batch", "0"], "--batch"),
    ],
)
def test_bad_usage_is_told_in_a_line(
    blocks: Blocks, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["measure", "loading", str(blocks.folder), *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_a_kept_measurement_is_what_was_printed(
    blocks: Blocks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "measured.json"
    arguments = ["measure", "loading", str(blocks.folder), "--step", "1ms", "--probe", "300ms"]
    assert command_line([*arguments, "--set", "cold=true", "--json", "-q", "-o", str(kept)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert "cold" in said["cache"] and said == json.loads(kept.read_text())
    assert command_line(["report", str(kept), "-o", str(tmp_path / "report.html"), "-q"]) == 0
    assert said["answer"][1:30] in (tmp_path / "report.html").read_text()


def test_shards_and_network_folders_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards are no samples; files on a network file system are read there, not from a packed copy on this machine."""
    from forerun.loading.measure import corpus as corpora

    make_corpus(tmp_path / "files", 120, mean_bytes=2000)
    assert command_line(["pack", str(tmp_path / "files"), str(tmp_path / "tar"), "--to", "tar", "-q"]) == 0
    assert command_line(["measure", "loading", str(tmp_path / "tar"), "-q"]) == 2
    error = capsys.readouterr().err
    assert "shards" in error and "as a whole: run `forerun pack" in error
    mine = (tmp_path / "files").stat().st_dev
    mounts = tmp_path / "mountinfo"
    line = f"36 35 {os.major(mine)}:{os.minor(mine)} / /data rw,relatime shared:1 - {{}} host:/export rw\n"
    for name in ("nfs4", "cifs", "fuse.sshfs", "ceph"):
        mounts.write_text("22 1 0:99 / /proc rw - proc proc rw\n" + line.format(name))
        assert corpora.network_of(tmp_path / "files", mounts) == name
    for name in ("ext4", "xfs", "tmpfs", "overlay"):
        mounts.write_text(line.format(name))
        assert corpora.network_of(tmp_path / "files", mounts) == ""
    assert corpora.network_of(tmp_path / "files", tmp_path / "absent") == ""
    monkeypatch.setattr(corpora, "network_of", lambda folder: "nfs4")
    with open_corpus(str(tmp_path / "files")) as corpus:
        assert corpus.largest_piece == 1 and corpus.samples == 120 and corpus.system == "nfs4"
        found = answer(corpus, Job(step_s=0.0, decode_s=0.002), threads=(1, 2), probe_s=0.4)
    assert (
        not found.packed and found.next_step.startswith("forerun pack") and "same storage" in found.next_step
    )


WATCHED = """
import sys
seen = []
def watch(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo"):
        at = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
        seen.append((event, at[0] if isinstance(at, tuple) else at))
sys.addaudithook(watch)
from forerun.core.cli.main import run
from forerun.loading.measure.store import LatencyStore
from pathlib import Path
options = ["--step", "5ms", "--probe", "100ms", "-q", "--json"]
assert run(["measure", "loading", sys.argv[1], *options]) == 0
with LatencyStore(Path(sys.argv[1])) as store:
    assert run(["measure", "loading", store.url, *options]) == 0
    assert run(["pack", store.url, sys.argv[2], "-q"]) in (0, 2)
print("SEEN", sorted(set(seen)))
"""


def test_nothing_but_the_loopback_interface_is_spoken_to(blocks: Blocks, tmp_path: Path) -> None:
    """A process whose every address is watched: measuring a folder, serving it, measuring and packing what is served."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(blocks.folder), str(tmp_path / "out")], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-600:]
    seen = next(line for line in done.stdout.splitlines() if line.startswith("SEEN"))
    named = ast.literal_eval(seen.removeprefix("SEEN "))
    assert ("socket.bind", "127.0.0.1") in named and ("socket.connect", "127.0.0.1") in named
    assert {str(address) for _, address in named} <= {"127.0.0.1"}, named
