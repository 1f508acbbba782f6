"""Job traces made up: the published generator draw for draw, and our own, fitted to a real trace.

`published` repeats the generator behind figures 9, 10 and 11. `generate` draws from a `JobGenerator`: one named
stream a purpose and one draw a job in each, so that more jobs, other deadlines or another policy shift nothing else.
`fit` makes a `JobGenerator` from a log, `bootstrap` shuffles blocks of one, `from_log` gives its jobs models and
deadlines.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from random import Random
from statistics import NormalDist
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from forerun.domains.cluster.inputs import JobTable
from forerun.domains.cluster.model import BOOL, F64, I64, NO_DEADLINE_S, Profile
from forerun.errors import Problem, ProfileError, ScenarioError, TraceError, known_names
from forerun.result.tables import spreadsheet_safe
from forerun.rng import stream
from forerun.scenario.spec import Input, Spec
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
#: jobs come before this: whole seconds beyond are not exact
LONGEST_S: Final = float(1 << 53)
_MOST_FITTED: Final = 20_000
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
            vc=("",) * len(self),
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
    """How often jobs ask for so many GPUs, and how much longer than the mixture they take; shares need not sum to 1."""

    gpus: Annotated[int, msgspec.Meta(ge=1)]
    share: Annotated[float, msgspec.Meta(gt=0)]
    duration_factor: Annotated[float, msgspec.Meta(gt=0)] = 1.0


class JobGenerator(Spec, frozen=True, kw_only=True):
    """What generated jobs look like.

    Arrivals are Poisson with a rate that follows `hourly_rates` (relative, one value an hour of the day or of the
    week, repeated; none: constant) around a mean gap. Durations are a mixture of log-normals, cut at
    [`least_duration_s`, `most_duration_s`]. Sizes are drawn from `sizes`, templates from the profile's kinds (or
    `templates`) that can run on the size, in proportion to `template_shares` (none: uniformly). Deadlines are
    `least_slack` to `most_slack` durations from the submission, uniformly. Without a profile jobs have no model: they run
    rigid for their duration; and have a deadline only if slack is given (with a profile: 0.5 to 1.5, if it is not).
    """

    jobs: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
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
    template_shares: tuple[Annotated[float, msgspec.Meta(gt=0)], ...] = ()
    least_slack: float | None = None
    most_slack: float | None = None
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
        least, most = self.slack
        if not 0 <= least <= most:
            found.append(("most_slack", f"is {most:g}; 0 <= least_slack ({least:g}) <= most_slack is wanted"))
        if len(self.hourly_rates) not in (0, 24, 168):
            found.append(("hourly_rates", f"has {len(self.hourly_rates)} values; 24, 168 or none are wanted"))
        if self.hourly_rates and (min(self.hourly_rates) < 0 or max(self.hourly_rates) <= 0):
            found.append(("hourly_rates", "must not be negative, nor all zero"))
        if len(self.template_shares) not in (0, len(self.templates)):
            found.append(
                (
                    "template_shares",
                    f"has {len(self.template_shares)} values for {len(self.templates)} templates",
                )
            )
        return found

    @property
    def slack(self) -> tuple[float, float]:
        """(least, most) durations from a submission to its deadline."""
        least = 0.5 if self.least_slack is None else self.least_slack
        return least, 1.5 if self.most_slack is None else self.most_slack

    @property
    def rigid_deadlines(self) -> bool:
        """Whether jobs without a model have deadlines too."""
        return self.least_slack is not None or self.most_slack is not None


class Resample(Spec, frozen=True, kw_only=True):
    """A log's own jobs again, in whole blocks of time drawn with replacement: bursts, sessions and days stay together.

    `format` as for a trace's file. `blocks` 0: as many as the log has.
    """

    file: Input
    format: str = ""
    block_s: Annotated[float, msgspec.Meta(gt=0)] = 86_400.0
    blocks: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0

    def problems(self) -> list[tuple[str, str]]:
        """A format that exists."""
        what = unknown_format(self.format)
        return [("format", what)] if what else []


def unknown_format(name: str) -> str:
    """That a trace format does not exist, with those that do; empty for one that does, `native` and no name."""
    if name in ("", "native"):
        return ""
    from forerun.trace.reader import readers

    known = readers().names()
    return "" if name in known else f"no trace format named {name!r}; {known_names(name, (*known, 'native'))}"


def generate(spec: JobGenerator, profile: Profile | None, seed: int) -> MadeJobs:
    """Jobs drawn from a description; the first n of more jobs are the n of fewer.

    Without a profile they have no model. Raises ProfileError if no template can run on a size that was drawn,
    ScenarioError for templates without a profile.
    """
    if profile is None and spec.templates:
        raise ScenarioError.at(
            "profile", "drawing jobs with models needs throughput: give tables or analytic"
        )
    count = spec.jobs
    draws = {
        purpose: stream(seed, "cluster jobs", purpose).random(count)
        for purpose in ("arrival", "hump", "duration", "size", "template", "slack", "best effort")
    }
    arrivals_s = _arrivals_s(spec, draws["arrival"])
    if not arrivals_s[-1] < LONGEST_S:
        raise ScenarioError.at(
            "trace.generate",
            f"the last of {count} jobs would come after {arrivals_s[-1]:.3g} s: too late to count",
        )
    submit_s = np.floor(arrivals_s).astype(np.int64)
    of_size = _choice(np.array([size.share for size in spec.sizes]), draws["size"])
    gpus = np.array([size.gpus for size in spec.sizes], np.int64)[of_size]
    factor = np.array([size.duration_factor for size in spec.sizes])[of_size]
    seconds = _durations_s(spec, factor, draws["hump"], draws["duration"])
    duration_s = np.maximum(1, np.floor(seconds)).astype(np.int64)
    least, most = spec.slack
    deadline_s = submit_s + ((least + (most - least) * draws["slack"]) * duration_s).astype(np.int64)
    best_effort = (draws["best effort"] < spec.best_effort_share).astype(np.int64)
    if profile is None:
        none = np.zeros(count, np.int64)
        return MadeJobs(
            submit_s=submit_s,
            iterations=none,
            model=("",) * count,
            deadline_s=deadline_s if spec.rigid_deadlines else np.full(count, NO_DEADLINE_S),
            batch=none,
            gpus=gpus,
            duration_s=duration_s,
            best_effort=best_effort if spec.rigid_deadlines else none + 1,
        )
    kind = _templates(spec, profile, gpus, draws["template"])
    rate = profile.rate_at()[kind, gpus]
    return MadeJobs(
        submit_s=submit_s,
        iterations=np.maximum(1, (duration_s * rate).astype(np.int64)),
        model=tuple(profile.kinds[at][0] for at in kind),
        deadline_s=deadline_s,
        batch=np.array([profile.kinds[at][1] for at in kind], np.int64),
        gpus=gpus,
        duration_s=duration_s,
        best_effort=best_effort,
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


def _durations_s(spec: JobGenerator, factor: F64, hump: F64, u: F64) -> F64:
    """Quantiles of the chosen hump times the factor of the size, between the two limits."""
    part = _choice(np.array([p.weight for p in spec.durations]), hump)
    normal = NormalDist()
    z = np.array([normal.inv_cdf(min(max(value, 1e-12), 1 - 1e-12)) for value in u])
    median = np.array([p.median_s for p in spec.durations])[part]
    spread = np.array([p.log_spread for p in spec.durations])[part]
    with np.errstate(over="ignore"):  # beyond all limits is beyond the upper one
        drawn = factor * median * np.exp(spread * z)
    durations: F64 = np.clip(drawn, spec.least_duration_s, spec.most_duration_s)
    return durations


def _templates(spec: JobGenerator, profile: Profile, gpus: I64, u: F64) -> I64:
    """A row of the profile for each job, drawn among those that can run on its GPUs with a batch of at least one
    sample a GPU."""
    rate = profile.rate_at()
    kinds = [profile.kind_of(model, batch) for model, batch in spec.templates] or list(
        range(len(profile.kinds))
    )
    if -1 in kinds:
        model, batch = spec.templates[kinds.index(-1)]
        raise ProfileError.at(
            f"profile of {profile.gpu_type}", f"has no throughput of {model} with batch {batch}"
        )
    shares = np.array(spec.template_shares or (1.0,) * len(kinds))
    chosen = np.zeros(len(gpus), np.int64)
    for size in np.unique(gpus).tolist():
        able = [
            at
            for at, k in enumerate(kinds)
            if size < rate.shape[1] and rate[k, size] > 0 and profile.kinds[k][1] >= size
        ]
        if not able:
            raise ProfileError.at(f"profile of {profile.gpu_type}", f"has nothing that runs on {size} GPUs")
        at = gpus == size
        chosen[at] = np.array(kinds)[able][_choice(shares[able], u[at])]
    return chosen


@dataclass(frozen=True, slots=True)
class FittedJobs:
    """A description fitted to a log and how far it is from it.

    `duration_distance` is the largest distance between the two distributions of durations (Kolmogorov-Smirnov);
    `slack_distance` that of the deadlines' slack from a uniform one, None without deadlines.
    """

    spec: JobGenerator
    duration_distance: float
    notes: tuple[str, ...]
    slack_distance: float | None = None


def fit(trace: Trace, *, humps: int = 0) -> FittedJobs:
    """A `JobGenerator` like a log of jobs: gaps, hours, durations, sizes; models, slack and best effort where it has them.

    Durations: each size's geometric mean as a factor, and a mixture by expectation-maximisation from quantile starts, so
    the same log gives the same fit (of more than 20,000 jobs, on as many quantiles); `humps` 0 takes the number of one to
    four with the least Bayesian information criterion. Hours of the week are fitted from two weeks on, hours of the day
    from two days on. A log without deadlines leaves slack and coin at their defaults, as a note says.
    """
    if len(trace) < 10:
        raise TraceError.at(trace.provenance.source, f"has {len(trace)} jobs; a fit wants at least 10")
    submit_s = np.asarray(trace["submit_s"], np.float64)
    duration_s = np.asarray(trace["duration_s"], np.float64)
    gpus = np.maximum(1, np.ceil(np.asarray(trace["gpus"], np.float64) - 1e-9)).astype(np.int64)
    span_s = float(submit_s[-1] - submit_s[0])
    logs, factors = _without_sizes(np.log(np.maximum(duration_s, 1.0)), gpus)
    logs = _quantiles(logs, _MOST_FITTED)
    parts = _mixture(logs, humps) if humps else _best_mixture(logs)
    counts = np.bincount(gpus)
    rates, note = _hourly(submit_s - submit_s[0], span_s)
    templates, shares = _template_counts(trace)
    slack = _slack(trace, submit_s, duration_s)
    spec = JobGenerator(
        jobs=len(trace),
        mean_gap_s=max(span_s / max(len(trace) - 1, 1), 1e-9),
        hourly_rates=rates,
        durations=parts,
        least_duration_s=float(max(duration_s.min(), 1.0)),
        most_duration_s=float(max(duration_s.max(), 1.0)),
        sizes=tuple(
            SizeShare(gpus=size, share=float(counts[size] / len(trace)), duration_factor=factors[size])
            for size in np.flatnonzero(counts).tolist()
        ),
        templates=templates,
        template_shares=shares,
    )
    notes = [note]
    if "best_effort" in trace or len(slack):
        spec = spec.with_(best_effort_share=float(without_deadline(trace).mean()))
    slack_distance = None
    if len(slack):
        spec = spec.with_(least_slack=float(slack.min()), most_slack=float(slack.max()))
        slack_distance = _uniform_distance(slack)
    else:
        notes.append(
            "the log has no deadlines: generated jobs have some only with models, by the generator's default slack"
        )
    if not templates:
        notes.append("the log has no models: jobs are rigid unless a profile is given")
    fraction = int(np.count_nonzero(np.asarray(trace["gpus"]) % 1))
    if fraction:
        notes.append(f"{fraction} jobs with a fraction of a GPU count as whole GPUs")
    distance = _distance(_quantiles(logs, 2000), parts)
    return FittedJobs(spec, distance, tuple(notes), slack_distance)


def _quantiles(values: F64, most: int) -> F64:
    """The values in order, or `most` evenly spaced quantiles of more."""
    ordered: F64 = np.sort(values)
    if len(ordered) > most:
        ordered = np.asarray(np.quantile(ordered, (np.arange(most) + 0.5) / most), np.float64)
    return ordered


def _template_counts(trace: Trace) -> tuple[tuple[tuple[str, int], ...], tuple[float, ...]]:
    if "model" not in trace or "batch" not in trace:
        return (), ()
    models = (text or "" for text in trace["model"].tolist())
    pairs = Counter(zip(models, map(int, trace["batch"].tolist()), strict=True))
    known = sorted((pair, count) for pair, count in pairs.items() if pair[0] and pair[1])
    return tuple(pair for pair, _ in known), tuple(count / len(trace) for _, count in known)


def without_deadline(trace: Trace) -> BOOL:
    """Which jobs of a log have no deadline: best-effort ones, and those with an empty cell."""
    none: BOOL = np.zeros(len(trace), np.bool_)
    if "best_effort" in trace:
        none |= np.asarray(trace["best_effort"]) == 1
    if "deadline_s" in trace:
        none |= ~(np.asarray(trace["deadline_s"], np.float64) < NO_DEADLINE_S)
    return none


def _slack(trace: Trace, submit_s: F64, duration_s: F64) -> F64:
    """Deadline less submission over duration of the jobs with a deadline, not below 0."""
    if "deadline_s" not in trace:
        return np.empty(0)
    effort = without_deadline(trace)
    slack = (np.asarray(trace["deadline_s"], np.float64) - submit_s) / np.maximum(duration_s, 1.0)
    known: F64 = np.maximum(slack[~effort], 0.0)
    return known


def _uniform_distance(values: F64) -> float:
    ordered = np.sort(values)
    low, high = float(ordered[0]), float(ordered[-1])
    law = (ordered - low) / (high - low) if high > low else np.ones(len(ordered))
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(law - steps[1:]).max(), np.abs(law - steps[:-1]).max()))


def _without_sizes(logs: F64, gpus: I64) -> tuple[F64, dict[int, float]]:
    """Log durations less the mean of their size's, around the mean of all; and each size's factor.

    A size with fewer than ten jobs says too little about itself: its factor is 1.
    """
    factors = {}
    rest = logs.copy()
    for size in np.unique(gpus).tolist():
        at = gpus == size
        shift = float(logs[at].mean() - logs.mean()) if np.count_nonzero(at) >= 10 else 0.0
        rest[at] -= shift
        factors[size] = math.exp(shift)
    return rest, factors


def _best_mixture(logs: F64) -> tuple[LogNormalPart, ...]:
    """The mixture of one to four humps with the least Bayesian information criterion."""
    fits = [_mixture(logs, humps) for humps in (1, 2, 3, 4)]
    costs = [math.log(len(logs)) * (3 * len(parts) - 1) - 2 * _log_likelihood(logs, parts) for parts in fits]
    return fits[int(np.argmin(costs))]


def _log_likelihood(logs: F64, parts: Sequence[LogNormalPart]) -> float:
    total = sum(part.weight for part in parts)
    density = np.zeros(len(logs))
    for part in parts:
        spread = max(part.log_spread, 1e-3)  # a hump on one value must not win by an infinite density
        z = (logs - math.log(part.median_s)) / spread
        density += part.weight / total * np.exp(-0.5 * z * z) / (spread * math.sqrt(2 * math.pi))
    return float(np.log(density + 1e-300).sum())


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
        (rates / rates.mean()).round(6).tolist()
    ), f"arrivals follow {hours} hours, counted from the first submission"


def bootstrap(trace: Trace, *, block_s: float, blocks: int, seed: int) -> Trace:
    """A log made of whole blocks of another, drawn with replacement: keeps bursts, sessions and days together."""
    if not block_s > 0 or blocks < 1:
        raise TraceError.at(
            "bootstrap", f"wants a positive block and at least one of them, not {block_s:g}, {blocks}"
        )
    index, moved_s = _drawn_blocks(np.asarray(trace["submit_s"], np.float64), block_s, blocks, seed)
    columns: dict[str, Any] = {name: values[index] for name, values in trace.columns.items()}
    for name in ("submit_s", "start_s", "end_s", "deadline_s"):
        if name in columns:
            columns[name] = columns[name] + moved_s.astype(columns[name].dtype)
    if "job_id" in columns:
        columns["job_id"] = [f"{name}.{k}" for k, name in enumerate(columns["job_id"].tolist())]
    made = Trace.sorted(trace.kind, trace.schema, columns, time=trace.time, provenance=trace.provenance)
    return made.described(block_s=block_s, blocks=blocks, seed=seed)


def _drawn_blocks(submit_s: F64, block_s: float, blocks: int, seed: int) -> tuple[I64, F64]:
    """Rows of the blocks drawn, one block after the other, and the seconds by which each row moves."""
    first_s = float(submit_s.min())
    block_of = ((submit_s - first_s) // block_s).astype(np.int64)
    there = int(block_of.max()) + 1
    drawn = stream(seed, "block bootstrap").integers(0, there, blocks or there)
    rows = [np.flatnonzero(block_of == block) for block in drawn]
    shift = [
        np.full(len(at), (k - int(block)) * block_s)
        for k, (at, block) in enumerate(zip(rows, drawn, strict=True))
    ]
    return np.concatenate(rows), np.concatenate(shift)


def resampled(table: JobTable, *, block_s: float, blocks: int, seed: int) -> JobTable:
    """A job log made of whole blocks of another, as `bootstrap`; deadlines move with their jobs, ids get a number.

    Raises TraceError if the blocks drawn hold no job.
    """
    submit_s = np.asarray(table.submit_s, np.float64)
    index, moved_s = _drawn_blocks(submit_s, float(math.ceil(block_s)), blocks, seed)
    if not len(index):
        raise TraceError.at(table.source, f"the blocks of {block_s:g} s that were drawn hold no job")
    origin_s = int(submit_s.min())
    moved = [int(by) - origin_s for by in moved_s]
    order = sorted(range(len(index)), key=lambda at: table.submit_s[index[at]] + moved[at])
    rows, moved = [int(index[at]) for at in order], [moved[at] for at in order]

    def shifted(column: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            column[row] if column[row] == NO_DEADLINE_S else column[row] + by
            for row, by in zip(rows, moved, strict=True)
        )

    columns: dict[str, Any] = {
        name: tuple(column[row] for row in rows) for name, column in table.columns().items()
    }
    columns |= {
        name: shifted(getattr(table, name)) for name in ("submit_s", "deadline_s", "written_deadline_s")
    }
    columns["job_id"] = tuple(f"{name}.{at}" for at, name in enumerate(columns["job_id"]))
    return JobTable(source=table.source, **columns)


def jobs_csv(table: JobTable) -> str:
    """A job table as a file with the native header; columns that no job uses are left out.

    Reading it gives the table back, the lines and the source's name apart; but a name that a spreadsheet would run as a
    formula gets a leading apostrophe.
    """
    used = {
        "iteration": (table.iterations, any(table.iterations)),
        "model_name": (table.model, any(table.model)),
        "ddl": (
            tuple("" if at == NO_DEADLINE_S else at for at in table.written_deadline_s),
            any(at != NO_DEADLINE_S for at in table.written_deadline_s),
        ),
        "batch_size": (table.batch, any(table.batch)),
    }
    last = {
        "best_effort": (tuple(map(int, table.best_effort)), used["ddl"][1]),
        "user": (table.user, any(table.user)),
        "vc": (table.vc, any(table.vc)),
    }
    columns: dict[str, Sequence[Any]] = {"job_id": table.job_id, "submit_time": table.submit_s}
    columns |= {name: values for name, (values, wanted) in used.items() if wanted}
    columns |= {"num_gpu": table.gpus, "duration": table.duration_s}
    columns |= {name: values for name, (values, wanted) in last.items() if wanted}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([spreadsheet_safe(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()


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
    kind = _templates(JobGenerator(jobs=1, mean_gap_s=1.0), profile, size, draws["template"])
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
