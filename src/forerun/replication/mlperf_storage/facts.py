"""What the numbers of a result mean, and laws of thumb from one result to another: each checked on the tables."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forerun.replication.mlperf_storage.model import most_that_pass
from forerun.replication.mlperf_storage.results import MIB, Result, Workload
from forerun.result.reproduction import Row

#: what the sources of the tables say, and what was computed from the published results; a median is judged for as many
#: results at least, an extreme and what is of pairs for as many only
PUBLISHED: Final[Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("published.json").read_text(encoding="utf-8")
)


def meaning(results: Sequence[Result]) -> list[Row]:
    """Units, and what utilisation and throughput leave out.

    Parameters
    ----------
    results : with the table's own columns of samples/s and busy share.
    """
    as_mib = [abs(r.samples_per_s * r.workload.record_bytes / MIB / r.mib_per_s - 1) for r in results]
    busy = [100 * abs(result.busy - result.busy_share) for result in results]
    rows = [
        Row("printed MB/s taken as MiB/s: largest relative difference", 0.0, None, max(as_mib), 1e-5),
        Row(
            "busy share of the whole time, from throughput: largest difference, points", 0.0, None, max(busy), 1e-3,
            "samples/s x computation time / (accelerators x batch)",
        ),
    ]  # fmt: skip
    many = len(results) >= int(PUBLISHED["results"])
    for name in sorted({result.workload.name for result in results}):
        known = PUBLISHED["utilisation_above_busy_share_points"].get(name, {})
        gaps = [100 * (r.utilisation - r.busy) for r in results if r.workload.name == name]
        what, note = (
            f"{name}: utilisation above busy share, points",
            "published: of all submissions, more than the table has",
        )
        rows += [
            Row(
                f"{what}, median",
                known.get("median"),
                None,
                statistics.median(gaps),
                known.get("tolerance") if many else None,
                note,
            ),
            Row(f"{what}, most", known.get("most"), None, max(gaps), None, note if "most" in known else ""),
        ]
    torch = [result for result in results if result.workload.torch]
    if torch:
        waves = [r.first_step_s * r.utilisation / r.workload.computation_s / r.threads for r in torch]
        rows.append(Row.unpublished(
            "first step of an epoch, in steps for each worker process, median", corrected=statistics.median(waves),
            note="from the two shares; one, if all workers build their first batches at the same time",
        ))  # fmt: skip
    highest = max(result.utilisation for result in results)
    above = [result.utilisation > result.workload.required + 0.02 for result in results]
    rows += [
        Row(
            "highest utilisation, %", PUBLISHED["highest_utilisation_percent"], None, 100 * highest,
            0.05 if _same_table(results) else None, "accelerators are added until a submitter stops, not until they wait",
        ),
        Row.unpublished(
            "results more than two points above the required utilisation, %", corrected=100 * statistics.fmean(above)
        ),
    ]  # fmt: skip
    return rows


def spreads(workloads: Mapping[tuple[str, str], Workload]) -> list[Row]:
    """Sizes of records as they are drawn, beside what is configured.

    Parameters
    ----------
    workloads : by name and accelerator.
    """
    by_name = {workload.name: workload for workload in workloads.values()}
    rows = []
    for name, known in PUBLISHED["drawn_spread_percent"].items():
        if name in by_name:
            workload = by_name[name]
            configured = 100 * workload.record_sd_bytes / workload.record_bytes
            rows.append(Row(
                f"{name}: spread of record sizes, % of the mean", known["percent"], None, 100 * workload.drawn_spread,
                known["tolerance"], f"configured: {configured:.1f}; a record is the product of two normal sides",
            ))  # fmt: skip
    known = PUBLISHED["batch_spread_percent"]
    if known["workload"] in by_name:
        workload = by_name[known["workload"]]
        drawn = 100 * workload.drawn_spread / math.sqrt(workload.batch)
        what = f"{workload.name}: spread of a batch of {workload.batch}, % of the mean"
        rows.append(Row(what, known["percent"], None, drawn, known["tolerance"]))
    return rows


def pairs(results: Sequence[Result]) -> list[tuple[Result, Result]]:
    """Each H100 result beside the A100 results of the same system, workload and hosts."""
    return [
        (h100, a100)
        for h100 in results
        for a100 in results
        if (h100.system, h100.workload.name, h100.hosts) == (a100.system, a100.workload.name, a100.hosts)
        and (h100.workload.accelerator, a100.workload.accelerator) == ("h100", "a100")
    ]


def laws_of_thumb(results: Sequence[Result], limits: Mapping[Result, float]) -> list[Row]:
    """How many A100 pass, from the result of the same system, workload and hosts with H100.

    Parameters
    ----------
    results : of any systems.
    limits : the link with which the simulated epoch has the published throughput [MiB/s], of each result.
    """
    both = pairs(results)
    if not both:
        return []

    def by_link(h100: Result, a100: Result) -> float:
        return h100.mib_per_s / a100.workload.ideal_mib_per_s / a100.workload.required

    def by_ratio(h100: Result, a100: Result) -> float:
        return h100.accelerators * a100.workload.computation_s / h100.workload.computation_s

    def by_simulation(h100: Result, a100: Result) -> float:
        return most_that_pass(a100, limits[h100])

    same = _same_table(results)
    rows = [Row("pairs of H100 and A100", PUBLISHED["pairs"], None, len(both), 0 if same else None)]
    for name, key, predicted in (
        ("a bare link", "link_law_percent", by_link),
        ("the ratio of computation times", "count_ratio_percent", by_ratio),
        ("simulation", "", by_simulation),
    ):
        errors = [100 * abs(predicted(*pair) / pair[1].accelerators - 1) for pair in both]
        ours = {"median": statistics.median(errors), "mean": statistics.fmean(errors), "worst": max(errors)}
        for which, error in ours.items():
            known = PUBLISHED[key][which] if key else None
            what = f"A100 that pass, from H100, by {name}: {which} error, %"
            rows.append(Row(what, known, None, error, 0.06 if key and same else None))
    return rows


def _same_table(results: Sequence[Result]) -> bool:
    """Whether these are as many results as the published numbers were computed from."""
    return len(results) == int(PUBLISHED["results"])
