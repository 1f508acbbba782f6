"""Failures of training clusters: "Revisiting Reliability" and Llama 3, with the published numbers beside ours."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from forerun.core.data.fetch import dataset
from forerun.core.errors import DataError
from forerun.core.result.figures import Axis, Figure, Rule
from forerun.replication.reliability.model import (
    Setting,
    best_interval_min,
    intervals_above,
)
from forerun.replication.reliability.published import LLAMA3, META, Ettr
from forerun.replication.reproduction import Progress, Reproduced, Reproduction, Row, from_points
from forerun.spot.engine.closed_forms import effective_share

REPAIR_H: Final = 24.0
"""Mean repair in the simulations; with spares enough it does not matter."""
COUNT: Final = 200
"""Trials of a simulation of 54 days."""
SIZE: Final = Axis("gpus", "GPUs of the job", "GPU", log=True)
RATIO: Final = Axis("ettr", "effective training time ratio")

# --------------------------------------------------------------------------- Revisiting Reliability


def meta_ettr(progress: Progress) -> Reproduced:
    """Mean times to failure and effective training time ratios of "Revisiting Reliability", by three computations.

    `compat` is the paper's first-order form, `corrected` the exact one for Poisson failures and constant costs; the kernel
    of the spot domain simulates the same jobs. The two versions of the paper differ in the cost of a write, so each row
    names its version. [Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters, HPCA'25.]

    Parameters
    ----------
    progress : called with each part.
    """
    rows = [_mttf_row(one.gpus, one.hours, one.projected, one.read) for one in META.mttf]
    for one in META.ettr:
        progress(f"{one.gpus:,} GPUs, every {one.interval_min:g} min")
        rows += _ettr_rows(one)
    rows += _breaking_rows()
    progress("the figure")
    notes = (
        "compat: the paper's first-order form (1 - lambda (u0 + dt/2)) / (1 + w/dt), with w = 0 in v1; corrected: exact for "
        "Poisson failures and constant costs, dt lambda / (exp(lambda u0) (exp(lambda (dt + w)) - 1))",
        "most numbers were read in notes on the paper and not in its text; each row says so",
        "the restart time is 5 minutes where no other is named, as in the paper's comparison with its jobs",
        "measured times to failure do not follow from the clusters' rates, and are shown as they are",
        "simulated: 200 trials of 54 days, spares enough, repairs of 24 hours in the mean",
    )
    return Reproduced(tuple(rows), (_where_it_breaks(), _best_intervals()), notes)


def _nodes(gpus: float) -> float:
    return gpus / META.gpus_per_node


def _rate(cluster: str) -> float:
    return META.clusters[cluster].failures_per_1000_node_days


def _mttf_row(gpus: int, published_h: float, projected: bool, read: str) -> Row:
    """A mean time to failure: a projection is judged within 3 %, a measurement is not."""
    ours = Setting(
        nodes=_nodes(gpus), failures_per_1000_node_days=_rate("RSC-1"), interval_min=60, restart_min=5
    )
    kind = "projected" if projected else "measured"
    note = f"{read}; 1 / (N r_f) at 6.5 failures per 1,000 node-days"
    if not projected:
        note += f"; the measurement implies {1e3 / (_nodes(gpus) * published_h / 24):.1f}"
    return Row(
        f"{gpus:,} GPUs: {kind} mean time to failure h",
        published_h,
        ours.mttf_h,
        None,
        0.03 * published_h if projected else None,
        note,
    )


def _ettr_rows(one: Ettr) -> list[Row]:
    """The published ratio beside both forms, then the simulated one."""
    setting = Setting(
        nodes=_nodes(one.gpus),
        failures_per_1000_node_days=_rate(one.cluster),
        interval_min=one.interval_min,
        restart_min=one.restart_min,
        write_min=one.write_min,
    )
    name = (
        f"{one.cluster}, {one.gpus:,} GPUs, every {one.interval_min:g} min, write {one.write_min:g}, restart "
        f"{one.restart_min:g} min: ETTR"
    )
    version = f"{one.version}, {META.versions[one.version]}"
    published = Row(
        name, one.published, setting.first_order, setting.exact, one.tolerance, f"{version}; {one.read}"
    )
    done = setting.simulated(spares=setting.ample_spares(REPAIR_H), repair_h=REPAIR_H, count=COUNT)
    return [
        published,
        Row.unpublished(
            f"{name}, simulated",
            corrected=done.mean,
            note=f"± {done.half95:.4f}; the exact form says {setting.exact:.4f}",
        ),
    ]


def _breaking_rows() -> list[Row]:
    """Where the first-order form turns negative, and what is true there."""
    base = Setting(
        nodes=_nodes(100_000), failures_per_1000_node_days=_rate("RSC-1"), interval_min=60, restart_min=5
    )
    done = base.simulated(spares=base.ample_spares(REPAIR_H), repair_h=REPAIR_H, count=COUNT // 4)
    zero_nodes = base.nodes / (base.rate_per_min * (base.restart_min + base.interval_min / 2))
    at_zero = replace(base, nodes=zero_nodes)
    name = "RSC-1, 100,000 GPUs, every 60 min, write 0, restart 5 min: ETTR"
    return [
        Row.unpublished(name, base.first_order, base.exact, "the first-order form is negative"),
        Row.unpublished(f"{name}, simulated", corrected=done.mean, note=f"± {done.half95:.4f}"),
        Row.unpublished(
            "GPUs at which the first-order form is 0, every 60 min, restart 5 min",
            zero_nodes * META.gpus_per_node,
            None,
            f"the exact form says {at_zero.exact:.3f} there",
        ),
    ]


def _where_it_breaks() -> Figure:
    """Both forms and the simulation against the size of the cluster, for two intervals."""
    points: list[tuple[str, float, float]] = []
    for interval_min in (60.0, 5.0):
        base = Setting(
            nodes=1, failures_per_1000_node_days=_rate("RSC-1"), interval_min=interval_min, restart_min=5
        )
        for gpus in np.geomspace(1024, 131_072, 43):
            of = replace(base, nodes=_nodes(float(gpus)))
            points.append((f"{interval_min:g} min, first order (published)", float(gpus), of.first_order))
            points.append((f"{interval_min:g} min, exact", float(gpus), of.exact))
        for gpus in (1024, 4096, 16_384, 32_768, 65_536, 131_072):
            of = replace(base, nodes=_nodes(gpus))
            done = of.simulated(spares=of.ample_spares(REPAIR_H), repair_h=REPAIR_H, days=20, count=20)
            points.append((f"{interval_min:g} min, simulated", gpus, done.mean))
    return Figure.of(
        "line",
        "ettr-by-size",
        "Where the first-order form breaks",
        from_points(("form", "gpus", "ettr"), points),
        x=SIZE,
        y=RATIO,
        series="form",
        rules=(Rule(0.0, "no progress", "y"),),
        order=tuple(
            f"{minutes} min, {form}"
            for minutes in (60, 5)
            for form in ("first order (published)", "exact", "simulated")
        ),
        caption="6.5 failures per 1,000 node-days, restart 5 min, writes that do not block. The first-order form counts one "
        "failure an interval at most; where several come, it falls below zero, and the exact form does not.",
    )


def _best_intervals() -> Figure:
    """The ratio at the best interval, by size and restart, for writes of half a minute."""
    points: list[tuple[str, float, float]] = []
    restarts = (1.0, 5.0, 10.0, 20.0)
    for restart_min in restarts:
        for gpus in np.geomspace(1024, 131_072, 43):
            rate = _nodes(float(gpus)) * _rate("RSC-1") / 1000 / 1440
            best = best_interval_min(rate, 0.5)
            points.append(
                (f"{restart_min:g} min", float(gpus), effective_share(rate, best, 0.5, restart_min))
            )
    return Figure.of(
        "line",
        "best-ettr-by-restart",
        "The best that intervals can do",
        from_points(("restart", "gpus", "ettr"), points),
        x=SIZE,
        y=RATIO,
        series="restart",
        series_label="restart",
        order=tuple(f"{restart:g} min" for restart in restarts),
        caption="Exact, at the best interval for a write that blocks training for 30 s; 6.5 failures per 1,000 node-days.",
    )


# --------------------------------------------------------------------------- Llama 3


def llama3_reliability(progress: Progress) -> Reproduced:
    """The interruptions of Llama 3's pre-training: what its table adds up to, and what "> 90 %" is consistent with.

    The paper names no interval, write or restart time, so the effective training time is a bound from which nothing can be
    computed; the region of settings that keep it is drawn instead. A public log of faults stands beside, where it is there.
    [Grattafiori et al., The Llama 3 Herd of Models, 2024, section 3.3.4 and table 5.]

    Parameters
    ----------
    progress : called with each part.
    """
    rows = [*_count_rows(), *_cause_rows(), *_bound_rows()]
    progress("the spot domain's kernel")
    rows += _kernel_rows()
    progress("the InfiniteHBD log")
    log_rows, log_note = _log_rows()
    notes = (
        "every value of the effective training time rests on our assumptions of interval, write and restart, which are not "
        "published; more than 90 % is not said to belong to the same 54 days",
        "rates assume 16,384 GPUs for all 54 days; the paper says up to 16K",
        "the share printed for faulty GPUs, 30.1 %, is a misprint: 148 of 419 are 35.3 %; 58.7 % of GPU issues follows it",
        log_note,
    )
    return Reproduced((*rows, *log_rows), (_region(), _causes()), notes)


def _llama(interval_min: float, restart_min: float, write_min: float = 0.0) -> Setting:
    """A setting with the failure rate of the 54 days."""
    nodes = LLAMA3.gpus / LLAMA3.gpus_per_node
    return Setting(
        nodes=nodes,
        failures_per_1000_node_days=1000 * LLAMA3.unexpected / (nodes * LLAMA3.days),
        interval_min=interval_min,
        restart_min=restart_min,
        write_min=write_min,
    )


def _count_rows() -> list[Row]:
    """What the counts add up to, and the rates that follow."""
    base, counted = _llama(60, 5), sum(one.count for one in LLAMA3.causes)
    hours = LLAMA3.days * 24
    return [
        Row("interruptions", LLAMA3.interruptions, None, LLAMA3.planned + counted, 0.0, "47 planned + 419"),
        Row("unexpected interruptions", LLAMA3.unexpected, None, counted, 0.0, "sum of the 18 causes"),
        Row.unpublished("time between unexpected interruptions h", corrected=base.mttf_h),
        Row.unpublished("time between interruptions h", corrected=hours / LLAMA3.interruptions),
        Row.unpublished(
            "unexpected interruptions per 1,000 node-days", corrected=base.failures_per_1000_node_days
        ),
    ]


def _cause_rows() -> list[Row]:
    """Each printed share beside the share of the counts, and the two sums that the paper states."""
    total, rows = LLAMA3.unexpected, []
    for one in LLAMA3.causes:
        percent = 100 * one.count / total
        is_misprint = abs(percent - one.printed_percent) > 1
        note = f"{one.count} of {total}; {one.component}"
        if is_misprint:
            note += "; a misprint, shown and not judged"
        rows.append(
            Row(
                f"{one.cause}: share percent",
                one.printed_percent,
                None,
                percent,
                None if is_misprint else 0.05,
                note,
            )
        )
    of_gpus = [one for one in LLAMA3.causes if one.component == "GPU"]
    printed = sum(one.printed_percent for one in of_gpus)
    counted = 100 * sum(one.count for one in of_gpus) / total
    hardware = [
        one for one in LLAMA3.causes if one.component in ("GPU", "Host", "Unplanned maintenance", "Unknown")
    ]
    rows += [
        Row(
            "GPU issues: share percent",
            LLAMA3.gpu_percent,
            printed,
            counted,
            0.05,
            "compat: sum of the printed shares, the misprint among them; corrected: by the counts",
        ),
        Row(
            "confirmed or suspected hardware: share percent",
            LLAMA3.hardware_percent,
            None,
            100 * sum(one.count for one in hardware) / total,
            0.5,
            "about 78 %; the paper does not name the rows: GPU, host, maintenance and NCCL watchdog",
        ),
    ]
    return rows


def _bound_rows() -> list[Row]:
    """Settings that keep more than 90 %, by the exact form."""
    least, rate = LLAMA3.effective_percent / 100, _llama(60, 5).rate_per_min
    rows = [
        Row(
            "effective training time percent, more than",
            LLAMA3.effective_percent,
            None,
            None,
            None,
            "a bound without interval, write or restart; the rows below say what it is consistent with",
        )
    ]
    for restart_min in (2, 5, 10, 15, 20):
        region = intervals_above(least, rate, 0.0, restart_min)
        name = f"write 0 s, restart {restart_min} min: longest interval min"
        if region is None:
            rows.append(
                Row.unpublished(name, note=f"none; at best {effective_share(rate, 1e-6, 0, restart_min):.3f}")
            )
        else:
            rows.append(Row.unpublished(name, corrected=region[1], note="consistent with > 90 %"))
    for write_s, restart_min in ((10, 10), (10, 15), (30, 5), (30, 10), (60, 2)):
        best = best_interval_min(rate, write_s / 60)
        ratio = effective_share(rate, best, write_s / 60, restart_min)
        rows.append(
            Row.unpublished(
                f"write {write_s} s, restart {restart_min} min: ETTR at the best interval",
                corrected=ratio,
                note=f"every {best:.1f} min; {'consistent' if ratio > least else 'not consistent'} with > 90 %",
            )
        )
    return rows


def _kernel_rows() -> list[Row]:
    """The same job on nodes that fail and are repaired, with more and fewer spares."""
    base = _llama(20, 8)
    cases = ((64, REPAIR_H, "repair 24 h"), (16, REPAIR_H, "repair 24 h"), (0, REPAIR_H, "repair 24 h"))
    rows = []
    for spares, repair_h, words in cases:
        done = base.simulated(spares=spares, repair_h=repair_h, count=COUNT)
        rows.append(
            Row.unpublished(
                f"restart 8 min, every 20 min, {spares} spares, {words}: ETTR simulated",
                corrected=done.mean,
                note=f"± {done.half95:.4f}; spares enough, exact: {base.exact:.4f}",
            )
        )
    return rows


def _region() -> Figure:
    """For each write, the longest and the shortest interval that keep 90 %, against the restart."""
    least, rate = LLAMA3.effective_percent / 100, _llama(60, 5).rate_per_min
    points: list[tuple[str, float, float, float, float]] = []
    writes = (0.0, 5.0, 10.0, 30.0)
    for write_s in writes:
        for restart_min in np.arange(0.0, 20.01, 0.1):
            region = intervals_above(least, rate, write_s / 60, float(restart_min))
            if region is not None:
                best = best_interval_min(rate, write_s / 60)
                points.append((f"{write_s:g} s", float(restart_min), best, *region))
    return Figure.of(
        "line",
        "consistent-with-90-percent",
        "What more than 90 % is consistent with",
        from_points(("write", "restart_min", "interval_min", "low", "high"), points),
        x=Axis("restart_min", "restart", "min"),
        y=Axis("interval_min", "interval between checkpoints", "min"),
        series="write",
        series_label="write that blocks",
        order=tuple(f"{write:g} s" for write in writes),
        caption="Bands: intervals that keep 90 % at 3.09 h between interruptions, by the exact form; lines: the best "
        "interval. Nothing of this is published: the paper states the bound alone.",
    )


def _causes() -> Figure:
    """The counts of the table by cause."""
    return Figure.of(
        "bar",
        "causes",
        "Unexpected interruptions by cause",
        from_points(
            ("cause", "interruptions"),
            sorted(((one.cause, one.count) for one in LLAMA3.causes), key=lambda pair: -pair[1]),
        ),
        x=Axis("cause", "cause"),
        y=Axis("interruptions", "interruptions in 54 days"),
        caption="419 in 54 days, as counted in the paper's table.",
    )


# --------------------------------------------------------------------------- the public log


class _LogFacts(msgspec.Struct, frozen=True):
    """What the reader of the log says of the whole file."""

    nodes: int
    faults: int
    until_s: float
    repair_median_days: float
    repair_mean_days: float


def _log_rows() -> tuple[list[Row], str]:
    """What the one public log of node faults says, and whether nodes fail alike; none where it is absent."""
    from forerun.core.trace.reader import read_trace

    try:
        path = dataset("spot/infinitehbd/fault_trace.json")
    except DataError:
        return [], "the InfiniteHBD log is absent: `forerun data fetch infinitehbd`"
    trace = read_trace(path, "spot_faults")
    facts = msgspec.convert(trace.provenance.options, type=_LogFacts, strict=False)
    nodes, faults, days = facts.nodes, facts.faults, math.floor(facts.until_s / 86_400)
    downs = trace.columns["node"][~trace.columns["added"].astype(bool)]
    counts = np.zeros(nodes)
    by_node = sorted(Counter(downs).values(), reverse=True)
    counts[: len(by_node)] = by_node
    # Under one exponential law for all nodes the counts are Poisson, and this is chi-square with nodes - 1 degrees.
    dispersion = float(((counts - counts.mean()) ** 2).sum() / counts.mean())
    deviations = (dispersion - (nodes - 1)) / math.sqrt(2 * (nodes - 1))
    worst = float(counts[: nodes // 10].sum() / counts.sum())
    log = "InfiniteHBD log"
    return [
        Row.unpublished(f"{log}: faults", corrected=faults, note=f"{nodes} servers, {days} days"),
        Row.unpublished(f"{log}: faults per 1,000 node-days", corrected=1000 * faults / (nodes * days)),
        Row.unpublished(f"{log}: median repair h", corrected=24 * facts.repair_median_days),
        Row.unpublished(f"{log}: mean repair h", corrected=24 * facts.repair_mean_days),
        Row.unpublished(
            f"{log}: share of the worst tenth of nodes percent",
            corrected=100 * worst,
            note="of times down, overlapping faults of a node as one",
        ),
        Row.unpublished(
            f"{log}: dispersion of counts by node, chi-square",
            corrected=dispersion,
            note=f"{nodes - 1} expected of equal exponential nodes, {deviations:.0f} standard deviations above: rejected",
        ),
    ], (
        "the InfiniteHBD log counts faults of calendar time, stress tests among them; rates of different sources have "
        "different definitions"
    )


REPRODUCTIONS = (
    Reproduction(
        "meta-ettr",
        "Effective training time of large jobs: first-order, exact and simulated",
        "Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters, HPCA'25",
        meta_ettr,
        minutes=0.2,
    ),
    Reproduction(
        "llama3-reliability",
        "Interruptions of Llama 3's pre-training, and what more than 90 % is consistent with",
        "Grattafiori et al., The Llama 3 Herd of Models, 2024, table 5",
        llama3_reliability,
        datasets=("infinitehbd",),
        minutes=0.1,
    ),
)
