"""`forerun trace generate | fit | stats cluster`: the generators by name, fits that generate again, what logs look like."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from forerun.cluster.inputs.arrays import Jobs
from forerun.cluster.inputs.files import JobTable, read_jobs
from forerun.cluster.traces.generate import JobGenerator, generate, jobs_csv
from forerun.cluster.traces.published import TEMPLATES
from forerun.cluster.traces.resample import resampled
from forerun.cluster.traces.traces import STARTS, judged
from forerun.core.cli.main import run
from forerun.core.trace.reader import read_trace

from .conftest import DATA, shared_or_skip


@pytest.fixture
def forerun(capsys: Any) -> Any:
    """Run a command line: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run(["trace", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_the_published_generator_names_what_it_leaves_unseeded(forerun: Any, tmp_path: Path) -> None:
    """Template, gap, duration and size hang on the seed; slack and coin on `slack_seed` alone."""
    files = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv", "d.csv")]
    for file, options in zip(files, (("1", "0"), ("1", "0"), ("1", "5"), ("2", "0")), strict=True):
        seed, slack = options
        code, out, _ = forerun(
            "generate", "cluster", "-n", 60, "--seed", seed, "--set", f"slack_seed={slack}", "-o", file
        )
        assert code == 0
        assert "deadline slack and best-effort coin" in out and f"slack_seed={slack}" in out
        assert "invented analytic profile" in out
    one, other_slack, other_seed = (read_jobs(file).jobs for file in (files[0], *files[2:]))
    assert files[0].read_bytes() == files[1].read_bytes()
    for name in ("duration_s", "submit_s", "model"):
        assert np.array_equal(getattr(one, name), getattr(other_slack, name)), name
    assert (one.deadline_s != other_slack.deadline_s).any()
    assert (one.duration_s != other_seed.duration_s).any()


def test_the_provided_trace_comes_from_the_command_line(forerun: Any, tmp_path: Path) -> None:
    shared_or_skip()
    wanted = DATA / "generated" / "fig10_100jobs_1500lam_seed1.csv"
    out = tmp_path / "fig10.csv"
    code, _, _ = forerun(
        "generate", "cluster", "published", "-n", 100, "--seed", 1, "--set", "mean_gap=1500s",
        "--set", "least_slack=1.5", "--set", f"tables={DATA / 'throughputs_A100'}", "-o", out,
    )  # fmt: skip
    assert code == 0
    assert out.read_text().splitlines() == wanted.read_text().splitlines()


def test_every_generator_makes_a_log_that_a_run_reads(forerun: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(
        "job_id,submission_time,duration,num_gpu\n"
        + "".join(f"j{i},{i * 700},{600 + 37 * i},{1 + i % 2}\n" for i in range(300))
    )
    for name in STARTS:
        out = tmp_path / f"{name}.csv"
        settings = ["--set", f"file={log}", "--set", "blocks=2"] if name == "resample" else ["-n", 40]
        code, stdout, stderr = forerun("generate", "cluster", name, *settings, "-o", out, "--json")
        assert code == 0, stderr
        jobs = read_jobs(out).jobs
        assert json.loads(stdout)["count"] == len(jobs) >= 40
        assert read_trace(out).kind == "jobs"
        assert (np.diff(jobs.submit_s) >= 0).all()


def test_a_fit_generates_jobs_like_the_log(forerun: Any, tmp_path: Path) -> None:
    """A log drawn from a description lies in the bands of the fit to it, apart from chance (5 % of the features)."""
    log, described, again = tmp_path / "log.csv", tmp_path / "log.yaml", tmp_path / "again.csv"
    code, _, _ = forerun(
        "generate", "cluster", "generate", "-n", 2000, "--set", "analytic=balanced", "--seed", 4,
        "--set", "best_effort_share=0.25", "-o", log,
    )  # fmt: skip
    assert code == 0
    code, stdout, _ = forerun("fit", "cluster", log, "-o", described, "--json")
    assert code == 0
    found = json.loads(stdout)
    assert sum(not feature["ok"] for feature in found["features"]) <= 2
    spec = yaml.safe_load(described.read_text())["trace"]["generate"]
    assert spec["best_effort_share"] == pytest.approx(0.25, abs=0.04)
    assert (spec["least_slack"], spec["most_slack"]) == pytest.approx((0.5, 1.5), abs=0.02)
    assert len(spec["templates"]) == 14
    code, _, stderr = forerun(
        "generate", "cluster", described, "-n", 100, "--set", "analytic=balanced", "-o", again
    )
    assert code == 0, stderr
    assert len(read_jobs(again)) == 100


def test_a_fit_to_a_log_without_models_keeps_its_deadlines(forerun: Any, tmp_path: Path) -> None:
    """And adds none to a log that has none."""
    rng = np.random.default_rng(2)
    submit_s = np.cumsum(rng.integers(1, 600, 80))
    duration_s = rng.integers(600, 9000, 80)
    due_s = submit_s + (rng.uniform(1.2, 3.0, 80) * duration_s).astype(int)
    rows = [f"{i},{submit_s[i]},{duration_s[i]},{1 + i % 4}" for i in range(80)]
    (tmp_path / "with.csv").write_text(
        "job_id,submission_time,duration,num_gpu,deadline\n"
        + "".join(f"{row},{due}\n" for row, due in zip(rows, due_s, strict=True))
    )
    (tmp_path / "without.csv").write_text(
        "job_id,submission_time,duration,num_gpu\n" + "\n".join(rows) + "\n"
    )
    slack = (due_s - submit_s) / duration_s
    for name in ("with", "without"):
        log, described, again = (tmp_path / f"{name}{end}" for end in (".csv", ".yaml", "-made.csv"))
        assert forerun("fit", "cluster", log, "-o", described)[0] == 0
        assert forerun("generate", "cluster", described, "-n", 300, "-o", again)[0] == 0
    made = np.genfromtxt(tmp_path / "with-made.csv", delimiter=",", names=True)
    drawn = (made["ddl"] - made["submit_time"]) / made["duration"]
    assert slack.min() - 0.01 <= drawn.min() < slack.min() + 0.1
    assert slack.max() - 0.1 < drawn.max() <= slack.max()
    assert "model_name" not in (made.dtype.names or ()) and not made["best_effort"].any()
    assert "ddl" not in (tmp_path / "without-made.csv").read_text()


def test_a_log_unlike_its_fit_is_reported(forerun: Any, tmp_path: Path) -> None:
    """Fifty jobs within a minute, every five hours: no Poisson process with hourly rates does that."""
    log = tmp_path / "bursts.csv"
    log.write_text(
        "job_id,submission_time,duration,num_gpu\n"
        + "".join(f"j{i},{i // 50 * 17_000 + i % 50},{600 + i % 7},1\n" for i in range(1000))
    )
    code, out, _ = forerun("fit", "cluster", log)
    assert code == 0
    missed = next(line for line in out.splitlines() if "not reproduced:" in line)
    assert "gap cv" in missed and "resampling blocks" in missed
    assert "nothing was saved" in out


def test_sizes_keep_their_own_durations() -> None:
    """Jobs on 8 GPUs that take ten times as long do so again."""
    from .test_cluster_generate import as_trace

    spec = JobGenerator(jobs=3000, mean_gap_s=60.0)
    slow = tuple(size.with_(duration_factor=10.0) if size.gpus == 8 else size for size in spec.sizes)
    made = generate(spec.with_(sizes=slow, most_duration_s=1e9), None, seed=1)
    from forerun.cluster.traces.fit import fit

    found = {size.gpus: size.duration_factor for size in fit(as_trace(made)).spec.sizes}
    assert found[8] / found[1] == pytest.approx(10.0, rel=0.35)


def test_the_band_of_the_right_description_holds_the_log() -> None:
    from .test_cluster_generate import as_trace

    spec = JobGenerator(jobs=1500, mean_gap_s=60.0)
    inside = [
        feature.ok
        for seed in range(4)
        for feature in judged(as_trace(generate(spec, None, seed=1000 + seed)), spec, seed=seed, traces=60)
    ]
    assert np.mean(inside) > 0.85


def test_resampled_jobs_keep_what_they_are() -> None:
    from .test_cluster_generate import flat_profile

    spec = JobGenerator(jobs=300, mean_gap_s=900.0, best_effort_share=0.2)
    table = JobTable("generated", generate(spec, flat_profile(), seed=2))
    drawn = resampled(table, block_s=86_400.0, blocks=6, seed=1).jobs

    def facts(jobs: Jobs) -> list[Any]:
        """What a job is, whenever it is submitted."""
        slack_s = np.where(jobs.has_deadline, jobs.deadline_s - jobs.submit_s, -1)
        columns = (jobs.batch, jobs.gpus, jobs.duration_s, jobs.iterations, slack_s)
        return list(zip(jobs.model, *(column.tolist() for column in columns), strict=True))

    assert set(facts(drawn)) <= set(facts(table.jobs))
    assert len(set(drawn.id)) == len(drawn)
    assert (np.diff(drawn.submit_s) >= 0).all() and drawn.submit_s.max() < 6 * 86_400


def test_a_table_written_and_read_is_the_same(tmp_path: Path) -> None:
    from .test_cluster_generate import flat_profile

    for spec, profile in (
        (JobGenerator(jobs=50, mean_gap_s=60.0, best_effort_share=0.3), flat_profile()),
        (JobGenerator(jobs=50, mean_gap_s=60.0), None),
    ):
        made = generate(spec, profile, seed=0)
        path = tmp_path / "t.csv"
        path.write_text(jobs_csv(JobTable("generated", made)))
        again = read_jobs(path).jobs
        for name in (
            "submit_s",
            "iterations",
            "model",
            "deadline_s",
            "batch",
            "gpus",
            "duration_s",
            "best_effort",
        ):
            assert np.array_equal(getattr(again, name), getattr(made, name)), name


def test_stats_tell_size_load_deadlines_and_what_cannot_be(forerun: Any, tmp_path: Path) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text(
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
        "1,0,10,a,3600,64,4,3600,0\n2,3600,10,a,3000,64,4,3600,0\n3,7200,10,b,0,32,16,7200,1\n"
    )
    code, out, err = forerun("stats", "cluster", log, "--set", "gpus=8", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["jobs"], found["gpu_hours"], found["gpus_max"]) == (3, 40.0, 16.0)
    assert found["offered_load_gpus"] == pytest.approx(20.0)
    assert found["load_of_cluster"] == pytest.approx(2.5)
    assert found["deadlines_before_submission"] == 1 and found["best_effort_share"] == pytest.approx(1 / 3)
    assert found["notes"] == ["1 jobs ask for more than 8 GPUs"]
    assert [size["gpus"] for size in found["sizes"]] == [4.0, 16.0]
    code, out, err = forerun("stats", "cluster", log)
    assert "deadline before submission" in err and "median duration" in out
    code, _, err = forerun("stats", "cluster", log, "--strict")
    assert code == 2 and "refused by strict" in err


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """docs/core/traces.md on job logs, with throughput of its six models made up (linear up to the batch)."""
    tables = tmp_path / "throughputs_A100"
    tables.mkdir()
    for model in {model for model, _ in TEMPLATES}:
        rows = [
            f"{batch}," + ",".join(str(2 * n) for n in (1, 2, 4, 8, 16))
            for m, batch in TEMPLATES
            if m == model
        ]
        (tables / f"{model}.csv").write_text("\n".join(["global_batch_size,1,2,4,8,16", *rows]) + "\n")
    page = (Path(__file__).parents[2] / "docs" / "core" / "traces.md").read_text()
    commands = re.findall(r"^\$ forerun (trace \w+ cluster .*)$", page, flags=re.MULTILINE)
    assert {command.split()[1] for command in commands} == {"generate", "stats", "fit"}
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert run(command.split()) == 0, capsys.readouterr().err
    assert len(read_jobs(tmp_path / "more.csv")) == 500


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (
            ["generate", "cluster", "nope", "-o", "x.csv"],
            "no generator of jobs named 'nope'; known: generate, published",
        ),
        (["generate", "cluster", "--set", "job=3", "-o", "x.csv"], "unknown key 'job'; did you mean 'jobs'?"),
        (["generate", "cluster", "-o", "x.parquet"], "jobs are written as .csv"),
        (["generate", "cluster", "resample", "-o", "x.csv"], "the key 'file' is missing"),
        (["generate", "poisson", "nope", "-o", "x.csv"], "'poisson' is no domain with traces of its own"),
        (
            ["fit", "clutser", "x.csv"],
            "no domain with traces of its own named 'clutser'; did you mean 'cluster'?",
        ),
        (["stats", "cluster", "absent.csv"], "absent.csv"),
        (["fit", "cluster", "a.csv", "b.csv"], "2 files were given; one is expected"),
        (["stats", "x.csv", "--set", "gpus=8"], "forerun trace stats DOMAIN FILE"),
    ],
)
def test_wrong_wishes_are_refused(
    forerun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = forerun(*arguments)
    assert code == 2 and out == ""
    assert what in err and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_plain_script_can_play_in_processes(tmp_path: Path) -> None:
    """A script without `if __name__ == '__main__':` is not run again by the processes; what they give is what one gives."""
    shared_or_skip()
    script = tmp_path / "script.py"
    script.write_text(
        "from forerun.replication.elasticflow.reproduce import Job, play_all\n"
        'jobs = [Job("edf", "", "n8g8", 240, drawn=(20, 900.0, share, 1)) for share in (0.1, 0.5)]\n'
        "apart, here = (play_all(jobs, lambda said: None, workers=count) for count in (2, 1))\n"
        "print([one.ratio for one in apart] == [one.ratio for one in here])\n"
    )
    found = {**os.environ, "FORERUN_DATA_DIR": str(DATA.parent)}
    done = subprocess.run(
        [sys.executable, str(script)], env=found, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
