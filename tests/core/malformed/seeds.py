"""A small valid file for everything that is read: every trace format, and what the domains read besides."""

from __future__ import annotations

import functools
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forerun.core.trace.reader import read_trace


@dataclass(frozen=True)
class Seed:
    """A valid input: its files by name, and how it is read. What is read is a file if there is one, else the folder.

    given: the files, or what makes them when they are first needed.
    """

    name: str
    given: Mapping[str, bytes] | Callable[[], Mapping[str, bytes]] = field(repr=False)
    read: Callable[[Path], Any] = field(repr=False)

    @functools.cached_property
    def files(self) -> Mapping[str, bytes]:
        """Their contents by their names."""
        return self.given() if callable(self.given) else self.given

    def write(self, folder: Path) -> Path:
        """Put the files into a folder; returns what is to be read."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder / next(iter(self.files)) if len(self.files) == 1 else folder


def trace_format(name: str, text: str | Mapping[str, str], **options: Any) -> Seed:
    """A seed of a registered trace format; `format/variant` names another shape of it."""
    format = name.partition("/")[0]
    files = {"trace.txt": text} if isinstance(text, str) else text
    encoded = {path: content.encode() for path, content in files.items()}
    return Seed(name, encoded, lambda path: read_trace(path, format, options=options))


COUNTS = ",".join(["0"] * 1437)
POLLS = [{"a": 1, "b": 2}, {"a": 3}]
JOB_LOG = """job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort
a,0,100,vgg16,2000,64,1,1000,0
b,10,200,bert,9000,128,2,3000,1
"""
SACCT = (
    "JobID|User|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|ReqTRES|Timelimit|NNodes|JobName\n"
    "10|ann|gpu|2024-03-01T10:00:00|2024-03-01T10:05:00|2024-03-01T11:05:00|COMPLETED|3600|"
    "cpu=8,gres/gpu=4,gres/gpu:a100=4|gres/gpu=4|1-00:00:00|1|train\n"
    "11|bob|gpu|2024-03-01T10:01:00|2024-03-01T10:06:00|2024-03-01T10:16:00|CANCELLED by 1002|600|"
    "cpu=8,gres/gpu:a100=2|gres/gpu=2|02:00:00|1|eval\n"
)
SLURM_SITE = {
    "qos": "Name|Priority|UsageFactor|GrpTRES|MaxJobsPU|MaxWall\nnormal|0|1.0|cpu=64,gres/gpu=8|4|1-00:00:00\n",
    "associations": "Account|User|Share|GrpTRES|MaxJobs\nroot||1||\n lab||7|gres/gpu=16|\n lab|ann|parent||8\n",
    "reservations": "ReservationName=m StartTime=2024-03-02T08:00:00 EndTime=2024-03-02T18:00:00\n"
    "   Nodes=n[1-2] NodeCnt=2 Flags=MAINT,DAILY\n",
    "partitions": "PartitionName=p\n   MaxNodes=2 MaxTime=3-00:00:00 QoS=N/A\n   Nodes=n1 TotalNodes=1\n",
}
KUEUE = """apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: q}
spec:
  cohort: c
  queueingStrategy: StrictFIFO
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: a100
      resources: [{name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4, lendingLimit: 2}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: team, namespace: ns}
spec: {clusterQueue: q}
"""
WORKLOADS = """apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {name: w, namespace: ns, creationTimestamp: "2024-03-01T10:00:00Z"}
spec:
  queueName: team
  priority: 5
  podSets:
  - count: 2
    template: {spec: {containers: [{resources: {requests: {nvidia.com/gpu: 4}}}]}}
status:
  admission: {clusterQueue: q}
  conditions:
  - {type: Admitted, status: "True", lastTransitionTime: "2024-03-01T10:05:00Z"}
  - {type: Finished, status: "True", lastTransitionTime: "2024-03-01T11:05:00Z", reason: Succeeded}
