"""Drawn sites: their files say what happened there, and what the product answers is no worse than it was."""

from __future__ import annotations

import csv
import functools
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import forerun
from forerun.core.trace.reader import read_trace
from forerun.core.trace.repair import RepairLog

from ...conftest import cases
from .compare import Row, ask, best, changes, compared, effect_s, scenario
from .export import write
from .read_back import read_back
from .scheduler import ROOT, Attempt, Job, Node, Partition, Priorities, World, run
from .seen import seen
from .sites import DAY_S, Limits, Site, draw

SMALL = (150, 8)


@functools.cache
def small(seed: int, *, hides: bool = False) -> tuple[Site, list[Attempt]]:
    """A site of a week, and its truth."""
    site = draw(seed, *SMALL, hides=hides)
    return site, site.attempts()


# -- the files -----------------------------------------------------------------------------------------------------------


def test_a_seed_is_one_site_and_others_are_others(tmp_path: Path) -> None:
    texts = []
    for at, seed in enumerate((1, 1, 2)):
        site = draw(seed, *SMALL)
        files = write(site, small(seed)[1], tmp_path / str(at))
        texts.append({name: path.read_text(encoding="utf-8") for name, path in files.items()})
    assert texts[0] == texts[1]
    assert all(texts[0][name] != texts[2][name] for name in ("sacct.txt", "slurm.conf", "assoc.txt"))


@pytest.mark.parametrize("seed", range(cases(3)))
def test_the_log_says_what_happened(seed: int, tmp_path: Path) -> None:
    """By the text alone: every run that has ended is there with its instants, nodes and GPUs; and no node has too many."""
    site, truth = small(seed, hides=seed % 2 > 0)
    path = write(site, truth, tmp_path)["sacct.txt"]
    head, *rows = list(csv.reader(path.open(encoding="utf-8"), delimiter="|", quoting=csv.QUOTE_NONE))
    found: dict[tuple[str, str], dict[str, str]] = {}
    for cells in rows:
        row = dict(zip(head, cells[: len(head)], strict=True))
        if "." not in row["JobID"] and "[" not in row["JobID"] and row["State"] not in ("RUNNING", "PENDING"):
            found[row["JobID"], row["Start"]] = row
    ended = [
        one
        for one in truth
        if one.start_s is not None and one.end_s is not None and site.from_s <= one.end_s <= site.as_of_s
    ]
    assert ended
    zone = ZoneInfo(site.zone)

    def local(at_s: int | None) -> str:
        assert at_s is not None
        return datetime.fromtimestamp(site.origin_s + at_s, zone).strftime("%Y-%m-%dT%H:%M:%S")

    for one in ended:
        row = found[one.job.id, local(one.start_s)]
        assert (row["Submit"], row["End"], row["Eligible"]) == (
            local(one.submit_s),
            local(one.end_s),
            local(one.eligible_s),
        )
        assert f"gres/gpu={sum(one.place.values())}," in row["AllocTRES"]
        assert f"gres/gpu={one.job.gpus}," in row["ReqTRES"]
        assert (row["Partition"], row["QOS"], row["Account"]) == (one.partition, one.job.qos, one.job.account)
        assert row["State"].split()[0] in (
            ("NODE_FAIL", "TIMEOUT")
            if one.state != "COMPLETED"
            else ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY")
        )
    states = {dict(zip(head, cells[: len(head)], strict=True))["State"].split()[0] for cells in rows}
    assert states >= {"COMPLETED", "FAILED", "RUNNING"}


@pytest.mark.parametrize("seed", range(cases(3)))
def test_the_log_reads_back_as_what_happened(seed: int, tmp_path: Path) -> None:
    """With the zone of its clock, and all its dirt: the waits of scored jobs, to the second, but for repeated hours."""
    site, truth = small(seed, hides=seed % 2 > 0)
    path = write(site, truth, tmp_path)["sacct.txt"]
    repairs = RepairLog()
    trace = read_trace(path, "sacct", options={"timezone": site.zone}, repairs=repairs)
    columns = {
        name: trace[name] for name in ("job_id", "submit_s", "start_s", "end_s", "gpus", "requested_s")
    }
    read = {
        str(name): {key: float(values[at]) for key, values in columns.items() if key != "job_id"}
        for at, name in enumerate(columns["job_id"])
    }
    scored = site.scored(truth)
    assert set(scored) <= set(read)
    if any("wall-clock" in repair.rule for repair in repairs.repairs):
        return
    for name, one in scored.items():
        row = read[name]
        assert one.start_s is not None and one.end_s is not None
        assert row["start_s"] - row["submit_s"] == one.wait_s
        assert row["end_s"] - row["start_s"] == one.end_s - one.start_s
        assert (row["gpus"], row["requested_s"]) == (sum(one.place.values()), one.job.request_s)


