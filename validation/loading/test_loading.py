"""Real loaders against the laws and predictions of the loading domain. Needs a machine that does nothing else.

Each check runs for seconds on sockets, threads and processes of this machine and compares how long that took with a
law or a prediction. Other programs disturb them, so they are no part of the test suite: `make validate` runs them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.blocks.container.container import Blocks
from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader.clients import HttpFiles
from forerun.loading.engine.calibration import fit_profile, predict
from forerun.loading.measure import torch_loader as torches
from forerun.loading.measure.answers import Job
from forerun.loading.measure.checking import check
from forerun.loading.measure.corpus import make_corpus, open_corpus
from forerun.loading.measure.probing import answer, measure_cell
from forerun.loading.measure.runner import Piece, run_loader
from forerun.loading.measure.store import LatencyStore, StoreSpec
from forerun.loading.policy import Ask, Cell, Load
from validation.loading.jobs import run_jobs


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Blocks:
    """640 samples of about 8 kB in blocks of 64."""
    folder = tmp_path_factory.mktemp("loading")
    make_corpus(folder / "files", 640, mean_bytes=8000)
    return pack(folder / "files", folder / "blocks", PackSpec(64))


def test_two_jobs_share_a_link_as_the_law_says(tmp_path: Path) -> None:
    """Two processes on a link of 8 MB/s: the mean rate is the law's within 15 %."""
    make_corpus(tmp_path / "files", 320, mean_bytes=20_000)
    packed = pack(tmp_path / "files", tmp_path / "blocks", PackSpec(16))
    link, size = 8e6, float(packed.index.length.mean())
    with (
        LatencyStore(packed.folder, StoreSpec(shared_bytes_per_s=link)) as store,
        open_corpus(store.url) as corpus,
    ):
        epochs = run_jobs(corpus, Job(step_s=0.001, decode_s=0.0), Cell(16, 1), 320, jobs=2)
    law = min(64 / 0.001, link / (2 * size))  # of a step of 1 ms on 64 samples, and of half the link
    assert np.mean([epoch.samples_per_s for epoch in epochs]) == pytest.approx(law, rel=0.15)


def test_decoders_in_the_interpreter_share_one_core(blocks: Blocks) -> None:
    """Threads whose decoder never releases the interpreter get about one core, whatever their number."""
    with open_corpus(str(blocks.folder)) as corpus:
        job = Job(step_s=0.0, decode_s=0.004, decode="python")
        probes = [measure_cell(corpus, job, Ask(cell, 64)) for cell in (Cell(1, 1), Cell(16, 1), Cell(16, 4))]
        load = Load(64, corpus.mean_bytes, 64, 0.0, 256)
    profile = fit_profile(*probes, load)
    assert probes[0].decode_cpu_s == pytest.approx(0.004, rel=0.3)
    assert profile.cores < 2.1 and "decode more slowly than one" in profile.notes[-1]
    assert predict(profile, load, Cell(16, 4)) >= 64 * 0.004 / profile.cores * 0.99


@pytest.mark.parametrize(
    ("spec", "length_bytes", "law_s"),
    [
        pytest.param(StoreSpec(latency_s=0.005, sigma=0.0, slots=2), 9, 200 * 0.005 / 2, id="slots"),
        pytest.param(
            StoreSpec(latency_s=0.005, sigma=0.0, shared_bytes_per_s=4e6),
            10_000,
            200 * 10_000 / 4e6,
            id="link",
        ),
    ],
)
def test_the_latency_store_serves_at_its_rate(
    blocks: Blocks, spec: StoreSpec, length_bytes: int, law_s: float
) -> None:
    """Sleeps that end late do not add up: a saturated store is at most 8 % slower than its law."""
    with LatencyStore(blocks.folder, spec) as store:
        pieces = [Piece("b000000.blk", 0, (length_bytes,), "x")] * 200
        run = run_loader(HttpFiles(store.url), pieces, threads=6, batch=16, step_s=0, decode_s=0)
    assert 0.98 * law_s <= run.total_s <= 1.08 * law_s


def test_merging_gains_tenfold_behind_latency(blocks: Blocks) -> None:
    """Behind 40 ms, one thread reads at least ten times as many samples a second from blocks of 64."""
    job = Job(step_s=0.0, decode_s=0.0)
    with LatencyStore(blocks.folder, StoreSpec(latency_s=0.04)) as store, open_corpus(store.url) as corpus:
        single = measure_cell(corpus, job, Ask(Cell(1, 1), 64)).total_s / 64
        merged = measure_cell(corpus, job, Ask(Cell(64, 1), 256)).total_s / 256
    assert single >= 10 * merged


def test_a_fast_store_feeds_the_training_step(blocks: Blocks) -> None:
    """Next to the disk, loading hides behind a step of 50 ms: the predicted rate is within 10 % of the bound."""
    job = Job(step_s=0.05, decode_s=0.0)
    with open_corpus(str(blocks.folder)) as corpus:
        advice = answer(corpus, job, probe_s=1.0)
    assert advice.load.samples / advice.predicted_s >= 0.9 * job.batch / job.step_s


def test_four_probes_predict_other_cells(blocks: Blocks) -> None:
    """Calibrated by at most four probes, other cells are within 5 % on average and 10 % at worst."""
    job = Job(step_s=0.02, decode_s=0.002)
    with (
        LatencyStore(blocks.folder, StoreSpec(latency_s=0.03, seed=1)) as store,
        open_corpus(store.url) as corpus,
    ):
        advice = answer(corpus, job, probe_s=1.5)
        rows = check(corpus, job, advice, [Cell(16, 1), Cell(16, 4)], 256, repeats=3)
    errors = [abs(row.error) for row in rows]
    assert np.mean(errors) <= 0.05 and max(errors) <= 0.10


def test_the_recursion_predicts_torch_workers(tmp_path: Path) -> None:
    """Batches of 0.26 s of sleep: two probes predict other workers, prefetch and steps within 5 %."""
    pytest.importorskip("torch", reason="torch is not installed: pip install 'forerun[torch]'")
    make_corpus(tmp_path / "files", 600, mean_bytes=3000)
    with open_corpus(str(pack(tmp_path / "files", tmp_path / "blocks", PackSpec(16)).folder)) as corpus:

        def run(workers: int, batches: int, step_s: float, prefetch: int = 2) -> torches.WorkerRun:
            return torches.run_workers(
                corpus, block=1, samples=64 * batches, workers=workers, batch=64, step_s=step_s, decode_s=0.004,
                prefetch=prefetch,
            )  # fmt: skip

        fit = torches.fit_workers([(1, run(1, 4, 0.0)), (4, run(4, 16, 0.0))], 64)
        assert fit.enough(0.1) == pytest.approx(-(-fit.build_at(1) // 0.1), abs=1)
        for workers, prefetch, step_s in ((1, 2, 0.05), (2, 1, 0.05), (4, 2, 0.1)):
            predicted_s = replace(fit, prefetch=prefetch).predict(64 * 12 * workers, workers, step_s)
            measured_s = run(workers, 12 * workers, step_s, prefetch).total_s
            assert predicted_s == pytest.approx(measured_s, rel=0.05), (workers, prefetch, step_s)
