"""What jobs hold, and the machine that a log alone shows: on sites whose truth is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from forerun.cluster.policies.easy import Easy
from forerun.core.cli.main import run
from forerun.core.errors import TraceError
from forerun.site.cases import case_of, numbered
from forerun.site.files import read_machine
from forerun.site.history import History, Names, read_history
from forerun.site.inference import infer
from forerun.site.machine import Declared
from forerun.site.replay.explain import explain_job
from forerun.site.replay.play import one_step, replayed
from forerun.site.replay.replay import replay_log
from forerun.site.shown import own_partitions
from forerun.site.wait_time.squeue import read_snapshot, taken_at_s, with_snapshot

from ..conftest import cases
from .reference.export import write
from .reference.sites import Site, draw
from .test_replay import CANDIDATES, drawn, machine, made_by

FILES = ("slurm.conf", "qos.txt", "assoc.txt", "partitions.txt", "res.txt", "events.txt")


@pytest.fixture(scope="module")
def drawn_site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, dict[str, Path]]:
    site = draw(3, 500, 14)  # no job waits at the end that asks for whole nodes, which no file would show
    return site, write(site, site.attempts(), tmp_path_factory.mktemp("site"))


def csv(folder: Path, rows: list[tuple[float, float, int, int]], header: str = "nodes,gpus") -> History:
    """A log of jobs: start, end, and what they hold."""
    lines = [f"id,submit_s,start_s,end_s,{header},requested_s"]
    lines += [
        f"{at},{a:.0f},{a:.0f},{b:.0f},{','.join(map(str, held))},9000"
        for at, (a, b, *held) in enumerate(rows)
    ]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    return read_history(folder / "log.csv")


def test_the_unit_is_what_jobs_share(tmp_path: Path) -> None:
    whole = [(at * 10.0, at * 10.0 + 100, 1 + at % 3, 8 * (1 + at % 3)) for at in range(60)]
    assert csv(tmp_path, whole).unit == "nodes"
    shared = [(a, b, nodes, gpus if at % 5 else 2 * nodes) for at, (a, b, nodes, gpus) in enumerate(whole)]
    log = csv(tmp_path, shared)
    assert log.unit == "GPUs"
    assert log.gpus.tolist() == [one[3] for one in shared]
    assert log.nodes.tolist() == [one[2] for one in shared]
    few = [(a, b, nodes, 0 if at % 10 else 4) for at, (a, b, nodes, _) in enumerate(whole)]
    assert csv(tmp_path, few).unit == "nodes", "a machine with some GPUs is one of nodes"
    only = csv(tmp_path, [(a, b, nodes) for a, b, nodes, _ in whole], "nodes")  # type: ignore[misc]
    assert only.unit == "nodes"
    only = csv(tmp_path, [(a, b, gpus) for a, b, _, gpus in whole], "gpus")  # type: ignore[misc]
    assert only.unit == "GPUs"


def test_the_nodes_that_a_log_names_are_those_of_the_site(
    drawn_site: tuple[Site, dict[str, Path]],
) -> None:
    site, files = drawn_site
    log = read_history(files["sacct.txt"], zone=site.zone)
    assert log.unit == "GPUs"
    system, findings = infer(log, log.last_s)
    real = {node.name: node for node in site.world.nodes}
    found = {name: part for pool in system.pools for part in pool.parts for name in _names(part.name)}
    assert found.keys() <= real.keys()
    assert len(found) >= 0.9 * len(real), "a node that no job had is not in the log"
    for name, part in found.items():
        assert part.gpus_per_node == real[name].gpus
        assert part.gpu_type in ("", real[name].gpu_type)
        where = {one.name for one in site.world.partitions if name in one.nodes}
        assert set(part.partitions.split(",")) <= where
    assert findings[0].evidence.startswith("the log names them")
    case = case_of(log, system, len(system.pools) - 1)
    at, names = case.on_nodes, system.pools[-1].names
    for row in range(0, len(case), 29):
        assert [names[node] for node in at[row].tolist()] == _names(log.on_nodes.texts[case.rows[row]])


def _names(text: str) -> list[str]:
    from forerun.cluster.inputs.slurm_conf import node_names

    return node_names(text, 1000)


def test_a_shared_site_goes_on_from_history_at_any_instant(drawn_site: tuple[Site, dict[str, Path]]) -> None:
    """The scheduler that made its log starts every job when it did, from who ran and waited at the instant on."""
    site, files = drawn_site
    log = read_history(files["sacct.txt"], zone=site.zone)
    system, _ = read_machine([files[name] for name in FILES], site.zone, log)
    assert isinstance(system, Declared)
    whole, easy = case_of(log, system, 0), Easy(order=system.policy.order)
    for at_s in (0.2 * log.last_s, 0.5 * log.last_s):
        case = replace(whole, begin_s=at_s)
        start_s = replayed(case, easy)
        scored = case.started & np.isfinite(start_s) & (case.submit_s > at_s)
        assert scored.sum() > 100
        np.testing.assert_array_equal(start_s[scored], case.start_s[scored])
    assert one_step(case, easy, case.begin_s, log.last_s).f1 > 0.9


def test_partitions_that_are_full_while_others_are_not_have_their_own() -> None:
    policy = CANDIDATES[0]
    one = made_by(policy, drawn(41, jobs=900), machine(held_after_s=0))
    jobs = drawn(42, jobs=900)
    other = made_by(policy, jobs, machine(held_after_s=0))
    both = replace(one, partition=Names.of(["a"] * len(one))).beside(
        replace(other, partition=Names.of(["b"] * len(other)))
    )
    found = [pool for pool, _ in own_partitions(both)]
    assert {pool.name for pool in found} == {"a", "b"}
    assert all(abs(pool.gpus - 100) <= 4 for pool in found)
    shared = made_by(policy, drawn(43, jobs=1500), machine(held_after_s=0))
    names = np.random.default_rng(0).choice(["a", "b"], len(shared)).tolist()
    assert own_partitions(replace(shared, partition=Names.of(names))) == ()


@pytest.mark.parametrize("seed", range(cases(3)))
def test_numbers_of_nodes_are_none_where_one_is_not_known(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"n{at}" for at in range(6)]
    lists = [",".join(rng.choice([*names, "x"], rng.integers(1, 4), replace=False)) for _ in range(20)]
    found = numbered(Names.of(lists), names)
    for text, mine in zip(lists, found, strict=True):
        assert [names[node] for node in mine.tolist()] == ([] if "x" in text else text.split(","))


def test_a_forecast_is_of_the_gpus_of_a_partition(
    drawn_site: tuple[Site, dict[str, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    site, files = drawn_site
    log = read_history(files["sacct.txt"], zone=site.zone)
    asked = ["wait-time", str(files["sacct.txt"]), "--zone", site.zone, "--json"]
    node = {one.name: one.gpus for one in site.world.nodes}
    for partition in site.world.partitions:
        mine = log.of(log.partition.codes == log.partition.names.index(partition.name))
        if len(mine) < 60:
            continue
        assert run([*asked, "--job", f"gpus=1,requested=2h,partition={partition.name}"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["job"]["gpus"] == 1
        assert found["pool"]["unit"] == "GPUs"
        assert (
            found["pool"]["free_gpus"] <= found["pool"]["gpus"] <= sum(node[name] for name in partition.nodes)
        )
    assert run([*asked, "--job", "nodes=1,requested=2h"]) == 2
    assert "this log counts GPUs; write it as gpus=8,requested=6h" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [("gres/gpu:4", 8), ("gres/gpu:a100:2", 4), ("gpu", 2), ("gpu:v100:1(S:0-1),shard:9", 2), ("N/A", 0), ("", 0),
     ("gres/gpu=3,gres/nic:2", 6), ("shard:4", 0)],
)  # fmt: skip
def test_a_snapshot_has_the_gpus_of_each_node(tmp_path: Path, tres: str, gpus: int) -> None:
    header = "JOBID|USER|PARTITION|NODES|TRES_PER_NODE|TIME_LIMIT|STATE|SUBMIT_TIME|START_TIME|TIME\n"
    row = f"7|ann|p|2|{tres}|1:00:00|RUNNING|2024-03-01T10:00:00|2024-03-01T10:05:00|30:00\n"
    (tmp_path / "now.txt").write_text(header + row)
    (entry,) = read_snapshot(tmp_path / "now.txt", ZoneInfo("UTC"))
    assert (entry.nodes, entry.gpus) == (2, gpus)
    alone = with_snapshot(None, (entry,), taken_at_s((entry,)), "now")
    assert (alone.unit, alone.gpus.tolist()) == (("GPUs", [gpus]) if gpus else ("nodes", [2]))
    if not gpus:
        with pytest.raises(TraceError, match="has no GPUs of jobs"):
            with_snapshot(replace(alone, unit="GPUs"), (entry,), taken_at_s((entry,)), "now")


def test_the_parts_of_a_wait_on_named_nodes_sum_to_it(drawn_site: tuple[Site, dict[str, Path]]) -> None:
    site, files = drawn_site
    log = read_history(files["sacct.txt"], zone=site.zone)
    system, _ = read_machine([files[name] for name in FILES], site.zone, log)
    made = replay_log(log, system=system, identify=False)
    size = {node.name: node.gpus for node in site.world.nodes}
    where = {one.name: set(one.nodes) for one in site.world.partitions}
    seen: set[str] = set()
    starts = dict(zip(made.cases[0].rows.tolist(), made.starts[0].tolist(), strict=True))
    asked = [row for row, start_s in starts.items() if start_s - log.submit_s[row] > 600]
    for row in asked[:: max(len(asked) // 6, 1)]:
        if log.submit_s[row] < made.calibrated_s:
            continue
        story = explain_job(made, str(log.job_id[row]))
        assert story.start_s == pytest.approx(starts[row])
        assert sum(story.by_cause_s.values()) == pytest.approx(story.start_s - story.submit_s)
        total = sum(size[name] for name in where[log.partition.texts[row]])
        for one in story.waits:
            assert one.free_gpu_s >= -1e-6
            whole_gpu_s = one.in_use_gpu_s + one.free_gpu_s
            assert whole_gpu_s <= total * one.seconds + 1e-6, "its GPU type is on some of them"
        seen |= story.by_cause_s.keys()
    assert seen & {"nodes_in_use", "limit"}