@pytest.mark.parametrize("seed", range(cases(3)))
def test_the_files_are_enough_where_they_hide_nothing(seed: int) -> None:
    """The reference on what the files show starts every job when it started: the acceptance asks for nothing unseen."""
    site, truth = small(seed)
    row = compared(site, truth, best(site, truth))
    assert (row.answer_s, row.same_cycle) == (row.truth_s, 1.0)


@pytest.mark.parametrize("seed", range(cases(3)))
def test_the_readers_lose_nothing_that_the_files_show(seed: int, tmp_path: Path) -> None:
    """The reference on the world that the product reads starts every job as on what the files show."""
    site, truth = small(seed)
    write(site, truth, tmp_path)
    waits = []
    for world in (seen(site, truth), read_back(scenario(site, tmp_path))):
        first: dict[str, int] = {}
        for one in run(world):
            if one.start_s is not None:
                first.setdefault(one.job.id, one.queue_wait_s)
        waits.append(first)
    scored = site.scored(truth)
    assert {name: waits[1].get(name) for name in scored} == {name: waits[0].get(name) for name in scored}


# -- one pool, where the product's world is the site's -------------------------------------------------------------------


def one_pool(seed: int, *, fairshare: int) -> Site:
    """Two nodes of a site with two partitions over both, all jobs on one node each: begins, holds, maintenance, limits."""
    site, _ = small(seed)
    nodes = site.world.nodes[:2]
    names = tuple(node.name for node in nodes)
    parts = (
        Partition("gpu", names, 1, 10, 3 * 86_400, default=True),
        Partition("urgent", names, 2, 20, 3 * 86_400),
    )
    jobs = [
        replace(
            job, partitions=("urgent" if job.id.endswith("3") else "gpu",), gpu_type="", exclusive=False, after=(),
            cancel_s=None, array_limit=0, request_s=min(job.request_s, 3 * 86_400), nodes=1,
            gpus=min(job.gpus, nodes[0].gpus),
        )
        for job in site.world.jobs[::4]
    ]  # fmt: skip
    accounts = {name: one for name, one in site.world.priorities.accounts.items() if name != ROOT}
    priorities = replace(site.world.priorities, fairshare=fairshare, accounts=accounts)
    limits = tuple(limit for limit in site.world.limits if "p_short" not in limit.name)
    away = tuple(replace(one, nodes=names, known_s=0) for one in site.world.maintenance)
    world = World(nodes, parts, tuple(jobs), limits, away, priorities=priorities)
    return replace(site, from_s=0, as_of_s=1 << 40, world=world)


def answered(site: Site, folder: Path) -> tuple[list[Attempt], Row]:
    """The truth of a site, and the product's answer beside it."""
    truth = site.attempts()
    write(site, truth, folder, dirt=False)
    return truth, compared(site, truth, ask(site, folder))


@pytest.mark.parametrize("seed", range(cases(3)))
def test_on_one_pool_the_product_is_the_reference(seed: int, tmp_path: Path) -> None:
    """Two programs that share no line: every start is the same second."""
    _, row = answered(one_pool(seed, fairshare=0), tmp_path)
    assert row.scored >= 30 and row.truth_s > 60
    assert (row.answer_s, row.same_cycle) == (row.truth_s, 1.0)


