"""Language models in the serving domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from forerun.serving.llm.engine.kernels.gaps import PER_OCTAVE

from ..claims import Claim, Within

PAGE: Final = "docs/domains/serving-llm-reference.md"


def claims() -> Iterator[Claim]:
    # A quantile is reported as the middle of its cell, whose error is largest for the first cell of an octave.
    yield Claim(PAGE, "quantiles within {} %", (Within(most=100 * 0.5 / PER_OCTAVE),))


_MEDIANS = "tests/serving/test_llm_medians.py"

#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (PAGE, "should cover 90 %"): "tests/serving/test_calibration.py::test_intervals_cover_what_they_should",
    (
        PAGE,
        "iterations 5 % longer and shorter",
    ): "tests/serving/test_calibration.py::test_intervals_cover_what_they_should",
    (
        PAGE,
        "7 to 70 billion parameters, one to four accelerators) reported blocks within 0.2 %",
    ): "tests/serving/test_llm_memory.py::test_blocks_are_those_that_servers_reported",
    (
        PAGE,
        "yields (1 − a^(k+1)) / (1 − a) tokens on average",
    ): "tests/serving/test_llm_speculation.py::test_steps_yield_what_the_law_says",
    (PAGE, "| |"): f"{_MEDIANS}::test_points_left_out_are_estimated_from_their_neighbours",
    (
        PAGE,
        "(12 pairs of a model and a machine, 132 points;",
    ): f"{_MEDIANS}::test_points_left_out_are_estimated_from_their_neighbours",
    (
        PAGE,
        "Llama 2 on two GPUs falls from batch 32 to 64",
    ): f"{_MEDIANS}::test_less_time_for_more_work_is_noted_and_taken_as_measured",
    (
        PAGE,
        "Llama 2 on two GPUs that the summary leaves out (1,024 and 4,096 tokens, batches of 4 and 16), where gaps are "
        "fourfold, are within 4.4 % (prompts) and 5.7 % (tokens)",
    ): f"{_MEDIANS}::test_points_that_the_summary_leaves_out",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    (PAGE, "| key |"),
    (PAGE, "vLLM does so by default since 0.14"),
    (PAGE, "a 90th percentile of at most 500 ms"),
    (PAGE, "off by 2.5 % and its 99th percentile by 33 % in the median of cases"),
    (PAGE, "a stage below 1 may still fall behind"),
    (PAGE, "Known are H100-80GB, H100-PCIe-80GB"),
    (PAGE, "of the layouts 1 and 2, each benchmark"),
    (PAGE, "with 0.3 GiB for libraries and 0.35 GiB more"),
    (PAGE, "A token's keys and values take 2 · layers · kv_heads · head_dim"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
