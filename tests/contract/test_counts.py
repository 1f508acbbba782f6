"""Counts in a scenario that no run would come to the end of: refused with what they cost and what is simulated."""

from __future__ import annotations

import pytest

import forerun
from forerun.core.errors import ScenarioError


@pytest.mark.parametrize(
    ("domain", "overrides", "where", "said"),
    [
        (
            "energy",
            ["trials=3000000"],
            "$.trials",
            r"60 recurrences take about 3\.3 hours or more; at most 20,000,000 recur",
        ),
        ("energy", ["trials=1" + "0" * 18], "$.trials", r"hours or more; at most 20,000,000 recurrences"),
        (
            "energy",
            ["recurrences=1000000000"],
            "$.recurrences",
            r"take about 18\.1 hours; at most 1,000,000 are simulated",
        ),
        (
            "spot",
            ["trials=10000000", "horizon=2400h"],
            "$.trials",
            r"changes each take about [\d,.]+ hours; at most 1e\+10",
        ),
        (
            "loading",
            ["jobs=4096", "run.epochs=1000"],
            "$.run.epochs",
            r"81,920,000,000 samples .* at most 1,000,000,000 are",
        ),
        (
            "cluster",
            ["trace.generate.jobs=1000000000"],
            "$.trace.generate.jobs",
            r"is not between 1 and 10,000,000",
        ),
    ],
)
def test_a_count_without_end_is_refused_with_its_cost(
    domain: str, overrides: list[str], where: str, said: str
) -> None:
    path = forerun.demo(domain).scenario
    with pytest.raises(ScenarioError, match=said) as refused:
        forerun.simulate(forerun.load(path, overrides))
    assert where in str(refused.value)


@pytest.mark.parametrize(
    ("domain", "overrides"),
    [
        ("spot", ["trials=10000000"]),
        ("loading", ["run.epochs=1000"]),
        ("cluster", ["trace.generate.jobs=10000000"]),
    ],
)
def test_what_ends_in_a_while_is_read(domain: str, overrides: list[str]) -> None:
    forerun.load(forerun.demo(domain).scenario, overrides)


def test_microbatches_of_a_pipeline_are_bounded() -> None:
    text = "domain: energy\npipeline: {file: stages.csv, microbatches: 1000000000, blocked_power_w: 70}\n"
    with pytest.raises(ScenarioError, match="is not between 1 and 10,000"):
        forerun.loads(text)
