"""`forerun trace`: results on stdout, repairs and problems on stderr, exit codes."""

from __future__ import annotations

import json

import pytest

from forerun.core.cli.main import run
from forerun.core.trace.reader import read_trace


@pytest.fixture
def forerun(capsys):
    """Run a command line: exit code, stdout, stderr."""

    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def dirty(tmp_path):
    path = tmp_path / "dirty.csv"
    path.write_bytes(b"arrival_s,note\r\n3,x\r\n1,y\r\n")
    return path


def test_generate_then_stats(forerun, tmp_path):
    out = tmp_path / "g.parquet"
    code, stdout, _ = forerun(
        "trace",
        "generate",
        "gamma",
        "--set",
        "rate=100rps",
        "--set",
        "cv=2",
        "-n",
        2000,
        "--seed",
        3,
        "-o",
        out,
        "--json",
    )
    assert code == 0
    made = json.loads(stdout)
    assert made["count"] == 2000
    assert made["digest"] == read_trace(out).digest
    code, stdout, stderr = forerun("trace", "stats", out, "--json")
    assert (code, stderr) == (0, "")
    found = json.loads(stdout)
    assert found["gap_scv"] == made["gap_scv"]
    assert found["format"] == "generated"
    code, stdout, _ = forerun("trace", "stats", out)
    assert code == 0
    assert "gap scv" in stdout and "index of dispersion" in stdout


def test_stats_of_a_trace_shorter_than_a_window_have_no_empty_table(forerun, tmp_path):
    (tmp_path / "short.csv").write_text("arrival_ms\n0\n9.5\n30\n61\n99\n")
    code, stdout, _ = forerun("trace", "stats", tmp_path / "short.csv")
    assert code == 0 and "gap scv" in stdout and "Burstiness" not in stdout


def test_generate_from_a_file_until_a_time(forerun, tmp_path):
    process = tmp_path / "day.yaml"
    process.write_text(
        "name: phases\nphases:\n"
        "- process: {name: poisson, rate: 50rps}\n  duration: 10s\n"
        "- process: {name: gamma, rate_rps: 100, scv: 4}\n  duration_s: 10\n"
    )
    code, stdout, _ = forerun("trace", "generate", process, "--horizon", "20s", "-o", tmp_path / "day.csv")
    assert code == 0
    assert "arrivals" in stdout and "next: forerun trace stats" in stdout
    assert read_trace(tmp_path / "day.csv").instants[-1] < 20_000


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["gama", "-n", 3], "no arrival process named 'gama'; did you mean 'gamma'?"),
        (["gamma", "--set", "rate_rps=1", "-n", 3], "exactly one of cv and scv"),
        (["gamma", "--set", "rate_rps=-1", "--set", "cv=1", "-n", 3], "rate_rps"),
        (["gamma", "--set", "speed=1", "-n", 3], "unknown key 'speed'"),
        (["gamma", "--set", "rate", "-n", 3], "--set rate: write an override as path=value"),
        (["poisson", "--set", "rate_rps=1"], "exactly one of n"),
        (["poisson", "--set", "rate_rps=1", "--horizon", "3kg"], "unknown unit 'kg'"),
        (["poisson", "--set", "rate_rps=1", "-n", 0], "0 is not in the range"),
        (["none.yaml", "-n", 3], "none.yaml"),
    ],
)
def test_a_process_that_is_none_is_refused(forerun, tmp_path, arguments, what):
    code, stdout, stderr = forerun("trace", "generate", *arguments, "-o", tmp_path / "x.csv")
    assert code == 2
    assert stdout == ""
    assert what in stderr
    assert "Traceback" not in stderr
    assert not list(tmp_path.iterdir())


TAKEN_AS = (
    "csv, recognised by its content: any CSV with arrival_s or arrival_ms (+ tokens, parent>child routing)"
)


def test_check_passes_with_repairs_and_fails_without(forerun, dirty):
    code, stdout, stderr = forerun("trace", "check", dirty)
    assert code == 0
    assert stdout.splitlines() == [f"{dirty}: {TAKEN_AS}", f"{dirty}: 2 rows of csv, no problems"]
    assert len(stderr.splitlines()) == 3
    code, stdout, stderr = forerun("trace", "check", dirty, "--strict", "--quiet")
    assert (code, stdout) == (2, "")
    assert [line.split(": needs")[0] for line in stderr.splitlines()] == [
        f"{dirty}:1",
        f"{dirty}:1",
        f"{dirty}:3",
    ]


