"""Jobs that do not scale under schedules that do: they hold what they ask for or nothing, for their duration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import NO_DEADLINE_S, Cluster, Jobs, ThroughputTable
from forerun.cluster.inputs.jobs import on_what_they_ask_for
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.inputs.throughput import analytic, held_rigid, joined, rigid
from forerun.core.cli.main import run
from forerun.replication.elasticflow.known_bugs import SWITCHES
from forerun.replication.elasticflow.schedules.plan_ahead import (
    AdmittingEdf,
    EarliestDeadlineFirst,
    ElasticScaling,
    PublishedElasticFlow,
)

from ..cluster.conftest import Switched, play
from ..conftest import cases

ELASTIC = (PublishedElasticFlow(), ElasticScaling(), EarliestDeadlineFirst(), AdmittingEdf())
SCALING = analytic((("m", 64), ("n", 16)), "balanced", levels=(1, 2, 4, 8))


def drawn_world(rng: np.random.Generator, *, scaling: bool) -> Setting:
    """Rigid jobs of any count, among them (where `scaling`) jobs with throughput."""
    cluster = Cluster.uniform(1, int(rng.choice([1, 2, 4])), int(rng.choice([4, 8])))
    count = int(rng.integers(2, 24))
    submit = np.cumsum(rng.integers(0, int(rng.choice([100, 900, 3000])), count))
    gpus = np.minimum(rng.choice([1, 1, 2, 3, 4, 5, 8, 12, 16], count), cluster.gpus)
    duration = rng.integers(1, int(rng.choice([300, 3000, 20_000])), count)
    kind = rng.integers(-1, 2, count) if scaling else np.full(count, -1)
    effort = rng.random(count) < 0.2
    due = submit + (rng.uniform(0.3, 4.0, count) * duration).astype(np.int64)
    rate = SCALING.rate_at()[np.maximum(kind, 0), np.minimum(gpus, 8)]
    jobs = Jobs(
        np.arange(count), tuple(range(count)), submit, np.where(effort, NO_DEADLINE_S, due),
        np.where(kind < 0, 0, np.maximum(1, duration * rate)).astype(np.int64), kind,
        tuple("" if k < 0 else SCALING.kinds[k][0] for k in kind), np.where(kind < 0, 0, 16), gpus, duration,
        effort, ("u",) * count, due,
    )  # fmt: skip
    profile: ThroughputTable | None = SCALING if scaling else None
    if (kind < 0).any():
        jobs, profile, _ = on_what_they_ask_for(jobs, profile, cluster)
    corrected = frozenset(SWITCHES) if rng.random() < 0.5 else frozenset()
    return Switched(jobs, cluster, profile, int(rng.choice([60, 240])), corrected=corrected)


def check(made: Setting, record: Record) -> int:
    """Nobody above the cluster, rigid jobs on their count or none and for their duration; how many rigid jobs ended."""
    jobs, total = made.jobs, made.cluster.gpus
    alone = np.array([not model for model in jobs.model])
    times, rows, gpus = record.changes()
    held, since = np.zeros(len(jobs), np.int64), np.zeros(len(jobs))
    seconds = np.zeros(len(jobs))
    for time_s in np.unique(times):
        for at in np.flatnonzero(times == time_s):
            row = rows[at]
            seconds[row] += (held[row] > 0) * (time_s - since[row])
            held[row], since[row] = gpus[at], time_s
        assert held.sum() <= total, f"{held.sum()} of {total} GPUs at {time_s}"
    wanted = np.array([held_rigid(int(count), made.cluster) for count in jobs.gpus])
    mine = alone[rows]
    assert ((gpus[mine] == 0) | (gpus[mine] == wanted[rows[mine]])).all()
    taken = record.admitted != 0
    assert (record.end_s[taken] >= 0).all(), "whoever is taken in ends"
    ended = alone & (record.end_s >= 0)
    # work is counted in whole slots and events drawn together: never less than the duration, overhead apart
    assert (seconds[ended] + made.slot_s >= jobs.duration_s[ended]).all()
    return int(np.count_nonzero(ended))


@pytest.mark.parametrize("scaling", [False, True], ids=["rigid", "mixed"])
def test_rigid_jobs_hold_what_they_ask_for_or_nothing(scaling: bool) -> None:
    """Drawn settings under four elastic schedules, as published and corrected; corrected ElasticFlow keeps its promises."""
    rng = np.random.default_rng(7 + scaling)
    ended = 0
    for _ in range(worlds := cases(15)):
        made = drawn_world(rng, scaling=scaling)
        for policy in ELASTIC:
            record = play(policy, made)
            ended += check(made, record)
            if isinstance(policy, PublishedElasticFlow) and made.corrected:
                promised = (record.admitted == 1) & made.jobs.has_deadline
                assert (record.end_s[promised] <= made.jobs.deadline_s[promised]).all()
    assert ended > worlds * (10 if scaling else 16)


def test_what_a_rigid_job_holds() -> None:
    """Powers of two within a node and whole nodes beyond, so that halving nodes finds room; never above the cluster."""
    eight = Cluster.uniform(1, 4, 8)
    assert [held_rigid(count, eight) for count in (1, 2, 3, 5, 8, 9, 17, 32)] == [1, 2, 4, 8, 8, 16, 24, 32]
    six = Cluster.uniform(1, 2, 6)
    assert [held_rigid(count, six) for count in (1, 3, 5, 6, 7, 12)] == [1, 4, 6, 6, 12, 12]


def test_a_rigid_profile_joins_a_measured_one() -> None:
    made = joined(SCALING, rigid([3, 16], Cluster.uniform(1, 2, 8), "A"))
    assert made.levels.tolist() == [1, 2, 4, 8, 16]
    assert made.kinds == (("m", 64), ("n", 16), ("", 3), ("", 16))
    rate = made.rate_at()
    assert np.array_equal(rate[:2, :9], SCALING.rate_at())
    assert rate[2].nonzero()[0].tolist() == [4] and rate[3].nonzero()[0].tolist() == [16]


def test_scaling_jobs_alone_run_as_if_no_rigid_kind_were_there() -> None:
    """Rigid kinds add levels to the profile; whoever has none of them is planned as before."""
    rng = np.random.default_rng(3)
    for _ in range(cases(8)):
        made = drawn_world(rng, scaling=True)
        kept = np.flatnonzero([bool(model) for model in made.jobs.model])
        if not len(kept):
            continue
        with_kinds = replace(made, jobs=made.jobs.take(kept))
        without = replace(with_kinds, profile=SCALING)
        for policy in ELASTIC:
            one, other = play(policy, with_kinds), play(policy, without)
            assert one.end_s.tolist() == other.end_s.tolist()
            assert [c.tolist() for c in one.changes()] == [c.tolist() for c in other.changes()]


def test_a_table_of_a_single_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models, one measured on four GPUs only: it runs there under every elastic schedule, beside one that scales."""
    monkeypatch.chdir(tmp_path)
    Path("m.csv").write_text("global_batch_size,4\n64,10\n")
    Path("n.csv").write_text("global_batch_size,1,2,4\n64,1,2,3\n")
    Path("j.csv").write_text(
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
        "a,0,3600,m,4000,64,4,360\nb,5,360,n,4000,64,2,180\nc,9,3600,m,4000,64,4,360\n"
    )
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: j.csv\nmachines: {nodes: [{count: 1, gpus: 4}]}\nprofile: [{tables: [m.csv, n.csv]}]\n"
        "policy: ef\n"
    )
    for name in ("ef-accessctrl", "ef", "edf", "edf-accessctrl"):
        for mode in ("compat", "corrected"):
            found = forerun.simulate(forerun.load("s.yaml", [f"policy={name}", f"mode={mode}"]))
            assert found.summary["deadline_ratio"] == 1.0
            table = found.tables["allocations"]
            counts = {
                gpus for job, gpus in zip(table["job"], table["gpus"], strict=True) if job in ("a", "c")
            }
            assert counts - {0} == {4}


