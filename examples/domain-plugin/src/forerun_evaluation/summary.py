"""The result of a run."""

from __future__ import annotations

from forerun.core.result.ledger import Ledger
from forerun.core.result.run import Result
from forerun.core.result.tables import Column, Table, TableSchema
from forerun_evaluation.engine import Outcome

EVALUATIONS = TableSchema(
    "evaluations",
    (
        Column("evaluation", "", "its name"),
        Column("gpu", "", "the GPU that ran it, from 0"),
        Column("start_s", "s", "when it started"),
        Column("end_s", "s", "when it ended"),
    ),
    "one row for each evaluation, in the order of starts",
)


def summarize(outcome: Outcome) -> Result:
    """Figures, the table of evaluations, and the GPU time divided into work and idle time."""
    scenario = outcome.inputs.scenario
    makespan_s = float(outcome.end_s.max())
    whole_gpu_s = scenario.gpus * makespan_s
    work_gpu_s = float((outcome.end_s - outcome.start_s).sum())
    idle_gpu_s = whole_gpu_s - work_gpu_s
    late_s = makespan_s - scenario.deadline_s
    last = outcome.inputs.names[outcome.row[outcome.end_s.argmax()]]
    end = f"{abs(late_s):,.0f} s {'after' if late_s > 0 else 'before'} the deadline"
    return Result(
        scenario,
        {
            "makespan_s": makespan_s,
            "in_time": late_s <= 0,
            "idle_gpu_s": idle_gpu_s,
            "utilisation": work_gpu_s / whole_gpu_s,
        },
        tables={
            "evaluations": Table.of(
                EVALUATIONS,
                evaluation=[outcome.inputs.names[row] for row in outcome.row],
                gpu=outcome.gpu,
                start_s=outcome.start_s,
                end_s=outcome.end_s,
            )
        },
        ledgers=(Ledger("GPU time", "GPU-s", whole_gpu_s, {"work": work_gpu_s, "idle": idle_gpu_s}),),
        notes=outcome.inputs.notes,
        why=f"{last} ends last, {end}",
        headline=("makespan_s", "in_time", "utilisation"),
        next_steps=("forerun compare {scenario}", "forerun explain {scenario}"),
    )
