"""Workloads of the DLIO benchmark, logs that nobody made for us, and what the verbs say of them; caches that weigh costs."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.cli.main import run as command_line
from forerun.core.domain import simulate
from forerun.core.errors import TraceError
from forerun.loading.engine.kernels.deliver import deliver
from forerun.loading.engine.model import CacheModel
from forerun.loading.engine.threads import hits_of, open_caches
from forerun.loading.scenario import Cache, Dataset, Layout, RandomBytes, Run, Scenario, Step, Store
from forerun.loading.traces.logs import fit_log
from forerun.loading.traces.workloads import read_demands, read_workload

from ..conftest import cases

WORKLOAD = """
model: {name: resnet50, type: cnn}
framework: tensorflow
workflow: {generate_data: False, train: True}
dataset: {num_files_train: 8, num_samples_per_file: 1251, record_length_bytes: 114660.07, format: tfrecord}
reader: {data_loader: tensorflow, read_threads: 8, computation_threads: 8, batch_size: 400}
train: {computation_time: 0.224, epochs: 5}
metric: {au: 0.90}
"""


def test_demands(golden: Callable[[str], Any], tmp_path: Path) -> None:
    rows = golden("dlio_demands.csv")
    path = tmp_path / "demands.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    found = read_demands(path)
    assert [work.name for work in found] == [row["workload"] for row in rows]
    for work, row in zip(found, rows):
        assert work.demand_bytes_per_s == pytest.approx(float(row["demand_bytes_per_s"]), rel=5e-6)
        assert work.utilisation_target == float(row["utilisation_target"])
    fed = {work.name: work.fed_by(10e9) for work in found}
    assert (fed["resnet50_h100"], fed["unet3d_h100"]) == (54, 3)  # as the reference page has it
    path.write_text(path.read_text().replace("0.224", "0.5"))
    with pytest.raises(TraceError, match=r"demands\.csv:2: demand .* is not batch \* record / computation"):
        read_demands(path)


def test_a_workload_becomes_a_scenario_and_a_store_feeds_so_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "resnet50_h100.yaml"
    path.write_text(WORKLOAD)
    work = read_workload(path)
    assert work.demand_bytes_per_s == pytest.approx(2.0475e8, rel=1e-4)
    link = 1e9
    fed = work.fed_by(link)
    assert fed == int(link / (0.9 * work.demand_bytes_per_s)) == 5
    # Simulated: so many accelerators compute for nine tenths of the time, one more does not.
    busy = []
    for jobs in (fed, fed + 1):
        scenario = work.scenario(Store(shared_bytes_per_s=link), jobs=jobs, samples=40 * work.batch)
        scenario = scenario.with_(
            layout=Layout(block_samples=20), dataset=scenario.dataset.with_(shuffle="none")
        )
        busy.append(simulate(scenario).summary["utilisation_share"])
    assert busy[0] >= 0.88 > busy[1]
    assert (
        command_line(["trace", "stats", "loading", str(path), "--set", "link_bytes_per_s=1GB/s", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["workloads"][0]["accelerators_fed"] == 5
    out = tmp_path / "loading.yaml"
    arguments = ["trace", "fit", "loading", str(path), "--set", "link_bytes_per_s=1GB/s", "-o", str(out)]
    assert command_line(arguments) == 0
    assert command_line(["simulate", str(out), "--json", "-q"]) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("batch_size: 400", "batch_size: -4"),
            r"w\.yaml:6: at \$\.reader\.batch_size: is -4; a number above 0 is expected",
        ),
        (("batch_size: 400", "batch: 400"), r"lacks reader\.batch_size"),
        (
            ("computation_time: 0.224", "computation_time: fast"),
            r"\$\.train\.computation_time: is 'fast'; a number above 0 is expected",
        ),
        (
            ("record_length_bytes: 114660.07", "record_length_bytes: 0"),
            r"record_length_bytes: is 0; a number above 0 is expected",
        ),
        (("au: 0.90", "au: 90"), r"w\.yaml:8: at \$\.metric\.au: 90 is not in"),
        ((WORKLOAD, "- 1\n"), "is not a DLIO workload"),
    ],
)
def test_bad_workloads_name_the_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD.replace(*change))
    with pytest.raises(TraceError, match=message):
        read_workload(path)


UNET = """
model: {name: unet3d}
framework: pytorch
dataset: {num_files_train: 168, num_samples_per_file: 1, record_length_bytes: 146600628, record_length_bytes_stdev: 68341808}
reader: {data_loader: pytorch, batch_size: 7, read_threads: 4}
train: {epochs: 5, computation_time: 0.323}
"""


def test_a_workload_of_pytorch_has_processes_and_sizes_that_vary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "unet3d.yaml", tmp_path / "loading.yaml"
    path.write_text(UNET)
    work = read_workload(path)
    assert work.processes and work.record_stdev_bytes == 68341808
    made = work.scenario(Store(shared_bytes_per_s=1e9))
    assert (made.loader.mode, made.loader.workers) == ("workers", 4)
    size = made.dataset.sample_bytes
    assert isinstance(size, RandomBytes) and size.mean_bytes == 146600628
    rng = np.random.default_rng(0)
    drawn = size.mean_bytes * np.exp(size.sigma * rng.standard_normal(200_000) - size.sigma**2 / 2)
    # DLIO draws the two sides of a record, each with half the spread of the size: a third of the mean, not 47 %.
    side = rng.normal(np.sqrt(146600628), 68341808 / (2 * np.sqrt(146600628)), (2, 1_000_000))
    assert np.std(side.prod(axis=0)) == pytest.approx(work.drawn_stdev_bytes, rel=0.01)
    assert work.drawn_stdev_bytes / work.record_bytes == pytest.approx(0.334, abs=5e-4)
    assert np.std(drawn) == pytest.approx(work.drawn_stdev_bytes, rel=0.02)
    many = work.scenario(Store(shared_bytes_per_s=1e9), jobs=3)
    assert (many.loader.mode, many.loader.threads) == ("threads", 4)
    path.write_text(
        UNET.replace("pytorch", "tensorflow").replace(", record_length_bytes_stdev: 68341808", "")
    )
    plain = read_workload(path).scenario(Store())
    assert (plain.loader.mode, plain.loader.threads, plain.dataset.sample_bytes) == ("threads", 4, 146600628)

    # A workload says nothing of the store: without one, nothing is fitted, and nothing can be called hidden.
    path.write_text(UNET)
    fit = ["trace", "fit", "loading", str(path), "-o", str(out)]
    assert command_line([*fit, "--set", "latency_s=5ms"]) == 2
    assert "unet3d.yaml: says nothing of the store: give its bandwidth" in capsys.readouterr().err
    assert not out.exists()
    hidden = []
    for link in ("1GB/s", "40GB/s"):
        assert command_line([*fit, "--set", f"link_bytes_per_s={link}"]) == 0
        out.rename(tmp_path / "kept.yaml")
        capsys.readouterr()
        assert command_line(["simulate", str(tmp_path / "kept.yaml"), "--json", "-q"]) == 0
        hidden.append(json.loads(capsys.readouterr().out)["summary"]["hidden"])
    assert hidden == [False, True]


def test_a_log_betrays_its_workers(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All published series that stall: eight workers each, and the total that the log has.

    From the log of one step time, the total at another: short last batches are in both.
    """
    logs: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    with (published / "cndlsys_batch_series_imagenet.csv").open() as file:
        for row in csv.DictReader(file):
            logs[row["run_id"]][0].append(float(row["load_s"]))
            logs[row["run_id"]][1].append(float(row["compute_s"] or "nan"))
    fitted = {}
    for name, (load, step) in logs.items():
        given = np.array(step)
        try:
            found = fit_log(np.array(load), given[np.isfinite(given)])
        except TraceError:
            continue
        assert found.workers == 8
        if len(given) == np.isfinite(given).sum():
            assert found.predicted_s(given, len(given)) == pytest.approx(found.total_s, rel=1e-9)
        fitted[name] = found
    assert len(fitted) == 35
    first, errors = fitted["baseline1/imagenet/remote/run1/0.1"], []
    for name, other in fitted.items():
        if name.startswith("baseline1/imagenet/remote") and other is not first:
            errors.append(math.log(first.predicted_s(other.step_s, other.batches) / other.total_s))
            low, high = (
                first.predicted_s(other.step_s, other.batches, build) for build in first.build_span_s()
            )
            assert low < first.predicted_s(other.step_s, other.batches) < high
    assert len(errors) == 11 and max(map(abs, errors)) < 0.05
    low_s, high_s = first.build_span_s(0.5)
    assert first.build_span_s()[0] < low_s < first.build_s < high_s < first.build_span_s()[1]
    made = deliver(np.arange(90) % 3, np.full(90, 1.2), np.array([0.1]), np.full(3, 0.4), 6)
    path = tmp_path / "log.csv"
    path.write_text("load_s,step_s\n" + "".join(f"{load},0.1\n" for load in made.load_s.tolist()))
    out = tmp_path / "fitted.yaml"
    assert command_line(["trace", "fit", "loading", str(path), "--set", "batch=64", "-o", str(out)]) == 0
    capsys.readouterr()
    assert command_line(["simulate", str(out), "--json", "-q"]) == 0
    total = json.loads(capsys.readouterr().out)["summary"]["total_s"]
    assert total == pytest.approx(made.total_s, rel=0.02)
    path.write_text("load_s,step_s\n" + "0.001,1\n" * 40)
    assert command_line(["trace", "fit", "loading", str(path)]) == 2
    assert "that wait 0% of their time" in capsys.readouterr().err


