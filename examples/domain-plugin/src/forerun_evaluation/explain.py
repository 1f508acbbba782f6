"""What explains a run: the question, and what might change the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.core.domain import Answer, Explainer, WhatIf
from forerun.core.result.run import Result, SavedRun
from forerun_evaluation.scenario import Scenario


class EvaluationExplainer(Explainer[Scenario]):
    """Are the evaluations done by the deadline? More GPUs, a later deadline or another order may change that."""

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """Whether the last evaluation ends by the deadline."""
        return Answer("Are all evaluations done by the deadline?", bool(summary["in_time"]))

    def what_ifs(self, scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """More or fewer GPUs, another deadline, the other policies."""
        more = not self.answer(run.summary).holds
        gpus = [scenario.gpus + step for step in (1, 2, 4, 8, 16)]
        if not more:
            gpus = [scenario.gpus - step for step in (1, 2, 4, 8, 16) if scenario.gpus > step]
        shares = (1.05, 1.1, 1.25, 1.5, 2.0) if more else (0.95, 0.9, 0.75, 0.5, 0.25)
        deadlines_s = [share * scenario.deadline_s for share in shares]
        name = scenario.policy.__struct_config__.tag
        others = [other for other in ("in-order", "longest-first") if other != name]
        return (
            WhatIf("gpus", scenario.gpus, gpus, "GPUs"),
            WhatIf("deadline_s", scenario.deadline_s, deadlines_s, "the deadline"),
            WhatIf("policy", name, others, "another order"),
        )
