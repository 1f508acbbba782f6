"""Job traces as ElasticFlow's authors made them: their generator, and their conversion of raw logs.

Gu et al., ElasticFlow, ASPLOS'23; figures 9, 10 and 11 use the generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Final

import numpy as np

from forerun.domains.cluster.inputs.setting import F64, ThroughputTable
from forerun.domains.cluster.traces.generate import JobGenerator, MadeJobs, choose_kinds
from forerun.errors import Problem, ProfileError, TraceError
from forerun.rng import stream
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
_UNWANTED_GPUS: Final = (3, 5, 6, 7)


def published(
    jobs: int,
    mean_gap_s: float,
    profile: ThroughputTable,
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


def _rate(profile: ThroughputTable, rate: F64, model: str, batch: int, gpus: int) -> float:
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


def from_log(
    trace: Trace,
    profile: ThroughputTable,
    *,
    seed: int,
    repairs: RepairLog,
    least_slack: float = 0.5,
    most_slack: float = 1.5,
    best_effort_share: float = 0.0,
    least_duration_s: float = 600.0,
) -> MadeJobs:
    """The jobs of a raw log with random models, iterations and deadlines.

    As the published conversion does, jobs that failed, with 3, 5, 6, 7 or more than 64 GPUs, or shorter than ten
    minutes are left out (all counted); a template is random among those with a batch of at least a sample a GPU.
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
    kind = choose_kinds(JobGenerator(jobs=1, mean_gap_s=1.0), profile, size, draws["template"])
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
