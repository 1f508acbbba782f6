"""MLPerf Storage v1.0: utilisation from throughput, and each result from the other results of its system."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.data import dataset
from forerun.replication.mlperf_storage import facts
from forerun.replication.mlperf_storage.limit import CONFIDENCE as COVERAGE
from forerun.replication.mlperf_storage.limit import fit_law, forecast
from forerun.replication.mlperf_storage.model import (
    Span,
    limit_of,
    misses,
    simulated,
    span_of,
    utilisations,
    widened,
)
from forerun.replication.mlperf_storage.results import Result, Workload, read_results, read_workloads, stops
from forerun.result.figures import Axis, Figure, Rule, from_points
from forerun.result.reproduction import Progress, Reproduced, Reproduction, Row

#: percentage points by which a coverage may differ from its level
COVERAGE_POINTS: Final = 5.0
#: results that are named because they are furthest off
NAMED: Final = 5


@dataclass(frozen=True)
class Judged:
    """A result, its intervals from the other results of its system, and one from the benchmark's rule alone.

    Parameters
    ----------
    result : as published.
    span : throughput without widening; None where its system has no other result.
    widened, by_rule : 90 % intervals of the throughput, widened by what other submitters' results need.
    """

    result: Result
    span: Span | None
    widened: Span | None
    by_rule: Span


@dataclass(frozen=True)
class Stopped:
    """The result with which a submitter stopped in a setting, and the interval of its rate.

    Parameters
    ----------
    result : as published.
    mib_per_s : forecast from the other results of its system.
    interval : of 90 %.
    """

    result: Result
    mib_per_s: float
    interval: Span

    @property
    def inside(self) -> bool:
        """Whether the rate lies in its interval."""
        return self.interval.low <= self.result.mib_per_s <= self.interval.high


def judged(results: Sequence[Result], limits: Mapping[Result, float]) -> tuple[Judged, ...]:
    """Every result with its intervals; how far these are widened is learned from other submitters alone.

    Parameters
    ----------
    results : of several submitters; each workload of ten others at least, for the widening to be learned from.
    limits : `limit_of` each.
    """
    spans = [span_of(one, results, limits) for one in results]
    rules = [Span(one.ideal_mib_per_s * one.workload.required, one.ideal_mib_per_s) for one in results]

    def learned(one: Result, of: Sequence[Span | None]) -> list[float]:
        """How far other submitters' results lie outside their intervals: those of the workload, all if there are none."""
        known = [
            (other.workload.name == one.workload.name, misses(span, other.mib_per_s))
            for span, other in zip(of, results)
            if span is not None and other.submitter != one.submitter
        ]
        return [off for same, off in known if same] or [off for _, off in known]

    found = []
    for one, span, rule in zip(results, spans, rules):
        most = one.ideal_mib_per_s
        wide = None if span is None else widened(span, learned(one, spans), COVERAGE, most)
        found.append(Judged(one, span, wide, widened(rule, learned(one, rules), COVERAGE, most)))
    return tuple(found)


def stopped(results: Sequence[Result]) -> list[Stopped]:
    """Each result with which a submitter stopped, forecast from the other results of its system.

    Parameters
    ----------
    results : of any systems; those that are the only ones of their system are left out.
    """
    laws = {
        name: fit_law([one for one in results if one.submitter != name])
        for name in {one.submitter for one in results}
    }
    found = []
    for one in stops(results):
        law = laws[one.submitter]
        expected = forecast(one, results, law.mixed_sd, law.stop_sd)
        if expected is not None:
            found.append(Stopped(one, expected.at(0.0), law.interval(expected)))
    return found


def inside(spans: Iterable[tuple[Result, Span]]) -> float:
    """The share of results inside their intervals [%]."""
    inner = [span.low <= one.mib_per_s <= span.high for one, span in spans]
    return 100 * sum(inner) / len(inner)


def mlperf_storage(progress: Progress) -> Reproduced:
    """mlperf-storage: published results, each simulated from its own workload, accelerators, hosts and threads.

    First what the published numbers mean. Then the link that gives a result its throughput: it gives a utilisation, too,
    which is compared with the reported one. Then each result from the other results of its system: throughput and
    utilisation with its own number of accelerators, and the rate at which its submitter stopped, whatever that number.
    [MLCommons, MLPerf Storage v1.0 results, 2024.]

    Parameters
    ----------
    progress : called with each part.
    """
    workloads = read_workloads(dataset("loading/mlperf/workloads.csv"))
    results = read_results(dataset("loading/mlperf/storage_v1_0.csv"), workloads)
    return compared(results, workloads, progress)


