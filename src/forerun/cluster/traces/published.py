"""Job traces as ElasticFlow's authors made them: their generator, and their conversion of raw logs.

Gu et al., ElasticFlow, ASPLOS'23; figures 9, 10 and 11 use the generator.
"""

from __future__ import annotations

import math
from random import Random
from typing import Annotated, Final

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64, Jobs, ThroughputTable
from forerun.cluster.traces.generate import JobGenerator, choose_kinds
from forerun.core.errors import Problem, ProfileError, TraceError
from forerun.core.rng import stream
from forerun.core.scenario.spec import Spec
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.table import Trace

#: (model, global batch) in the order in which the published generator draws them
TEMPLATES: Final = (
    *(("resnet50", batch) for batch in (64, 128, 256)),
    *(("vgg16", batch) for batch in (64, 128, 256)),
    *(("inception3", batch) for batch in (64, 128)),
    *(("gpt2", batch) for batch in (128, 256)),
    *(("bert", batch) for batch in (128, 64)),
    *(("deepspeech2", batch) for batch in (64, 32)),
)
_SCALES: Final = ((0.83, 1), (0.86, 2), (0.89, 4), (0.99, 8), (1.0, 16))
#: what the published conversion of raw logs leaves out: numbers of GPUs, and shorter jobs
_UNWANTED_GPUS: Final = (3, 5, 6, 7)
_LEAST_S: Final = 600.0


class PublishedGenerator(Spec, frozen=True, kw_only=True):
    """The job generator published with ElasticFlow, number by number.

    jobs: how many. mean_gap_s: mean time between submissions. least_slack, most_slack: a deadline is uniformly between these
    numbers of durations after the submission (default 0.5, 1.5). best_effort_share: share of jobs without a deadline
    (default 0). slack_seed: seeds deadlines and best-effort jobs, which the original leaves unseeded (default 0).
    """

    jobs: Annotated[int, msgspec.Meta(ge=1)]
    mean_gap_s: Annotated[float, msgspec.Meta(gt=0)]
    least_slack: float = 0.5
    most_slack: float = 1.5
    best_effort_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    slack_seed: int = 0


def published(spec: PublishedGenerator, profile: ThroughputTable, seed: int = 0) -> Jobs:
    """The jobs of the generator published with ElasticFlow, draw for draw.

    Templates, gaps, durations and sizes come from streams seeded with `seed`, `seed + 1`, `+ 2` and `+ 3`. Deadline
    slack and the best-effort coin came from a generator the original never seeds: `spec.slack_seed` stands for it, which is
    why the published figures 9 and 11 differ at each run of the original. Raises ProfileError if the profile lacks a
    throughput that a draw needs.
    """
    templates, gaps, durations, sizes = (Random(seed + at) for at in range(4))
    unseeded = Random(spec.slack_seed)
    rate = profile.rate_at()
    rows: list[tuple[int, int, int, int, str, int, int, bool]] = []
    arrival_s = 0.0
    for number in range(spec.jobs):
        u = sizes.random()
        gpus = next(count for below, count in _SCALES if u < below)
        model, batch = templates.choice(TEMPLATES)
        low, high = (2.5, 4.0) if durations.random() >= 0.8 else (1.0, 2.5)
        duration_s = 60 * 10 ** durations.uniform(low, high)
        iterations = int(duration_s * _rate(profile, rate, model, batch, gpus))
        if number:
            arrival_s += -math.log(1.0 - gaps.random()) * spec.mean_gap_s
        deadline_s = arrival_s + int(unseeded.uniform(spec.least_slack, spec.most_slack) * duration_s)
        effort = unseeded.random() < spec.best_effort_share
        rows.append(
            (int(arrival_s), gpus, int(duration_s), iterations, model, batch, int(deadline_s), effort)
        )
    submit, size, seconds, steps, models, batches, due, alone = zip(*rows, strict=True)
    return Jobs.of(
        submit,
        size,
        seconds,
        iterations=steps,
        model=models,
        batch=batches,
        deadline_s=due,
        best_effort=alone,
    )


def _rate(profile: ThroughputTable, rate: F64, model: str, batch: int, gpus: int) -> float:
    """Throughput of a template on some GPUs. Raises ProfileError where there is none."""
    kind = profile.kind_of(model, batch)
    if kind < 0 or gpus >= rate.shape[1] or not rate[kind, gpus] > 0:
        raise ProfileError.at(
            f"profile of {profile.gpu_type}",
            f"has no throughput of {model} with batch {batch} on {gpus} GPUs",
        )
    return float(rate[kind, gpus])


def from_log(trace: Trace, profile: ThroughputTable, *, seed: int, repairs: RepairLog) -> Jobs:
    """The jobs of a raw log with random models, iterations and deadlines.

    As the published conversion does, jobs that failed, with 3, 5, 6, 7 or more than 64 GPUs, or shorter than ten
    minutes are left out (all counted); a template is random among those with a batch of at least a sample a GPU.
    Deadlines are 0.5 to 1.5 durations after the submission.

    Parameters
    ----------
    trace : the log.
    profile : throughput of the templates.
    seed : of templates and deadlines.
    repairs : counts what is left out.
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
        (f"job shorter than {_LEAST_S:g} s left out", duration_s < _LEAST_S),
        ("job with a number of GPUs without throughput left out", ~np.isin(gpus, sizes)),
    )
    usable = np.ones(len(trace), np.bool_)
    for rule, where in rules:
        rows = np.flatnonzero(where & usable)
        repairs.note_many(rule, [f"{trace.provenance.source}: row {row}" for row in rows[:3]], len(rows))
        usable &= ~where
    if not usable.any():
        raise TraceError(Problem(trace.provenance.source, "no job is left; " + "; ".join(repairs.lines())))
    draws = {name: stream(seed, "log", name).random(len(trace))[usable] for name in ("template", "slack")}
    size, seconds = gpus[usable].astype(np.int64), duration_s[usable].astype(np.int64)
    submit_s = np.asarray(trace["submit_s"], np.float64)[usable]
    submit = (submit_s - submit_s[0]).astype(np.int64)
    kind = choose_kinds(JobGenerator(jobs=1, mean_gap_s=1.0), profile, size, draws["template"])
    slack = 0.5 + draws["slack"]
    return Jobs.of(
        submit,
        size,
        seconds,
        iterations=np.maximum(1, (seconds * rate[kind, size]).astype(np.int64)),
        model=tuple(profile.kinds[at][0] for at in kind),
        batch=[profile.kinds[at][1] for at in kind],
        deadline_s=submit + (slack * seconds).astype(np.int64),
    )
