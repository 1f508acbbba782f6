"""Files of a site as they lie about: what is bad has one line that says so, and what is ordinary counts.

A case says how it differs from a site of two nodes of four GPUs, on which three jobs ran.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from forerun.core.cli.main import run

HEAD = "JobID|User|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|Timelimit|NNodes|NodeList\n"
CONF = """ClusterName=site
NodeName=n[1-2] CPUs=64 Gres=gpu:a100:4
PartitionName=gpu Nodes=n[1-2] Default=YES MaxTime=2-00:00:00
"""
RES = """ReservationName=day StartTime=2025-03-03T06:00:00 EndTime=2025-03-03T08:00:00
   Nodes=n[1-2] NodeCnt=2 Flags=MAINT
"""


def job(
    name: int,
    submit: int,
    start: int | str,
    end: int | str,
    *,
    partition: str = "gpu",
    node: str = "n1",
    **cells: str,
) -> str:
    """A row of the log: on the whole of a node, by hours of a day."""

    def stamp(hour: int | str) -> str:
        return f"2025-03-03T{hour:02d}:00:00" if isinstance(hour, int) else hour

    elapsed_s = (end - start) * 3600 if isinstance(start, int) and isinstance(end, int) else 0
    row = {
        "JobID": str(name), "User": "u", "Partition": partition, "Submit": stamp(submit), "Start": stamp(start),
        "End": stamp(end), "State": "COMPLETED", "ElapsedRaw": str(elapsed_s), "AllocTRES": "gres/gpu:a100=4,gres/gpu=4",
        "Timelimit": "05:00:00", "NNodes": "1", "NodeList": node, **cells,
    }  # fmt: skip
    return "|".join(row.values()) + "\n"


LOG = HEAD + job(1, 1, 1, 2) + job(2, 1, 1, 3, node="n2") + job(3, 2, 2, 4)


@dataclass(frozen=True, slots=True)
class Case:
    """Files of a site, and what a user should see.

    Parameters
    ----------
    says : a pattern that one line of the output has; empty: nothing is said of it.
    code : of the command; None: it may go on or stop.
    log, conf : its files.
    site : further files, by name.
    policy : of the scenario.
    never : a pattern that no line has.
    """

    says: str
    code: int | None = 2
    log: str = LOG
    conf: str = CONF
    site: Mapping[str, str] = field(default_factory=dict)
    policy: str = "easy"
    never: str = ""


BAD: dict[str, Case] = {
    "a partition names nodes that there are not": Case(
        r"slurm\.conf:3: .*gpu.* n3",
        conf=CONF.replace("Nodes=n[1-2]", "Nodes=n[1-3]"),
    ),
    "nodes in no partition": Case(
        r"n3.* partition|partition.* n3",
        code=0,
        conf=CONF.replace("NodeName=n[1-2]", "NodeName=n[1-3]"),
    ),
    "a job for a partition that there is not": Case(
        r"sacct\.txt:5: .*'old'",
        code=None,
        log=LOG + job(4, 4, 4, 5, partition="old"),
    ),
    "more GPUs in use than there are": Case(
        r"16 .*8 .*2025-03-03T01:00",
        log=LOG + job(4, 1, 1, 2) + job(5, 1, 1, 2),
    ),
    "a node with more GPUs in use than it has": Case(
        r"n2.* 8 .*4 .*2025-03-03T01:00",
        code=None,
        log=HEAD + job(1, 1, 1, 2, node="n2") + job(2, 1, 1, 3, node="n2"),
    ),
    "a log that begins in the middle": Case(
        r"before 2025-03-03T05:00",
        code=0,
        log=HEAD + job(1, 1, 5, 6) + job(2, 1, 5, 7, node="n2") + job(3, 2, 6, 7),
    ),
    "a clock that was set back": Case(
        r"clock was set back\); it is taken, and moves the end: 1 \(.*sacct\.txt:5\)",
        code=0,
        log=LOG + job(4, 1, 4, 3, ElapsedRaw="1800"),
    ),
    "a start before the submission": Case(
        r"start before submission, submission moved to the start: 1 \(.*sacct\.txt:5\)",
        code=0,
        log=LOG + job(4, 5, 4, 6),
    ),
    "an instant that a place's clock leaves out": Case(
        r"skipped in spring, moved on an hour: 1 \(.*sacct\.txt:5\)",
        code=0,
        log=LOG
        + job(4, 1, 4, 5).replace("2025-03-03T04", "2025-03-30T02").replace("2025-03-03T05", "2025-03-30T03"),
        policy="easy\ntrace: {file: sacct.txt, format: sacct, options: {timezone: Europe/Berlin}}",
    ),
    "associations of another cluster": Case(
        r"assoc\.txt.*'elsewhere'.*'site'",
        site={
            "assoc.txt": "Cluster|Account|User|Share\nelsewhere|root||1\nelsewhere| lab||1\nelsewhere|  lab|zed|1\n"
        },
    ),
    "partitions of another cluster": Case(
        r"partitions\.txt.*compute.* c01",
        site={
            "partitions.txt": "PartitionName=compute\n   MaxTime=1-00:00:00\n   Nodes=c[01-40]\n   State=UP TotalNodes=40\n"
        },
    ),
    "a reservation of another cluster": Case(
        r"res\.txt.*day.* c1",
        site={"res.txt": RES.replace("n[1-2]", "c[1-2]")},
    ),
    "preemption in a circle": Case(
        r"qos\.txt.*(low.*high|high.*low)",
        site={"qos.txt": "Name|Priority|Preempt\nlow|0|high\nhigh|10|low\n"},
    ),
    "an empty log": Case(r"sacct\.txt: contains no rows of data", log=HEAD),
}

ORDINARY: dict[str, Case] = {
    "bars at the ends of lines": Case("", 0, log=LOG.replace("\n", "|\n"), never="forerun:"),
    "a log without its header": Case(r"sacct\.txt:1: misses the columns JobID", log=LOG.removeprefix(HEAD)),
    "a job that runs still": Case(
        r"1 .*RUNNING|still run",
        0,
        log=LOG
        + job(4, 1, 3, "Unknown", node="n2", State="RUNNING", Timelimit="2-00:00:00")
        + job(5, 4, 8, 9),
        never="never ran or has no end dropped",
    ),
    "an array's own limit": Case(
        r"%2",
        0,
        log=LOG + job(4, 1, "Unknown", "Unknown", State="PENDING").replace("4|u", "4_[3-9%2]|u", 1),
    ),
    "nodes with GPUs of two types": Case(
        "",
        0,
        conf=CONF.replace("gpu:a100:4", "gpu:a100:4,gpu:a30:4"),
        never="a node has one type here",
    ),
    "a node that is drained": Case(
        r"n3",
        0,
        conf=CONF + "NodeName=n3 Gres=gpu:a100:4 State=DRAIN\nPartitionName=more Nodes=n3\n",
    ),
    "a partition that is down": Case(
        r"gpu.*DOWN",
        0,
        conf=CONF.replace("Default=YES", "State=DOWN"),
    ),
    "the QOS of a partition in slurm.conf": Case(
        r"QOS p",
        0,
        conf=CONF.replace("Default=YES", "QOS=p"),
    ),
    "parameters of the scheduler": Case(
        r"bf_interval",
        0,
        conf=CONF + "SchedulerType=sched/backfill\nSchedulerParameters=bf_interval=300,bf_max_job_test=50\n",
        policy="slurm-backfill",
    ),
    "what usage is charged": Case(
        r"TRESBillingWeights",
        0,
        conf=CONF.replace("Default=YES", "TRESBillingWeights=CPU=1.0,GRES/gpu=10")
        + "PriorityWeightFairshare=1000\n",
        policy="{name: easy, order: {name: multifactor}}",
    ),
    "weights of factors that are not simulated": Case(
        r"PriorityWeightAssoc",
        0,
        conf=CONF + "PriorityWeightAge=1000\nPriorityWeightAssoc=1000\nPriorityFlags=ACCRUE_ALWAYS\n",
        policy="{name: easy, order: {name: multifactor}}",
    ),
    "a QOS whose usage counts half": Case(
        r"usage_factors",
        0,
        conf=CONF + "PriorityWeightFairshare=1000\n",
        site={"qos.txt": "Name|Priority|UsageFactor|MaxTRESPU\nnormal|0|0.500000|\n"},
        policy="{name: easy, order: {name: multifactor}}",
    ),
    "associations without a tree": Case(
        r"parent",
        0,
        conf=CONF + "PriorityWeightFairshare=1000\n",
        site={
            "assoc.txt": "Cluster|Account|User|Share\nsite|root||1\nsite|lab||10\nsite|sub||5\nsite|sub|u|1\n"
        },
        policy="{name: easy, order: {name: multifactor}}",
    ),
    "associations of several clusters": Case(
        r"'elsewhere'",
        0,
        conf=CONF + "PriorityWeightFairshare=1000\n",
        site={
            "assoc.txt": "Cluster|Account|User|Share\nsite|root||1\nsite|lab||10\nsite|lab|u|1\nelsewhere|lab||99\n"
        },
        policy="{name: easy, order: {name: multifactor}}",
    ),
    "reservations as sacctmgr lists those of the past": Case(
        r"res\.txt",
        None,
        site={
            "res.txt": "Cluster|Name|TRES|TimeStart|TimeEnd|UnusedWall\n"
            "site|day|cpu=128|2025-03-03T06:00:00|2025-03-03T08:00:00|0\n"
        },
    ),
    "when nodes were away": Case(
        "",
        0,
        site={
            "events.txt": "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
            "site|n1|2025-03-03T06:00:00|2025-03-03T08:00:00|DOWN|Not responding|slurm(64030)\n"
        },
        never="is not what sacctmgr",
    ),
    "nodes as scontrol shows them": Case(
        "",
        0,
        site={
            "nodes.txt": "NodeName=n1 Arch=x86_64\n   CPUTot=64 Gres=gpu:a100:4(S:0-1)\n   State=IDLE Partitions=gpu\n"
        },
        never="is not what sacctmgr",
    ),
    "maintenance where GPUs are of several types": Case(
        "",
        0,
        conf=CONF + "NodeName=m1 Gres=gpu:h100:8\nPartitionName=big Nodes=m1\n",
        site={"res.txt": RES},
        never="maintenance needs",
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in {**BAD, **ORDINARY}.items()])
def test_a_user_sees_what_matters(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sacct.txt").write_text(case.log)
    Path("slurm.conf").write_text(case.conf)
    for name, text in case.site.items():
        Path(name).write_text(text)
    trace = "" if "trace:" in case.policy else "trace: {file: sacct.txt, format: sacct}\n"
    Path("s.yaml").write_text(
        f"domain: cluster\n{trace}machines: {{file: slurm.conf, site: [{', '.join(case.site)}]}}\npolicy: {case.policy}\n"
    )
    if not case.site:
        Path("s.yaml").write_text(Path("s.yaml").read_text().replace(", site: []", ""))
    code = run(["simulate", "s.yaml", "-o", "run"])
    shown = capsys.readouterr()
    lines = [*shown.out.splitlines(), *shown.err.splitlines()]
    assert "Traceback" not in shown.err
    assert case.code in (None, code)
    assert not case.says or any(re.search(case.says, line) for line in lines)
    assert not case.never or not any(re.search(case.never, line) for line in lines)
    assert code == 0 or (len(shown.err.splitlines()) == 1 and not Path("run").exists())
