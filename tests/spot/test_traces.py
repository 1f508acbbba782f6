"""`forerun trace generate | fit | stats spot`: what is said of fleets, in all digits; bad input by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forerun
import forerun.core.scenarios
from forerun.core.cli.main import run
from forerun.core.trace.domain_traces import Recorded
from forerun.spot.traces import fit as fitting
from forerun.spot.traces.traces import TRACES

Trace = Callable[..., tuple[int, str, str]]


@pytest.fixture()
def trace(capsys: pytest.CaptureFixture[str]) -> Trace:
    """Runs `forerun trace ...` and returns exit code, stdout and stderr."""

    def invoke(*args: object) -> tuple[int, str, str]:
        code = run(["trace", *map(str, args)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return invoke


def test_the_notebooks_values_in_all_their_digits(trace: Trace, data_folder: Path) -> None:
    folder = data_folder / "bamboo/full-64"
    files = folder / "full-64-node-trace.csv", folder / "full-64-terminate-trace.csv"
    code, out, _ = trace("stats", "spot", *files)
    assert code == 0
    lines = {line.split()[0]: line.split()[1:3] for line in out.splitlines() if line.strip()}
    printed = {
        "mttp_s": ["221.875", "360.0"],
        "ttp_std_s": ["171.06669982633582", "284.60498941515414"],
        "preemptions_per_min": ["0.39436619718309857", "0.4070161837387344"],
        "probability_big_add": ["0.058823529411764705", "0.04"],
        "regular_add_std": ["1.9456261184790364", "1.9456261184790364"],
        "preempt_count_std": ["2.086165648825032", "2.086165648825032"],
    }
    assert {name: lines[name] for name in printed} == printed
    assert "7 of 140 terminations do not show in the counts" in out
    told = json.loads(trace("stats", "spot", *files, "--json")[1])
    assert len(told["notebook"]) == 12 and told["corrected"]["mttp_s"] == 360.0


#: the reference's names of what our figures call otherwise
NAMES = {
    "backward_timestamps": "backward_times",
    "duplicate_timestamps": "equal_times",
    "nodes_with_faults": "faulty_nodes",
    "mean_available": "mean_nodes",
    "final_nodes": "alive_at_end",
}


def test_every_figure_of_every_public_file(
    golden: Callable[[str], Any], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 21 files, each figure of the reference, by what `trace stats` tells of the file."""
    monkeypatch.setattr(fitting, "DRAWS", 10)
    checked = 0
    for name, theirs in golden("trace_stats.json")["files"].items():
        if "prices" in name or theirs["rows" if "rows" in theirs else "ticks"] == 1:
            continue  # prices, and a count that is looked at once: `test_readers` has them
        options: dict[str, Any] = {}
        if "skynomad" in name:
            options["polarity"] = "preempted" if "h100" in name else "available"
        if "asg-counts" in name:
            options["x_unit"] = "h" if theirs["last_x"] < 1000 else "s"
        recorded = Recorded(files=(data_folder / name,), options=options)
        told = TRACES.stats(recorded, (), seed=0).data
        mine: dict[str, Any] = {**told["statistics"], **told["recording"]}
        repairs = {row["rule"]: row["count"] for row in told["repairs"]}
        mine["zero_length_faults"] = repairs.get("fault of length 0, dropped")
        mine["starts_while_already_down"] = repairs.get("fault of a node that is down already, merged")
        mine["kinds"] = {kind: mine.get(f"lines_{kind}") for kind in theirs.get("kinds", ())}
        mine["last_x"] = mine.get("until_s", 0.0) / (3600 if options.get("x_unit") == "h" else 1)
        mine["last_t_ms"], mine["duration_days"] = 1000 * mine["last_x"], mine["duration_h"] / 24
        if "faults" in mine:
            mine["nodes"] = mine["max_nodes"]
            mine["faults_per_1000_node_days"] = 1000 * mine["faults"] / mine["nodes"] / mine["duration_days"]
        figures = set(theirs) - {"polarity"}
        if "node added and removed in one instant, dropped" in repairs:
            # The reference counts the two rows of that node in `rows` and nowhere else.
            figures -= {"rows"}
            assert theirs["rows"] == mine["rows"] + 2
        for figure in figures:
            wanted, found = theirs[figure], mine[NAMES.get(figure, figure)]
            ok = found == wanted if isinstance(wanted, dict) else found == pytest.approx(wanted, rel=1e-9)
            assert ok, (name, figure, found, wanted)
        checked += 1
    assert checked == 21


def test_a_measured_run_stands_beside_its_model(trace: Trace, data_folder: Path, tmp_path: Path) -> None:
    """Line by line and segment by segment; a folder without the logs is refused by name."""
    folder = data_folder / "bamboo/run-86"
    code, out, _ = trace("stats", "spot", folder, "--json")
    told = json.loads(out)
    assert code == 0 and told["steps"]["steps executed"] == {"measured": 623, "model": 627}
    for side in ("measured_s", "model_s"):
        assert sum(line[side] for line in told["ledger"].values()) == pytest.approx(told["total_s"])
    assert max(abs(line["difference_share"]) for line in told["ledger"].values()) < 0.03
    assert len(told["segments"]) == 16
    assert sum(one["model_executed"] for one in told["segments"]) == 627
    assert "Segment by segment" in trace("stats", "spot", folder)[1]
    code, _, said = trace("stats", "spot", tmp_path)
    assert code == 2 and "reconfig.csv" in said


