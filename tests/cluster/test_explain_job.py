"""Why one job waited: what is said of it sums to what happened, and every what-if is a run of its own."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.explain.job import CAUSES, _Telling, story_of
from forerun.cluster.explain.job_story import Others, Story, TriedChange
from forerun.cluster.inputs.prepare import prepare
from forerun.cluster.policy import Allocator, Schedule, schedulers
from forerun.cluster.summary.causes import Decided
from forerun.cluster.summary.waits import stretches_of, waits_of
from forerun.cluster.testing import drawn_world
from forerun.core.cli.main import run as command_line
from forerun.core.domain import domain_names, get_domain
from forerun.core.errors import ForerunError, ScenarioError
from forerun.core.result.run import Result
from forerun.core.scenario.spec import override

from ..conftest import cases
from .conftest import rules_of

CLUSTER = get_domain("cluster")
NAMES = sorted(schedulers().names())

#: eight jobs that meet on four GPUs of two nodes: name, submission, iterations, GPUs, deadline, user
LOG = (
    ("a", 0, 600, 1, 1500, "ann"),
    ("b", 10, 300, 2, 700, "bob"),
    ("c", 20, 900, 4, 9000, "ann"),
    ("d", 30, 100, 1, 300, "bob"),
    ("e", 40, 200, 4, "", "ann"),
    ("f", 50, 500, 1, 3000, "ann"),
    ("g", 50, 400, 2, 2500, "bob"),
    ("h", 4000, 50, 2, 4400, "bob"),
)
TABLE = "global_batch_size,1,2,4\n64,1.0,1.8,3.0\n"


def world(folder: Path, log: Sequence[Sequence[Any]] = LOG, **more: Any) -> Path:
    """A scenario file with its log and its table; durations are what iterations take on the GPUs asked for."""
    rates = {1: 1.0, 2: 1.8, 4: 3.0}
    with (folder / "jobs.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(
            [
                "job_id",
                "submission_time",
                "duration",
                "num_gpu",
                "deadline",
                "user",
                "model",
                "batch_size",
                "iterations",
                "requested_s",
            ]
        )
        for name, submit_s, steps, gpus, due_s, user in log:
            seconds = round(steps / rates[gpus])
            rows.writerow([name, submit_s, seconds, gpus, due_s, user, "net", 64, steps, 2 * seconds])
    (folder / "net.csv").write_text(TABLE)
    scenario = {
        "domain": "cluster",
        "trace": {"file": "jobs.csv"},
        "machines": {"nodes": [{"name": "n", "count": 2, "gpus": 2}]},
        "profile": [{"tables": ["net.csv"]}],
        "policy": "fifo",
        "slot_s": 10,
        **more,
    }
    path = folder / "scenario.json"
    path.write_text(json.dumps(scenario))
    return path


def told(result: Result, job: str) -> Story:
    return story_of(CLUSTER, result.scenario, result, job)


def in_use(result: Result, from_s: float, to_s: float) -> float:
    """GPU-seconds that the table of events says were in use."""
    events, gpus = result.tables["events"], int(result.summary["gpus"])
    times = np.concatenate(([-math.inf], events["time_s"], [math.inf]))
    used = np.concatenate(([0], gpus - events["free"]))
    seconds = np.minimum(times[1:], to_s) - np.maximum(times[:-1], from_s)
    return float((np.maximum(seconds, 0.0) * used).sum())


def assert_adds_up(result: Result) -> None:
    """Every law of a story, for every job of a run."""
    jobs, allocations = result.tables["jobs"], result.tables["allocations"]
    gpus = int(result.summary["gpus"])
    for row, name in enumerate(map(str, jobs["job"].tolist())):
        story = told(result, name)
        story.ledger.check()
        submit_s, end_s = float(jobs["submit_s"][row]), float(jobs["end_s"][row])
        if math.isfinite(end_s):
            assert story.ledger.whole == end_s - submit_s
        waited = {cause: math.fsum(w.seconds for w in story.waits if w.cause == cause) for cause in CAUSES}
        for cause, seconds in waited.items():
            assert seconds == pytest.approx(float(jobs[f"wait_{cause}_s"][row]), abs=1e-6), (name, cause)
        # The stretches of waiting and those with GPUs cover its time, once.
        mine = np.flatnonzero(allocations["job"] == name)
        until_s = end_s if math.isfinite(end_s) else submit_s + story.ledger.whole
        spans = [(w.from_s, w.to_s) for w in story.waits] + [
            (float(allocations["from_s"][at]), min(float(allocations["to_s"][at]), until_s))
            for at in mine.tolist()
        ]
        spans = sorted(span for span in spans if span[0] < span[1])
        assert [a for a, _ in spans] == [submit_s, *(b for _, b in spans[:-1])][: len(spans)], name
        assert not spans or spans[-1][1] == pytest.approx(until_s)
        for wait in story.waits:
            assert wait.because.startswith(CAUSES[wait.cause]) and wait.seconds > 0
            assert math.fsum(one.gpu_s for one in wait.ahead) == pytest.approx(wait.in_use_gpu_s)
            assert wait.in_use_gpu_s == pytest.approx(in_use(result, wait.from_s, wait.to_s), abs=1e-6)
            assert wait.in_use_gpu_s + wait.free_gpu_s == pytest.approx(gpus * wait.seconds)
            assert [one.gpu_s for one in wait.ahead] == sorted(
                (one.gpu_s for one in wait.ahead), reverse=True
            )
            assert name not in {one.job for one in wait.ahead} | set(wait.queued_before)
        times = [moment.at_s for moment in story.moments]
        assert times == sorted(times) and story.moments[0].what.startswith("submitted")
        assert (story.fate.start_s is None) == (not len(mine))


@pytest.mark.parametrize(
    ("policy", "mode"),
    [
        (name, mode)
        for name in NAMES
        for mode in ("compat", "corrected")
        if mode == "corrected" or issubclass(schedulers().get(name), Schedule)
    ],
)
def test_what_is_said_of_every_job_adds_up(policy: str, mode: str, tmp_path: Path) -> None:
    path = world(tmp_path, policy=policy, mode=mode, slot_s=240 if policy == "chronus" else 10)
    assert_adds_up(forerun.simulate(forerun.load(path)))


TERMS = (
    {"placement": "best-fit"},
    {"placement": "consolidated", "costs": {"restart_s": 20.0, "grow_s": 5.0}},
    {"quota": {"gpus": {"ann": 2}, "default": 3}},
    {"quota": {"gpus": {"ann": 1}, "default": 4, "borrow": True}},
)


@pytest.mark.parametrize("terms", TERMS, ids=str)
@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "edf-rigid", "gavel-maxmin", "conservative"])
def test_it_adds_up_under_places_costs_and_quotas(policy: str, terms: dict[str, Any], tmp_path: Path) -> None:
    log = LOG
    if "quota" in terms and not terms["quota"].get("borrow"):
        log = tuple(row for row in LOG if row[3] <= 2)  # a job beyond its quota never runs
    assert_adds_up(forerun.simulate(forerun.load(world(tmp_path, log, policy=policy, **terms))))


@pytest.mark.parametrize("policy", NAMES)
def test_it_adds_up_in_random_settings(policy: str) -> None:
    """Nodes of several sizes and types, every placement, quotas, restart costs; for every job."""
    kind = schedulers().get(policy)
    for number in range(cases(5)):
        scene = drawn_world(number, published=issubclass(kind, Schedule))
        setting, record = scene.setting, Record(scene.setting)
        run_rules(rules_of(kind(), setting, record, scene.terms, number))
        decided = Decided.by(kind(), scene.terms, setting)
        waits, (times, _, _, free, _) = waits_of(record, stretches_of(record), decided), record.events()
        used = np.concatenate(([0], setting.cluster.gpus - free))
        edges = np.concatenate(([-math.inf], times, [math.inf]))
        for row in range(len(setting.jobs)):
            story = _Telling(record, row, decided).story(Others(0, 0, None, None))
            story.ledger.check()
            for cause, columns in waits.by_cause().items():
                if cause != "reconfiguration":
                    total = math.fsum(wait.seconds for wait in story.waits if wait.cause == cause)
                    assert total == pytest.approx(float(columns[row]), abs=1e-6), (number, row, cause)
            for wait in story.waits:
                seconds = np.minimum(edges[1:], wait.to_s) - np.maximum(edges[:-1], wait.from_s)
                assert wait.in_use_gpu_s == pytest.approx(
                    float((np.maximum(seconds, 0.0) * used).sum()), abs=1e-6
                )
                assert math.fsum(one.gpu_s for one in wait.ahead) == pytest.approx(wait.in_use_gpu_s)


def test_free_gpus_on_two_nodes_are_fragmentation(tmp_path: Path) -> None:
    """Two jobs of one GPU end on two nodes at about the same time: t asks for two GPUs of one node."""
    ones = [("p", 0, 2000, 1), ("q", 1, 100, 1), ("r", 2, 2000, 1), ("u", 3, 100, 1), ("t", 4, 180, 2)]
    log = [(*job, 9000, "ann") for job in ones]
    result = forerun.simulate(forerun.load(world(tmp_path, log, placement="best-fit")))
    assert_adds_up(result)
    waits = told(result, "t").waits
    assert [(wait.from_s, wait.to_s, wait.cause) for wait in waits] == [
        (4.0, 103.0, "nodes_in_use"), (103.0, 2000.0, "fragmentation"),
    ]  # fmt: skip
    assert [one.job for one in waits[1].ahead] == ["p", "r"] and waits[1].free_gpu_s == 2 * waits[1].seconds


def test_every_other_cause_is_seen(tmp_path: Path) -> None:
    """Of the worlds above, so that no law is about causes that never come."""
    seen: set[str] = set()
    for number, terms in enumerate(TERMS):
        for policy in ("fifo", "srtf", "gandiva", "chronus"):
            folder = tmp_path / f"{number}-{policy}"
            folder.mkdir()
            slot_s = 240 if policy == "chronus" else 10
            result = forerun.simulate(forerun.load(world(folder, LOG, policy=policy, slot_s=slot_s, **terms)))
            for name in map(str, result.tables["jobs"]["job"].tolist()):
                seen |= {wait.cause for wait in told(result, name).waits}
    assert seen >= {"admission", "limit", "nodes_in_use", "order"}


@pytest.mark.parametrize("policy", NAMES)
def test_the_first_in_an_empty_cluster_has_nobody_to_blame(policy: str, tmp_path: Path) -> None:
    path = world(tmp_path, LOG[:1], policy=policy, slot_s=240 if policy == "chronus" else 10)
    result = forerun.simulate(forerun.load(path))
    story = told(result, "a")
    assert all(not wait.ahead and not wait.queued_before for wait in story.waits)
    if issubclass(schedulers().get(policy), Allocator) and policy not in (
        "las",
        "slurm-backfill",
        "slurm-builtin",
    ):  # which take some time
        assert story.waits == () and "never waited" in story.why and story.figure is None


def test_who_went_first_is_named(tmp_path: Path) -> None:
    """Under fifo two GPUs are free from 310 s on, and f and g wait behind c, which needs four."""
    result = forerun.simulate(forerun.load(world(tmp_path)))
    story = told(result, "f")
    (choice,) = [wait for wait in story.waits if wait.cause == "order"][:1]
    assert choice.queued_before[0] == "c" and choice.free_gpu_s > 0
    assert {one.job for one in story.waits[0].ahead} >= {"a", "b"}
    assert {one.job: one.since for wait in story.waits for one in wait.ahead}["a"] == "ran when it came"


@pytest.mark.parametrize("policy", ["fifo", "las", "gandiva"])
def test_the_figure_is_all_gpus_of_the_time_in_which_it_waited(policy: str, tmp_path: Path) -> None:
    """At every instant the areas are the whole cluster; the area of a job is its GPU time."""
    result = forerun.simulate(forerun.load(world(tmp_path, policy=policy)))
    story = told(result, "f")
    figure = story.figure
    assert figure is not None
    time_s, gpus, whose = (np.asarray(figure.data[name]) for name in ("time_s", "gpus", "whose"))
    for at_s in np.unique(time_s):
        assert gpus[time_s == at_s].sum() == pytest.approx(4)
    assert (time_s.min(), time_s.max()) == (story.waits[0].from_s, story.waits[-1].to_s)
    allocations = result.tables["allocations"]
    for name in figure.order:
        mine = whose == name
        area = float((gpus[mine][:-1] * np.diff(time_s[mine])).sum())
        if name.startswith("job ") and not name.endswith("itself"):
            rows = allocations["job"] == name.removeprefix("job ")
            seconds = np.minimum(allocations["to_s"], time_s.max()) - np.maximum(
                allocations["from_s"], time_s.min()
            )
            assert area == pytest.approx(float((np.maximum(seconds, 0) * allocations["gpus"])[rows].sum())), (
                name
            )


# ---------------------------------------------------------------------------------------------------------- what-ifs


def fate_in(result: Result, job: str) -> tuple[float | None, float | None]:
    jobs = result.tables["jobs"]
    row = [str(name) for name in jobs["job"].tolist()].index(job)
    both = (float(jobs["first_start_s"][row]), float(jobs["end_s"][row]))
    return tuple(None if math.isnan(at) else at for at in both)  # type: ignore[return-value]


def others_in(result: Result, without: set[str]) -> dict[str, tuple[bool, float]]:
    jobs = result.tables["jobs"]
    columns = (jobs[name].tolist() for name in ("job", "met", "deadline_s", "end_s", "submit_s"))
    return {
        str(name): (bool(met) and math.isfinite(due_s), end_s - submit_s)
        for name, met, due_s, end_s, submit_s in zip(*columns, strict=True)
        if str(name) not in without
    }


def by_hand(one: TriedChange, log: Sequence[Sequence[Any]], job: str) -> list[list[Any]] | None:
    """The log as somebody would edit it; None for a change of something else."""
    edits = dict(one.changes).get("trace.edit")
    if edits is None:
        return None
    rows = [list(row) for row in log if row[0] not in edits.get("without", ())]
    for row in rows:
        if row[0] == job:
            row[1] = edits.get("submit_s", {}).get(job, row[1])
            row[3] = edits.get("gpus", {}).get(job, row[3])
            row[4] = edits.get("deadline_s", {}).get(job, row[4])
    return rows


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las", "easy", "ef-accessctrl", "gandiva"])
def test_each_what_if_is_a_plain_simulation(policy: str, tmp_path: Path) -> None:
    """Of the scenario with the change; and, for changes of jobs, of the log edited by hand."""
    path = world(tmp_path, policy=policy)
    result = forerun.simulate(forerun.load(path))
    explained = forerun.explain_job(result, "g")
    assert explained.story == told(result, "g")
    simulated = [one for one in explained.tried if one.fate is not None]
    assert len(simulated) >= 6
    for number, one in enumerate(simulated):
        overrides = [
            f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in one.changes
        ]
        plain = forerun.simulate(forerun.load(path, overrides))
        assert one.fate is not None and one.others is not None
        assert fate_in(plain, "g") == (one.fate.start_s, one.fate.end_s), one.what
        then, before = others_in(plain, {"g"}), others_in(result, {"g"})
        assert one.others.met == sum(met for met, _ in then.values())
        assert one.others.met_change == sum(then[name][0] - before[name][0] for name in then)
        ended = [name for name in then if math.isfinite(then[name][1] - before[name][1])]
        assert one.others.mean_s == pytest.approx(np.mean([then[name][1] for name in ended]))
        assert one.others.mean_change_s == pytest.approx(
            np.mean([then[name][1] - before[name][1] for name in ended])
        )
        if (edited := by_hand(one, LOG, "g")) is not None:
            folder = tmp_path / str(number)
            folder.mkdir()
            again = forerun.simulate(forerun.load(world(folder, edited, policy=policy)))
            assert repr(others_in(again, set())) == repr(others_in(plain, set())), (
                one.what
            )  # nan is never equal


def tried_as_simulated(path: Path, job: str, what: str, *more: str) -> TriedChange:
    """One change of an explanation, which is what a plain simulation with it gives."""
    explained = forerun.explain_job(forerun.simulate(forerun.load(path, more)), job)
    (one,) = [one for one in explained.tried if one.what == what]
    assert one.fate is not None, one.why_not
    overrides = [override(key, value) for key, value in one.changes]
    plain = forerun.simulate(forerun.load(path, [*more, *overrides]))
    assert fate_in(plain, job) == (one.fate.start_s, one.fate.end_s)
    return one


def test_terms_that_a_job_waited_for_are_taken_away(tmp_path: Path) -> None:
    """Quotas, places and maintenance, each alone; the job is then sooner."""
    folders = [tmp_path / name for name in ("quota", "places", "maintenance")]
    for folder in folders:
        folder.mkdir()
    log = tuple(row for row in LOG if row[3] <= 2)
    quota = world(folders[0], log, quota={"gpus": {"ann": 1}, "default": 4})
    ones = [("p", 0, 2000, 1), ("q", 1, 100, 1), ("r", 2, 2000, 1), ("u", 3, 100, 1), ("t", 4, 180, 2)]
    places = world(folders[1], [(*job, 9000, "ann") for job in ones], placement="best-fit")
    closed = world(folders[2], policy="easy", maintenance=[{"from_s": 100, "to_s": 2000}])
    for path, job, what in (
        (quota, "f", "without quotas"),
        (places, "t", "on any GPUs, however spread"),
        (closed, "g", "without maintenance"),
    ):
        one = tried_as_simulated(path, job, what)
        start_s = told(forerun.simulate(forerun.load(path)), job).fate.start_s
        assert one.fate is not None and one.fate.start_s is not None and start_s is not None
        assert one.fate.start_s < start_s, what
    kinds = {one.what for one in forerun.explain_job(forerun.simulate(forerun.load(closed)), "g").tried}
    assert {"policy conservative", "policy first-fit"} <= kinds and "policy srtf" not in kinds


def test_machines_of_a_file_grow_as_well(tmp_path: Path) -> None:
    """One node of two GPUs more is the same, however the two that are there are written."""
    (tmp_path / "small.csv").write_text("num_switch,num_node_p_switch,num_gpu_p_node\n1,2,2\n")
    (tmp_path / "split.csv").write_text("num_switch,num_node_p_switch,num_gpu_p_node\n2,1,2\n")
    written = tried_as_simulated(world(tmp_path), "d", "1 node more: it meets its deadline")
    filed = tried_as_simulated(
        world(tmp_path, machines={"file": "small.csv"}), "d", "1 node more: it meets its deadline"
    )
    assert (filed.fate, filed.others) == (written.fate, written.others)
    split = forerun.simulate(forerun.load(world(tmp_path, machines={"file": "split.csv"})))
    (none,) = [one for one in forerun.explain_job(split, "d").tried if one.what == "more nodes"]
    assert "several switches" in none.why_not


def test_a_change_comes_besides_those_of_the_scenario(tmp_path: Path) -> None:
    """A run of an edited log is explained in that world."""
    edit = override("trace.edit", {"without": ["h"], "deadline_s": {"g": 600}})
    path = world(tmp_path)
    one = tried_as_simulated(path, "g", "without job a", edit)
    assert dict(one.changes)["trace.edit"] == {"without": ["h", "a"], "deadline_s": {"g": 600}}
    later = tried_as_simulated(path, "g", "submitted 3,600 s later", edit)
    assert dict(later.changes)["trace.edit"]["submit_s"] == {"g": 3650}


def test_workers_find_the_same(tmp_path: Path) -> None:
    result = forerun.simulate(forerun.load(world(tmp_path)))
    seen: list[tuple[int, int]] = []
    one = forerun.explain_job(result, "g", progress=lambda now: seen.append((now.done, now.most)))
    two = forerun.explain_job(forerun.load_result(result.save(tmp_path / "run")), "g", workers=2)
    assert one.data() == two.data()
    assert [done for done, _ in seen] == list(range(len(seen)))
    assert seen[-1][0] == seen[-1][1] and all(done <= most for done, most in seen)


def test_the_fewest_nodes_are_the_fewest(tmp_path: Path) -> None:
    """With one node less than is said the job neither starts at once nor is in time."""
    log = [(f"j{at}", at, 2000, 2, 1300 + 1200 * (at < 9), "ann") for at in range(10)]
    path = world(tmp_path, log)
    result = forerun.simulate(forerun.load(path))
    explained = forerun.explain_job(result, "j9")
    found = {one.what.partition(": ")[2]: dict(one.changes) for one in explained.tried if "node" in one.what}
    assert set(found) == {"it meets its deadline", "it starts at once"}
    for goal, changes in found.items():
        count = changes["machines.nodes[0].count"]
        assert count > 3, "so many that both doubling and halving are needed"
        for nodes, holds in ((count, True), (count - 1, False)):
            again = forerun.simulate(forerun.load(path, [f"machines.nodes[0].count={nodes}"]))
            start_s, end_s = fate_in(again, "j9")
            assert start_s is not None and end_s is not None
            assert (start_s == 9 if goal == "it starts at once" else end_s <= 1300) == holds
    best = explained.best
    assert best is not None and best.fate is not None and best.fate.met


@pytest.mark.parametrize("policy", ["ef-accessctrl", "edf-accessctrl"])
def test_a_refused_job_is_explained_by_what_would_have_admitted_it(policy: str, tmp_path: Path) -> None:
    log = [(f"j{at}", at, 3000, 2, 4000 + 10 * at, "ann") for at in range(12)]
    path = world(tmp_path, log, policy=policy)
    result = forerun.simulate(forerun.load(path))
    jobs = result.tables["jobs"]
    refused = [str(name) for name, why in zip(jobs["job"], jobs["refused_because"], strict=True) if why]
    assert refused
    explained = forerun.explain_job(result, refused[-1])
    story = explained.story
    assert "was refused" in story.why and story.fate.refused in story.why
    assert any(moment.what.startswith("refused: ") for moment in story.moments)
    (later,) = [one for one in explained.tried if one.what.endswith(": admitted")]
    due_s = dict(later.changes)["trace.edit"]["deadline_s"][refused[-1]]
    assert (
        later.fate is not None
        and not later.fate.refused
        and later.fate.met
        and due_s == later.fate.deadline_s
    )
    sooner = json.dumps({"deadline_s": {refused[-1]: due_s - 10}})
    again = forerun.simulate(forerun.load(path, [f"trace.edit={sooner}"])).tables["jobs"]
    assert again["refused_because"][jobs["job"].tolist().index(refused[-1])]
    # In a small cluster the schedule itself seeks the least later deadline.
    said = re.search(r"with a deadline (\d+) s later", story.fate.refused)
    if said:
        assert due_s - story.fate.deadline_s == int(said[1])  # type: ignore[operator]
    assert any("nodes" in one.what or "node" in one.what for one in explained.tried)


def test_a_job_without_throughput_is_not_guessed_at(tmp_path: Path) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text("job_id,submission_time,duration,num_gpu\na,0,100,2\nb,5,100,2\n")
    path = tmp_path / "scenario.json"
    machines = {"nodes": [{"count": 1, "gpus": 2}]}
    path.write_text(
        json.dumps(
            {"domain": "cluster", "trace": {"file": "jobs.csv"}, "machines": machines, "policy": "fifo"}
        )
    )
    explained = forerun.explain_job(forerun.simulate(forerun.load(path)), "b")
    (other,) = [one for one in explained.tried if one.what == "other GPUs asked for"]
    assert other.fate is None and "has no throughput" in other.why_not
    assert not any("edf" in one.what for one in explained.tried), "no job has a deadline"
    assert (
        explained.best is not None and explained.best.fate is not None and explained.best.fate.end_s == 105.0
    )


# ------------------------------------------------------------------------------------------------------- edits of a log


def test_an_edit_leaves_what_was_drawn_for_others(tmp_path: Path) -> None:
    """Each job keeps its own slowness, deadline and requested time, whoever is left out or moves."""
    path = world(
        tmp_path,
        [(*row[:4], "", row[5]) for row in LOG],
        policy="ef-accessctrl",
        slowdown={"most": 3.0},
        trace={"file": "jobs.csv", "slack": 1.2, "most_slack": 4.0, "overestimate": 5.0},
    )
    before = prepare(forerun.load(path)).setting
    edit = json.dumps({"without": ["b"], "submit_s": {"a": 4500}, "gpus": {"f": 2}})
    after = prepare(forerun.load(path, [f"trace.edit={edit}"])).setting
    assert [str(name) for name in after.jobs.id] == ["c", "d", "e", "f", "g", "h", "a"]
    assert before.slowness is not None and after.slowness is not None
    for row, name in enumerate(after.jobs.id):
        was = before.jobs.id.index(name)
        assert after.slowness[row] == before.slowness[was]
        assert after.jobs.deadline_s[row] == before.jobs.deadline_s[was]
        if name != "f":
            assert after.jobs.requested_s[row] == before.jobs.requested_s[was]
    f = after.jobs.id.index("f")
    assert (after.jobs.gpus[f], after.jobs.duration_s[f], after.jobs.iterations[f]) == (
        2,
        round(500 / 1.8),
        500,
    )


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"without": ["aa"]}, "$.trace.edit.without: no job 'aa'; did you mean 'a'?"),
        ({"gpus": {"a": 3}}, "has no throughput on 3 GPUs; counts with throughput: 1, 2, 4"),
        ({"gpus": {"a": 8}}, "asks for 8 GPUs; the cluster has 4"),
        ({"without": [row[0] for row in LOG]}, "leaves no job"),
        ({"submit_s": {"a": -1}}, "trace.edit"),
        ({"gpu": {"a": 1}}, "did you mean 'gpus'"),
    ],
)
def test_a_wrong_edit_is_named(edit: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = world(tmp_path)
    with pytest.raises(ForerunError) as error:
        forerun.simulate(forerun.load(path, [f"trace.edit={json.dumps(edit)}"]))
    assert said in str(error.value) and isinstance(error.value, ScenarioError)


# ------------------------------------------------------------------------------------------------------ command line


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    yield forerun.simulate(forerun.load(world(tmp_path))).save(tmp_path / "run")


def test_the_command_prints_the_story_and_what_would_change_it(kept: Path, capsys: Any) -> None:
    page = kept.parent / "page.html"
    assert command_line(["explain", str(kept), "--job", "d", "--report", str(page)]) == 0
    text = capsys.readouterr().out
    story = told(forerun.simulate(forerun.load(kept.parent / "scenario.json")), "d")
    assert f"why: {story.why}" in text
    for title in (
        "What happened to it", "Every stretch in which it waited", "Who had the GPUs", "Where its time went",
        "What would have changed it",
    ):  # fmt: skip
        assert title in text
    html = page.read_text()
    assert "GPUs while it waited" in html and "What would have changed it" in html
    (following,) = re.findall(r"next: forerun (.*)", text)
    import shlex

    assert command_line([*shlex.split(following), "-q", "-o", str(kept.parent / "changed")]) == 0
    capsys.readouterr()
    assert command_line(["explain", str(kept), "--job", "d", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    best = next(one for one in data["tried"] if one.get("met"))
    changed = forerun.load_result(kept.parent / "changed").tables["jobs"]
    assert changed["end_s"][changed["job"].tolist().index("d")] == best["end_s"]
    assert math.fsum(wait["seconds"] for wait in data["waits"]) == pytest.approx(
        sum(part for name, part in data["ledger"]["parts"].items() if name.startswith("waiting"))
    )


def test_an_unknown_job_is_one_line_with_near_names(kept: Path, capsys: Any) -> None:
    assert command_line(["explain", str(kept), "--job", "G"]) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0 and "no job named 'G'" in error and "known: a, b, c" in error


@pytest.mark.parametrize("words", [["--ties", "2"], ["--bound"]])
def test_a_job_is_explained_by_itself(words: list[str], kept: Path, capsys: Any) -> None:
    assert command_line(["explain", str(kept), "--job", "g", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert command_line(["explain", str(kept), "--report", str(kept.parent / "p.html")]) == 2
    assert "give --job ID" in capsys.readouterr().err


def test_a_run_without_the_table_or_of_another_world_is_one_line(kept: Path, capsys: Any) -> None:
    table = kept / "jobs.parquet"
    whole = table.read_bytes()
    table.unlink()
    assert command_line(["explain", str(kept), "--job", "g"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "jobs.parquet: cannot be read" in error
    other = forerun.simulate(forerun.load(kept.parent / "scenario.json", ["policy=srtf"]))
    other.tables["jobs"].write_parquet(table)
    assert command_line(["explain", str(kept), "--job", "g"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "is not the table that was saved" in error
    changed = other.save(kept.parent / "changed")
    shutil.copy(kept / "scenario.json", changed)
    assert command_line(["explain", str(changed), "--job", "g"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "is another run when it is simulated again" in error
    table.write_bytes(whole)
    assert command_line(["explain", str(kept), "--job", "g", "--json"]) == 0


@pytest.mark.parametrize("domain", [name for name in domain_names() if name != "cluster"])
def test_other_domains_say_that_they_explain_no_jobs(domain: str, tmp_path: Path, capsys: Any) -> None:
    quick = {
        "energy": ["trials=0"],
        "serving": [],
        "loading": ["dataset.samples=640", "grid.threads=[2]"],
        "spot": ["trials=10"],
    }[domain]
    result = forerun.simulate(forerun.load(forerun.demo(domain).scenario, quick))
    assert command_line(["explain", str(result.save(tmp_path / "run")), "--job", "1"]) == 2
    error = capsys.readouterr().err
    assert error == f"forerun: --job: is not available for the {domain} domain; it is for cluster\n"
