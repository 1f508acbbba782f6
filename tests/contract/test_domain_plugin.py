"""examples/domain-plugin: a domain from another package has what the built-in ones have, and obeys its own laws."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core import domain
from forerun.core.cli.main import run as command_line
from forerun.core.errors import PolicyError, TraceError, UsageError
from forerun.core.testing import check_domain

from ..conftest import cases

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples" / "domain-plugin" / "src"
DEMO = SOURCE / "forerun_evaluation" / "demo.yaml"


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package on the path, announced as its pyproject.toml does; its entry_points.txt."""
    import tomllib

    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
    site = tmp_path_factory.mktemp("site")
    info = site / "forerun_evaluation-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    announced = info / "entry_points.txt"
    announced.write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
            for group, points in project["entry-points"].items()
        )
    )
    monkeypatch.syspath_prepend(str(SOURCE))
    monkeypatch.syspath_prepend(str(site))
    _forget()
    yield announced
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.startswith("forerun_evaluation")]:
        del sys.modules[name]
    _forget()


def _forget() -> None:
    for known in (domain.domain_names, domain._announced):
        known.cache_clear()


def scenario(tmp_path: Path, durations_s: list[float], *overrides: str) -> Any:
    (tmp_path / "list.csv").write_text(
        "evaluation,duration_s\n" + "".join(f"e{i},{one!r}\n" for i, one in enumerate(durations_s))
    )
    (tmp_path / "night.yaml").write_text("domain: evaluation\nevaluations: list.csv\ngpus: 2\ndeadline: 1h\n")
    return forerun.load(tmp_path / "night.yaml", overrides)


def test_by_hand(tmp_path: Path) -> None:
    """3 2 2 on two GPUs: in order 3 | 2 2, the longest first the same."""
    result = forerun.simulate(scenario(tmp_path, [3.0, 2.0, 2.0], "policy=in-order"))
    assert result.summary["makespan_s"] == 4.0 and result.summary["idle_gpu_s"] == 1.0
    assert result.tables["evaluations"]["gpu"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("seed", range(cases(5, 20)))
@pytest.mark.parametrize(("policy", "bound"), [("in-order", 2 - 1 / 3), ("longest-first", 4 / 3 - 1 / 9)])
def test_grahams_bounds(tmp_path: Path, seed: int, policy: str, bound: float) -> None:
    """Against the optimum by enumeration; every GPU works without a gap, one evaluation at a time."""
    rng = np.random.Generator(np.random.Philox(seed))
    durations_s = rng.integers(1, 20, size=7).astype(float).tolist()
    result = forerun.simulate(scenario(tmp_path, durations_s, "gpus=3", f"policy={policy}"))
    optimum_s = min(
        max(sum(d for d, g in zip(durations_s, gpus) if g == gpu) for gpu in range(3))
        for gpus in product(range(3), repeat=7)
    )
    assert optimum_s <= result.summary["makespan_s"] <= bound * optimum_s + 1e-9
    table = result.tables["evaluations"]
    assert sorted(table["evaluation"]) == [f"e{i}" for i in range(7)]
    for gpu in range(3):
        mine = table["gpu"] == gpu
        assert table["start_s"][mine].tolist() == [0.0, *table["end_s"][mine].tolist()][: mine.sum()]


def test_the_seed_draws_durations_and_every_policy_meets_the_same(tmp_path: Path) -> None:
    given = [5.0, 4.0, 3.0]
    runs = [
        forerun.simulate(
            scenario(tmp_path, given, "gpus=1", "spread=0.3", f"policy={policy}", f"seed={seed}")
        )
        for policy in ("in-order", "longest-first")
        for seed in (1, 2)
    ]
    ends_s = [run.summary["makespan_s"] for run in runs]
    assert ends_s[:2] == pytest.approx(ends_s[2:]) and ends_s[0] != ends_s[1]


def test_observers_and_a_policy_of_ones_own(tmp_path: Path) -> None:
    from forerun_evaluation.policy import Order, View

    class Last(Order, tag="last", frozen=True, kw_only=True):
        def choose(self, view: View) -> int:
            return len(view.duration_s) - 1

    class Wrong(Order, tag="wrong", frozen=True, kw_only=True):
        def choose(self, view: View) -> int:
            return len(view.duration_s)

    class Starts:
        def __init__(self) -> None:
            self.names: list[str] = []

        def started(self, evaluation: str, gpu: int, now_s: float) -> None:
            self.names.append(evaluation)

    seen = Starts()
    night = scenario(tmp_path, [1.0, 2.0, 3.0])
    result = forerun.simulate(night, policy=Last(), observers=[seen])
    assert seen.names == ["e2", "e1", "e0"] and result.scenario.policy == Last()
    with pytest.raises(PolicyError, match=r"Wrong at 0 s: chose position 3; 3 evaluations remain"):
        forerun.simulate(night, policy=Wrong())
    with pytest.raises(UsageError, match="is no policy of evaluation; derive it from Order"):
        forerun.simulate(night, policy=object())
    with pytest.raises(UsageError, match="observes nothing"):
        forerun.simulate(night, observers=[object()])


def test_bad_rows_are_named(tmp_path: Path) -> None:
    night = scenario(tmp_path, [1.0])
    (tmp_path / "list.csv").write_text("evaluation,duration_s\na,1\nb,-1\nc\n")
    with pytest.raises(TraceError, match=r"list.csv:3: 'b,-1' is not a name.*\n.*list.csv:4"):
        domain.get_domain("evaluation").prepare(night)


def test_every_command_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    for words, shown in (
        (["simulate", str(DEMO), "-o", run], "after the deadline"),
        (["explain", run], "Are all evaluations done by the deadline? No."),
        (["report", run, "-o", str(tmp_path / "page.html")], "page.html"),
        (
            ["compare", str(DEMO), "--policy", "in-order", "--policy", "longest-first", "--seeds", "4"],
            "ahead of",
        ),
        (["check", str(DEMO)], "in order"),
        (["policies", "evaluation"], "longest-first"),
        (["schema", "evaluation"], "deadline_s"),
        (["plan", str(DEMO)], ""),
        (["plan", str(DEMO), "--help"], "`plan` is not available for the evaluation domain"),
    ):
        code = command_line(words)
        out, err = capsys.readouterr()
        if words == ["plan", str(DEMO)]:
            assert code == 2 and "`plan` is not available for the evaluation domain" in err
        else:
            assert code == 0 and shown in " ".join(out.split()), (words, err)
    assert "GPUs that work" in (tmp_path / "page.html").read_text()


def test_it_promises_what_built_in_domains_promise(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{installed.parents[1]}{os.pathsep}{SOURCE}")
    check_domain("evaluation")


def test_a_module_is_rejected_with_what_to_do(installed: Path) -> None:
    installed.write_text("[forerun.domains]\nevaluation = forerun_evaluation\n")
    domain._announced.cache_clear()
    with pytest.raises(
        UsageError, match=r"'evaluation' of forerun\.domains: is a module.*derive a class from Domain"
    ):
        domain.get_domain("evaluation")
