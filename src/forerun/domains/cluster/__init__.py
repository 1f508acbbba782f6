"""GPU-cluster schedulers on real job logs.

Jobs are submitted to a cluster of nodes with GPUs; each asks for a number of GPUs, or can run on several, has work to
do, and perhaps a deadline. A policy decides who holds how many GPUs, and when that changes. Throughput at each GPU
count comes from measurements or from a stated model. A job that holds GPUs works, unless it is restarting; it ends when
its work is done. With admission control a job may be refused at submission. Published schedules run with their own
clocks and rules: `mode: compat` is what their simulators do, accident by accident, `mode: corrected` what their papers
say, and each difference is a switch. Policies of your own see waiting and running jobs and answer with GPUs; the room
adds nodes, restart costs, GPU types and quotas. The result says which jobs met their deadlines, what each waited for,
why any was refused, and where every GPU-second went. Not modelled: failures, networks between nodes beyond a speed
factor, host memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

# The door's module has the name of the door: imported first, so that the door's name stays.
import forerun.domains.cluster.simulate as _door
from forerun.domains.cluster.allocator import (
    Allocation,
    Allocator,
    Cook,
    OracleAllocator,
    OracleView,
    View,
)
from forerun.domains.cluster.policy import Policy, schedulers
from forerun.domains.cluster.scenario import Scenario
from forerun.registry import Registry
from forerun.study.objective import Objective

if TYPE_CHECKING:
    from forerun.result.run import Result
    from forerun.study.blocks import Units

__all__ = [
    "GIVEN",
    "OBJECTIVES",
    "POLICIES",
    "Allocation",
    "Allocator",
    "Cook",
    "OracleAllocator",
    "OracleView",
    "Scenario",
    "View",
    "simulate",
    "units_of",
]

POLICIES: dict[str, Registry[Any]] = {"policy": schedulers()}

OBJECTIVES = (
    Objective("deadline_ratio", "higher", "deadlines met", 0.0, 1.0),
    Objective("jct_mean_s", "lower", "mean completion time in s"),
    Objective("jct_p99_s", "lower", "99th percentile of completion time in s"),
    Objective("makespan_s", "lower", "makespan in s"),
    Objective("refused_jobs", "lower", "jobs refused"),
)

#: the sections of a scenario that describe the environment: axes of a study in them are no choices
GIVEN = ("trace",)


def simulate(scenario: Scenario, *, policy: Policy | None = None, watch: Iterable[Any] = ()) -> Result:
    """Run a scenario and return its result; `policy` replaces the scenario's.

    watch: observers with a method `instant(now_s, record)`, called at every instant at which the policy acts.

    Raises TraceError, ProfileError or ScenarioError if the inputs do not fit, PolicyError if a policy decides something
    impossible.
    """
    return _door.simulate(scenario, policy=policy, watch=watch)


def units_of(result: Result) -> Units:
    """The jobs that the figures of a run are made of, for intervals over blocks of its log."""
    import numpy as np

    from forerun.study.blocks import Units

    jobs = result.tables["jobs"]
    jct_s = jobs["end_s"] - jobs["submit_s"]
    has_deadline = np.isfinite(jobs["deadline_s"])
    return Units(
        "jobs",
        np.asarray(jobs["submit_s"], np.float64),
        means={"jct_mean_s": jct_s, "deadline_ratio": np.where(has_deadline, jobs["met"], np.nan)},
        quantiles={"jct_p50_s": (jct_s, 0.5), "jct_p99_s": (jct_s, 0.99)},
        totals={"refused_jobs": 1.0 - jobs["admitted"]},
    )
