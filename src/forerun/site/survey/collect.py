"""The commands with which an operator makes the files of a site, with named fields only.

No environment, command line, name of a job or folder is in what they print. `kubectl` prints through a template of Go that
takes single fields of an object: a shape says which, for the template and for copies of whole objects alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from forerun.cluster.readers.sacct import SACCT_COMMAND
from forerun.site.wait_time.squeue import COMMAND as SQUEUE_COMMAND

#: what is taken of a value: all of it (None), of each item of a list, or of an object by key; `name=uid` calls a uid a name
Shape: TypeAlias = "list[Any] | Mapping[str, Any] | None"

_RESOURCES: Final[Shape] = {"restartPolicy": None, "resources": None}
#: of a Workload: its own name, and those of its containers and volumes, are a user's words
WORKLOAD: Final[Shape] = {
    "apiVersion": None,
    "kind": None,
    "metadata": {"namespace": None, "name=uid": None, "creationTimestamp": None},
    "spec": {
        "queueName": None,
        "priority": None,
        "maximumExecutionTimeSeconds": None,
        "podSets": [
            {
                "name": None,
                "count": None,
                "topologyRequest": None,
                "template": {
                    "spec": {"nodeSelector": None, "initContainers": [_RESOURCES], "containers": [_RESOURCES]}
                },
            }
        ],
    },
    "status": {
        "clusterName": None,
        "requeueState": None,
        "schedulingStats": {"evictions": None},
        "admission": {
            "clusterQueue": None,
            "podSetAssignments": [{"name": None, "count": None, "flavors": None, "resourceUsage": None}],
        },
        "conditions": [{"type": None, "status": None, "reason": None, "lastTransitionTime": None}],
    },
}
#: of a queue, cohort or flavor, whose specification is quotas and rules
QUEUE: Final[Shape] = {
    "apiVersion": None,
    "kind": None,
    "metadata": {"namespace": None, "name": None},
    "spec": None,
    "status": {"fairSharing": None},
}
QUEUE_KINDS: Final = ("ClusterQueue", "LocalQueue", "Cohort", "ResourceFlavor")

#: prints any value as JSON
_JSON: Final = (
    '{{define "json"}}{{$t := printf "%.3s" (printf "%T" .)}}'
    '{{if eq $t "map"}}{ {{$c := ""}}{{range $k, $v := .}}{{$c}}{{printf "%q" $k}}: {{template "json" $v}}{{$c = ", "}}'
    '{{end}}}{{else if eq $t "[]i"}}[{{$c := ""}}{{range .}}{{$c}}{{template "json" .}}{{$c = ", "}}{{end}}]'
    '{{else if eq $t "str"}}{{printf "%q" .}}{{else if eq $t "flo"}}{{printf "%.0f" .}}'
    '{{else if eq $t "<ni"}}null{{else}}{{.}}{{end}}{{end}}'
)


def projected(value: Any, shape: Shape) -> Any:
    """What a shape takes of a value; what is not there is left out."""
    if shape is None or value is None:
        return value
    if isinstance(shape, list):
        return [projected(item, shape[0]) for item in value] if isinstance(value, list) else value
    if not isinstance(value, dict):
        return value
    names = (key.partition("=") for key in shape)
    return {
        ours: projected(value[theirs or ours], shape[f"{ours}{mark}{theirs}"])
        for ours, mark, theirs in names
        if (theirs or ours) in value
    }


def go_template(shape: Shape) -> str:
    """The template that prints of each object of a list what a shape takes, as a list in JSON."""
    items = f'{{{{$l := ""}}}}{{{{range .items}}}}{{{{$l}}}}{_printed(shape)}{{{{$l = ",\\n"}}}}{{{{end}}}}'
    return f'{_JSON}{{"apiVersion": "v1", "kind": "List", "items": [{items}]}}'


def _printed(shape: Shape) -> str:
    """What prints the value at hand."""
    if shape is None:
        return '{{template "json" .}}'
    if isinstance(shape, list):
        return f'[{{{{$l := ""}}}}{{{{range .}}}}{{{{$l}}}}{_printed(shape[0])}{{{{$l = ", "}}}}{{{{end}}}}]'
    members = ""
    for key, inner in shape.items():
        ours, _, theirs = key.partition("=")
        value = f'index . "{theirs or ours}"'
        what = (
            f'{{{{template "json" ({value})}}}}'
            if inner is None
            else f"{{{{with {value}}}}}{_printed(inner)}{{{{else}}}}null{{{{end}}}}"
        )
        members += (
            f'{{{{if exists . "{theirs or ours}"}}}}{{{{$c}}}}"{ours}": {what}{{{{$c = ", "}}}}{{{{end}}}}'
        )
    return f'{{ {{{{$c := ""}}}}{members}}}'


def _fields(command: str, keys: str, other: str = "") -> str:
    """What prints some `Key=Value` of what scontrol prints, each on a line of its own. other: what else is printed."""
    return f"TZ=UTC {command} | grep -oE '\\b({'|'.join(keys.split())})=[^ ]*{other}'"


#: columns of sacctmgr
_LIMITS: Final = "GrpJobs,GrpTRES,MaxJobs,MaxTRES,MaxWall"
_PER_USER: Final = "GrpTRES,GrpJobs,MaxTRES,MaxWall,MaxTRESPU,MaxJobsPU,MaxTRESPA,MaxJobsPA"
#: what of slurm.conf is read; lines that go on after a backslash are joined first
_OF_CONF: Final = (
    "ClusterName|NodeName|PartitionName|NodeSet|SchedulerType|SchedulerParameters|Priority[A-Za-z]*|Preempt[A-Za-z]*|"
    "SelectType|SelectTypeParameters|FairShareDampeningFactor"
)

#: by the file that each makes
SLURM: Final[Mapping[str, str]] = {
    "sacct.txt": re.sub(r",JobName\b", "", SACCT_COMMAND).replace(" -a ", " -a -S now-90days "),
    "slurm.conf": r"sed -e :a -e '/\\$/N; s/\\\n/ /; ta' /etc/slurm/slurm.conf"
    + f" | grep -iE '^ *({_OF_CONF})='",
    "partitions.txt": _fields(
        "scontrol show partition",
        "PartitionName AllowAccounts AllowQos DenyAccounts DenyQos Default QoS MaxNodes MaxTime Nodes PriorityJobFactor "
        "PriorityTier OverSubscribe PreemptMode State TotalNodes TRES",
    ),
    "reservations.txt": _fields(
        "scontrol show res",
        "ReservationName StartTime EndTime Duration Nodes NodeCnt PartitionName Flags TRES Users Accounts State",
        "|^No reservations.*",
    ),
    "nodes.txt": _fields("scontrol show node", "NodeName CPUTot RealMemory Gres State Partitions"),
    "qos.txt": f"sacctmgr -P show qos format=Name,Priority,Preempt,PreemptMode,Flags,UsageFactor,{_PER_USER}",
    "associations.txt": f"sacctmgr -P show assoc tree format=Cluster,Account,ParentName,User,Partition,Share,{_LIMITS}",
    "events.txt": "TZ=UTC sacctmgr -P show event start=now-90days format=Cluster,NodeName,TimeStart,TimeEnd,State",
    "queue.txt": f"TZ=UTC {SQUEUE_COMMAND}",
}
KUEUE: Final[Mapping[str, str]] = {
    "workloads.json": f"kubectl get workloads.kueue.x-k8s.io -A -o go-template='{go_template(WORKLOAD)}'",
    "queues.json": f"kubectl get {','.join(f'{kind.lower()}s.kueue.x-k8s.io' for kind in QUEUE_KINDS)} -A "
    f"-o go-template='{go_template(QUEUE)}'",
}


def text() -> str:
    """All commands, as the lines of a script for a shell."""
    lines = [
        "# The files of a site for `forerun site`, with named fields only: no environments, command lines, names of jobs or",
        "# folders. Run the part that is yours where the commands are, then: forerun site --zone UTC FOLDER -o OUT",
    ]
    for title, commands in (("Slurm", SLURM), ("Kueue", KUEUE)):
        lines += ["", f"# {title}", *(f"{command} > {name}" for name, command in commands.items())]
    return "\n".join(lines)
