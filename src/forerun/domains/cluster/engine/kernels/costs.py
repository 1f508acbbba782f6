"""Charging jobs of the published machine what a table of costs says."""

from __future__ import annotations

from forerun.domains.cluster.engine.kernels.arrays import I64
from forerun.domains.cluster.engine.kernels.plan_state import (
    CHARGED,
    END,
    GPUS,
    LAST_GPUS,
    OLD_END,
    PlanState,
    set_end,
)
from forerun.kernels.jit import kernel


@kernel
def charge_each(m: PlanState, rows: I64, cost_s: I64) -> None:
    """Jobs pay each its own seconds: their ends move by them."""
    for i in range(len(rows)):
        job = rows[i]
        if cost_s[i] > 0:
            m.j[CHARGED, job] = cost_s[i]
            m.j[OLD_END, job] = m.j[END, job]
            m.j[END, job] += cost_s[i]
            set_end(m, job)
        m.j[LAST_GPUS, job] = m.j[GPUS, job]
