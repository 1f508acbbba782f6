"""A plan's settings for other libraries do what the plan decided: as many samples a shard, and as fast with workers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import webdataset

import forerun
from forerun.core.cli.main import run
from forerun.core.scenarios import loads
from forerun.loading.engine.cells import predict_cells
from forerun.loading.inputs import Inputs, prepare
from forerun.loading.plan import LARGEST_SHARD, plan, settings_of
from forerun.loading.policy import Cell

from ..conftest import cases

BASE = """
domain: loading
dataset: {samples: 6400, sample_bytes: 50000}
store: {latency_s: 20ms, conn_bytes_per_s: 600MB/s}
cpu: {decode_s: 1ms}
loader: {threads: 1, buffer_samples: 256}
step: {step_s: 100ms}
run: {batch: 64}
grid: {blocks: [1, 4, 16], threads: [1, 2, 4, 8]}
"""
TORCH, TAR = "torch.utils.data.DataLoader", "webdataset.ShardWriter"
MDS, LITDATA = "streaming.MDSWriter", "litdata.optimize"


def sized(sizes: Sequence[int]) -> Inputs:
    scenario = loads(BASE, [f"dataset.samples={len(sizes)}", "run.batch=1"])
    return Inputs(scenario, np.asarray(sizes, np.float64))


def shards_by_bytes(sizes: Sequence[int], limit: int, *, a_sample: int = 0, a_shard: int = 0) -> list[int]:
    """Samples of each shard as MDS and LitData cut them: one ends before the sample with which it would exceed the limit.

    `a_sample` and `a_shard` are what MDS adds: an offset and a length of each sample, and the count with the columns' names.
    """
    shards, filled = [0], a_shard
    for size in sizes:
        if shards[-1] and filled + size + a_sample > limit:
            shards.append(0)
            filled = a_shard
        shards[-1] += 1
        filled += size + a_sample
    return shards


@pytest.mark.parametrize("block", [2, 3, 16, 300])
def test_shards_have_as_many_samples_as_the_blocks(block: int, tmp_path: Path) -> None:
    """Exactly where samples are of one size, in the mean where they are not; a tar always."""
    settings = settings_of(sized([5000] * 2000), Cell(block, 4))
    limit = settings[MDS]["size_limit"]
    assert limit == settings[LITDATA]["chunk_bytes"]
    assert set(shards_by_bytes([5000] * 2000, limit)[:-1]) == {block}
    if block <= 16:  # the names of columns and the offsets of a few samples are less than half a sample
        assert set(shards_by_bytes([5000] * 2000, limit, a_sample=8, a_shard=250)[:-1]) == {block}
    rng = np.random.default_rng(block)
    sizes = (5000 * rng.lognormal(-0.125, 0.5, 12_000)).astype(int).tolist()
    settings = settings_of(sized(sizes), Cell(block, 4))
    counts = shards_by_bytes(sizes, settings[LITDATA]["chunk_bytes"])[:-1]
    assert np.mean(counts) == pytest.approx(block, rel=0.08)

    few = [size // 50 for size in sizes[: 5 * block + 1]]
    given = settings_of(sized(few), Cell(block, 4))[TAR]
    with webdataset.ShardWriter(str(tmp_path / "%02d.tar"), verbose=0, **given) as writer:
        for number, size in enumerate(few):
            writer.write({"__key__": f"{number:05}", "bin": bytes(size)})
    written = [
        len(list(webdataset.WebDataset(str(path), shardshuffle=False))) for path in sorted(tmp_path.iterdir())
    ]
    assert written == [block] * 5 + [1]


def test_workers_of_torch_are_as_fast_as_the_plan() -> None:
    """Drawn stores and steps: the plan's threads and blocks, handed to the recursion of worker processes."""
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(cases(5, 12)):
        buffer = int(rng.choice([64, 256, 1024]))
        scenario = loads(BASE, [
            f"store.latency_s={rng.exponential(0.02):.4f}", f"cpu.decode_s={rng.uniform(2e-4, 4e-3):.5f}",
            f"step.step_s={rng.uniform(0.02, 0.6):.3f}", f"loader.buffer_samples={buffer}",
        ])  # fmt: skip
        made = plan(scenario)
        cell, torch = made.chosen.cell, made.settings[TORCH]
        assert torch["prefetch_factor"] == math.ceil(buffer / 64 / torch["num_workers"])
        loader = scenario.loader.with_(mode="workers", prefetch=torch["prefetch_factor"])
        other = prepare(scenario.with_(loader=loader, grid=None))
        workers = Cell(cell.block, 1, torch["num_workers"])
        (found,) = predict_cells(other, [workers])
        # A worker hands over whole batches: the first takes it longer than threads that fill one together.
        first_s = 64 * (scenario.store.latency_s / cell.block + 50_000 / 600e6 + scenario.cpu.decode_s)
        assert found.total_s <= 1.02 * made.chosen.total_s + first_s, (cell, torch)
        seen.add(torch["num_workers"])
    assert len(seen) > 2


def test_what_is_not_decided_is_absent() -> None:
    inputs = sized([5000] * 2000)
    assert set(settings_of(inputs, Cell(1, 4))) == {TORCH}
    open_ended = Inputs(loads(BASE, ["loader.buffer_samples=0"]), inputs.sizes)
    assert settings_of(open_ended, Cell(4, 4))[TORCH] == {"num_workers": 4}
    pooled = ["loader={mode: pooled_workers, workers: 1, prefetch: 3}", "grid.workers=[2]"]
    scenario = loads(BASE, pooled)
    assert settings_of(Inputs(scenario, inputs.sizes), Cell(4, 2, 6))[TORCH] == {
        "num_workers": 6, "prefetch_factor": 3,
    }  # fmt: skip
    huge = sized([LARGEST_SHARD // 8] * 64)
    assert set(settings_of(huge, Cell(7, 1))) == {TORCH, MDS, LITDATA, TAR}
    assert set(settings_of(huge, Cell(8, 1))) == {TORCH, TAR}  # no shard of theirs may be as large


def test_where_they_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the screen, with --json, and in the file, the same; the lines to paste stay a program."""
    (tmp_path / "s.yaml").write_text(BASE)
    made = forerun.plan(loads(BASE))
    assert set(made.settings) == {TORCH, MDS, LITDATA, TAR}
    compile(made.code, "code", "exec")
    assert run(["plan", str(tmp_path / "s.yaml"), "-o", str(tmp_path / "p.json")]) == 0
    text = capsys.readouterr().out
    for name, given in made.settings.items():
        for key, number in given.items():
            assert f"{name}(..., " in text and f"{key}={number}" in text
    assert run(["plan", str(tmp_path / "s.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == made.settings
    assert json.loads((tmp_path / "p.json").read_text())["plan"]["settings"] == made.settings
