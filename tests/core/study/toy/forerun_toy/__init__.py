"""A domain of one sum, so that studies are tested apart from any real domain: it adds, waits, fails and dies on request."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import msgspec

from forerun.core.domain import Answer, Domain, Explainer, WhatIf
from forerun.core.errors import Problem, ScenarioError
from forerun.core.result.ledger import Ledger
from forerun.core.result.objective import Objective
from forerun.core.result.run import Result
from forerun.core.rng import stream
from forerun.core.scenario.spec import Spec


class Scenario(Spec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Adds `x` and `y`; `noise` scales what the seed draws, `path_noise` what the path does.

    `misfortune` is what goes wrong when x is `unlucky_x`.
    """

    domain: Literal["toy"] = "toy"
    spec_version: int = 1
    seed: int = 0
    x: float = 1.0
    y: Annotated[float, msgspec.Meta(ge=0)] = 2.0
    noise: float = 0.0
    path: int = 0
    path_noise: float = 0.0
    policy: Literal["plain", "half"] = "plain"
    unlucky_x: float = -1.0
    misfortune: Literal["error", "bug", "hang", "die", "memory"] = "error"
    sleep_s: float = 0.0


class Observer(Protocol):
    """Nothing can be observed in a sum."""


class ToyExplainer(Explainer[Scenario]):
    """The toy's question: is the total at most 3 seconds?"""

    def answer(self, summary: Mapping[str, Any]) -> Answer:
        """Whether the total is small."""
        return Answer("Is the total at most 3 s?", summary["total_s"] <= 3)

    def what_ifs(self, scenario: Scenario, run: Any) -> tuple[WhatIf, ...]:
        """Less or more of x, of y, and a parameter whose first value is rejected."""
        return (
            WhatIf("sleep_s", 0.0, (0.001, 0.002), "sleep"),
            WhatIf("y", scenario.y, (-1.0, scenario.y + 0.5, scenario.y + 2), "y"),
            WhatIf("x", scenario.x, (scenario.x + 0.5, scenario.x + 1), "x"),
        )


@dataclass(frozen=True)
class Sum:
    """The outcome: both terms, and the noise."""

    scenario: Scenario
    x: float
    y: float
    noise: float


class Toy(Domain[Scenario, Scenario, Sum]):
    """A domain of one sum."""

    name = "toy"
    scenario_type = Scenario
    observer_type = Observer
    policy_kinds: Mapping[str, Any] = {}
    objectives = (
        Objective("total_s", "lower", "total time"),
        Objective("cost_usd", "lower", "cost in USD"),
    )

    def prepare(self, scenario: Scenario) -> Scenario:
        """There is nothing to read."""
        return scenario

    def run(self, inputs: Scenario, *, observers: Sequence[Any] = ()) -> Sum:
        """The sum, with noise common to all variants of a seed, and a little of its own."""
        scenario = inputs
        if scenario.x == scenario.unlucky_x:
            _fall(scenario.misfortune)
        if scenario.sleep_s:
            time.sleep(scenario.sleep_s)
        common, own = (
            stream(scenario.seed, "common").normal(),
            stream(scenario.seed, "own", scenario.policy).normal(),
        )
        noise = scenario.noise * (common + 0.1 * own)
        if scenario.path_noise:
            noise += scenario.path_noise * float(stream(scenario.path, "path").normal())
        return Sum(scenario, scenario.x, scenario.y / 2 if scenario.policy == "half" else scenario.y, noise)

    def summarize(self, outcome: Sum) -> Result:
        """The total and its parts; half a policy asks for as much, and gets it sooner."""
        scenario = outcome.scenario
        ledger = Ledger("time", "s", outcome.x + outcome.y, {"x": outcome.x, "y": outcome.y})
        summary = {
            "total_s": outcome.x + outcome.y + outcome.noise,
            "x": outcome.x,
            "cost_usd": 20 - scenario.x - scenario.y,
        }
        return Result(scenario, summary, ledgers=(ledger,), why="it adds up")

    @property
    def explainer(self) -> ToyExplainer:
        """What explains a run."""
        return ToyExplainer()


DOMAIN = Toy()


def _fall(misfortune: str) -> None:
    if misfortune == "error":
        raise ScenarioError(Problem("toy", "x is unlucky"))
    if misfortune == "bug":
        raise ZeroDivisionError("a bug of the domain")
    if misfortune == "hang":
        time.sleep(3600)
    if misfortune == "memory":
        raise MemoryError
    os.kill(os.getpid(), signal.SIGKILL)
