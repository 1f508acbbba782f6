"""The page of the serving domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from forerun.replication.inferline.notebook import SNAP_MS
from forerun.replication.inferline.tuner import FEWER_MISSES, PEAKS_DEARER, PHASE_S
from forerun.serving.plan import FRESH
from forerun.serving.plan.space import MAX_REPLICAS
from forerun.serving.plan.throughput import GRID
from forerun.serving.policies.inferline import InferLine
from forerun.serving.scenario import QUERY_BYTES, VISIT_BYTES, Intervals
from forerun.serving.scenario.limits import MOST_BYTES
from forerun.serving.summary.confidence import BATCHES

from ..claims import ROOT, Claim, constant, record

PAGE: Final = "docs/domains/serving-reference.md"


def claims() -> Iterator[Claim]:
    yield Claim(
        PAGE,
        "about {} bytes of memory a query, and {} more for each of its stages",
        (QUERY_BYTES, VISIT_BYTES),
    )
    yield Claim(PAGE, "take more than {} GiB by that estimate", (MOST_BYTES / 2**30,))
    yield from _plans()
    yield from _constants()
    yield from _tuners()
    yield from _reality()


def _plans() -> Iterator[Claim]:
    page = PAGE
    plan = record("serving-plan")
    yield Claim(
        page,
        "median {} ms, most {} ms, in total {} of the greedy's time with the same memory of stages",
        (plan["exact_median_ms"], plan["exact_max_ms"], plan["exact_over_greedy_total"]),
    )
    yield Claim(
        page,
        "`python benchmarks/serving/plan.py`, {} settings of {} queries",
        (plan["settings"], constant("benchmarks/serving/plan.py", "QUERIES")),
    )


def _constants() -> Iterator[Claim]:
    yield Claim(PAGE, "its snapping of times within {} ms", (SNAP_MS,))
    yield Claim(
        PAGE,
        "{} runs on fresh arrivals give a Student-t prediction interval for one run of this length; where a trace is "
        "replayed, batch means over {} consecutive parts",
        (Intervals().replications, BATCHES),
    )
    yield Claim(PAGE, "and the replicas (up to {})", (MAX_REPLICAS,))
    yield Claim(PAGE, "the highest rate, in steps of {} % from below", (100 * (GRID - 1),))
    yield Claim(PAGE, "it is then tried on {} more", (FRESH,))
    checker = ROOT / "src" / "forerun" / "serving" / "plan" / "checker.py"
    yield Claim(PAGE, "The checker, {} lines that share", (len(checker.read_text().splitlines()),))
    tuner = InferLine()
    yield Claim(
        PAGE,
        "at every whole multiple of `period` ({} s), up to the last arrival, between slices of the run and never "
        "inside one. It sees every arrival up to then; `ongoing` and `utilisation` see queues too. Replicas that it "
        "adds are active `activation` ({} s) later",
        (tuner.period_s, tuner.activation_s),
    )
    yield Claim(
        PAGE,
        "whose queries were sent more than {} ms late at the",
        (constant("validation/serving/fidelity.py", "MOST_LAG_MS"),),
    )


def _tuners() -> Iterator[Claim]:
    page, script, kept = PAGE, "benchmarks/serving/tuning.py", record("serving-tuning")
    (slow, fast), (least, most) = constant(script, "RATES_RPS"), constant(script, "RATIOS")
    scvs = constant(script, "SCVS")
    yield Claim(
        page,
        "draws {} steps of load ({} to {} queries/s, times {} to {} for {} s, squared coefficient of variation {} to "
        "{})",
        (kept["steps"], slow, fast, least, most, PHASE_S, min(scvs), max(scvs)),
    )
    own = kept["reproduction"]
    assert own["steps"] == 12, "the page says twelve"
    yield Claim(
        page,
        "on twelve such steps: {} times fewer misses than scaling by the mean rate (the paper: up to {}). That "
        "coarse-grained scaling by peaks costs more (up to {} times in the paper)",
        (
            own["misses of coarse-grained scaling by the mean rate over the tuner's, all loads"],
            FEWER_MISSES,
            PEAKS_DEARER,
        ),
    )
    tuners = kept["tuners"]
    labels = {
        "`inferline`": "inferline",
        "`inferline`, `scale_down_rho: per_model`": "inferline, per model",
        "`coarse`, mean rate": "coarse, mean",
        "`coarse`, peak of any second": "coarse, peak",
        "`rehearsal`": "rehearsal",
        "`rehearsal`, `headroom: 1.25`": "rehearsal, headroom 1.25",
    }
    for label, name in labels.items():
        one = tuners[name]
        yield Claim(
            page, f"| {label} | {{}} | {{}} | {{}} s |", (one["kept"], one["mean_cost"], one["run_s"])
        )


def _reality() -> Iterator[Claim]:
    script, found = "benchmarks/serving/reality.py", record("serving-reality")
    assert found["real_time_priority"], "the page says so"
    asleep, busy = found["sleeping"], found["computing"]

    def worst(rows: list[dict[str, float]], name: str) -> float:
        return max((row[name] for row in rows), key=abs)

    yield Claim(
        PAGE,
        "at real-time priority (`chrt -f`), load averages of {} to {}: the demonstration's pipeline with replicas "
        "that sleep, the worst of three runs of {} s at each load",
        (min(found["load_averages"]), max(found["load_averages"]), found["seconds"]),
    )
    by_load = {
        load: [row for row in asleep["rows"] if row["load"] == load] for load in constant(script, "LOADS")
    }
    for load, rows in by_load.items():
        assert len(rows) == constant(script, "REPEATS") == 3, "the page says three"
        values = tuple(100 * worst(rows, f"{quantile}_error") for quantile in ("p50", "p99"))
        real = [row["p99_measured_ms"] / 1e3 for row in rows]
        yield Claim(
            PAGE,
            f"| {load:g}{' (overload: real P99 {} to {} s)' if load > 1 else ''} | {{}} % | {{}} % | {{}} ms |",
            (*((min(real), max(real)) if load > 1 else ()), *values, worst(rows, "lag_p99_ms")),
        )
    yield Claim(PAGE, "Of the {} runs {} were disturbed.", (len(asleep["rows"]), asleep["disturbed"]))
    yield Claim(
        PAGE,
        "batches up to {}, loads of {}, {} and {}, {} s each, in the same run): P50 off by {}, {} and {} %, P99 by "
        "{}, {} and {} %; of the three runs {} were marked, with queries up to {} ms late",
        (
            constant(script, "MAX_BATCH"),
            *constant(script, "MODEL_LOADS"),
            constant(script, "MODEL_SECONDS"),
            *(100 * row["p50_error"] for row in busy["rows"]),
            *(100 * row["p99_error"] for row in busy["rows"]),
            busy["disturbed"],
            worst(busy["rows"], "lag_p99_ms"),
        ),
    )
    yield Claim(
        PAGE,
        "taken alone would have been wrong by up to {} %:",
        (100 * busy["in_place_over_alone"]["forest"],),
    )


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (
        PAGE,
        "on 600 random graphs",
    ): "tests/serving/test_engines_agree.py::test_event_loop_equals_stage_by_stage",
    (
        PAGE,
        "`misses_allowed` = ⌊(1 − attainment) · queries⌋",
    ): "tests/serving/test_scenario.py::test_allowed_misses_are_exact",
    (
        PAGE,
        "the notebook's run of 50,001 queries and its example driver. The notebook takes milliseconds per *query* "
        "for the time of a whole *batch*; with batch over throughput instead its P99 is 574.9 ms, not 137.4 ms",
    ): "tests/serving/test_result.py::test_reproductions_hold",
    (
        PAGE,
        "The cheapest plan is 3.3 $/h (one `gpu-big` with batches up to 16, one `gpu-small`), the greedy minimiser's "
        "3.6, what runs now 5.7; the next cheaper plan needs an objective of 234.4 ms",
    ): "tests/serving/test_plan_scenario.py::test_the_pipeline_of_ones_own_that_the_page_shows",
    (
        PAGE,
        "At 200 queries/s with squared coefficient of variation 4, a plan made from one trace of 20,000 queries kept "
        "the objective on 24 of 60 fresh ones; one made for 40 traces costs a tenth more and kept it on 60",
    ): "tests/serving/test_plan_golden.py::test_plans_for_many_traces_keep_their_promise_on_fresh_ones",
    (
        PAGE,
        "on 500 small spaces",
    ): "tests/serving/test_plan_exact.py::test_cheapest_equals_enumeration",
    (
        PAGE,
        "on 12 of 110,592 configurations",
    ): "tests/serving/test_plan_exact.py::test_cheapest_equals_enumeration_of_a_hundred_thousand",
    (
        PAGE,
        "On the 96 reference settings the greedy minimiser is optimal on 80 and up to 35 % above (it trades one V100 "
        "for two TXP and cannot go back: 6.433 against 4.761 $/h); the sweep answers 90",
    ): "tests/serving/test_plan_golden.py::test_how_often_the_published_optimisers_are_optimal",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    (PAGE, "| option |"),
    (PAGE, "| tuner |"),
    (PAGE, "`p99` (the measured 99th percentile)"),
    (PAGE, "while at most ⌊(1 − attainment) · queries⌋ queries miss"),
    (PAGE, "ms late at the 99th percentile"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = {
    (
        PAGE,
        "At ordinary priority on a machine with a load average of 12 queries were sent 4 to 270 ms late, all 15 runs "
        "were marked, and P50 was still within 5 % in ten of them and 41 % off in the worst; left alone (load "
        "average 0.1) it had none disturbed, P50 within 2.8 %, P99 within 2.8 % (median 1.5 %), overload within 1.4 "
        "and 1.6 %.",
    ),
}
