"""Jobs, caches and nodes in real processes: what is read is what the simulator says, request by request."""

from __future__ import annotations

import math
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.loading.reference import equal_jobs_rate

from forerun.blocks.container.container import Blocks, block_name
from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader.clients import LocalFiles
from forerun.core.errors import StoreError, TraceError
from forerun.loading.engine.calibration import StoreProfile
from forerun.loading.engine.model import CacheModel, StoreModel
from forerun.loading.engine.sharing import hit_shares
from forerun.loading.engine.threads import hits_of, open_caches
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import make_corpus, open_corpus
from forerun.loading.measure.probing import run_cell
from forerun.loading.measure.store import LatencyStore, StoreSpec
from forerun.loading.policy import Ask, Cell, Load
from forerun.loading.scenario import Nodes
from forerun.replication.cndlsys.runs import features, flags, read_experiment
from validation.loading.caching import CACHING_POLICIES, CachedFiles
from validation.loading.jobs import CacheSpec, predict_jobs, run_jobs
from validation.loading.layout import Memory, write_run
from validation.loading.nodes import predict_nodes, run_nodes


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Blocks:
    folder = tmp_path_factory.mktemp("rigs")
    make_corpus(folder / "files", 320, mean_bytes=20_000)
    return pack(folder / "files", folder / "blocks", PackSpec(16))