def compared(
    results: Sequence[Result], workloads: Mapping[tuple[str, str], Workload], progress: Progress
) -> Reproduced:
    """The same of any results of the benchmark.

    Parameters
    ----------
    results : of several submitters.
    workloads : by name and accelerator.
    progress : called with each part.
    """
    progress(f"the link of each of {len(results)} results")
    limits = {one: limit_of(one) for one in results}
    rows = [*facts.meaning(results), *facts.spreads(workloads), *_utilisation_rows(results, limits)]
    progress("A100 from H100")
    rows += facts.laws_of_thumb(results, limits)
    progress("every result from the others of its system")
    every = judged(results, limits)
    expected = [(one, utilisations(one.result, one.widened)) for one in every if one.widened is not None]
    rows += _coverage_rows(every, expected)
    progress("where each submitter stopped")
    ends = stopped(results)
    rows += _stop_rows(ends)
    rows += _system_rows(every, ends)
    rows += _failing_rows(every)
    notes = (
        "the files print MB and mean MiB; the reported utilisation leaves out the first step of each epoch, the throughput "
        "does not",
        "accelerators are emulated, and their number is where a submitter stopped: no law between results is tight",
        "record sizes are products of two normal sides, as the benchmark draws them: they vary less than is configured",
        "intervals: the others' waiting explained by a shared link, or by each accelerator's own time; widened by how far "
        "results of the same workload of all other submitters lay outside theirs (split conformal, 90 %)",
        "the benchmark's rule alone: what counts has the required utilisation. With its own number of accelerators known, a "
        "result says little more than this number; a store's other results bound it no closer",
        "the rate at which a submitter stopped is forecast without the number of accelerators, which the rule cannot do; it "
        "fails where something else binds in another result: other threads, other hosts, their processors",
        "not modelled: latency, processors of the hosts, and an accelerator's own time, which is why cosmoflow, with steps "
        "of a few milliseconds, is explained by a link that is none",
        *(
            f"stopped outside: {one.result.label}: {one.result.mib_per_s:.0f} MiB/s, "
            f"{one.interval.low:.0f} to {one.interval.high:.0f} expected"
            for one in ends
            if not one.inside
        ),
    )
    figures = [_from_throughput(results, limits)]
    if expected:
        figures.append(_utilisations(expected))
    if ends:
        figures += [_rates(ends), _by_system(ends)]
    return Reproduced(tuple(rows), tuple(figures), notes)


def _utilisation_rows(results: Sequence[Result], limits: Mapping[Result, float]) -> list[Row]:
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


def _utilisation(result: Result, limits: Mapping[Result, float]) -> float:
    return simulated(result, limits[result]).utilisation


