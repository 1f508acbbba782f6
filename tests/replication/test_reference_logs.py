"""`--reference-logs`: the published simulator's own files, from our runs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from forerun.core.cli.main import run
from forerun.replication.elasticflow.reference_logs import JOB_COLUMNS

from ..cluster.conftest import DATA, golden_alloc, golden_jobs, shared_or_skip

SMALL = (
    "domain: cluster\ntrace: {file: jobs.csv}\nmachines: {nodes: [{count: 1, gpus: 4}]}\npolicy: {name: srtf}\n"
    "placement: first-fit\n"
)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_small_run_is_written_as_the_reference_writes_it(tmp_path: Path, capsys: Any) -> None:
    """4 GPUs: `a` runs alone until the shorter `b` stops it at 10 s; `c` has no deadline and waits for both."""
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
        "a,0,1,,500,1,4,100,0\nb,10,1,,60,1,2,20,0\nc,12,1,,40,1,4,200,1\n"
    )
    (tmp_path / "s.yaml").write_text(SMALL)
    out = tmp_path / "logs"
    assert run(["simulate", str(tmp_path / "s.yaml"), "--reference-logs", str(out)]) == 0
    assert "reference logs:" in capsys.readouterr().out
    jobs = rows_of(out / "job.csv")
    assert list(jobs[0]) == list(JOB_COLUMNS)
    assert [job["job_id"] for job in jobs] == ["b", "a", "c"]
    assert jobs[0] | {"time": "30", "executed_time": "20", "JCT": "20", "pending_time": "0"} == jobs[0]
    assert (
        jobs[1] | {"start_time": "30", "end_time": "120", "executed_time": "100", "preempt": "1"} == jobs[1]
    )
    assert jobs[2]["best_effort_job"] == "1" and jobs[2]["pending_time"] == str(120 - 12)
    events = rows_of(out / "scheduling_events.csv")
    assert [name for name in events[0] if name.startswith("gpu")] == ["gpu0-0", "gpu0-1", "gpu0-2", "gpu0-3"]
    held = {event["time"]: [event[f"gpu0-{k}"] for k in range(4)] for event in events}
    assert held["0"] == ["a"] * 4 and held["10"] == ["b", "b", "", ""] and held["30"] == ["a"] * 4
    assert held["120"] == ["c"] * 4 and held["320"] == [""] * 4
    assert float(events[0]["ce"]) == pytest.approx(1.0)


def test_domains_without_reference_logs_say_so(tmp_path: Path, capsys: Any) -> None:
    import forerun

    demo = Path(forerun.__file__).parent / "spot" / "demo.yaml"
    assert run(["simulate", str(demo), "--reference-logs", str(tmp_path / "logs")]) == 2
    assert "cluster has" in capsys.readouterr().err
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize("schedule", ["edf", "ef-accessctrl", "dlas-gpu", "gandiva"])
def test_the_logs_agree_with_the_references_tables(schedule: str, tmp_path: Path, capsys: Any) -> None:
    """Order of completion, ends, and cluster efficiency at each event, on the 10-job head of the testbed trace."""
    shared_or_skip()
    tables = sorted((DATA / "throughputs_A100").glob("*.csv"))
    (tmp_path / "s.yaml").write_text(
        f"domain: cluster\ntrace: {{file: {DATA / 'head10_of_195.csv'}}}\n"
        f"machines: {{file: {DATA / 'cluster_specs' / 'n1g8.csv'}}}\n"
        f"profile: [{{tables: {[str(path) for path in tables]}, gpu_type: A100}}]\n"
        f"policy: {schedule}\nmode: compat\nslot_s: 240\n"
    )
    assert run(["simulate", str(tmp_path / "s.yaml"), "--reference-logs", str(tmp_path / "logs")]) == 0
    ours = {row["job_id"]: row for row in rows_of(tmp_path / "logs" / "job.csv")}
    name = f"head10_n1g8/{schedule}"
    table = golden_jobs(name)
    theirs = [
        (float(time), job, float(end))
        for time, job, end in zip(table["log_time"], table["job_id"], table["end"], strict=True)
        if end
    ]
    assert len(ours) == len(theirs)
    for time_s, job, end_s in theirs:
        assert (float(ours[job]["time"]), float(ours[job]["end_time"])) == (time_s, end_s)
    reference = golden_alloc(name)
    if reference is not None:
        events = rows_of(tmp_path / "logs" / "scheduling_events.csv")
        assert [float(row["time"]) for row in events] == [float(time_s) for time_s, _ in reference["ce"]]
        for row, (_, ce) in zip(events, reference["ce"], strict=True):
            assert float(row["ce"]) == pytest.approx(ce, abs=1e-9)
