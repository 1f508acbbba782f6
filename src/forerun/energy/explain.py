"""The domain's question, its what-if parameters, the effect of each known bug, and other orders of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np

from forerun.core.domain import Answer, Change, Explainer, Orders, Untied, WhatIf
from forerun.core.registry import member_name
from forerun.core.result.run import Result, SavedRun
from forerun.core.rng import stream
from forerun.energy import engine, inputs, summary
from forerun.energy.inputs.workload import Submission
from forerun.energy.policy import KnobSpec
from forerun.energy.policy.rules import Rules
from forerun.energy.scenario import Scenario

T = TypeVar("T")

#: by how much a submission moves to come before or after what ends at its instant [s]: far below the length of any
#: attempt, far above the rounding of times up to some years
SHIFT_S: Final = 1e-6
#: policies worth trying: learning, our own, search, the default configuration, the best in hindsight
OTHERS = ("pruning-gts", "joint", "grid", "default", "oracle")
LIMITS = ("jit", "least-energy", "max-slowdown", "max-limit")


def _others(path: str, present: T, values: Iterable[T], meaning: str) -> WhatIf:
    """A what-if parameter with those of the values that are not the present one."""
    return WhatIf(path, present, tuple(value for value in values if value != present), meaning)


class EnergyExplainer(Explainer[Scenario]):
    """Explains runs of the energy domain."""

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """Whether energy is saved at no cost in time; without a default, whether learning costs little over the oracle."""
        if "energy_saved_percent" in summary:
            saved, time_saved = summary["energy_saved_percent"], summary["time_saved_percent"]
            yes = saved is not None and time_saved is not None and saved > 0 and time_saved >= 0
            return Answer("Is energy saved against the default configuration without training longer?", yes)
        ratio = summary.get("cost_ratio_to_oracle")
        if ratio is not None:
            return Answer("Is the cost, with all that was tried, within 10 % of the oracle's?", ratio <= 1.1)
        return Answer("Did every attempt reach its target?", summary["failed_attempts"] == 0)

    def what_ifs(self, scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """The weight of energy, the bound, the number of recurrences, the GPU type, and the policies.

        For a pipeline, how much longer an iteration may take.
        """
        if scenario.pipeline is not None:
            slowdowns, meaning = (1.0, 1.05, 1.1, 1.2, 1.5), "times the iteration at the highest frequencies"
            return (_others("goal.max_slowdown", scenario.goal.max_slowdown, slowdowns, meaning),)
        eta, policy = scenario.eta, member_name(type(scenario.policy))
        etas = sorted({0.0, 0.25, 0.5, 0.75, 1.0} - {eta}, key=lambda other: abs(other - eta))
        what_ifs = [_others("eta", eta, etas, "weight of energy against time")]
        if scenario.early_stopping:
            bounds = [scenario.beta * share for share in (1.25, 1.5, 2.0, 0.75, 0.6)]
            possible = [bound for bound in bounds if bound >= 1]
            what_ifs.append(_others("beta", scenario.beta, possible, "bound of an attempt, in best costs"))
        if scenario.group is None:
            now = int(run.summary["recurrences"])
            times = dict.fromkeys(max(1, round(now * share)) for share in (1.5, 2, 4, 8, 0.5))
            what_ifs.append(_others("recurrences", now, times, "recurrences"))
        what_ifs.append(_others("policy", policy, OTHERS, "policy"))
        if not isinstance(scenario.policy, KnobSpec):
            limit = member_name(type(scenario.limit_policy))
            what_ifs.append(_others("limit_policy", limit, LIMITS, "power limit policy"))
        gpus = _others("gpu", scenario.gpu_type, scenario.trace.power, "GPU type")
        return (*what_ifs, gpus) if gpus.values else tuple(what_ifs)

    def changes(self, scenario: Scenario, run: Result | SavedRun) -> tuple[Change, ...]:
        """In compat mode, each known bug of the published simulator fixed by itself."""
        if scenario.mode != "compat":
            return ()
        given = scenario.switches
        return tuple(
            Change(f"rules.{name}", True, name.replace("_", " "))
            for name in Rules.__struct_fields__
            if not getattr(given, name)
        )

    def orders(self, scenario: Scenario) -> Orders | Untied:
        """Submissions of a group that start together in another order, before or after what ends at their instant."""
        if scenario.group is None:
            return Untied("recurrences follow one another, so no two things happen at one instant")
        what = (
            "submissions of one instant change places, and come before or after the attempts that end at it"
        )

        def simulate(number: int) -> Result:
            job = inputs.read_job(scenario)
            rows = permuted(job.submissions, scenario.seed, number)
            return summary.summarize(engine.run(replace(job, submissions=rows)))

        return Orders(what, simulate)


def permuted(rows: tuple[Submission, ...], seed: int, number: int) -> tuple[Submission, ...]:
    """The submissions in another order.

    Each start is moved by `SHIFT_S` or not at all, and those of one instant are permuted. A submission keeps its length:
    its end moves as its start does. number: of the order; the same number is the same order.
    """
    starts = np.array([row.start_s for row in rows])
    draws = stream(seed, "ties", number)
    _, group = np.unique(starts, return_inverse=True)
    shift = draws.integers(-1, 2, size=len(rows))[group] * SHIFT_S
    within = -np.arange(len(rows)) if number == 0 else draws.random(len(rows))
    order = np.lexsort((within, starts + shift))
    return tuple(
        Submission(rows[at].start_s + shift[at], rows[at].end_s + shift[at], rows[at].runtime_ratio)
        for at in order.tolist()
    )
