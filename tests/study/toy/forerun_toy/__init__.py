"""A room of one sum, so that studies are tested apart from any real room: it adds, waits, fails and dies when told to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

from forerun.errors import Problem, ScenarioError
from forerun.result.ledger import Ledger
from forerun.result.run import Result
from forerun.rng import stream
from forerun.scenario.spec import Spec
from forerun.study.objective import Objective

POLICIES: dict[str, Any] = {}
OBJECTIVES = (Objective("total_s", "lower", "total time"), Objective("cost_usd", "lower", "cost in USD"))


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


def simulate(scenario: Scenario, *, policy: Any = None, watch: Iterable[Any] = ()) -> Result:
    """The sum, with noise common to all variants of a seed, and a little of its own."""
    if scenario.x == scenario.unlucky_x:
        _fall(scenario.misfortune)
    if scenario.sleep_s:
        time.sleep(scenario.sleep_s)
    common, own = (
        stream(scenario.seed, "common").normal(),
        stream(scenario.seed, "own", scenario.policy).normal(),
    )
    y = scenario.y / 2 if scenario.policy == "half" else scenario.y
    shaken = scenario.noise * (common + 0.1 * own)
    if scenario.path_noise:
        shaken += scenario.path_noise * float(stream(scenario.path, "path").normal())
    ledger = Ledger("time", "s", scenario.x + y, {"x": scenario.x, "y": y})
    # What is asked for costs; half a policy asks for as much and gets it sooner.
    summary = {"total_s": scenario.x + y + shaken, "x": scenario.x, "cost_usd": 20 - scenario.x - scenario.y}
    return Result(scenario, summary, ledgers=(ledger,), why="it adds up")


def _fall(misfortune: str) -> None:
    if misfortune == "error":
        raise ScenarioError(Problem("toy", "x is unlucky"))
    if misfortune == "bug":
        raise ZeroDivisionError("a bug of the room")
    if misfortune == "hang":
        time.sleep(3600)
    if misfortune == "memory":
        raise MemoryError
    os.kill(os.getpid(), signal.SIGKILL)
