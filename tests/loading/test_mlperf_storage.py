"""MLPerf Storage: a simulated epoch against closed forms, intervals on systems that were made up, the published results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.errors import DataError
from forerun.replication.mlperf_storage.model import (
    Span,
    batch_mib,
    limit_of,
    misses,
    most_that_pass,
    simulated,
    span_of,
    widened,
)
from forerun.replication.mlperf_storage.reproduce import inside, judged, mlperf_storage, published
from forerun.replication.mlperf_storage.results import MIB, Result, Workload, read_results, read_workloads
from forerun.result.reproduction import Row, silent

from ..conftest import shared_path

TORCH = Workload("unet3d", "h100", True, 146600628.0, 68341808.0, 7, 0.323, 4, 0.9)
PIPELINE = Workload("resnet50", "h100", False, 114660.07, 0.0, 400, 0.224, 8, 0.9)


def result(
    workload: Workload, accelerators: int = 8, hosts: int = 1, mib_per_s: float = 1.0, system: str = "s"
) -> Result:
    records = 500 * workload.batch * accelerators
    return Result(
        system,
        f"{system}-{accelerators}",
        workload,
        accelerators,
        hosts,
        mib_per_s,
        0.9,
        records,
        workload.threads,
        0,
    )


@pytest.mark.parametrize("workload", [TORCH, PIPELINE])
def test_a_link_that_is_free_or_narrow_gives_its_limit(workload: Workload) -> None:
    one = result(workload)
    free = simulated(one, 1e12)
    assert free.mib_per_s == pytest.approx(
        one.ideal_mib_per_s, rel=1e-3
    ) and free.utilisation == pytest.approx(1)
    # A narrow one is the throughput, but for the last step; utilisation is what it feeds.
    narrow = simulated(one, one.ideal_mib_per_s / 3)
    assert narrow.mib_per_s == pytest.approx(one.ideal_mib_per_s / 3, rel=0.02)
    assert narrow.utilisation == pytest.approx(1 / 3, rel=0.03)


def test_throughput_grows_with_the_link_and_gives_it_back() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        workload = [TORCH, PIPELINE][int(rng.integers(2))]
        one = result(workload, int(rng.integers(1, 40)))
        share = float(rng.uniform(0.2, 1.05))
        low, high = (simulated(one, one.ideal_mib_per_s * each).mib_per_s for each in (share, share * 1.1))
        assert low <= high
        seen = replace(one, mib_per_s=low)
        if low < 0.97 * one.ideal_mib_per_s:
            assert limit_of(seen) == pytest.approx(one.ideal_mib_per_s * share, rel=0.01)
    assert math.isinf(limit_of(replace(result(TORCH), mib_per_s=1e9)))


def test_the_first_step_is_in_the_throughput_and_not_in_the_utilisation() -> None:
    one = result(TORCH)
    epoch = simulated(one, 1.1 * one.ideal_mib_per_s)
    # All workers fetch their first batch at once: the first step waits for as many.
    first_s = TORCH.threads * batch_mib(TORCH, 500)[0] / (1.1 * TORCH.ideal_mib_per_s)
    busy = epoch.mib_per_s / one.ideal_mib_per_s
    assert busy == pytest.approx(500 * 0.323 / (500 * 0.323 / epoch.utilisation + first_s), rel=5e-3)


def test_records_vary_by_a_third() -> None:
    """A product of two normal sides: less than the configured spread, and the same mean."""
    batches = batch_mib(replace(TORCH, batch=1), 20_000)
    assert batches.mean() == pytest.approx(TORCH.record_bytes / MIB)
    assert batches.std() / batches.mean() == pytest.approx(0.33, abs=0.01)
    assert np.ptp(batch_mib(PIPELINE, 100)) == 0.0


def test_as_many_pass_as_the_link_feeds() -> None:
    one = result(PIPELINE, 50)
    link = 40.5 * PIPELINE.ideal_mib_per_s
    many = most_that_pass(one, link)
    assert simulated(one, link, many).utilisation >= 0.9 > simulated(one, link, many + 1).utilisation
    assert many == pytest.approx(40.5 / 0.9, abs=1)


def test_an_interval_knows_nothing_of_its_target() -> None:
    others = [
        result(TORCH, 8, mib_per_s=20_000.0),
        result(TORCH, 12, 2, 30_000.0),
        result(PIPELINE, 9, mib_per_s=900.0),
    ]
    limits = {one.label: limit_of(one) for one in others}
    target = result(TORCH, 10, 2, 25_000.0)
    span = span_of(target, others, limits)
    assert span is not None and span.low < span.high
    assert span_of(replace(target, mib_per_s=1.0), others, limits) == span
    assert span_of(replace(target, system="another"), others, limits) is None
    # The link: no faster than was seen on as many hosts.
    assert span.low <= max(limits[others[0].label], limits[others[1].label])


def test_widening_covers_the_share_of_its_scores() -> None:
    scores = np.random.default_rng(2).normal(size=999).tolist()
    wide = widened(Span(10.0, 20.0), scores, 0.9, 1e9)
    factor = math.exp(sorted(scores)[899])
    assert (wide.low, wide.high) == pytest.approx((10.0 / factor, 20.0 * factor))
    assert widened(Span(10.0, 20.0), scores, 0.9, 15.0).high == 15.0
    assert misses(Span(10.0, 20.0), 15.0) < 0 < misses(Span(10.0, 20.0), 21.0)


def test_intervals_cover_systems_that_were_made_up() -> None:
    """Links that differ from result to result by a tenth: nine of ten lie inside, of systems that nothing was learned of."""
    rng = np.random.default_rng(3)
    results = []
    for system in range(60):
        link = float(np.exp(rng.uniform(9, 12)))
        for workload in (TORCH, replace(TORCH, accelerator="a100", computation_s=0.636)):
            own = link * float(np.exp(rng.normal(0, 0.1)))
            bare = result(workload, system=f"s{system}")
            bare = replace(bare, accelerators=max(1, int(own / workload.ideal_mib_per_s / 0.93)))
            results.append(replace(bare, mib_per_s=simulated(bare, own).mib_per_s, name=f"s{system}"))
    limits = {one.label: limit_of(one) for one in results}
    every = judged(results, limits)
    assert 85 <= inside((one.result, one.widened) for one in every if one.widened is not None) <= 95


def test_damaged_tables_are_named_by_line(tmp_path: Path) -> None:
    folder = shared_path("data", "loading", "mlperf")
    workloads = read_workloads(folder / "workloads.csv")
    text = (folder / "storage_v1_0.csv").read_text()
    path = tmp_path / "results.csv"
    for damaged, message in (
        (
            text.replace("unet3d,a100,72,", "unet3d,a100,many,", 1),
            r"results\.csv:3: is no result: ValueError",
        ),
        (
            text.replace("cosmoflow,h100,64,", "cosmoflow,v100,64,", 1),
            r"results\.csv:2: is no result: KeyError",
        ),
        (text.replace("unet3d,a100,72,", "unet3d,a100,0,", 1), "a number is not above 0"),
        (text.partition("\n")[0], "contains no results"),
        ("a,b\n1,2\n", r"results\.csv:2: is no result"),
    ):
        path.write_text(damaged)
        with pytest.raises(DataError, match=message):
            read_results(path, workloads)
    with pytest.raises(DataError, match="cannot be read"):
        read_workloads(tmp_path / "none.csv")


@pytest.fixture(scope="module")
def mirror() -> Iterator[None]:
    """The shared files as the mirror of the registry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORERUN_DATA_DIR", str(shared_path("data", "loading", "mlperf").parents[1]))
        yield