def test_check_prints_one_line_a_problem(forerun, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("arrival_s\nx\n1\ninf\n")
    code, stdout, stderr = forerun("trace", "check", path)
    assert (code, stdout) == (2, f"{path}: {TAKEN_AS}\n")
    assert stderr.splitlines() == [
        f"{path}:2:arrival_s: 'x' is not a number",
        f"{path}:4:arrival_s: 'inf' is not a finite number",
    ]
    code, stdout, _ = forerun("trace", "check", path, "--json")
    assert code == 2
    found = json.loads(stdout)
    assert not found["ok"]
    assert [problem["where"] for problem in found["problems"]] == [
        f"{path}:2:arrival_s",
        f"{path}:4:arrival_s",
    ]


def test_import_says_what_it_guessed_and_repaired(forerun, dirty, tmp_path):
    out = tmp_path / "out.csv"
    code, stdout, stderr = forerun("trace", "import", dirty, "-o", out)
    assert code == 0
    assert stdout == f"{out}: 2 requests from csv\n"
    assert stderr.splitlines()[0] == f"{dirty}: looks like csv"
    assert all(line.startswith("repaired: ") for line in stderr.splitlines()[1:])
    assert json.loads((tmp_path / "out.csv.repairs.json").read_text())["source"] == "dirty.csv"
    code, stdout, stderr = forerun("trace", "import", dirty, "-o", out, "--json", "--quiet")
    assert (code, stderr) == (0, "")
    assert json.loads(stdout)["rows"] == 2


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["nowhere.csv"], "nowhere.csv: no such file"),
        (["dirty.csv", "--format", "burst"], "no trace format named 'burst'; did you mean 'burstgpt'?"),
        (["dirty.csv", "--format", "intervals"], "unit must be one of"),
        (["dirty.csv", "--option", "unit"], "write an option as key=value"),
        (["dirty.csv", "--option", "unit=us"], "options of csv: Object contains unknown field unit"),
        (["dirty.csv", "--strict"], "refused by strict"),
    ],
)
def test_an_import_that_fails_writes_nothing(forerun, dirty, tmp_path, monkeypatch, arguments, what):
    monkeypatch.chdir(tmp_path)
    code, _, stderr = forerun("trace", "import", *arguments, "-o", "out.parquet")
    assert code == 2
    assert what in stderr
    assert [path.name for path in tmp_path.iterdir()] == ["dirty.csv"]


def test_formats_and_processes_are_listed(forerun):
    code, stdout, _ = forerun("trace", "formats", "--json")
    assert code == 0
    assert {"azure_llm", "mooncake", "deltas"} <= {row["format"] for row in json.loads(stdout)}
    code, stdout, _ = forerun("trace", "processes")
    assert code == 0
    assert "legacy_gamma" in stdout


def test_stats_can_fit(forerun, tmp_path):
    out = tmp_path / "p.parquet"
    forerun("trace", "generate", "poisson", "--set", "rate_rps=20", "-n", 500, "-o", out)
    code, stdout, _ = forerun("trace", "stats", out, "--fit", "--json")
    assert code == 0
    fits = json.loads(stdout)["fits"]
    assert {fit["process"]["name"] for fit in fits} >= {"poisson", "gamma"}
    code, stdout, _ = forerun("trace", "stats", out, "--fit")
    assert code == 0
    assert "features agree" in stdout


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("trace", "stats"), "not a trace"),
        (("trace", "fit", "spot"), "not a trace"),
        (("trace", "fit", "cluster"), "not a trace"),
        (("trace", "fit", "loading"), "not a table with columns such as 'load_s'"),
        (("trace", "stats", "loading"), "not a table with columns such as 'workload'"),
        (("simulate",), "not a scenario"),
        (("study",), "not a study"),
    ],
)
def test_a_document_of_ours_in_the_wrong_place_is_named(forerun, tmp_path, words, wanted):
    """A plan is no CSV file without columns, nor a scenario without a domain."""
    plan = tmp_path / "plan.json"
    plan.write_text('{\n "format": "forerun.plan/1",\n "forerun": "0.2.0",\n "scenario": {}\n}\n')
    code, _, stderr = forerun(*words, plan)
    assert code == 2
    assert f"is a document of forerun, forerun.plan/1, {wanted}" in stderr
    assert len(stderr.splitlines()) == 1


def test_what_is_no_table_is_said_to_be_json_or_a_scenario(forerun, tmp_path):
    other, scenario = tmp_path / "other.json", tmp_path / "scenario.yaml"
    other.write_text('[{"load_s": 1}]\n')
    scenario.write_text("domain: loading\n")
    code, _, stderr = forerun("trace", "fit", "loading", other)
    assert code == 2 and "is JSON, not a table with columns such as 'load_s'" in stderr
    code, _, stderr = forerun("trace", "fit", "loading", scenario)
    assert code == 2 and "is a scenario of forerun, not a DLIO workload" in stderr
