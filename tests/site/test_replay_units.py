"""What jobs hold, and the machine that a log alone shows: on sites whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.site.cases import case_of, numbered
from forerun.site.files import read_machine
from forerun.site.history import History, Names, read_history
from forerun.site.inference import infer
from forerun.site.machine import Declared
from forerun.site.replay.play import one_step, replayed
from forerun.site.shown import own_partitions

from ..conftest import cases
from .reference.export import write
from .reference.sites import Site, draw
from .test_replay import CANDIDATES, drawn, machine, made_by

FILES = ("slurm.conf", "qos.txt", "assoc.txt", "partitions.txt", "res.txt")


@pytest.fixture(scope="module")
def drawn_site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, dict[str, Path]]:
    site = draw(4, 500, 14)
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


def test_a_shared_site_is_replayed_as_it_ran(drawn_site: tuple[Site, dict[str, Path]]) -> None:
    """In GPUs on its nodes by the scheduler that its files declare; whole nodes were off by nine tenths."""
    site, files = drawn_site
    log = read_history(files["sacct.txt"], zone=site.zone)
    system, _ = read_machine([files[name] for name in FILES], site.zone, log)
    case = case_of(log, system, 0)
    assert isinstance(system, Declared)
    start_s = replayed(case, system.policy)
    scored = np.isfinite(start_s) & (case.submit_s > case.begin_s)
    real_s, ours_s = case.wait_s[scored].mean(), (start_s - case.submit_s)[scored].mean()
    assert real_s > 600
    assert abs(ours_s - real_s) < 0.5 * real_s
    step = one_step(case, system.policy, case.begin_s, log.last_s)
    assert step.f1 > 0.5


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