def test_an_idle_machine_is_nobodys_use(tmp_path: Path) -> None:
    """u uses the machine for 100 s, v for 200 s; half an hour later, u has used less and goes first."""
    hour_s = 3600
    jobs = tuple(
        Job(str(name), user, "lab", "normal", ("gpu",), 4, submit_s, run_s, hour_s, cpus=4)
        for name, user, submit_s, run_s in (
            (1, "v", 0, 200), (2, "u", 1000, 100), (3, "v", 5000, 300), (4, "v", 5001, 300), (5, "u", 5002, 300),
        )
    )  # fmt: skip
    site, _ = small(0)
    accounts = {
        "lab": replace(next(iter(site.world.priorities.accounts.values())), parent="", users={"u": 1, "v": 1})
    }
    world = World(
        (Node("n-01", 4, "a100", 64),), (Partition("gpu", ("n-01",)),), jobs,
        priorities=Priorities(fairshare=1000, half_life_s=0, of_qos={"normal": 1}, accounts=accounts),
    )  # fmt: skip
    site = replace(
        site, world=world, limits=Limits({"normal": {}}, {}), from_s=0, as_of_s=1 << 40, zone="UTC"
    )
    truth, row = answered(site, tmp_path)
    assert {one.job.id: one.wait_s for one in truth} == {"1": 0, "2": 0, "3": 0, "4": 599, "5": 298}
    assert row.same_cycle == 1.0


# -- whole sites ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Floor:
    """The answer on a site today: how far the mean is off, and how many partitions have the right top cause."""

    off: float
    causes: int


#: a site with failed nodes, whose run decides through a view, and with jobs on nodes of two types, which a view gives none
FLOORS = {2: Floor(0.02, 1)}
#: others
EXACT = (0, 3, 4, 5)


@functools.cache
def whole(seed: int) -> Row:
    """The product's answer on a small site with all its files."""
    site, truth = small(seed)
    with tempfile.TemporaryDirectory() as made:
        write(site, truth, Path(made))
        return compared(site, truth, ask(site, Path(made)))


@pytest.mark.parametrize("seed", FLOORS)
def test_answers_on_drawn_sites_get_no_worse(seed: int) -> None:
    row, floor = whole(seed), FLOORS[seed]
    assert abs(row.off["all"]) <= floor.off
    assert sum(true == said for true, said in row.tops.values()) >= floor.causes


@pytest.mark.parametrize("seed", EXACT)
def test_answers_on_drawn_sites_are_the_truth(seed: int) -> None:
    """Mean wait within 3 %, every partition within 8 %, the top cause of each, with every file."""
    row = whole(seed)
    assert not row.without
    assert abs(row.off["all"]) <= 0.03
    assert all(abs(off) <= 0.08 for off in row.off.values())
    assert all(true == said for true, said in row.tops.values())


# -- what if -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 5][: cases(2)])
def test_a_log_that_begins_in_the_middle_goes_on_as_the_whole(seed: int, tmp_path: Path) -> None:
    """Of a log of jobs that ended from the third day on: who waits then, and who comes later, starts when they did.

    Use before that day is not in the files, so no weight is on it.
    """
    site = draw(seed, 300, 8)
    world = replace(site.world, priorities=replace(site.world.priorities, fairshare=0))
    site = replace(site, world=world, from_s=3 * DAY_S)
    truth = site.attempts()
    write(site, truth, tmp_path)
    row = compared(site, truth, ask(site, tmp_path))
    assert row.scored > 100
    assert row.same_cycle > 0.98
    assert max(map(abs, row.off.values())) < 0.001


def test_changes_of_a_world_have_the_effect_that_they_must() -> None:
    """A node more and a limit less let the first job that waits for them start at once."""
    site, truth = small(0)
    made = changes(site, truth)
    assert set(made) >= {"no promises", "age only", "a node more"}
    for name, (changed, rules, _) in made.items():
        after = run(changed.world, rules)
        assert {one.job.id for one in after} == {one.job.id for one in truth}
        assert name != "a node more" or effect_s(site, truth, after) < 0
    assert effect_s(site, truth, truth) == 0


def test_a_job_that_names_no_type_may_have_nodes_of_several(tmp_path: Path) -> None:
    """As slurmctld gives them, also where a node goes DOWN."""
    site = draw(13, 150, 8)
    write(site, site.attempts(), tmp_path)
    result = forerun.simulate(forerun.load(scenario(site, tmp_path, "slurm-backfill")))
    kind = {at: node.gpu_type for at, node in enumerate(site.world.nodes)}
    given = [str(nodes).split() for nodes in result.tables["allocations"]["nodes"].tolist()]
    assert max(len({kind[int(one.partition(":")[0])] for one in nodes}) for nodes in given) == 2
