"""A live run that nothing disturbs equals the simulation, job by job, to the second; and so does its replay."""

from __future__ import annotations

import math
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

import forerun
from forerun.domains.cluster import DOMAIN
from forerun.domains.cluster.scenario import Scenario
from forerun.live.folder import RunFolder
from forerun.live.replay import replay
from forerun.live.run_files import create_run, inputs_of, job_specs, node_names
from forerun.live.session import Session
from forerun.scenarios import from_data

from .virtual import IdealEngine, VirtualClock

#: worlds for each policy in a run of the suite; FORERUN_CASES asks for more
WORLDS = max(2, int(os.environ.get("FORERUN_CASES", "0")) // 100)
#: a job does so many steps for each of its iterations, so that whole steps are a fine grain
FINE = 1_000_000
#: simulations of these forgive what is left of a restart when another job comes or goes, as real jobs cannot
FORGIVING = ("edf", "edf-accessctrl")
POLICIES = ["ef-accessctrl", "edf", "edf-accessctrl", "fifo", "srtf", "las"]


def drawn_scenario(seed: int, policy: str) -> Scenario:
    """Twenty jobs on two nodes, many of them at the same time."""
    rng = np.random.default_rng([11, seed])
    data = {
        "domain": "cluster",
        "seed": seed,
        "trace": {
            "generate": {
                "jobs": 20,
                "mean_gap_s": float(rng.choice([60, 200, 600])),
                "durations": [{"weight": 1, "median_s": 900, "log_spread": 0.8}],
                "least_slack": 0.8,
                "most_slack": 2.5,
                "best_effort_share": 0.2,
                "sizes": [{"gpus": 1, "share": 0.5}, {"gpus": 2, "share": 0.3}, {"gpus": 4, "share": 0.2}],
            }
        },
        "machines": {"nodes": [{"name": "a", "count": 2, "gpus": 4}]},
        "profile": [{"analytic": "balanced", "kinds": [["vision", 64], ["language", 128]]}],
        "policy": policy,
        "costs": {"models": {"*": {"1->2": 0.0, "2->1": 0.0, "migrate": 0.0}}} if policy in FORGIVING else {},
        "slot_s": int(rng.choice([1, 30, 60])),
        "live": {"lease_s": 1e12, "heartbeat_s": 1e11, "hang_s": 1e12},
    }
    return from_data(data)  # type: ignore[no-any-return]


def played(folder: Path, scenario: Scenario, clock: VirtualClock | None = None) -> Session:
    """The run, to its end."""
    inputs = DOMAIN.prepare(scenario)
    specs = [
        msgspec.structs.replace(spec, iterations=spec.iterations * FINE) for spec in job_specs(inputs, folder)
    ]
    jumps = clock is not None and clock.course.jumps
    run = create_run(folder, scenario, specs=specs, clock="fast-forward" if jumps else "wall")
    names = node_names(inputs_of(run))
    clock = clock or VirtualClock()
    engine = IdealEngine(clock, dict(zip(names, inputs.setting.cluster.node_gpus().tolist(), strict=True)))
    session = Session(run, engine, clock, poll_s=math.inf)
    for _ in range(1_000_000):
        if session.is_over:
            break
        session.step()
    assert session.is_over, session.controller.status()
    session.close()
    return session


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_without_disturbance_equals_the_simulation(policy: str, tmp_path: Path) -> None:
    for seed in range(WORLDS):
        scenario = drawn_scenario(seed, policy)
        session = played(tmp_path / f"{seed}", scenario)
        jobs = forerun.simulate(scenario).tables["jobs"]
        record = session.controller.online.record
        count = len(session.controller.rows)
        np.testing.assert_array_equal(
            record.admitted[:count] == 1, jobs["admitted"] == 1, err_msg=f"world {seed}"
        )
        ends_s = np.array(
            [math.nan if job.state.name == "refused" else job.end_s for job in session.controller.rows]
        )
        np.testing.assert_allclose(ends_s, jobs["end_s"], rtol=0, atol=1.0, err_msg=f"world {seed}")
        assert {job.state.name for job in session.controller.rows} <= {"finished", "refused"}
        replayed = replay(RunFolder(tmp_path / f"{seed}"))
        assert replayed.difference is None and replayed.decisions > 20
