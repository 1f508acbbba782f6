"""The demonstration of ten jobs is worth running: it refuses some and changes the slots of others, within a minute."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path

import forerun
import forerun.live
from forerun.live.job_file import read_job

SCENARIO = Path(forerun.live.__file__).parent / "demo" / "scenario.yaml"
EXAMPLE = Path(__file__).parents[2] / "examples" / "live"


def admitted(scale: float = 1.0, tmp_path: Path | None = None) -> list[bool]:
    """Who is admitted, if everybody has `scale` times as long until the deadline."""
    scenario = SCENARIO
    if tmp_path is not None:
        for file in SCENARIO.parent.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        header, *rows = (SCENARIO.parent / "jobs.csv").read_text().splitlines()
        at = header.split(",").index("ddl")
        changed = [header]
        for row in rows:
            cells = row.split(",")
            submit_s, deadline_s = int(cells[1]), int(cells[at])
            cells[at] = str(submit_s + round((deadline_s - submit_s) * scale))
            changed.append(",".join(cells))
        (tmp_path / "jobs.csv").write_text("\n".join(changed))
        scenario = tmp_path / scenario.name
    return [job["admitted"] for job in forerun.simulate(forerun.load(scenario)).tables["jobs"].records()]


def test_the_demonstration_has_refusals_and_changes():
    result = forerun.simulate(forerun.load(SCENARIO))
    assert result.summary["jobs"] == 10 and result.summary["refused_jobs"] >= 2
    assert (
        result.summary["finished_jobs"]
        == result.summary["deadlines_met"]
        == 10 - result.summary["refused_jobs"]
    )
    assert result.summary["makespan_s"] <= 45
    stays = sorted(result.tables["allocations"].records(), key=lambda one: (one["job"], one["from_s"]))
    counts = [[stay["gpus"] for stay in of_job] for _, of_job in groupby(stays, key=lambda one: one["job"])]
    changes = sum(before != after for of in counts for before, after in pairwise(of))
    assert changes >= 10


def test_its_admissions_are_not_a_close_call(tmp_path):
    """Real starts are not exactly as long as the table says; admissions are compared where 5 % change nothing."""
    assert admitted(0.95, tmp_path) == admitted() == admitted(1.05, tmp_path)


def test_the_example_is_a_job():
    spec = read_job(EXAMPLE / "job.yaml")
    assert spec.batch == 256 and spec.checkpoints.every_s == 30.0
    assert len((EXAMPLE / "train.py").read_text().splitlines()) < 40