LOG = "job_id,submission_time,duration,num_gpu,deadline\nj0,0,1200,2,3000\nj1,60,400,3,1900\nj2,90,5400,8,9000\n"


def test_a_log_may_ask_for_no_elasticity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("j.csv").write_text(LOG)
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: j.csv\nmachines: {nodes: [{count: 2, gpus: 8}]}\nprofile: [{analytic: rigid}]\npolicy: ef\n"
    )
    for name in ("ef-accessctrl", "ef", "edf", "edf-accessctrl", "fifo", "themis", "pollux", "chronus"):
        assert run(["simulate", "s.yaml", "--set", f"policy={name}", "--json"]) == 0, name
        told = json.loads(capsys.readouterr().out)
        notes = " ".join(told["notes"])
        assert "3 of 3 jobs have no model: they run rigid" in notes and "invented" not in notes
        assert ("hold 4 for 3 GPUs" in notes) == (name.startswith(("ef", "edf")))
        # nobody's last work is done sooner than its duration
        assert told["summary"]["makespan_s"] >= 5490
    assert run(["simulate", "s.yaml", "--set", "profile=[{analytic: rigidd}]"]) == 2
    assert "did you mean 'rigid'" in capsys.readouterr().err
    assert run(["simulate", "s.yaml", "--set", "profile=[{analytic: rigid, kinds: [[a, 64]]}]"]) == 2
    assert "leave kinds out" in capsys.readouterr().err
    Path("j.csv").write_text(LOG + "j3,95,60,33,9000\n")
    for name in ("ef-accessctrl", "edf", "fifo"):
        assert run(["simulate", "s.yaml", "--set", f"policy={name}"]) == 2
        assert "j.csv:5: job j3: asks for 33 GPUs, the cluster has 16" in capsys.readouterr().err
        argv = ["simulate", "s.yaml", "--set", f"policy={name}", "--set", "trace.larger=drop", "--json"]
        assert run(argv) == 0
        assert json.loads(capsys.readouterr().out)["summary"]["jobs"] == 3