"""
PHILLY = [
    {
        "status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "user": "ce2f4c",
        "submitted_time": "2017-10-07 01:11:39",
        "attempts": [{
            "start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23",
            "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}],
        }],
    },
]  # fmt: skip
SACCT_JSON = {
    "meta": {"slurm": {"version": {"major": "23"}}},
    "jobs": [{
        "job_id": 100, "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}},
        "user": "ann", "partition": "gpu", "state": {"current": ["COMPLETED"]},
        "time": {"submission": 1700000000, "start": 1700000060, "end": 1700003660, "elapsed": 3600},
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 4}]},
    }],
}  # fmt: skip
PRICES = {
    "SpotPriceHistory": [
        {
            "Timestamp": f"2024-05-0{day}T10:00:00Z",
            "SpotPrice": "0.9",
            "AvailabilityZone": "a",
            "InstanceType": "m",
        }
        for day in (1, 2)
    ]
}
SCENARIO_JSON = (
    '{"domain": "serving", "trace": {"arrivals_ms": [0, 10]}, "stages": [{"name": "KSVM", "parents": ["source"]}],'
    ' "configuration": {"KSVM": {"hardware": "cpu"}}, "slo_ms": 350.0}'
)


def own_file() -> str:
    """A trace in our own CSV."""
    import tempfile

    from forerun.core.trace.files import save_trace
    from forerun.core.trace.generate import generate
    from forerun.core.trace.processes.poisson import Poisson

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.csv"
        save_trace(generate(Poisson(rate_rps=5), seed=1, n=4), path)
        return path.read_text()


def trace_seeds() -> Iterator[Seed]:
    """Every registered format, some in several shapes."""
    yield trace_format("deltas", "0.047\n69.5\n13.25\n")
    yield trace_format("intervals", "47\n69500\n47\n", unit="us")
    header = ",".join(["HashOwner", "HashApp", "HashFunction", "Trigger", *map(str, range(1, 1441))])
    yield trace_format(
        "azure_functions_2019", f"{header}\no,a,f1,http,4,0,1,{COUNTS}\no,a,f2,timer,1,2,0,{COUNTS}\n"
    )
    yield trace_format(
        "azure_functions_2021", "app,func,end_timestamp,duration\na,f,10.5,0.25\na,g,10.5,4.0\n"
    )
    yield trace_format(
        "azure_llm",
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.03,3180,8",
    )
    yield trace_format(
        "burstgpt",
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,s1,3.2,ChatGPT,472,18,490,Conversation log\n45,,0.9,GPT-4,10,25,35,API log\n",
    )
    yield trace_format(
        "mooncake",
        '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
        '{"timestamp": 27, "input_length": 7322, "output_length": 490, "hash_ids": []}\n',
    )
    yield trace_format(
        "qwen_bailian",
        '{"chat_id": 0, "parent_chat_id": -1, "timestamp": 1.562, "input_length": 33, "output_length": 5, "type": "text", '
        '"turn": 1, "hash_ids": [0, 1, 2]}\n'
        '{"chat_id": 1, "timestamp": 1.9, "input_length": 9, "output_length": 4, "hash_ids": [0]}\n',
    )
    yield trace_format(
        "otel_genai",
        '{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t", "spanId": "a", "startTimeUnixNano": "1000000000", '
        '"endTimeUnixNano": "2000000000", "attributes": [{"key": "gen_ai.usage.input_tokens", "value": {"intValue": "9"}}, '
        '{"key": "gen_ai.usage.output_tokens", "value": {"intValue": "3"}}]}]}]}]}\n',
    )
    polls = {"memory.npy": npy(np.array(POLLS, dtype=object))}
    yield Seed("npy_records", polls, lambda path: read_trace(path, "npy_records"))
    yield trace_format("vidur", "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.3,396,109\n")
    yield trace_format(
        "splitwise",
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
        "0,2,0,0.0,1,374,44\n1,2,0,4.5,1,396,109\n",
    )
    yield trace_format("csv", "id,arrival_s,prompt_tokens,source>ResNet\na,0.5,7,1\nb,1.5,8,0\n")
    yield trace_format("forerun", own_file())
    yield trace_format("cluster_jobs", JOB_LOG)
    yield trace_format(
        "helios",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "1,u1,vcA,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n"
        "2,u2,vcB,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:28,2020-06-09 18:45:37,249,1\n",
    )
    yield trace_format(
        "philly_csv",
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-10-09 06:13:03,2951.0,2,5902.0,6214e9\n",
    )
    yield trace_format("philly", json.dumps(PHILLY, indent=1))
    yield trace_format("sacct", SACCT)
    yield Seed("kueue", {"workloads.yaml": WORKLOADS.encode()}, lambda path: read_trace(path, "kueue"))
    yield trace_format("sacct_json", json.dumps(SACCT_JSON, indent=1))
    yield trace_format(
        "swf",
        "; Version: 2.2\n; MaxProcs: 128\n1 0 10 100 8 -1 -1 8 200 -1 1 3 1 -1 1 -1 -1 -1\n"
        "2 5 -1 -1 -1 -1 -1 16 200 -1 5 4 1 -1 1 -1 -1 -1\n",
    )
    yield trace_format(
        "pbs",
        "03/01/2024 11:05:00;Q;2.pbs;queue=gpu Resource_List.ngpus=4\n"
        "03/01/2024 12:05:00;E;1.pbs;user=ann group=phys queue=gpu ctime=1709287205 etime=1709287205 start=1709287500 "
        "exec_host=n1/0*8 Resource_List.select=1:ncpus=8:ngpus=2 Resource_List.walltime=24:00:00 end=1709291100\n",
    )
    yield trace_format(
        "job_history",
        "id,submit_s,start_s,end_s,nodes,requested_s,user\n"
        "1,1641021254,1641073899,1641084748,128,10800,7\n"
        "2,1641022430,1641063289,-1,640,12600,0\n3,1641022430,1641063289,1641075985,640,12600,0\n",
    )
    yield trace_format(
        "batsim",
        "job_id,workload_name,submission_time,requested_number_of_resources,requested_time,final_state,starting_time,"
        "finish_time\n0,w0,10.0,4,100.0,COMPLETED_SUCCESSFULLY,10.0,52.0\n1,w0,32.0,2,-1,COMPLETED_KILLED,52.0,102.0\n",
    )
    yield trace_format(
        "slurmdb",
        "account,id_job,id_qos,id_user,partition,state,timelimit,time_submit,time_eligible,time_start,time_end,tres_alloc\n"
        'a,501,1,9001,gpu,3,1440,1610000000,1610000000,1610000060,1610003660,"1=4,2=4096,1001=2"\n'
        'a,502,1,9002,gpu,5,4294967295,1610000100,1610000100,1610000160,1610003660,"1=4,1001=1"\n',
    )
    yield trace_format(
        "nvidia_smi",
        "timestamp, index, power.draw [W]\n2025/09/10 12:00:00.000, 0, 400.10 W\n2025/09/10 12:00:01.000, 0, [N/A]\n"
        "2025/09/10 12:00:02.000, 0, 200.30 W\n",
    )
    yield trace_format(
        "alibaba_openb",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p1,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437497\n"
        "p2,4000,15258,1,220,,BE,Running,9679175,9973826,9679175\n",
    )
    yield trace_format(
        "alibaba_spot",
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
        "1,13,A10,20,1,1,0,2764799,HP\n3,57,A100-SXM4-80GB,15,1,16,9589663,41060,Spot\n",
    )
    yield trace_format(
        "alibaba_pai",
        {
            "pai_job_table.csv": "j1,i1,u1,Terminated,100.0,500.0\nj2,i2,u2,Failed,200.0,300.0\n",
            "pai_task_table.csv": "j1,worker,2,Terminated,110.0,500.0,600,29.3,50,V100\n"
            "j2,ps,1,Failed,200.0,300.0,600,29,100,T4\n",
        },
    )  # fmt: skip
    yield trace_format(
        "energy_groups",
        "group,start_time,end_time,dataset,runtime_ratio\n1,0,100,cifar100,0.9\n1,50,160,cifar100,1.1\n",
    )
    yield trace_format("spot_membership", "0,add,a\n0,add,b\n5000,remove,a\n9000,add,c\n")
    yield trace_format("spot_counts", "timestamp,count\n2021-07-26T17:00:00Z,4\n2021-07-26T17:20:00Z,3\n")
    yield trace_format(
        "spot_counts/dates", "2021-07-26, 17:00:00, 4\n2021-07-26, 17:10:00, 4\n2021-07-26, 17:05:00, 3\n"
    )
    yield trace_format("spot_counts/steps", "0,0\n30,0\n30,4\n60,4\n60,2\n")
    yield trace_format(
        "spot_tick_prices",
        '{"prices": [0.9, 0.9, 1.0], "gap_seconds": 195, "price_info": {"currency": "USD"}}',
    )
    yield trace_format(
        "spot_ticks", '{"metadata": {"gap_seconds": 300}, "data": [1, 0, 0, 1, 1]}', polarity="available"
    )
    yield trace_format(
        "spot_advisor",
        '{"ranges": [{"index": 0, "max": 5}], "spot_advisor": {"r": {"Linux": {"m": {"s": 70, "r": 0}}}}}',
    )
    yield trace_format(
        "spot_availability",
        "date,availability\n2024-01-01 00:00:00,1\n2024-01-01 00:10:00,0\n",
        polarity="up",
    )
    yield trace_format(
        "spot_events",
        '[0, "add", {"nodes": ["a", "b"]}]\n[60000, "no-op", {"nodes": []}]\n[90000, "remove", {"nodes": ["a"]}]\n',
    )
    yield trace_format(
        "spot_faults",
        '[{"node_id": "x", "event_time": 1.5, "event_type": "fault_start"}, '
        '{"node_id": "x", "event_time": 2.0, "event_type": "fault_end"}]',
    )
    yield trace_format("spot_price_history", json.dumps(PRICES))


def npy(values: Any) -> bytes:
    """An array as a NumPy file."""
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return buffer.getvalue()


def tar(**files: bytes) -> bytes:
    """A tar archive of some files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def one(name: str, text: str | bytes, read: Callable[[Path], Any], file: str = "data.csv") -> Seed:
    """A seed of a single file."""
    return Seed(name, {file: text.encode() if isinstance(text, str) else text}, read)


