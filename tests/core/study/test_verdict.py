"""What a comparison comes to: ties and what they cost, worse tails, and means that leave out part of the work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.domain import left_out
from forerun.core.report.comparison import shown_comparison
from forerun.core.report.drawn import Drawn
from forerun.core.report.markup import join
from forerun.core.report.stored import StoredComparison
from forerun.core.result.objective import Objective
from forerun.core.study.compare import _level
from forerun.core.study.compared import Standing, Variant, comparison_of, save_comparison
from forerun.core.study.verdict import recommended, why

JCT = Objective("jct_mean_s", "lower", "mean completion time in s")
SLURM = Path(__file__).parents[3] / "examples" / "slurm" / "cluster.yaml"
DEMO = forerun.demo("cluster").scenario


def standing(
    name: str, value: float, gpus: float, difference: float | None, p: float | None = None
) -> Standing:
    return Standing(Variant(name, ()), value, None, difference, p=p, figures={"gpus": gpus})


def test_a_free_change_that_is_as_good_is_advised_before_a_purchase() -> None:
    """The purchase is 27 s ahead; the change is level with it and costs what the reference costs."""
    found = forerun.compare(
        forerun.load(SLURM),
        variants={
            "fifo": {"policy": "fifo"},
            "backfill": {"policy": "easy"},
            "las": {"policy": "las"},
            "fifth-node": {"machines.nodes[0].count": 5},
        },
        objective="jct_mean_s",
    )
    assert found.standings[0].variant.name == "fifth-node" and set(found.level) == {"las", "backfill"}
    assert found.recommended == "backfill", "of las and backfill only this differs significantly from fifo"
    assert (
        "backfill is as good, as far as this shows, with 32 GPUs instead of 40 GPUs, and so is free"
        in found.why
    )
    page = join(part.body for part in shown_comparison(StoredComparison("c", found), Drawn(())).sections)
    assert '<span class="badge good">best</span>' not in page and "as good, run this" in page
    assert "policy=easy" in page.partition("runs/best")[0][-300:]


def test_the_next_command_is_the_one_advised(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    variants = ("fifo:policy=fifo", "backfill:policy=easy", "fifth-node:machines.nodes[0].count=5")
    out = tmp_path / "c.json"
    asked = ["compare", str(SLURM), *(part for one in variants for part in ("--with", one)), "-o", str(out)]
    assert command_line(asked) == 0
    assert "--set policy=easy -o runs/backfill" in capsys.readouterr().out


def test_the_cheapest_of_those_level_is_advised_and_no_change_where_it_is_level() -> None:
    fifo, easy, node = (
        standing("fifo", 30.0, 32, None),
        standing("easy", 20.0, 32, -10.0, 0.01),
        standing("node", 19.0, 40, -11.0, 0.01),
    )
    ranked = [node, easy, fifo]
    assert recommended(ranked, (), "fifo") is node
    assert "it takes 40 GPUs, fifo 32 GPUs" in why(ranked, JCT, exact=False, reference="fifo")
    assert recommended(ranked, ("easy",), "fifo") is easy
    assert recommended(ranked, ("easy", "fifo"), "fifo") is easy, (
        "half as long again is not as good, significant or not"
    )
    fifo = standing("fifo", 20.5, 32, None)
    ranked = [node, easy, fifo]
    assert recommended(ranked, ("easy", "fifo"), "fifo") is fifo
    text = why(ranked, JCT, exact=False, reference="fifo", level=("easy", "fifo"))
    assert (
        "fifo is as good, as far as this shows, with 32 GPUs instead of 40 GPUs" in text
        and "free" not in text
    )


def test_a_tail_that_is_significantly_worse_is_named(tmp_path: Path) -> None:
    """Shortest first halves the mean and starves one long job in a hundred; the second log is like the first."""
    rows = ["job_id,submit_time,num_gpu,duration"]
    for day in range(30):
        rows += [f"long{day},{day * 86_400},1,30000"]
        rows += [f"j{day}-{at},{day * 86_400 + at * 780},1,800" for at in range(60)]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "s.yaml").write_text(
        "domain: cluster\ntrace: log.csv\nmachines: {nodes: [{count: 1, gpus: 1}]}\npolicy: fifo\n"
    )
    found = forerun.compare(forerun.load(tmp_path / "s.yaml"), ["fifo", "sjf"], objective="jct_mean_s")
    figures = {one.variant.name: one.figures["jct_p99_s"] for one in found.standings}
    assert found.standings[0].variant.name == "sjf" and figures["sjf"] > figures["fifo"]
    assert "sjf's 99th percentile of completion time is" in found.why
    assert (
        "99th percentile"
        not in forerun.compare(
            forerun.load(tmp_path / "s.yaml"), ["fifo", "fifo-backfill-unreserved"], objective="jct_mean_s"
        ).why
    )


def test_a_policy_that_refuses_jobs_does_not_win_by_the_mean_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mean over 183 of 200 jobs is lower; it ranks behind, without a p value, and the same line says so."""
    scenario = forerun.load(DEMO)
    found = forerun.compare(scenario, ["srtf", "ef-accessctrl", "fifo"], objective="jct_mean_s", seeds=3)
    names = [one.variant.name for one in found.standings]
    assert names == ["srtf", "fifo", "ef-accessctrl"]
    last = found.standings[-1]
    assert last.value < found.standings[0].value and last.p is None and last.difference_interval is None
    assert "of 200 jobs refused or unfinished" in last.left_out and last.left_out in found.why
    assert "of those that leave out nothing" in found.why
    assert comparison_of(_json(save_comparison(found, tmp_path / "c.json")), "c").standings[-1].left_out

    monkeypatch.chdir(tmp_path)
    axes = "axes: {policy: [ef-accessctrl, srtf, fifo]}\nseeds: 2\nobjective: jct_mean_s\n"
    (tmp_path / "study.yaml").write_text(f"base: {DEMO}\n{axes}")
    assert command_line(["study", "study.yaml", "--json"]) == 0
    data = _json_text(capsys.readouterr().out)
    assert data["best"]["policy"] == "srtf" and "of those that leave nothing out" in data["why"]
    assert "jobs refused or unfinished" in data["why"] and "every other" not in data["why"]
    assert "others that leave out no more" in data["why"]
    assert any("rank behind" in note for note in data["notes"])