@pytest.fixture(scope="module")
def rows(mirror: None) -> dict[str, Row]:
    return {row.name: row for row in mlperf_storage(silent).rows}


def test_the_published_results(rows: dict[str, Row], mirror: None) -> None:
    """Fifteen systems: nine of ten results inside; utilisation follows from throughput."""
    results = published()
    assert len(results) == 98 and len({one.system for one in results}) == 15
    assert len({one.label for one in results}) == 98
    covered = rows["results inside their 90 % interval from the others of their system, %"]
    assert covered.ok and 85 <= (covered.corrected or 0) <= 95
    for name, most in (("unet3d", 0.7), ("resnet50", 0.2), ("cosmoflow", 0.6)):
        error = rows[f"{name}: utilisation from throughput, mean error, points"].corrected
        assert error is not None and error < most
        inside_one = rows[f"{name}: results inside, %"].corrected
        assert inside_one is not None and inside_one >= 85


@pytest.mark.parametrize(
    ("by", "errors"),
    [("a bare link", (12.1, 19.7, 72.5)), ("the ratio of computation times", (11.2, 19.5, 72.6))],
)
def test_what_simpler_laws_miss_by(rows: dict[str, Row], by: str, errors: tuple[float, float, float]) -> None:
    row = rows[f"A100 that pass, from H100, by {by}: median error, %"]
    assert row.corrected == pytest.approx(errors[0], abs=0.05)
    assert row.note == f"28 pairs; mean {errors[1]}, worst {errors[2]}"
