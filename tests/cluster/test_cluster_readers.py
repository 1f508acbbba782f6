"""Job logs of seven public formats: what they mean, the dirt they are known for, and what is refused."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.cluster.inputs.files import read_jobs
from forerun.cluster.inputs.jobs import table_of_file
from forerun.cluster.readers.cluster_jobs import COLUMNS
from forerun.cluster.readers.local_clock import LocalClock
from forerun.cluster.readers.sacct import SACCT_COMMAND, hours_minutes
from forerun.cluster.traces.job_logs import JobLog, cannot_have_run_on, demand
from forerun.core.errors import ForerunError, TraceError
from forerun.core.trace.reader import read_trace, sniff
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field
from forerun.site.history import read_history

from .conftest import DATA, shared_or_skip

SPELLINGS = {field.name: field.headers for field in COLUMNS}
NEEDED = [field.name for field in COLUMNS if field.required]
NATIVE = """job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort
a,0,100,vgg16,2000,64,1,1000,0
b,10,200,bert,9000,128,2,3000,1
c,20,300,gpt2,9500,128,8,5000,0
"""
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u1,vcA,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
2,u2,vcB,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:28,2020-06-09 18:45:37,249,1
3,u3,vcA,0,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
"""
DERIVED = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,2,5902.0,6214e9
2017-09-29 07:58:32,860662.0,1,860662.0,6c71a0
"""
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p1,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437497
p2,4000,15258,1,220,,BE,Running,9679175,9973826,9679175
p3,16000,32768,1,1000,V100M16|V100M32,LS,Running,9967058,9968575,9967063
"""
SPOT = """job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
1,13,A10,20,1,1,0,2764799,HP
2,13,A10,8,2,3,5,15897599,HP
3,57,A100-SXM4-80GB,15,1,16,9589663,41060,Spot
"""
SACCT = "\n".join(
    (
        "JobID|User|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|ReqTRES|Timelimit|NNodes|JobName",
        "10|ann|gpu|2024-03-01T10:00:00|2024-03-01T10:05:00|2024-03-01T11:05:00|COMPLETED|3600|"
        "cpu=8,gres/gpu=4,gres/gpu:a100=4|gres/gpu=4|1-00:00:00|1|train",
        "11|bob|gpu|2024-03-01T10:01:00|2024-03-01T10:06:00|2024-03-01T10:16:00|CANCELLED by 1002|600|"
        "cpu=8,gres/gpu:a100=2|gres/gpu=2|02:00:00|1|a|b|c",
        "12|bob|gpu|2024-03-01T10:02:00|2024-03-01T10:06:00|2024-03-01T10:16:00|FAILED|600|"
        "cpu=8||02:00:00|1|cpu only",
        "",
    )
)
SWF = """; Version: 2.2
; MaxProcs: 128
1 0 10 100 8 -1 -1 8 200 -1 1 3 1 -1 1 -1 -1 -1
2 5 -1 -1 -1 -1 -1 16 200 -1 5 4 1 -1 1 -1 -1 -1
3 9 0 50 -1 -1 -1 4 200 -1 0 5 1 -1 2 7 -1 -1
"""
PBS = """03/01/2024 11:00:05;Q;10.pbs;user=ann queue=gpu Resource_List.ngpus=4 Resource_List.walltime=24:00:00
03/01/2024 11:05:00;S;10.pbs;user=ann group=phys queue=gpu ctime=1709287205 qtime=1709287205 etime=1709287205 \
start=1709287500
03/01/2024 11:05:01;L;license;floating license hour:0 day:0 month:0 max:10
03/01/2024 11:06:00;Q;11[].pbs;user=bob queue=gpu Resource_List.ngpus=8
03/01/2024 11:07:00;Q;12.pbs;user=eve queue=gpu Resource_List.ngpus=2 Resource_List.walltime=02:00:00
03/01/2024 11:20:00;D;12.pbs;requestor=eve@login1
03/01/2024 12:05:00;E;10.pbs;user=ann group=phys account="my lab" queue=gpu ctime=1709287205 qtime=1709287205 \
etime=1709287205 start=1709287500 exec_host=n1/0*8+n2/0*8 exec_vnode=(n1:ncpus=8:ngpus=2)+(n2:ncpus=8:ngpus=2) \
Resource_List.ngpus=4 Resource_List.nodect=2 Resource_List.place=scatter:excl Resource_List.select=2:ncpus=8:ngpus=2 \
Resource_List.walltime=24:00:00 session=7 end=1709291100 Exit_status=0 resources_used.walltime=01:00:00
03/01/2024 12:10:00;E;11[0].pbs;user=bob group=phys queue=gpu ctime=1709287560 qtime=1709287560 etime=1709287600 \
start=1709291160 exec_host=n3/0+n3/1 Resource_List.nodect=1 Resource_List.nodes=1:ppn=2:gpus=8 \
Resource_List.walltime=3600 end=1709291400 Exit_status=271
03/01/2024 12:11:00;S;13.pbs;user=bob queue=gpu ctime=1709291400 qtime=1709291400 etime=1709291400 start=1709291460 \
Resource_List.ngpus=1 Resource_List.walltime=10:00:00
03/01/2024 12:12:00;Q;14.pbs;user=bob queue=gpu Resource_List.select=2:ncpus=8:ngpus=4 Resource_List.walltime=01:00:00
"""
PHILLY: list[dict[str, Any]] = [
    {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1",
        "attempts": [
            {
                "start_time": "2017-10-07 01:12:09",
                "end_time": "2017-10-07 01:13:23",
                "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}],
            },
            {
                "start_time": "2017-10-07 01:13:30",
                "end_time": "2017-10-07 02:13:30",
                "detail": [{"ip": "m41", "gpus": ["gpu0"]}, {"ip": "m42", "gpus": ["gpu0"]}],
            },
        ],
        "submitted_time": "2017-10-07 01:11:39",
        "user": "ce2f4c",
    },
    {
        "status": "Killed",
        "vc": "x",
        "jobid": "application_2",
        "attempts": [],
        "submitted_time": "2017-10-07 01:20:00",
        "user": "u",
    },
]
SACCT_JSON: dict[str, Any] = {
    "meta": {"slurm": {"version": {"major": "23"}}},
    "jobs": [
        {
            "job_id": 100,
            "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}},
            "user": "ann",
            "partition": "gpu",
            "state": {"current": ["COMPLETED"]},
            "time": {"submission": 1700000000, "start": 1700000060, "end": 1700003660, "elapsed": 3600},
            "tres": {
                "allocated": [
                    {"type": "cpu", "name": "", "count": 8},
                    {"type": "gres", "name": "gpu", "count": 4},
                ]
            },
        },
        {
            "job_id": 102,
            "array": {"job_id": 101, "task_id": {"set": True, "infinite": False, "number": 7}},
            "user": "bob",
            "partition": "gpu",
            "state": {"current": "FAILED"},
            "time": {"submission": 1700000100, "start": 1700000160, "end": 1700000760, "elapsed": 600},
            "tres": {
                "allocated": [{"type": "gres", "name": "gpu:a100", "count": {"set": True, "number": 2}}]
            },
        },
    ],
}

