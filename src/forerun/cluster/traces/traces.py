"""What `forerun trace` does with job logs: generate, fit and describe them.

A description is the part of a scenario that says where jobs come from: its `trace` and its `profile`. So a scenario file
is a description, and what `fit` writes can be pasted into one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64, Cluster, NodeGroup, ThroughputTable
from forerun.cluster.inputs.files import JobTable
from forerun.cluster.inputs.jobs import table_from
from forerun.cluster.inputs.prepare import profile_from
from forerun.cluster.scenario import ProfileSpec, Scenario, TraceSpec
from forerun.cluster.traces.fit import FittedJobs, fit, without_deadline
from forerun.cluster.traces.generate import JobGenerator, generate, jobs_csv
from forerun.cluster.traces.job_logs import cannot_have_run_on, demand
from forerun.cluster.traces.published import TEMPLATES
from forerun.core.atomic_write import write_text
from forerun.core.errors import TraceError, UnknownName, UsageError
from forerun.core.scenario.spec import Spec, to_data
from forerun.core.scenario.text import read_document
from forerun.core.trace.domain_traces import (
    DomainTraces,
    Fitted,
    GeneratedTrace,
    Recorded,
    ReportTable,
    TraceReport,
    Wanted,
    decoded,
    is_description,
)
from forerun.core.trace.fit import Feature
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.table import Trace

#: generators by name, and what each starts from; `--set` and `-n` change it
STARTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "published": {"jobs": 100, "mean_gap_s": 1500.0},
    "generate": {"jobs": 100, "mean_gap_s": 1500.0},
    "resample": {},
}
#: the draws that the published generator leaves to a generator it never seeds
UNSEEDED: Final = ("deadline slack", "best-effort coin")
_DEFAULT: Final = "published"
_PROFILE_KEYS: Final = ("tables", "analytic", "kinds", "gpu_type", "levels", "extrapolate")
_TRACE_KEYS: Final = ("first", "strict", "draw_models")
_MOST_JUDGED: Final = 20_000
_HOUR_S: Final = 3600.0
_ANY_CLUSTER: Final = Cluster((NodeGroup("any", 1, 8, ""),), 1)


class _Described(Spec, frozen=True, kw_only=True):
    """Where jobs come from, as a scenario says it."""

    trace: TraceSpec
    profile: tuple[ProfileSpec, ...] = ()


class _FitSettings(Spec, frozen=True, kw_only=True):
    """How a log is fitted: humps of the duration distribution (0: chosen); random traces to judge the likeness."""

    humps: Annotated[int, msgspec.Meta(ge=0, le=8)] = 0
    traces: Annotated[int, msgspec.Meta(ge=20, le=1000, description="so many give a band")] = 40


class _StatsSettings(Spec, frozen=True, kw_only=True):
    """What a log is compared with: GPUs of a cluster (0: nothing)."""

    gpus: int = 0


class ClusterTraces(DomainTraces):
    """Job logs: the generator published with ElasticFlow, our own, and blocks of a real log."""

    makes = "jobs"
    about = "published (draw for draw), generate (streams and fits), resample (blocks of a real log)"

    def generate(self, wanted: Wanted) -> GeneratedTrace:
        """Jobs from a generator's name, a description file or a scenario, as a CSV with the native header."""
        described, assumed = _described(wanted.description, wanted.settings)
        spec, seed, repairs = described.trace, wanted.seed, RepairLog(strict=described.trace.strict)
        profile = profile_from(described.profile[0], _ANY_CLUSTER) if described.profile else None
        if wanted.count is not None:
            spec = _with_jobs(spec, wanted.count)
        table = table_from(spec, profile, seed, repairs)
        if wanted.horizon_s is not None:
            if wanted.count is None:
                spec, table = _until(spec, profile, seed, repairs, wanted.horizon_s)
            table = table.take(np.flatnonzero(table.jobs.submit_s < wanted.horizon_s))
        if spec.first:
            table = table.take(range(min(spec.first, len(table))))
        repairs.finish()
        return GeneratedTrace(
            count=len(table),
            what="jobs",
            save=_csv_writer(jobs_csv(table)),
            report=TraceReport(
                data={"trace": to_data(spec), "profile": to_data(described.profile), "seed": seed},
                notes=(*_generated_notes(spec, profile), *assumed),
                repairs=repairs.repairs,
            ),
            next_step="forerun trace stats cluster {out}",
        )

    def fit(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> Fitted:
        """A `generate` description like a log, and where the log lies in the bands of what the description generates."""
        trace = _jobs_of(recorded)
        chosen = decoded("", {}, settings, _FitSettings)
        fitted = fit(trace, humps=chosen.humps)
        features = judged(trace, fitted.spec, seed=seed, traces=chosen.traces)
        description: dict[str, Any] = {"trace": {"generate": to_data(fitted.spec)}}
        outside = [feature.name for feature in features if not feature.ok]
        rows = tuple((f.name, f.recorded, f.low, f.high, "yes" if f.ok else "NO") for f in features)
        notes = [*fitted.notes, _likeness(fitted, len(trace))]
        if outside:
            notes.append(f"not reproduced: {', '.join(outside)}; resampling blocks of the log keeps them")
        return Fitted(
            description=description,
            report=TraceReport(
                data={
                    "jobs": len(trace),
                    "duration_distance": fitted.duration_distance,
                    "slack_distance": fitted.slack_distance,
                    "features": [
                        {"name": f.name, "recorded": f.recorded, "low": f.low, "high": f.high, "ok": f.ok}
                        for f in features
                    ],
                    "notes": notes,
                },
                tables=(
                    ReportTable(
                        "recorded figures in the posterior-predictive bands",
                        ("feature", "recorded", "low", "high", "in the 95 % band"),
                        rows,
                        "low, high: the band in which 95 % of logs generated by the fit lie",
                    ),
                ),
                notes=tuple(notes),
                repairs=recorded.log.repairs,
            ),
        )

    def stats(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> TraceReport:
        """Size, load, durations, deadlines and models of a log; with `gpus=N`, whether it can have run on N GPUs."""
        trace = _jobs_of(recorded)
        chosen = decoded("", {}, settings, _StatsSettings)
        return _statistics(trace, chosen.gpus, recorded.log)


TRACES: Final = ClusterTraces()


# --------------------------------------------------------------------------- descriptions


def _described(description: str, settings: Sequence[str]) -> tuple[_Described, list[str]]:
    """The description a user means, and what was assumed for them."""
    if description and (is_description(description) or Path(description).exists()):
        data = read_document(Path(description)).data
        if isinstance(data, dict) and data.get("domain") == "cluster":
            scenario = decoded(description, {}, settings, Scenario)
            return _Described(trace=scenario.trace, profile=scenario.profile), []
        given = data if isinstance(data, dict) else {}
        source = next(iter(given["trace"])) if _one_key(given.get("trace")) else "generate"
        file = description
    else:
        source, file = description or _DEFAULT, ""
        if source not in STARTS:
            raise UnknownName.among("generator of jobs", source, STARTS)
        given = {"trace": {source: dict(STARTS[source])}}
    changes = [_without_folder(_placed(text, source)) for text in settings]
    profile, assumed = _assumed_profile(given, source, changes)
    return decoded(file, {**given, **profile}, changes, _Described), assumed


def _assumed_profile(
    given: Mapping[str, Any], source: str, settings: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """The profile of random jobs with models where none is named: the analytic one, for their models."""
    if given.get("profile"):
        return {}, []
    trace = given.get("trace")
    section = trace.get(source) if isinstance(trace, dict) else None
    drawn = section.get("templates") if isinstance(section, dict) and source == "generate" else None
    kinds = drawn or [list(pair) for pair in TEMPLATES]
    keys = [text.partition("=")[0] for text in settings]
    if any(key.startswith("profile[0].tables") for key in keys):
        return {"profile": [{}]}, []
    if any(key.startswith("profile") for key in keys):
        return {"profile": [{"kinds": kinds}]}, []
    if source != "published" and not drawn:
        return {}, []
    note = (
        "no throughput was given: iterations come from the invented analytic profile 'balanced' "
        "(--set tables=FOLDER names measured ones)"
    )
    return {"profile": [{"analytic": "balanced", "kinds": kinds}]}, [note]


def _one_key(section: Any) -> bool:
    return isinstance(section, dict) and len(section) == 1


def _placed(text: str, source: str) -> str:
    """A short key where it belongs: `tables` in the profile, `first` in the trace, others in the generator."""
    key = text.partition("=")[0].strip()
    first = key.partition(".")[0].partition("[")[0]
    if first in ("trace", "profile"):
        return text
    if first in _PROFILE_KEYS:
        return f"profile[0].{text}"
    return f"trace.{text}" if first in _TRACE_KEYS else f"trace.{source}.{text}"


def _without_folder(text: str) -> str:
    """`tables=FOLDER` as the files in it."""
    key, _, value = text.partition("=")
    folder = Path(value.strip()).expanduser()
    if key != "profile[0].tables" or not folder.is_dir():
        return text
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise UsageError.at(f"--set tables={value}", "the folder contains no <model>.csv with throughput")
    return f"{key}={[str(path.resolve()) for path in files]!r}"


def _with_jobs(spec: TraceSpec, count: int) -> TraceSpec:
    if spec.generate is not None:
        return spec.with_(generate=spec.generate.with_(jobs=count))
    if spec.published is not None:
        return spec.with_(published=spec.published.with_(jobs=count))
    raise UsageError.at("--count", "is for drawn jobs; a resampled log has whole blocks (--set blocks=N)")


def _until(
    spec: TraceSpec, profile: ThroughputTable | None, seed: int, repairs: RepairLog, horizon_s: float
) -> tuple[TraceSpec, JobTable]:
    """A trace that reaches an instant: as many jobs as it takes, since more jobs change none before."""
    drawn = spec.resample is None and spec.file is None
    count = 64
    while True:
        wide = _with_jobs(spec, count) if drawn else spec
        table = table_from(wide, profile, seed, repairs)
        if not drawn or table.jobs.submit_s.max() >= horizon_s:
            return wide, table
        count *= 4


def _csv_writer(text: str) -> Callable[[Path], None]:
    """What saves a log as CSV. Raises UsageError for a path that says otherwise."""

    def save(path: Path) -> None:
        if path.suffix != ".csv":
            raise UsageError.at(str(path), f"jobs are written as .csv, not {path.suffix!r}")
        write_text(path, text, error=TraceError)

    return save


def _generated_notes(spec: TraceSpec, profile: ThroughputTable | None) -> list[str]:
    """Where throughput comes from, and what stands for the draws that the original never seeds."""
    notes = [f"throughput: {profile.source}"] if profile is not None else []
    if spec.published is not None:
        notes.append(
            f"the original leaves {' and '.join(UNSEEDED)} to a generator it never seeds; here slack_seed="
            f"{spec.published.slack_seed} stands for it"
        )
    return notes


# --------------------------------------------------------------------------- likeness of a fit


def judged(trace: Trace, spec: JobGenerator, *, seed: int, traces: int) -> tuple[Feature, ...]:
    """The log beside random traces of its description (of a longer log, its first 20,000 jobs).

    Parameters
    ----------
    trace : the log.
    spec : the description fitted to it.
    seed : of the first trace.
    traces : how many; the bands are their 95 % ranges.
    """
    first = min(len(trace), _MOST_JUDGED)
    seen = _figures(
        np.asarray(trace["submit_s"], np.float64)[:first],
        np.asarray(trace["duration_s"], np.float64)[:first],
        np.ceil(np.asarray(trace["gpus"], np.float64)[:first] - 1e-9),
    )
    bare = spec.with_(templates=(), template_shares=(), jobs=first)
    drawn = []
    for number in range(traces):
        made = generate(bare, None, seed + 1 + number)
        drawn.append(_figures(made.submit_s.astype(float), made.duration_s.astype(float), made.gpus))
    bands = {name: np.quantile([each[name] for each in drawn], [0.025, 0.975]) for name in seen}
    return tuple(Feature(name, float(value), *map(float, bands[name])) for name, value in seen.items())


def _figures(submit_s: F64, duration_s: F64, gpus: Any) -> dict[str, float]:
    """The figures by which a log is compared with what its description generates."""
    gaps = np.diff(submit_s)
    hours = max(1, int((submit_s[-1] - submit_s[0]) // _HOUR_S))
    counts = np.bincount(np.minimum(((submit_s - submit_s[0]) // _HOUR_S).astype(int), hours - 1))
    work = duration_s * gpus
    logs = np.log(np.maximum(duration_s, 1.0))
    return {
        "jobs an hour": len(submit_s) / max((submit_s[-1] - submit_s[0]) / _HOUR_S, 1e-9),
        "gap cv": float(gaps.std() / gaps.mean()) if gaps.mean() > 0 else 0.0,
        "jobs in the busiest hour": float(counts.max()),
        "hourly count dispersion": float(counts.var() / counts.mean()),
        "duration p50 s": float(np.median(duration_s)),
        "duration p90 s": float(np.quantile(duration_s, 0.9)),
        "duration p99 s": float(np.quantile(duration_s, 0.99)),
        "mean duration s": float(duration_s.mean()),
        "one-GPU jobs share": float(np.mean(gpus <= 1)),
        "GPU-hours a job": float(work.mean() / _HOUR_S),
        "GPUs-duration correlation": _correlation(np.log(np.maximum(gpus, 1)), logs),
    }


def _correlation(one: F64, two: F64) -> float:
    return float(np.corrcoef(one, two)[0, 1]) if one.std() > 0 and two.std() > 0 else 0.0


def _likeness(fitted: FittedJobs, jobs: int) -> str:
    text = f"durations differ from the fitted mixture by {fitted.duration_distance:.3f} (Kolmogorov-Smirnov)"
    if fitted.slack_distance is not None:
        text += f", slack from a uniform one by {fitted.slack_distance:.3f}"
    return text + (f"; judged on the first {_MOST_JUDGED:,} of {jobs:,} jobs" if jobs > _MOST_JUDGED else "")


# --------------------------------------------------------------------------- statistics


def _jobs_of(recorded: Recorded) -> Trace:
    trace = recorded.trace()
    if trace.kind != "jobs":
        raise UsageError.at(str(recorded.only()), f"contains {trace.kind}; a job log is expected")
    return trace


def _statistics(trace: Trace, gpus: int, log: RepairLog) -> TraceReport:
    """Size, load, durations, deadlines and models of a log. gpus: of a cluster to compare it with; 0: none."""
    submit_s, duration_s = (np.asarray(trace[name], np.float64) for name in ("submit_s", "duration_s"))
    size = np.asarray(trace["gpus"], np.float64)
    work = duration_s * size
    span_s = float(submit_s[-1] - submit_s[0])
    data: dict[str, Any] = {
        "format": trace.provenance.format,
        "jobs": len(trace),
        "span_days": span_s / 86_400,
        "gpu_hours": float(work.sum()) / _HOUR_S,
        "offered_load_gpus": float(work.sum()) / span_s if span_s > 0 else None,
        "gap_mean_s": span_s / (len(trace) - 1) if len(trace) > 1 else None,
        **{
            f"duration_{name}_s": float(np.quantile(duration_s, q))
            for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
        },
        "gpus_max": float(size.max()),
    }
    notes = []
    if "start_s" in trace:
        data["held_gpus_max"] = float(demand(trace)[1].max(initial=0.0))
        if gpus and (fault := cannot_have_run_on(trace, gpus)):
            notes.append(fault)
    if gpus:
        data["load_of_cluster"] = float(work.sum()) / (span_s * gpus) if span_s > 0 else None
        if over := int(np.count_nonzero(size > gpus)):
            notes.append(f"{over} jobs ask for more than {gpus} GPUs")
    data |= _deadline_figures(trace, submit_s, duration_s)
    for name in ("user", "vc", "model"):
        if name in trace and any(texts := [text for text in trace[name].tolist() if text]):
            data[f"{name}s"] = len(set(texts))
    sizes = tuple(
        (
            float(one),
            int(np.count_nonzero(size == one)),
            float(np.mean(size == one)),
            float(work[size == one].sum() / max(work.sum(), 1e-12)),
            float(np.median(duration_s[size == one])),
        )
        for one in np.unique(size)[:16].tolist()
    )
    states = _counted(trace, "state")
    data["sizes"] = [
        dict(zip(("gpus", "jobs", "share", "gpu_hours_share", "duration_p50_s"), row, strict=True))
        for row in sizes
    ]
    if states:
        data["states"] = dict(states)
    figures = tuple((name, value) for name, value in data.items() if not isinstance(value, (list, dict)))
    tables = [
        ReportTable("the job log", ("figure", "value"), figures, "one figure a row, in the unit beside it"),
        ReportTable(
            "jobs by their size",
            ("GPUs", "jobs", "share of jobs", "share of GPU-hours", "median duration s"),
            sizes,
            "GPUs: that a job asks for; share of GPU-hours: of all that the log's jobs took",
        ),
    ]
    if states:
        tables.append(
            ReportTable(
                "jobs by their last state", ("state", "jobs"), tuple(states), "state: as the log has it"
            )
        )
    return TraceReport(
        data=data | {"notes": notes}, tables=tuple(tables), notes=tuple(notes), repairs=log.repairs
    )


def _deadline_figures(trace: Trace, submit_s: F64, duration_s: F64) -> dict[str, Any]:
    """Figures of the deadlines of a log; none if it has no such column."""
    if "deadline_s" not in trace:
        return {}
    deadline_s, effort = np.asarray(trace["deadline_s"], np.float64), without_deadline(trace)
    figures: dict[str, Any] = {"best_effort_share": float(effort.mean())}
    if not effort.all():
        slack = (deadline_s - submit_s)[~effort] / np.maximum(duration_s[~effort], 1.0)
        figures |= {
            f"slack_{name}": float(np.quantile(slack, q))
            for name, q in (("min", 0), ("p50", 0.5), ("max", 1))
        }
        figures["deadlines_before_submission"] = int(np.count_nonzero(slack < 0))
        figures["deadlines_before_own_duration"] = int(np.count_nonzero(slack < 1))
    return figures


def _counted(trace: Trace, name: str) -> list[tuple[str, int]]:
    if name not in trace:
        return []
    texts, counts = np.unique(np.array([str(text) for text in trace[name].tolist()]), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:12]
    return [(str(texts[at]), int(counts[at])) for at in order]
