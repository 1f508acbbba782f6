"""The jobs of a scenario as a bound sees them: when, how much work, and how fast on how many GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import lcm

import numpy as np

from forerun.cluster.bound import checker
from forerun.cluster.bound.checker import Job
from forerun.cluster.bound.files import files_of, not_from_files
from forerun.cluster.inputs.arrays import F64, NO_DEADLINE_S, Jobs, ThroughputTable
from forerun.cluster.inputs.prepare import Inputs
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.inputs.throughput import filled
from forerun.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Curve:
    """The upper convex hull of a job's speed over its GPUs, from no GPUs to the fastest count, as pieces.

    A job that changes its count within some time has, on average, any point of the hull.

    Parameters
    ----------
    rate : float64[pieces], iterations per second that each piece adds.
    gpu_s : float64[pieces], GPU-seconds for an iteration of each piece, ascending.
    """

    rate: F64
    gpu_s: F64


@cache
def curve_of(speed: tuple[tuple[int, int], ...], unit: int) -> Curve:
    """The hull of exact speeds (see `Job`)."""
    hull = [(0, 0)]
    for point in sorted(speed):
        while hull and point[1] >= hull[-1][1] and len(hull) > 1 and _below(hull[-2], hull[-1], point):
            hull.pop()
        if point[1] > hull[-1][1]:
            hull.append(point)
    points = np.array(hull, np.float64)
    gpus, rate = np.diff(points[:, 0]), np.diff(points[:, 1] / unit)
    return Curve(rate, gpus / rate)


def _below(one: tuple[int, int], middle: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether a point is on or below the line between its neighbours."""
    (x, y), (u, v), (p, q) = one, middle, other
    return (v - y) * (p - x) <= (q - y) * (u - x)


@dataclass(frozen=True, slots=True)
class World:
    """Jobs, and the GPUs of their cluster.

    Parameters
    ----------
    jobs : with exact speeds, by submission.
    gpus : in all.
    why_not : why no certificate can be written for these jobs; empty if one can (default).
    seed : of random attempts at schedules (default: 0).
    """

    jobs: tuple[Job, ...]
    gpus: int
    why_not: str = ""
    seed: int = 0

    @property
    def curves(self) -> list[Curve]:
        """The hull of each job's speeds."""
        return [curve_of(job.speed, job.unit) for job in self.jobs]

    def due(self) -> list[int]:
        """The rows of the jobs that have a deadline which they meet when they are alone."""
        return [
            row
            for row, job in enumerate(self.jobs)
            if job.deadline is not None and job.release + job.alone() <= job.deadline
        ]


def world_of(inputs: Inputs, gpus: int) -> World:
    """The jobs of a scenario on so many GPUs.

    Where jobs and speeds are those of files alone, they are the files' exact decimals, for which certificates can be
    written; otherwise they are those of the simulation.

    Raises
    ------
    UsageError
        The cluster has GPUs of several types (see `pools_of`), or a job cannot run on so many GPUs.
    """
    setting, keeps = inputs.setting, inputs.scenario.policy.keeps_requests
    if len(set(setting.cluster.node_types())) > 1:
        raise UsageError.at(
            "$.machines", "has GPUs of several types, whose numbers cannot be changed together"
        )
    seed = setting.seed
    why_not = not_from_files(inputs.scenario) or _not_measured(setting) or (_sooner(setting) if keeps else "")
    if why_not:
        return World(_simulated(setting, gpus, recorded=keeps), gpus, why_not, seed)
    files = files_of(inputs.scenario)
    try:
        return World(tuple(checker.read_jobs(files.trace, files.tables, gpus, files.first)), gpus, seed=seed)
    except ValueError as error:  # such as a log without iterations, which are then those of its durations
        why_not = f"the checker does not read these files: {error}"
        return World(_simulated(setting, gpus, recorded=keeps), gpus, why_not, seed)


