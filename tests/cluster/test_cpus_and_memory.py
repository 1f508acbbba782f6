"""CPUs and memory of jobs and nodes: what Slurm's job size is made of, and where they would have bound."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.inputs.prepare import prepare
from forerun.cluster.inputs.reach import entries_of
from forerun.cluster.inputs.slurm_conf import read_slurm_nodes, read_slurm_priorities
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.readers.sacct import tres_of
from forerun.core.scenarios import load

#: GPU nodes, nodes without GPUs, and one that is down: all count in Slurm's shares
CONF = """PriorityType=priority/multifactor
PriorityWeightJobSize=1000
PriorityWeightPartition=500
NodeName=n[1-8] CPUs=64 RealMemory=500000 Gres=gpu:8
NodeName=n[9-12] Sockets=2 CoresPerSocket=64 RealMemory=500000
NodeName=n13 CPUs=64 Gres=gpu:8 State=DOWN
PartitionName=gpu Nodes=n[1-8] PriorityJobFactor=3
PartitionName=cpu Nodes=n[9-13] PriorityJobFactor=7
"""
#: nodes, GPUs of each and time limit in minutes of jobs with four CPUs a GPU, and the priorities that slurmctld 22.05.8
#: printed at submission: by default, by time, and with small jobs first
PRINTED = (
    (1, 1, 40, 254, 216, 1173), (1, 1, 330, 254, 214, 1173), (1, 8, 180, 267, 214, 1161),
    (1, 4, 15, 260, 219, 1168), (1, 8, 80, 267, 215, 1161), (2, 8, 40, 320, 218, 1107),
    (4, 2, 100, 382, 217, 1045), (3, 1, 10, 335, 237, 1093), (8, 8, 60, 639, 224, 788),
)  # fmt: skip
HEADER = "JobID|User|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|ReqTRES|Timelimit|NNodes"


def row(number: int, nodes: int, gpus: int, minutes: int, *, cpus: int = 0, gib: int = 0, at: int = 0) -> str:
    tres = f"cpu={cpus or 4 * nodes * gpus},mem={gib or 1}G,node={nodes},billing=9,gres/gpu={nodes * gpus}"
    when = f"2025-01-01T00:{at // 60:02}:{at % 60:02}"
    return f"{number}|u|gpu|{when}|{when}|2025-01-02T00:00:00|COMPLETED|600|{tres}|{tres}|{minutes}|{nodes}"


def scenario(folder: Path, rows: list[str], conf: str = CONF, policy: str = "slurm-backfill") -> Path:
    (folder / "slurm.conf").write_text(conf)
    (folder / "jobs.txt").write_text("\n".join([HEADER, *rows, ""]))
    text = "domain: cluster\ntrace: {file: jobs.txt, format: sacct}\nmachines: {file: slurm.conf}\n"
    (folder / "scenario.yaml").write_text(f"{text}policy: {policy}\n")
    return folder / "scenario.yaml"


@pytest.mark.parametrize(
    ("which", "more"),
    [(3, ""), (4, "PriorityFlags=SMALL_RELATIVE_TO_TIME\n"), (5, "PriorityFavorSmall=YES\n")],
)
def test_priorities_are_those_that_slurmctld_printed(tmp_path: Path, which: int, more: str) -> None:
    """Shares are those of all nodes and CPUs of the site: also of nodes without GPUs, and of those that are down."""
    rows = [row(at, *job[:3]) for at, job in enumerate(PRINTED, 1)]
    policy = "{name: slurm-backfill, order: multifactor}"
    inputs = prepare(load(scenario(tmp_path, rows, CONF + more, policy)))
    order = inputs.policy.order  # type: ignore[attr-defined]
    assert isinstance(order, Multifactor) and (order.nodes, order.cpus) == (13, 8 * 64 + 4 * 128 + 64)
    jobs, cluster = inputs.setting.jobs, inputs.setting.cluster
    priority = order.standing(jobs, cluster, entries_of(jobs, cluster))[1]
    assert np.abs(np.floor(priority) - [job[which] for job in PRINTED]).max() <= 1


def test_cpus_and_memory_are_read(tmp_path: Path) -> None:
    asked = tres_of("billing=8,cpu=16,gres/gpu:a100=2,mem=1.5T,node=2")
    assert (asked.cpus, asked.nodes, asked.memory_bytes, asked.gpus) == (16, 2, 1.5 * 2**40, 2)
    assert tres_of("cpu=1,mem=512,gres/gpu=1").memory_bytes == 512 * 2**20, "of MiB"
    assert np.isnan(tres_of("gres/gpu=1").cpus)
    conf = "NodeName=a Boards=2 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=2 Gres=gpu:1\n"
    conf += "NodeName=b Gres=gpu:a:1,gpu:b:3 CPUs=64 RealMemory=1000\nNodeName=c Gres=gpu:1\n"
    (tmp_path / "slurm.conf").write_text(conf)
    groups = read_slurm_nodes(tmp_path / "slurm.conf")[0].groups
    assert [one.cpus for one in groups] == [64, 16, 48, 0], "of a node of two types by its GPUs"
    assert [one.memory_bytes // 2**20 for one in groups] == [0, 250, 750, 0]
    assert read_slurm_priorities(tmp_path / "slurm.conf").cpus == 0, "not said of each"


def test_where_cpus_and_memory_would_have_bound(tmp_path: Path) -> None:
    """Against a count second by second of what the jobs on each node ask for, on drawn jobs."""
    draw = random.Random(1)
    rows = [
        row(
            at, 1, draw.choice([1, 2, 4]), 20, cpus=draw.randint(4, 40), gib=draw.randint(10, 200), at=at * 30
        )
        for at in range(1, 40)
    ]
    conf = "NodeName=n[1-3] CPUs=64 RealMemory=512000 Gres=gpu:8\nPartitionName=gpu Nodes=ALL\n"
    result = forerun.simulate(load(scenario(tmp_path, rows, conf)))
    ran = result.tables["allocations"]
    labels = prepare(load(tmp_path / "scenario.yaml")).setting.jobs.labels
    assert labels is not None
    for name, asked, most in (("CPUs", labels.cpus, 64), ("memory", labels.memory_bytes, 512_000 * 2**20)):
        seconds, late = 0, set[int]()
        jobs = [
            (int(job) - 1, int(from_s), int(to_s), node.partition(":")[0])
            for job, from_s, to_s, node in zip(ran["job"], ran["from_s"], ran["to_s"], ran["nodes"], strict=True)
        ]  # fmt: skip
        for at in range(max(to_s for _, _, to_s, _ in jobs)):
            for node in {node for *_, node in jobs}:
                here = [one for one in jobs if one[1] <= at < one[2] and one[3] == node]
                if sum(asked[one[0]] for one in here) > most:
                    seconds += 1
                    late |= {one[0] for one in here if one[1] == at}
        said = next(note for note in result.notes if note.startswith(f"{name} would have bound"))
        assert f"{len(late)} of 39 jobs start where fewer are free" in said and late
        assert f"for {seconds / 3600:,.3g} node hours" in said


def test_nothing_is_said_where_cpus_never_bind(tmp_path: Path) -> None:
    rows = [row(at, 1, 8, 20, at=at * 30) for at in range(1, 20)]
    assert not [note for note in forerun.simulate(load(scenario(tmp_path, rows))).notes if "bound" in note]
