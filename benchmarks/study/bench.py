"""What a study costs beyond its simulations: processor time, wall time, memory, and the report of 10,000 cells.

The cells are those of a domain that adds two numbers (tests/core/study/toy), so nearly everything measured is overhead. The
peer is a plain pool of the standard library that builds and simulates the same cells in chunks of 64, keeps nothing and
survives nothing. Processor time is that of all processes together, read from /proc, less what simulating the same
scenarios takes in one loop; it holds on a busy machine, wall time on a quiet one only (the load is printed).

Floors: under 1 ms of processor time a cell beyond the simulation; 10,000 cells reported in under 10 s of it; a peak at
10,000 cells within a tenth of that at 1,000.

    python benchmarks/study/bench.py [--cells 10000]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

TOY = Path(__file__).parents[2] / "tests" / "core" / "study" / "toy"
sys.path.insert(0, str(TOY))

WORKERS = 2
MOST_OVERHEAD_MS = 1.0
MOST_REPORT_S = 10.0
MOST_GROWTH = 1.10


def plan_of(folder: Path, cells: int) -> Any:
    """A study of that many cells: 100 values, the rest seeds."""
    from forerun.core.study.expand import load_study

    text = f"base: {{domain: toy, noise: 1.0}}\naxes: {{x: {{start: 1, stop: 100, step: 1}}}}\nseeds: {cells // 100}\n"
    (folder / "study.yaml").write_text(text)
    return load_study(folder / "study.yaml")


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has taken; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def simulations_s(plan: Any, cells: int) -> float:
    """Processor seconds of simulating scenarios that stand ready, for `cells` cells."""
    from forerun.core.domain import simulate

    ready = [plan.scenario(cell) for _, cell in zip(range(500), plan.cells())]
    for scenario in ready:
        simulate(scenario)
    start_s = time.process_time()
    for scenario in ready:
        simulate(scenario)
    return (time.process_time() - start_s) / len(ready) * cells


def ours(plan: Any, store: Path, workers: int) -> tuple[float, float]:
    """(processor seconds, wall seconds) of a study on our pool, its processes' starts left out."""
    from forerun.core.study import run as run_module
    from forerun.core.study.executors.processes import Processes

    seen: dict[int, tuple[float, float]] = {}

    class Watched(Processes):
        """Reads the workers' processor time as outcomes come."""

        def run(self, plan: Any, cells: Any) -> Any:
            read_s = 0.0
            for outcome in super().run(plan, cells):
                if time.monotonic() - read_s > 0.1 or outcome.number + 1 >= len(plan):
                    read_s = time.monotonic()
                    for child in multiprocessing.active_children():
                        assert child.pid is not None
                        first, _ = seen.get(child.pid, (cpu_s(child.pid), 0.0))
                        seen[child.pid] = first, cpu_s(child.pid)
                yield outcome

    started_s, begun_s = time.process_time(), time.monotonic()
    state = run_module.run_study(plan, store, Watched(workers))
    took_s, wall_s = time.process_time() - started_s, time.monotonic() - begun_s
    assert (state.done, state.failed) == (len(plan), 0)
    return took_s + sum(last - first for first, last in seen.values()), wall_s


def _build_and_simulate(work: tuple[Any, Any]) -> float:
    from forerun.core.domain import simulate

    plan, cell = work
    return float(simulate(plan.scenario(cell)).summary["total_s"])


def theirs(plan: Any, workers: int) -> float:
    """Wall seconds of the peer, its processes' starts included as ours are."""
    begun_s = time.monotonic()
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        found = list(pool.map(_build_and_simulate, ((plan, cell) for cell in plan.cells()), chunksize=64))
    assert len(found) == len(plan)
    return time.monotonic() - begun_s


def peak_mb(cells: int) -> float:
    """Peak memory of a study of that many cells in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--peak", str(cells)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def peak_here(cells: int) -> None:
    """Run a study and print the peak of this process, in MB."""
    from forerun.core.study.executors import Here
    from forerun.core.study.run import run_study

    with tempfile.TemporaryDirectory() as folder:
        run_study(plan_of(Path(folder), cells), Path(folder) / "s.sqlite", Here())
    # Not getrusage where it can be helped: what it reports survives exec, so a child would report its parent's peak.
    status = Path("/proc/self/status")
    status_text = status.read_text() if status.is_file() else ""
    peaks = [int(line.split()[1]) / 1024 for line in status_text.splitlines() if line.startswith("VmHWM:")]
    print(peaks[0] if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main(cells: int, as_json: bool) -> int:
    """Measure everything; 1 if a floor is missed."""
    missed: list[str] = []
    found: dict[str, Any] = {"cells": cells}
    said: list[str] = []
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = plan_of(folder, cells)
        bare_s = simulations_s(plan, cells)
        found["simulation_ms"] = 1e3 * bare_s / cells
        said.append(
            f"{cells:,} cells; simulating them takes {1e3 * bare_s / cells:.3f} ms of processor time each"
        )
        for workers in (1, WORKERS):
            used_s, wall_s = ours(plan, folder / f"{workers}.sqlite", workers)
            peer_s = theirs(plan, workers)
            over_ms = 1e3 * (used_s - bare_s) / cells
            found[f"workers_{workers}"] = {
                "overhead_ms": over_ms,
                "wall_ms": 1e3 * wall_s / cells,
                "over_plain_pool": wall_s / peer_s,
                "load_average": round(load, 1),
            }
            said.append(
                f"{workers} workers: {over_ms:.3f} ms of processor time a cell beyond it, all processes together; wall "
                f"{1e3 * wall_s / cells:.3f} ms a cell, {wall_s / peer_s:.2f} of a plain pool's that keeps nothing "
                f"(load {load:.1f})"
            )
            if over_ms >= MOST_OVERHEAD_MS:
                missed.append(f"{workers} workers: {over_ms:.3f} ms a cell, under {MOST_OVERHEAD_MS} wanted")
        from forerun.core.report import html_page
        from forerun.core.study.saved import load_saved

        started_s = time.process_time()
        page = html_page([load_saved(folder / "1.sqlite")])
        report_s = time.process_time() - started_s
        found["report_s"] = report_s
        said.append(f"report: {report_s:.2f} s of processor time, {len(page) / 1e6:.2f} MB")
        if report_s >= MOST_REPORT_S:
            missed.append(f"report: {report_s:.1f} s, under {MOST_REPORT_S:g} wanted")
    small, large = peak_mb(1_000), peak_mb(cells)
    found["peak_mb"] = {"1,000 cells": small, f"{cells:,} cells": large}
    said.append(f"peak memory: {small:.0f} MB at 1,000 cells, {large:.0f} MB at {cells:,}")
    if large > MOST_GROWTH * small:
        missed.append(f"memory grows from {small:.0f} to {large:.0f} MB")
    print(json.dumps(found) if as_json else "\n".join(said))
    for what in missed:
        print(f"MISSED {what}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        peak_here(given.peak)
        sys.exit(0)
    sys.exit(main(given.cells, given.json))
