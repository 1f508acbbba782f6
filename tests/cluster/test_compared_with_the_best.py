"""Comparisons with the best possible beside each variant: what it is, when it is known, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.cli.main import run
from forerun.core.errors import UsageError
from forerun.core.planning import bounds
from forerun.core.report.stored import open_stored
from forerun.core.study.best import shared
from forerun.core.study.compare import moved_parts
from forerun.core.study.compared import Comparison, save_comparison
from forerun.core.study.differences import figures

from .test_nodes_plan import JOBS, SCENARIO, TABLE, rows

POLICIES = ("ef-accessctrl", "edf-accessctrl", "fifo")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS + rows(13).replace(",9\n", ",900\n"))
    (tmp_path / "net.csv").write_text(TABLE)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    return tmp_path / "s.yaml"


SIX = "machines.nodes[0].count=6"


def test_policies_on_the_same_jobs_share_a_bracket(path: Path) -> None:
    scenario = forerun.load(path, [SIX])
    compared = forerun.compare(scenario, POLICIES, bound=True, seeds=2)
    *_, bracket = bounds(scenario)
    known = shared(compared)
    assert known is not None and known.bound == bracket.bound / 10 and known.jobs == 10 and known.gpus == 6
    assert known.reached == pytest.approx(
        max(bracket.reached or 0, *(10 * one.value for one in compared.standings)) / 10
    )
    for one in compared.standings:
        assert one.best is not None and one.best.least_share is not None and one.best.most_share is not None
        assert one.best.least_share == pytest.approx(one.value / known.bound)
        assert one.best.least_share <= one.best.most_share <= 1


def test_variants_on_other_machines_have_their_own(path: Path) -> None:
    variants: dict[str, dict[str, Any]] = {"two": {"seed": 0}, "six": {"machines.nodes[0].count": 6}}
    compared = forerun.compare(forerun.load(path), (), variants, bound=True, objective="makespan_s")
    assert shared(compared) is None
    for one in (
        compared.standings
    ):  # jobs that are not admitted never end, and the bound is for schedules that end all
        assert one.best is not None and "never end under it" in one.best.why_not
    ended = forerun.compare(
        forerun.load(path), (), {name: {**one, "policy": "fifo"} for name, one in variants.items()}, bound=True,
        objective="makespan_s",
    )  # fmt: skip
    for one in ended.standings:
        assert one.best is not None and one.best.bound is not None and one.best.reached is not None
        assert one.best.bound <= one.best.reached <= one.value
        assert one.best.least_share == pytest.approx(one.best.bound / one.value)
        assert one.best.most_share == pytest.approx(one.best.reached / one.value)


def test_random_jobs_are_bounded_on_every_seed() -> None:
    """The means over the seeds, against a bound of each seed by itself."""
    scenario = forerun.load(
        forerun.demo("cluster").scenario, ["trace.generate.jobs=15", "machines.nodes[0].count=1"]
    )
    compared = forerun.compare(scenario, POLICIES[:2], bound=True, seeds=3)
    assert not compared.exact and compared.seeds == 3
    ends = []
    for seed in range(3):
        *_, one = bounds(scenario.with_(seed=scenario.seed + seed))
        ends.append((float(one.reached or 0) / one.of, one.bound / one.of))
    known = shared(compared)
    assert known is not None and known.bound == pytest.approx(np.mean([bound for _, bound in ends]))
    assert known.reached is not None and known.reached >= np.mean([reached for reached, _ in ends]) - 1e-12
    assert all(one.best is not None and one.value <= known.reached + 1e-12 for one in compared.standings)


def test_it_is_saved_shown_and_drawn(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "c.json", tmp_path / "c.html"
    words = ["compare", str(path), "--set", SIX, *(word for name in POLICIES for word in ("--policy", name))]
    assert run([*words, "--bound", "-o", str(out), "--report", str(page)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "best possible: deadlines met: some schedule or policy reaches" in shown
    assert "no scheduler goes above" in shown and "(10 jobs on 6 GPUs)" in shown
    saved = open_stored(out).comparison  # type: ignore[union-attr]
    assert isinstance(saved, Comparison) and shared(saved) is not None
    assert "Of the best possible" in page.read_text()
    drawn = {one.id: one for one in figures(saved, moved_parts(saved))}
    assert len(drawn["best-possible-deadline_ratio"].data["share"]) == 3
    assert drawn["compared-deadline_ratio"].rules
    assert run(words) == 0 and "best possible" not in capsys.readouterr().out


def test_a_comparison_without_bounds_is_read_as_before(path: Path, tmp_path: Path) -> None:
    compared = forerun.compare(forerun.load(path), POLICIES[:2], seeds=2)
    saved = json.loads(save_comparison(compared, tmp_path / "old.json").read_text())
    for one in saved["standings"]:
        del one["best"]
    (tmp_path / "old.json").write_text(json.dumps(saved))
    assert shared(open_stored(tmp_path / "old.json").comparison) is None  # type: ignore[union-attr]


def test_a_figure_or_a_domain_without_bounds_is_one_line(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", str(path), "--policy", "fifo", "--policy", "srtf", "--bound", "-q"]
    assert run([*words, "--objective", "jct_p99_s"]) == 2
    printed = capsys.readouterr()
    assert "no bound of jct_p99_s is known; known: deadline_ratio" in printed.err
    assert len(printed.err.splitlines()) == 1 and not printed.out
    with pytest.raises(UsageError, match="no bounds are known in the energy domain"):
        forerun.compare(forerun.load(forerun.demo("energy").scenario), ["joint", "default"], bound=True)


BAD = {
    "no jobs": ("", "contains no rows of data"),
    "a job that runs nowhere": ("1,0,300,net,900,64,2,30\n", "jobs.csv:2: batch_size 64 of net"),
    "no work": ("1,0,0,net,900,32,2,30\n", "jobs.csv:2:iteration: 0 is below 1"),
    "a hole where a job runs": ("1,0,300,net,900,16,4,30\n", "no throughput"),
}


@pytest.mark.parametrize(("log", "says"), BAD.values(), ids=BAD)
def test_bad_files_are_one_line(log: str, says: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.with_name("jobs.csv").write_text(JOBS + log)
    path.with_name("net.csv").write_text("global_batch_size,1,2,4\n32,10,15.5,22\n16,0,nan,0\n")
    assert run(["compare", str(path), "--policy", "ef-accessctrl", "--policy", "fifo", "--bound", "-q"]) == 2
    printed = capsys.readouterr()
    assert says in printed.err and len(printed.err.splitlines()) == 1 and not printed.out


def test_two_gpu_types_have_a_best_possible(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = "[{name: a, count: 1, gpus: 4, gpu_type: x}, {name: b, count: 1, gpus: 4, gpu_type: y}]"
    words = ["compare", str(path), "--policy", "fifo", "--policy", "srtf", "--bound", "--set"]
    assert run([*words, f"machines.nodes={nodes}", "--set", "profile=[]"]) == 0
    shown = capsys.readouterr().out
    assert "best possible" in shown and "no best possible for" not in shown
