"""Promises of every domain, checked on its demonstration; new domains are included automatically."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.core.catalog import demos
from forerun.core.domain import domain_names, get_domain
from forerun.core.result.run import load_result
from forerun.core.scenario.schema import scenario_schema
from forerun.core.scenario.spec import to_data
from forerun.core.scenario.text import read_document
from forerun.core.scenarios import load

DEMOS = demos()
by_room = pytest.mark.parametrize("demo", DEMOS, ids=lambda demo: demo.domain)


def digest(folder: Path) -> str:
    """Everything a run directory holds, but for what may differ between machines."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != "provenance.json":
            found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each demonstration, simulated and kept."""
    base = tmp_path_factory.mktemp("runs")
    return {
        demo.domain: forerun.simulate(load(demo.scenario)).check().save(base / demo.domain) for demo in DEMOS
    }


def test_every_room_has_a_demonstration() -> None:
    assert {demo.domain for demo in DEMOS} == set(domain_names())
    assert all(demo.question.endswith("?") for demo in DEMOS)


@by_room
def test_a_run_simulated_from_its_own_scenario_is_the_same_run(
    demo: Any, saved: dict[str, Path], tmp_path: Path
) -> None:
    again = forerun.simulate(load(saved[demo.domain] / "scenario.json")).check().save(tmp_path / "again")
    assert digest(again) == digest(saved[demo.domain])
    assert load_result(again).id == load_result(saved[demo.domain]).id


@by_room
def test_the_same_bytes_under_any_hash_seed(demo: Any, saved: dict[str, Path], tmp_path: Path) -> None:
    for seed in ("0", "31"):
        command = [
            sys.executable,
            "-m",
            "forerun",
            "simulate",
            str(demo.scenario),
            "-o",
            str(tmp_path / seed),
            "--quiet",
        ]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True)
        assert digest(tmp_path / seed) == digest(saved[demo.domain])


@by_room
def test_the_same_bytes_with_the_process_pool(demo: Any, tmp_path: Path) -> None:
    """Two cells of each domain's demonstration, here and in a pool of two processes."""
    from forerun.core.study.executors import Here
    from forerun.core.study.executors.processes import Processes
    from forerun.core.study.expand import load_study
    from forerun.core.study.run import run_study
    from forerun.core.study.store import Store

    (tmp_path / "study.yaml").write_text(json.dumps({"base": str(demo.scenario), "seeds": 2}))
    plan = load_study(tmp_path / "study.yaml")
    kept = []
    for name, executor in (("here", Here()), ("pool", Processes(2))):
        run_study(plan, tmp_path / f"{name}.sqlite", executor)
        with Store(tmp_path / f"{name}.sqlite", plan) as store:
            kept.append(list(store.outcomes()))
    assert kept[0] == kept[1] and all(type(outcome).__name__ == "Done" for outcome in kept[0])


@by_room
def test_simulated_time_does_not_see_the_clock(demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load(demo.scenario)
    forerun.simulate(scenario)  # compiling kernels may look at the clock

    def refuse(*_: object, **__: object) -> float:
        raise AssertionError("the host's clock was read during a simulation")

    for name in (
        "time",
        "monotonic",
        "perf_counter",
        "process_time",
        "time_ns",
        "monotonic_ns",
        "perf_counter_ns",
    ):
        monkeypatch.setattr(time, name, refuse)
    clock = type("Clock", (datetime.datetime,), {"now": classmethod(refuse), "utcnow": classmethod(refuse)})
    monkeypatch.setattr(datetime, "datetime", clock)
    result = forerun.simulate(scenario)
    monkeypatch.undo()
    assert result.summary


@by_room
def test_what_a_result_holds(demo: Any, saved: dict[str, Path]) -> None:
    run = load_result(saved[demo.domain])
    assert run.why and run.headline and set(run.headline) <= set(run.summary)
    assert run.intervals and set(run.intervals) <= set(run.summary)
    assert all(interval.low <= interval.high and interval.method for interval in run.intervals.values())
    assert run.ledgers and run.tables
    for table in run.tables.values():
        assert all(column.meaning for column in table.schema.columns), (
            f"{table.schema.name}: columns without a meaning"
        )
    assert (saved[demo.domain] / "timeline.json.gz").exists()


@by_room
def test_its_figures_are_drawn_from_a_kept_run(demo: Any, saved: dict[str, Path]) -> None:
    figures = get_domain(demo.domain).figures(load_result(saved[demo.domain]))
    assert len(figures) >= 2 and len({figure.id for figure in figures}) == len(figures)
    for figure in figures:
        assert figure.title and figure.caption and figure.x.label and figure.y.label, figure.id


@by_room
def test_the_schema_admits_the_demonstration(demo: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = scenario_schema(get_domain(demo.domain).scenario_type)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(to_data(load(demo.scenario)), schema)
    # Also as it is written: quantities with units, under names without.
    jsonschema.validate(read_document(demo.scenario).data, schema)


@by_room
def test_unknown_keys_are_answered_with_what_is_known(demo: Any) -> None:
    from forerun.core.errors import ScenarioError

    with pytest.raises(ScenarioError, match="did you mean 'seed'"):
        load(demo.scenario, ["sedd=1"])


@by_room
def test_a_negative_seed_is_an_error_of_the_scenario(demo: Any) -> None:
    from forerun.core.errors import ScenarioError

    with pytest.raises(ScenarioError, match=r"at \$\.seed"):
        load(demo.scenario, ["seed=-1"])


@by_room
def test_entry_points_are_named_by_room_and_kind(demo: Any) -> None:
    """What `forerun policies` prints is where a plugin announces itself."""
    for kind, registry in get_domain(demo.domain).policy_kinds.items():
        assert registry.group == f"forerun.{demo.domain}.{kind}"


@by_room
def test_another_seed_is_another_run(demo: Any, saved: dict[str, Path]) -> None:
    assert forerun.simulate(load(demo.scenario, seed=99)).id != load_result(saved[demo.domain]).id