def test_jobs_without_a_model_run_rigid_among_those_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.csv").write_text("global_batch_size,1,2,4,8\n64,1,2,3,4\n")
    Path("j.csv").write_text(
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
        "a,0,3600,m,40000,64,4,1200\nb,5,,,40000,,2,180\n"
    )
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: j.csv\nmachines: {nodes: [{count: 1, gpus: 8}]}\nprofile: [{tables: [m.csv]}]\npolicy: ef\n"
    )
    for name in ("ef-accessctrl", "edf", "themis", "srtf"):
        assert run(["simulate", "s.yaml", "--set", f"policy={name}", "--json"]) == 0, capsys.readouterr().err
        told = json.loads(capsys.readouterr().out)
        assert any("1 of 2 jobs have no model" in note for note in told["notes"])
        assert told["summary"]["deadline_ratio"] == 1.0


def test_iterations_that_a_log_lacks_are_what_the_duration_comes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """On the GPUs asked for (3: between measured counts); counts without throughput are refused by line."""
    monkeypatch.chdir(tmp_path)
    Path("m.csv").write_text("global_batch_size,1,2,4\n64,1,2,4\n")
    head = "job_id,submit_time,model_name,batch_size,num_gpu,duration\n"
    Path("j.csv").write_text(f"{head}a,0,m,64,2,1000\nb,0,m,64,3,1000\n")
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: j.csv\nmachines: {nodes: [{count: 2, gpus: 8}]}\nprofile: [{tables: [m.csv]}]\n"
        "policy: srtf\n"
    )
    jobs = forerun.simulate(forerun.load("s.yaml")).tables["jobs"]
    assert (jobs["end_s"] - jobs["submit_s"]).tolist() == [1000, 1000]
    for name in ("themis", "ef"):
        found = forerun.simulate(forerun.load("s.yaml", [f"policy={name}"]))
        assert found.summary["jct_mean_s"] >= 500
        assert any("iterations of 2 of 2 jobs" in note for note in found.notes)
    Path("j.csv").write_text(f"{head}a,0,m,64,8,1000\n")
    assert run(["simulate", "s.yaml"]) == 2
    assert "j.csv:2: job a: has no iterations, and m no throughput on 8 GPUs" in capsys.readouterr().err
    Path("j.csv").write_text("job_id,submit_time,model_name,num_gpu,duration\na,0,m,2,1000\n")
    assert run(["simulate", "s.yaml"]) == 2
    assert "has a model, m, and no batch size" in capsys.readouterr().err
