"""Programs are profiled as real ranks, and what is measured is what a simulation reads."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.live.group_engine import GroupEngine

import forerun
from forerun.cluster.inputs.costs import read_costs
from forerun.core.errors import ScenarioError, StoreError, UsageError
from forerun.core.report.stored import figures_of_document, open_stored
from forerun.live.measure import command, costs_csv
from forerun.live.profiling import (
    Begin,
    End,
    Measured,
    ProfilingPlan,
    ProgramFailed,
    Rate,
    Resize,
    WarmUp,
    measure,
)
from forerun.live.spec import JobSpec

PACED = (sys.executable, "-m", "forerun.live.programs.paced")


def profiled(folder: Path, plan: ProfilingPlan, program: tuple[str, ...] = PACED, slots: int = 4) -> tuple:
    """What is measured, the engine, and the words that a person saw."""
    engine, measured, seen = GroupEngine(folder), Measured("numpy"), []
    spec = JobSpec(name="profiled", command=program, iterations=10**9)
    try:
        measure(engine, spec, plan, measured, slots=slots, begin=seen.append, at=lambda *_: None)
    finally:
        engine.close()
    return measured, engine, seen


def test_a_profile_has_every_count_and_change_and_simulate_reads_it(tmp_path):
    plan = ProfilingPlan(slots=(1, 2), batches=(8, 16), throughput_s=0.3, repeats=2, cold=True)
    measured, engine, seen = profiled(tmp_path, plan)
    assert set(measured.rates) == {(8, 1), (8, 2), (16, 1), (16, 2)}
    assert all(rate > 0 and np.isfinite(rate) for rate in measured.rates.values())
    times = {key: len(values) for key, values in measured.seconds.items()}
    for name in ("1->2", "2->1", "migrate"):
        # The walk of the second batch grows once more.
        assert times[name, "warm"] == (3 if name == "1->2" else 2) and times[name, "cold"] == 1
    assert times["start", "warm"] == 3
    assert not measured.notes
    assert len(seen) == sum(len(walk) for walk in plan.tasks())
    # Every start but the first of a walk goes on from a checkpoint, and moves go to other slots.
    assert sum(start.checkpoint is None for start in engine.starts) == len(list(plan.tasks()))
    assert {start.slots["node"] for start in engine.starts} == {(0,), (0, 1), (2, 3)}
    assert all(start.spec.command[0].endswith("env") for start in engine.starts[-4:])
    # A start is part of a change, and so is a drain.
    for how in ("warm", "cold"):
        for name in ("1->2", "2->1", "migrate"):
            assert min(measured.seconds[name, how]) > min(measured.seconds["drain", how])

    (tmp_path / "numpy.csv").write_text(measured.throughput_csv())
    (tmp_path / "costs.csv").write_text(costs_csv({"numpy": measured.costs()}))
    assert read_costs(tmp_path / "costs.csv")["numpy"].keys() == {"1->2", "2->1", "migrate", "restart"}
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n1,0,5000,numpy,9000,8,1,60\n"
    )
    scenario = forerun.loads(
        "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 1, gpus: 2}]}\n"
        "profile: [{tables: [numpy.csv]}]\ncosts: {file: costs.csv}",
        base=tmp_path,
    )
    assert forerun.simulate(scenario).summary["finished_jobs"] == 1


def test_a_report_draws_what_was_measured(tmp_path):
    measured = Measured("numpy", rates={(8, 1): 2.0, (8, 2): 3.5}, profiling_s=30.0)
    for seconds in (0.5, 0.7):
        measured.add("1->2", "warm", seconds)
    measured.add("1->2", "cold", 4.0)
    path = tmp_path / "numpy.json"
    path.write_text(
        json.dumps(
            {"format": "forerun.measurement/1", "domain": "cluster", "forerun": "0", **measured.data()}
        )
    )
    figures = figures_of_document(open_stored(path))
    assert {figure.id for figure in figures} == {
        "measured-throughput", "measured-changes", "measured-profiling",
    }  # fmt: skip
    page = forerun.write_page([open_stored(path)], tmp_path / "page.html").read_text()
    assert "Seconds of a change" in page


def test_a_batch_too_small_for_a_count_leaves_its_cell_empty(tmp_path):
    plan = ProfilingPlan(slots=(1, 2, 4), batches=(4, 3), throughput_s=0.2, repeats=1, cold=False)
    measured, _, seen = profiled(tmp_path, plan, slots=4)
    assert set(measured.rates) == {(4, 1), (4, 2), (4, 4), (3, 1), (3, 2)}
    assert measured.throughput_csv().splitlines()[1].endswith(",")
    (note,) = measured.notes
    assert "4 slots, batch 3" in note and "cannot be shared by 4 ranks" in note
    assert len(seen) == sum(len(walk) for walk in plan.tasks())


def test_a_program_that_never_trains_is_told_in_a_line(tmp_path):
    program = tmp_path / "fails.py"
    program.write_text(
        "from forerun.live import job\nwith job.attach(torch=False): raise OSError('no data')\n"
    )
    plan = ProfilingPlan(slots=(1,), batches=(8,), throughput_s=0.2, repeats=1, cold=False)
    with pytest.raises(ProgramFailed, match="no data"):
        profiled(tmp_path, plan, (sys.executable, str(program)))


def test_what_is_measured_stays_when_it_is_stopped(tmp_path):
    measured = Measured("numpy")
    engine = GroupEngine(tmp_path)

    def stop(words: str) -> None:
        if words.startswith("1->2"):
            raise KeyboardInterrupt

    plan = ProfilingPlan(slots=(1, 2), batches=(8,), throughput_s=0.2)
    spec = JobSpec(name="profiled", command=PACED, iterations=10**9)
    with pytest.raises(KeyboardInterrupt):
        measure(engine, spec, plan, measured, slots=2, begin=stop, at=lambda *_: None)
    assert set(measured.rates) == {(8, 1)} and not measured.has_costs
    assert engine.poll(0.0)[0].holds == {}, "the program still runs"
    engine.close()


def test_walks_visit_all_counts_in_both_directions():
    walks = list(
        ProfilingPlan(slots=(1, 2, 8), batches=(4, 8), throughput_s=1.0, repeats=3, cold=True).tasks()
    )
    changes = Counter((task.name, task.how) for walk in walks for task in walk if isinstance(task, Resize))
    for name in ("1->2", "2->8", "8->2", "2->1", "migrate"):
        assert changes[name, "warm"] >= 3 and changes[name, "cold"] == 1
    assert isinstance(walks[0][0], WarmUp)
    for walk in walks[1:]:
        assert isinstance(walk[0], Begin) and isinstance(walk[-1], End)
        count = walk[0].slots
        for task in walk:
            if isinstance(task, Resize):
                assert task.before == count
                count = task.after
    assert sum(isinstance(task, Rate) for walk in walks for task in walk) == 6


def test_the_command_measures_on_the_engine_that_runs_jobs(tmp_path, monkeypatch):
    """The same program, by `forerun measure cluster`, on the engine of this machine."""
    monkeypatch.chdir(tmp_path)
    measure_it = ["--batch", "8", "--set", "slots=[1,2]", "--set", "throughput=300ms", "--set", "repeats=1"]
    for model in ("one", "two"):
        done = CliRunner().invoke(
            command, [*measure_it, "--set", "cold=false", "--model", model, "--json", "-o", "m", *PACED]
        )
        assert done.exit_code == 0, done.output
        measured = json.loads(done.stdout)
        assert [row["slots"] for row in measured["throughput"]] == [1, 2] and measured["notes"] == []
        assert {row["change"] for row in measured["changes"]} == {"start", "drain", "1->2", "2->1", "migrate"}
    # The table of costs has a row a model.
    assert read_costs(tmp_path / "m" / "costs.csv").keys() == {"one", "two"}
    assert {path.name for path in (tmp_path / "m").iterdir()} == {
        "one.csv", "one.json", "two.csv", "two.json", "costs.csv",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch", "8", "nowhere.py"], "no script 'nowhere.py'"),
        (["--batch", "8", "no-such-program"], "no program 'no-such-program'"),
        (["--batch", "8", "--set", "slots=[2,1]", "true"], "slots: [2, 1] does not rise"),
        (["--batch", "x", "true"], "'x' is not a list"),
        (["--batch", "8", "--set", "throughput=0s", "true"], "throughput: '0s' is not above 0"),
    ],
)
def test_wrong_arguments_are_told_in_a_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, arguments)
    assert isinstance(done.exception, (UsageError, ScenarioError)) and message in str(done.exception)


def test_files_of_others_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "costs.csv").write_text("mine")
    done = CliRunner().invoke(command, ["--batch", "8", "-o", ".", "true"])
    assert isinstance(done.exception, StoreError) and (tmp_path / "costs.csv").read_text() == "mine"
