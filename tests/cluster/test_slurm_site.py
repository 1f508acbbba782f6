"""What sacctmgr and scontrol print of a site: limits, time limits, shares, maintenance, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.inputs.arrays import Cluster, NodeGroup
from forerun.cluster.inputs.limits import LimitRule
from forerun.cluster.inputs.prepare import prepare
from forerun.cluster.inputs.site import Site
from forerun.cluster.inputs.slurm_site import SlurmSite, read_slurm_site
from forerun.cluster.policies.orders.multifactor import Account, Multifactor, Weights
from forerun.core.errors import ScenarioError
from forerun.core.result.run import Result
from forerun.core.scenario.spec import content_id
from forerun.core.scenarios import load

QOS = (
    "Name|Priority|GraceTime|Preempt|Flags|UsageFactor|GrpTRES|GrpTRESMins|GrpJobs|GrpSubmit|MaxTRES|MaxWall|MaxTRESPU|"
    "MaxJobsPU|MaxSubmitPU|MaxTRESPA\n"
    "normal|0|00:00:00|||1.000000|||||||cpu=512,gres/gpu=16||1000|\n"
    "high|1000|00:00:00|normal|DenyOnLimit|2.000000|gres/gpu=32|cpu=100000|||gres/gpu=8|1-00:00:00||4||gres/gpu:a100=6\n"
    "debug|0|00:00:00|||0.000000||||||||1||\n"
)
ASSOC = (
    "Cluster|Account|User|Partition|Share|GrpJobs|GrpTRES|GrpSubmit|MaxJobs|MaxTRES|MaxWall|QOS|Def QOS\n"
    "site|root|||1||||||||normal|\n"
    "site| vision|||10||gres/gpu=24|||||high,normal|\n"
    "site|  vision-sub|||5|6||||||high,normal|\n"
    "site|  vision-sub|ann||1||||8||02:00:00|high,normal|\n"
    "site|  vision-sub|bob|gpu|parent|||||gres/gpu=2||normal|\n"
    "site| nlp|||30||||3|||normal|\n"
)
RESERVATIONS = """ReservationName=june StartTime=2024-03-02T08:00:00 EndTime=2024-03-02T18:00:00 Duration=10:00:00
   Nodes=gpu[01-02],login1 NodeCnt=3 CoreCnt=768 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE

ReservationName=course StartTime=2024-03-03T08:00:00 EndTime=2024-03-03T18:00:00
   Nodes=gpu01 NodeCnt=1 Flags=SPEC_NODES
   Users=ann Accounts=(null)
"""
PARTITIONS = """PartitionName=gpu
   AllowGroups=ALL Default=YES QoS=N/A
   MaxNodes=2 MaxTime=3-00:00:00
   Nodes=gpu[01-03]
   State=UP TotalCPUs=768 TotalNodes=3
PartitionName=debug
   QoS=debug MaxNodes=UNLIMITED MaxTime=UNLIMITED
   Nodes=dbg01
   State=UP TotalCPUs=128 TotalNodes=1