TEXTS = {
    "cluster_jobs": NATIVE,
    "helios": HELIOS,
    "philly_csv": DERIVED,
    "alibaba_openb": OPENB,
    "alibaba_spot": SPOT,
    "sacct": SACCT,
    "swf": SWF,
    "pbs": PBS,
    "philly": json.dumps(PHILLY, indent=1),
    "sacct_json": json.dumps(SACCT_JSON, indent=1),
}


def written(folder: Path, text: str | bytes, name: str = "log.txt") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder: Path, format: str, text: str | bytes, **options: Any) -> tuple[Any, list[str]]:
    log = RepairLog()
    trace = read_trace(written(folder, text), format, options=options, repairs=log)
    return trace, [repair.rule for repair in log.repairs]


@pytest.mark.parametrize("format", TEXTS)
def test_each_format_is_recognised_by_itself_alone(tmp_path: Path, format: str) -> None:
    assert sniff(written(tmp_path, TEXTS[format])) == (format,)


#: what stands on the line of each format's job that asks for most GPUs (of JSON: where its object begins or ends)
LARGEST = {
    "helios": "2,u2,vcB,4,16", "philly_csv": "2017-10-09 06:13:03,2951.0,2", "alibaba_openb": "p1,88000,327680,8",
    "alibaba_spot": "3,57,A100-SXM4-80GB,15,1,16", "sacct": "10|ann|gpu", "swf": "1 0 10 100 8",
}  # fmt: skip


@pytest.mark.parametrize("format", [name for name in TEXTS if name != "cluster_jobs"])
def test_a_job_that_cannot_run_is_named_with_its_line(tmp_path: Path, format: str) -> None:
    """Also in foreign logs, whatever order their rows have."""
    from forerun import simulate
    from forerun.core.errors import TraceError
    from forerun.core.scenarios import loads

    written(tmp_path, TEXTS[format])
    text = "domain: cluster\ntrace: {file: log.txt}\nmachines: {nodes: [{count: 1, gpus: 1}]}\npolicy: fifo\n"
    with pytest.raises(TraceError) as found:
        simulate(loads(text, base=tmp_path))
    lines = TEXTS[format].splitlines()
    said = [
        re.match(r"log\.txt:(\d+): job (\S+): asks for \d+ GPUs", line)
        for line in str(found.value).splitlines()
    ]
    assert said and all(said)
    named = [lines[int(match[1]) - 1] for match in said if match]
    if format in LARGEST:
        assert any(line.startswith(LARGEST[format]) for line in named)
    else:
        assert all(1 <= int(match[1]) <= len(lines) for match in said if match)


def test_native_jobs(tmp_path: Path) -> None:
    trace, rules = read(tmp_path, "cluster_jobs", NATIVE)
    assert trace["gpus"].tolist() == [1, 2, 8]
    assert trace["deadline_s"].tolist() == [2000, 9000, 9500]
    assert trace["model"].tolist() == ["vgg16", "bert", "gpt2"]
    assert not rules


def test_the_other_three_headers(tmp_path: Path) -> None:
    microsoft = NATIVE.replace("submit_time", "submission_time").replace("iteration", "num_iteration")
    microsoft = microsoft.replace("ddl", "deadline")
    assert read(tmp_path, "cluster_jobs", microsoft)[0] == read(tmp_path, "cluster_jobs", NATIVE)[0]
    raw, _ = read(tmp_path, "cluster_jobs", "job_id,submission_time,duration,num_gpu\na,0,10,1\nb,5,20,2")
    assert raw["duration_s"].tolist() == [10, 20] and "model" not in raw
    philly = (
        "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration\n"
        "a,0,7,vgg16,100,64,1,70,50,5\n"
    )
    trace, _ = read(tmp_path, "cluster_jobs", philly)
    assert (trace["iterations"][0], trace["real_iterations"][0], trace["duration_s"][0]) == (5, 7, 50)


def test_public_traces_are_whole() -> None:
    shared_or_skip()
    counts = {"cluster01": 1595, "cluster05": 3629, "cluster10": 260, "195job": 195}
    for name, jobs in counts.items():
        assert len(read_trace(DATA / "elasticflow_traces" / f"{name}.csv", strict=True)) == jobs
    assert len(read_trace(DATA / "philly_103959.csv", strict=True)) == 876


def test_the_derived_philly_list_is_whole_and_its_dirt_is_counted() -> None:
    shared_or_skip()
    log = RepairLog()
    trace = read_trace(DATA / "philly" / "philly_adaptdl.csv.gz", repairs=log)
    dropped = sum(repair.count for repair in log.repairs if "dropped" in repair.rule)
    assert len(trace) + dropped == 82_248
    assert trace["submit_s"][0] == 0 and np.all(np.diff(trace["submit_s"]) >= 0)


def test_helios_drops_jobs_without_gpus_and_counts_them(tmp_path: Path) -> None:
    trace, rules = read(tmp_path, "helios", HELIOS)
    assert trace["job_id"].tolist() == ["1", "2"]
    assert trace["submit_s"].tolist() == [0, 26]
    assert trace["duration_s"].tolist() == [36848, 249]
    assert rules == ["job without GPUs dropped"]
    everyone, rules = read(tmp_path, "helios", HELIOS, cpu_jobs=True)
    assert len(everyone) == 3 and not rules


def test_philly_attempts_joined_and_each(tmp_path: Path) -> None:
    joined, rules = read(tmp_path, "philly", TEXTS["philly"])
    assert (joined["duration_s"][0], joined["gpus"][0], joined["start_s"][0]) == (74 + 3600, 2, 30)
    assert rules == ["job without attempts dropped"]
    each, _ = read(tmp_path, "philly", TEXTS["philly"], attempts="each")
    assert each["job_id"].tolist() == ["application_1", "application_1#2"]
    assert each["submit_s"].tolist() == [0, 104]
    assert each["duration_s"].tolist() == [74, 3600]


