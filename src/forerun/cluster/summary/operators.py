"""A run in the operator's terms: beside the history of its jobs, and by whose jobs they are."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import Outcome
from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.inputs.prepare import Inputs
from forerun.cluster.summary.causes import CAUSES, causes_of_log
from forerun.cluster.summary.past import ALL, Judged, Recorded, judged, reproduces
from forerun.cluster.summary.waits import Waits
from forerun.core.registry import member_name
from forerun.core.result.numbers import duration, format_number
from forerun.core.result.run import Result
from forerun.core.result.tables import Table

#: groups that have a row of their own
MOST_GROUPS: Final = 12


def instant_text(at_s: float, origin_s: float | None, zone: str) -> str:
    """An instant of a run as the calendar of its log has it, else in seconds; nan: never."""
    if not np.isfinite(at_s):
        return "never"
    if origin_s is None:
        return f"{format_number(float(at_s))} s"
    return f"{datetime.fromtimestamp(float(at_s) + origin_s, ZoneInfo(zone) if '/' in zone else UTC):%Y-%m-%d %H:%M}"


def history_of(outcome: Outcome) -> tuple[dict[str, Any], str]:
    """What the summary says of a run beside the history of its jobs, and the sentence with it; empty for real jobs."""
    inputs, record = outcome.inputs, outcome.record
    past = inputs.past
    if not isinstance(past, Recorded):
        return {}, (past and f"not compared, {past}") or ""
    # who came at another instant than in the log is judged by how long he waited from then on
    later_s = record.setting.jobs.submit_s - record.came_s
    start_s: F64 = np.where(record.first_start_s >= 0, record.first_start_s + later_s, np.nan).astype(
        np.float64
    )
    found = judged(record.setting.jobs, past, start_s, inputs.known)
    apart = ", ".join(f"{count:,} {why}" for why, count in found.apart.items())
    if not found.rows:
        return {}, f"not compared, no job is scored ({apart})"
    rows = {}
    for one in found.rows:
        columns = asdict(one)
        name, first_s = columns.pop("name"), columns.pop("first_s")
        rows[name] = {**columns, "first_difference": instant_text(first_s, inputs.origin_s, past.zone)}
    policy, site = member_name(type(inputs.scenario.policy)), inputs.known.policy
    whose = "" if site == policy else f"the site's files name no policy, so {policy} is taken for its own"
    if site not in ("", policy):
        whose = f"not judged, as the site's policy is {site}, not {policy}"
    summary = {"history": rows, **_recorded_figures(record, past)}
    if not site or site == policy:
        summary |= {"caution": said} if (said := _caution(found)) else {}
    if np.isfinite(first_s := found.rows[0].first_s):
        summary["first_difference_s"] = float(first_s)
    what = "waits, recorded and simulated; first difference: when a job has started in one of the two and waits in the other"
    what += f" ({past.zone})" if past.zone else ""
    parts = (what, apart and f"not scored: {apart}", whose)
    return summary, "; ".join(filter(None, parts))


def _caution(found: Judged) -> str:
    """That a setting does not reproduce history, and the largest known gap; empty: it does."""
    if reproduces(found.rows):
        return ""
    whole, worst = found.rows[0], max(found.rows, key=lambda one: abs(one.off))
    text = "the setting does not reproduce history: " + ", ".join(
        f"mean wait{f' in {one.name}' if one.name != ALL else ''} {duration(one.simulated_mean_s)}, "
        f"recorded {duration(one.recorded_mean_s)} ({100 * one.off:+.0f} %)"
        for one in dict.fromkeys((whole, worst))
    )
    if found.gap:
        return f"{text}; largest known gap: {found.gap}"
    return f"{text}; no known gap explains it, so the policy may be another"


def _recorded_figures(record: Record, past: Recorded) -> dict[str, float]:
    """Figures of the summary as they really were, over the jobs with a recorded start and end."""
    submit_s = record.setting.jobs.submit_s.astype(np.float64)
    wait_s, jct_s = (np.maximum(at - submit_s, 0.0) for at in (past.jobs.start_s, past.jobs.end_s))
    known = np.isfinite(wait_s) & np.isfinite(jct_s)
    if not known.any():
        return {}
    figures = {**wait_figures(wait_s[known]), "jct_mean_s": float(jct_s[known].mean())}
    figures |= {f"jct_p{q}_s": float(np.quantile(jct_s[known], q / 100)) for q in (50, 99)}
    return {f"recorded_{name}": value for name, value in figures.items()}


def wait_figures(wait_s: F64) -> dict[str, float]:
    """Mean and 90th percentile of some waits."""
    return {"wait_mean_s": float(wait_s.mean()), "wait_p90_s": float(np.quantile(wait_s, 0.9))}


def calendar(at_s: I64, inputs: Inputs) -> list[str]:
    """Instants of a run by the calendar of its log, such as `2026-03-02T00:25:28`; empty where it has none."""
    if inputs.origin_s is None:
        return [""] * len(at_s)
    zone = inputs.past.zone if isinstance(inputs.past, Recorded) else ""
    unix_s = at_s + round(inputs.origin_s)
    if "/" not in zone:
        return [str(text) for text in np.datetime_as_string(unix_s.astype("datetime64[s]"))]
    place = ZoneInfo(zone)
    return [f"{datetime.fromtimestamp(one, place):%Y-%m-%dT%H:%M:%S}" for one in unix_s.tolist()]


def causes_by_partition(waits: Waits, outcome: Outcome) -> dict[str, dict[str, Any]]:
    """Mean waits by partition and cause, and what it mostly is: of the run and, as far as it is known, of the log.

    Names of what is recorded end in `, recorded`.
    """
    inputs, found = outcome.inputs, {"": waits.causes}
    if isinstance(inputs.past, Recorded):
        found[", recorded"] = causes_of_log(inputs.setting, inputs.past, inputs.known)
    sums = {which: causes.by_partition() for which, causes in found.items()}
    jobs = np.bincount(waits.causes.partition, minlength=len(waits.causes.partitions))
    number = {name: int(count) for name, count in zip(waits.causes.partitions, jobs, strict=True)}
    seen = {cause for each in sums.values() for by_cause in each.values() for cause in by_cause}
    rows: dict[str, dict[str, Any]] = {}
    for partition in dict.fromkeys(name for each in sums.values() for name in each):
        for which, causes in found.items():
            if by_cause := sums[which].get(partition):
                means = {
                    f"{cause}_s": by_cause.get(cause, 0.0) / number[partition]
                    for cause in CAUSES
                    if cause in seen
                }
                top, share = causes.top(partition)
                rows[f"{partition or ALL}{which}"] = {
                    **means,
                    "mostly": f"{100 * share:.0f} % {top}" if top else "",
                }
    return rows


def groups_of(result: Result) -> dict[str, dict[str, dict[str, float]]]:
    """Waits, slowdowns, GPU time and money by whose jobs they are, each where there are several.

    The largest groups by their GPU time have a row; the last row is all others.
    """
    jobs, bill = result.tables["jobs"], result.tables.get("bill")
    whole = result.summary["gpus"] * result.summary["horizon_s"]
    found = {}
    for name in ("partition", "account", "user", "qos", "gpu_type", "gpus"):
        names, of = np.unique(jobs[name].astype(str), return_inverse=True)
        if len(names) < 2:
            continue
        order = np.argsort(-np.bincount(of, jobs["gpu_s"]), kind="stable")
        own = [(str(names[at]) or "none", of == at) for at in order[:MOST_GROUPS].tolist()]
        if len(rest := order[MOST_GROUPS:]):
            own.append((f"{len(rest)} others", np.isin(of, rest)))
        if name == "gpus":
            own.sort(key=lambda one: int(one[0]) if one[0].isdecimal() else np.inf)
            own = [(f"{size} GPU{'' if size == '1' else 's'}", rows) for size, rows in own]
        found["by_size" if name == "gpus" else f"by_{name}"] = {
            group: _of_group(jobs.rows(np.flatnonzero(rows)), bill and bill.rows(np.flatnonzero(rows)), whole)
            for group, rows in own
        }
    return found


def _of_group(jobs: Table, bill: Table | None, whole: float) -> dict[str, float]:
    """What the jobs of a group come to. whole: GPU-seconds of the cluster."""
    wait_s, slowdown = (jobs[name][np.isfinite(jobs[name])] for name in ("wait_s", "slowdown"))
    gpu_s = float(jobs["gpu_s"].sum())
    figures: dict[str, float] = {"jobs": len(jobs)}
    figures |= wait_figures(wait_s) if len(wait_s) else {}
    figures |= {"slowdown_mean": float(slowdown.mean())} if len(slowdown) else {}
    figures |= {"used_gpu_s": gpu_s, "gpu_time_share": gpu_s / max(whole, 1e-9)}
    if bill is not None:
        figures |= {name: float(bill[name].sum()) for name in ("energy_j", "cost_usd")}
    return figures
