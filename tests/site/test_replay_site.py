"""The machine of a replay from what a Slurm site has: pools, outages, limits, and what is counted as not used."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from forerun.core.cli.main import run
from forerun.core.errors import ScenarioError
from forerun.site.cases import case_of
from forerun.site.history import History, Names
from forerun.site.machine import Outage, Pool, System, pool_of, read_system
from forerun.site.replay.play import CANDIDATES, replayed
from forerun.site.slurm import Given

from .test_replay import DAY_S, drawn, machine, made_by, written

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
PRINTED = """PartitionName=batch
   AllowGroups=ALL QoS=N/A
   MaxNodes=UNLIMITED MaxTime=UNLIMITED
   Nodes=n[001-080]
   State=UP TotalCPUs=5120 TotalNodes=80
PartitionName=debug
   QoS=debug MaxNodes=2 MaxTime=01:00:00
   Nodes=(null)
   State=UP TotalCPUs=256 TotalNodes=4
"""
QOS = "Name|Priority|GrpTRES|MaxJobsPU|MaxSubmitPU\nnormal|0|node=40|6|100\ndebug|0|||2\nhigh|9||9|\n"
ASSOC = "Account|User|Share|GrpJobs|MaxJobs\nroot||1||\nroot|ann|5|7|3\n"
RESERVATIONS = """ReservationName=all StartTime=2020-09-23T12:00:00 EndTime=2020-09-23T20:00:00
   Nodes=n[001-080],dbg[1-4] NodeCnt=84 Flags=MAINT,SPEC_NODES
ReservationName=rack StartTime=2020-10-03T12:00:00 EndTime=2020-10-03T20:00:00
   Nodes=n[001-010] NodeCnt=10 Flags=MAINT,SPEC_NODES,WEEKLY
ReservationName=next StartTime=2024-10-03T12:00:00 EndTime=2024-10-03T20:00:00
   Nodes=n[001-010] NodeCnt=10 Flags=MAINT
ReservationName=course StartTime=2020-10-03T12:00:00 EndTime=2020-10-03T20:00:00
   Nodes=n001 Flags=SPEC_NODES
   Users=ann
ReservationName=other StartTime=2020-10-03T12:00:00 EndTime=2020-10-03T20:00:00
   Nodes=login1 NodeCnt=1 Flags=MAINT
