"""What is wrong with users' files and policies: exit code 2, one line a problem with file and line, nothing half-written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster.policies.priority import Fifo
from forerun.cluster.policy import Allocation, Allocator, View, schedulers
from forerun.cluster.scenario import Quota
from forerun.core.cli.main import run
from forerun.core.errors import ScenarioError
from forerun.core.trace.reader import read_trace

HEADER = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
TABLE = "global_batch_size,1,2,4,8\n64,1.5,2.8,5,\n32,1,1.6,0,nan\n"
SCENARIO = """domain: cluster
trace: {file: jobs.csv}
machines: {nodes: [{name: n, count: 1, gpus: 4}]}
profile: [{tables: [a.csv]}]
policy: fifo
"""


@pytest.fixture
def simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Simulate jobs (rows under the header) with a table: exit code, result or None, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(rows: str, *options: str, table: str = TABLE, header: str = HEADER) -> tuple[int, Any, str]:
        Path("jobs.csv").write_text(header + rows + "\n")
        Path("a.csv").write_text(table)
        Path("s.yaml").write_text(SCENARIO)
        code = run(["simulate", "s.yaml", "--json", *options])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, json.loads(captured.out) if code == 0 else None, captured.err

    return call


GOOD = "1,0,10,a,900,64,2,30"


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("1,0,10,a,900,64,1,30\n2,5,10,a,900,64,16,30", (), ["jobs.csv:3: job 2: asks for 16 GPUs, the cluster has 4"]),
        ("big,0,10,a,900,64,8,30", ("--set", "policy=gandiva"), ["jobs.csv:2: job big: asks for 8 GPUs"]),
        ("big,0,10,a,900,64,8,30", ("--set", "policy=chronus"), ["jobs.csv:2: job big: asks for 8 GPUs"]),
        ("big,0,10,a,900,64,8,30", ("--set", "policy=dlas-gpu"), ["jobs.csv:2: job big: asks for 8 GPUs"]),
        ("big,0,10,a,900,64,8,30", ("--set", "policy=themis"), ["jobs.csv:2: job big: asks for 8 GPUs"]),
        ("1,0,10,a,900,32,4,30", (), ["jobs.csv:2: job 1: a with batch 32 has no throughput on 4 GPUs", "throughput: 1, 2"]),
        ("1,0,10,a,900,32,4,30", ("--set", "policy=themis"), ["a with batch 32 has no throughput on 4 GPUs"]),
        ("1,0,10,b,900,64,1,30", (), ["jobs.csv:2: model 'b' has no throughput; known: a"]),
        ("1,0,10,a,900,16,1,30", (), ["jobs.csv:2: batch_size 16 of a has no throughput; measured: 32, 64"]),
        ("1,-5,10,a,900,64,1,30\n2,0,-3,a,9,64,-1,-9", (),
         ["jobs.csv:2:submit_time: -5", "csv:3:iteration: -3", "csv:3:num_gpu: -1", "csv:3:duration: -9"]),
        (f"{GOOD}\n{GOOD}", (), ["jobs.csv:3:job_id: 1 was already used on line 2"]),
        ("1,nan,10,a,9,64,1,3\n2,1e3,inf,a,9,64,1,3", (), ["jobs.csv:2:submit_time: 'nan'", "csv:3:iteration: 'inf'"]),
        ('1,0,10,a,900,64,1,"3,5"', (), ["jobs.csv:2:duration: '3,5'", "decimal comma"]),
        ("", (), ["jobs.csv: contains no rows of data"]),
        ("1,9,10,a,900,64,1,30\n2,5,10,a,900,64,1,30", ("--set", "trace.strict=true"), ["jobs.csv:3", "refused by strict"]),
        ("1,9,10,a,3,64,1,30", ("--set", "trace.strict=true"), ["jobs.csv:2", "deadline before submission"]),
    ],
)  # fmt: skip
def test_jobs_that_cannot_be(simulate: Any, rows: str, options: tuple[str, ...], said: list[str]) -> None:
    code, _, err = simulate(rows, *options, "-o", "kept")
    assert code == 2
    for text in said:
        assert text in err
    assert len(err.splitlines()) == sum(1 for line in err.splitlines() if line.startswith("forerun: "))
    assert not Path("kept").exists()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("global_batch_size,1,2\n64,1.5,-2\n", "a.csv:2: throughput at 2 GPUs is -2"),
        ("global_batch_size,1,2\n64,1.5,fast\n", "a.csv:2: throughput at 2 GPUs is 'fast'"),
        ("global_batch_size,1,2\n64,1.5,inf\n", "a.csv:2: throughput at 2 GPUs is inf"),
        ("global_batch_size,1,two\n64,1.5,2\n", "a.csv:1: GPU count is 'two'"),
        ("global_batch_size,2,1\n64,1.5,2\n", "a.csv:1: GPU counts are not ascending"),
        ("global_batch_size,1,2\n64,1.5,2\n64,1.5,2\n", "a.csv:3: global_batch_size 64 appears twice"),
        ("batch,1,2\n64,1.5,2\n", "a.csv:1: the header starts with global_batch_size"),
        ("global_batch_size,1,2\n64,1.5,2,9\n", "a.csv:2: has 4 fields, the header has 3"),
    ],
)
def test_throughput_that_cannot_be(simulate: Any, table: str, said: str) -> None:
    code, _, err = simulate(GOOD, table=table)
    assert code == 2 and said in err


def test_repairs_are_counted_with_file_and_line(simulate: Any) -> None:
    code, result, _ = simulate("1,9,10,a,3,64,1,30\n2,5,10,a,900,64,1,30")
    assert code == 0
    assert any("rows out of order (sorted by submission): 1 (jobs.csv:3)" in note for note in result["notes"])
    assert any(
        "deadline before submission (cannot be met): 1 (jobs.csv:2:ddl)" in note for note in result["notes"]
    )


def test_jobs_too_large_can_be_left_out_counted(simulate: Any) -> None:
    code, result, _ = simulate(f"{GOOD}\nbig,1,10,a,900,64,8,30", "--set", "trace.larger=drop")
    assert code == 0 and result["summary"]["jobs"] == 1
    assert any(
        "asks for more than 4 GPUs left out: 1 (jobs.csv:3: job big)" in note for note in result["notes"]
    )


HOLES = "global_batch_size,1,2,4\n64,1.5,nan,5\n32,1,0,3\n"


@pytest.mark.parametrize("policy", schedulers().names())
@pytest.mark.parametrize("mode", ["compat", "corrected"])
def test_holes_and_zeros_in_a_table_delay_no_job(simulate: Any, policy: str, mode: str) -> None:
    """A hole at 2 GPUs (64) and a 0 there (32): jobs that ask for 1 run under every policy, and all work is done."""
    rows = "1,0,90,a,900,64,1,60\n2,3,40,a,900,32,1,40\n3,4,300,a,4000,64,1,200"
    given = ["--set", f"policy={policy}", "--set", f"mode={mode}", "--set", "trace.overestimate=2"]
    code, result, err = simulate(rows, *given, table=HOLES)
    assert code == 0, err
    assert result["summary"]["finished_jobs"] + result["summary"]["refused_jobs"] == 3
    # these plan on powers of two, up to the first hole
    if policy in ("ef", "ef-accessctrl", "edf", "edf-accessctrl"):
        assert any("no throughput on 2 GPUs; elastic plans use at most 1" in note for note in result["notes"])


def test_a_hole_between_levels_is_interpolated_and_a_zero_never(simulate: Any) -> None:
    code, result, _ = simulate("1,0,90,a,900,64,2,60", table=HOLES)
    assert code == 0 and result["summary"]["finished_jobs"] == 1
    code, _, err = simulate("1,0,90,a,900,32,2,60", table=HOLES)
    assert (
        code == 2
        and "a with batch 32 has no throughput on 2 GPUs, which it asks for; counts with throughput: 1, 4"
        in err
    )


class Spoiler:
    """Serves in order of submission, until it gives a job that ended its GPUs again."""

    def allocate(self, view: Any) -> Any:
        return view.give({0: 2, 1: 2}) if view.now_s >= 400 else view.take(np.arange(view.count))


def test_a_failed_run_is_reported_and_saved(
    simulate: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Fifo, "compiles", False)
    monkeypatch.setattr(Fifo, "build", lambda self, rng: Spoiler())
    rows = "first,0,100,a,900,64,2,100\nsecond,10,50,a,900,64,2,50\nthird,400,80,a,900,64,4,80"
    options = ("--set", "placement=first-fit")
    code, _, err = simulate(rows, *options)
    assert code == 2 and err.startswith("forerun: t=400 s, job first: was given 2 GPUs, but ended at ")
    code, _, err = simulate(rows, *options, "-o", "kept")
    assert code == 2 and "the run until then is saved to kept" in err
    assert run(["report", "kept", "-o", "kept.html"]) == 0
    assert "stopped early: t=400 s" in Path("kept.html").read_text()


def test_starving_all_jobs_ends_the_run_with_a_reason(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from forerun.cluster.policy import Allocation

    class Miser:
        def allocate(self, view: Any) -> Any:
            return Allocation(np.zeros(view.count, np.int64))

    monkeypatch.setattr(Fifo, "compiles", False)
    monkeypatch.setattr(Fifo, "build", lambda self, rng: Miser())
    code, result, _ = simulate(GOOD, "--set", "placement=first-fit")
    assert code == 0 and result["summary"]["unfinished_jobs"] == 1
    assert any("the policy gives GPUs to none of 1 waiting jobs" in note for note in result["notes"])


def test_a_newcomers_log_is_compared_in_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Four columns, no deadlines: the ranking goes by completion time, and the next command can be run as it stands."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"j{i},{40 * i},{30 + 37 * i % 400},{1 + i % 3}\n" for i in range(50))
    Path("jobs.csv").write_text("job_id,submission_time,duration,num_gpu\n" + rows)
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 1, gpus: 4}]}\npolicy: fifo\n"
    )
    assert run(["simulate", "s.yaml"]) == 0
    told = capsys.readouterr().out
    step = next(line for line in told.splitlines() if line.startswith("next: forerun compare"))
    assert run(step.removeprefix("next: forerun ").split()) == 0
    ranked = capsys.readouterr().out
    assert "mean completion time in s" in ranked and "why: " in ranked and "exact" in ranked
    assert re.search(
        r"note \((elasticflow, edf|edf, elasticflow)\): no throughput is known: .* invented", ranked
    )
    assert "note (srtf): 50 of 50 jobs have no model: they run rigid" in ranked, (
        "who is compared by what is said"
    )


SACCT = """JobID|User|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|ReqTRES|Timelimit|NNodes|JobName
10|ann|gpu|2024-03-01T10:00:00|2024-03-01T10:05:00|2024-03-01T11:05:00|COMPLETED|3600|cpu=8,gres/gpu=8|gres/gpu=8|2:00:00|1|a|b
11|bob|gpu|2024-03-01T10:01:00|2024-03-01T10:05:00|2024-03-01T12:05:00|COMPLETED|7200|gres/gpu:a100=4|gres/gpu=4|2:00:00|1|x
12|bob|cpu|2024-03-01T10:01:00|2024-03-01T10:05:00|2024-03-01T12:05:00|CANCELLED by 7|7200|cpu=8|cpu=8|2:00:00|1|x
13|cat|gpu|2024-03-01T10:02:00|2024-03-01T10:05:00|2024-03-01T10:25:00|COMPLETED|1200|gres/gpu=16|gres/gpu=16|2:00:00|2|y
"""


def test_a_slurm_dump_is_compared_in_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Told from its content, its repairs and its impossible demand said; a key can be set beside `trace: FILE`."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.txt").write_text(SACCT)
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: jobs.txt\nmachines: {nodes: [{count: 2, gpus: 8}]}\npolicy: fifo\n"
    )
    assert run(["compare", "s.yaml", "--policy", "fifo", "--policy", "srtf"]) == 0
    told = capsys.readouterr().out
    assert "mean completion time" in told and "note: job without GPUs dropped: 1" in told
    assert run(["simulate", "s.yaml"]) == 0
    told = capsys.readouterr().out
    assert "jobs.txt was read as sacct" in told and "(a time limit is none)" in told
    assert "cannot have run on this cluster: it held up to 28 GPUs at once, 16 are there" in told
    assert "job without GPUs dropped: 1" in told
    assert run(["simulate", "s.yaml", "--set", "machines.nodes[0].count=1"]) == 2
    assert "jobs.txt:5: job 13: asks for 16 GPUs, the cluster has 8" in capsys.readouterr().err
    assert (
        run(
            [
                "simulate",
                "s.yaml",
                "--set",
                "machines.nodes[0].count=1",
                "--set",
                "trace.larger=drop",
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["summary"]["jobs"] == 2
    assert run(["simulate", "s.yaml", "--set", "trace.strict=true"]) == 2
    assert "job without GPUs dropped" in capsys.readouterr().err


RAW = "job_id,submission_time,duration,num_gpu"
FULL = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort,user,vc"
#: a job log's header and rows; what every command that reads it says of it (empty: nothing is wrong)
LOGS = {
    "an empty deadline": (f"{RAW},deadline\na,0,100,1,900\nb,10,100,1,\n", ""),
    "no deadline at all": (f"{RAW},deadline\na,0,100,1,\nb,10,100,1,\n", ""),
    "empty iterations and batch": (f"{FULL}\na,0,,,900,,1,100,0,u,v\nb,5,10,m,900,64,1,100,0,u,v\n", ""),
    "empty iterations of a model": (f"{FULL}\na,0,,m,900,64,1,100,0,u,v\n", ""),
    "no user and no virtual cluster": (f"{FULL}\na,0,10,m,900,64,1,100,0,,\n", ""),
    "a model without iterations": (f"{RAW},model_name,batch_size\na,0,100,1,m,64\n", ""),
    "a batch without a model": (f"{RAW},batch_size\na,0,100,1,64\n", ""),
    "an empty original duration": (f"{RAW},real_duration\na,0,100,1,\n", ""),
    "an empty submission": (f"{RAW}\na,,100,1\n", ":2:submission_time: is empty; a number is needed"),
    "an empty duration": (f"{RAW}\na,0,,1\n", ":2:duration: is empty; a number is needed"),
    "empty GPUs": (f"{RAW}\na,0,100,\n", ":2:num_gpu: is empty; a number is needed"),
    "an empty id": (f"{RAW}\n,0,100,1\n", ":2:job_id: is empty"),
    "an empty best_effort": (
        f"{RAW},best_effort\na,0,100,1,\n",
        ":2:best_effort: is empty; a number is needed",
    ),
    "a deadline in words": (f"{RAW},deadline\na,0,100,1,soon\n", ":2:deadline: 'soon' is not a number"),
    "an underscore in a number": (f"{RAW}\na,0,1_0,1\n", ":2:duration: '1_0' is not a number"),
    "a superscript": (f"{RAW}\n²,0,²,1\n", ":2:duration: '²' is not a number"),
    "an id of five thousand digits": (
        f"{RAW}\n{'9' * 5000},0,9,1\n",
        ":2:job_id: is longer than 4096 characters",
    ),
    "a digit too many in an id": (f"{RAW}\n7,0,9,1\n007,0,9,1\n", ":3:job_id: 7 was already used on line 2"),
    "zero seconds": (f"{RAW}\na,0,0,1\nb,0,9,1\n", "job of zero seconds dropped: 1"),
    "only zero seconds": (f"{RAW}\na,0,0,1\n", "no usable job is left; all take zero seconds"),
    "a column too many": (f"{RAW},colour\na,0,9,1,red\n", "column not used: 'colour': 1"),
    "a cell too few": (f"{RAW}\na,0,9\n", ":2: has 3 cells, 4 are expected"),
    "no job": (f"{RAW}\n", "contains no rows of data"),
}
#: of these, those that are read all the same
REPAIRED = ("zero seconds", "a column too many")


@pytest.mark.parametrize("name", LOGS)
def test_every_command_reads_and_refuses_the_same_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, name: str
) -> None:
    """What is wrong with a log does not depend on who reads it, nor does what is said of it."""
    monkeypatch.chdir(tmp_path)
    text, said = LOGS[name]
    Path("jobs.csv").write_text(text)
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: {file: jobs.csv, format: native}\npolicy: fifo\n"
        "machines: {nodes: [{count: 1, gpus: 4}]}\n"
    )
    wanted = 0 if not said or name in REPAIRED else 2
    for command in (
        ["simulate", "s.yaml"],
        ["check", "s.yaml"],
        ["trace", "check", "jobs.csv", "--format", "cluster_jobs"],
        ["trace", "check", "jobs.csv"],
        ["trace", "stats", "cluster", "jobs.csv"],
        ["trace", "import", "jobs.csv", "-o", "out.parquet"],
    ):
        code = run(command)
        captured = capsys.readouterr()
        assert code == wanted, (command, captured.err)
        assert said in captured.out + captured.err or (command == ["check", "s.yaml"] and not wanted), command
        assert "Traceback" not in captured.err
    strict = ["trace.strict=true"] if name in REPAIRED else []
    for change in strict:
        assert run(["simulate", "s.yaml", "--set", change]) == 2
        assert run(["trace", "check", "jobs.csv", "--strict"]) == 2


def test_a_log_with_empty_deadlines_is_described_and_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Jobs without a deadline count as best effort in figures and fits, and what is written can be read again."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(
        f"j{i},{97 * i},{30 + 37 * i % 400},{1 + i % 3},{97 * i + 900 if i % 4 else ''}\n" for i in range(80)
    )
    Path("jobs.csv").write_text(f"{RAW},deadline\n{rows}")
    assert run(["trace", "stats", "cluster", "jobs.csv", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["best_effort_share"] == 0.25 and figures["slack_min"] > 1
    assert run(["trace", "fit", "cluster", "jobs.csv", "-o", "fit.yaml", "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert "NaN" not in json.dumps(fitted)
    assert run(["trace", "generate", "cluster", "fit.yaml", "-o", "more.csv"]) == 0
    assert run(["trace", "import", "jobs.csv", "-o", "again.csv"]) == 0
    capsys.readouterr()
    scenario = forerun.loads(
        f"domain: cluster\ntrace: {tmp_path / 'jobs.csv'}\nmachines: {{nodes: [{{count: 2, gpus: 4}}]}}\npolicy: fifo\n"
    )
    assert forerun.simulate(scenario).summary["jobs_with_deadline"] == 60


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_log_with_empty_models_is_imported_and_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, ending: str
) -> None:
    """Empty models and users are missing ones, in the log and in a trace file made of it."""
    monkeypatch.chdir(tmp_path)
    models = ("resnet50", "bert", "")
    rows = "".join(
        f"j{i},{97 * i},{60 + 37 * i},1,{models[i % 3]},64,{'ann' if i % 2 else ''}\n" for i in range(60)
    )
    Path("jobs.csv").write_text(f"{RAW},model_name,batch_size,user\n{rows}")
    again = f"again.{ending}"
    assert run(["trace", "import", "jobs.csv", "-o", again]) == 0
    assert read_trace(Path(again)) == read_trace(Path("jobs.csv"))
    fits = []
    for file in ("jobs.csv", again):
        assert run(["trace", "fit", "cluster", file, "-o", f"{file}.yaml"]) == 0
        fits.append(Path(f"{file}.yaml").read_text())
        assert run(["trace", "stats", "cluster", file, "--json"]) == 0
    assert "None" not in fits[0] + fits[1]
    scenario = f"{{domain: cluster, trace: {again}, machines: {{nodes: [{{count: 1, gpus: 4}}]}}, policy: fifo, quota: "
    Path("s.yaml").write_text(scenario + "{gpus: {None: 1}}}")
    capsys.readouterr()
    assert run(["simulate", "s.yaml"]) == 2
    assert "ann" in capsys.readouterr().err


PARTITIONS = SACCT.replace("bob|gpu", "bob|fast")


def test_quotas_are_of_users_or_of_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A quota binds whom it names; a name that nobody has is an error that names those there are."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.txt").write_text(PARTITIONS + PARTITIONS.splitlines()[2].replace("11|", "14|") + "\n")
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: jobs.txt\nmachines: {nodes: [{count: 4, gpus: 8}]}\npolicy: fifo-backfill-unreserved\n"
        "quota: {gpus: {bob: 4}, default: 64}\n"
    )
    jobs = forerun.simulate(forerun.load("s.yaml")).tables["jobs"]
    starts = dict(zip(jobs["job"], jobs["first_start_s"], strict=True))
    assert dict(zip(jobs["job"], jobs["user"], strict=True)) == {
        "10": "ann",
        "11": "bob",
        "13": "cat",
        "14": "bob",
    }
    assert starts["14"] - starts["11"] == 7200 and starts["13"] == 120, "one of bob's jobs at a time"
    per_vc = ["quota={gpus: {fast: 8}, default: 64, per: vc}"]
    jobs = forerun.simulate(forerun.load("s.yaml", per_vc)).tables["jobs"]
    assert set(jobs["user"]) == {"gpu", "fast"} and (jobs["wait_limit_s"] == 0).all()
    for quota, told in (
        (
            "{gpus: {bop: 4}}",
            "$.quota.gpus.bop: no user 'bop' in jobs.txt; did you mean 'bob'? known: ann, bob, cat",
        ),
        ("{gpus: {fast: 4}}", "it is a virtual cluster or partition, whose quotas come with quota.per: vc"),
        ("{gpus: {bob: 4}, per: vc}", "no virtual cluster or partition 'bob' in jobs.txt; it is a user"),
    ):
        assert run(["simulate", "s.yaml", "--set", f"quota={quota}"]) == 2
        error = capsys.readouterr().err
        assert told in error and "Traceback" not in error
    assert run(["simulate", "s.yaml"]) == 0
    told = capsys.readouterr().out
    assert (
        "jobs.txt has jobs of 2 partitions or virtual clusters (gpu: 2, fast: 2): here they share one cluster"
        in told
    )


def test_a_quota_of_a_user_outside_the_sample_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"j{i},{600 * i},300,1,{'ann' if i else 'rare'}\n" for i in range(60))
    Path("jobs.csv").write_text("job_id,submission_time,duration,num_gpu,user\n" + rows)
    scenario = forerun.loads(
        "domain: cluster\ntrace: {resample: {file: jobs.csv, block: 10min}}\npolicy: las\n"
        "machines: {nodes: [{count: 1, gpus: 4}]}\nquota: {gpus: {rare: 1}, default: 4}\n"
    )
    drawn = [set(forerun.simulate(scenario.with_(seed=seed)).tables["jobs"]["user"]) for seed in range(6)]
    assert {"ann"} in drawn and {"ann", "rare"} in drawn
    with pytest.raises(ScenarioError, match="no user 'rear' in jobs"):
        forerun.simulate(scenario.with_(quota=Quota(gpus={"rear": 1})))


def test_backfill_without_reservation_says_so(tmp_path: Path) -> None:
    """A wide job waits for narrow ones that came later; with a reservation it would start at 1,000 s, as the first ends."""
    from forerun.cluster.policies.priority import FifoBackfill
    from forerun.core.registry import member_name

    assert member_name(FifoBackfill) == "fifo-backfill-unreserved"
    assert "nothing is reserved" in " ".join((FifoBackfill.__doc__ or "").lower().split())
    rows = "".join(f"n{i},{200 * i},1000,2\n" for i in range(1, 17))
    (tmp_path / "jobs.csv").write_text(
        f"job_id,submission_time,duration,num_gpu\nfirst,0,1000,4\nwide,100,10,8\n{rows}"
    )
    scenario = forerun.loads(
        f"domain: cluster\ntrace: {tmp_path / 'jobs.csv'}\nmachines: {{nodes: [{{count: 1, gpus: 8}}]}}\n"
        "policy: fifo-backfill-unreserved\n"
    )
    jobs = forerun.simulate(scenario).tables["jobs"]
    started = dict(zip(jobs["job"], jobs["first_start_s"], strict=True))
    assert started["n1"] == 200 and started["wide"] == 5000


NEWCOMER = "".join(
    f"j{i},{60 * i},{60 + 137 * i % 1500},{(1, 2, 3, 1, 4)[i % 5]},{60 * i + 900 + 211 * i % 3000}\n"
    for i in range(50)
)


@pytest.mark.parametrize("model", ["", "resnet50"])
@pytest.mark.parametrize("profile", ["", "profile: [{analytic: network_bound}]\n"])
def test_a_log_without_throughput_runs_under_every_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, profile: str, model: str
) -> None:
    """Fifty jobs with deadlines and no profile for them: elastic schedules scale them by an invented curve, and say so."""
    monkeypatch.chdir(tmp_path)
    jobs = "".join(f"{line},{model}\n" for line in NEWCOMER.splitlines())
    Path("jobs.csv").write_text("job_id,submission_time,duration,num_gpu,deadline,model\n" + jobs)
    Path("s.yaml").write_text(
        f"domain: cluster\ntrace: jobs.csv\nmachines: {{nodes: [{{count: 2, gpus: 4}}]}}\npolicy: fifo\n{profile}"
    )
    for name in ("ef-accessctrl", "ef", "edf", "edf-accessctrl", "fifo", "themis", "chronus", "las"):
        assert run(["simulate", "s.yaml", "--set", f"policy={name}", "--json"]) == 0, name
        told = json.loads(capsys.readouterr().out)
        assert told["summary"]["jobs_with_deadline"] == 50 and told["summary"]["unfinished_jobs"] == 0
        invented = any(
            "scale to other counts by an invented model (analytic: " in note for note in told["notes"]
        )
        assert invented == (bool(profile) or name in ("ef-accessctrl", "ef", "edf", "edf-accessctrl"))
        if name == "fifo":
            assert told["summary"]["jct_mean_s"] > 0


class Nobody(Allocator, tag="nobody", frozen=True):
    """Gives GPUs to nobody, or (`until`) to the first jobs only."""

    round_s: float = 60.0
    until: int = 0

    def build(self, rng: Any) -> Nobody:
        return self

    def allocate(self, view: View) -> Allocation:
        return view.take(np.flatnonzero(view.job < self.until))


def test_the_reason_of_a_starved_run_is_that_it_starved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forerun.core.domain import simulate

    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("job_id,submission_time,duration,num_gpu\na,0,60,1\nb,0,60,1\nc,0,60,2\n")
    Path("s.yaml").write_text("domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 1, gpus: 4}]}\n")
    for until, said in ((0, "no job ended, 0 %"), (2, "1 job never ended"), (1, "2 jobs never ended")):
        found = simulate(forerun.load("s.yaml", ["policy=fifo"]), policy=Nobody(until=until))
        assert said in found.why, found.why
        assert any("the policy gives GPUs to none of" in note for note in found.notes)


def test_what_a_published_schedule_does_not_know_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quotas, placements and costs of one's own bind policies with a view; published rules ignore them, with a word."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("job_id,submission_time,duration,num_gpu,user\na,0,60,1,ann\nb,0,60,2,bob\n")
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 1, gpus: 4}, {count: 1, gpus: 2}]}\npolicy: fifo\n"
        "quota: {gpus: {ann: 1}, default: 4}\nplacement: best-fit\ncosts: {restart_s: 5}\n"
    )

    def notes(*changes: str) -> str:
        return " ".join(forerun.simulate(forerun.load("s.yaml", changes)).notes)

    for name in ("gandiva", "dlas-gpu", "themis"):
        told = notes(f"policy={name}")
        assert "which know no quota, placement, costs: " in told
        assert "nodes for such of 4 GPUs; these nodes differ" in told
    assert "policies with a view" not in notes() and "differ" not in notes()
    plain = ("quota=null", "placement=anywhere", "costs={}", "machines.nodes=[{count: 1, gpus: 4}]")
    assert "policies with a view" not in notes("policy=gandiva", *plain)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "machines.nodes=[{count: 1000000000000000000, gpus: 8}]",
            "8e+18 GPUs; at most 1,000,000 are simulated",
        ),
        ("machines.nodes=[{count: 1, gpus: 549755813888}]", "at most 1,000,000 are simulated"),
        (
            "profile=[{analytic: balanced, kinds: [[a, 64]], levels: [0]}]",
            "levels[0]: 0 is not between 1 and 1,000,000",
        ),
        (
            "profile=[{analytic: balanced, kinds: [[a, 1000000000000000000]]}]",
            "kinds[0][1]: 1000000000000000000 is not below",
        ),
        ("profile=[{analytic: balanced, kinds: [[a, 0]]}]", "kinds[0][1]: 0 is below 1"),
        ("trace={generate: {jobs: 9, mean_gap_s: 1.0e300}}", "too late to count"),
    ],
    ids=["nodes", "gpus", "level", "batch", "no batch", "gap"],
)
def test_sizes_beyond_all_clusters_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, change: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("job_id,submission_time,duration,num_gpu\na,0,60,1\n")
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 1, gpus: 4}]}\npolicy: fifo\n"
    )
    assert run(["simulate", "s.yaml", "--set", change]) == 2
    assert said in capsys.readouterr().err


def test_durations_hold_on_the_gpus_asked_for() -> None:
    """A scaled job takes its recorded duration there, whatever the count, and less on more by the curve."""
    from forerun.cluster.inputs.arrays import Cluster
    from forerun.cluster.inputs.jobs import scaled_from_durations
    from forerun.cluster.testing import drawn_world

    jobs = drawn_world(3).setting.jobs
    scaled, profile, _ = scaled_from_durations(jobs, "balanced", Cluster.uniform(1, 2, 8), keeps=True)
    rate = profile.rate_at()[scaled.kind, jobs.gpus]
    np.testing.assert_allclose(scaled.iterations / rate, jobs.duration_s)
    assert (np.diff(profile.rate[:, :4], axis=1) > 0).all(), "more GPUs of one node are faster"
    assert [batch for _, batch in profile.kinds] == [64 * count for count in sorted(set(jobs.gpus.tolist()))]


def test_deadlines_can_be_given_to_a_log_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.txt").write_text(SACCT)
    base = "domain: cluster\nmachines: {nodes: [{count: 2, gpus: 8}]}\npolicy: edf-accessctrl\n"
    Path("s.yaml").write_text(base + "trace: {file: jobs.txt, slack: 1.5}\n")
    assert run(["simulate", "s.yaml", "-o", "one"]) == 0
    capsys.readouterr()
    jobs = forerun.simulate(forerun.load("s.yaml")).tables["jobs"]
    spent = {"10": 3600, "11": 7200, "13": 1200}
    for name, due, submit in zip(jobs["job"], jobs["deadline_s"], jobs["submit_s"], strict=True):
        assert due == submit + 1.5 * spent[name]
    Path("s.yaml").write_text(base + "trace: {file: jobs.txt, slack: 1.2, most_slack: 2}\n")
    drawn = forerun.simulate(forerun.load("s.yaml")).tables["jobs"]
    slack = (drawn["deadline_s"] - drawn["submit_s"]) / np.array([spent[name] for name in drawn["job"]])
    assert ((slack >= 1.2) & (slack <= 2.001)).all() and len(set(slack.tolist())) == 3
    assert run(["compare", "s.yaml", "--policy", "edf-accessctrl", "--policy", "fifo"]) == 0
    assert "deadlines met" in capsys.readouterr().out
    Path("s.yaml").write_text(base + "trace: {file: jobs.txt, slack: 3, most_slack: 2}\n")
    assert run(["simulate", "s.yaml"]) == 2
    assert "most_slack is 2" in capsys.readouterr().err.replace(": ", " ")


def test_a_resampled_log_has_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"j{i},{97 * i},{30 + 37 * i % 400},{1 + i % 3}\n" for i in range(120))
    Path("jobs.csv").write_text("job_id,submission_time,duration,num_gpu\n" + rows)
    Path("s.yaml").write_text(
        "domain: cluster\ntrace: {resample: {file: jobs.csv, block: 10min}}\n"
        "machines: {nodes: [{count: 1, gpus: 4}]}\npolicy: fifo\n"
    )
    assert run(["compare", "s.yaml", "--policy", "fifo", "--policy", "srtf", "--seeds", "5"]) == 0
    told = capsys.readouterr().out
    assert "…" in told and "exact" not in told


@pytest.mark.parametrize("section", ["{file: jobs.csv, %s}", "{resample: {file: jobs.csv, %s}}"])
def test_an_unknown_format_is_the_scenarios_fault(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(HEADER + GOOD + "\n")
    Path("a.csv").write_text(TABLE)
    Path("s.yaml").write_text(SCENARIO.replace("{file: jobs.csv}", section % "format: 1MB/s"))
    assert run(["simulate", "s.yaml"]) == 2
    said = capsys.readouterr().err
    assert "s.yaml:2: at $.trace" in said and "format: no trace format named '1MB/s'; known: " in said
    assert "native" in said and "jobs.csv" not in said