@functools.cache
def replayed_log() -> Any:
    """A log of two jobs, which a machine is for."""
    from forerun.site.history import read_history

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        path.write_text(
            "id,submit_s,start_s,end_s,nodes,requested_s,partition,qos\n"
            "a,1709366400,1709366400,1709370000,2,3600,p,normal\nb,1709452800,1709452800,1709456400,3,7200,q,normal\n"
        )
        return read_history(path)


def room_seeds() -> Iterator[Seed]:
    """What domains and shared code read besides traces."""
    from forerun.blocks.container.tar import read_tar
    from forerun.cluster.inputs import files as cluster
    from forerun.cluster.inputs.arrays import Cluster, NodeGroup
    from forerun.cluster.inputs.kueue import read_kueue
    from forerun.cluster.inputs.slurm_conf import read_slurm_nodes
    from forerun.cluster.inputs.slurm_site import read_slurm_site
    from forerun.core.profile.files import read_profile as read_shared_profile
    from forerun.core.profile.supply import Supply
    from forerun.core.result.reading import read_document
    from forerun.core.scenarios import load
    from forerun.core.study.expand import load_study
    from forerun.energy.readers.energy_tables import read_pipeline, read_power, read_train
    from forerun.replication.cndlsys.npy import read_numbers, read_records
    from forerun.replication.cndlsys.runs import read_long_series
    from forerun.replication.cndlsys.runs import read_run as read_loading_run
    from forerun.replication.pollux.applications import read_applications
    from forerun.replication.zeus.windows import read_windows
    from forerun.serving.inputs.profile import read_profile
    from forerun.serving.llm.inputs.medians import read_medians
    from forerun.site.files import read_machine
    from forerun.spot.traces.measured_run import read_run
    from forerun.spot.traces.statistics import read_counts

    yield one(
        "energy trainings",
        "dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch\n"
        "cifar100,shufflenet,128,adam,0.1,0,0.6,31\ncifar100,shufflenet,256,adam,0.1,0,0.6,nan\n",
        read_train,
    )
    yield one(
        "energy epochs",
        "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
        "cifar100,shufflenet,128,adam,250,31.2,182.5\ncifar100,shufflenet,128,adam,100,63.0,99.0\n",
        read_power,
    )
    yield one(
        "energy stages",
        "stage,instruction,frequency,time_s,energy_j\n0,forward,1740,0.01,3\n0,backward,1740,0.02,6\n",
        read_pipeline,
    )
    yield one(
        "energy windows",
        "start_time,window_name,elapsed_time,gpu0_energy\n1,epoch_100,12.5,900\n2,epoch_150,9.5,1100\n",
        read_windows,
    )
    yield one("cluster jobs", JOB_LOG, cluster.read_jobs)
    yield one(
        "cluster of nodes", "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,16,4,64,256\n",
        cluster.read_cluster,
    )  # fmt: skip
    yield one(
        "slurm configuration",
        "NodeName=DEFAULT Gres=gpu:8\nNodeName=a[01-16] \\\n  CPUs=4\nPartitionName=p Nodes=a[01-02]\n",
        lambda path: read_slurm_nodes(path, partition="p"),
        "slurm.conf",
    )
    yield one(
        "kueue queues",
        KUEUE,
        lambda path: read_kueue([path]).site(read_kueue([path]).cluster("", 10**6)),
        "queues.yaml",
    )
    for name, text in SLURM_SITE.items():
        yield one(
            f"slurm site, {name}",
            text,
            lambda path: read_slurm_site([path], Cluster((NodeGroup("n", 4, 8),)), {"n1": 8, "n2": 8}),
            "site.txt",
        )
    site = {f"{name}.txt": text.encode() for name, text in SLURM_SITE.items()}
    conf = b"NodeName=n[1-4]\nPartitionName=p Nodes=n1 MaxTime=60 \\\n MaxNodes=2 QOS=normal\nPartitionName=q Nodes=ALL\n"
    yield Seed(
        "machine of a replay, a Slurm site",
        {"slurm.conf": conf, **site},
        lambda folder: read_machine(sorted(folder.iterdir()), "UTC", replayed_log()),
    )
    yield one(
        "machine of a replay",
        "pools: [{name: all, nodes: 9, partition: p}]\n"
        "windows: [{from_s: 5, to_s: 9, announced_s: 1, gpus: {all: 3}}]\n",
        lambda path: read_machine([path], "UTC", replayed_log()),
        "machine.yaml",
    )
    yield Seed(
        "cluster throughputs",
        {"bert.csv": b"global_batch_size,1,2,4\n64,6.03,8.64,10.3\n128,nan,9.1,11.2\n",
         "vgg16.csv": b"global_batch_size,1,2\n32,16.1,28.7\n"},
        lambda folder: cluster.read_profile(folder, "A100"),
    )  # fmt: skip
    yield Seed(
        "cluster applications",
        {
            "bert/placements.csv": b"placement,local_bsz,step_time,sync_time\n1,4,0.45,0.013\n2,4,0.50,0.05\n",
            "bert/scalability.csv": b"num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,2,4,1.49,1.09\n",
            "bert/validation-12.csv": b"progress,iteration,metric,grad_sqr,grad_var\n7387.0,7387,86.7,1.9e14,6.8e15\n",
        },
        read_applications,
    )
    yield one(
        "serving profile",
        "model,hardware,batch,p99_ms,throughput_qps\nm,gpu,1,40,30\nm,gpu,4,60,90\n",
        read_profile,
    )
    yield one(
        "serving medians",
        "model,hardware,tensor_parallel,prompt_tokens,batch,output_tokens,prompt_ms_median,token_ms_median\n"
        "m,gpu,2,128,1,128,80,48\nm,gpu,2,512,1,128,170,49\nm,gpu,2,512,4,128,600,52\n",
        read_medians,
    )
    yield Seed(
        "spot statistics",
        {"nodes.csv": b"timestamp,count\n2021-07-26T17:00:00Z,4\n2021-07-26T17:20:00Z,3\n",
         "terminations.csv": b"timestamp,number\n2021-07-26T17:10:00Z,1\n2021-07-26T18:10:00Z,2\n"},
        lambda folder: read_counts(folder / "nodes.csv", folder / "terminations.csv"),
    )  # fmt: skip
    yield Seed(
        "spot measured run",
        {
            "reconfig.csv": b"4,100.0,101.0,1.0\n3,110.0,112.0,2.0\n",
            "loop_times_0.csv": b"4,1,101.0,102.0,0.9,0.0,1.0\n4,2,102.0,104.5,0.9,1.5,2.5\n3,2,112.0,113.0,1.0,0.0,1.0\n",
            "load_times_0.csv": b"4,0,0.2\n3,1,0.3\n",
            "async-checkpoint_0.csv": b"0.4\n0.5\n",
            "crash-time.txt": b"115.0\n",
        },
        read_run,
    )
    folder = "baseline/librispeech/run0/remote/sim_compute_time=0.1-block_size=4"
    yield Seed(
        "loading recorded run",
        {
            f"{folder}/opt_config": b"2,4\n",
            f"{folder}/data_load_time.npy": npy(np.array([0.1, 0.2, 0.1])),
            f"{folder}/compute_time.npy": npy(np.array([0.1, 0.1])),
            f"{folder}/io_time.npy": npy(np.array([0.01, 0.02])),
            f"{folder}/processing_time.npy": npy(np.array([0.001] * 8)),
            f"{folder}/memory.csv": b"a,b\n1000,2000\n1500,2500\n",
        },
        lambda base: read_loading_run(base / folder),
    )
    yield one(
        "loading long series",
        "kind,run,sim_compute_time,io_records,io_mean_s,processing_records,processing_mean_s,series_included\n"
        "baseline,run0,0.1,100,0.01,400,0.001,1\n",
        read_long_series,
    )
    yield one("loading numbers", npy(np.array([0.1, 0.2, 0.3])), read_numbers, "numbers.npy")
    yield one("loading records", npy(np.array(POLLS, dtype=object)), read_records, "records.npy")
    yield one("loading tar", tar(a=b"12345", b=b"678"), lambda path: list(read_tar(path)), "samples.tar")
    scenario = (
        "domain: serving\ntrace: {arrivals_ms: [0, 10, 20]}\nstages: [{name: KSVM, parents: [source]}]\n"
        "configuration: {KSVM: {hardware: cpu, max_batch: 4}}\nslo_ms: 350ms\n"
    )
    yield one("scenario in YAML", scenario, load, "scenario.yaml")
    yield one("scenario in JSON", SCENARIO_JSON, load, "scenario.json")
    yield one(
        "scenario in TOML",
        'domain = "serving"\nslo_ms = 350.0\ntrace = {arrivals_ms = [0, 10]}\n'
        'stages = [{name = "KSVM", parents = ["source"]}]\n[configuration.KSVM]\nhardware = "cpu"\n',
        load,
        "scenario.toml",
    )
    yield Seed(
        "study",
        {"study.yaml": b"base: scenario.yaml\naxes: {slo_ms: [100, 200]}\nseeds: 2\n", "scenario.yaml": scenario.encode()},
        lambda folder: load_study(folder / "study.yaml"),
    )  # fmt: skip
    yield one(
        "supply profile",
        "profile: supply\nspec_version: 1\nreaders: [1, 2]\nsamples_per_s: [100.0, 180.0]\n",
        lambda path: read_shared_profile(path, Supply),
        "supply.yaml",
    )
    yield one(
        "plan", '{"format": "forerun.plan/1", "plan": {"figures": [1, 2.5]}}', read_document, "plan.json"
    )
    yield Seed("kept run", kept_run, _load_kept)


def _load_kept(folder: Path) -> Any:
    from forerun.core.result.run import load_result

    run = load_result(folder)
    return list(run.tables.values())


def kept_run() -> dict[str, bytes]:
    """A run directory."""
    import tempfile

    import forerun
    from forerun.core.scenarios import from_data

    data = {
        "domain": "serving", "trace": {"arrivals_ms": [0, 10, 20]}, "stages": [{"name": "KSVM", "parents": ["source"]}],
        "configuration": {"KSVM": {"hardware": "cpu", "max_batch": 4}}, "slo_ms": 350.0, "intervals": {"replications": 0},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as base:
        folder = forerun.simulate(from_data(data)).save(Path(base) / "run")
        return {path.name: path.read_bytes() for path in folder.iterdir()}


#: every seed by its name
SEEDS_BY_NAME = {seed.name: seed for seed in (*trace_seeds(), *room_seeds())}
