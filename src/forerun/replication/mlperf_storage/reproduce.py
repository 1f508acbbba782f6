"""MLPerf Storage v1.0: utilisation from throughput, and each result from the other results of its system."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.data import dataset
from forerun.replication.mlperf_storage.model import (
    Span,
    limit_of,
    misses,
    most_that_pass,
    simulated,
    span_of,
    widened,
)
from forerun.replication.mlperf_storage.results import Result, read_results, read_workloads
from forerun.result.figures import Axis, Figure, from_points
from forerun.result.reproduction import Progress, Reproduced, Reproduction, Row

#: of the intervals, and by how many points it may be missed
COVERAGE: Final = 0.9
COVERAGE_POINTS: Final = 5.0
#: results that are named because they are furthest off
NAMED: Final = 5


@dataclass(frozen=True)
class Judged:
    """A result, its interval from the other results of its system, and one from the benchmark's rule alone.

    Parameters
    ----------
    result : as published.
    span : without widening; None where its system has no other result.
    widened, by_rule : 90 % intervals, widened by the results of all other systems.
    """

    result: Result
    span: Span | None
    widened: Span | None
    by_rule: Span


def published() -> tuple[Result, ...]:
    """The results of the registry's file. Raises DataError where it is absent or damaged."""
    workloads = read_workloads(dataset("loading/mlperf/workloads.csv"))
    return read_results(dataset("loading/mlperf/storage_v1_0.csv"), workloads)


def judged(results: Sequence[Result], limits: dict[str, float]) -> tuple[Judged, ...]:
    """Every result with its intervals; how far these are widened is learned from other systems alone.

    Parameters
    ----------
    results : of several systems; each workload of ten others at least, for the widening to be learned from.
    limits : `limit_of` each, by label.
    """
    spans = [span_of(one, results, limits) for one in results]
    rules = [Span(one.ideal_mib_per_s * one.workload.required, one.ideal_mib_per_s) for one in results]

    def learned(one: Result, of: Sequence[Span | None]) -> list[float]:
        """How far results of the same workload of other systems lie outside their intervals."""
        return [
            misses(span, other.mib_per_s)
            for span, other in zip(of, results)
            if span is not None and other.system != one.system and other.workload.name == one.workload.name
        ]

    found = []
    for one, span, rule in zip(results, spans, rules):
        most = one.ideal_mib_per_s
        wide = None if span is None else widened(span, learned(one, spans), COVERAGE, most)
        found.append(Judged(one, span, wide, widened(rule, learned(one, rules), COVERAGE, most)))
    return tuple(found)


def inside(spans: Iterable[tuple[Result, Span]]) -> float:
    """The share of results inside their intervals [%]."""
    held = [span.low <= one.mib_per_s <= span.high for one, span in spans]
    return 100 * sum(held) / len(held)


def mlperf_storage(progress: Progress) -> Reproduced:
    """mlperf-storage: 98 results of 15 systems, each simulated from its own workload, accelerators, hosts and threads.

    Published are throughput and utilisation. First, the link that gives a result its throughput gives a utilisation too,
    which is compared with the reported one: the first step of an epoch is in the one and not in the other. Second, each
    result is predicted from the other results of its system. [MLCommons, MLPerf Storage v1.0 results, 2024.]

    Parameters
    ----------
    progress : called with each part.
    """
    results = published()
    progress(f"the link of each of {len(results)} results")
    limits = {one.label: limit_of(one) for one in results}
    rows = _utilisation_rows(results, limits)
    progress("every result from the others of its system")
    every = judged(results, limits)
    rows += _coverage_rows(every)
    progress("A100 from H100")
    rows += _pair_rows(results, limits)
    rows += _failing_rows(every)
    notes = (
        "the files print MB and mean MiB; the reported utilisation leaves out the first step of each epoch, the throughput "
        "does not; two pairs of ids share drives or servers and count as one system",
        "record sizes are products of two normal sides, as the benchmark draws them: they vary less than is configured",
        "intervals: the others' waiting explained by a shared link, or by each accelerator's own time; widened by how far "
        "results of the same workload of all other systems lay outside theirs (split conformal, 90 %)",
        "the benchmark's rule alone: what counts has the required utilisation. With its own number of accelerators known, a "
        "result says little more than this number; a store's other results bound it no closer",
        "not modelled: latency, processors of the hosts, and an accelerator's own time, which is why cosmoflow, with steps "
        "of a few milliseconds, is explained by a link that is none",
    )
    return Reproduced(tuple(rows), (_utilisations(results, limits), _intervals(every)), notes)


def _utilisation_rows(results: Sequence[Result], limits: dict[str, float]) -> list[Row]:
    """Mean and worst error of the simulated utilisation, beside that of the throughput's share."""
    rows = []
    for name in sorted({one.workload.name for one in results}):
        own = [one for one in results if one.workload.name == name]
        ours = [100 * abs(_utilisation(one, limits) - one.utilisation) for one in own]
        plain = [100 * abs(one.busy - one.utilisation) for one in own]
        note = (
            f"{len(own)} results; the share of the throughput itself is {statistics.fmean(plain):.2f} off, "
            f"{max(plain):.2f} at most"
        )
        what = f"{name}: utilisation from throughput, mean error, points"
        rows.append(Row.unpublished(what, corrected=statistics.fmean(ours), note=note))
        worst = max(own, key=lambda one: abs(_utilisation(one, limits) - one.utilisation))
        rows.append(Row(
            f"{name}: utilisation furthest off, %", 100 * worst.utilisation, None, 100 * _utilisation(worst, limits),
            None, worst.label,
        ))  # fmt: skip
    return rows