def test_philly_clocks_went_back_in_november() -> None:
    repairs = RepairLog()
    clock = LocalClock("America/Los_Angeles", repairs)
    before = clock.utc_s("2017-11-05 00:59:59", "x")
    first = clock.utc_s("2017-11-05 01:30:00", "x")
    second = clock.utc_s("2017-11-05 01:10:00", "x", not_before_s=first)
    after = clock.utc_s("2017-11-05 02:00:00", "x")
    assert (first - before, second - first, after - before) == (1801, 2400, 7201)
    assert repairs.repairs[0].count == 2
    spring = clock.utc_s("2018-03-11 02:30:00", "x")
    assert spring == clock.utc_s("2018-03-11 03:30:00", "x")
    assert "skipped in spring" in repairs.repairs[1].rule


def test_openb_keeps_fractions_of_a_gpu(tmp_path: Path) -> None:
    trace, _ = read(tmp_path, "alibaba_openb", OPENB)
    assert trace["gpus"].tolist() == [8, 0.22, 1]


def test_spot_jobs_multiply_workers(tmp_path: Path) -> None:
    trace, _ = read(tmp_path, "alibaba_spot", SPOT)
    assert trace["gpus"].tolist() == [1, 6, 16]
    only, rules = read(tmp_path, "alibaba_spot", SPOT, gpu_model="A10")
    assert len(only) == 2 and rules == ["job of another GPU type dropped"]


def pai(folder: Path, jobs: str, tasks: str) -> Path:
    folder.mkdir(exist_ok=True)
    written(folder, jobs, "pai_job_table.csv")
    written(folder, tasks, "pai_task_table.csv")
    return folder


def test_pai_adds_up_the_tasks_of_a_job(tmp_path: Path) -> None:
    jobs = (
        "j1,i1,u1,Terminated,100.0,900.0\nj2,i2,u1,Running,200.0,\n"
        "j3,i3,u2,Failed,300.0,400.0\nj1,i9,u1,Failed,950.0,960.0\n"
    )
    tasks = (
        "j1,ps,1.0,Terminated,110.0,900.0,600.0,29.3,,MISC\nj1,worker,2.0,Terminated,120.0,900.0,400.0,29.3,50.0,V100\n"
        "j1,worker,2.0,Terminated,120.0,900.0,400.0,29.3,50.0,V100\nj2,worker,1.0,Running,210.0,,400.0,29.3,100.0,V100\n"
    )
    log = RepairLog()
    trace = read_trace(pai(tmp_path / "pai_2020", jobs, tasks), repairs=log)
    assert trace["job_id"].tolist() == ["j1"]
    assert (trace["gpus"][0], trace["start_s"][0], trace["duration_s"][0]) == (1.0, 10.0, 790.0)
    rules = {repair.rule: repair.count for repair in log.repairs}
    assert rules["task listed twice, later one dropped"] == 1
    assert rules["job without tasks dropped"] == 1
    assert rules["job that never ran or has no end dropped"] == 1
    assert rules["start before submission, submission moved to the start"] == 1
    assert rules["job id used again, later row dropped"] == 1


def test_sacct_text(tmp_path: Path) -> None:
    trace, rules = read(tmp_path, "sacct", SACCT)
    assert trace["job_id"].tolist() == ["10", "11"]
    assert trace["gpus"].tolist() == [4, 2]
    assert trace["state"].tolist() == ["COMPLETED", "CANCELLED"]
    assert trace["start_s"].tolist() == [300, 360]
    assert rules == ["job without GPUs dropped"]
    assert "JobName" in SACCT_COMMAND.split(",")[-1]


LONGER = "recorded duration is longer than end less start (as where the clock was set back); it is taken, and moves the end"
SHORTER = "recorded duration is shorter than end less start (as where a job was suspended); it is taken"


def sacct(*rows: dict[str, str], header: Sequence[str] = SACCT.splitlines()[0].split("|")) -> str:
    """A log with rows that differ from the first of `SACCT` in some columns."""
    first = dict(zip(SACCT.splitlines()[0].split("|"), SACCT.splitlines()[1].split("|"), strict=True))
    lines = ["|".join({**first, **row}.get(name, "") for name in header) for row in rows]
    return "\n".join(("|".join(header), *lines, ""))


def test_sacct_takes_elapsed_seconds(tmp_path: Path) -> None:
    """Across the end of daylight saving time, where an end reads earlier than its start, and where a job was suspended."""
    text = sacct(
        {"JobID": "1", "Start": "2024-10-27T02:20:00", "End": "2024-10-27T03:00:00", "ElapsedRaw": "6000"},
        {"JobID": "2", "Start": "2024-10-27T02:50:00", "End": "2024-10-27T02:10:00", "ElapsedRaw": "1200"},
        {"JobID": "3", "End": "2024-03-01T12:05:00", "ElapsedRaw": "3600"},
        {"JobID": "4", "ElapsedRaw": ""},
    )
    trace, rules = read(tmp_path, "sacct", text)
    took = dict(zip(trace["job_id"].tolist(), trace["duration_s"].tolist(), strict=True))
    assert took == {"1": 6000.0, "2": 1200.0, "3": 3600.0, "4": 3600.0}
    assert rules == [LONGER, SHORTER]
    spans = dict(zip(trace["job_id"].tolist(), (trace["end_s"] - trace["start_s"]).tolist(), strict=True))
    assert spans == {"1": 6000.0, "2": 1200.0, "3": 7200.0, "4": 3600.0}
    assert demand(trace)[1].min() >= 0


def test_sacct_json_takes_elapsed_seconds(tmp_path: Path) -> None:
    """A job suspended for ten minutes."""
    text = changed("sacct_json", "1700003660", "1700004260")
    trace, rules = read(tmp_path, "sacct_json", text)
    assert trace["duration_s"].tolist()[0] == 3600.0 and SHORTER in rules