"""
SUBMITTED = drawn(31, jobs=400)
LOG = made_by(CANDIDATES[0], SUBMITTED, machine(Pool(name="all", nodes=80), held_after_s=0))


def files(folder: Path, **texts: str) -> list[Path]:
    paths = []
    for name, text in texts.items():
        paths.append(folder / (name if name == "slurm" else f"{name}.conf"))
        paths[-1].write_text(text)
    return paths


def named(log: History, partitions: list[str], qos: str = "") -> History:
    """The log with partitions, one after the other, and one QOS."""
    count = len(log)
    names = [partitions[at % len(partitions)] for at in range(count)]
    return replace(log, partition=Names.of(names), qos=Names.of([qos] * count))


def test_partitions_that_share_nodes_are_one_pool(tmp_path: Path) -> None:
    paths = files(tmp_path, nodes=NODES_CONF, slurm=CONF)
    log = named(LOG, ["batch", "long", "debug", "gone"])
    for given in (paths, paths[::-1]):
        system, notes = Given(given, "UTC").of(log)
        assert system.pools == (
            Pool(name="debug", nodes=4, partition="debug", most_s=3600.0),
            Pool(name="batch+long", nodes=80, partition="batch,long", most_s=7 * DAY_S),
        )
        assert system.windows == ()
        assert notes == (
            "partitions batch, long share nodes: they are one pool of 80; alone have fewer: batch 60, long 40",
            "no file describes partition gone, of 100 jobs",
            "not used of the site's files: partition without nodes (1), MaxNodes of partitions (1), parameters of "
            "priorities (1)",
        )
    of = pool_of(log, system.pools)
    assert np.bincount(of + 1).tolist() == [
        100 + int((log.nodes[2::4] > 4).sum()),
        int((log.nodes[2::4] <= 4).sum()),
        200,
    ]


def test_what_runs_is_what_scontrol_prints(tmp_path: Path) -> None:
    paths = files(tmp_path, slurm=CONF, nodes=NODES_CONF, printed=PRINTED)
    system, notes = Given(paths, "UTC").of(named(LOG, ["batch"]))
    assert [(pool.name, pool.nodes, pool.most_s) for pool in system.pools] == [
        ("debug", 4, 3600.0),
        ("batch+long", 80, 0.0),  # UNLIMITED now
    ]
    alone, _ = Given(files(tmp_path, printed=PRINTED), "UTC").of(named(LOG, ["batch"]))
    assert [(pool.name, pool.nodes) for pool in alone.pools] == [("debug", 4), ("batch", 80)]
    assert alone.pools[1].partition == "batch"
    assert "share nodes" in notes[0]


def test_a_log_without_partitions_goes_by_what_they_take(tmp_path: Path) -> None:
    system, notes = Given(files(tmp_path, slurm=CONF, nodes=NODES_CONF), "UTC").of(LOG)
    assert [(pool.name, pool.most_nodes, pool.partition) for pool in system.pools] == [
        ("debug", 2, ""),
        ("batch+long", 0, ""),
    ]
    assert notes[0] == "the log names no partitions: a job is in the smallest pool whose MaxNodes it keeps"
    assert "MaxNodes" not in notes[-1]
    whole, _ = Given(files(tmp_path, slurm=NODES_CONF), "UTC").of(LOG)
    assert whole.pools == (Pool(name="all", nodes=84),)


def test_maintenance_takes_the_nodes_that_it_names(tmp_path: Path) -> None:
    paths = files(tmp_path, slurm=CONF, nodes=NODES_CONF, res=RESERVATIONS)
    log = named(LOG, ["batch"])
    system, notes = Given(paths, "UTC").of(log)
    first, *racks = system.windows
    assert (first.from_s, first.to_s) == (1600862400.0, 1600891200.0)
    assert first.nodes == {"debug": 4, "batch+long": 80}
    assert first.announced_s == first.from_s - max(7 * DAY_S, log.requested_s.max())
    short = replace(log, requested_s=np.minimum(log.requested_s, 3600))
    assert Given(paths, "UTC").of(short)[0].windows[0].announced_s == first.from_s - 7 * DAY_S, (
        "MaxTime of long"
    )
    until_s = log.origin_s + log.last_s
    assert [one.from_s for one in racks] == [1601726400.0 + 7 * DAY_S * k for k in range(len(racks))]
    assert racks[-1].from_s <= until_s < racks[-1].from_s + 7 * DAY_S
    assert all(one.nodes == {"batch+long": 10} for one in racks)
    for part in (
        "reservation for jobs (1)",
        "maintenance before or after the log (1)",
        "maintenance of no node that a",
    ):
        assert part in notes[-1]
    assert "do not say when they were announced" in notes[-2]
    abroad, _ = Given(paths, "America/Chicago").of(log)
    assert abroad.windows[0].from_s == first.from_s + 5 * 3600, "in summer"
    case = case_of(log, system, 1)
    assert [window.gpus for window in case.windows] == [80, *(10 for _ in racks)]
    assert [window.gpus for window in case_of(log, system, 0).windows] == [4, *(0 for _ in racks)]


def test_limits_of_running_jobs(tmp_path: Path) -> None:
    one = "NodeName=n[1-80]\nPartitionName=batch Nodes=ALL\n"
    for text, qos, limit in (
        (one, "normal", 6),
        (one, "", 0),
        (one, "unknown", 0),
        (one.replace("ALL", "ALL QOS=high"), "normal", 9),
    ):
        system, notes = Given(files(tmp_path, slurm=text, qos=QOS, assoc=ASSOC), "UTC").of(
            named(LOG, ["batch"], qos)
        )
        (pool,) = system.pools
        assert pool.running_per_user == limit
        (unused,) = notes
        assert f"MaxJobsPU of QOS ({2 - bool(limit)})" in unused
        for part in (
            "GrpTRES of QOS (1)",
            "MaxSubmitPU of QOS (2)",
            "Share of accounts and users (2)",
            "GrpJobs of acc",
        ):
            assert part in unused
    mixed = replace(
        LOG, partition=Names.of(["batch"] * len(LOG)), qos=Names.of(["normal", "high"] * (len(LOG) // 2))
    )
    (pool,) = Given(files(tmp_path, slurm=one, qos=QOS), "UTC").of(mixed)[0].pools
    assert pool.running_per_user == 0


def test_the_site_replays_as_our_own_words_do(tmp_path: Path) -> None:
    log = named(LOG, ["batch", "long", "batch"])
    log = replace(log, requested_s=np.where(np.arange(len(log)) % 11 == 0, np.nan, log.requested_s))
    paths = files(tmp_path, slurm=CONF, nodes=NODES_CONF, res=RESERVATIONS)
    system, _ = Given(paths, "UTC").of(log)
    own = tmp_path / "machine.yaml"
    windows = "".join(
        f"  - {{from_s: {one.from_s}, to_s: {one.to_s}, announced_s: {one.announced_s}, "
        f"nodes: {{all: {one.of(system.pools[1])}}}}}\n"
        for one in system.windows
    )
    own.write_text(f"pools: [{{name: all, nodes: 80, most_s: {7 * DAY_S}}}]\nwindows:\n{windows}")
    policy = CANDIDATES[2]
    ours = replayed(case_of(log, Given([own], "UTC").of(log)[0], 0), policy)
    theirs = replayed(case_of(log, system, 1), policy)
    np.testing.assert_array_equal(ours, theirs)
    plain = msgspec.structs.replace(system, windows=())
    assert (replayed(case_of(log, plain, 1), policy) != theirs).any()


def test_an_outage_of_some_nodes(tmp_path: Path) -> None:
    """Away nodes are never used, announced or not; the others are."""
    outage = Outage(from_s=1.6e9 + 20 * DAY_S, to_s=1.6e9 + 30 * DAY_S, announced_s=1.6e9, nodes={"all": 60})
    system = System(pools=(Pool(name="all", nodes=100),), windows=(outage,), held_after_s=0)
    log = made_by(CANDIDATES[0], SUBMITTED, system)
    at, busy = log.busy()
    inside = (at >= 20 * DAY_S) & (at < 30 * DAY_S)
    assert 30 < busy[inside].max() <= 40
    with pytest.raises(ScenarioError, match=r"\$.windows\[0\].nodes: no pool is named 'main'"):
        path = tmp_path / "machine.yaml"
        path.write_text(
            "pools: [{name: all, nodes: 9}]\nwindows: [{from_s: 5, to_s: 9, announced_s: 1, nodes: {main: 3}}]\n"
        )
        read_system(path)
    with pytest.raises(ScenarioError, match="two pools are named 'all'"):
        path.write_text("pools: [{name: all, nodes: 9}, {name: all, nodes: 8}]\n")
        read_system(path)


def test_a_comment_with_a_bar_is_no_table(tmp_path: Path) -> None:
    system, _ = Given(files(tmp_path, slurm="# nodes | partitions\nNodeName=n[1-80]\n"), "UTC").of(LOG)
    assert system.pools == (Pool(name="all", nodes=80),)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    own = tmp_path / "machine.yaml"
    own.write_text("pools: [{name: all, nodes: 9}]\n")
    conf = files(tmp_path, slurm=CONF)[0]

    def texts(**given: str) -> list[Path]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return files(folder, **given)

    for paths, what in (
        ([own, conf], "machine.yaml: describes the whole machine; give it without other files"),
        ([conf], "includes /etc/slurm/nodes.conf; give its copy as another --system"),
        ([tmp_path / "gone.conf"], "No such file"),
        (texts(res=RESERVATIONS), "no nodes in partitions are named"),
        (texts(other="hello\n"), "no nodes in partitions are named"),
        (
            texts(printed=PRINTED.replace("TotalNodes=4", "TotalNodes=four")),
            "TotalNodes: four is not a whole",
        ),
        (
            texts(bad="NodeName=a[1-2]\nPartitionName=p Nodes=ALL MaxTime=soon\n"),
            "maxtime: soon is not a time",
        ),
        (texts(queues="# of the site\napiVersion: kueue.x-k8s.io/v1beta1\n"), "is of Kueue"),
        (texts(bad="NodeName=a[2-1]\nPartitionName=p Nodes=ALL\n"), "is no list of ranges"),
    ):
        with pytest.raises(ScenarioError) as error:
            Given(paths, "UTC")
        assert what in str(error.value).replace("'", ""), (what, str(error.value))
    paths = files(
        tmp_path, slurm=CONF, nodes=NODES_CONF, res=RESERVATIONS.replace("2020-10-03T12:00:00", "soon")
    )
    with pytest.raises(ScenarioError, match="StartTime"):
        Given(paths, "UTC").of(LOG)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(LOG, tmp_path / "log.csv")
    kept = tmp_path / "kept.json"
    paths = files(tmp_path, slurm=CONF.replace("MaxTime=60", "MaxTime=1"), nodes=NODES_CONF, res=RESERVATIONS)
    options = [word for path in paths for word in ("--system", str(path))]
    assert run(["replay", str(log), *options, "-o", str(kept)]) == 0
    assert "note: partitions batch, long share nodes" in capsys.readouterr().out
    content = json.loads(kept.read_text())
    assert [pool["name"] for pool in content["system"]["pools"]] == ["debug", "batch+long"]
    assert any("do not say when they were announced" in note for note in content["notes"])
    # only what fits the debug pool is in it
    assert run(["replay", "whatif", str(kept), "--no-window", "1", "--json"]) == 0
    assert "verdict" in json.loads(capsys.readouterr().out)
    assert run(["replay", str(log), "--system", str(paths[0])]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "forerun: slurm:4: includes /etc/slurm/nodes.conf; give its copy as another --system"
    )
    assert error.count("\n") == 1