"""
CONF = "NodeName=gpu[01-03] Gres=gpu:a100:8\nNodeName=dbg01 Gres=gpu:a100:4\nNodeName=login1\n"
NODES = {"gpu01": 8, "gpu02": 8, "gpu03": 8, "dbg01": 4}
CLUSTER = Cluster((NodeGroup("gpu[01-03]", 3, 8, "a100"), NodeGroup("dbg01", 1, 4, "a100")))


def read(
    folder: Path, *texts: str, cluster: Cluster = CLUSTER, nodes: bool = True, **options: object
) -> Site:
    paths = []
    for at, text in enumerate(texts):
        paths.append(folder / f"file{at}.txt")
        paths[-1].write_text(text)
    return read_slurm_site(paths, cluster, NODES if nodes else None, **options)  # type: ignore[arg-type]


def rules_of(site: Site) -> dict[str, LimitRule]:
    return {rule.name: rule for rule in site.rules}


def test_limits_of_qualities_of_service(tmp_path: Path) -> None:
    site = read(tmp_path, QOS)
    rules = rules_of(site)
    assert set(rules) == {
        "QOS normal: MaxTRESPU", "QOS high: GrpTRES", "QOS high: MaxTRES", "QOS high: MaxJobsPU", "QOS high: MaxTRESPA",
        "QOS debug: MaxJobsPU",
    }  # fmt: skip
    assert (rules["QOS normal: MaxTRESPU"].gpus, rules["QOS normal: MaxTRESPU"].per) == (16, ("user",))
    assert rules["QOS high: GrpTRES"].of == {"qos": frozenset({"high"})}
    assert rules["QOS high: MaxTRES"].job_gpus == 8
    assert (rules["QOS high: MaxTRESPA"].gpu_type, rules["QOS high: MaxTRESPA"].gpus) == ("a100", 6)
    assert [(one.name, one.seconds) for one in site.longest] == [("QOS high: MaxWall", 86_400)]
    assert site.notes == (
        "not simulated: MaxTRESPU of cpu of QOS normal",
        "not simulated: MaxSubmitPU of QOS normal",
        "not simulated: GrpTRESMins of QOS high",
        "not simulated: Preempt of QOS high",
    )


def test_limits_of_accounts_count_all_below_and_those_of_users_theirs(tmp_path: Path) -> None:
    rules = rules_of(read(tmp_path, ASSOC))
    assert rules["account vision: GrpTRES"].of == {"account": frozenset({"vision", "vision-sub"})}
    assert rules["account vision-sub: GrpJobs"].jobs == 6
    ann = rules["user ann of vision-sub: MaxJobs"]
    assert (ann.jobs, ann.of) == (8, {"account": frozenset({"vision-sub"}), "user": frozenset({"ann"})})
    bob = rules["user bob of vision-sub: MaxTRES"]
    assert (bob.job_gpus, bob.of["partition"]) == (2, frozenset({"gpu"}))
    assert not any(name.startswith("account nlp") for name in rules), (
        "MaxJobs is of users, whose rows have it"
    )


def test_shares_and_parents(tmp_path: Path) -> None:
    path = tmp_path / "assoc.txt"
    path.write_text(ASSOC)
    site = SlurmSite()
    site.read(path)
    assert [(one.account, one.user, one.parent, one.shares) for one in site.associations] == [
        ("root", "", "", 1), ("vision", "", "root", 10), ("vision-sub", "", "vision", 5),
        ("vision-sub", "ann", "", 1), ("vision-sub", "bob", "", 0), ("nlp", "", "root", 30),
    ]  # fmt: skip
    path.write_text(
        "Account|User|ParentName|Fairshare|\nroot|||1|\nlab||root|7|\n"
    )  # -p, and another spelling
    site = SlurmSite()
    site.read(path)
    assert not site.problems
    assert [(one.parent, one.shares) for one in site.associations] == [("", 1), ("root", 7)]


def test_partitions_have_the_gpus_of_their_nodes_and_their_qos(tmp_path: Path) -> None:
    site = read(tmp_path, PARTITIONS, QOS)
    rules = rules_of(site)
    assert (rules["partition gpu"].gpus, rules["partition debug"].gpus) == (24, 4)
    assert rules["partition gpu: MaxNodes"].job_gpus == 16
    of_partition = [
        rule for rule in site.rules if rule.name == "QOS debug: MaxJobsPU" and "partition" in rule.of
    ]
    assert len(of_partition) == 1 and of_partition[0].rank == 1
    assert ("partition gpu", 259_200) in [(one.name, one.seconds) for one in site.longest]
    alone = read(tmp_path, PARTITIONS)
    assert alone.notes == ("not simulated: QOS debug of partition debug, which no file describes",)


def test_reservations_for_maintenance_are_windows_others_are_said(tmp_path: Path) -> None:
    site = read(tmp_path, RESERVATIONS)
    begin_s = float(np.datetime64("2024-03-02T08:00:00", "s").astype(np.int64))
    assert [(one.from_s, one.to_s, one.gpus) for one in site.outages] == [(begin_s, begin_s + 36_000, 16)]
    assert site.notes == ("not simulated: reservation course for ann, its GPUs are everybody's",)
    there = read(tmp_path, RESERVATIONS, timezone="Europe/Berlin").outages[0]
    assert there.from_s == begin_s - 3600
    weekly = RESERVATIONS.replace("MAINT", "WEEKLY,MAINT")
    again = read(tmp_path, weekly, until_s=begin_s + 15 * 86_400).outages
    assert [one.from_s - begin_s for one in again] == [0, 7 * 86_400, 14 * 86_400]
    assert read(tmp_path, "No reservations in the system\n") == Site()
    whole = RESERVATIONS.replace("Nodes=gpu[01-02],login1", "Nodes=ALL")
    assert read(tmp_path, whole).outages[0].gpus == 28


def test_nodes_without_names_are_counted(tmp_path: Path) -> None:
    alike = Cluster((NodeGroup("n", 4, 8),))
    site = read(tmp_path, RESERVATIONS, PARTITIONS, cluster=alike, nodes=False)
    assert site.outages[0].gpus == 24
    assert rules_of(site)["partition debug"].gpus == 8
    with_gres = PARTITIONS.replace("TotalNodes=1", "TotalNodes=1 TRES=cpu=8,gres/gpu=3")
    assert rules_of(read(tmp_path, with_gres, cluster=alike, nodes=False))["partition debug"].gpus == 3
    with pytest.raises(ScenarioError, match="has nodes, of which the machines know no names"):
        read(tmp_path, RESERVATIONS, nodes=False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello\n", "file0.txt: is not what sacctmgr show qos -P"),
        ("", "file0.txt: is not what sacctmgr"),
        (QOS.replace("high|1000", "high|1e3"), "file0.txt:3:Priority: '1e3' is not a whole number"),
        (QOS.replace("gres/gpu=32", "gres/gpu=many"), "file0.txt:3:GrpTRES: 'many' is not a whole number"),
        (QOS.replace("gres/gpu=32", "32"), "file0.txt:3:GrpTRES: '32' is no resource such as gres/gpu=8"),
        (QOS.replace("1-00:00:00", "a day"), "file0.txt:3:MaxWall: 'a day' is not a time limit"),
        (QOS.replace("debug|", "normal|"), "file0.txt:4: QOS 'normal' stands in file0.txt:2 already"),
        (QOS.replace("debug|", "|"), "file0.txt:4:Name: is empty"),
        (QOS[:-20], r"file0.txt:4: has \d+ fields, the header has 16 \(is the file cut short\?\)"),
        (QOS.replace("Flags", "Name"), "file0.txt:1: names a column twice"),
        (ASSOC.replace("|10|", "|ten|"), "file0.txt:3:Share: 'ten' is not a whole number"),
        (ASSOC.replace(" nlp", ""), "file0.txt:7:Account: is empty"),
        (
            RESERVATIONS.replace("2024-03-02T08", "soonT08"),
            "file0.txt:1:StartTime: 'soonT08:00:00' is not a time",
        ),
        (
            RESERVATIONS.replace("2024-03-02T18", "2024-03-01T18"),
            "file0.txt:1:EndTime: is not after StartTime",
        ),
        (RESERVATIONS.replace("MAINT", "WEEKDAY,MAINT"), "file0.txt:1:Flags: WEEKDAY is not simulated"),
        (
            RESERVATIONS.replace("gpu[01-02]", "gpu[02-01]"),
            r"file0.txt:1:Nodes: \[02-01\] is no list of ranges",
        ),
        (
            PARTITIONS.replace("MaxNodes=2", "MaxNodes=two"),
            "file0.txt:1:MaxNodes: 'two' is not a whole number",
        ),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        read(tmp_path, text)


def site_of_a_scenario(folder: Path, *rows: str, policy: str = "easy", **files: str) -> Path:
    """A scenario of a site. rows: `id user account partition qos submit seconds gpus limit`, seconds from 08:00."""
    (folder / "slurm.conf").write_text(CONF)
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    day = np.datetime64("2024-03-02T00:00:00", "s")
    lines = ["JobID|User|Account|Partition|QOS|Submit|Start|End|State|ElapsedRaw|AllocTRES|Timelimit|JobName"]
    for row in rows:
        job, user, account, partition, qos, submit, seconds, gpus, limit = row.split()
        at = day + np.timedelta64(int(submit), "s")  # starts, which the tests are about, are not in the log
        lines.append(
            f"{job}|{user}|{account}|{partition}|{qos}|{at}|Unknown|{at + np.timedelta64(int(seconds), 's')}|COMPLETED|"
            f"{seconds}|gres/gpu={gpus}|{limit}|x"
        )
    (folder / "jobs.txt").write_text("\n".join(lines) + "\n")
    path = folder / "cluster.yaml"
    listed = ", ".join(f"{name}.txt" for name in files)
    path.write_text(
        f"domain: cluster\ntrace: jobs.txt\nmachines: {{file: slurm.conf, site: [{listed}]}}\npolicy: {policy}\n"
    )
    return path


def starts(result: Result) -> list[float]:
    return [float(at_s) for at_s in result.tables["jobs"]["first_start_s"]]


def test_a_site_limits_the_jobs_of_its_log(tmp_path: Path) -> None:
    """ann has 16 GPUs in QOS normal at most, each partition its nodes, vision 24; QOS high overrides the account."""
    path = site_of_a_scenario(
        tmp_path,
        "1 ann nlp gpu normal 0 1000 16 01:00:00",
        "2 ann nlp gpu normal 1 1000 8 01:00:00",
        "3 cat nlp gpu normal 2 1000 8 01:00:00",
        "4 cat nlp debug normal 3 1000 4 01:00:00",
        "5 dan nlp debug normal 4 1000 1 01:00:00",
        qos=QOS, partitions=PARTITIONS, assoc=ASSOC,
    )  # fmt: skip
    assert starts(forerun.simulate(load(path))) == [0, 1000, 2, 3, 1003]
    note = "here they share one cluster"
    assert not any(note in line for line in forerun.simulate(load(path)).notes)
    without = load(path, ["machines.site=null"])
    assert any(note in line for line in forerun.simulate(without).notes)
    assert content_id(without, "1") != content_id(load(path), "1")


def test_jobs_without_a_limit_have_that_of_their_partition(tmp_path: Path) -> None:
    """The first job asked for all there is: three days of its partition, behind which the wide one waits."""
    path = site_of_a_scenario(
        tmp_path,
        "1 ann nlp gpu normal 0 100 8 UNLIMITED",
        "2 bob nlp gpu normal 1 100 24 Partition_Limit",
        "3 cat nlp gpu normal 2 100 8 1-00:00:00",
        partitions=PARTITIONS.replace("MaxNodes=2", "MaxNodes=UNLIMITED"),
    )  # fmt: skip
    result = forerun.simulate(load(path))
    assert any(
        note.startswith("2 of 3 jobs without a requested time have the limit") for note in result.notes
    )
    without = forerun.simulate(load(path, ["machines.site=null"]))
    assert "2 of 3 jobs without a requested time take the greatest one, 86,400 s" in without.notes


def test_maintenance_by_the_calendar_drains(tmp_path: Path) -> None:
    """From 08:00 to 18:00 two of the nodes are out: a job of 24 GPUs and an hour before 08:00 waits until 18:00."""
    hour = 3600
    path = site_of_a_scenario(
        tmp_path,
        f"1 ann nlp gpu normal {6 * hour} {hour} 8 01:00:00",
        f"2 ann nlp gpu normal {7 * hour + 1800} {hour} 24 01:00:00",
        f"3 ann nlp gpu normal {8 * hour} {hour} 8 01:00:00",
        reservations=RESERVATIONS,
    )  # fmt: skip
    assert starts(forerun.simulate(load(path))) == [0, 12 * hour, 2 * hour]
    result = forerun.simulate(load(path, ["policy=fifo"]))
    assert any("1 windows of maintenance; fifo does not plan" in note for note in result.notes)


def test_maintenance_takes_the_nodes_of_their_partition(tmp_path: Path) -> None:
    """All nodes of `gpu` but one are out, and the one of `debug` is not: no job of `gpu` may have its GPUs."""
    hour = 3600
    path = site_of_a_scenario(
        tmp_path,
        f"1 ann nlp gpu normal {7 * hour} {hour} 8 01:00:00",
        f"2 bob nlp gpu normal {8 * hour - 60} {hour} 8 01:00:00",
        f"3 bob nlp gpu normal {8 * hour - 30} {hour} 4 01:00:00",
        f"4 bob nlp debug normal {8 * hour} {hour} 4 01:00:00",
        reservations=RESERVATIONS, partitions=PARTITIONS,
    )  # fmt: skip
    assert starts(forerun.simulate(load(path))) == [0, hour - 60, 2 * hour - 60, hour]


PRIORITIES = """PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=100000
PriorityWeightQOS=5000
PriorityWeightPartition=300
PriorityWeightTRES=CPU=10,GRES/gpu=70
PriorityMaxAge=1-0
PriorityDecayHalfLife=14-0
PriorityFlags=NO_FAIR_TREE,DEPTH_OBLIVIOUS
PriorityFavorSmall=YES
FairShareDampeningFactor=5
PartitionName=gpu Nodes=gpu[01-03] PriorityJobFactor=7
PartitionName=debug Nodes=dbg01 PriorityTier=9
"""


def test_the_multifactor_order_is_that_of_the_site(tmp_path: Path) -> None:
    """What the scenario leaves out comes from slurm.conf, the shares and the QOS; its own values stay."""
    path = site_of_a_scenario(
        tmp_path, "1 ann nlp gpu normal 0 100 8 01:00:00", "2 bob nlp gpu high 1 100 4 01:00:00",
        policy="{name: easy, order: {name: multifactor, weights: {age: 3}}}", qos=QOS, assoc=ASSOC,
    )  # fmt: skip
    (tmp_path / "slurm.conf").write_text(PRIORITIES + CONF)
    inputs = prepare(load(path))
    order = inputs.policy.order  # type: ignore[attr-defined]
    assert isinstance(order, Multifactor)
    assert order.weights == Weights(age=3)
    assert (order.max_age_s, order.half_life_s, order.fairshare, order.damping) == (
        86_400,
        14 * 86_400,
        "classic",
        5,
    )
    assert order.favor_small and order.qos == {"high": 1000}
    assert order.accounts == {
        "vision": Account(shares=10),
        "vision-sub": Account(shares=5, parent="vision", users={"ann": 1, "bob": 1}),
        "nlp": Account(shares=30),
    }
    assert {name: (one.priority, one.tier) for name, one in order.partitions.items()} == {
        "gpu": (7, 1), "debug": (1, 9),
    }  # fmt: skip
    assert any(note.startswith("multifactor: accounts, damping") for note in inputs.notes)
    whole = prepare(load(path, ["policy={name: easy, order: multifactor}"])).policy.order  # type: ignore[attr-defined]
    assert whole.weights == Weights(age=1000, fairshare=100_000, qos=5000, partition=300, tres_gpu=70)
    assert forerun.simulate(load(path)).tables["jobs"]["end_s"].tolist() == [100, 101]
    (tmp_path / "slurm.conf").write_text(CONF + "PriorityWeightAge=much\nPriorityMaxAge=soon\n")
    with pytest.raises(ScenarioError, match=r"slurm.conf:4:priorityweightage: 'much' is not a whole number"):
        prepare(load(path))


def test_a_quota_does_not_go_with_a_site(tmp_path: Path) -> None:
    path = site_of_a_scenario(tmp_path, "1 ann nlp gpu normal 0 100 8 01:00:00", qos=QOS)
    with pytest.raises(ScenarioError, match="has limits, which neither a quota nor real jobs"):
        load(path, ["quota={gpus: {ann: 4}}"])
