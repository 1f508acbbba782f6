"""Memory of big job logs: the peak of a process that reads the history of two million jobs, from each format of a table.

    python benchmarks/cluster/log_memory.py [--json]

The logs are made here, in a temporary folder. Each is read in a process of its own, whose peak holds interpreter and
libraries, too. Exit code 1 if a peak is over 2 GB, or if a job is missing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

JOBS: Final = 2_000_000
MOST_MB: Final = 2000.0
#: jobs written at once: the peak of this process counts as its child's, so it must stay small
CHUNK: Final = 20_000
#: peak resident memory in MB (Linux tells KiB), processor seconds, and how many jobs there are
PROGRAM: Final = """
import json, resource, sys
from forerun.site.history import read_history
jobs = len(read_history(sys.argv[1]))
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"mb": used.ru_maxrss * 1024 / 1e6, "cpu_s": used.ru_utime + used.ru_stime, "jobs": jobs}))
"""
Columns = NDArray[np.int64]


class Chunk(NamedTuple):
    """Some of the jobs: numbers, times in seconds since 1970, a few hundred users and accounts."""

    number: Columns
    submit_s: Columns
    start_s: Columns
    end_s: Columns
    nodes: Columns
    requested_s: Columns
    user: Columns


def chunk(rng: np.random.Generator, first: int, count: int) -> Chunk:
    """Jobs that come twice a minute, wait for hours and run for hours."""
    number = first + np.arange(count)
    submit_s = 1_700_000_000 + 30 * number
    start_s = submit_s + rng.exponential(10_000, count).astype(np.int64)
    run_s = 1 + rng.exponential(7_000, count).astype(np.int64)
    nodes, user = rng.integers(1, 257, count), rng.integers(0, 500, count)
    return Chunk(number + 1, submit_s, start_s, start_s + run_s, nodes, 3600 * (1 + run_s // 3600), user)


def table(jobs: Chunk) -> list[str]:
    """Rows of our own table."""
    return [
        f"{number},{submit},{start},{end},{nodes},{requested},user{user}"
        for number, submit, start, end, nodes, requested, user in zip(*(column.tolist() for column in jobs))
    ]


def slurm(jobs: Chunk) -> list[str]:
    """Rows of `sacct --parsable2`."""
    texts = (np.datetime_as_string(column.astype("datetime64[s]")).tolist() for column in jobs[1:4])
    numbers = (column.tolist() for column in (jobs.number, jobs.nodes, jobs.requested_s // 3600, jobs.user))
    return [
        f"{number}|user{user}|part{user % 7}|{submit}|{submit}|{start}|{end}|COMPLETED|{hours // 24}-{hours % 24:02}:00:00|"
        f"{nodes}|account{user % 90}|normal|job"
        for submit, start, end, number, nodes, hours, user in zip(*texts, *numbers)
    ]


def workload(jobs: Chunk) -> list[str]:
    """Rows of the Standard Workload Format."""
    wait_s, run_s = jobs.start_s - jobs.submit_s, jobs.end_s - jobs.start_s
    columns = (jobs.number, jobs.submit_s, wait_s, run_s, jobs.nodes, jobs.requested_s, jobs.user)
    return [
        f"{number} {submit} {wait} {run} {nodes} -1 -1 {nodes} {requested} -1 1 {user} -1 -1 1 1 -1 -1"
        for number, submit, wait, run, nodes, requested, user in zip(*(one.tolist() for one in columns))
    ]


#: how rows are written, and what stands above them, by the name of the format
FORMATS: Final[dict[str, tuple[str, Callable[[Chunk], list[str]]]]] = {
    "sacct": (
        "JobID|User|Partition|Submit|Eligible|Start|End|State|Timelimit|NNodes|Account|QOS|JobName",
        slurm,
    ),
    "job_history": ("id,submit_s,start_s,end_s,nodes,requested_s,user", table),
    "swf": ("; Version: 2.2", workload),
}


def write(path: Path, name: str) -> None:
    """Write the log in a format."""
    head, rows = FORMATS[name]
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{head}\n")
        for first in range(0, JOBS, CHUNK):
            file.write("\n".join(rows(chunk(rng, first, CHUNK))) + "\n")


def read(path: Path) -> dict[str, Any]:
    """What a process that reads a log took."""
    command = [sys.executable, "-c", PROGRAM, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> int:
    """Print the peaks; 1 if one is over the bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in FORMATS:
            path = Path(folder) / f"log.{name}"
            write(path, name)
            found[name] = read(path)
            path.unlink()
    missed = [
        f"{name}: {one['mb']:.0f} MB, {one['jobs']} jobs"
        for name, one in found.items()
        if one["mb"] > MOST_MB or one["jobs"] != JOBS
    ]
    if as_json:
        print(json.dumps({"jobs": JOBS, "most_mb": MOST_MB, "formats": found}))
    else:
        for name, one in found.items():
            print(f"{name:<6} {one['mb']:>6.0f} MB {one['cpu_s']:>6.1f} s of processor time")
    print(f"missed: {', '.join(missed)}" if missed else "no limit is missed", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
