"""What the rules of a policy expect of jobs with GPUs: how fast they work, and how long they still pay for a change."""

from __future__ import annotations

import numpy as np

from forerun.cluster.engine.allocator import AllocatorRules
from forerun.cluster.engine.kernels import allocator as ak
from forerun.cluster.engine.kernels import plan_state as mk
from forerun.cluster.engine.plan_ahead import PlanAheadRules
from forerun.cluster.engine.promises import PromisingRules
from forerun.cluster.engine.rules import AnyObservingRules
from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.policies.chronus import ChronusRules
from forerun.cluster.policies.gandiva import GandivaRules
from forerun.cluster.policies.themis import ThemisSlots
from forerun.cluster.policies.tiresias import TiresiasRules


def expected_pace(rules: AnyObservingRules, gpus: I64, now_s: float) -> tuple[F64, F64]:
    """Work a second in the unit of `rules.work`, and seconds until the work begins, by job.

    Parameters
    ----------
    rules : just after their decision of this instant.
    gpus : int64[jobs], GPUs of each job from now on.
    now_s : the instant.
    """
    holds = gpus > 0
    if isinstance(rules, AllocatorRules):
        f = rules.state.f
        return np.where(holds, f[ak.SPEED], 0.0), np.where(holds, np.maximum(f[ak.SINCE] - now_s, 0.0), 0.0)
    if isinstance(rules, ChronusRules):
        owed_s = np.zeros(len(gpus))
        for job in rules.running:
            assert rules.seen is not None
            needed_s = job.duration_s + job.resumes * job.restart_s
            owed_s[job.row] = max(needed_s - job.done_s - rules.seen.left[job.row], 0.0)
        return holds.astype(np.float64), owed_s
    if isinstance(rules, ThemisSlots):
        return np.where(holds, rules.jobs.rate, 0.0), np.where(holds, rules.state.pause_s, 0.0)
    if isinstance(rules, TiresiasRules | GandivaRules):
        return holds.astype(np.float64), np.where(holds, rules.owed_s, 0.0)
    assert isinstance(rules, PlanAheadRules), rules
    m = rules.m
    counts = np.minimum(gpus, len(m.floor_level) - 1)
    rate = np.where(holds, m.rate[m.j[mk.KIND], m.floor_level[counts]], 0.0)
    pause_s = rules.pause_s if isinstance(rules, PromisingRules) else m.j[mk.CHARGED].astype(np.float64)
    return rate, np.where(holds, pause_s, 0.0)