def _utilisation(result: Result, limits: dict[str, float]) -> float:
    return simulated(result, limits[result.label]).utilisation


def _coverage_rows(every: Sequence[Judged]) -> list[Row]:
    """Coverage and width of the intervals, beside those of the rule alone."""
    known = [(one.result, one.widened) for one in every if one.widened is not None]
    bare = [(one.result, one.span) for one in every if one.span is not None]
    rule = [(one.result, one.by_rule) for one in every]
    widths = [span.high / span.low for _, span in known]
    systems: Counter[str] = Counter(one.system for one, _ in known)
    rows = [
        Row(
            "results inside their 90 % interval from the others of their system, %", 100 * COVERAGE, None, inside(known),
            COVERAGE_POINTS, f"{len(known)} results of {len(systems)} systems; without widening {inside(bare):.1f} %",
        ),
        Row.unpublished(
            "width of these intervals: high over low, median", corrected=statistics.median(widths),
            note=f"mean {statistics.fmean(widths):.3f}, widest {max(widths):.3f}",
        ),
        Row.unpublished(
            "results inside a 90 % interval from the benchmark's rule alone, %", corrected=inside(rule),
            note=f"width {statistics.median(span.high / span.low for _, span in rule):.3f} in the median",
        ),
    ]  # fmt: skip
    for name in sorted({one.workload.name for one, _ in known}):
        own = [(one, span) for one, span in known if one.workload.name == name]
        width = statistics.median(span.high / span.low for _, span in own)
        note = f"{len(own)} results, median width {width:.3f}"
        rows.append(Row.unpublished(f"{name}: results inside, %", corrected=inside(own), note=note))
    return rows


def _pair_rows(results: Sequence[Result], limits: dict[str, float]) -> list[Row]:
    """How many A100 pass, from the result of the same system, workload and hosts with H100."""
    pairs = [
        (h100, a100)
        for h100 in results
        for a100 in results
        if (h100.name, h100.workload.name, h100.hosts) == (a100.name, a100.workload.name, a100.hosts)
        and (h100.workload.accelerator, a100.workload.accelerator) == ("h100", "a100")
    ]

    def by_link(h100: Result, a100: Result) -> float:
        return h100.mib_per_s / a100.workload.ideal_mib_per_s / a100.workload.required

    def by_ratio(h100: Result, a100: Result) -> float:
        return h100.accelerators * a100.workload.computation_s / h100.workload.computation_s

    def by_simulation(h100: Result, a100: Result) -> float:
        return most_that_pass(a100, limits[h100.label])

    predictions = {
        "a bare link": by_link, "the ratio of computation times": by_ratio, "simulation": by_simulation
    }  # fmt: skip
    rows = []
    for name, predicted in predictions.items():
        errors = [100 * abs(predicted(*pair) / pair[1].accelerators - 1) for pair in pairs]
        note = f"{len(pairs)} pairs; mean {statistics.fmean(errors):.1f}, worst {max(errors):.1f}"
        what = f"A100 that pass, from H100, by {name}: median error, %"
        rows.append(Row.unpublished(what, corrected=statistics.median(errors), note=note))
    return rows


def _failing_rows(every: Sequence[Judged]) -> list[Row]:
    """Results outside their intervals, the furthest first, and those of which nothing else is known."""
    rows = []
    outside = [(misses(one.widened, one.result.mib_per_s), one) for one in every if one.widened is not None]
    for off, one in sorted(outside, key=lambda each: -each[0])[:NAMED]:
        if off > 0 and one.widened is not None:
            rows.append(Row(
                f"outside: {one.result.label}, MiB/s", one.result.mib_per_s, None,
                one.widened.low if one.result.mib_per_s < one.widened.low else one.widened.high, None,
                f"interval {one.widened.low:.0f} to {one.widened.high:.0f}; the nearer end is shown",
            ))  # fmt: skip
    alone = [one.result.label for one in every if one.span is None]
    if alone:
        rows.append(
            Row.unpublished("results whose system has no other", corrected=len(alone), note="; ".join(alone))
        )
    return rows


def _utilisations(results: Sequence[Result], limits: dict[str, float]) -> Figure:
    """Reported against simulated utilisation."""
    points = [
        (100 * one.utilisation, 100 * _utilisation(one, limits), one.workload.name, one.label)
        for one in results
    ]
    return Figure(
        id="mlperf-storage-utilisation",
        title="Utilisation simulated from the published throughput",
        kind="points",
        x=Axis("reported", "reported utilisation", "%"),
        y=Axis("simulated", "simulated utilisation", "%"),
        data=from_points(("reported", "simulated", "workload", "result"), points),
        series="workload",
        series_label="workload",
        equal=True,
    )


def _intervals(every: Sequence[Judged]) -> Figure:
    """Where results lie in their intervals: published throughput over both ends."""
    points = [
        (one.result.mib_per_s, end, kind)
        for one in every
        if one.widened is not None
        for kind, end in (("low", one.widened.low), ("high", one.widened.high))
        if math.isfinite(end)
    ]
    return Figure(
        id="mlperf-storage-intervals",
        title="Ends of the 90 % intervals from the other results of the system",
        kind="points",
        x=Axis("published", "published throughput", "MiB/s", log=True),
        y=Axis("end", "end of the interval", "MiB/s", log=True),
        data=from_points(("published", "end", "which"), points),
        series="which",
        series_label="end",
        equal=True,
    )


REPRODUCTIONS: Final = (
    Reproduction(
        "mlperf-storage",
        "Storage benchmark: utilisation from throughput, and results from the others of their system",
        "MLCommons: MLPerf Storage v1.0 results, 2024",
        mlperf_storage,
        ("mlperf_storage",),
        minutes=0.3,
    ),
)
