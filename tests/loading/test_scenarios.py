"""Scenarios: results of runs, what is refused and where, plans, what-if parameters and reproductions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.errors import CheckFailed, ForerunError, Infeasible, ScenarioError
from forerun.core.scenarios import loads
from forerun.loading import plan as planning
from forerun.loading.explain import LoadingExplainer
from forerun.loading.figures import figures
from forerun.loading.inputs import prepare
from forerun.loading.policies.no_merge import NoMerge
from forerun.replication.cndlsys import reproduce
from forerun.replication.reproduction import silent

from ..conftest import cases
from .conftest import shown_on_the_page
from .reference import equal_batches_total_s

BASE = """
domain: loading
dataset: {samples: 1280, sample_bytes: 50000}
layout: {block_samples: 4}
store: {latency_s: 10ms, conn_bytes_per_s: 500MB/s}
cpu: {decode_s: 1ms}
loader: {threads: 2, buffer_samples: 256}
step: {step_s: 50ms, gpu_usd_per_h: $2/h}
run: {batch: 64}
"""


def run(*overrides: str) -> Any:
    return forerun.simulate(loads(BASE, overrides)).check()


def test_the_parts_of_an_epoch() -> None:
    result = run()
    ledger = result.ledgers[0]
    assert ledger.parts["compute"] == pytest.approx(20 * 0.05)
    assert ledger.whole == result.summary["total_s"] > ledger.parts["compute"]
    assert result.summary["bottleneck"] == "thread" and "blocks of" in result.why
    hidden = run("store.latency_s=0.0001", "loader.threads=8")
    assert hidden.summary["hidden"] and hidden.summary["stall_share"] < 0.05
    explainer = LoadingExplainer()
    assert explainer.answer(hidden.summary).holds and not explainer.answer(result.summary).holds
    paths = {what_if.path for what_if in explainer.what_ifs(loads(BASE), result)}
    assert paths >= {"layout.block_samples", "loader.threads"}
    assert len(figures(result)) >= 5


def test_workers_follow_the_recursion() -> None:
    common = ("cpu.collate_s=0.01", "layout.block_samples=1", "loader.workers=4")
    result = run("loader.mode=workers", *common)
    build = 64 * (0.01 + 50000 / 5e8 + 0.001) + 0.01
    assert result.summary["total_s"] == pytest.approx(equal_batches_total_s(20, 4, build, 0.05), rel=1e-9)
    pooled = run("loader.mode=pooled_workers", "layout.block_samples=32", *common[::2])
    assert pooled.summary["total_s"] < result.summary["total_s"]


def test_caches_cold_and_warm() -> None:
    result = run("run.epochs=3", "caches=[{capacity_bytes: 1GB, read_bytes_per_s: 2GB/s}]")
    cold, *warm = result.table("epochs")["samples_per_s"]
    assert min(warm) > 1.5 * cold
    assert result.table("epochs")["hit_share"].tolist() == [0, 1, 1]
    warmed = run("caches=[{capacity_bytes: 1GB, prewarm_share: 0.5}]")
    assert warmed.summary["hit_share"] == pytest.approx(0.5)


def test_the_same_scenario_the_same_bytes_and_streams_apart() -> None:
    random = ("store.latency_s={mean_s: 10ms}", "dataset.sample_bytes={mean_bytes: 50000}")
    one, two = run(*random), run(*random)
    assert one.summary == two.summary
    stepped = run(*random, "step.step_s={mean_s: 50ms, sigma: 0.1}")
    assert stepped.table("requests")["size_bytes"].tolist() == one.table("requests")["size_bytes"].tolist()


def test_errors_are_counted_and_may_be_too_many() -> None:
    result = run("store.errors={probability: 0.2, timeout_s: 0.1, retries: 30}")
    assert result.summary["gets"] > 320
    with pytest.raises(Infeasible, match=r"block \d+.*failed 1 times, 0 retries"):
        run("store.errors={probability: 0.2, timeout_s: 0.1, retries: 0}")


def test_a_tuner_in_a_scenario() -> None:
    result = run("grid={blocks: [1, 4, 16], threads: [1, 2, 4]}", "tuner=three_probes")
    assert result.summary["probes"] <= 4 and result.summary["regret_share"] <= 0.05


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("dataset.samples=0", "dataset.samples"),
        ("dataset.sample_bytes=-1", "dataset.sample_bytes"),
        ("dataset.sample_bytes=.nan", "dataset.sample_bytes"),
        ("store.latency_s=-0.1", "store.latency_s"),
        ("store.latency_s={mean_s: 1, shape: normal}", "store.latency_s"),
        ("store.burst=0", "store.burst"),
        ("store.errors={probability: 1.0}", "store.errors.probability"),
        ("cpu.cores=-1", "cpu.cores"),
        ("run.batch=0", "run.batch"),
        ("run.batch=2000", "run.batch"),
        ("layout.block_samples=5000", "layout.block_samples"),
        ("loader.threads=0", "loader.threads"),
        ("loader.start_s=[1, 2]", "loader.start_s"),
        ("loader.mode=workers --jobs", "loader.mode"),
        ("jobs=0", "jobs"),
        ("dataset.shuffle=global", "dataset.shuffle"),
        ("run.partition=contiguous", "run.partition"),
        ("tuner=three_probes", "grid"),
        ("grid={blocks: [1], threads: [1], workers: [1, 2]}", "grid.workers"),
        ("grid={blocks: [1], threads: [1], cache_bytes: [5, 2]}", "cache_bytes"),
        ("grid={blocks: [4, 1]}", "grid.blocks"),
        ("caches=[{capacity_bytes: 0}]", "caches[0].capacity_bytes"),
        ("cluster={nodes: [], gangs: []}", "unknown key 'cluster'"),
        ("tuner=three_prods", "did you mean 'three_probes'"),
    ],
)
def test_bad_scenarios_name_the_place(override: str, where: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(BASE, [override])
    assert where in str(caught.value)


def test_sizes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text("bytes\n" + "\n".join(str(1000 + i) for i in range(1280)) + "\n")
    result = run(f'dataset.sample_bytes={{empirical: "{path}"}}')
    assert result.summary["store_bytes"] == sum(1000 + i for i in range(1280))
    path.write_text("bytes\n10\n20\n")
    with pytest.raises(ForerunError, match=r"sizes\.csv: has 2 sizes, the data set 1280 samples"):
        run(f'dataset.sample_bytes={{empirical: "{path}"}}')


def test_plans_and_their_certificate() -> None:
    scenario = loads(BASE, ["layout.merge_s=5"])
    made = planning.plan(scenario)
    assert len(made.cells) == 64 and made.summary["samples_per_s"] > 1100
    cheap = planning.plan(scenario, "cost")
    assert cheap.chosen.cost_usd <= made.chosen.cost_usd * 1.01
    lean = planning.plan(loads(BASE, ["goal.memory_bytes=2MB"]))
    assert lean.chosen.held_bytes <= 2e6
    with pytest.raises(Infeasible, match="memory_bytes"):
        planning.plan(loads(BASE, ["goal.memory_bytes=1kB"]))
    worse = max(made.cells, key=lambda cell: cell.total_s)
    with pytest.raises(CheckFailed):
        planning.Plan(made.scenario, made.cells, worse, made.law, made.payback, (), {}).check()


def test_plans_over_workers_and_pools() -> None:
    """What is predicted of a cell is what its simulation gives; the one of least memory near the best is taken."""
    for mode, threads in (("workers", 1), ("pooled_workers", 4)):
        long = "dataset.samples=12800"
        made = planning.plan(loads(BASE, [f"loader.mode={mode}", "loader.threads=1", long]))
        assert made.chosen.hidden and made.summary["workers"] == made.chosen.cell.workers >= 1
        assert {entry.cell.workers for entry in made.cells} == {1, 2, 4, 8, 16}
        for entry in (made.chosen, made.cells[0], made.cells[-1]):
            cell = entry.cell
            result = run(
                f"loader={{mode: {mode}, workers: {cell.workers}, threads: {cell.threads}}}",
                f"layout.block_samples={cell.block}",
                long,
            )
            assert result.summary["total_s"] == pytest.approx(entry.total_s, rel=1e-9)
        assert max(entry.cell.threads for entry in made.cells) == threads
    crowded = planning.plan(
        loads(BASE, ["loader.mode=workers", "loader.threads=1", "cpu={decode_cpu_s: 4ms, cores: 2}"])
    )
    assert not crowded.chosen.hidden  # two cores decode 500 samples/s, the step wants 1,280


def test_plans_over_caches() -> None:
    """Larger caches take less time and more memory; a warm epoch of the simulation agrees."""
    grid = "grid={blocks: [1, 4], threads: [2], cache_bytes: [0, 16MB, 32MB, 80MB]}"
    price = "store.price.per_1k_get_usd=1"
    made = planning.plan(loads(BASE, [grid, price, "goal.memory_bytes=40MB"]))
    assert made.chosen.held_bytes <= 40e6
    row = {entry.cell.cache_bytes: entry for entry in made.cells if entry.cell.block == 4}
    assert [entry.total_s for entry in row.values()] == sorted(
        (e.total_s for e in row.values()), reverse=True
    )
    assert row[80e6].gets == 0 and row[80e6].samples_per_s > 1200 and row[80e6].cost_usd < row[0].cost_usd
    assert row[16e6].gets == pytest.approx(320 * 0.75, abs=2)
    warm = run("run.epochs=2", "caches=[{capacity_bytes: 32MB, policy: pinned}]").tables["epochs"]["total_s"][
        1
    ]
    assert row[32e6].total_s == pytest.approx(warm, rel=0.02)
    shown = {figure.id for figure in figures(run(grid, "layout.merge_s=2", "goal.memory_bytes=1MB"))}
    assert shown >= {"block-threads-heat-map", "memory", "payback", "requests", "stall-by-step"}


def test_published_results_are_regenerated(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_DATA_DIR", str(published.parent))
    for entry in reproduce.REPRODUCTIONS:
        if entry.id == "blocks-placement":
            continue  # its streams are placed in tests/replication/test_placement.py
        found = entry.run(silent)
        assert found.rows and not found.failed, [row.name for row in found.failed]
    for rows, label in (
        (reproduce.librispeech(silent).rows, "LibriSpeech remote, gain at 0.1, 0.25, 0.5, 0.75, 1 s"),
        (reproduce.imagenet(silent).rows, "ImageNet local, the same"),
    ):
        gains = [row for row in rows if row.name.startswith("improvement")]
        values = [float(row.compat or 0) for row in gains] + [float(row.corrected or 0) for row in gains]
        assert shown_on_the_page("figure", label, values), values
    gains = [row for row in reproduce.imagenet(silent).rows if row.published is not None]
    assert all(row.corrected is not None and abs(row.corrected - row.published) <= 9 for row in gains)


def test_stall_split_never_negative() -> None:
    rng = np.random.default_rng(6)
    for _ in range(25):
        result = run(
            f"store.latency_s={rng.exponential(0.01)}", f"loader.threads={rng.integers(1, 6)}",
            f"layout.block_samples={rng.integers(1, 9)}", f"cpu.decode_s={rng.exponential(0.002)}",
            f"store.slots={rng.integers(0, 3)}", "dataset.samples=320",
        )  # fmt: skip
        assert min(result.ledgers[0].parts.values()) >= 0


# --- fields of a scenario, each with what it changes ---------------------------------------------------------------


def test_random_and_recorded_times(tmp_path: Path) -> None:
    """Decoding drawn once a sample, from its own stream; recorded times drawn, or taken in order."""
    plain = run("store.latency_s={mean_s: 10ms}")
    drawn = run("store.latency_s={mean_s: 10ms}", "cpu.decode_s={mean_s: 1ms, sigma: 1.0}")
    assert drawn.summary["total_s"] != plain.summary["total_s"]
    begun, again = (each.table("requests") for each in (plain, drawn))
    # Latencies are those of before: another stream was added, none was shifted.
    assert np.allclose(*((each["first_byte_s"] - each["grant_s"])[:40] for each in (begun, again)), rtol=1e-9)
    two = run("cpu.decode_s={mean_s: 1ms, sigma: 1.0}", "run.epochs=2", "dataset.shuffle=none")
    first, second = two.table("epochs")["total_s"]
    assert first == pytest.approx(second, rel=1e-9)  # the same samples decode as long in every epoch
    path = tmp_path / "seconds.csv"
    path.write_text("seconds\n0.02\n0.04\n0.06\n")
    steps = f'step.step_s={{empirical: {{path: "{path}"}}, in_order: true}}'
    traced = run(steps, "store.latency_s=0", "loader.threads=8")
    assert np.allclose(traced.table("batches")["step_s"], np.resize([0.02, 0.04, 0.06], 20))
    assert traced.summary["compute_samples_per_s"] == pytest.approx(64 / 0.04)
    slow = run(f'store.latency_s={{empirical: "{path}"}}')
    served = slow.table("requests")
    waits = np.round(served["first_byte_s"] - served["grant_s"], 9)
    assert set(waits[np.isfinite(waits)].tolist()) == {0.02, 0.04, 0.06}
    grid = "grid={blocks: [1, 4], threads: [1, 2]}"
    assert (
        len(run(f'store.latency_s={{empirical: "{path}"}}', grid, "tuner=three_probes").table("probes")) >= 1
    )
    for content, message in (
        ("seconds\n-1\n", "seconds"),
        ("hours\n1\n", "seconds"),
        ("seconds\n", "seconds"),
    ):
        path.write_text(content)
        with pytest.raises(ForerunError, match=message):
            run(steps)


def test_workers_decode_what_their_batches_hold() -> None:
    workers = ("loader={mode: workers, workers: 2}", "layout.block_samples=1")
    plain = run(*workers)
    drawn = run(*workers, "cpu.decode_s={mean_s: 1ms, sigma: 1.5}")
    every_other = [each.table("batches")["load_s"][4::2] for each in (plain, drawn)]
    assert np.std(every_other[0]) < 1e-9 < 0.01 < np.std(every_other[1])
    handed = run(*workers, "cpu.handoff_s_per_byte=1e-8")
    # 64 samples of 50,000 bytes at 10 ns a byte: 32 ms a batch; ten rounds of two workers.
    assert handed.summary["total_s"] - plain.summary["total_s"] == pytest.approx(10 * 0.032, abs=0.032)


def test_blocks_cut_by_size() -> None:
    """As `forerun pack --block-bytes` cuts: never more than the size, never so little that the next would have fitted."""
    sizes = "dataset.sample_bytes={mean_bytes: 50000, sigma: 0.8}"
    result = run(sizes, "layout={block_bytes: 200kB}", "dataset.shuffle=none")
    served = result.table("requests")
    alone = prepare(result.scenario).sizes > 200_000  # a sample too large for any block is one by itself
    assert np.sum(served["size_bytes"] > 200_000) == np.sum(alone) > 0
    assert result.summary["gets"] == len(served) and 2 <= result.summary["block_samples"] <= 4
    whole = run("layout={block_bytes: 200kB}")
    assert whole.summary["total_s"] == run("layout={block_samples: 4}").summary["total_s"]


def test_a_shuffle_buffer_mixes_blocks_and_is_filled_first() -> None:
    mixed = ("dataset.shuffle=block+buffer", "dataset.shuffle_buffer_samples=256")
    one = ("layout.block_samples=16", "loader.threads=1", "step.step_s=200ms")
    plain, mixed_run = run(*one), run(*one, *mixed)
    assert plain.summary["neighbour_share"] == pytest.approx(15 / 16, abs=1e-3)
    assert 3 * mixed_run.summary["neighbour_share"] < 0.3
    assert mixed_run.summary["batch_spread"] > 2 * plain.summary["batch_spread"]
    assert mixed_run.summary["first_batch_s"] > 3 * plain.summary["first_batch_s"]
    assert (
        mixed_run.table("batches")["samples"].sum() == 1280
        and mixed_run.summary["peak_memory_bytes"] > 256 * 50_000
    )
    assert np.all(mixed_run.table("batches")["load_s"][-3:] == 0)  # the last ones are there already


def test_an_epoch_of_some_steps() -> None:
    for mode in ("threads", "workers"):
        loader = f"loader={{mode: {mode}, workers: 2, threads: {2 if mode == 'threads' else 1}}}"
        block = f"layout.block_samples={4 if mode == 'threads' else 1}"
        few = run(loader, block, "run.steps=5", "run.epochs=2")
        whole = run(loader, block)
        assert len(few.table("batches")) == 10
        assert few.table("batches")["got_s"][:5].tolist() == whole.table("batches")["got_s"][:5].tolist()
    warm = run("run.warmup_steps=5").summary["steady_stall_share"]
    assert warm < run("run.warmup_steps=1").summary["steady_stall_share"]


def test_lock_step_is_named_and_undone_by_latencies_that_scatter() -> None:
    """Equal sizes, a fixed latency, a link that all share: threads read together, then decode together."""
    steps = (
        "step.step_s=1ms",
        "loader={threads: 8, buffer_samples: 8}",
        "layout.block_samples=8",
        "cpu.decode_s=5ms",
    )
    result = run(*steps, "store={latency_s: 10ms, shared_bytes_per_s: 60MB/s}", "dataset.samples=6400")
    assert "lock-step" in result.why and "latencies that scatter" in result.why, result.why


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("store.latency_s={sigma: 1}", "store.latency_s.mean_s"),
        ("store.latency_s={mean_s: 1ms, in_order: true}", "store.latency_s.in_order"),
        ("layout={block_bytes: 1MB, block_samples: 4}", "layout.block_bytes"),
        ("dataset.shuffle_buffer_samples=9", "dataset.shuffle_buffer_samples"),
        ("dataset.shuffle=block+buffer", "dataset.shuffle_buffer_samples"),
        ("dataset.samples=900000000", "dataset.samples"),
        ("run.steps=-1", "run.steps"),
        ("cpu.decode_s={mean_s: -1}", "cpu.decode_s.mean_s"),
        ("cpu.handoff_s_per_byte=-1", "cpu.handoff_s_per_byte"),
    ],
)  # fmt: skip
def test_bad_values_of_those_fields_name_the_place(override: str, where: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(BASE, [override])
    assert where in str(caught.value)


# --- anything may stand in a file ----------------------------------------------------------------------------------

FIELDS = [
    "dataset.samples",
    "dataset.sample_bytes",
    "dataset.sample_bytes.mean_bytes",
    "dataset.sample_bytes.sigma",
    "dataset.decoded_bytes",
    "dataset.shuffle",
    "dataset.shuffle_buffer_samples",
    "layout",
    "layout.block_samples",
    "layout.block_bytes",
    "layout.merge_s",
    "store.latency_s",
    "store.latency_s.mean_s",
    "store.latency_s.sigma",
    "store.conn_bytes_per_s",
    "store.shared_bytes_per_s",
    "store.slots",
    "store.requests_per_s",
    "store.burst",
    "store.client_s",
    "store.errors.probability",
    "store.errors.timeout_s",
    "store.errors.retries",
    "store.price.per_1k_get_usd",
    "caches",
    "caches.0.capacity_bytes",
    "cpu.decode_s",
    "cpu.cores",
    "cpu.decode_cpu_s",
    "cpu.pool_efficiency",
    "loader.mode",
    "loader.threads",
    "loader.workers",
    "loader.buffer_samples",
    "loader.prefetch",
    "step.step_s",
    "step.gpu_usd_per_h",
    "run.batch",
    "run.epochs",
    "run.steps",
    "run.warmup_steps",
    "run.partition",
    "jobs",
    "stagger_s",
    "seed",
    "goal.memory_bytes",
    "goal.margin_share",
    "grid.blocks",
    "grid.threads",
]
VALUES = [
    "0",
    "-1",
    "1",
    "2",
    "64",
    "3.5",
    "1e308",
    "1e-308",
    ".nan",
    ".inf",
    "-.inf",
    "true",
    "null",
    "[]",
    "{}",
    "'x'",
    "1e12",
    "1000000000",
    "999999999999999999999",
    "workers",
    "global",
    "contiguous",
    "[1,1]",
    "[1e9]",
    "5MB",
    "-0.0",
]


def test_mutated_scenarios_are_run_or_refused_by_name() -> None:
    """Three hundred: each gives a result that holds and can be kept, or a problem that says where; none hangs."""
    small = BASE.replace("samples: 1280", "samples: 128")
    more = (
        "store.errors={probability: 0.1}", "caches=[{capacity_bytes: 1MB}]", "grid={blocks: [1, 4], threads: [1, 2]}",
        "store.latency_s={mean_s: 10ms}", "dataset.sample_bytes={mean_bytes: 50000}", "cpu={decode_cpu_s: 1ms, cores: 2}",
    )  # fmt: skip
    rng = np.random.default_rng(12)
    ran = refused = 0
    for _ in range(drawn := cases(60, 300)):
        fields = rng.choice(FIELDS, int(rng.integers(1, 3)), replace=False).tolist()
        overrides = [f"{field}={rng.choice(VALUES)}" for field in fields]
        try:
            found = forerun.simulate(loads(small, [*more, *overrides])).check()
            json.dumps(found.data(), allow_nan=False)
            ran += 1
        except ForerunError as error:
            refused += 1
            assert error.problems and all(str(problem) for problem in error.problems), overrides
    assert ran > drawn / 12 and refused > drawn / 3


def test_what_takes_for_ever_is_told() -> None:
    for override in ("store.conn_bytes_per_s=1e-308", "cpu.decode_s=1e308", "store.latency_s=1e300"):
        for mode in ("threads", "workers"):
            with pytest.raises(Infeasible, match="takes for ever"):
                run(override, f"loader.mode={mode}", "layout.block_samples=1")


def test_a_policy_given_to_a_run_is_recorded_in_its_scenario() -> None:
    """The recorded scenario, run again as it is, gives the same result."""
    scenario = loads(BASE, ["grid={blocks: [1, 4], threads: [1, 2]}", "run.epochs=1"])
    result = forerun.simulate(scenario, policy=NoMerge())
    assert result.scenario.tuner == NoMerge() and scenario.tuner is None
    assert forerun.simulate(result.scenario).summary == result.summary


def test_words_and_figures_agree_on_whether_loading_is_hidden() -> None:
    """Laws are bounds from above: near them, a plan and a run may be on either side."""
    rng = np.random.default_rng(8)
    seen = set()
    for _ in range(cases(10, 60)):
        step_s, latency_s = float(rng.uniform(0.02, 0.2)), float(rng.uniform(0.0005, 0.02))
        scenario = forerun.loads(
            f"domain: loading\ndataset: {{samples: {int(rng.integers(64, 900))}, sample_bytes: 1000}}\n"
            f"store: {{latency_s: {latency_s}}}\nstep: {{step_s: {step_s}}}\nrun: {{batch: 32}}\n"
            f"layout: {{block_samples: {int(rng.choice([1, 4, 16]))}}}\nloader: {{threads: {int(rng.integers(1, 9))}}}\n"
            "grid: {blocks: [1, 4, 16], threads: [1, 2, 4]}\n"
        )
        for found in (forerun.plan(scenario), forerun.simulate(scenario)):
            hidden = bool(found.summary["hidden"])
            wrong = ("short of hiding", "from being hidden") if hidden else ("loading is hidden",)
            assert not any(text in found.why for text in wrong), (hidden, found.why)
            seen.add((hidden, found.summary["bottleneck"] == "compute"))
    assert seen >= {(True, True), (False, True), (False, False)}