def _coverage_rows(every: Sequence[Judged], expected: Sequence[tuple[Judged, Span]]) -> list[Row]:
    """Coverage and width of the intervals, beside those of the rule alone."""
    known = [(one.result, one.widened) for one in every if one.widened is not None]
    bare = [(one.result, one.span) for one in every if one.span is not None]
    rule = [(one.result, one.by_rule) for one in every]
    if not known:
        return []
    widths = [span.high / span.low for _, span in known]
    points = [100 * (span.high - span.low) for _, span in expected]
    within = [span.low <= one.result.utilisation <= span.high for one, span in expected]
    systems = {one.system for one, _ in known}
    rows = [
        Row(
            "samples/s in its 90 % interval from the others of its system, % of the results", 100 * COVERAGE, None,
            inside(known), COVERAGE_POINTS,
            f"{len(known)} results of {len(systems)} systems; without widening {inside(bare):.1f} %",
        ),
        Row(
            "utilisation in its 90 % interval from the others of its system, % of the results", 100 * COVERAGE, None,
            100 * statistics.fmean(within), COVERAGE_POINTS, "simulated at both ends of the throughput's",
        ),
        Row.unpublished(
            "width of the intervals of samples/s: high over low, median", corrected=statistics.median(widths),
            note=f"mean {statistics.fmean(widths):.3f}, widest {max(widths):.3f}",
        ),
        Row.unpublished(
            "width of the intervals of utilisation, points, median", corrected=statistics.median(points),
            note=f"mean {statistics.fmean(points):.1f}, widest {max(points):.1f}",
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


def _stop_rows(ends: Sequence[Stopped]) -> list[Row]:
    """Coverage and width of the intervals of the rate at which a submitter stopped."""
    if not ends:
        return []
    widths = [one.interval.high / one.interval.low for one in ends]
    return [
        Row(
            "rate at which a submitter stopped in its 90 % interval, % of the settings", 100 * COVERAGE, None,
            100 * statistics.fmean(one.inside for one in ends), COVERAGE_POINTS,
            f"{len(ends)} settings: system, workload, accelerator and hosts; the number of accelerators is not known",
        ),
        Row.unpublished(
            "width of the intervals of this rate: high over low, median", corrected=statistics.median(widths),
            note=f"mean {statistics.fmean(widths):.2f}, widest {max(widths):.2f}",
        ),
    ]  # fmt: skip


def _system_rows(every: Sequence[Judged], ends: Sequence[Stopped]) -> list[Row]:
    """The same by system."""
    rows = []
    for system in dict.fromkeys(one.result.system for one in every if one.widened is not None):
        own = [
            (one.result, one.widened)
            for one in every
            if one.result.system == system and one.widened is not None
        ]
        rates = [one.inside for one in ends if one.result.system == system]
        note = f"{len(own)} results; rate inside in {sum(rates)} of {len(rates)} settings"
        rows.append(Row.unpublished(f"{system}: results inside, %", corrected=inside(own), note=note))
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


def _from_throughput(results: Sequence[Result], limits: Mapping[Result, float]) -> Figure:
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


def _utilisations(expected: Sequence[tuple[Judged, Span]]) -> Figure:
    """The interval of the utilisation beside the reported one, result by result."""
    ranked = sorted(expected, key=lambda each: (each[0].result.workload.name, each[0].result.utilisation))
    points: list[tuple[int, float, float, float, str]] = []
    for rank, (one, span) in enumerate(ranked, start=1):
        low, high, reported = 100 * span.low, 100 * span.high, 100 * one.result.utilisation
        points.append((rank, (low + high) / 2, low, high, "predicted"))
        points.append((rank, reported, reported, reported, f"reported, {one.result.workload.name}"))
    return Figure.of(
        "points",
        "mlperf-storage-intervals",
        "Utilisation from the other results of the system",
        from_points(("rank", "utilisation", "low", "high", "series"), points),
        x=Axis("rank", "result, by workload and reported utilisation"),
        y=Axis("utilisation", "utilisation", "%"),
        series="series",
        series_label="utilisation",
        order=("predicted", *sorted({point[-1] for point in points} - {"predicted"})),
        caption="90 % intervals, simulated with the result's own accelerators and threads; their marks are in the middle.",
    )


def _rates(ends: Sequence[Stopped]) -> Figure:
    """Predicted rates beside measured ones."""
    points = [
        (one.result.mib_per_s, one.mib_per_s, one.interval.low, one.interval.high, one.result.workload.name)
        for one in ends
    ]
    return Figure.of(
        "points",
        "mlperf-storage-rates",
        "Rate at which a submitter stopped: predicted and measured",
        from_points(("measured", "predicted", "low", "high", "workload"), points),
        x=Axis("measured", "measured", "MiB/s", log=True),
        y=Axis("predicted", "predicted from the system's other results", "MiB/s", log=True),
        series="workload",
        series_label="workload",
        equal=True,
        caption="A mark is one setting (system, workload, accelerator, hosts) with its 90 % interval. The line is where "
        "both are equal.",
    )


def _by_system(ends: Sequence[Stopped]) -> Figure:
    """Measured over predicted rates by system, with the typical interval."""
    half = statistics.median(math.sqrt(one.interval.high / one.interval.low) for one in ends)
    points = [
        (one.result.mib_per_s / one.mib_per_s, one.result.system, one.result.workload.name) for one in ends
    ]
    return Figure.of(
        "points",
        "mlperf-storage-rates-by-system",
        "Measured over predicted rate, by system",
        from_points(("ratio", "system", "workload"), points),
        x=Axis("ratio", "measured over predicted rate", log=True),
        y=Axis("system", "storage system"),
        series="workload",
        series_label="workload",
        rules=(Rule(1 / half, f"1/{half:.2f}"), Rule(half, f"{half:.2f}")),
        caption="The lines are the ends of an interval of the median width; each setting has its own.",
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
