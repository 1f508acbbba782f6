"""The toy room's question: is the total at most 3 seconds?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.study.explain import Answer, Lever


def answer(summary: Mapping[str, Any]) -> Answer:
    """Whether the total is small."""
    return Answer("Is the total at most 3 s?", summary["total_s"] <= 3)


def levers(scenario: Any, run: Any) -> tuple[Lever, ...]:
    """Less or more of x, of y, and a lever that is refused."""
    return (
        Lever("sleep_s", 0.0, (0.001, 0.002), "sleep"),
        Lever("y", scenario.y, (-1.0, scenario.y + 0.5, scenario.y + 2), "y"),
        Lever("x", scenario.x, (scenario.x + 0.5, scenario.x + 1), "x"),
    )
