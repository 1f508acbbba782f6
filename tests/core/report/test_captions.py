"""Captions, titles and reasons say what the data say: each is checked in worlds where it would read otherwise."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.domain import get_domain
from forerun.core.result.figures import Figure
from forerun.core.result.numbers import quantity
from forerun.core.result.run import Result
from forerun.energy.summary import _why
from forerun.loading.engine import laws

from ...conftest import ROOT

#: words that judge; in a fixed text they may be contradicted by the data it stands under
JUDGING = re.compile(
    r"\b(seldom|rarely|hardly|mostly|usually|(?<!how )often|always|never|nearly|almost|too (much|few|many)|betray\w*|"
    r"wast\w+|fill the gaps|slower costs more|in waves|pays? off|would help|would hide|not all keep|some profiles|"
    r"the wider)\b",
    re.IGNORECASE,
)
#: what is true by definition, wherever it stands
DEFINED = (
    "Where merging saves nothing there is no mark.",
    "Nothing measured is faster at less energy than the frontier",
)


def fixed_texts() -> list[tuple[str, str]]:
    """(where, text) of every caption and title that is written out, without what is computed in it."""
    found = []
    for path in sorted((ROOT / "src" / "forerun").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.keyword) and node.arg in ("caption", "title")):
                continue
            texts = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
            where = f"{path.relative_to(ROOT)}:{node.value.lineno}"
            found += [(where, text) for text in texts if isinstance(text, str) and " " in text]
    return found


def test_no_fixed_caption_judges() -> None:
    texts = fixed_texts()
    assert len(texts) > 150
    judging = [
        f"{where}: {text}"
        for where, text in texts
        if JUDGING.search(text) and not any(known in text for known in DEFINED)
    ]
    assert not judging, "\n".join(judging)
    assert JUDGING.search("Batches seldom fill: a stage takes what is queued.")


def simulated(domain: str, *changes: str) -> Result:
    return forerun.simulate(forerun.load(forerun.demo(domain).scenario, list(changes)))


def captions(result: Result) -> dict[str, str]:
    found: tuple[Figure, ...] = get_domain(result.domain).figures(result)
    return {figure.id: figure.caption for figure in found}


@pytest.mark.parametrize(("rate", "limit"), [(100, 2), (20, 2), (100, 8)])
def test_full_batches_are_counted(rate: int, limit: int) -> None:
    result = simulated(
        "serving",
        f"trace.process.rate_rps={rate}",
        "trace.queries=4000",
        f"configuration.LogReg.max_batch={limit}",
        "intervals.replications=0",
    )
    batches = result.tables["batches"]
    sizes = batches["size"][batches["stage"] == "LogReg"]
    assert f"LogReg {100 * np.mean(sizes == limit):.3g} % of {limit}" in captions(result)["batch-sizes"]


def test_batches_of_the_demo_are_mostly_full_at_one_stage() -> None:
    """The world that contradicted the fixed caption."""
    said = captions(simulated("serving", "intervals.replications=0"))["batch-sizes"]
    found = re.search(r"LogReg ([\d.]+) % of 2", said)
    assert found is not None and float(found[1]) > 70


@pytest.mark.parametrize("jump", [0.5, 2.0])
def test_windows_above_the_sample_are_counted(jump: float) -> None:
    sample = "{process: {name: gamma, rate_rps: 100, scv: 1.0}, queries: 4000}"
    result = simulated(
        "serving",
        f"trace.process.rate_rps={100 * jump}",
        "trace.process.scv=1.0",
        "trace.queries=6000",
        "intervals.replications=0",
        f"sample={sample}",
        "tuner=inferline",
    )
    table = result.tables["envelopes"]
    above = int(np.sum(table["run"] > table["sample"]))
    assert f"in {above} of {len(table['run'])} windows" in captions(result)["envelopes"]
    assert (above > len(table["run"]) / 2) == (jump > 1)


@pytest.mark.parametrize("seed", range(8))
def test_captions_of_loading_are_what_the_cells_say(seed: int) -> None:
    draw = np.random.default_rng(seed)
    result = simulated(
        "loading",
        f"seed={seed}",
        "dataset.samples=2000",
        f"step.step_s={draw.choice([0.01, 0.1, 0.4])}",
        f"store.latency_s.mean_s={draw.choice([0.002, 0.02, 0.08])}",
        f"cpu.decode_s={draw.choice([0.0003, 0.004])}",
        f"loader.threads={int(draw.integers(1, 6))}",
        "caches=[]",
        "run.epochs=1",
    )
    said = captions(result)
    cells = result.tables["cells"]
    blocks, threads, hidden = cells["block_samples"], cells["threads"], cells["hidden"].astype(bool)
    if hidden.any():
        above = [
            bool((hidden & (blocks == b) & (threads <= t)).any())
            for b, t in zip(blocks.tolist(), threads.tolist())
        ]
        assert f"Of the {sum(above)} cells at or above" in said["hide-curve"]
        contradicted = int(np.sum(np.array(above) & ~hidden))
        assert (f"{contradicted} do not hide" in said["hide-curve"]) == (contradicted > 0)
    else:
        assert "No block size" in said["hide-curve"]
    waits = result.tables["batches"]["load_s"]
    assert f"the longest, {quantity(waits.max(), 's', waits.max())}," in said["waits"]
    table = result.tables["laws"]
    least = float(np.nanmin(table["samples_per_s"]))
    ratio = re.search(r"at ([\d.e+-]+) times the least", said["laws"])
    assert ratio is not None
    assert float(ratio[1]) == pytest.approx(result.summary["samples_per_s"] / least, rel=0.05)
    if "binds at" in result.why and "below that bound" in result.why:
        assert "loading is hidden" not in result.why


def settings() -> list[laws.Setting]:
    """Drawn loaders in which the thread law binds and some block size evens it with the step."""
    draw, found = np.random.default_rng(5), []
    for _ in range(4000):
        setting = laws.Setting(
            threads=int(draw.integers(1, 9)),
            block_samples=int(draw.choice([1, 4, 16])),
            sample_bytes=float(10 ** draw.uniform(3, 6)),
            latency_s=float(10 ** draw.uniform(-4, -0.5)),
            decode_s=float(10 ** draw.uniform(-5, -1.5)),
            step_s=float(10 ** draw.uniform(-2.5, 0.5)),
            batch=64,
            shared_bytes_per_s=float(10 ** draw.uniform(6, 9)),
            requests_per_s=float(10 ** draw.uniform(1, 4)),
        )
        told = laws.explain(setting)
        if told.bottleneck == "thread" and told.hiding.blocks_of is not None:
            found.append(setting)
    return found


def test_a_block_size_that_is_said_to_hide_loading_hides_it_by_all_laws() -> None:
    hide = short = 0
    for setting in settings():
        sentence = laws.explain(setting).sentence
        found = re.search(r"blocks of (\d+) (would hide it|the)", sentence)
        assert found is not None, sentence
        then = laws.terms(replace(setting, block_samples=int(found[1])))
        least = min(then[name] for name in then if name != "compute")
        enough = least >= then["compute"] * (1 - 1e-9)
        assert enough == (found[2] == "would hide it"), sentence
        hide, short = hide + enough, short + (not enough)
    assert hide > 50 and short > 50, "both kinds of world are drawn"


class _Point:
    """A configuration with its expected cost."""

    def __init__(self, batch_size: int, cost_j: float) -> None:
        self.batch_size, self.limit_w, self.cost_j = batch_size, 100.0, cost_j


class _Reference:
    def __init__(self, default: _Point, oracle: _Point) -> None:
        self.default, self.oracle = default, oracle


@pytest.mark.parametrize(
    ("default", "oracle", "ratio", "said"),
    [
        (_Point(64, 1000.0), _Point(64, 1000.0), 1.2, ["nothing is cheaper than the default", "20.0 % more"]),
        (_Point(64, 1000.0), _Point(32, 999.9), 0.97, ["batch size 32 at 100 W, costs 0.0 % less", "3.0 % less"]),
        (_Point(64, 1000.0), _Point(32, 700.0), 1.0, ["costs 30.0 % less", "0.0 % more", "last batch size is 16"]),
    ],
)  # fmt: skip
def test_the_reason_of_an_energy_run_follows_the_figures(
    default: _Point, oracle: _Point, ratio: float, said: list[str]
) -> None:
    summary = {"cost_ratio_to_oracle": ratio, "recurrences": 60, "last_batch_size": 16}
    reference: Any = _Reference(default, oracle)
    told = _why(summary, reference)
    assert all(part in told for part in said), told
    assert "finding it" not in told, "the policy may not have found it"


def pipeline_captions(tmp_path: Path, slower: str) -> tuple[dict[str, str], Result]:
    from forerun.replication.zeus.pipelines import synthetic

    pipeline = synthetic((1.0, 1.2), 4, (900, 1200, 1410))
    rows = [
        f"{stage},{kind},{clock},{time},{energy}"
        for stage, of in enumerate(pipeline.choices)
        for kind, choices in of.items()
        for clock, time, energy in zip(choices.frequency_mhz, choices.time_s, choices.energy_j)
    ]
    profile = tmp_path / "passes.csv"
    profile.write_text("stage,instruction,frequency,time_s,energy_j\n" + "\n".join(rows) + "\n")
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"domain: energy\npipeline: {{file: passes.csv, microbatches: 4, blocked_power_w: 70}}\n"
        f"goal: {{minimise: energy, max_slowdown: {slower}}}\n"
    )
    result = forerun.simulate(forerun.load(path))
    return captions(result), result


@pytest.mark.parametrize("slower", ["1.0", "1.5"])
def test_slowed_passes_are_counted(tmp_path: Path, slower: str) -> None:
    said, result = pipeline_captions(tmp_path, slower)
    table = result.tables["operations"]
    for which in ("highest", "chosen"):
        clock = table["frequency_mhz"][table["plan"] == which]
        slowed = int(np.sum(clock < table["frequency_mhz"].max()))
        assert f"{slowed} of {len(clock)} passes run below" in said[f"energy-passes-{which}"]


def test_trials_that_finish_are_counted() -> None:
    for horizon in ("4h", "60h"):
        result = simulated("spot", "trials=60", f"horizon={horizon}")
        finished = int(result.tables["trials"]["finished"].sum())
        said = captions(result).get("time-to-finish")
        assert said is None if finished == 0 else f"{finished} of 60 trials finished" in str(said)
