"""`forerun check SCENARIO` reads what a run would read, in every domain: a file that a run refuses is refused before."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.core.catalog import demos
from forerun.core.domain import domain_names, get_domain
from forerun.core.errors import ForerunError

#: a scenario of each domain that names a file, which holds what no reader of it takes
WORLDS = {
    "cluster": "trace: bad.csv\nmachines: {nodes: [{count: 1, gpus: 8}]}\npolicy: fifo\n",
    "spot": "fleet: bad.csv\nhorizon: 1h\njob: {depth: 1, max_pipelines: 1, step_s: {1: 5}, samples_per_step: 1}\n",
}
#: what in a domain's demonstration becomes that file
PUT_IN = {
    "serving": ("trace", "bad.csv"),
    "loading": ("dataset.sample_bytes", "{empirical: bad.csv}"),
    "energy": ("trace.train", "bad.csv"),
}


def test_every_domain_is_here() -> None:
    assert {*WORLDS, *PUT_IN} == set(domain_names())


@pytest.mark.parametrize("name", sorted({*WORLDS, *PUT_IN}))
def test_what_a_run_refuses_is_refused_before(name: str, tmp_path: Path) -> None:
    """By the same words, whatever of the domain's files it is."""
    (tmp_path / "bad.csv").write_text("zeit,knoten\nx,y\n")
    path = tmp_path / "scenario.yaml"
    if name in WORLDS:
        path.write_text(f"domain: {name}\n{WORLDS[name]}")
        scenario = forerun.load(path)
    else:
        text = next(demo.scenario for demo in demos() if demo.domain == name).read_text()
        path.write_text(text)
        for file in next(demo.scenario for demo in demos() if demo.domain == name).parent.glob("demo_*.csv"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        where, what = PUT_IN[name]
        scenario = forerun.load(path, [f"{where}={what}"])
    with pytest.raises(ForerunError) as before:
        get_domain(name).prepare(scenario)
    with pytest.raises(ForerunError) as running:
        forerun.simulate(scenario)
    assert str(before.value) == str(running.value) and "bad.csv" in str(before.value)


@pytest.mark.parametrize("demo", demos(), ids=lambda demo: demo.domain)
def test_a_demonstration_is_in_order(demo: object) -> None:
    assert forerun.check(demo.scenario).endswith("every value and file of it in order")  # type: ignore[attr-defined]
