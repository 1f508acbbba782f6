"""vLLM's own scheduler beside ours, on workloads that chose nothing: ``make validate-vllm``."""

from __future__ import annotations

import os

import pytest

from validation.vllm.differences import compare, releases
from validation.vllm.environment import HOME, prepare

#: beyond those of the record
SEEDS = range(5_000, 5_040)

pytestmark = pytest.mark.skipif(
    not HOME.exists() and "FORERUN_VLLM" not in os.environ,
    reason="vLLM (3.5 GB) is not installed: make validate-vllm does that",
)


@pytest.fixture(scope="module")
def newest() -> str:
    version = releases()[0]
    prepare(version)
    return version


def test_the_newest_version(newest: str) -> None:
    """Step for step; and budgets or seats are often full."""
    for found in compare(newest, SEEDS).values():
        assert found.different == 0, found.examples
        assert found.full > 0.1 * found.steps


@pytest.mark.parametrize("version", releases()[1:])
def test_earlier_versions(version: str, newest: str) -> None:
    """Four workloads of each mode."""
    for found in compare(version, SEEDS[:4]).values():
        assert found.different == 0, found.examples
