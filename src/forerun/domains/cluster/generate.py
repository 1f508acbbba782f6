"""Job traces made up: the published generator draw for draw, and our own, fitted to a real trace.

`published` repeats the generator behind figures 9, 10 and 11. `generate` draws from a `JobGenerator`: one named
stream a purpose and one draw a job in each, so that more jobs, other deadlines or another policy shift nothing else.
`fit` makes a `JobGenerator` from a log, `bootstrap` shuffles blocks of one, `from_log` gives its jobs models and
deadlines.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from random import Random
from statistics import NormalDist
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from forerun.domains.cluster.inputs import JobTable
from forerun.domains.cluster.model import F64, I64, NO_DEADLINE_S, Profile
from forerun.errors import Problem, ProfileError, TraceError
from forerun.rng import stream
from forerun.scenario.spec import Spec
from forerun.trace.repair import RepairLog
from forerun.trace.table import Trace

#: (model, global batch) in the order in which the published generator draws them
TEMPLATES: Final = (
    ("resnet50", 64),
    ("resnet50", 128),
    ("resnet50", 256),
    ("vgg16", 64),
    ("vgg16", 128),
    ("vgg16", 256),
    ("inception3", 64),
    ("inception3", 128),
    ("gpt2", 128),
    ("gpt2", 256),
    ("bert", 128),
    ("bert", 64),
    ("deepspeech2", 64),
    ("deepspeech2", 32),
)
_SCALES: Final = ((0.83, 1), (0.86, 2), (0.89, 4), (0.99, 8), (1.0, 16))
_DAY_S: Final = 86_400.0
_UNWANTED_GPUS: Final = (3, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class MadeJobs:
    """Jobs as columns, in order of submission; `deadline_s` is what a file would say, also for best-effort jobs."""

    submit_s: I64
    iterations: I64
    model: tuple[str, ...]
    deadline_s: I64
    batch: I64
    gpus: I64
    duration_s: I64
    best_effort: I64

    def __len__(self) -> int:
        return len(self.submit_s)

    def csv(self) -> str:
        """The jobs in the native header."""
        out = io.StringIO()
        out.write("job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n")
        columns = [getattr(self, field.name) for field in fields(self)]
        for row, values in enumerate(zip(*(_listed(column) for column in columns), strict=True)):
            out.write(f"{row}," + ",".join(map(str, values)) + "\n")
        return out.getvalue()

    def table(self, source: str = "generated") -> JobTable:
        """The jobs as the room reads them."""
        effort = self.best_effort == 1
        deadline_s = np.where(effort, NO_DEADLINE_S, self.deadline_s)
        return JobTable(
            source=source,
            job_id=tuple(range(len(self))),
            submit_s=tuple(self.submit_s.tolist()),
            iterations=tuple(self.iterations.tolist()),
            model=self.model,
            deadline_s=tuple(deadline_s.tolist()),
            batch=tuple(self.batch.tolist()),
            gpus=tuple(self.gpus.tolist()),
            duration_s=tuple(self.duration_s.tolist()),
            best_effort=tuple(effort.tolist()),
            user=("",) * len(self),
            line=tuple(range(2, len(self) + 2)),
            written_deadline_s=tuple(self.deadline_s.tolist()),
        )


def published(
    jobs: int,
    mean_gap_s: float,
    profile: Profile,
    *,
    least_slack: float = 0.5,
    most_slack: float = 1.5,
    best_effort_share: float = 0.0,
    seed: int = 0,
    slack_seed: int = 0,
) -> MadeJobs:
    """The jobs of the generator published with ElasticFlow, draw for draw.

    Templates, gaps, durations and sizes come from streams seeded with `seed`, `seed + 1`, `+ 2` and `+ 3`. Deadline
    slack and the best-effort coin came from a generator the original never seeds: `slack_seed` stands for it, which is
    why the published figures 9 and 11 differ at each run of the original. Raises ProfileError if the profile lacks a
    throughput that a draw needs.
    """
    templates, gaps, durations, sizes = (Random(seed + at) for at in range(4))
    unseeded = Random(slack_seed)
    rate = profile.rate_at()
    rows: list[tuple[int, int, str, int, int, int, int, int]] = []
    arrival_s = 0.0
    for number in range(jobs):
        u = sizes.random()
        gpus = next(count for below, count in _SCALES if u < below)
        model, batch = templates.choice(TEMPLATES)
        low, high = (2.5, 4.0) if durations.random() >= 0.8 else (1.0, 2.5)
        duration_s = 60 * 10 ** durations.uniform(low, high)
        iterations = int(duration_s * _rate(profile, rate, model, batch, gpus))
        if number:
            arrival_s += -math.log(1.0 - gaps.random()) * mean_gap_s
        deadline_s = arrival_s + int(unseeded.uniform(least_slack, most_slack) * duration_s)
        effort = int(unseeded.random() < best_effort_share)
        rows.append(
            (int(arrival_s), iterations, model, int(deadline_s), batch, gpus, int(duration_s), effort)
        )
    return _made(rows)


def _rate(profile: Profile, rate: F64, model: str, batch: int, gpus: int) -> float:
    kind = profile.kind_of(model, batch)
    if kind < 0 or gpus >= rate.shape[1] or not rate[kind, gpus] > 0:
        raise ProfileError.at(
            f"profile of {profile.gpu_type}",
            f"has no throughput of {model} with batch {batch} on {gpus} GPUs",
        )
    return float(rate[kind, gpus])


def _made(rows: Sequence[tuple[int, int, str, int, int, int, int, int]]) -> MadeJobs:
    submit, iterations, model, deadline, batch, gpus, duration, effort = (
        zip(*rows, strict=True) if rows else ((),) * 8
    )
    as_ints = (
        np.array(values, np.int64) for values in (submit, iterations, deadline, batch, gpus, duration, effort)
    )
    submit_s, steps, deadline_s, batches, sizes, duration_s, efforts = as_ints
    return MadeJobs(submit_s, steps, tuple(map(str, model)), deadline_s, batches, sizes, duration_s, efforts)


class LogNormalPart(Spec, frozen=True, kw_only=True):
    """One hump of the duration distribution: its weight, median in seconds and the spread of its logarithm."""

    weight: Annotated[float, msgspec.Meta(gt=0)]
    median_s: Annotated[float, msgspec.Meta(gt=0)]
    log_spread: Annotated[float, msgspec.Meta(ge=0)]


class SizeShare(Spec, frozen=True, kw_only=True):
    """How often jobs ask for so many GPUs; shares need not sum to 1."""

    gpus: Annotated[int, msgspec.Meta(ge=1)]
    share: Annotated[float, msgspec.Meta(gt=0)]


class JobGenerator(Spec, frozen=True, kw_only=True):
    """What generated jobs look like.

    Arrivals are Poisson with a rate that follows `hourly_rates` (relative, one value an hour of the day or of the
    week, repeated; none: constant) around a mean gap. Durations are a mixture of log-normals, cut at
    [`least_duration_s`, `most_duration_s`]. Sizes are drawn from `sizes`, templates uniformly from the profile's kinds
    (or `templates`), slack uniformly.
    """

    jobs: Annotated[int, msgspec.Meta(ge=1)]
    mean_gap_s: Annotated[float, msgspec.Meta(gt=0)]
    hourly_rates: tuple[float, ...] = ()
    durations: tuple[LogNormalPart, ...] = (
        LogNormalPart(weight=0.8, median_s=3400.0, log_spread=1.0),
        LogNormalPart(weight=0.2, median_s=100_000.0, log_spread=1.0),
    )
    least_duration_s: float = 60.0
    most_duration_s: float = 1e6
    sizes: tuple[SizeShare, ...] = (
        SizeShare(gpus=1, share=0.83),
        SizeShare(gpus=2, share=0.03),
        SizeShare(gpus=4, share=0.03),
        SizeShare(gpus=8, share=0.10),
        SizeShare(gpus=16, share=0.01),
    )
    templates: tuple[tuple[str, int], ...] = ()
    least_slack: float = 0.5
    most_slack: float = 1.5
    best_effort_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """Ranges must rise, lists must not be empty, hourly rates must be one day's or one week's."""
        found = []
        if not self.durations:
            found.append(("durations", "is empty; at least one hump is wanted"))
        if not self.sizes:
            found.append(("sizes", "is empty; at least one size is wanted"))
        if not 0 < self.least_duration_s <= self.most_duration_s:
            found.append(("most_duration_s", f"is {self.most_duration_s:g}, below least_duration_s"))
        if not 0 <= self.least_slack <= self.most_slack:
            found.append(("most_slack", f"is {self.most_slack:g}; 0 <= least_slack <= most_slack is wanted"))
        if len(self.hourly_rates) not in (0, 24, 168):
            found.append(("hourly_rates", f"has {len(self.hourly_rates)} values; 24, 168 or none are wanted"))
        if self.hourly_rates and (min(self.hourly_rates) < 0 or max(self.hourly_rates) <= 0):
            found.append(("hourly_rates", "must not be negative, nor all zero"))
        return found


def generate(spec: JobGenerator, profile: Profile, seed: int) -> MadeJobs:
    """Jobs drawn from a description; the first n of more jobs are the n of fewer.

    Raises ProfileError if no template can run on a size that was drawn.
    """
    count = spec.jobs
    draws = {
        purpose: stream(seed, "cluster jobs", purpose).random(count)
        for purpose in ("arrival", "hump", "duration", "size", "template", "slack", "best effort")
    }
    submit_s = np.floor(_arrivals_s(spec, draws["arrival"])).astype(np.int64)
    duration_s = np.maximum(1, np.floor(_durations_s(spec, draws["hump"], draws["duration"]))).astype(
        np.int64
    )
    sizes = np.array([size.gpus for size in spec.sizes], np.int64)
    gpus = sizes[_choice(np.array([size.share for size in spec.sizes]), draws["size"])]
    slack = spec.least_slack + (spec.most_slack - spec.least_slack) * draws["slack"]
    kind = _templates(spec.templates, profile, gpus, draws["template"])
    rate = profile.rate_at()[kind, gpus]
    return MadeJobs(
        submit_s=submit_s,
        iterations=np.maximum(1, (duration_s * rate).astype(np.int64)),
        model=tuple(profile.kinds[at][0] for at in kind),
        deadline_s=submit_s + (slack * duration_s).astype(np.int64),
        batch=np.array([profile.kinds[at][1] for at in kind], np.int64),
        gpus=gpus,
        duration_s=duration_s,
        best_effort=(draws["best effort"] < spec.best_effort_share).astype(np.int64),
    )


def _choice(shares: F64, u: F64) -> I64:
    edges = np.cumsum(shares) / shares.sum()
    return np.minimum(np.searchsorted(edges, u, side="right"), len(shares) - 1)


def _arrivals_s(spec: JobGenerator, u: F64) -> F64:
    """Instants of a Poisson process whose rate follows the hours: unit-rate arrivals through the inverse of the
    cumulated rate; the first job arrives at 0."""
    unit = np.concatenate([[0.0], np.cumsum(-np.log1p(-u[1:]))]) * spec.mean_gap_s
    if not spec.hourly_rates:
        return unit
    rates = np.array(spec.hourly_rates) / np.mean(spec.hourly_rates)
    cumulated = np.concatenate([[0.0], np.cumsum(rates * 3600.0)])
    period_s = cumulated[-1]
    rounds, within = np.divmod(unit, period_s)
    hours = np.arange(len(rates) + 1) * 3600.0
    instants: F64 = rounds * len(rates) * 3600.0 + np.interp(within, cumulated, hours)
    return instants


def _durations_s(spec: JobGenerator, hump: F64, u: F64) -> F64:
    """Quantiles of the chosen hump, between the two limits."""
    part = _choice(np.array([p.weight for p in spec.durations]), hump)
    normal = NormalDist()
    z = np.array([normal.inv_cdf(min(max(value, 1e-12), 1 - 1e-12)) for value in u])
    median = np.array([p.median_s for p in spec.durations])[part]
    spread = np.array([p.log_spread for p in spec.durations])[part]
    durations: F64 = np.clip(median * np.exp(spread * z), spec.least_duration_s, spec.most_duration_s)
    return durations


def _templates(wanted: Sequence[tuple[str, int]], profile: Profile, gpus: I64, u: F64) -> I64:
    """A row of the profile for each job, uniform among those that can run on its GPUs with a batch of at least one
    sample a GPU."""
    rate = profile.rate_at()
    kinds = (
        [profile.kind_of(model, batch) for model, batch in wanted]
        if wanted
        else list(range(len(profile.kinds)))
    )
    if -1 in kinds:
        model, batch = wanted[kinds.index(-1)]
        raise ProfileError.at(
            f"profile of {profile.gpu_type}", f"has no throughput of {model} with batch {batch}"
        )
    chosen = np.zeros(len(gpus), np.int64)
    for size in np.unique(gpus).tolist():
        able = [
            k for k in kinds if size < rate.shape[1] and rate[k, size] > 0 and profile.kinds[k][1] >= size
        ]
        if not able:
            raise ProfileError.at(f"profile of {profile.gpu_type}", f"has nothing that runs on {size} GPUs")
        at = gpus == size
        chosen[at] = np.array(able)[np.minimum((u[at] * len(able)).astype(np.int64), len(able) - 1)]
    return chosen


@dataclass(frozen=True, slots=True)
class FittedJobs:
    """A description fitted to a log and how far it is from it.

    `duration_distance` is the largest distance between the two distributions of durations (Kolmogorov-Smirnov).
    """

    spec: JobGenerator
    duration_distance: float
    notes: tuple[str, ...]


def fit(trace: Trace, *, humps: int = 2) -> FittedJobs:
    """A `JobGenerator` like a log of jobs: gaps, hours, durations and sizes; slack and coin keep their defaults.

    Durations: expectation-maximisation from quantile starts, so the same log gives the same fit. Hours of the week
    are fitted from two weeks on, hours of the day from two days on.
    """
    if len(trace) < 10:
        raise TraceError.at(trace.provenance.source, f"has {len(trace)} jobs; a fit wants at least 10")
    submit_s = np.asarray(trace["submit_s"], np.float64)
    duration_s = np.asarray(trace["duration_s"], np.float64)
    gpus = np.maximum(1, np.ceil(np.asarray(trace["gpus"], np.float64))).astype(np.int64)
    span_s = float(submit_s[-1] - submit_s[0])
    parts = _mixture(np.log(np.maximum(duration_s, 1.0)), humps)
    counts = np.bincount(gpus)
    rates, note = _hourly(submit_s - submit_s[0], span_s)
    spec = JobGenerator(
        jobs=len(trace),
        mean_gap_s=max(span_s / max(len(trace) - 1, 1), 1e-9),
        hourly_rates=rates,
        durations=parts,
        least_duration_s=float(max(duration_s.min(), 1.0)),
        most_duration_s=float(max(duration_s.max(), 1.0)),
        sizes=tuple(
            SizeShare(gpus=int(size), share=float(counts[size] / len(trace)))
            for size in np.flatnonzero(counts)
        ),
    )
    grid = np.sort(np.log(np.maximum(duration_s, 1.0)))
    distance = _distance(grid, parts)
    fraction = int(np.count_nonzero(np.asarray(trace["gpus"]) % 1))
    notes = [note] + ([f"{fraction} jobs with a fraction of a GPU count as whole GPUs"] if fraction else [])
    return FittedJobs(spec, distance, tuple(notes))


def _mixture(logs: F64, humps: int) -> tuple[LogNormalPart, ...]:
    """Weights, medians and spreads of a mixture of normals in log time; humps that die are left out."""
    edges = np.quantile(logs, (np.arange(humps) + 0.5) / humps)
    mean, spread, weight = (
        edges.astype(np.float64),
        np.full(humps, logs.std() + 1e-6),
        np.full(humps, 1.0 / humps),
    )
    for _ in range(300):
        z = (logs[:, None] - mean) / spread
        density = weight * np.exp(-0.5 * z * z) / spread + 1e-300
        share = density / density.sum(axis=1, keepdims=True)
        total = share.sum(axis=0) + 1e-12
        new_mean = (share * logs[:, None]).sum(axis=0) / total
        spread = np.sqrt((share * (logs[:, None] - new_mean) ** 2).sum(axis=0) / total) + 1e-6
        weight = total / len(logs)
        moved = float(np.abs(new_mean - mean).max())
        mean = new_mean
        if moved < 1e-9:
            break
    return tuple(
        LogNormalPart(weight=float(w), median_s=float(np.exp(m)), log_spread=float(s))
        for w, m, s in sorted(zip(weight, mean, spread, strict=True), key=lambda part: part[1])
        if w > 1e-6
    )


def _distance(logs: F64, parts: Sequence[LogNormalPart]) -> float:
    normal = NormalDist()
    total = sum(part.weight for part in parts)
    model = np.array(
        [
            sum(
                p.weight / total * normal.cdf((x - math.log(p.median_s)) / max(p.log_spread, 1e-9))
                for p in parts
            )
            for x in logs.tolist()
        ]
    )
    steps = np.arange(len(logs) + 1) / len(logs)
    return float(max(np.abs(model - steps[1:]).max(), np.abs(model - steps[:-1]).max()))


def _hourly(submit_s: F64, span_s: float) -> tuple[tuple[float, ...], str]:
    """Relative arrivals an hour of the week or day, corrected for how often each hour was seen."""
    hours = 168 if span_s >= 14 * _DAY_S else 24 if span_s >= 2 * _DAY_S else 0
    if not hours:
        return (), "the log is shorter than two days: arrivals at a constant rate"
    slots = int(span_s // 3600) + 1
    seen = np.bincount(np.arange(slots) % hours, minlength=hours)
    counted = np.bincount((submit_s // 3600).astype(np.int64) % hours, minlength=hours)
    rates = counted / np.maximum(seen, 1)
    return tuple(
        (rates / rates.mean()).tolist()
    ), f"arrivals follow {hours} hours, counted from the first submission"


def bootstrap(trace: Trace, *, block_s: float, blocks: int, seed: int) -> Trace:
    """A log made of whole blocks of another, drawn with replacement: keeps bursts, sessions and days together."""
    if not block_s > 0 or blocks < 1:
        raise TraceError.at(
            "bootstrap", f"wants a positive block and at least one of them, not {block_s:g}, {blocks}"
        )
    submit_s = np.asarray(trace["submit_s"], np.float64)
    there = int((submit_s[-1] - submit_s[0]) // block_s) + 1
    drawn = stream(seed, "block bootstrap").integers(0, there, blocks)
    block_of = ((submit_s - submit_s[0]) // block_s).astype(np.int64)
    rows = [np.flatnonzero(block_of == block) for block in drawn]
    shift = [
        np.full(len(at), (k - int(block)) * block_s)
        for k, (at, block) in enumerate(zip(rows, drawn, strict=True))
    ]
    index, moved_s = np.concatenate(rows), np.concatenate(shift)
    columns: dict[str, Any] = {name: values[index] for name, values in trace.columns.items()}
    for name in ("submit_s", "start_s", "end_s", "deadline_s"):
        if name in columns:
            columns[name] = columns[name] + moved_s.astype(columns[name].dtype)
    if "job_id" in columns:
        columns["job_id"] = [f"{name}.{k}" for k, name in enumerate(columns["job_id"].tolist())]
    made = Trace.sorted(trace.kind, trace.schema, columns, time=trace.time, provenance=trace.provenance)
    return made.described(block_s=block_s, blocks=blocks, seed=seed)


def from_log(
    trace: Trace,
    profile: Profile,
    *,
    seed: int,
    repairs: RepairLog,
    least_slack: float = 0.5,
    most_slack: float = 1.5,
    best_effort_share: float = 0.0,
    least_duration_s: float = 600.0,
) -> MadeJobs:
    """The jobs of a raw log with models, iterations and deadlines drawn for them.

    As the published conversion does, jobs that failed, with 3, 5, 6, 7 or more than 64 GPUs, or shorter than ten
    minutes are left out (all counted); a template is drawn among those with a batch of at least a sample a GPU.
    """
    gpus = np.asarray(trace["gpus"], np.float64)
    duration_s = np.asarray(trace["duration_s"], np.float64)
    state = (
        [str(value).upper() for value in trace["state"].tolist()] if "state" in trace else [""] * len(trace)
    )
    rate = profile.rate_at()
    sizes = [size for size in range(rate.shape[1]) if (rate[:, size] > 0).any()]
    rules = (
        (
            "job that failed left out",
            np.array([text.startswith(("FAIL", "NODE_FAIL")) for text in state], np.bool_),
        ),
        ("job with 3, 5, 6, 7 or more than 64 GPUs left out", np.isin(gpus, _UNWANTED_GPUS) | (gpus > 64)),
        (f"job shorter than {least_duration_s:g} s left out", duration_s < least_duration_s),
        ("job with a number of GPUs without throughput left out", ~np.isin(gpus, sizes)),
    )
    kept = np.ones(len(trace), np.bool_)
    for rule, where in rules:
        rows = np.flatnonzero(where & kept)
        repairs.note_many(rule, [f"{trace.provenance.source}: row {row}" for row in rows[:3]], len(rows))
        kept &= ~where
    if not kept.any():
        raise TraceError(Problem(trace.provenance.source, "no job is left; " + "; ".join(repairs.lines())))
    draws = {
        name: stream(seed, "log", name).random(len(trace))[kept]
        for name in ("template", "slack", "best effort")
    }
    size, seconds = gpus[kept].astype(np.int64), duration_s[kept].astype(np.int64)
    submit_s = np.asarray(trace["submit_s"], np.float64)[kept]
    submit = (submit_s - submit_s[0]).astype(np.int64)
    kind = _templates((), profile, size, draws["template"])
    slack = least_slack + (most_slack - least_slack) * draws["slack"]
    return MadeJobs(
        submit_s=submit,
        iterations=np.maximum(1, (seconds * rate[kind, size]).astype(np.int64)),
        model=tuple(profile.kinds[at][0] for at in kind),
        deadline_s=submit + (slack * seconds).astype(np.int64),
        batch=np.array([profile.kinds[at][1] for at in kind], np.int64),
        gpus=size,
        duration_s=seconds,
        best_effort=(draws["best effort"] < best_effort_share).astype(np.int64),
    )


def _listed(column: Any) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else list(column)