def pools_of(inputs: Inputs) -> tuple[World, ...]:
    """The jobs of a scenario on the GPUs of each type, as they are simulated; those that cannot run there have no speed.

    Raises UsageError if a job can run on no type.
    """
    setting, keeps = inputs.setting, inputs.scenario.policy.keeps_requests
    types = setting.cluster.node_types()
    named = {profile.gpu_type: profile for profile in setting.profiles}
    pools = []
    for name in dict.fromkeys(types):
        gpus = sum(
            int(size) for size, own in zip(setting.cluster.node_gpus(), types, strict=True) if own == name
        )
        jobs = _on(setting, named.get(name, setting.profile), gpus, recorded=keeps)
        pools.append(World(jobs, gpus, seed=setting.seed))
    for same in zip(*(pool.jobs for pool in pools), strict=True):
        if not any(job.speed for job in same):
            raise UsageError.at("$.machines", f"job {same[0].id} cannot run on GPUs of any type")
    return tuple(pools)


def _not_measured(setting: Setting) -> str:
    """Whether a job may run at a speed that is in no table; empty if none can."""
    jobs, profile = setting.jobs, setting.profile
    if profile is None or (jobs.kind < 0).any() or not all(jobs.model):
        return "some jobs have no model"
    rate, top = profile.rate_at(), int(profile.levels[-1])
    asked = np.minimum(jobs.gpus, top)
    if ((rate[jobs.kind, asked] == 0) & (jobs.gpus < top)).any():
        return "some jobs ask for GPUs at which their speed is interpolated"
    return ""


def _sooner(setting: Setting) -> str:
    """Whether a job may end sooner than by its throughput; empty if none can.

    Policies that keep to requests run jobs for the durations of the log, whatever the throughput says.
    """
    jobs, profile = setting.jobs, setting.profile
    if profile is None:
        return ""
    asked = np.minimum(jobs.gpus, int(profile.levels[-1]))
    if (jobs.duration_s * profile.rate_at()[jobs.kind, asked] < jobs.iterations).any():
        return "some jobs run for recorded durations, which are shorter than their throughput says"
    return ""


def _simulated(setting: Setting, gpus: int, *, recorded: bool) -> tuple[Job, ...]:
    """The jobs as they are simulated: with every count that some policy may give them.

    recorded: whether they may also run for their recorded durations on the GPUs that they ask for.
    """
    made = _on(setting, setting.profile, gpus, recorded=recorded)
    if stuck := [job.id for job in made if not job.speed]:
        raise UsageError.at("$.machines", f"job {stuck[0]} cannot run on {gpus} GPUs")
    return made


def _on(setting: Setting, profile: ThroughputTable | None, gpus: int, *, recorded: bool) -> tuple[Job, ...]:
    """The jobs with the speeds of a table; those that cannot run on so many GPUs have none."""
    jobs = setting.jobs
    if profile is not None and any(jobs.model):
        profile = filled(profile, set(jobs.gpus[jobs.gpus <= int(profile.levels[-1])].tolist()))
    return tuple(_job(jobs, row, profile, gpus, recorded) for row in range(len(jobs)))


def _job(jobs: Jobs, row: int, profile: ThroughputTable | None, gpus: int, recorded: bool) -> Job:
    """A job with its speeds. Without a model it runs for its duration on the GPUs that it asks for, too."""
    speeds: dict[int, Fraction] = {}
    kind, work, due = int(jobs.kind[row]), int(jobs.iterations[row]), int(jobs.deadline_s[row])
    if kind >= 0 and profile is not None:
        rates = zip(profile.levels.tolist(), profile.rate[kind].tolist())
        speeds = {n: Fraction(repr(rate)) for n, rate in rates if rate > 0 and n <= gpus}
    else:
        work = int(jobs.duration_s[row])
    if (recorded or not jobs.model[row]) and int(jobs.gpus[row]) <= gpus:
        asked = int(jobs.gpus[row])
        speeds[asked] = max(speeds.get(asked, Fraction(0)), Fraction(work, int(jobs.duration_s[row])))
    unit = lcm(*(one.denominator for one in speeds.values()))
    speed = tuple((n, int(one * unit)) for n, one in sorted(speeds.items()))
    deadline = None if due >= NO_DEADLINE_S else due
    return Job(str(jobs.id[row]), int(jobs.submit_s[row]), deadline, work, unit, speed)


def columns(jobs: Sequence[Job]) -> tuple[F64, F64, F64]:
    """Release [s], work [iterations] and shortest duration [s] of jobs, float64[jobs] each."""
    rows = [(job.release, job.work, float(job.alone())) for job in jobs]
    release_s, work, alone_s = np.array(rows, np.float64).reshape(-1, 3).T
    return release_s, work, alone_s
