"""Random job traces from a description (`JobGenerator`), and job tables as files.

Each purpose has a named stream of random numbers and each job one draw in each, so that more jobs, other deadlines or
another policy shift nothing else.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from statistics import NormalDist
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64, I64, NO_DEADLINE_S, Jobs, ThroughputTable
from forerun.cluster.inputs.files import JobTable
from forerun.core.errors import ProfileError, ScenarioError
from forerun.core.result.tables import spreadsheet_safe
from forerun.core.rng import stream
from forerun.core.scenario.spec import Spec

_DAY_S: Final = 86_400.0
#: jobs come before this: whole seconds beyond are not exact
LONGEST_S: Final = float(1 << 53)


class LogNormalPart(Spec, frozen=True, kw_only=True):
    """One hump of the duration distribution: its weight, median in seconds and the spread of its logarithm."""

    weight: Annotated[float, msgspec.Meta(gt=0)]
    median_s: Annotated[float, msgspec.Meta(gt=0)]
    log_spread: Annotated[float, msgspec.Meta(ge=0)]


class SizeShare(Spec, frozen=True, kw_only=True):
    """How often jobs ask for this many GPUs, and how much longer than the mixture they take; shares need not sum to 1."""

    gpus: Annotated[int, msgspec.Meta(ge=1)]
    share: Annotated[float, msgspec.Meta(gt=0)]
    duration_factor: Annotated[float, msgspec.Meta(gt=0)] = 1.0


class JobGenerator(Spec, frozen=True, kw_only=True):
    """What generated jobs look like.

    Arrivals are Poisson with a rate that follows `hourly_rates` (relative, one value an hour of the day or of the
    week, repeated; none: constant) around a mean gap. Durations are a mixture of log-normals, cut at
    [`least_duration_s`, `most_duration_s`]. Sizes are random from `sizes`, templates from the profile's kinds (or
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
        problems = []
        if not self.durations:
            problems.append(("durations", "is empty; at least one hump is required"))
        if not self.sizes:
            problems.append(("sizes", "is empty; at least one size is required"))
        if not 0 < self.least_duration_s <= self.most_duration_s:
            problems.append(("most_duration_s", f"is {self.most_duration_s:g}, below least_duration_s"))
        least, most = self.slack
        if not 0 <= least <= most:
            problems.append(
                ("most_slack", f"is {most:g}; 0 <= least_slack ({least:g}) <= most_slack is required")
            )
        if len(self.hourly_rates) not in (0, 24, 168):
            problems.append(
                ("hourly_rates", f"has {len(self.hourly_rates)} values; 24, 168 or none are expected")
            )
        if self.hourly_rates and (min(self.hourly_rates) < 0 or max(self.hourly_rates) <= 0):
            problems.append(("hourly_rates", "must not be negative, nor all zero"))
        if len(self.template_shares) not in (0, len(self.templates)):
            problems.append(
                (
                    "template_shares",
                    f"has {len(self.template_shares)} values for {len(self.templates)} templates",
                )
            )
        return problems

    @property
    def slack(self) -> tuple[float, float]:
        """(least, most) durations from a submission to its deadline."""
        least = 0.5 if self.least_slack is None else self.least_slack
        return least, 1.5 if self.most_slack is None else self.most_slack

    @property
    def rigid_deadlines(self) -> bool:
        """Whether jobs without a model have deadlines too."""
        return self.least_slack is not None or self.most_slack is not None


def generate(spec: JobGenerator, profile: ThroughputTable | None, seed: int) -> Jobs:
    """Random jobs from a description; the first n jobs are the same however many there are.

    Without a profile they have no model. Raises ProfileError if no template can run on a random size,
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
    best_effort = draws["best effort"] < spec.best_effort_share
    if profile is None:
        if not spec.rigid_deadlines:
            return Jobs.of(submit_s, gpus, duration_s)
        return Jobs.of(submit_s, gpus, duration_s, deadline_s=deadline_s, best_effort=best_effort)
    kind = choose_kinds(spec, profile, gpus, draws["template"])
    rate = profile.rate_at()[kind, gpus]
    return Jobs.of(
        submit_s,
        gpus,
        duration_s,
        iterations=np.maximum(1, (duration_s * rate).astype(np.int64)),
        model=tuple(profile.kinds[at][0] for at in kind),
        batch=[profile.kinds[at][1] for at in kind],
        deadline_s=deadline_s,
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


def choose_kinds(spec: JobGenerator, profile: ThroughputTable, gpus: I64, u: F64) -> I64:
    """A random row of the profile for each job, among those that can run on its GPUs with a batch of at least one
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


def jobs_csv(table: JobTable) -> str:
    """A job table as a file with the native header; columns that no job uses are left out.

    Reading it gives the table back, the lines and the source's name apart; but a name that a spreadsheet would run as a
    formula gets a leading apostrophe.
    """
    jobs = table.jobs
    has_deadlines = bool((jobs.written_deadline_s != NO_DEADLINE_S).any())
    due = ["" if at == NO_DEADLINE_S else at for at in jobs.written_deadline_s.tolist()]
    columns: dict[str, tuple[Sequence[Any], bool]] = {
        "job_id": (jobs.id, True),
        "submit_time": (jobs.submit_s.tolist(), True),
        "iteration": (jobs.iterations.tolist(), bool(jobs.iterations.any())),
        "model_name": (jobs.model, any(jobs.model)),
        "ddl": (due, has_deadlines),
        "batch_size": (jobs.batch.tolist(), bool(jobs.batch.any())),
        "num_gpu": (jobs.gpus.tolist(), True),
        "duration": (jobs.duration_s.tolist(), True),
        "best_effort": (jobs.best_effort.astype(np.int64).tolist(), has_deadlines),
        "user": (jobs.user, any(jobs.user)),
        "vc": (table.vc, any(table.vc)),
    }
    used = {name: values for name, (values, is_used) in columns.items() if is_used}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(used)
    for row in zip(*used.values(), strict=True):
        writer.writerow([spreadsheet_safe(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()
