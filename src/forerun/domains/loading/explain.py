"""The domain's question, and what a user can change to change its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forerun.domain import Answer, Explainer, Orders, Untied, WhatIf
from forerun.domains.loading.engine.run import run
from forerun.domains.loading.inputs import prepare
from forerun.domains.loading.scenario import Scenario
from forerun.domains.loading.summary import summarize
from forerun.result.run import Result, SavedRun


class LoadingExplainer(Explainer[Scenario]):
    """Whether loading is hidden, what could change that, and other orders of events at one instant."""

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """Whether loading is hidden behind the step."""
        return Answer("Is loading hidden behind the step?", bool(summary["hidden"]))

    def what_ifs(self, scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """Larger or smaller blocks, more or fewer threads, a slower or faster store, a longer or shorter step."""
        hidden = bool(run.summary["hidden"])
        block, threads = scenario.layout.block_samples, scenario.loader.threads
        steps = (0.5, 0.25) if hidden else (2, 4, 8, 16)
        parameters = []
        if scenario.dataset.shuffle != "global" and not scenario.layout.block_bytes:
            blocks = sorted(
                {min(scenario.dataset.samples, max(1, round(block * step))) for step in steps} - {block}
            )
            if blocks:
                parameters.append(
                    WhatIf(
                        "layout.block_samples",
                        block,
                        tuple(blocks[:: -1 if hidden else 1]),
                        "samples a block",
                    )
                )
        many = sorted({max(1, round(threads * step)) for step in steps} - {threads})
        if many:
            parameters.append(
                WhatIf("loader.threads", threads, tuple(many[:: -1 if hidden else 1]), "threads")
            )
        if isinstance(scenario.store.latency_s, (int, float)) and scenario.store.latency_s:
            latency = scenario.store.latency_s
            shares = (2, 4, 8) if hidden else (0.5, 0.25, 0.1)
            parameters.append(
                WhatIf(
                    "store.latency_s",
                    latency,
                    tuple(latency * s for s in shares),
                    "latency of the store in s",
                )
            )
        if isinstance(scenario.step.step_s, (int, float)) and scenario.step.step_s:
            step_s = scenario.step.step_s
            shares = (0.8, 0.5, 0.25) if hidden else (1.5, 2, 4)
            parameters.append(WhatIf("step.step_s", step_s, tuple(step_s * s for s in shares), "step in s"))
        return tuple(parameters)

    def orders(self, scenario: Scenario) -> Orders | Untied:
        """Answers of the store before or after what else happens at their instant: without, threads run in lock-step."""
        if scenario.loader.mode != "threads":
            return Untied(
                "each worker reads and decodes for itself, so the order of instants decides nothing"
            )
        inputs = prepare(scenario)
        return Orders(
            "each answer of the store comes up to 2 ns later, so that no two threads run in lock-step",
            lambda number: summarize(run(replace(inputs, tie_order=number))),
        )
