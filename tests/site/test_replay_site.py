"""The machine of a replay from what a site has: nodes and partitions, outages, limits, and the order of its queue."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.inputs.slurm_conf import node_names
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.summary.spans import Spans
from forerun.core.cli.main import run
from forerun.core.errors import ScenarioError
from forerun.site.cases import case_of
from forerun.site.files import read_machine
from forerun.site.history import History, Names
from forerun.site.machine import Declared, Outage, Part, Pool, System, folded, read_system
from forerun.site.replay.play import CANDIDATES, policy_name, replayed
from forerun.site.replay.stored import kept_replay
from forerun.site.replay.whatif import named_policies

from .test_replay import DAY_S, drawn, history, machine, made_by, written

CONF = """# our machine
ClusterName=site
PriorityWeightAge=1000
include /etc/slurm/nodes.conf
PartitionName=DEFAULT State=UP MaxTime=1-00:00:00
PartitionName=batch Nodes=n[001-060] \\
   Default=YES MaxNodes=UNLIMITED
PartitionName=long Nodes=n[041-080],away1 MaxTime=7-00:00:00
PartitionName=debug Nodes=dbg[1-4] MaxTime=60 MaxNodes=2 QOS=debug
PartitionName=empty Nodes=away1
"""
NODES_CONF = "NodeName=n[001-080] CPUs=64\nNodeName=dbg[1-4]\nNodeName=away1 State=DOWN\n"
RESERVATIONS = """ReservationName=all StartTime=2020-09-23T12:00:00 EndTime=2020-09-23T20:00:00
   Nodes=n[001-080],dbg[1-4] NodeCnt=84 Flags=MAINT,SPEC_NODES
ReservationName=rack StartTime=2020-10-03T12:00:00 EndTime=2020-10-03T20:00:00
   Nodes=n[001-010] NodeCnt=10 Flags=MAINT,SPEC_NODES,WEEKLY
ReservationName=next StartTime=2024-10-03T12:00:00 EndTime=2024-10-03T20:00:00
   Nodes=n[001-010] NodeCnt=10 Flags=MAINT
ReservationName=course StartTime=2020-10-03T12:00:00 EndTime=2020-10-03T20:00:00
   Nodes=n001 Flags=SPEC_NODES
   Users=ann
