"""Sites and logs in the shape of real ones: a part that does not matter refuses nothing, and what a file states counts."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.core.errors import ScenarioError
from forerun.site.history import read_history

QUEUES = Path(__file__).parent / "kueue_cpu_queue_beside"
CONF = """NodeName=n[1-4] CPUs=64 Gres=gpu:4
PartitionName=gpu Nodes=n[1-4] Default=YES MaxTime=2-00:00:00
PartitionName=any Nodes=n[1-4] MaxTime=UNLIMITED
"""
LOG = "JobID|User|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|Timelimit\n" + "".join(
    f"{job}|u|{partition}|2025-03-03T0{job}:00:00|2025-03-03T0{job}:00:00|2025-03-03T0{job}:10:00|COMPLETED|600|"
    f"gres/gpu=4|{limit}\n"
    for job, partition, limit in (
        (1, "gpu", "09:00:00"), (2, "gpu", "UNLIMITED"), (3, "gpu", "Partition_Limit"), (4, "any", "01:00:00"),
    )
)  # fmt: skip


def test_a_queue_without_gpus_is_a_note() -> None:
    result = forerun.simulate(forerun.load(QUEUES / "s.yaml"))
    assert len(result.tables["jobs"]) == 2
    assert "not simulated: ClusterQueues without a quota of GPUs: cpu-cq" in result.notes
    assert not any("LocalQueue" in note for note in result.notes)


def test_queues_without_any_gpus_are_refused_with_their_file(tmp_path: Path) -> None:
    from forerun.cluster.inputs.kueue import read_kueue

    path = tmp_path / "queues.yaml"
    path.write_text((QUEUES / "queues.yaml").read_text().replace("nvidia.com/gpu", "example.com/nic"))
    with pytest.raises(ScenarioError, match=r"queues\.yaml: has no ClusterQueue with a quota of GPUs"):
        read_kueue([path])


def few_unlimited(folder: Path, conf: str = CONF) -> forerun.Result:
    (folder / "j.txt").write_text(LOG)
    (folder / "s.conf").write_text(conf)
    (folder / "b.yaml").write_text("domain: cluster\ntrace: j.txt\nmachines: {file: s.conf}\npolicy: easy\n")
    return forerun.simulate(forerun.load(folder / "b.yaml"))


def test_jobs_without_a_limit_have_that_of_their_partition(tmp_path: Path) -> None:
    result = few_unlimited(tmp_path)
    assert len(result.tables["jobs"]) == 4
    assert any(
        note.startswith("2 of 4 jobs without a requested time have the limit") for note in result.notes
    )


def test_a_limit_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"s\.conf:2: MaxTime: 'soon' is not a time limit"):
        few_unlimited(tmp_path, CONF.replace("2-00:00:00", "soon"))


def test_the_header_of_a_standard_log_counts(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    header = (
        "; UnixStartTime: 893466664\n; TimeZoneString: Europe/Stockholm\n; MaxNodes: 128\n; MaxProcs: 256\n"
    )
    row = "{} {} 5 600 4 -1 -1 4 1200 -1 1 2 1 -1 1 -1 -1 -1\n"
    path.write_text(header + "".join(row.format(job, 100 * job) for job in range(1, 40)))
    log = read_history(path)
    assert log.origin_s == 893466664 + 100 and log.start_s[0] == 5
    assert "the log's header says MaxNodes 128 and MaxProcs 256" in log.evidence
    path.write_text(header.replace("893466664", "0") + row.format(1, 100) + row.format(2, 200))
    assert read_history(path).origin_s == 100