def test_parts_of_gpus_are_named(tmp_path: Path) -> None:
    """Slices count as GPUs, said; shares alone, and GPUs in the older columns alone, are dropped for their own reason."""
    names = [*SACCT.splitlines()[0].split("|")[:-1], "ReqGRES", "JobName"]
    text = sacct(
        {"JobID": "1", "AllocTRES": "gres/gpu=2,gres/gpu:nvidia_a100_1g.5gb=2", "ReqTRES": ""},
        {"JobID": "2", "AllocTRES": "gres/gpu:1g.10gb+me=1", "ReqTRES": ""},
        {"JobID": "3", "AllocTRES": "cpu=4,gres/shard=8", "ReqTRES": ""},
        {"JobID": "4", "AllocTRES": "cpu=4,gres/gpu=1,gres/shard=8", "ReqTRES": ""},
        {"JobID": "5", "AllocTRES": "cpu=4,gres/mps=50", "ReqTRES": ""},
        {"JobID": "6", "AllocTRES": "cpu=4,mem=4G", "ReqTRES": "cpu=4", "ReqGRES": "gpu:4"},
        {"JobID": "7", "AllocTRES": "cpu=4,mem=4G", "ReqTRES": "cpu=4", "ReqGRES": ""},
        {"JobID": "8", "AllocTRES": "gres/gpu:a100-sxm4-80gb=2", "ReqTRES": "", "ReqGRES": "gpu:4"},
        header=names,
    )
    trace, rules = read(tmp_path, "sacct", text)
    assert dict(zip(trace["job_id"].tolist(), trace["gpus"].tolist(), strict=True)) == {
        "1": 2, "2": 1, "4": 1, "8": 2,
    }  # fmt: skip
    counted = {row["rule"]: row["count"] for row in trace.provenance.repairs}
    assert counted == {
        "slices of GPUs (MIG) counted as whole GPUs": 2,
        "job with shares of a GPU only (shard, mps) dropped: how many make a GPU is not in the log": 2,
        "job with GPUs in ReqGRES or AllocGRES only dropped: GPUs are read from AllocTRES and ReqTRES, which have them "
        "where Slurm has AccountingStorageTRES=gres/gpu": 1,
        "job without GPUs dropped": 1,
    }
    assert sorted(rules) == sorted(counted)


@pytest.mark.parametrize(
    ("name", "count", "rule"),
    [("gpu:1g.5gb", 4, "slices of GPUs"), ("shard", None, "shares of a GPU only")],
)
def test_parts_of_gpus_are_named_in_json(tmp_path: Path, name: str, count: int | None, rule: str) -> None:
    document = json.loads(TEXTS["sacct_json"])
    document["jobs"][0]["tres"] = {"allocated": [{"type": "gres", "name": name, "count": 4}]}
    trace, rules = read(tmp_path, "sacct_json", json.dumps(document))
    assert dict(zip(trace["job_id"].tolist(), trace["gpus"].tolist(), strict=True)).get("100") == count
    assert any(rule in one for one in rules)


@pytest.mark.parametrize(
    ("allocated", "asked", "sharing", "label"),
    [
        ("gres/gpu:a100=4,gres/gpu=4,node=1", "gres/gpu:a100=4,gres/gpu=4,node=1", "", (1, "a100", False)),
        ("gres/gpu:a100=4,gres/gpu=4,node=1", "gres/gpu=4,node=1", "", (1, "", False)),
        ("gres/gpu:a100=4,gres/gpu=4,node=1", "", "", (1, "a100", False)),
        ("gres/gpu:a100=2,gres/gpu:v100=2,node=1", "cpu=1", "", (1, "", False)),
        ("gres/gpu=8,node=1", "gres/gpu=2,node=1", "", (1, "", True)),
        ("gres/gpu=8,node=1", "gres/gpu=2,node=1", "NO", (1, "", False)),
        ("gres/gpu=8,node=1", "gres/gpu=8,node=1", "EXCLUSIVE", (1, "", True)),
        ("gres/gpu=8,node=3", "gres/gpu=8,node=1", "", (0, "", False)),
        ("gres/gpu=8,node=2", "gres/gpu=8,node=2", "", (2, "", False)),
    ],
)
def test_what_shape_a_job_asks_for(
    tmp_path: Path, allocated: str, asked: str, sharing: str, label: tuple[int, str, bool]
) -> None:
    """What it got by chance binds nobody: a type, or more nodes than it asked for."""
    nodes = allocated[-1] if "node=" in allocated else "1"
    header = [*SACCT.splitlines()[0].split("|")[:-1], "OverSubscribe"]
    row = {"AllocTRES": allocated, "ReqTRES": asked, "OverSubscribe": sharing, "NNodes": nodes}
    path = tmp_path / "log.txt"
    path.write_text(sacct(row, header=header))
    labels = table_of_file(path, "sacct", RepairLog()).jobs.labels
    assert labels is not None
    assert (labels.nodes[0], labels.gpu_type[0], labels.exclusive[0]) == label


