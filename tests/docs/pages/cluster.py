"""The page of the cluster domain."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from forerun.cluster.engine.plan_ahead import MOST_TRIED

from ..claims import Claim, constant, record

PAGE: Final = "docs/domains/cluster-reference.md"


def claims() -> Iterator[Claim]:
    page = PAGE
    yield Claim(page, "in clusters with up to {} jobs", (MOST_TRIED,))
    yield from _pollux(page)
    yield from _switches(page)


def _pollux(page: str) -> Iterator[Claim]:
    """The random search over seeds, beside what was published."""
    found, size = record("cluster-pollux"), constant("benchmarks/cluster/pollux.py", "SIZE")
    ratio, jct_s = constant("benchmarks/cluster/pollux.py", "PUBLISHED")
    yield Claim(page, "a population of {} over {} generations at every decision", (size, size))
    yield Claim(
        page,
        "it meets {} of the deadlines over {} seeds (95 % interval ±{}; {} to {}), published {}, and jobs complete after "
        "{} s in the mean (±{}), published {}",
        (
            found["ratio"],
            len(found["ratios"]),
            found["ratio_half"],
            min(found["ratios"]),
            max(found["ratios"]),
            ratio,
            found["jct_s"],
            found["jct_half_s"],
            jct_s,
        ),
    )
    greedy = found["greedy"]
    yield Claim(page, "the deterministic search meets {}, after {} s", (greedy["ratio"], greedy["jct_s"]))
    yield Claim(page, "{} us for each of {} plans", (found["child_us"], size * size))
    yield Claim(page, "(minutes: {} decisions a seed", (found["decisions"],))


def _switches(page: str) -> Iterator[Claim]:
    """What the sentences around the table of switches say."""
    found = record("cluster-switches")
    testbed, twin = constant("benchmarks/cluster/switches.py", "SCENES")
    gpus = [math.prod(map(int, re.findall(r"\d+", cluster))) for _, cluster, _, _ in (testbed, twin)]
    jobs = float(re.findall(r"(\d+)job", testbed[0])[0])

    def accepted(schedule: str, switch: str) -> list[float]:
        return [float(one["accepted"]) for one in found[schedule][switch]]

    elastic, published = accepted("ef-accessctrl", "all"), found["ef-accessctrl"]["published"]
    edf = accepted("edf-accessctrl", "all")
    yield Claim(page, "({} jobs on {} A100 / its twin on {} T4)", (jobs, *gpus))
    yield Claim(
        page,
        "accepts {} of the {} jobs on {} T4, *more* than ElasticFlow as published ({})",
        (accepted("edf-accessctrl", "max_gpus_rule")[1], jobs, gpus[1], published[1]["accepted"]),
    )
    yield Claim(
        page,
        "corrected in full accepts {} on {} A100 against {} for corrected EDF with admission control, and {} on {} T4 "
        "against {};",
        (elastic[0], gpus[0], edf[0], elastic[1], gpus[1], edf[1]),
    )
    yield Claim(page, "where as published {} of {} do", (published[0]["met"], published[0]["accepted"]))


ONE_BY_ONE: Final = "tests/cluster/test_published_elastic.py::test_admission_one_by_one"
MEDIANS: Final = "tests/cluster/test_costs.py::test_the_published_medians_on_the_testbed_trace"

#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        "docs/domains/cluster-reference.md",
        "| schedule |",
    ): "tests/docs/test_figures.py::test_switches_do_what_their_record_says",
    (PAGE, "the 195-job trace, corrected,"): MEDIANS,
    (PAGE, "the formula's overhead is 0.28 % of all GPU time under ElasticFlow, the table's 0.27 %"): MEDIANS,
    (PAGE, "(178 deadlines met either way, mean completion 16,975 and 17,083 s)"): MEDIANS,
    (
        PAGE,
        "under Themis, where jobs also keep their GPUs to the end of their last slot, "
        "0.093 % and 0.066 % (81 met either way), under Gandiva 0.077 % and 0.030 % (59 and 60)",
    ): MEDIANS,
    (PAGE, "No job was late of 4,609 jobs admitted in 520 random settings"): (
        "tests/cluster/test_admitted_in_time.py::test_no_admitted_job_is_late_in_random_settings"
    ),
    (PAGE, "nor of 13,300 in 1,500 settings chosen to break the promise"): (
        "tests/cluster/test_irregular_clusters.py::test_no_admitted_job_is_late_and_no_run_fails"
    ),
    (PAGE, "(nodes of 1 to 12 GPUs, counts that are no powers of two, slots of 1 to 240 s,"): (
        "tests/cluster/test_irregular_clusters.py::test_no_admitted_job_is_late_and_no_run_fails"
    ),
    (PAGE, "bumpy and superlinear tables, changes of up to 1,800 s)"): (
        "tests/cluster/test_irregular_clusters.py::test_no_admitted_job_is_late_and_no_run_fails"
    ),
    (PAGE, "The 195 jobs on 16 nodes of 6 GPUs: 170 admitted, all in time; on 16 nodes of 5 GPUs: 167."): (
        "tests/cluster/test_irregular_clusters.py::test_the_testbed_trace_on_nodes_that_cannot_be_halved"
    ),
    (
        PAGE,
        "Of the first 25 jobs of the 195, on 32 GPUs, ElasticFlow as published accepts 18, and 22",
    ): ONE_BY_ONE,
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    (PAGE, "| name |"),
    (PAGE, "Alibaba (PAI 2020, pods 2023, GPU jobs 2026)"),
    (PAGE, "on 128 A100: the formula's"),
    (PAGE, "job 3 on four GPUs of node 0 and two of node 1, job 7 where the placement puts it"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