"""
SUBMITTED = drawn(31, jobs=400)
LOG = made_by(CANDIDATES[0], SUBMITTED, machine(Pool(name="all", nodes=80), held_after_s=0))


def files(folder: Path, **texts: str) -> list[Path]:
    paths = []
    for name, text in texts.items():
        paths.append(folder / f"{name}.conf")
        paths[-1].write_text(text)
    return paths


def named(log: History, partitions: list[str], qos: str = "") -> History:
    """The log with partitions, one after the other, and one QOS."""
    count = len(log)
    names = [partitions[at % len(partitions)] for at in range(count)]
    return replace(log, partition=Names.of(names), qos=Names.of([qos] * count))


def test_the_files_of_slurm_are_one_pool_of_named_nodes(tmp_path: Path) -> None:
    paths = files(tmp_path, nodes=NODES_CONF, slurm=CONF)
    log = named(LOG, ["batch", "long", "debug", "gone"])
    for given in (paths, paths[::-1]):
        system, notes = read_machine(given, "UTC", log)
        assert isinstance(system, Declared)
        (pool,) = system.pools
        assert pool.parts == (
            Part(name="dbg[1-4]", nodes=4, partitions="debug"),
            Part(name="n[001-080]", nodes=80, partitions="batch,long"),
        )
        assert (pool.name, pool.gpus, pool.partition) == ("batch+long+debug", 84, "batch,long,debug")
        assert pool.names[-1] == "n080"
        assert any("100 jobs" in note or ": 100" in note for note in notes if "partition" in note), notes
        assert policy_name(system.policy) == "slurm-backfill multifactor"
        assert isinstance(system.policy.order, Multifactor)
        assert system.policy.order.weights.age == 1000
    case = case_of(log, system, 0)
    gone = {log.partition.texts[row] for row in range(len(log))} - {
        log.partition.texts[row] for row in case.rows
    }
    assert gone == {"gone"}
    assert case.setting.cluster.partitions["long"] == tuple(range(44, 84))
    few = np.arange(len(log)) < 40
    nobody = replace(log, requested_s=np.where(few, log.requested_s, np.nan))
    limits = {"batch": DAY_S, "long": 7 * DAY_S, "debug": 3600.0}
    asked = case_of(nobody, read_machine(paths, "UTC", nobody)[0], 0)
    assert (asked.rows < 40).any()
    for row, request_s in zip(asked.rows.tolist(), asked.request_s.tolist(), strict=True):
        assert request_s == (log.requested_s[row] if few[row] else limits[log.partition.texts[row]])


def test_a_job_runs_where_its_partition_is_and_no_more_than_its_limits_allow(tmp_path: Path) -> None:
    """Twelve nodes; one partition has three of them. The replay is that of the declared scheduler."""
    conf = "NodeName=a[1-12] Gres=gpu:4\nPartitionName=all Nodes=a[1-12]\nPartitionName=few Nodes=a[10-12] QOS=few\n"
    qos = "Name|MaxTRESPU|MaxJobsPU\nnormal||\nfew||2\n"
    paths = files(tmp_path, slurm=conf, qos=qos)
    jobs = drawn(32, jobs=300)
    one_by_one_s = 100 * DAY_S + np.cumsum(jobs["run_s"]) - jobs["run_s"]
    log = named(history(one_by_one_s, jobs, 60 * DAY_S), ["all", "all", "few"])
    gpus = np.where(log.partition.codes == 1, np.minimum(log.gpus, 8), np.minimum(log.gpus, 24))
    log = replace(log, gpus=gpus, nodes=-(-gpus // 4), unit="GPUs")
    system, _ = read_machine(paths, "UTC", log)
    case = replace(case_of(log, system, 0), begin_s=-1.0)
    start_s = replayed(case, system.policy)
    ended_s = start_s + case.run_s
    few = np.array(case.setting.jobs.labels.partition) == "few"
    for mine, most in ((few, 12), (np.ones(len(case), np.bool_), 48)):
        assert Spans(start_s[mine], ended_s[mine], case.gpus[mine]).levels()[1].max() <= most
    for user in range(1, case.users):
        mine = few & (case.user == user)
        assert (
            Spans(start_s[mine], ended_s[mine], np.ones(mine.sum(), np.int64)).levels()[1].max(initial=0) <= 2
        )
    assert np.isfinite(start_s).all()


def test_maintenance_takes_the_nodes_that_it_names(tmp_path: Path) -> None:
    paths = files(tmp_path, slurm=CONF, nodes=NODES_CONF, res=RESERVATIONS)
    log = named(LOG, ["batch"])
    system, notes = read_machine(paths, "UTC", log)
    case = replace(case_of(log, system, 0), begin_s=-1.0)
    first, *racks = case.windows
    from_s = 1600862400.0 - log.origin_s
    assert (first.from_s, first.to_s) == (from_s, from_s + 8 * 3600)
    assert (first.gpus, first.announced_s) == (84, 0)
    assert [one.from_s for one in racks] == [from_s + 10 * DAY_S + 7 * DAY_S * k for k in range(len(racks))]
    assert racks[-1].from_s <= log.submit_s[-1] < racks[-1].from_s + 7 * DAY_S
    assert all(one.nodes == tuple(range(4, 14)) for one in racks)
    assert any("windows of maintenance are outside the time" in note for note in notes)
    abroad, _ = read_machine(paths, "America/Chicago", log)
    assert case_of(log, abroad, 0).windows[0].from_s == first.from_s + 5 * 3600, "in summer"
    assert isinstance(system, Declared)
    start_s = replayed(case, system.policy)
    away = (start_s + case.run_s > first.from_s) & (start_s < first.to_s)
    assert not (away & (case.run_s <= case.request_s) & (case.request_s <= DAY_S)).any()


def test_what_the_scheduler_of_a_site_is(tmp_path: Path) -> None:
    one = "NodeName=n[1-80]\nPartitionName=batch Nodes=ALL\n"
    plain, _ = read_machine(files(tmp_path, slurm=one + "PriorityType=priority/basic\n"), "UTC", LOG)
    assert isinstance(plain, Declared)
    assert policy_name(plain.policy) == "slurm-backfill fcfs"
    builtin, _ = read_machine(files(tmp_path, slurm=one + "SchedulerType=sched/builtin\n"), "UTC", LOG)
    assert isinstance(builtin, Declared)
    assert policy_name(builtin.policy) == "slurm-builtin fcfs"
    case = replace(case_of(named(LOG, ["batch"]), builtin, 0), begin_s=-1.0)
    start_s, order = replayed(case, builtin.policy), np.argsort(case.submit_s, kind="stable")
    assert (np.diff(start_s[order]) >= 0).all(), "nobody overtakes"


def test_an_outage_of_some_nodes(tmp_path: Path) -> None:
    """Away nodes are never used, announced or not; the others are."""
    outage = Outage(from_s=1.6e9 + 20 * DAY_S, to_s=1.6e9 + 30 * DAY_S, announced_s=1.6e9, gpus={"all": 60})
    system = System(pools=(Pool(name="all", nodes=100),), windows=(outage,), held_after_s=0)
    log = made_by(CANDIDATES[0], SUBMITTED, system)
    at, busy = log.busy()
    inside = (at >= 20 * DAY_S) & (at < 30 * DAY_S)
    assert 30 < busy[inside].max() <= 40
    with pytest.raises(ScenarioError, match=r"\$.windows\[0\].gpus: no pool is named 'main'"):
        path = tmp_path / "machine.yaml"
        path.write_text(
            "pools: [{name: all, nodes: 9}]\nwindows: [{from_s: 5, to_s: 9, announced_s: 1, gpus: {main: 3}}]\n"
        )
        read_system(path)
    with pytest.raises(ScenarioError, match="two pools are named 'all'"):
        path.write_text("pools: [{name: all, nodes: 9}, {name: all, nodes: 8}]\n")
        read_system(path)


def test_a_comment_with_a_bar_is_no_table(tmp_path: Path) -> None:
    system, _ = read_machine(files(tmp_path, slurm="# nodes | partitions\nNodeName=n[1-80]\n"), "UTC", LOG)
    assert [(pool.name, pool.gpus, pool.partition) for pool in system.pools] == [("all", 80, "")]


def test_names_are_folded_as_slurm_does() -> None:
    names = ["a1", "a2", "a10", "a11", "b01", "b02", "b04", "login", "b09", "b10"]
    assert folded(names) == "a[1-2],a[10-11],b[01-02],b04,login,b[09-10]"
    assert node_names(folded(names), 100) == names


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    own = tmp_path / "machine.yaml"
    own.write_text("pools: [{name: all, nodes: 9}]\n")
    conf = files(tmp_path, slurm=CONF)[0]
    small = replace(LOG.of(slice(1)), gpus=np.ones(1, np.int64), nodes=np.ones(1, np.int64))

    def texts(**given: str) -> list[Path]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return files(folder, **given)

    for paths, what in (
        ([own, conf], "machine.yaml: describes the whole machine; give it without other files"),
        ([conf], "includes /etc/slurm/nodes.conf; give its copy, too"),
        ([tmp_path / "gone.conf"], "No such file"),
        (texts(res=RESERVATIONS), "one slurm.conf is needed; none is among them"),
        (texts(one="NodeName=a1\n", two="NodeName=a2\n"), "one.conf, two.conf are no parts of one"),
        (texts(other="hello\n"), "has no node"),
        (
            texts(bad="NodeName=a[1-2]\nPartitionName=p Nodes=ALL MaxTime=soon\n"),
            "MaxTime: soon is not a time",
        ),
        (
            texts(bad="NodeName=a[1-2]\nPartitionName=p Nodes=a[1-3]\n"),
            "names nodes that no NodeName line has: a3",
        ),
        (texts(queues="# of the site\napiVersion: kueue.x-k8s.io/v1beta1\n"), "is of Kueue"),
        (texts(bad="NodeName=a[2-1]\nPartitionName=p Nodes=ALL\n"), "is no list of ranges"),
        (
            texts(slurm="NodeName=n[1-9]\n", res=RESERVATIONS.replace("2020-10-03T12:00:00", "soon")),
            "StartTime",
        ),
    ):
        with pytest.raises(ScenarioError) as error:
            read_machine(paths, "UTC", small)
        assert what in str(error.value).replace("'", ""), (what, str(error.value))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = made_by(
        CANDIDATES[0], drawn(33, days=16, jobs=300), machine(Pool(name="all", nodes=84), held_after_s=0)
    )
    log = written(made, tmp_path / "log.csv")
    kept = tmp_path / "kept.json"
    paths = files(tmp_path, slurm=CONF, nodes=NODES_CONF, res=RESERVATIONS)
    options = [word for path in paths for word in ("--system", str(path))]
    assert run(["replay", str(log), *options, "-o", str(kept)]) == 0
    assert "The replay uses slurm-backfill multifactor" in capsys.readouterr().out
    content = json.loads(kept.read_text())
    assert [pool["name"] for pool in content["system"]["pools"]] == ["batch+long+debug"]
    assert [Path(one["path"]).name for one in content["system_files"]] == [
        "slurm.conf",
        "nodes.conf",
        "res.conf",
    ]
    replay = kept_replay(kept, content)
    own = replay.card.policy.order
    assert isinstance(own, Multifactor) and own.weights is not None and own.weights.age == 1000
    policies = named_policies(replay)
    for kind in ("easy", "slurm-backfill", "conservative"):
        assert policies[f"{kind} multifactor"].order == own
    for change in (["--no-window", "1"], ["--nodes", "+20"], ["--policy", "easy"]):
        assert run(["replay", "whatif", str(kept), *change, "--json"]) == 0
        assert "verdict" in json.loads(capsys.readouterr().out)
    assert run(["replay", str(log), "--system", str(paths[0])]) == 2
    error = capsys.readouterr().err
    assert error.startswith("forerun: slurm.conf:4: includes /etc/slurm/nodes.conf; give its copy, too")
    assert "Traceback" not in error


def test_whole_nodes_are_simulated_like_gpus(tmp_path: Path) -> None:
    """A machine without GPUs: each node counts as one, in a simulation as in a replay."""
    files(tmp_path, nodes=NODES_CONF, slurm=CONF)
    log = written(named(LOG, ["batch"]), tmp_path / "log.csv")
    text = (
        f"{{domain: cluster, trace: {{file: {log.name}, format: job_history}}, policy: fifo, machines: "
        "{file: slurm.conf, included: [nodes.conf], unit: nodes}}"
    )
    made = forerun.simulate(forerun.loads(text, base=tmp_path))
    assert len(made.tables["jobs"]) == len(LOG)
    with pytest.raises(ScenarioError, match=r"machines\.unit: is of a Slurm configuration"):
        forerun.loads(
            text.replace("slurm.conf", "slurm.csv").replace(", included: [nodes.conf]", ""), base=tmp_path
        )