def test_our_own_columns_of_shapes(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(
        "job_id,submit_s,duration_s,gpus,nodes,gpu_type,exclusive\na,0,9,8,2,a100,1\nb,0,9,8,,,\n"
    )
    history = tmp_path / "history.csv"
    history.write_text(
        "id,submit_s,start_s,end_s,gpus,nodes,gpu_type,exclusive\na,0,0,9,8,2,a100,1\nb,0,0,9,8,,,\n"
    )
    for path in (jobs, history):
        labels = table_of_file(path, "", RepairLog()).jobs.labels
        assert labels is not None
        assert (labels.nodes.tolist(), labels.gpu_type, labels.exclusive.tolist()) == (
            [2, 0], ("a100", ""), [True, False],
        )  # fmt: skip


def test_a_log_without_columns_for_gpus_is_refused(tmp_path: Path) -> None:
    """With the older columns only there is nothing to count GPUs by; where GPUs do not matter the log is read."""
    text = sacct({"ReqGRES": "gpu:4"}, header=["JobID", "Submit", "Start", "End", "State", "ReqGRES"])
    with pytest.raises(TraceError, match=r"misses the columns AllocTRES and ReqTRES, .* print the log with"):
        read(tmp_path, "sacct", text)
    path = tmp_path / "plain.txt"
    path.write_text(text)
    assert len(read_trace(path, "sacct", options={"cpu_jobs": True})) == 1


def test_sacct_dirt(tmp_path: Path) -> None:
    row = SACCT.splitlines()[1]
    dirt = [
        row.replace("10|", "10.batch|", 1),
        row.replace("10|", "12_[3-9]|", 1),
        row.replace("10|", "12_3|", 1),
        row.replace("|2024-03-01T11:05:00|", "|Unknown|").replace("10|", "13|", 1),
        row.replace("2024-03-01T10:00:00", "2024-03-01T09:00:00"),
        row.replace("10|", "14|", 1).replace("|3600|", "|1-00:00:01.50|"),
    ]
    trace, rules = read(tmp_path, "sacct", "\n".join([SACCT.splitlines()[0], row, *dirt]))
    assert sorted(trace["job_id"].tolist()) == ["10", "10#2", "12_3", "14"]
    assert trace["duration_s"].max() == 86_401.5
    assert rules == [
        "job step dropped",
        "array range that never started dropped",
        LONGER,
        "job that never ran or has no end dropped",
        "job id used again, kept as a run of its own",
    ]


def test_sacct_json(tmp_path: Path) -> None:
    trace, rules = read(tmp_path, "sacct_json", TEXTS["sacct_json"])
    assert trace["job_id"].tolist() == ["100", "101_7"]
    assert trace["gpus"].tolist() == [4, 2]
    assert trace["state"].tolist() == ["COMPLETED", "FAILED"]
    assert not rules


def test_swf(tmp_path: Path) -> None:
    trace, rules = read(tmp_path, "swf", SWF)
    assert trace["gpus"].tolist() == [8, 4]
    assert trace["start_s"].tolist() == [10, 9]
    assert trace["vc"].tolist() == ["", "7"]
    assert rules == ["job that never ran or has no end dropped"]


def test_pbs(tmp_path: Path) -> None:
    trace, _ = read(tmp_path, "pbs", PBS)
    assert trace["job_id"].tolist() == ["10", "11[0]"]
    assert trace["gpus"].tolist() == [4, 8]
    assert trace["submit_s"].tolist() == [0, 355]
    assert trace["start_s"].tolist() == [295, 3955]
    assert trace["duration_s"].tolist() == [3600, 240]
    assert trace["eligible_s"].tolist() == [0, 395]
    assert trace["requested_s"].tolist() == [86400, 3600]
    assert trace["account"].tolist() == ["my lab", "phys"]
    assert trace["vc"].tolist() == ["gpu", "gpu"]
    assert trace["state"].tolist() == ["COMPLETED", "FAILED"]
    assert trace["nodes"].tolist() == [2, 1]
    assert trace["node_list"].tolist() == ["n1,n2", "n3"]
    assert trace["exclusive"][0] == 1.0
    # the clock of the site is an hour ahead of UTC, which the stamps of ends show
    trace, _ = read(tmp_path, "pbs", PBS, unfinished=True)
    assert trace["job_id"].tolist() == ["10", "11[0]", "13", "14"]
    assert trace["state"].tolist()[2:] == ["RUNNING", "PENDING"]
    assert trace["gpus"].tolist()[2:] == [1, 8]
    assert trace["duration_s"].tolist()[2:] == [60, 1]
    assert trace["submit_s"].tolist()[3] == 1709291520 - 1709287205
    log = read_history(tmp_path / "log.txt")
    assert log.job_id.tolist() == ["10", "11[0]", "12", "13", "14"]
    assert (log.submit_s[2], log.end_s[2]) == (415, 415 + 780), "deleted while it waited"


def test_slurm_durations() -> None:
    assert hours_minutes("1-02:03:04") == 93784
    assert hours_minutes("02:03.5") == 123.5
    with pytest.raises(ValueError, match="not a duration"):
        hours_minutes("forever")


def test_demand_above_capacity_is_said(tmp_path: Path) -> None:
    trace, _ = read(tmp_path, "helios", HELIOS)
    at, used = demand(trace)
    assert used.max() == 5 and used[-1] == 0 and len(at) == 4
    assert cannot_have_run_on(trace, 8) == ""
    assert "cannot have run on this cluster" in cannot_have_run_on(trace, 4)


def test_strict_refuses_what_is_otherwise_repaired(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="refused by strict"):
        read_trace(written(tmp_path, HELIOS), strict=True)


# --- malformed inputs -------------------------------------------------------------------------------------------------

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 133\n"

#: whole files that are not what they should be, whatever the format; each must be refused by name
NOT_A_LOG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "blank": (b"\n\n\n", ""),
    "git lfs pointer": (POINTER, "LFS pointer"),
    "spreadsheet": (b"PK\x03\x04....", "spreadsheet"),
    "utf-16": ("\ufeffjob_id,submit_time\n1,2\n".encode("utf-16-le"), "UTF-16"),
    "nul bytes": (b"job_id,submit_time\n1,\x00\x00\n", "NUL"),
    "latin-1": (b"job_id,submit_time\n1,\xe9\n", "not UTF-8"),
    "parquet": (b"PAR1....", "Parquet"),
    "gzip cut short": (gzip.compress(b"job_id,submit_time\n" * 500, mtime=0)[:40], "cut short"),
    "one long line": (b"x" * (5 << 20), ""),
    "another table": (b"a,b,c\n1,2,3\n", ""),
    "a lone brace": (b"{", ""),
    "a list of numbers": (b"[1, 2, 3]\n", ""),
    "prose": (b"Dear colleague,\nplease find the log attached.\n", ""),
}


@pytest.mark.parametrize("format", TEXTS)
@pytest.mark.parametrize("what", NOT_A_LOG)
def test_files_that_are_no_log_are_refused(tmp_path: Path, format: str, what: str) -> None:
    content, said = NOT_A_LOG[what]
    with pytest.raises(TraceError, match=said or None) as caught:
        read(tmp_path, format, content)
    assert caught.value.exit_code == 2
    assert "log.txt" in str(caught.value)


def changed(format: str, old: str, new: str) -> str:
    assert old in TEXTS[format], (format, old)
    return TEXTS[format].replace(old, new, 1)