@pytest.fixture
def copy(blocks: Blocks, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in blocks.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


# --- jobs and caches ---------------------------------------------------------------------------------------------


def test_jobs_share_a_link_and_have_caches_of_their_own(blocks: Blocks) -> None:
    """Two processes on a link of 8 MB/s are no faster than the law allows; the second epoch hits."""
    link, size = 8e6, float(blocks.index.length.mean())
    job = Job(step_s=0.001, decode_s=0.0)
    cache = CacheSpec(0.5 * blocks.index.length.sum(), "pinned")
    with (
        LatencyStore(blocks.folder, StoreSpec(shared_bytes_per_s=link)) as store,
        open_corpus(store.url) as corpus,
    ):
        found = run_jobs(corpus, job, Cell(16, 1), 320, jobs=2, epochs=2, cache=cache)
        model = predict_jobs(
            corpus, StoreProfile(0.0, np.inf, np.inf, 0.0), Load(320, size, 64, 0.001, 256), Cell(16, 1), jobs=2, epochs=2,
            cache=cache, store=StoreModel(shared_bytes_per_s=link),
        )  # fmt: skip
    assert [(e.epoch, e.job) for e in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    # One thread asks in a fixed order: what the caches have is the same, request by request.
    assert [(e.hits, e.misses) for e in found] == [(e.hits, e.misses) for e in model]
    assert sum(e.hits for e in found if e.epoch == 0) == 0 and all(e.hits > 5 for e in found if e.epoch == 1)
    cold = [e.samples_per_s for e in found if e.epoch == 0]
    law = equal_jobs_rate(64, 0.001, link, size, 2)
    assert sum(cold) <= 2 * law * 1.1
    assert np.mean([e.samples_per_s for e in model if e.epoch == 0]) == pytest.approx(law, rel=0.08)


def test_a_job_that_fails_says_what_failed(copy: Path) -> None:
    with open_corpus(str(copy)) as corpus:
        (copy / "b000003.blk").unlink()
        with pytest.raises(
            StoreError, match=r"b000003\.blk: block 3, sample '.*' cannot be read: No such file"
        ):
            run_jobs(corpus, Job(step_s=0.0, decode_s=0.0), Cell(16, 2), 320, jobs=2)


@pytest.mark.parametrize("policy", CACHING_POLICIES)
def test_real_caches_hit_as_the_simulated_ones(blocks: Blocks, policy: Any) -> None:
    """The same requests in the same order, sizes that differ, any capacity: equal hits, equal most bytes cached."""
    rng = np.random.default_rng(3)
    sizes = [blocks.block_path(block).stat().st_size for block in range(blocks.blocks)]
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        capacity = share * sum(sizes)
        ours = CachedFiles(LocalFiles(blocks.folder), capacity, policy)
        keys = rng.integers(blocks.blocks, size=200)
        hits = []
        for key in keys.tolist():
            before = ours.hits
            assert len(ours.read(block_name(key), 0, sizes[key], "x")) == sizes[key]
            hits.append(ours.hits > before)
        theirs = open_caches([CacheModel(capacity, policy)], blocks.blocks)
        assert hits == hits_of(theirs, 0, keys, np.array(sizes, float)[keys]).tolist()
        assert ours.most_bytes == theirs.about[0, 1] <= capacity


def test_a_spawned_worker_gets_an_empty_cache_of_the_same_kind(blocks: Blocks) -> None:
    size = blocks.block_path(0).stat().st_size
    cache = CachedFiles(LocalFiles(blocks.folder), 2.0 * size, "fifo")
    here = cache.read(block_name(0), 0, size, "x")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_read_twice, (cache, block_name(0), size)) == (here, 2.0 * size, "fifo", 1, 1)
    assert (cache.hits, cache.misses, cache.most_bytes) == (0, 1, size)


def _read_twice(cache: CachedFiles, name: str, size: int) -> tuple[bytes, float, str, int, int]:
    cache.read(name, 0, size, "x")
    return cache.read(name, 0, size, "x"), cache.capacity_bytes, cache.policy, cache.hits, cache.misses


# --- nodes -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def equal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty blocks of four samples, all of one size."""
    folder = tmp_path_factory.mktemp("equal")
    files = folder / "files"
    files.mkdir()
    for number in range(160):
        (files / f"{number:03}.bin").write_bytes(np.random.default_rng(number).bytes(2000))
    return pack(files, folder / "blocks", PackSpec(4)).folder


@pytest.mark.parametrize(
    ("sharing", "policy"), [("partitioned", "pinned"), ("replicated", "pinned"), ("partitioned", "lru")]
)
def test_real_nodes_read_what_is_predicted(equal: Path, sharing: str, policy: str) -> None:
    """Two processes over loopback: the bytes needed are the bytes read, and where nothing leaves they are the law's."""
    whole = 320_000
    nodes = Nodes(count=2, cache_bytes=whole / 5, policy=policy, sharing=sharing, link_latency_s=0.001)  # type: ignore[arg-type]
    job = Job(batch=8, step_s=0.0, decode_s=0.0)
    with open_corpus(str(equal)) as corpus:
        real = run_nodes(corpus, job, Cell(4, 1), 160, nodes, epochs=3)
        profile = StoreProfile(0.0, math.inf, math.inf, 0.0)
        model = predict_nodes(corpus, profile, job.work(corpus, 160), Cell(4, 1), nodes, epochs=3)
    for found, predicted in zip(real, model):
        assert found.store_bytes + found.local_bytes + found.peer_bytes == whole
        law = hit_shares(nodes, whole, found.epoch)
        assert law is not None
        if (sharing, policy) == ("partitioned", "pinned"):
            assert found.store_bytes == predicted.store_bytes == pytest.approx(law.store * whole)
            assert (found.local_bytes, found.peer_bytes) == (predicted.local_bytes, predicted.peer_bytes)
        elif found.epoch:
            assert found.store_bytes == pytest.approx(law.store * whole, abs=0.2 * whole)
    assert (real[-1].peer_bytes > 0) == (sharing == "partitioned")


# --- the published experiment's layout ---------------------------------------------------------------------------


def test_runs_in_the_notebooks_layout_are_read_by_its_importer(blocks: Blocks, tmp_path: Path) -> None:
    """Numbers only: what is written is read back, gives the notebook's features, and holds no object array."""
    memory = Memory()
    with open_corpus(str(blocks.folder)) as corpus, memory.watched():
        job = Job(step_s=0.005, decode_s=0.0)
        runs = {cell: run_cell(corpus, job, Ask(cell, 160)) for cell in (Cell(1, 1), Cell(16, 2))}
    for number in (1, 2):
        write_run(
            tmp_path,
            Cell(1, 1),
            0.005,
            runs[Cell(1, 1)],
            memory,
            approach="baseline1",
            dataset="d",
            number=number,
        )
        made = write_run(
            tmp_path,
            Cell(16, 2),
            0.005,
            runs[Cell(16, 2)],
            memory,
            approach="ours",
            dataset="d",
            number=number,
        )
    with pytest.raises(StoreError, match="is there already"):
        write_run(tmp_path, Cell(16, 2), 0.005, runs[Cell(16, 2)], memory, approach="ours", dataset="d")
    assert made.name == "sim_compute_time=0.005" and (made / "opt_config").read_text() == "2,16"
    for path in made.glob("*.npy"):
        assert np.load(path, allow_pickle=False).dtype == np.float64
    found = read_experiment(tmp_path, dataset="d", place="remote")
    ours = next(run for run in found if run.approach == "ours")
    assert (ours.threads, ours.block, ours.merged, len(ours.load_s)) == (2, 16, True, 3)
    row = features(ours)
    assert row.load_s == runs[Cell(16, 2)].load_s.mean() and row.memory_mib > 10
    assert {flag.id for flag in flags(found)} >= {"F4"} and "F3" not in {flag.id for flag in flags(found)}
    # 160 samples in three batches, not three of the publication's 512.
    assert row.throughput == pytest.approx(160 / 3 / row.completion_s)
    (made / "memory.csv").write_text("process,page_cache\n1,x\n")
    with pytest.raises(TraceError, match=r"memory\.csv:2: '1,x' is not 2 whole numbers"):
        read_experiment(tmp_path, dataset="d", place="remote")