def test_files_of_drawn_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "files"
    drawn = ["--set", "sample_bytes={mean_bytes: 2kB, sigma: 0.8}"]
    assert command_line(["trace", "generate", "loading", *drawn, "-n", "400", "-o", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    sizes = [path.stat().st_size for path in sorted(out.rglob("*.bin"))]
    assert said["files"] == len(sizes) == 400 and said["bytes"] == sum(sizes)
    assert np.mean(sizes) == pytest.approx(2000, rel=0.15) and np.median(sizes) < np.mean(sizes)
    again = tmp_path / "again"
    assert command_line(["trace", "generate", "loading", *drawn, "-n", "400", "-o", str(again), "-q"]) == 0
    assert all(
        path.read_bytes() == (again / path.relative_to(out)).read_bytes() for path in out.rglob("*.bin")
    )
    assert command_line(["trace", "generate", "loading", "-o", str(out)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert command_line(["measure", "loading", str(out), "--step", "20ms", "--probe", "500ms", "-q"]) == 0


def test_stats_of_an_experiment(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["trace", "stats", "loading", str(published / "exp1"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["improvement"][0]["percent"] == pytest.approx(8.910390, abs=1e-5)
    assert any("F7 no-evidence" in flag for flag in said["flags"])
    assert (
        command_line(["trace", "stats", "loading", str(published / "exp1"), "--set", "mode=compat", "-q"])
        == 0
    )
    assert "F7" not in capsys.readouterr().out


# --- caches that weigh what fetching costs ----------------------------------------------------------------------


def greedy_dual(
    keys: list[int], sizes: list[float], capacity: float, fetch_s: float, per_byte_s: float
) -> list[bool]:
    """GreedyDual-Size with a dict and a search: a reference implementation of the compiled one."""
    cached: dict[int, tuple[float, int]] = {}
    inflation, hits = 0.0, []
    for turn, key in enumerate(keys):
        worth = fetch_s / sizes[key] + per_byte_s
        if key in cached:
            cached[key] = (inflation + worth, cached[key][1])
            hits.append(True)
            continue
        hits.append(False)
        if sizes[key] > capacity:
            continue
        while sum(sizes[k] for k in cached) + sizes[key] > capacity:
            leaving = min(cached, key=lambda k: cached[k])
            inflation = cached.pop(leaving)[0]
        cached[key] = (inflation + worth, turn)
    return hits


def test_caches_that_weigh_costs_follow_their_twin() -> None:
    rng = np.random.default_rng(4)
    for _ in range(cases(30, 150)):
        count = int(rng.integers(3, 30))
        sizes = rng.integers(1, 50, count).astype(float)
        keys = rng.integers(count, size=200)
        capacity = float(rng.uniform(0.05, 1.1) * sizes.sum())
        fetch_s, rate = float(rng.uniform(0.001, 0.1)), float(rng.uniform(100, 1e5))
        caches = open_caches([CacheModel(capacity, "cost", fetch_s=fetch_s, fetch_bytes_per_s=rate)], count)
        hits = hits_of(caches, 0, keys, sizes[keys]).tolist()
        assert hits == greedy_dual(keys.tolist(), sizes.tolist(), capacity, fetch_s, 1 / rate)
        assert caches.about[0, 1] <= capacity


def test_weighing_costs_saves_requests_where_sizes_differ() -> None:
    """Behind latency small blocks cost most a byte: keeping them hits more often than keeping what was used last."""
    scenario = Scenario(
        dataset=Dataset(samples=2000, sample_bytes=RandomBytes(mean_bytes=50_000, sigma=1.2)),
        store=Store(latency_s=0.02, conn_bytes_per_s=5e8),
        step=Step(step_s=0.02),
        run=Run(batch=50, epochs=4),
    )
    hits = {}
    for policy in ("lru", "cost", "pinned"):
        cache = Cache(capacity_bytes=4e7, policy=policy)  # type: ignore[arg-type]
        hits[policy] = simulate(scenario.with_(caches=(cache,))).summary["hit_share"]
    assert hits["cost"] > 1.5 * hits["lru"] and hits["cost"] > hits["pinned"]