#: (format, what stands there, what is written instead, what is said)
CELLS = [
    ("cluster_jobs", "a,0,100", "a,-5,100", "submit_time: -5 is negative"),
    ("cluster_jobs", "a,0,100", "a,0.5,100", "not a whole number"),
    ("cluster_jobs", "a,0,100", "a,,100", "empty"),
    ("cluster_jobs", "a,0,100", "a,0,none", "not a number"),
    ("cluster_jobs", "64,1,1000", "64,0,1000", "num_gpu"),
    ("cluster_jobs", "64,1,1000", "64,1,nan", "duration"),
    ("cluster_jobs", "1000,0", "1000,2", "best_effort"),
    ("cluster_jobs", "b,10", "a,10", "already used on line 2"),
    ("cluster_jobs", "num_gpu", "cards", "misses the column gpus or num_gpu"),
    ("cluster_jobs", "a,0,100", "a,0,100,extra", ""),
    ("cluster_jobs", "a,0,100", "a,1e30,100", ""),
    ("helios", "2020-06-09 18:41:01,2020", "2020-13-09 18:41:01,2020", "submit_time: .*calendar"),
    ("helios", "2020-06-09 18:41:01,2020", "yesterday,2020", "not a time"),
    ("helios", "vcA,1,1", "vcA,-2,1", "gpu_num: -2 is negative"),
    ("helios", "vcA,1,1", "vcA,one,1", "not a number"),
    ("helios", "vcA,1,1", 'vcA,"1,5",1', "decimal comma"),
    ("helios", "36848,0", "inf,0", "not a finite"),
    ("helios", "gpu_num", "gpus", "gpu_num"),
    ("helios", "1,u1", "1,u1,u1", ""),
    ("philly_csv", "66.0,1,66", "-66.0,1,66", "negative"),
    ("philly_csv", "66.0,1,66", "0x42,1,66", "not a number"),
    ("philly_csv", "2017-10-09 07:01:55", "09/10/2017 07:01", "not a time"),
    ("philly_csv", "2017-10-09 07:01:55", "2017-02-30 07:01:55", "calendar"),
    ("philly_csv", "num_gpus", "gpus", "num_gpus"),
    ("philly_csv", "66.0,1,66", "66.0,1e999,66", ""),
    ("alibaba_openb", "9437497,1", "soon,1", "not a number"),
    ("alibaba_openb", "327680,8", "327680,-8", "negative"),
    ("alibaba_openb", "1,220", "1,-220", "negative"),
    ("alibaba_openb", "creation_time", "created", "creation_time"),
    ("alibaba_openb", "p2,4000", "p2,4000,1", ""),
    ("alibaba_openb", "1,220", "1,2_20", "not a number"),
    ("alibaba_spot", "20,1,1,0", "20,1,1,-3", "negative"),
    ("alibaba_spot", "20,1,1,0", "20,one,1,0", "not a number"),
    ("alibaba_spot", "2764799", "1e400", ""),
    ("alibaba_spot", "worker_num", "workers", "worker_num"),
    ("alibaba_spot", "1,13,A10,20", "1,13,A10", ""),
    ("alibaba_spot", "15897599", "1589,7599", ""),
    ("sacct", "2024-03-01T10:00:00", "2024-03-32T10:00:00", "calendar"),
    ("sacct", "2024-03-01T10:00:00", "now", "not a time"),
    ("sacct", "|3600|", "|an hour|", "not a duration"),
    ("sacct", "10|ann|gpu|", "|ann|gpu|", "JobID: is empty"),
    ("sacct", "Submit|", "Eligible|", "print the log with: TZ=UTC sacct"),
    ("sacct", "User|", "User|User|", "twice"),
    ("sacct", "10|ann|gpu|2024-03-01T10:00:00|", "10|ann|", "fields"),
    ("swf", "1 0 10 100", "1 0 10", "17 numbers"),
    ("swf", "1 0 10 100", "1 0 ten 100", "not a number"),
    ("swf", "1 0 10 100", "1 0 10 1e5", "not a number"),
    ("swf", "1 0 10 100", "1 0 10 nan", "not a number"),
    ("swf", "1 0 10 100", "1 0 10 100 5", "19 numbers"),
    ("swf", "1 0 10 100", "1 0 10 9999999999999999999999", "too long"),
    ("swf", "1 0 10 100", "1 0 --10 100", ""),
    ("pbs", "03/01/2024 12:05", "13/01/2024 12:05", "not on the calendar"),
    ("pbs", "12:05:00;E;10.pbs;", "12:05:00 E 10.pbs ", "is not a record"),
    ("pbs", "end=1709291100", "end=soon", "end: 'soon' is not a number"),
    ("pbs", "Resource_List.walltime=3600", "Resource_List.walltime=an hour", "not a time limit"),
    ("philly", '"ee9e8c"', "7", "a text is expected"),
    ("philly", '"2017-10-07 01:12:09"', '"2017-10-07"', "not a time"),
    ("philly", '"2017-10-07 01:12:09"', '"2017-99-07 01:12:09"', "calendar"),
    ("philly", '"2017-10-07 01:12:09"', "5", "start_time is"),
    ("philly", '"jobid": "application_1"', '"id": "application_1"', "jobid"),
    ("philly", '"attempts": []', '"attempts": 3', "a list is expected"),
    ("philly", '"attempts": []', '"attempts": [3]', "an object is expected"),
    ("philly", '"attempts": []', '"attempts": NaN', "JSON"),
    ("philly", '"ip": "m47",', '"ip": "m47", "ip": "m48",', ""),
    ("sacct_json", '"job_id": 100,', "", "no job_id"),
    ("sacct_json", '"job_id": 100', '"job_id": "x"', "a number is expected"),
    ("sacct_json", '"jobs"', '"rows"', 'a list "jobs"'),
    ("sacct_json", "1700000060", '"noon"', "a number is expected"),
    ("sacct_json", "1700000060", "true", "a number is expected"),
    ("sacct_json", '"user": "ann"', '"user": ["ann"]', "a text is expected"),
    ("sacct_json", '"count": 8', '"count": 8,', "JSON"),
]


@pytest.mark.parametrize(("format", "old", "new", "said"), CELLS, ids=lambda value: str(value)[:24])
def test_wrong_cells_are_named(tmp_path: Path, format: str, old: str, new: str, said: str) -> None:
    with pytest.raises(TraceError, match=said or None) as caught:
        read(tmp_path, format, changed(format, old, new))
    assert "log.txt" in str(caught.value)