def test_what_each_domain_leaves_out() -> None:
    assert left_out("cluster", "jct_p99_s", {"jobs": 9, "refused_jobs": 2, "unfinished_jobs": 1})[0] == 3
    assert left_out("cluster", "wait_limit_mean_s", {"jobs": 9, "refused_jobs": 2})[0] == 2
    assert left_out("cluster", "deadline_ratio", {"jobs": 9, "refused_jobs": 2})[0] == 0
    assert left_out("serving", "latency_p99_ms", {"refused": 4}) == (4.0, "4 requests refused")
    assert left_out("serving", "attainment", {"refused": 4})[0] == 0
    assert left_out("spot", "cost_usd", {"finished_share": 0.75}) == (0.25, "25 % of the trials unfinished")
    assert left_out("energy", "energy_j", {"failed_attempts": 3})[0] == 0
    assert left_out("no such domain", "x", {})[0] == 0


def _json(path: Path) -> dict[str, Any]:
    return _json_text(path.read_text(encoding="utf-8"))


def _json_text(text: str) -> dict[str, Any]:
    import json

    data: dict[str, Any] = json.loads(text)
    return data


def test_where_the_reference_is_best_others_are_level_only_where_the_table_says_so() -> None:
    """The reference was fixed before, so that each difference from it has the p value of the table."""
    ranked = [
        standing("fixed", 1.0, 8, None),
        standing("slow", 2.0, 8, 1.0, 0.2),
        standing("other", 3.0, 8, 2.0, 0.04),
    ]
    runner: Any = SimpleNamespace(p=lambda *_: 0.03, objective=JCT)
    assert _level(runner, ranked) == ("slow",)
    text = why(ranked, JCT, exact=False, reference="fixed", level=("slow",))
    assert text.count("slow") == 2, "the runner-up and its gap are named, and not again as level"
