"""MLPerf Storage: a simulated epoch against closed forms, intervals on systems that were made up, the published results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.domains.loading.engine.run import run_epochs
from forerun.domains.loading.inputs import prepare
from forerun.domains.loading.scenario import Dataset, Loader, Run, Scenario, Step, Store
from forerun.errors import DataError
from forerun.replication import reproduce_all
from forerun.replication.mlperf_storage import limit
from forerun.replication.mlperf_storage.facts import pairs
from forerun.replication.mlperf_storage.limit import fit_law, forecast
from forerun.replication.mlperf_storage.model import (
    Span,
    batch_mib,
    limit_of,
    misses,
    most_that_pass,
    simulated,
    span_of,
    utilisations,
    widened,
)
from forerun.replication.mlperf_storage.reproduce import compared, inside, judged, stopped
from forerun.replication.mlperf_storage.results import (
    MIB,
    Result,
    Workload,
    read_results,
    read_workloads,
    stops,
)
from forerun.result.reproduction import Reproduced, Row, silent

from ..conftest import shared_path
from .conftest import shown_on_the_page

TORCH = Workload("unet3d", "h100", True, 146600628.0, 68341808.0, 7, 0.323, 4, 0.9)
PIPELINE = Workload("resnet50", "h100", False, 114660.07, 0.0, 400, 0.224, 8, 0.9)


def result(
    workload: Workload, accelerators: int = 8, hosts: int = 1, mib_per_s: float = 1.0, system: str = "s"
) -> Result:
    records = 500 * workload.batch * accelerators
    return Result(
        system,
        system,
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
    limits = {one: limit_of(one) for one in others}
    target = result(TORCH, 10, 2, 25_000.0)
    span = span_of(target, others, limits)
    assert span is not None and span.low < span.high
    assert span_of(replace(target, mib_per_s=1.0), others, limits) == span
    assert span_of(replace(target, system="another"), others, limits) is None
    # The link: no faster than was seen on as many hosts.
    assert span.low <= max(limits[others[0]], limits[others[1]])


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
            results.append(replace(bare, mib_per_s=simulated(bare, own).mib_per_s))
    limits = {one: limit_of(one) for one in results}
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


def test_a_pipeline_is_that_of_the_event_engine() -> None:
    """Threads of several accelerators on one link, event by event: one accelerator with its share stands for all."""
    few = replace(PIPELINE, batch=20, record_bytes=2_000_000.0, threads=2)
    for share in (0.5, 0.9, 1.6):
        one = replace(result(few, 4), records=80 * few.batch * 4)
        link = share * one.ideal_mib_per_s
        scenario = Scenario(
            dataset=Dataset(samples=80 * few.batch, sample_bytes=few.record_bytes),
            store=Store(shared_bytes_per_s=link * MIB),
            loader=Loader(threads=few.threads, buffer_samples=2 * few.batch),
            step=Step(step_s=few.computation_s),
            run=Run(batch=few.batch),
            jobs=4,
        )
        epochs = run_epochs(prepare(scenario)).epochs
        together = 80 * few.batch * 4 * few.record_bytes / MIB / max(epoch.total_s for epoch in epochs)
        assert simulated(one, link).mib_per_s == pytest.approx(together, rel=0.02)


# --- the rate at which a submitter stopped ----------------------------------------------------------------------------

#: both accelerators of three kinds of loading: name, accelerator, torch, record, batch, step, required
KINDS = tuple(
    Workload(name, accelerator, name == "unet3d", record, 0.0, batch, step_s, 4, required)
    for name, accelerator, record, batch, step_s, required in (
        ("unet3d", "a100", 146600628.0, 7, 0.636, 0.9),
        ("unet3d", "h100", 146600628.0, 7, 0.323, 0.9),
        ("resnet50", "a100", 114660.07, 400, 0.435, 0.9),
        ("resnet50", "h100", 114660.07, 400, 0.224, 0.9),
        ("cosmoflow", "a100", 2828486.0, 1, 0.00551, 0.7),
        ("cosmoflow", "h100", 2828486.0, 1, 0.0035, 0.7),
    )
)


def made_up(system: str, links: Sequence[float], hosts: int = 1) -> list[Result]:
    """Results of a system whose link is known: as many accelerators as still compute for the required share of their time.

    Parameters
    ----------
    links : what the store delivers to each of `KINDS` [MiB/s].
    """
    found = []
    for workload, link in zip(KINDS, links, strict=True):
        count = max(1, int(link / workload.required / workload.ideal_mib_per_s))
        bare = result(workload, count, hosts, system=system)
        epoch = simulated(bare, link)
        found.append(replace(bare, mib_per_s=epoch.mib_per_s, utilisation=epoch.utilisation))
    return found


def drawn_systems(
    count: int, rng: np.random.Generator, prefix: str
) -> list[tuple[list[Result], list[float]]]:
    """Made-up systems on drawn links, and what each result had of it: a workload and a result have their own shares."""
    systems = []
    for number in range(count):
        hosts = int(rng.integers(1, 12))
        link = hosts * math.exp(rng.uniform(math.log(6e3), math.log(6e4)))
        mixed = {workload.name: rng.normal(-0.4 * (workload.batch == 1), 0.2) for workload in KINDS}
        links = [link * math.exp(mixed[workload.name] + rng.normal(0.0, 0.2)) for workload in KINDS]
        systems.append((made_up(f"{prefix}{number}", links, hosts), links))
    return systems


def by_weights(
    target: Result, others: Sequence[Result], mixed_sd: float, stop_sd: float
) -> tuple[float, float]:
    """The forecast by regression on indicator columns with normal priors: the same model by its weights."""
    systems = sorted({one.system for one in others} | {target.system})
    names = sorted({one.workload.name for one in others} | {target.workload.name})
    both = [(system, name) for system in systems for name in names]

    def row(one: Result) -> list[float]:
        return [
            1.0,
            math.log(one.hosts),
            *(float(one.system == system) for system in systems),
            *(float(one.workload.name == name) for name in names),
            *(float((one.system, one.workload.name) == pair) for pair in both),
        ]

    priors = [limit.LEVEL_SD, limit.SLOPE_SD, *[limit.SYSTEM_SD] * len(systems)]
    priors += [*[limit.WORKLOAD_SD] * len(names), *[mixed_sd] * len(both)]
    design = np.array([row(one) for one in others])
    rates = np.array([math.log(one.mib_per_s / one.hosts) for one in others])
    precision = design.T @ design / stop_sd**2 + np.diag(1 / np.square(priors))
    at = np.array(row(target))
    mean = at @ np.linalg.solve(precision, design.T @ rates) / stop_sd**2 + math.log(target.hosts)
    return float(mean), float(math.sqrt(at @ np.linalg.solve(precision, at) + stop_sd**2))


def test_a_forecast_is_that_of_the_regression() -> None:
    known = [one for found, _ in drawn_systems(4, np.random.default_rng(3), "s") for one in found]
    for one in known[:8]:
        others = [other for other in known if other is not one]
        found = forecast(one, known, 0.25, 0.15)
        assert found is not None and found.least_mib_per_s == 0
        assert (found.log_mib_per_s, found.sd) == pytest.approx(by_weights(one, others, 0.25, 0.15), rel=1e-7)
        assert forecast(replace(one, mib_per_s=1.0, utilisation=0.1), others, 0.25, 0.15) == found
    assert forecast(known[0], [one for one in known if one.system != known[0].system], 0.25, 0.15) is None


def test_fewer_accelerators_are_a_lower_bound_and_nothing_else() -> None:
    ((found, _),) = drawn_systems(1, np.random.default_rng(5), "s")
    one, *others = found
    fewer = replace(one, accelerators=1, mib_per_s=one.mib_per_s / 50)
    plain, low = forecast(one, others, 0.2, 0.2), forecast(one, [*others, fewer], 0.2, 0.2)
    assert plain is not None and low == replace(plain, least_mib_per_s=fewer.mib_per_s)
    assert low is not None and low.at(-1e3) == fewer.mib_per_s
    more = replace(one, accelerators=one.accelerators + 1, mib_per_s=2 * one.mib_per_s)
    high = forecast(one, [*others, more], 0.2, 0.2)
    assert high is not None and high.log_mib_per_s > plain.log_mib_per_s
    assert stops([fewer, one, more]) == [more]


def test_drawn_links_lie_in_their_intervals_as_often_as_these_say() -> None:
    """The law from some made-up systems; what the link gave to each result of others from the rest of its system."""
    rng = np.random.default_rng(11)
    known = [one for found, _ in drawn_systems(14, rng, "known") for one in found]
    law = fit_law(known)
    assert 0.1 <= law.mixed_sd <= 0.3 and 0.15 <= law.stop_sd <= 0.25
    within, widths = [], []
    for found, links in drawn_systems(40, rng, "new"):
        for one, link in zip(found, links, strict=True):
            expected = forecast(one, [*known, *found], law.mixed_sd, law.stop_sd)
            assert expected is not None
            span = law.interval(expected)
            within.append(span.low <= link <= span.high)
            widths.append(span.high / span.low)
    assert 0.85 <= statistics.fmean(within) <= 0.95
    assert statistics.median(widths) < 2.8


def test_a_store_that_is_the_only_limit_is_recovered() -> None:
    """Where every workload gets the whole link, only whole accelerators and start-up lie between it and the interval."""
    rng = np.random.default_rng(2)
    links = [math.exp(rng.uniform(math.log(2e4), math.log(2e5))) for _ in range(12)]
    systems = [made_up(f"s{at}", [link] * len(KINDS)) for at, link in enumerate(links)]
    law = fit_law([one for found in systems[:6] for one in found])
    everything = [one for found in systems for one in found]
    for link, found in zip(links[6:], systems[6:], strict=True):
        for one in found:
            expected = forecast(one, everything, law.mixed_sd, law.stop_sd)
            assert expected is not None
            span = law.interval(expected)
            assert 0.96 * link < span.low < span.high < 1.04 * link


# --- the published results --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workloads() -> dict[tuple[str, str], Workload]:
    return read_workloads(shared_path("data", "loading", "mlperf") / "workloads.csv")


@pytest.fixture(scope="module")
def results(workloads: dict[tuple[str, str], Workload]) -> tuple[Result, ...]:
    return read_results(shared_path("data", "loading", "mlperf") / "storage_v1_0.csv", workloads)


@pytest.fixture(scope="module")
def reproduced(results: tuple[Result, ...], workloads: dict[tuple[str, str], Workload]) -> Reproduced:
    return compared(results, workloads, silent)


@pytest.fixture(scope="module")
def rows(reproduced: Reproduced) -> dict[str, Row]:
    return {row.name: row for row in reproduced.rows}


def test_the_published_results(reproduced: Reproduced, rows: dict[str, Row]) -> None:
    """Nine of ten lie inside each of three intervals, whose width is on the page; utilisation follows from throughput."""
    assert not reproduced.failed and sum(row.ok is True for row in reproduced.rows) == 19
    for what, coverage, wide, width in (
        (
            "samples/s in its 90 % interval from the others of its system, % of the results",
            90.6,
            "width of the intervals of samples/s: high over low, median",
            1.24,
        ),
        (
            "utilisation in its 90 % interval from the others of its system, % of the results",
            91.7,
            "width of the intervals of utilisation, points, median",
            18.1,
        ),
        (
            "rate at which a submitter stopped in its 90 % interval, % of the settings",
            88.5,
            "width of the intervals of this rate: high over low, median",
            2.41,
        ),
    ):
        row = rows[what]
        assert row.ok and (row.published, row.tolerance) == (90, 5)
        ours = (row.corrected or 0.0, rows[wide].corrected or 0.0)
        assert [round(ours[0], 1), round(ours[1], 1 if width > 10 else 2)] == [coverage, width]
        assert shown_on_the_page("interval of 90 %", what.partition(" in its")[0], ours)
    for name, most in (("unet3d", 0.7), ("resnet50", 0.2), ("cosmoflow", 0.6)):
        error = rows[f"{name}: utilisation from throughput, mean error, points"].corrected
        assert error is not None and error < most
        inside_one = rows[f"{name}: results inside, %"].corrected
        assert inside_one is not None and inside_one >= 85
    assert [figure.id.removeprefix("mlperf-storage-") for figure in reproduced.figures] == [
        "utilisation", "intervals", "rates", "rates-by-system",
    ]  # fmt: skip


def test_the_numbers_mean_what_is_said_of_them(results: tuple[Result, ...], rows: dict[str, Row]) -> None:
    """Each fact from the table itself, by arithmetic that the rows do not share."""
    for one in results:
        workload = one.workload
        assert one.samples_per_s * workload.record_bytes / 1024**2 == pytest.approx(one.mib_per_s, rel=1e-5)
        busy = one.samples_per_s * workload.computation_s / workload.batch / one.accelerators
        assert (busy, one.busy_share) == pytest.approx((one.busy, one.busy), abs=1e-5)
        assert one.busy < one.utilisation
    torch = [one for one in results if one.workload.torch]
    waves = [one.first_step_s / (one.workload.computation_s / one.utilisation) for one in torch]
    workers = [one.threads for one in torch]
    assert np.corrcoef(waves, workers)[0, 1] > 0.85
    first = rows["first step of an epoch, in steps for each worker process, median"].corrected
    assert first == pytest.approx(np.median(np.array(waves) / workers)) == pytest.approx(1.0, abs=0.05)
    both = pairs(results)
    counts = np.array([[fast.accelerators, slow.accelerators] for fast, slow in both])
    steps = np.array([[fast.workload.computation_s, slow.workload.computation_s] for fast, slow in both])
    errors = 100 * np.abs(counts[:, 0] * steps[:, 1] / steps[:, 0] / counts[:, 1] - 1)
    assert [len(both), *np.round([np.median(errors), errors.mean(), errors.max()], 1)] == [
        28,
        11.2,
        19.5,
        72.6,
    ]


@pytest.mark.parametrize(
    ("by", "errors"),
    [("a bare link", (12.1, 19.7, 72.5)), ("the ratio of computation times", (11.2, 19.5, 72.6))],
)
def test_what_simpler_laws_miss_by(rows: dict[str, Row], by: str, errors: tuple[float, float, float]) -> None:
    for which, error in zip(("median", "mean", "worst"), errors, strict=True):
        row = rows[f"A100 that pass, from H100, by {by}: {which} error, %"]
        assert row.ok and row.corrected == pytest.approx(error, abs=0.06)


def test_names_and_order_change_nothing_and_nor_does_the_target(results: tuple[Result, ...]) -> None:
    some = results[:30]
    limits = {one: limit_of(one) for one in some}
    plain, ends = judged(some, limits), {one.result: one.interval for one in stopped(some)}
    renamed = [replace(one, system=one.system[::-1], submitter=one.submitter[::-1]) for one in reversed(some)]
    again = judged(renamed, {one: limit_of(one) for one in renamed})
    for one, two in zip(plain, reversed(again), strict=True):
        assert one.widened == two.widened
    backwards = {one.result: one.interval for one in stopped(renamed)}
    for one, two in zip(some, reversed(renamed), strict=True):
        if one in ends:
            assert (ends[one].low, ends[one].high) == pytest.approx(
                (backwards[two].low, backwards[two].high), rel=1e-9
            )
    # Half the throughput of one of them: its own intervals stay, those of its system's others do not.
    changed = [replace(some[8], mib_per_s=some[8].mib_per_s / 2, utilisation=0.5), *some[9:], *some[:8]]
    after = {one.result: one.widened for one in judged(changed, {one: limit_of(one) for one in changed})}
    before = {one.result: one.widened for one in plain}
    assert after[changed[0]] == before[some[8]]
    assert any(after[one] != before[one] for one in some if one.system == some[8].system and one in after)


def test_utilisation_at_the_ends_is_that_of_the_throughput(results: tuple[Result, ...]) -> None:
    for one in results[::7]:
        span = utilisations(one, Span(0.5 * one.mib_per_s, one.ideal_mib_per_s))
        assert span.low == pytest.approx(0.5 * one.busy, rel=0.15) and span.high == pytest.approx(1, abs=1e-6)


def test_a_system_alone_is_not_predicted(
    results: tuple[Result, ...], workloads: dict[tuple[str, str], Workload]
) -> None:
    found = compared(results[:1], workloads, silent)
    assert not found.failed and not any("interval from the others" in row.name for row in found.rows)
    assert {row.name: row.corrected for row in found.rows}["results whose system has no other"] == 1
    two = compared(results[:2], workloads, silent)
    assert not any(math.isnan(row.corrected or 0.0) for row in two.rows)


def test_without_the_data_it_says_what_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_DATA_DIR", str(tmp_path))
    (attempt,) = reproduce_all(["mlperf-storage"])
    assert attempt.reproduced is None and not attempt.failed
    assert "mlperf/workloads.csv" in attempt.absent[0] and str(tmp_path) in attempt.absent[0]