#: (format, what stands there, what is written instead, the repair that is counted)
REPAIRS = [
    ("cluster_jobs", "c,20", "c,5", "row out of order, sorted"),
    ("cluster_jobs", "a,0,100,vgg16,2000", "a,0,100,vgg16,-7", "deadline before submission"),
    ("cluster_jobs", "64,1,1000", "64,1,0", "job of zero seconds dropped"),
    ("cluster_jobs", "\na,0", "\n\na,0", "blank line dropped"),
    ("cluster_jobs", "iteration,", "steps,", "column not used: 'steps'"),
    ("helios", "2020-06-10 04:55:09,36848", ",", "job that never ran or has no end dropped"),
    ("helios", "2020-06-10 04:55:09", "2020-06-08 04:55:09", "recorded duration differs"),
    ("helios", "2020-06-10 04:55:09,36848", "2020-06-08 04:55:09,", "job that ends before it starts dropped"),
    ("helios", "2,u2,vcB", "1,u2,vcB", "job id used again"),
    ("helios", "2020-06-09 18:41:27,", "None,", "job without submission time dropped"),
    ("philly_csv", "66.0,1,66.0", "66.0,1,67.5", "gpu_time is not duration x GPUs"),
    ("philly_csv", "66.0,1,66.0", "66.0,0,0", "job without GPUs dropped"),
    ("philly_csv", "66.0,1,66.0", "66.0,,", "job with unknown GPUs dropped"),
    ("philly_csv", "66.0,1,66.0", "0,1,0", "job of zero seconds dropped"),
    ("alibaba_openb", "9973826", "", "job that never ran or has no end dropped"),
    ("alibaba_openb", "8,1000", "8,500", "share of a GPU ignored"),
    ("alibaba_spot", "2764799", "0", "job of zero seconds dropped"),
    ("alibaba_spot", "2,13", "1,13", "job id used again"),
    ("swf", "; MaxProcs: 128\n1 0 10 100", "1 -1 10 100", "job without submission time dropped"),
    ("philly", '"2017-10-07 02:13:30"', "null", "attempt without start, end or GPUs dropped"),
    ("philly", '"2017-10-07 01:12:09"', '"None"', "attempt without start, end or GPUs dropped"),
    ("philly", '"2017-10-07 01:11:39"', '"2017-10-07 01:12:39"', "start before submission"),
    ("sacct", "2024-03-01T11:05:00", "Unknown", "job that never ran or has no end dropped"),
    ("sacct", "2024-03-01T11:05:00", "2024-03-01T11:06:00", "recorded duration is shorter"),
    ("sacct_json", "1700003660", "0", "job that never ran or has no end dropped"),
    ("sacct_json", "1700003660", "1700009999", "recorded duration is shorter"),
]


@pytest.mark.parametrize(("format", "old", "new", "rule"), REPAIRS, ids=lambda value: str(value)[:24])
def test_known_dirt_is_repaired_and_counted(
    tmp_path: Path, format: str, old: str, new: str, rule: str
) -> None:
    trace, rules = read(tmp_path, format, changed(format, old, new))
    assert len(trace) >= 1
    assert any(rule in found for found in rules), rules


@pytest.mark.parametrize("format", TEXTS)
def test_marks_of_other_systems_are_repaired(tmp_path: Path, format: str) -> None:
    plain, _ = read(tmp_path, format, TEXTS[format])
    marked, rules = read(tmp_path, format, b"\xef\xbb\xbf" + TEXTS[format].replace("\n", "\r\n").encode())
    assert marked == plain
    assert "byte-order mark dropped" in rules and "CRLF line ends read as LF" in rules


