"""Sites that a real slurmctld ran, from the files that an operator has: jobs start when it started them.

`validation/slurm/sites.py` exported the folders below `slurm/` from runs of slurmctld 22.05.8, their logs as `sacct -X`
prints them. Site 5's log begins on the second of five days. No rule was looked for on either.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.core.trace.reader import read_trace

from ..conftest import shared_path

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


def test_fair_share_and_limits_as_slurmdbd_has_them(tmp_path: Path) -> None:
    """Accounts with shares, a user with three jobs at once, an account with 40 GPUs, as the real sacctmgr prints them.

    With slurmdbd attached this daemon starts nearly all jobs by plans, and without it many in their order, as the model
    does (validation/slurm/README.md): cycles differ, mean waits do not.
    """
    golden = shared_path("golden", "slurm")
    tool = shared_path("tools", "slurm-lockstep")
    conf = (tool / "slurm-dbd.conf.in").read_text() + (tool / "conf" / "dbd8.conf").read_text()
    (tmp_path / "slurm.conf").write_text(conf)
    scenario = tmp_path / "site.yaml"
    files = ", ".join(str(golden / name) for name in ("w2u.qos.txt", "w2u.assoc.txt"))
    scenario.write_text(
        f"domain: cluster\ntrace: {{file: {tool / 'traces' / 'w2u.csv'}}}\n"
        f"machines: {{file: slurm.conf, site: [{files}]}}\n"
        "placement: first-fit\npolicy: {name: slurm-backfill, order: {name: multifactor}}\n"
    )
    jobs = forerun.simulate(forerun.load(scenario)).tables["jobs"]
    answer_s = dict(
        zip(map(str, jobs["job"]), (jobs["first_start_s"] - jobs["submit_s"]).tolist(), strict=True)
    )
    with (golden / "w2u-dbd8.tsv").open() as lines:
        ran = {row["id"]: row for row in csv.DictReader(lines, delimiter="\t")}
    assert answer_s.keys() == ran.keys()
    real_s = {name: float(row["start_s"]) - float(row["submit_s"]) for name, row in ran.items()}
    assert np.mean(list(answer_s.values())) == pytest.approx(np.mean(list(real_s.values())), rel=0.05)
    for user in ("ann", "bob", "cat"):
        mine = [str(job) for job, name in zip(jobs["job"], jobs["user"], strict=True) if name == user]
        assert np.mean([answer_s[name] for name in mine]) == pytest.approx(
            np.mean([real_s[name] for name in mine]), rel=0.1, abs=120
        )
