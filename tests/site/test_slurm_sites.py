"""Sites that a real slurmctld ran, from the files that an operator has: jobs start when it started them.

`validation/slurm/sites.py` exported the folders below `slurm/` from runs of slurmctld 22.05.8, their logs as `sacct -X`
prints them. Site 5's log begins on the second of five days. No rule was looked for on either.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.core.trace.reader import read_trace

SITES = Path(__file__).parent / "slurm"
#: a plan is made every 30 s
CYCLE_S = 34


@pytest.mark.parametrize(("name", "same_cycle"), [("site-5", 0.99), ("site-8", 0.85)])
def test_jobs_start_as_in_slurmctld(name: str, same_cycle: float, tmp_path: Path) -> None:
    folder = SITES / name
    log = read_trace(folder / "sacct.txt", "sacct", options={"unfinished": True, "cancelled": True})
    files = ", ".join(str(folder / file) for file in ("partitions.txt", "reservations.txt", "events.txt"))
    scenario = tmp_path / "site.yaml"
    scenario.write_text(
        f"domain: cluster\ntrace: {{file: {folder / 'sacct.txt'}, format: sacct}}\n"
        f"machines: {{file: {folder / 'slurm.conf'}, site: [{files}]}}\n"
        "placement: first-fit\npolicy: {name: slurm-backfill, order: {name: multifactor}}\n"
    )
    result = forerun.simulate(forerun.load(scenario))
    jobs = result.tables["jobs"]
    row = {str(job): at for at, job in enumerate(log["job_id"])}
    at = np.array([row[str(job)] for job in jobs["job"]])
    recorded_s, simulated_s = log["start_s"][at], np.asarray(jobs["first_start_s"], np.float64)
    counts = np.isfinite(recorded_s) & np.isfinite(simulated_s) & np.isfinite(log["end_s"][at])
    waited = np.maximum(recorded_s, simulated_s) - np.asarray(jobs["submit_s"]) > CYCLE_S
    near = np.abs(recorded_s - simulated_s)[counts & waited] <= CYCLE_S
    assert len(near) > 100
    assert near.mean() >= same_cycle
    assert abs((simulated_s - recorded_s)[counts].mean()) < 0.01 * result.summary["recorded_wait_mean_s"]
