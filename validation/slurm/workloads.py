"""Draw workloads for slurmctld: micro runs of 14 jobs on 4 nodes, and traces of some hundred jobs, also in partitions."""

from __future__ import annotations

import random
from pathlib import Path

from tests.cluster.slurm_reference import Job, Machine

#: kinds of partitions of 12 nodes: the first and last node of each, and its tier
PARTITIONS = {
    "disjoint": {"a": (1, 6, 1), "b": (7, 12, 1)},
    "overlapping": {"a": (1, 8, 1), "b": (5, 12, 1)},
    "tiers": {"a": (1, 12, 1), "urgent": (1, 12, 2)},
}


def machine(nodes: int, kind: str = "") -> Machine:
    """Nodes of eight GPUs, in one partition or in several."""
    parts = PARTITIONS.get(kind, {})
    return Machine(
        dict.fromkeys(range(1, nodes + 1), 8),
        partitions={name: frozenset(range(first, last + 1)) for name, (first, last, _) in parts.items()},
        tiers={name: tier for name, (*_, tier) in parts.items()},
    )


def micro(kind: str, seed: int, count: int = 14) -> list[Job]:
    """Jobs of whole nodes, or of shared ones, for 4 nodes of 8 GPUs."""
    draw = random.Random(f"{kind}-{seed}")
    jobs, submit_s = [], 0
    for number in range(count):
        if kind == "whole":
            gpus = draw.choices([8, 16, 32], [0.5, 0.3, 0.2])[0]
        else:
            gpus = draw.choices([1, 2, 4, 8, 16, 32], [0.15, 0.2, 0.25, 0.2, 0.15, 0.05])[0]
        duration_s = draw.randrange(200, 3000)
        minutes = -int(-duration_s * draw.choice([1.05, 1.5, 2, 4]) // 60) + 1
        jobs.append(
            Job(f"j{number}", submit_s + 0.5, duration_s, max(1, gpus // 8), min(gpus, 8), minutes * 60)
        )
        submit_s += int(draw.expovariate(1 / 200))
    return jobs


def trace(kind: str, seed: int, count: int, on: Machine, load: float) -> list[Job]:
    """A longer queue at ``load`` of a machine; durations are log-normal with a median of 25 minutes.

    Where there are partitions, a job is in one of them, and one in five may start in any of them.
    """
    draw, nodes = random.Random(f"trace-{kind}-{seed}"), len(on.gpus)
    shapes: list[tuple[int, int, int]] = []
    for _ in range(count):
        if kind == "whole":
            gpus = 8 * draw.choices([1, 2, 4, nodes // 2], [0.5, 0.25, 0.15, 0.1])[0]
        else:
            gpus = draw.choices([1, 2, 4, 8, 16, 32], [0.3, 0.2, 0.2, 0.15, 0.1, 0.05])[0]
        duration_s = round(min(20_000, max(90, draw.lognormvariate(7.3, 1.1))))
        over = draw.choices([1.05, 1.5, 2, 4, 10], [0.2, 0.25, 0.25, 0.2, 0.1])[0]
        minutes = max(min(-int(-duration_s * over // 300) * 5, 720), -(-duration_s // 60) + 1)
        shapes.append((gpus, duration_s, minutes))
    gap_s = sum(gpus * duration_s for gpus, duration_s, _ in shapes) / count / (nodes * 8 * load)
    jobs, submit_s = [], 0.0
    for number, (gpus, duration_s, minutes) in enumerate(shapes):
        names = sorted(on.partitions) or [""]
        mine = tuple(draw.sample(names, len(names) if draw.random() < 0.2 else 1))
        wide = max(1, gpus // 8)
        job = Job(
            f"j{number}", int(submit_s) + 0.5, duration_s, wide, min(gpus, 8), minutes * 60, False, mine
        )
        jobs.append(job)
        submit_s += draw.expovariate(1 / gap_s)
    return jobs


def write(jobs: list[Job], path: Path) -> None:
    """The trace for slurmctld's driver, and beside it the same jobs as CSV for ``forerun simulate``."""
    lines = [
        f"{job.id}\t{job.submit_s}\t{job.duration_s:.0f}\t{job.nodes}\t{job.gpus}\t{job.limit_s // 60}"
        f"\t1001\t{','.join(job.partitions) or '-'}\t-\t-\t{int(job.exclusive)}\t0"
        for job in jobs
    ]
    path.write_text("\n".join(lines) + "\n")
    rows = ["job_id,submission_time,duration,num_gpu,requested_s,user"]
    rows += [
        f"{job.id},{int(job.submit_s)},{job.duration_s:.0f},{job.nodes * job.gpus},{job.limit_s},u"
        for job in jobs
    ]
    path.with_suffix(".csv").write_text("\n".join(rows) + "\n")
