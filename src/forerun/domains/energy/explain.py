"""The room's question, what a user can turn to change its answer, and what each oddity of the reference does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.domain import Answer, Change, Explainer, Orders, Untied, WhatIf
from forerun.domains.energy.model import Rules
from forerun.domains.energy.policy import KnobRecipe
from forerun.domains.energy.scenario import Scenario
from forerun.registry import member_name
from forerun.result.run import Result, SavedRun

#: policies that stand for what others would do: both knobs at the default, the best in hindsight, learning, search
OTHERS = ("pruning-gts", "joint", "grid", "default", "oracle")
LIMITS = ("jit", "least-energy", "max-slowdown", "max-limit")


def answer(summary: Mapping[str, Any]) -> Answer:
    """Whether energy is saved at no cost in time; without a default, whether choosing costs little over the oracle."""
    if "energy_saved_percent" in summary:
        saved, time_saved = summary["energy_saved_percent"], summary["time_saved_percent"]
        holds = saved is not None and time_saved is not None and saved > 0 and time_saved >= 0
        return Answer("Is energy saved against the default configuration without training longer?", holds)
    ratio = summary.get("cost_ratio_to_oracle")
    if ratio is not None:
        return Answer("Is the cost, with all that was tried, within 10 % of the oracle's?", ratio <= 1.1)
    return Answer("Did every attempt reach its target?", summary["failed_attempts"] == 0)


def what_ifs(scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
    """The weight of energy, the bound, how often the job comes back, the GPU, and who chooses."""
    found = []
    if scenario.pipeline is not None:
        slowdown = scenario.goal.max_slowdown
        return (
            WhatIf(
                "goal.max_slowdown",
                slowdown,
                tuple(other for other in (1.0, 1.05, 1.1, 1.2, 1.5) if other != slowdown),
                "times the iteration at the highest frequencies",
            ),
        )
    eta = scenario.eta
    etas = sorted({0.0, 0.25, 0.5, 0.75, 1.0} - {eta}, key=lambda other: abs(other - eta))
    found.append(WhatIf("eta", eta, tuple(etas), "weight of energy against time"))
    if scenario.early_stopping:
        bounds = (scenario.beta * share for share in (1.25, 1.5, 2.0, 0.75, 0.6))
        found.append(
            WhatIf(
                "beta",
                scenario.beta,
                tuple(bound for bound in bounds if bound >= 1),
                "bound of an attempt, in best costs",
            )
        )
    if scenario.group is None:
        now = int(run.summary["recurrences"])
        times = tuple(dict.fromkeys(max(1, round(now * share)) for share in (1.5, 2, 4, 8, 0.5)))
        found.append(
            WhatIf("recurrences", now, tuple(count for count in times if count != now), "recurrences")
        )
    policy = member_name(type(scenario.policy))
    found.append(WhatIf("policy", policy, tuple(name for name in OTHERS if name != policy), "policy"))
    if not isinstance(scenario.policy, KnobRecipe):
        limit = member_name(type(scenario.limit_policy))
        names = tuple(name for name in LIMITS if name != limit)
        found.append(WhatIf("limit_policy", limit, names, "power limit policy"))
    gpus = tuple(name for name in scenario.trace.power if name != scenario.gpu_type)
    if gpus:
        found.append(WhatIf("gpu", scenario.gpu_type, gpus, "GPU type"))
    return tuple(found)


def changes(scenario: Scenario, run: Result | SavedRun) -> tuple[Change, ...]:
    """In compat mode, each switch of the reference's arithmetic put right alone."""
    if scenario.mode != "compat":
        return ()
    given = scenario.switches
    return tuple(
        Change(f"rules.{name}", True, name.replace("_", " "))
        for name in Rules.__struct_fields__
        if not getattr(given, name)
    )


class EnergyExplainer(Explainer[Scenario]):
    """The energy domain's question, its what-if parameters and its other orders of events."""

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """See `answer`."""
        return answer(summary)

    def what_ifs(self, scenario: Scenario, run: Result | SavedRun) -> tuple[WhatIf, ...]:
        """See `what_ifs`."""
        return what_ifs(scenario, run)

    def changes(self, scenario: Scenario, run: Result | SavedRun) -> tuple[Change, ...]:
        """See `changes`."""
        return changes(scenario, run)

    def orders(self, scenario: Scenario) -> Orders | Untied:
        """See `forerun.domains.energy.ties.orders`."""
        from forerun.domains.energy.ties import orders

        return orders(scenario)
