"""A run in the operator's terms: beside the history of its jobs, and by whose jobs they are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import Outcome
from forerun.cluster.inputs.arrays import F64
from forerun.cluster.summary.past import ALL, Judged, Recorded, judged, reproduces
from forerun.core.registry import member_name
from forerun.core.result.numbers import duration, format_number


def instant_text(at_s: float, origin_s: float | None, zone: str) -> str:
    """An instant of a run as the calendar of its log has it, else in seconds; nan: never."""
    if not np.isfinite(at_s):
        return "never"
    if origin_s is None:
        return f"{format_number(float(at_s))} s"
    at = datetime.fromtimestamp(float(at_s) + origin_s, ZoneInfo(zone) if "/" in zone else UTC)
    return f"{at:%Y-%m-%d %H:%M}{f' {zone}' if zone else ''}"


def history_of(outcome: Outcome) -> tuple[dict[str, Any], str]:
    """What the summary says of a run beside the history of its jobs, and the sentence with it; empty for real jobs."""
    inputs, record = outcome.inputs, outcome.record
    past = inputs.past
    if not isinstance(past, Recorded):
        return {}, (past and f"not compared, {past}") or ""
    start_s = np.where(record.first_start_s >= 0, record.first_start_s, np.nan)
    found = judged(record.setting.jobs, past, start_s, inputs.known)
    apart = ", ".join(f"{count:,} {why}" for why, count in found.apart.items())
    if not found.rows:
        return {}, f"not compared, no job is scored ({apart})"
    rows = {
        one.name: {
            "jobs": one.jobs,
            "recorded_mean_s": one.recorded_mean_s,
            "simulated_mean_s": one.simulated_mean_s,
            "recorded_median_s": one.recorded_median_s,
            "simulated_median_s": one.simulated_median_s,
            "within_factor_2": one.within_factor_2,
            "first_difference": instant_text(one.first_s, inputs.origin_s, past.zone),
        }
        for one in found.rows
    }
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
