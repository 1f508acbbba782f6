"""The figures of a run."""

from __future__ import annotations

import numpy as np

from forerun.core.result.figures import Axis, Figure, Rule
from forerun.core.result.run import Result, SavedRun


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """How many GPUs work over time."""
    table = run.table("evaluations")
    at_s = np.concatenate([table["start_s"], table["end_s"]])
    change = np.concatenate([np.ones(len(table)), -np.ones(len(table))])
    order = np.lexsort((change, at_s))
    busy = np.cumsum(change[order])
    deadline_s = float(run.scenario["deadline_s"] if isinstance(run, SavedRun) else run.scenario.deadline_s)
    return (
        Figure(
            id="gpus-busy",
            title="GPUs that work",
            kind="step",
            x=Axis("at_s", "time", "s"),
            y=Axis("gpus", "GPUs that work"),
            data={"at_s": at_s[order].tolist(), "gpus": busy.tolist()},
            rules=(Rule(deadline_s, "deadline"),),
            caption=f"{len(table)} evaluations, at most {int(busy.max())} at a time.",
        ),
    )
