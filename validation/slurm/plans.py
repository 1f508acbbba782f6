"""Read what slurmctld printed of itself: submissions, starts, ends, and every attempt and promise of backfilling."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.slurm_reference import Job, Machine, Running, State, read_nodes

TEST = re.compile(r"_dump_job_test: Test JobId=(\d+) at (\S+) on (\S*)")
PROMISE = re.compile(r"_dump_job_sched: JobId=(\d+) to start at (\S+), end at (\S+) on nodes (\S+)")
START = re.compile(r"_start_job: Started JobId=(\d+) in \S+ on (\S+)")
SUBMITTED = re.compile(r"submit_batch_job: JobId=(\d+) InitPrio=(\d+)")
ALLOCATED = re.compile(r"sched: Allocate JobId=(\d+) NodeList=(\S+)")
ENDED = re.compile(r"_job_complete: JobId=(\d+) done")

Promised = tuple[str, float, float, frozenset[int]]


@dataclass
class Cycle:
    """The state that one cycle of backfilling met, and what it printed."""

    state: State
    attempts: list[tuple[str, float, frozenset[int]]] = field(default_factory=list)
    promises: list[Promised] = field(default_factory=list)
    starts: list[tuple[str, frozenset[int]]] = field(default_factory=list)


def instant(text: str) -> float:
    """Seconds since 1970 of a time in slurmctld's log, which the runs write in UTC."""
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")) + float(text[19:] or 0)


def numbers(lockstep_log: Path, jobs: list[Job]) -> dict[str, Job]:
    """Slurm's number of each job that the driver submitted."""
    by_id = {job.id: job for job in jobs}
    found = re.findall(r"submitted (\S+) as (\d+)", lockstep_log.read_text())
    return {number: by_id[name] for name, number in found}


def cycles(folder: Path, jobs: list[Job], machine: Machine) -> Iterator[Cycle]:
    """Each cycle of a run with ``DebugFlags=Backfill,BackfillMap``, in order; equal priorities are assumed."""
    by_number = numbers(folder / "lockstep.log", jobs)
    waiting: list[Job] = []
    running: dict[str, Running] = {}
    cycle: Cycle | None = None

    def begin(number: str, now_s: float, nodes: frozenset[int]) -> None:
        job = by_number[number]
        waiting.remove(job)
        running[number] = Running(job, now_s, nodes)

    with (folder / "slurmctld.log").open() as log:
        for line in log:
            if not line.startswith("[") or "_dump_node_space_table" in line:
                continue
            now_s = instant(line[1:24])
            if "_attempt_backfill: beginning" in line:
                cycle = Cycle(State(now_s, machine, tuple(waiting), tuple(running.values())))
            elif cycle and (match := TEST.search(line)):
                cycle.attempts.append((by_number[match[1]].id, instant(match[2]), read_nodes(match[3])))
            elif cycle and (match := PROMISE.search(line)):
                nodes = read_nodes(match[4])
                cycle.promises.append((by_number[match[1]].id, instant(match[2]), instant(match[3]), nodes))
            elif cycle and (match := START.search(line)):
                cycle.starts.append((by_number[match[1]].id, read_nodes(match[2])))
                begin(match[1], now_s, read_nodes(match[2]))
            elif cycle and "_attempt_backfill: completed" in line:
                yield cycle
                cycle = None
            elif match := SUBMITTED.search(line):
                waiting.append(by_number[match[1]])
            elif match := ALLOCATED.search(line):
                begin(match[1], now_s, read_nodes(match[2]))
            elif match := ENDED.search(line):
                del running[match[1]]
