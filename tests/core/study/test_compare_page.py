"""Comparisons as files and pages: read back whole, ranked, differences drawn with intervals and told by cause."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.errors import StoreError
from forerun.core.report import html_page, write_pictures
from forerun.core.report.stored import StoredComparison, open_stored
from forerun.core.result.objective import Objective
from forerun.core.study.compare import compare_variants, moved_parts
from forerun.core.study.compared import Comparison, Variant, save_comparison
from forerun.core.study.differences import figures

TOTAL = Objective("total_s", "lower", "total time in s")
VARIANTS = [
    Variant("plain", (("policy", "plain"),)),
    Variant("half", (("policy", "half"),)),
    Variant("more", (("x", 4.0),)),
]


def compared(text: str = "noise: 1.0", **options: Any) -> Comparison:
    return compare_variants(forerun.loads("domain: toy\n" + text), VARIANTS, TOTAL, **options)


def words(page: str) -> str:
    """What a page says, scripts and styles apart."""
    text = re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style).*?</\1>", "", page))
    return " ".join(html.unescape(text).split())


def test_a_comparison_is_read_back_as_it_was(tmp_path: Path) -> None:
    found = compared(seeds=6)
    kept = open_stored(save_comparison(found, tmp_path / "c.json"))
    assert isinstance(kept, StoredComparison) and kept.comparison == found and kept.comparison.id == found.id
    assert kept.name == "c" and kept.domain == "toy"
    save_comparison(found, tmp_path / "c.json")  # over one of its own, not over something else
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(StoreError, match="already contains something that is not a comparison"):
        save_comparison(found, tmp_path / "other.json")


@pytest.mark.parametrize("cut", ["standings", "objective", "method"])
def test_a_damaged_comparison_is_said_to_be_damaged(tmp_path: Path, cut: str) -> None:
    path = save_comparison(compared(seeds=3), tmp_path / "c.json")
    data = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in data.items() if key != cut}))
    with pytest.raises(StoreError, match=f"is no comparison: .*{cut}"):
        open_stored(path)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(StoreError, match="is not JSON"):
        open_stored(path)
    path.write_text('{"format": "somebody else"}')
    with pytest.raises(StoreError, match=r"has format 'somebody else'; known: forerun\.comparison/1"):
        open_stored(path)


def test_the_page_ranks_draws_and_tells_causes() -> None:
    found = compared(seeds=8)
    drawn = {figure.id: figure for figure in figures(found, moved_parts(found))}
    assert list(drawn) == ["compared-total", "difference-total", "seeds-total", "moved-time"]
    half = next(one for one in found.standings if one.variant.name == "half")
    row = drawn["difference-total"].data["variant"].index("half")
    interval = half.difference_interval
    assert interval is not None
    assert [drawn["difference-total"].data[name][row] for name in ("low", "difference", "high")] == [
        interval.low, half.difference, interval.high,
    ]  # fmt: skip
    assert len(drawn["seeds-total"].data["seed"]) == 2 * 8
    shown = words(html_page([found]))
    for text in (
        "Toy: comparison", "3 variants · 8 common seeds", "half best", "plain reference", "Significant",
        "Where the differences come from", "Time (s)", "whole", "Why each did as it did", "it adds up",
        "forerun simulate SCENARIO.yaml --set 'policy=half'", "Base scenario, every default written out",
        "Difference on each of 8 seeds", "paired over 8 common seeds",
    ):  # fmt: skip
        assert text in shown, text


def test_an_exact_comparison_says_exact_and_has_no_interval() -> None:
    found = compared("noise: 0")
    drawn = {figure.id: figure for figure in figures(found, moved_parts(found))}
    assert list(drawn) == ["compared-total", "difference-total", "moved-time"]
    assert all(not figure.low for figure in drawn.values())
    shown = words(html_page([found]))
    assert "-1 exact" in shown and "Significant" not in shown and "Exact differences against plain" in shown


def test_pictures_and_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.yaml").write_text("domain: toy\nnoise: 1.0")
    arguments = ["compare", "toy.yaml", "--policy", "plain", "--policy", "half", "--seeds", "4"]
    assert command_line([*arguments, "-o", "c.json", "--report", "direct.html"]) == 0
    assert "saved to c.json" in capsys.readouterr().out
    assert command_line(["report", "c.json", "-o", "later.html", "-q"]) == 0
    assert Path("direct.html").read_text() == Path("later.html").read_text()
    Path("plainly").write_bytes(Path("c.json").read_bytes())
    assert command_line(["report", "plainly", "-o", "plainly.html", "-q"]) == 0
    pictures = write_pictures([open_stored(Path("c.json"))], "pictures", "svg")
    assert {path.name for path in pictures} >= {"difference-total.svg", "moved-time.svg"}
    assert command_line(["report", "toy.yaml"]) == 2
    assert "a JSON file of a comparison" in capsys.readouterr().err


def replays(tmp_path: Path) -> dict[str, tuple[str, list[Variant], str]]:
    """A replayed world in each domain that can replay one: scenario, variants, objective."""
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
        "a,0,1,,9000,1,1,4000\nb,100,1,,700,1,1,500\nc,150,1,,3000,1,2,900\nd,5000,1,,9000,1,1,60\n"
    )
    (tmp_path / "fleet.csv").write_text(
        "0,add,node0\n0,add,node1\n95000,remove,node1\n130000,add,node1\n300000,remove,node0\n"
    )
    policies = [Variant(name, (("policy", name),)) for name in ("fifo", "srtf", "edf-rigid")]
    return {
        "cluster": (
            "domain: cluster\ntrace: {file: jobs.csv}\nmachines: {nodes: [{count: 1, gpus: 2}]}\n",
            policies,
            "jct_mean_s",
        ),
        "serving": (
            "domain: serving\ntrace: {arrivals_ms: [0, 3, 5, 5, 21, 22, 40]}\nstages: [{name: a, parents: [source]}]\n"
            "configuration: {a: {hardware: V100, max_batch: 1}}\nservice: {tables_ms: {a: [10, 12]}}\nslo_ms: 15\n"
            "prices_usd_per_h: {V100: 1}\n",
            [Variant("one", ()), Variant("two", (("configuration.a.max_batch", 2),))],
            "latency_p99_ms",
        ),
        "spot": (
            "domain: spot\nfleet: {name: trace, file: fleet.csv}\nhorizon: 10min\njob: {depth: 1, max_pipelines: 2,"
            " step_s: {1: 10, 2: 6}, samples_per_step: 4, reconfig: 20s, write: 5s}\nprices: {spot_usd_per_h: 1}\n",
            [Variant("at once", ()), Variant("lazy", (("growth", "lazy"),))],
            "samples_per_s",
        ),
        "loading": (
            "domain: loading\ndataset: {samples: 300, sample_bytes: 100000, shuffle: none}\n"
            "store: {latency_s: 10ms}\ncpu: {decode_s: 2ms}\nloader: {threads: 1, buffer_samples: 8}\n"
            "step: {step_s: 5ms}\nrun: {batch: 10, epochs: 1}\n",
            [Variant("one", ()), Variant("two", (("loader.threads", 2),))],
            "total_s",
        ),
    }


@pytest.mark.parametrize("domain", ["cluster", "serving", "spot", "loading"])
def test_replayed_worlds_are_compared_exactly_and_decomposed(domain: str, tmp_path: Path) -> None:
    """No interval, and in every ledger the parts' differences sum to the difference of the wholes."""
    text, variants, key = replays(tmp_path)[domain]
    (tmp_path / "base.yaml").write_text(text)
    scenario = forerun.load(tmp_path / "base.yaml")
    found = compare_variants(scenario, variants, Objective(key, "lower"))
    assert found.exact and found.seeds == 1 and not found.failed
    results = {
        variant.name: forerun.simulate(
            forerun.load(tmp_path / "base.yaml", [f"{path}={value}" for path, value in variant.overrides])
        )
        for variant in variants
    }
    reference = results[found.reference]
    moved = {entry.ledger: entry for entry in moved_parts(found)}
    assert moved, "the variants differ, so a ledger moves"
    for one in found.standings:
        result = results[one.variant.name]
        assert one.value == result.summary[key] and one.difference_interval is None
        if one.difference is None:
            continue
        assert one.difference == result.summary[key] - reference.summary[key] != 0
        if domain == "cluster":
            # The mean completion time itself is a ledger: its difference comes apart into waits and work.
            assert moved["time of a job (s)"].whole[one.variant.name] == pytest.approx(one.difference)
        for ledger, base in zip(result.ledgers, reference.ledgers):
            named = f"{ledger.name} ({ledger.unit})"
            whole = moved[named].whole[one.variant.name] if named in moved else 0.0
            assert math.isclose(
                whole, ledger.whole - base.whole, rel_tol=1e-9, abs_tol=1e-9 * abs(base.whole)
            )
