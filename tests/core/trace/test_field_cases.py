"""Small files in the shape of public ones: read, or refused in one line that says what they are and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.core.cli.main import run
from forerun.core.errors import Problem, ScenarioError, TraceError
from forerun.core.trace.convert import check_trace, import_trace
from forerun.core.trace.reader import read_trace

CASES = Path(__file__).parent / "cases"


def noted(path: Path) -> str:
    """What was repaired or noted while a file was read."""
    return "\n".join(map(str, check_trace(path).repairs))


def test_kubernetes_pods_are_exported_with_the_models_that_they_ask_for(tmp_path: Path) -> None:
    pods = CASES / "openb" / "pods.csv"
    made = import_trace(pods, tmp_path / "x.csv")
    assert read_trace(tmp_path / "x.csv") == made.trace and len(made.trace) == 4
    assert made.trace["gpu_type"].tolist().count("") == 2  # one names none, one several
    assert "requests one of several GPU models may use any: 1" in noted(pods)


def test_models_of_spot_jobs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
        "1,13,A10,20,1,1,0,2764799,HP\n3,57,,15,1,16,9589663,41060,Spot\n"
    )
    assert read_trace(path)["gpu_type"].tolist() == ["A10", ""]


@pytest.mark.parametrize(("name", "gpus"), [("b_comma.csv", [2, 2]), ("b_tab.txt", [2, 1])])
def test_sacct_between_tabs_or_commas_is_read(name: str, gpus: list[int]) -> None:
    trace = read_trace(CASES / "sacct_shapes" / name)
    assert trace.provenance.format == "sacct" and trace["gpus"].tolist() == gpus


def test_sacct_in_padded_columns_says_how_to_print_it() -> None:
    with pytest.raises(TraceError, match=r"full\.txt:1: looks like sacct with padded columns.*--parsable2"):
        read_trace(CASES / "sacct_shapes" / "a2_padded_full.txt")


def test_a_workload_of_batsim_is_called_one() -> None:
    found = check_trace(CASES / "batsim" / "workload.json")
    (problem,) = found.problems
    assert (
        found.format == "batsim" and "is a Batsim workload" in problem.what and "out_jobs.csv" in problem.what
    )


@pytest.mark.parametrize(
    ("name", "format", "column", "values"),
    [
        ("acme_kalos.csv", "helios", "gpus", [64, 8]),
        ("acme_kalos.csv", "helios", "duration_s", [16, 3600]),
        ("batsim_jobs.csv", "batsim", "duration_s", [42, 50]),
        ("batsim_jobs.csv", "batsim", "requested_s", [100, 50]),
        ("slurmdb.csv", "slurmdb", "gpus", [2, 2]),
        ("slurmdb.csv", "slurmdb", "requested_s", [86400, 86400]),
        ("slurmdb.csv", "slurmdb", "state", ["COMPLETED", "COMPLETED"]),
        ("smi.csv", "nvidia_smi", "power_w", [400.1, 200.3]),
        ("smi.csv", "nvidia_smi", "t_s", [0, 2]),
    ],
)
def test_formats_from_the_field_are_recognised(
    name: str, format: str, column: str, values: list[object]
) -> None:
    trace = read_trace(CASES / "formats" / name)
    assert trace.provenance.format == format and trace[column].tolist() == values


def test_check_always_says_what_a_file_is_taken_for(capsys: pytest.CaptureFixture[str]) -> None:
    for name, code in (("b_tab.txt", 0), ("a2_padded_full.txt", 2)):
        assert run(["trace", "check", str(CASES / "sacct_shapes" / name)]) == code
        first = capsys.readouterr().out.splitlines()[0]
        assert "sacct, recognised by its content" in first and "times: as written, no zone" in first
    run(["trace", "check", str(CASES / "formats" / "slurmdb.csv"), "--format", "slurmdb"])
    assert "slurmdb, as named" in capsys.readouterr().out and "gpu_tres=1001" not in capsys.readouterr().err


def test_one_cause_is_one_line() -> None:
    error = ScenarioError(
        *(Problem(f"bert at batch {size}", "has no throughput") for size in range(65)), Problem("x", "y")
    )
    assert error.lines() == ["bert at batch 0: has no throughput (and at 64 more places)", "x: y"]
