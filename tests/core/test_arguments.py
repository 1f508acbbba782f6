"""Public functions that get a path, plain data or another type where a scenario, a run or a path is wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.core.errors import UnknownName, UsageError

SCENARIO = forerun.demo("energy").scenario
NO_SCENARIOS = (
    "path.yaml",
    Path("path.yaml"),
    {},
    {"domain": "energy"},
    None,
    3,
    [],
    type(forerun.load(SCENARIO)),
)

WANT_SCENARIO: dict[str, Callable[[Any], Any]] = {
    "simulate": forerun.simulate,
    "plan": forerun.plan,
    "compare": lambda given: forerun.compare(given, ["default"]),
    "profile_of": forerun.profile_of,
    "check": lambda given: forerun.check(SCENARIO, scenario=given),
}
WANT_PATH: dict[str, Callable[[Any], Any]] = {
    "load": forerun.load,
    "load_result": forerun.load_result,
    "check": forerun.check,
    "run_study": forerun.run_study,
}
WANT_RUNS: dict[str, Callable[[Any], Any]] = {
    "write_page": lambda given: forerun.write_page(given, "page.html"),
    "write_pictures": lambda given: forerun.write_pictures(given, "pictures", "svg"),
}


@pytest.mark.parametrize("given", NO_SCENARIOS, ids=repr)
@pytest.mark.parametrize("name", WANT_SCENARIO)
def test_what_is_no_scenario_is_refused_with_how_to_get_one(name: str, given: Any) -> None:
    if name == "check" and given is None:
        return  # the default: no scenario of its own
    with pytest.raises(UsageError, match=r"forerun\.load\(path\)") as refused:
        WANT_SCENARIO[name](given)
    (problem,) = refused.value.problems
    assert problem.where == name
    assert (given.__name__ if isinstance(given, type) else type(given).__name__) in problem.what


def test_a_run_is_no_scenario_and_a_scenario_is_no_run() -> None:
    scenario = forerun.load(SCENARIO, ["trials=0"])
    result = forerun.simulate(scenario)
    with pytest.raises(UsageError, match=r"a scenario.*is wanted, not a Result"):
        forerun.simulate(result)  # type: ignore[arg-type]
    for given in (scenario, "runs/first", {}, None, Path("runs")):
        with pytest.raises(UsageError, match=r"a run.*forerun\.load_result\(folder\).* is wanted, not a"):
            forerun.explain(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{}, None, 3, [], SCENARIO.parent.parts], ids=repr)
@pytest.mark.parametrize("name", WANT_PATH)
def test_what_is_no_path_is_refused(name: str, given: Any) -> None:
    with pytest.raises(UsageError, match=f"^{name}: a path.* is wanted, not a {type(given).__name__}"):
        WANT_PATH[name](given)


def test_a_text_of_a_scenario_is_text() -> None:
    with pytest.raises(UsageError, match=r"forerun\.load reads a file"):
        forerun.loads(SCENARIO)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["runs/first", ["runs/first"], [], {}, None, 3], ids=repr)
@pytest.mark.parametrize("name", WANT_RUNS)
def test_a_page_is_of_runs(name: str, given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="a list of runs"):
        WANT_RUNS[name](given)
    assert not list(tmp_path.iterdir())


def test_a_single_run_without_a_list_is_refused() -> None:
    result = forerun.simulate(forerun.load(SCENARIO, ["trials=0"]))
    with pytest.raises(UsageError, match="a list of runs"):
        forerun.write_page(result, "page.html")  # type: ignore[arg-type]


def test_a_chart_is_of_a_figure() -> None:
    with pytest.raises(UsageError, match=r"result\.figures"):
        forerun.chart("energy")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, 3, Path("energy"), {}, []], ids=repr)
def test_a_name_of_another_type_is_unknown(given: Any) -> None:
    for function in (forerun.get_domain, forerun.policies, forerun.schema, forerun.demo, forerun.reproduce):
        with pytest.raises(UnknownName, match="known: "):
            function(given)
    with pytest.raises(UnknownName, match="known: "):
        forerun.reproduce_all([given])


@pytest.mark.parametrize("given", ["blocks-early-stop", None, 3], ids=repr)
def test_a_list_of_names_is_not_one_name(given: Any) -> None:
    with pytest.raises(UsageError, match=r"^reproduce_all: a list of reproduction ids is wanted"):
        forerun.reproduce_all(given)
