"""What separates a run from the best possible: the steps, their runs, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import forerun
from forerun.core.cli.main import run
from forerun.core.errors import UsageError
from forerun.core.planning import bounds
from forerun.core.study.gap import gap_of

from ..conftest import shared_path
from .conftest import DATA
from .test_nodes_plan import JOBS, SCENARIO, TABLE, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS + rows(13).replace(",9\n", ",900\n"))
    (tmp_path / "net.csv").write_text(TABLE)
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("slot: 1s", "slot: 60s"))
    return tmp_path / "s.yaml"


FREE = "costs={models: {'*': {'1->2': 0, '2->1': 0}}}"


def test_every_step_is_a_run_with_the_changes_before_it(path: Path) -> None:
    given = ["policy=ef-accessctrl", "machines.nodes[0].count=6"]
    gap = gap_of(forerun.simulate(forerun.load(path, given)))
    overrides = [[], ["slot=10s"], ["slot=1s"], ["slot=1s", FREE]]
    met = [forerun.simulate(forerun.load(path, given + more)).summary["deadlines_met"] for more in overrides]
    *_, bracket = bounds(forerun.load(path, given))
    assert [step.value for step in gap.steps] == met and len(set(met)) > 1
    assert (gap.reached, gap.bound) == (max(*met, bracket.reached or 0), bracket.bound)
    moved = [by for _, _, by in gap.rows()]
    assert moved[0] is None and sum(by for by in moved if by is not None) == gap.bound - met[0]


def test_what_views_and_quotas_cost_is_taken_away(path: Path) -> None:
    overrides = [
        "policy=srtf", "machines.nodes[0].count=4", "placement=best-fit", "multi_node_penalty=[1.0, 0.5]",
        "costs.restart_s=20", "trace.first=6",
    ]  # fmt: skip
    gap = gap_of(forerun.simulate(forerun.load(path, overrides)))
    assert [step.meaning for step in gap.steps[1:]] == [
        "GPUs anywhere", "several nodes are as fast as one", "changes of GPUs that cost nothing",
    ]  # fmt: skip
    assert all(step.value is not None and step.value <= gap.bound for step in gap.steps)


def test_without_deadlines_it_is_completion_times(path: Path) -> None:
    log = path.with_name("jobs.csv")
    lines = [line.split(",") for line in log.read_text().splitlines()]
    log.write_text(
        "\n".join(
            ",".join("" if at == 4 and n else cell for at, cell in enumerate(cells))
            for n, cells in enumerate(lines)
        )
    )
    gap = gap_of(
        forerun.simulate(forerun.load(path, ["policy=fifo", "machines.nodes[0].count=4", "trace.first=6"]))
    )
    assert gap.figure == "jct_mean_s" and gap.better == "lower" and gap.reached is not None
    assert gap.steps[0].value is not None and gap.bound <= gap.reached <= gap.steps[0].value


def test_the_published_comparison_by_parts(tmp_path: Path) -> None:
    """Figure 8(a) under corrected ElasticFlow, against what was known beforehand of its parts."""
    shared_path("data", "cluster")
    data = {
        "domain": "cluster",
        "trace": {"file": str(DATA / "elasticVpollux_e.csv")},
        "machines": {"nodes": [{"count": 16, "gpus": 4}]},
        "profile": [{"tables": [str(path) for path in sorted((DATA / "throughputs_T4").glob("*.csv"))]}],
        "policy": "ef-accessctrl",
    }
    gap = gap_of(forerun.simulate(forerun.loads(json.dumps(data))))
    assert [step.value for step in gap.steps] == [163, 171, 173, 180]
    assert gap.reached == gap.bound == 181


def test_the_command_shows_it_where_it_is_asked_for(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    words = ["--set", "policy=ef-accessctrl", "--set", "machines.nodes[0].count=6", "--set", "trace.first=7"]
    assert run(["simulate", str(path), *words, "-o", folder]) == 0
    capsys.readouterr()
    assert run(["explain", folder, "--bound"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "What separates it from the best possible" in shown and "slot of 10 s" in shown
    assert (
        "some schedule that knows the future" in shown
        and "in another order each would move another amount" in shown
    )
    assert run(["explain", folder, "--bound", "--json"]) == 0
    gap = json.loads(capsys.readouterr().out)["gap"]
    assert gap["figure"] == "deadlines_met" and len(gap["steps"]) == 4
    assert run(["explain", folder, "--json"]) == 0
    assert "gap" not in json.loads(capsys.readouterr().out)


def test_what_has_no_bound_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0"]))
    with pytest.raises(UsageError, match="no bounds are known in the energy domain"):
        gap_of(result)
    result.save(tmp_path / "run")
    assert run(["explain", str(tmp_path / "run"), "--bound"]) == 2
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1 and not printed.out