def test_a_recording_lasts_as_long_as_it_was_looked_at(tmp_path: Path) -> None:
    """Rows without a change lengthen it: the mean, the rates, and what is simulated, until the last row."""
    file = tmp_path / "counts.csv"
    file.write_text("time_s,nodes\n0,16\n3600,32\n7200,32\n14400,32\n")
    told = TRACES.stats(Recorded(files=(file,)), (), seed=0).data
    assert told["statistics"]["duration_h"] == 4.0 and told["recording"]["mean_nodes"] == 28.0
    scenario = forerun.core.scenarios.loads(
        f"domain: spot\nfleet: {{name: trace, file: {file}}}\n"
        "job: {depth: 16, max_pipelines: 2, step_s: {16: 10, 32: 6}, samples_per_step: 8}\n"
    )
    assert forerun.simulate(scenario).summary["end_s"] == 14_400.0


def test_fit_then_generate_then_simulate(trace: Trace, data_folder: Path, tmp_path: Path) -> None:
    """What `fit` writes, `generate` reads; what that writes, a scenario runs on."""
    described, made = tmp_path / "fleet.yaml", tmp_path / "new.csv"
    recording = data_folder / "bamboo/traces/p3-trace.csv"
    code, out, _ = trace(
        "fit", "spot", recording, "--set", "traces=40", "--set", "model=poisson", "-o", described, "--json"
    )
    told = json.loads(out)
    assert code == 0 and {f["name"] for f in told["features"]} == {
        "removals per hour",
        "nodes per removal",
        "CV of removal gaps",
        "mean nodes",
        "spread of nodes",
    }
    assert [r["name"] for r in told["rates"]] == ["removals_per_min", "adds_per_min"]
    code, out, _ = trace("generate", "spot", described, "--seed", 3, "-o", made)
    assert code == 0 and "changes of membership" in out
    (tmp_path / "spot.yaml").write_text(
        "domain: spot\nfleet: {name: trace, file: new.csv}\n"
        "job: {depth: 8, max_pipelines: 2, step_s: {8: 10, 16: 6}, samples_per_step: 8}\n"
    )
    assert forerun.simulate(forerun.load(tmp_path / "spot.yaml")).summary["steps_completed"] > 0
    assert trace("generate", "spot", tmp_path / "spot.yaml", "--horizon", "1h", "-o", made)[0] == 2


def test_the_same_seed_is_the_same_file(trace: Trace, tmp_path: Path) -> None:
    """Every process by its name, with its parameters on the command line."""
    chances = "[" + ",".join(["0.2"] * 24) + "]"
    for name, settings in {
        "": [],
        "poisson": ["removals_per_min=0.3"],
        "per_node": ["removal_per_node_h=1", "return_per_node_h=2"],
        "tick": ["removals_per_min=0.2", "adds_per_min=0.2"],
        "lifetimes": ["mean_life_h=1", "mean_return_h=1"],
        "bathtub": ["mean_return_h=1"],
        "hourly": [f"remove={chances}", f"add={chances}"],
        "storms": ["calm_removals_per_min=0.1", "storm_removals_per_min=2", "adds_per_min=1"],
    }.items():
        texts = []
        for file in ("one.csv", "other.csv"):
            wanted: list[Any] = [argument for text in settings for argument in ("--set", text)]
            code, _, said = trace(
                "generate",
                "spot",
                *([name] if name else []),
                *wanted,
                "--horizon",
                "2h",
                "-o",
                tmp_path / file,
            )
            assert code == 0, (name, said)
            texts.append((tmp_path / file).read_bytes())
        assert texts[0] == texts[1], name


def test_bad_input_is_named(trace: Trace, data_folder: Path, tmp_path: Path) -> None:
    """Exit code 2, one line a problem, nothing written."""
    out, still = tmp_path / "out.csv", tmp_path / "still.csv"
    still.write_text("0,add,a\n")
    ticks = data_folder / "skynomad/v100-prices-us-east-2a.json"
    for arguments, said in (
        (("generate", "spot", "poisson", "-o", out), "--horizon"),
        (("generate", "spot", "poison", "--horizon", "1h", "-o", out), "poison"),
        (("generate", "spot", "-n", "5", "--horizon", "1h", "-o", out), "--count"),
        (
            ("generate", "spot", "--set", "removals_per_min=-1", "--horizon", "1h", "-o", out),
            "removals_per_min",
        ),
        (("generate", "spot", "--horizon", "1h", "-o", tmp_path / "out.txt"), ".parquet or .csv"),
        (("fit", "spot", still), "one instant only"),
        (("fit", "spot", tmp_path / "absent.csv"), "absent.csv"),
        (("fit", "spot", data_folder / "oobleck/1h.csv"), "no removal or no addition"),
        (("fit", "spot", still, "--set", "traces=1"), "traces"),
        (("fit", "spot", still, "--set", "model=magic"), "model"),
        (("fit", "spot", still, still, still), "3 files"),
        (
            ("fit", "spot", data_folder / "bamboo/traces/p3-trace.csv", "--set", "cap=31"),
            "31 is below the 32 nodes",
        ),
        (
            ("fit", "spot", data_folder / "bamboo/traces/p3-trace.csv", "--set", "method=notebook"),
            "two files",
        ),
        (("stats", "spot", ticks), "contains prices"),
    ):
        code, stdout, stderr = trace(*arguments)
        assert code == 2 and said in stderr and "Traceback" not in stderr, (arguments, stdout, stderr)
    assert not out.exists()