@pytest.mark.parametrize("format", TEXTS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_never_more(tmp_path_factory: Any, format: str, data: Any) -> None:
    """Cut, doubled or overwritten anywhere, a log gives a trace or an error of ours."""
    text = TEXTS[format].encode()
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    middle = data.draw(
        st.binary(max_size=8) | st.sampled_from([b",", b"\n", b'"', b"-1", b"1e308", b"|", b"[]", b"{}"])
    )
    folder = tmp_path_factory.mktemp("damaged")
    try:
        trace, _ = read(folder, format, text[:start] + middle + text[end:])
    except ForerunError as error:
        assert str(error)
    else:
        assert np.all(np.diff(trace["submit_s"]) >= 0)
        assert len(trace) >= 1


PAI_JOBS = "j1,i1,u1,Terminated,100.0,900.0\nj2,i2,u1,Failed,300.0,400.0\n"
PAI_TASKS = (
    "j1,worker,2.0,Terminated,120.0,900.0,400.0,29.3,50.0,V100\n"
    "j2,worker,1.0,Failed,310.0,400.0,400.0,29.3,100.0,V100\n"
)


@pytest.mark.parametrize("table", ["pai_job_table.csv", "pai_task_table.csv"])
@pytest.mark.parametrize("what", NOT_A_LOG)
def test_pai_tables_that_are_none_are_refused(tmp_path: Path, table: str, what: str) -> None:
    folder = pai(tmp_path / "pai", PAI_JOBS, PAI_TASKS)
    (folder / table).write_bytes(NOT_A_LOG[what][0])
    with pytest.raises(TraceError) as caught:
        read_trace(folder, "alibaba_pai")
    assert caught.value.exit_code == 2 and "pai" in str(caught.value)


@pytest.mark.parametrize(
    ("table", "old", "new", "said"),
    [
        (0, "100.0", "noon", "start_time: .*not a number"),
        (0, "900.0", "1e999", "end_time"),
        (0, "j1,i1,u1", "j1,i1,u1,u2", ""),
        (0, "100.0", "0x64", "not a number"),
        (1, "2.0", "-2.0", "inst_num: -2 is negative"),
        (1, "50.0", "half", "plan_gpu: .*not a number"),
        (1, "50.0", "-50", "plan_gpu: -50 is negative"),
        (1, "120.0", "12,0", ""),
        (1, ",V100\n", "\n", ""),
    ],
)
def test_pai_cells_are_named(tmp_path: Path, table: int, old: str, new: str, said: str) -> None:
    texts = [PAI_JOBS, PAI_TASKS]
    texts[table] = texts[table].replace(old, new, 1)
    with pytest.raises(TraceError, match=said or None):
        read_trace(pai(tmp_path / "pai", *texts), "alibaba_pai")


def test_pai_needs_both_tables_and_takes_headers(tmp_path: Path) -> None:
    folder = pai(tmp_path / "pai", PAI_JOBS, PAI_TASKS)
    plain = read_trace(folder)
    assert plain["gpus"].tolist() == [1.0, 1.0]
    headers = (
        "job_name,inst_id,user,status,start_time,end_time\n",
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n",
    )
    assert read_trace(pai(tmp_path / "pai_headers", headers[0] + PAI_JOBS, headers[1] + PAI_TASKS)) == plain
    (folder / "pai_task_table.csv").unlink()
    with pytest.raises(TraceError, match="contains no pai_task_table"):
        read_trace(folder, "alibaba_pai")
    with pytest.raises(TraceError, match="a directory with"):
        read_trace(folder / "pai_job_table.csv", "alibaba_pai")


FORMS = {
    "native": "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort",
    "Microsoft": "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration",
    "Philly": "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration",
    "raw": "job_id,submission_time,duration,num_gpu",
    "ours": "job_id,submit_s,iterations,model,deadline_s,batch,gpus,duration_s,best_effort,user",
    "mixed": "duration,num_gpus,submit_s,job_id,vc,num_iterations,model,batch_size",
}
CELL = {
    "job_id": ("j1", "j2"), "submit_s": (0, 60), "iterations": (100, 200), "model": ("bert", "gpt2"),
    "deadline_s": (4000, 9000), "batch": (64, 128), "gpus": (2, 4), "duration_s": (1000, 2000),
    "best_effort": (0, 1), "user": ("ann", "bob"), "vc": ("a", "b"), "real_duration_s": (7, 8), "real_iterations": (9, 10),
}  # fmt: skip


def write(folder: Path, text: str) -> Path:
    path = folder / "jobs.csv"
    path.write_text(text)
    return path


def of_column(header: str) -> str:
    return next(name for name, spellings in SPELLINGS.items() if header in spellings)


@pytest.mark.parametrize("form", FORMS)
def test_the_trace_reader_and_the_run_share_one_table_of_headers(tmp_path: Path, form: str) -> None:
    """The same file through `cluster_jobs` and through our own reader: the same jobs."""
    header = FORMS[form].split(",")
    lines = [",".join(str(CELL[of_column(name)][at]) for name in header) for at in range(2)]
    path = write(tmp_path, "\n".join([FORMS[form], *lines]) + "\n")
    assert sniff(path) == ("cluster_jobs",)
    read, own = read_trace(path), read_jobs(path).jobs
    found = {of_column(name) for name in header}
    assert set(read.columns) == found
    for name in found & {"job_id", "submit_s", "iterations", "model", "batch", "gpus", "duration_s"}:
        assert [str(value) for value in read[name].tolist()] == [
            str(value) for value in getattr(own, "id" if name == "job_id" else name)
        ], name
    if "deadline_s" in found:
        assert read["deadline_s"].tolist() == list(own.written_deadline_s)
    assert own.user == (CELL["user"] if "user" in found else CELL["vc"] if "vc" in found else ("", ""))


@pytest.mark.parametrize("name", [name for name, spellings in SPELLINGS.items() if len(spellings) > 1])
def test_a_column_under_two_of_its_names_is_refused_by_both(tmp_path: Path, name: str) -> None:
    header = [
        *(spellings[0] for key, spellings in SPELLINGS.items() if not key.startswith("real")),
        SPELLINGS[name][1],
    ]
    path = write(tmp_path, ",".join(header) + "\n" + ",".join("1" for _ in header) + "\n")
    for read in (lambda: read_trace(path, "cluster_jobs"), lambda: read_jobs(path)):
        with pytest.raises(TraceError, match=f"has both {SPELLINGS[name][0]} and {SPELLINGS[name][1]}"):
            read()


@pytest.mark.parametrize("name", NEEDED)
def test_a_needed_column_is_named_by_all_its_names(tmp_path: Path, name: str) -> None:
    header = [spellings[-1] for key, spellings in SPELLINGS.items() if key in NEEDED and key != name]
    path = write(tmp_path, ",".join(header) + "\n" + ",".join("1" for _ in header) + "\n")
    for read in (lambda: read_trace(path, "cluster_jobs"), lambda: read_jobs(path)):
        with pytest.raises(TraceError, match="misses the column " + " or ".join(SPELLINGS[name])):
            read()


@pytest.mark.parametrize("digits", [10, 30, 400, 5000])
def test_counts_of_gpus_beyond_all_clusters_are_refused(tmp_path: Path, digits: int) -> None:
    path = tmp_path / "log.txt"
    path.write_text(SACCT.replace("gres/gpu=4", f"gres/gpu={'9' * digits}", 1))
    with pytest.raises(TraceError, match=rf"log.txt:2:AllocTRES: a count of {digits} digits"):
        read_trace(path, "sacct")


class Farm(JobLog, tag="farm", frozen=True, kw_only=True):
    """A stranger's job log: a table of fields, one of which has two names, and nothing else."""

    about = "jobs of a farm (CSV, seconds)"
    columns = (
        Field(name="job_id", column="id", kind="text"),
        Field(name="submit_s", column="came", minimum=0),
        Field(name="duration_s", column="ran", minimum=0, spellings=("ran_s", "seconds")),
        Field(name="gpus", column="cards", minimum=0),
    )


@pytest.mark.parametrize("header", ["ran", "ran_s", "seconds"])
def test_a_job_log_is_a_table_of_fields_under_any_of_their_names(tmp_path: Path, header: str) -> None:
    path = write(tmp_path, f"id,came,{header},cards\na,5,60,2\nb,7,30,1\n")
    trace = Farm().read(path, RepairLog())
    assert trace["submit_s"].tolist() == [0, 2] and trace["duration_s"].tolist() == [60, 30]
    bad = write(tmp_path, f"id,came,{header},cards\na,5,-1,2\n")
    with pytest.raises(TraceError, match=rf"jobs.csv:2:{header}: -1 is negative"):
        Farm().read(bad, RepairLog())
    two = write(tmp_path, "id,came,ran,seconds,cards\na,5,60,60,2\n")
    with pytest.raises(TraceError, match=r"jobs.csv:1: has both ran and seconds; one of"):
        Farm().read(two, RepairLog())


@pytest.mark.parametrize(
    ("format", "text", "missing"),
    [
        ("job_history", "# log\nid,submit_s,nodes\na,0,1\n", "2: misses the columns start_s; end_s"),
        ("job_history", "# log\nid,submit_s,start_s,end_s\na,0,1,2\n", " misses the column nodes or gpus"),
        (
            "cluster_jobs",
            "\nid,submit_s,gpus\na,0,1\n",
            "2: misses the columns job_id; duration_s or duration",
        ),
    ],
)
def test_all_columns_that_a_header_lacks_are_named_with_its_line(
    tmp_path: Path, format: str, text: str, missing: str
) -> None:
    with pytest.raises(TraceError, match=f"jobs.csv:{missing}"):
        read_trace(write(tmp_path, text), format)


def test_a_blank_line_before_the_header_is_counted(tmp_path: Path) -> None:
    trace, rules = read(tmp_path, "cluster_jobs", "\n" + NATIVE)
    assert trace == read(tmp_path, "cluster_jobs", NATIVE)[0] and "blank line dropped" in rules
