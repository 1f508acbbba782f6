"""The cluster domain's three steps: files are read by the first, and by no other."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.core.domain import get_domain
from forerun.core.errors import ForerunError, ProfileError
from forerun.replication.pollux.schedule import Pollux

SCENARIO = """
domain: cluster
trace: jobs.csv
machines: {nodes: [{count: 2, gpus: 4, gpu_type: a}]}
profile: [{tables: [m.csv]}]
costs: costs.csv
mode: corrected
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "m.csv").write_text("global_batch_size,1,2,4,8\n64,1,1.9,3.5,6\n")
    (tmp_path / "costs.csv").write_text("model,1->2,2->1,migrate\nm,3,2,4\n")
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
        "0,0,500,m,900,64,2,263\n1,30,900,m,1200,64,4,257\n2,60,300,m,100,64,1,300\n"
    )
    return tmp_path


@pytest.mark.parametrize("policy", ["ef-accessctrl", "edf", "gandiva", "srtf", "las", "pollux"])
def test_only_prepare_reads_files(folder: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    domain = get_domain("cluster")
    scenario = forerun.load(folder / "s.yaml", [f"policy={policy}"])
    whole = forerun.simulate(scenario)  # compiles what the runs below need
    inputs = domain.prepare(scenario)
    for path in folder.iterdir():
        path.unlink()

    def no_file(path: Any, *arguments: Any, **options: Any) -> Any:
        raise AssertionError(f"opened {path}")

    monkeypatch.setattr(builtins, "open", no_file)
    monkeypatch.setattr(Path, "open", no_file)
    result = domain.summarize(domain.run(inputs))
    assert result.summary == whole.summary and result.notes == whole.notes and result.why == whole.why
    assert result.tables["allocations"]["from_s"].tolist() == whole.tables["allocations"]["from_s"].tolist()


def test_measurements_of_a_policy_are_inputs(folder: Path) -> None:
    """A folder that cannot be read is an error before the run."""
    scenario = forerun.load(folder / "s.yaml").with_(policy=Pollux(measurements=str(folder / "none")))
    with pytest.raises(ProfileError, match="is no folder of measurements"):
        get_domain("cluster").prepare(scenario)


def test_the_result_names_the_policy_that_ran(folder: Path) -> None:
    result = forerun.simulate(forerun.load(folder / "s.yaml"), policy=Pollux())
    assert result.scenario.policy == Pollux()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["policy={name: las, round_s: -5}"], "round_s: is -5; 0 .* or more is required"),
        (
            [
                "policy=fifo",
                "placement=best-fit",
                "machines.nodes=[{count: 1, gpus: 4}, {count: 2, gpus: 2}]",
            ],
            "no nodes",
        ),
        (
            ["policy={name: easy, order: multifactor}"],
            "multifactor without weights is the order of submission",
        ),
    ],
)
def test_what_a_policy_cannot_run_on_is_refused_before_the_run(
    tmp_path: Path, settings: list[str], said: str
) -> None:
    """`prepare` checks parameters of policies against the data, so that `forerun check` and plans know them, too."""
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_s,gpus,duration_s,requested_s\na,0,1,10,10\nb,1,8,10,10\n"
    )
    (tmp_path / "s.yaml").write_text(
        "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 2, gpus: 4}]}\npolicy: fifo\n"
    )
    get_domain("cluster").prepare(forerun.load(tmp_path / "s.yaml"))
    with pytest.raises(ForerunError, match=said):
        get_domain("cluster").prepare(forerun.load(tmp_path / "s.yaml", settings))
