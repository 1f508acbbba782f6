"""From a planned iteration of a pipeline to its result."""

from __future__ import annotations

import math

import numpy as np

from forerun.core.result.ledger import Ledger
from forerun.core.result.run import Result
from forerun.core.result.timeline import Timeline
from forerun.energy.engine import PipelineOutcome
from forerun.energy.inputs.pipeline import KINDS


def summarize(outcome: PipelineOutcome) -> Result:
    """The result of one iteration as the goal wants it, beside every pass at its highest frequency.

    Its ledgers split the energy, and the time of all stages, over forward passes, backward passes, and waiting.
    """
    plan = outcome.plan
    pipeline, at = plan.pipeline, plan.chosen.frequencies
    done = pipeline.run(at)
    operations = pipeline.operations
    parts_j: dict[str, float] = {}
    parts_s: dict[str, float] = {}
    for kind in KINDS:
        mine = [place for place, op in enumerate(operations) if op.kind == kind]
        parts_s[kind], parts_j[kind] = pipeline.sums(mine, at)
    parts_s["blocked"] = pipeline.stages * done.makespan_s - math.fsum(parts_s.values())
    parts_j["blocked"] = pipeline.blocked_power_w * parts_s["blocked"]
    meanings = {"blocked": "stages that wait for others"}
    return Result(
        scenario=outcome.inputs.scenario,
        summary=plan.summary,
        tables=plan.tables,
        ledgers=(
            Ledger("energy", "J", done.energy_j, parts_j, meanings),
            Ledger("stage time", "s", pipeline.stages * done.makespan_s, parts_s, meanings),
        ),
        timeline=Timeline(
            entities=tuple(f"stage {stage}" for stage in range(pipeline.stages)),
            states=KINDS,
            entity=np.array([op.stage for op in operations]),
            state=np.array([KINDS.index(op.kind) for op in operations]),
            from_s=np.array(done.start_s),
            to_s=np.array(done.end_s),
            label=np.array(
                [
                    f"microbatch {op.microbatch} at {pipeline.of(place).frequency_mhz[at[place]]:g} MHz"
                    for place, op in enumerate(operations)
                ],
                object,
            ),
        ),
        why=plan.why,
        notes=plan.notes,
        headline=(
            "energy_saved_percent",
            "time_saved_percent",
            "energy_j",
            "makespan_s",
            "energy_at_least_j",
        ),
        next_steps=("forerun plan {scenario}", "forerun simulate {scenario} --set goal.max_slowdown=1.1"),
    ).check()
