"""Who plays a scenario's policy: the engine of its mode, if one is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster import engine
from forerun.cluster.engine import Engine, engines
from forerun.cluster.engine.modes.default import Default
from forerun.cluster.policy import played_in, schedulers
from forerun.core.errors import ScenarioError

FEW = ["trace.generate.jobs=60"]
PUBLISHED = ("chronus", "dlas-gpu", "edf", "edf-accessctrl", "ef", "ef-accessctrl", "gandiva", "themis")


def demo(*given: str) -> Any:
    return forerun.load(forerun.demo("cluster").scenario, [*FEW, *given])


def test_modes_of_published_schedules_come_from_another_package() -> None:
    homes = {name: engines().get(name).__module__ for name in engines()}
    assert homes.pop("default") == Default.__module__
    assert set(homes) == {"compat", "corrected"}
    assert all(home.startswith("forerun.replication.") for home in homes.values())


@pytest.mark.parametrize("policy", ["elasticflow", "pollux", "srtf"])
def test_what_needs_no_published_schedule_is_the_same_run_in_the_default_mode(policy: str) -> None:
    runs = [forerun.simulate(demo(f"policy={policy}", f"mode={mode}")) for mode in ("default", "corrected")]
    assert runs[0].summary == runs[1].summary and runs[0].why == runs[1].why
    for name, table in runs[0].tables.items():
        for column in table.schema.columns:
            np.testing.assert_array_equal(table[column.name], runs[1].tables[name][column.name])


@pytest.mark.parametrize("policy", PUBLISHED)
def test_the_default_mode_plays_no_published_schedule(policy: str) -> None:
    with pytest.raises(ScenarioError, match=f"{policy} is a published schedule; play it in mode: compat or"):
        demo(f"policy={policy}", "mode=default")
    assert policy not in played_in("default", schedulers())
    assert policy in played_in("corrected", schedulers()) and policy in played_in("compat", schedulers())


def test_switches_are_checked_by_whoever_has_the_mode() -> None:
    with pytest.raises(ScenarioError, match=r"compat.*has switches of published schedules"):
        demo("mode=default", "compat.marginal_order=corrected")
    with pytest.raises(ScenarioError, match=r"no switch 'marginal_ordr'; did you mean 'marginal_order'"):
        demo("mode=compat", "compat.marginal_ordr=corrected")


def test_a_mode_that_no_installed_package_has_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without the published systems; the message says which modes there are."""

    class Alone:
        def __iter__(self) -> Any:
            return iter(("default",))

        def get(self, name: str, *, where: str = "") -> type[Engine]:
            return Default

    monkeypatch.setattr("forerun.cluster.scenario.engines", Alone)
    monkeypatch.setattr(engine, "engines", Alone)
    with pytest.raises(ScenarioError, match=r"mode: no mode 'corrected'; known: default"):
        demo("mode=corrected")
    assert demo("mode=default").mode == "default"
