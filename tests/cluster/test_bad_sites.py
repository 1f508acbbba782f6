"""Logs and files of sites that contradict each other: one line, exit code 2, and nothing written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from forerun.core.cli.main import run as command_line

HEADER = "JobID|User|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|Timelimit|NodeList"
CONF = "ClusterName=alpha\nNodeName=n[1-2] Gres=gpu:4\nPartitionName=p Nodes=n[1-2]\n"


def clock(at_s: int) -> str:
    return f"2025-01-01T{at_s // 3600:02}:{at_s % 3600 // 60:02}:{at_s % 60:02}"


def row(job: int, submit: int, start: int, end: int, partition: str = "p") -> str:
    at = "|".join(map(clock, (submit, start, end)))
    return f"{job}|u|{partition}|{at}|COMPLETED|{end - start}|gres/gpu=4|60|n{1 + job % 2}"


GOOD = [row(job, job * 700, job * 700 + 5, job * 700 + 600) for job in range(12)]
#: what slurm.conf, the log and a file of the site are, and what is said
CASES = {
    "a partition that names unknown nodes": (
        CONF.replace("n[1-2]\n", "n[1-5]\n"), GOOD, {}, r"slurm\.conf:3: partition p names nodes .* has: n3, n4, n5",
    ),
    "a job for a partition that does not exist": (
        CONF, [*GOOD, row(50, 9000, 9001, 9600, "ghost")], {},
        r"jobs\.txt:14: partition 'ghost' of 1 jobs is not in the configuration; known: p .*larger: drop",
    ),
    "a job larger than its partition": (
        CONF + "PartitionName=s Nodes=n1\n", [*GOOD, row(50, 9000, 9001, 9600, "s").replace("gpu=4", "gpu=8")], {},
        r"jobs\.txt:14: job 50: asks for 8 GPUs, the nodes that it may use have 4 of one type \(trace\.larger: drop",
    ),
    "a log of another cluster": (
        CONF, [line.replace("|p|", "|q|") for line in GOOD], {}, r"partition 'q' of 12 jobs is not in the configuration",
    ),
    "rows that overlap": (
        CONF, [row(job, job * 10, job * 10 + 60, 7000) for job in range(12)], {},
        r"up to 48 GPUs are in use at once and the machines have 8, 40 too few, first at 2025-01-01T00:01: rows overlap",
    ),
    "a clock that went back": (CONF, [*GOOD, row(50, 9000, 9600, 9001)], {}, r"jobs\.txt:14:ElapsedRaw: '-599'"),
    "associations of another cluster": (
        CONF, GOOD, {"a.txt": "Cluster|Account|User|Share\nbeta|root||1\n"}, r"a\.txt: is of cluster 'beta'; .* 'alpha'",
    ),
    "nodes of another cluster": (
        CONF, GOOD, {"n.txt": "NodeName=x1 Arch=x\n   CPUTot=8 State=IDLE\n"}, r"n\.txt:1: is of another cluster\? .* x1",
    ),
    "partitions of another cluster": (
        CONF, GOOD, {"p.txt": "PartitionName=p\n   Nodes=x[1-2]\n"}, r"p\.txt:1: partition p names nodes .* has: x1, x2",
    ),
    "events of another cluster": (
        CONF, GOOD, {"e.txt": f"NodeName|TimeStart|TimeEnd|State\nx1|{clock(0)}|{clock(9)}|DOWN\n"},
        r"e\.txt:2: x1 is of another cluster\?",
    ),
}  # fmt: skip


def refused(folder: Path, machines: str, log: str, policy: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What one line says of a scenario that cannot be."""
    text = f"domain: cluster\ntrace: {log}\nmachines: {machines}\npolicy: {policy}\n"
    (folder / "scenario.yaml").write_text(text)
    before = {path.name for path in folder.iterdir()}
    assert command_line(["simulate", str(folder / "scenario.yaml"), "-o", str(folder / "run")]) == 2
    assert {path.name for path in folder.iterdir()} == before, "nothing is written"
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    return line


@pytest.mark.parametrize("case", CASES)
def test_one_line_says_what_is_wrong(tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    conf, rows, files, said = CASES[case]
    (tmp_path / "slurm.conf").write_text(conf)
    (tmp_path / "jobs.txt").write_text("\n".join([HEADER, *rows, ""]))
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    machines = f"{{file: slurm.conf, site: [{', '.join(files)}]}}"
    line = refused(tmp_path, machines, "{file: jobs.txt, format: sacct}", "easy", capsys)
    assert re.search(said, line), line


def test_jobs_of_unknown_partitions_are_left_out_where_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slurm.conf").write_text(CONF + "NodeName=alone Gres=gpu:4\n")
    rows = [*GOOD, row(50, 9000, 9001, 9600, "ghost"), row(51, 9100, 9101, 9600, "p,ghost")]
    (tmp_path / "jobs.txt").write_text("\n".join([HEADER, *rows, ""]))
    text = (
        "domain: cluster\ntrace: {file: jobs.txt, larger: drop}\nmachines: {file: slurm.conf}\npolicy: easy\n"
    )
    (tmp_path / "scenario.yaml").write_text(text)
    assert command_line(["simulate", str(tmp_path / "scenario.yaml"), "-q", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["summary"]["jobs"] == 13
    said = "\n".join(result["notes"])
    assert "job of a partition that the configuration has not left out: 1 (jobs.txt:14)" in said
    assert "in no partition, and only for jobs without one: alone" in said


QUEUES = """apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: a}
spec:
  resourceGroups:
  - coveredResources: ["nvidia.com/gpu"]
    flavors:
    - name: f
      resources: [{name: "nvidia.com/gpu", nominalQuota: 8}]
"""


def workload(number: int, queue: str, submit: int, start: int, end: int) -> dict[str, object]:
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": 4}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": f"{clock(at_s)}Z"}
        for kind, at_s in (("Admitted", start), ("Finished", end))
    ]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": f"w{number}", "namespace": "ns", "creationTimestamp": f"{clock(submit)}Z"},
        "spec": {"queueName": queue, "podSets": [pods]},
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([workload(job, "a", job * 10, job * 10 + 60, 7000) for job in range(12)], r"up to 48 GPUs .* 40 too few, first at"),
        ([workload(1, "nowhere", 0, 5, 600)], r"job ns/w1: asks for 4 GPUs; no ClusterQueue 'ns/nowhere'"),
    ],
)  # fmt: skip
def test_kueue_says_it_in_one_line_too(
    tmp_path: Path, jobs: list[dict[str, object]], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    local = "---\napiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: a, namespace: ns}\n"
    (tmp_path / "queues.yaml").write_text(QUEUES + local + "spec: {clusterQueue: a}\n")
    (tmp_path / "jobs.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs}))
    line = refused(tmp_path, "{file: queues.yaml}", "{file: jobs.json, format: kueue}", "kueue", capsys)
    assert re.search(said, line), line
