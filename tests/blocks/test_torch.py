"""torch's loader: our blocks as its data set, its workers measured and set beside the recursion. Skipped without torch."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader import BlockDataset
from forerun.core.cli.main import run as command_line
from forerun.core.errors import DataError, UsageError
from forerun.loading.engine.kernels.deliver import Pool, deliver_pooled
from forerun.loading.engine.model import batches_of
from forerun.loading.measure import torch_loader as torches
from forerun.loading.measure.corpus import make_corpus, open_corpus

try:
    import torch.utils.data as data
    from torch import manual_seed as data_seed
except ImportError:
    data = None
needs_torch = pytest.mark.skipif(data is None, reason="torch is not installed: pip install 'forerun[torch]'")


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torch")
    make_corpus(folder / "files", 600, mean_bytes=3000)
    return pack(folder / "files", folder / "blocks", PackSpec(16)).folder


@pytest.mark.skipif(data is not None, reason="torch is installed here")
def test_without_torch_it_is_said(blocks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["measure", "loading", str(blocks), "--set", "loader=workers", "-q"]) == 2
    assert "pip install 'forerun[torch]'" in capsys.readouterr().err
    with open_corpus(str(blocks)) as corpus, pytest.raises(UsageError, match="torch is not installed"):
        torches.run_workers(corpus, block=1, samples=64, workers=1, batch=64, step_s=0, decode_s=0)


@needs_torch
@pytest.mark.parametrize("workers", [0, 2])
def test_a_container_is_a_data_set_of_torch(blocks: Path, workers: int) -> None:
    found = BlockDataset(blocks, seed=3)
    assert isinstance(found, data.IterableDataset)
    loader = data.DataLoader(found, batch_size=50, num_workers=workers)
    wanted = {key: bytes(sample) for key, sample in BlockDataset(blocks, seed=3)}
    orders = []
    for _ in range(2):
        batches = list(loader)
        keys = [key for batch in batches for key in batch[0]]
        samples = [sample for batch in batches for sample in batch[1]]
        assert dict(zip(keys, samples)) == wanted and len(keys) == len(wanted)
        orders.append(keys)
    assert orders[0] != orders[1]  # a fresh order each epoch, in workers too
    found.set_epoch(7)
    first, second = ([key for batch in loader for key in batch[0]] for _ in range(2))
    assert first == second


@needs_torch
@pytest.mark.parametrize("workers", [0, 2, 4])
def test_the_processes_of_a_job_share_every_epoch(blocks: Path, workers: int) -> None:
    """Each rank has a random generator of torch's of its own; the order of blocks must not depend on it."""
    for epoch in range(3):
        seen: list[str] = []
        for rank in range(3):
            part = BlockDataset(blocks, seed=3, rank=rank, world=3)
            if epoch:  # the first is not set
                part.set_epoch(epoch)
            data_seed(100 * epoch + rank)
            loader = data.DataLoader(part, batch_size=50, num_workers=workers)
            seen += [key for batch in loader for key in batch[0]]
        assert len(seen) == len(set(seen)) == 600


@needs_torch
def test_decoding_in_the_data_set_and_its_copies(blocks: Path) -> None:
    import pickle

    found = BlockDataset(blocks, decode=lambda view: np.frombuffer(view, np.uint8).sum())
    assert all(np.issubdtype(type(value), np.integer) for _, value in itertools.islice(found, 5))
    plain = BlockDataset(blocks, shuffle=False)
    assert [key for key, _ in pickle.loads(pickle.dumps(plain))] == [key for key, _ in plain]


@needs_torch
def test_workers_give_every_batch_and_take_no_less_than_their_sleep(blocks: Path) -> None:
    with open_corpus(str(blocks)) as corpus:

        def run(workers: int, batches: int, step_s: float, prefetch: int = 2) -> torches.WorkerRun:
            return torches.run_workers(
                corpus, block=1, samples=64 * batches, workers=workers, batch=64, step_s=step_s, decode_s=0.004,
                prefetch=prefetch,
            )  # fmt: skip

        fit = torches.fit_workers([(1, run(1, 4, 0.0)), (4, run(4, 16, 0.0))], 64)
        assert fit.build_at(1) >= 64 * 0.004
        measured = run(2, 8, 0.05, 1)
        assert len(measured.load_s) == 8 and set(measured.samples) == {64}
        assert measured.total_s >= max(8 * 0.05, 4 * 64 * 0.004)


@needs_torch
def test_pools_give_every_sample_and_follow_their_recursion(blocks: Path) -> None:
    with open_corpus(str(blocks)) as corpus:
        found = torches.run_workers(
            corpus, block=16, samples=320, workers=2, batch=64, step_s=0.0, decode_s=0.004, pool_threads=2
        )
    assert sorted(found.samples) == [32, 32, 64, 64, 64, 64]
    plan = batches_of(320, 64, 2, "contiguous", take_all=True)
    pool = Pool(2, 16, 0.0, 0.0, 0.004, 0.0, 0.0)
    predicted = deliver_pooled(plan.worker, plan.samples, np.zeros(1), np.zeros(2), 4, pool).total_s
    assert predicted == pytest.approx(160 * 0.004 / 2, rel=0.01)
    assert found.total_s >= predicted


@needs_torch
def test_what_a_worker_cannot_read_is_named(blocks: Path, tmp_path: Path) -> None:
    broken = tmp_path / "blocks"
    broken.mkdir()
    for path in blocks.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    spoilt = bytearray((broken / "b000002.blk").read_bytes())
    spoilt[5] ^= 1
    (broken / "b000002.blk").write_bytes(spoilt)
    with (
        open_corpus(str(broken)) as corpus,
        pytest.raises(DataError, match=r"b000002\.blk.*fails its checksum"),
    ):
        torches.run_workers(corpus, block=16, samples=600, workers=2, batch=64, step_s=0, decode_s=0)


@needs_torch
def test_the_verb(blocks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "measure",
        "loading",
        str(blocks),
        "--set",
        "loader=pooled_workers",
        "--set",
        "block=16",
        "--set",
        "workers=[1,2]",
    ]
    assert command_line([*arguments, "--batch", "16", "--decode", "1ms", "--step", "5ms", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["loader"] == "pooled_workers" and [row["workers"] for row in said["workers"]] == [1, 2]
    assert (
        command_line(
            [
                "measure",
                "loading",
                str(blocks),
                "--set",
                "step_by=torch",
                "--step",
                "20ms",
                "--probe",
                "1s",
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["samples_per_s"] > 0
    assert command_line([*arguments[:5], "--set", "block=17"]) == 2


def test_runs_too_short_to_fit_are_refused() -> None:
    run = torches.WorkerRun(np.full(4, 0.1), 0.4, (64, 64, 64, 64))
    with pytest.raises(UsageError, match="at least three each"):
        torches.fit_workers([(2, run)], 64)
