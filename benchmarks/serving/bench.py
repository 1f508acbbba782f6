"""One command: equal results first, then how many times faster, how much memory. Ratios of processor time,
the least of interleaved rounds, so that a busy machine tells the same.

    python benchmarks/serving/bench.py [--queries 1000000] [--rounds 20] [--json] [--no-memory]

Configurations: A, the InferLine notebook's run (one replica a model, 100/s); M, thirty replicas at 600/s; gamma gaps with
squared coefficient of variation 4, mean service. Exit code 1 if results differ or a floor is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from port import cheap_closeness, simulate_port  # noqa: E402
from simpy_pipeline import simulate_simpy  # noqa: E402
from streaming import summarise_stream  # noqa: E402

from forerun.replication.inferline.legacy_gamma import LegacyGamma  # noqa: E402
from forerun.serving.engine.events import simulate_events  # noqa: E402
from forerun.serving.engine.stagewise import Stagewise, simulate_stagewise  # noqa: E402
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline, Service, Stage  # noqa: E402
from forerun.serving.inputs.profile import embedded_profile  # noqa: E402
from forerun.serving.policies.greedy import Greedy  # noqa: E402

PARENTS = {"ResNet": SOURCE, "Inception": SOURCE, "KSVM": 0, "LogReg": 1}
WORLDS = {
    "A": (
        100.0,
        {
            "ResNet": ("V100", 16, 1),
            "Inception": ("V100", 16, 1),
            "KSVM": ("cpu", 16, 1),
            "LogReg": ("cpu", 2, 1),
        },
    ),
    "M": (
        600.0,
        {
            "ResNet": ("TXP", 8, 12),
            "Inception": ("V100", 8, 6),
            "KSVM": ("cpu", 8, 4),
            "LogReg": ("cpu", 4, 2),
        },
    ),
}
SLO_MS = 500.0

#: (world, measure): at least so many times
FLOORS = {
    ("A", "latencies over port"): 3000.0,
    ("A", "latencies over SimPy"): 120.0,
    ("A", "latencies over C++"): 4.0,
    ("M", "latencies over port"): 1500.0,
    ("M", "latencies over SimPy"): 50.0,
    ("M", "latencies over C++"): 2.5,
    ("A", "misses over latencies"): 0.95,
    ("M", "misses over latencies"): 0.95,
    ("A", "full record over C++"): 0.8,
    ("M", "full record over C++"): 0.6,
    ("A", "slices of 1,000 over C++"): 1.8,
    ("M", "slices of 1,000 over C++"): 1.5,
}
#: most MB of peak memory, 10 M queries through A
CEILINGS = {"10 M queries, latencies kept": 2000.0, "10 M queries, streamed": 500.0}


@dataclass
class Contest:
    """Ways to do the same, each on its own number of queries; times are processor time, the least of interleaved rounds."""

    queries: dict[str, int]
    runs: dict[str, Callable[[], Any]]
    best_s: dict[str, float] = field(default_factory=dict)

    def play(self, rounds: int) -> None:
        """All ways in turn, round after round."""
        for _ in range(rounds):
            for name, run in self.runs.items():
                began = time.process_time()
                run()
                wall = time.process_time() - began
                self.best_s[name] = min(wall, self.best_s.get(name, wall))

    def rate(self, name: str) -> float:
        """Queries per second."""
        return self.queries[name] / self.best_s[name]


def pipeline(world: str) -> Pipeline:
    """The four models in one of the two configurations."""
    stages = []
    for name, (hardware, most, replicas) in WORLDS[world][1].items():
        table = embedded_profile().table_ms(name, hardware, "mean", most)
        stages.append(Stage(name, (Edge(PARENTS[name]),), most, replicas, Service(table), Greedy()))
    return Pipeline(tuple(stages))


def arrivals(world: str, queries: int) -> np.ndarray:
    """Clipped gamma gaps, the first query at 0."""
    return LegacyGamma(rate_rps=WORLDS[world][0], scv=4.0, gamma_seed=22).arrivals_ms(0, n=queries)


def plain(world: str) -> list[tuple[str, int, int, int, list[float]]]:
    """The pipeline as the baselines take it."""
    return [
        (s.name, s.edges[0].parent, s.max_batch, s.replicas, s.service.table_ms.tolist())
        for s in pipeline(world).stages
    ]


class Heap:
    """The C++ baseline, built here where there is a compiler."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        compiler = shutil.which("g++") or shutil.which("clang++")
        self.program = folder / "heap" if compiler else None
        if compiler:
            subprocess.run([compiler, "-O2", "-o", str(self.program), str(HERE / "heap.cpp")], check=True)

    def run(self, world: str, instants: np.ndarray, repeats: int = 1) -> tuple[np.ndarray, float]:
        """Finish instants and the least processor time, without reading and writing files."""
        stages = pipeline(world).stages
        lines = [f"{len(stages)} {len(instants)} {repeats}"]
        for stage in stages:
            parents = " ".join(str(edge.parent) for edge in stage.edges)
            table = " ".join(float(ms).hex() for ms in stage.service.table_ms)
            lines.append(f"{stage.max_batch} {stage.replicas} {len(stage.edges)} {parents} {table}")
        source, target = self.folder / "arrivals", self.folder / "finish"
        instants.tofile(source)
        command = [str(self.program), str(source), str(target)]
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
        return np.fromfile(target), float(done.stdout)


def check_equal(world: str, heap: Heap) -> list[str]:
    """All ways give the same latencies on the same queries; the ways that differ."""
    instants = arrivals(world, 3000)
    ours = simulate_stagewise(pipeline(world), instants, SLO_MS)
    full = simulate_stagewise(pipeline(world), instants, SLO_MS, record="full")
    counts = simulate_stagewise(pipeline(world), instants, SLO_MS, record="counts")
    gaps = np.diff(instants).tolist()
    found = {
        "event loop": simulate_events(pipeline(world), instants, SLO_MS).latency_ms,
        "full record": full.latency_ms,
        "slices": sliced(pipeline(world), instants),
        "port": simulate_port(plain(world), gaps)[0],
        "port, cheap comparison": simulate_port(plain(world), gaps, cheap_closeness)[0],
        "SimPy": simulate_simpy(plain(world), instants.tolist()),
    }
    if heap.program:
        found["C++"] = heap.run(world, instants)[0] - instants
    wrong = [name for name, latency in found.items() if not np.array_equal(latency, ours.latency_ms)]
    # SimPy reaches an instant by adding a difference to its clock, which may round by a last bit.
    if "SimPy" in wrong and np.allclose(found["SimPy"], ours.latency_ms, rtol=0, atol=1e-6):
        wrong.remove("SimPy")
    return wrong + (["misses"] if counts.misses != ours.misses else [])


def sliced(pipe: Pipeline, instants: np.ndarray) -> np.ndarray:
    """Latencies from slices of 1,000 arrivals, as a control loop would ask for them."""
    state = Stagewise(pipe, SLO_MS, expected=len(instants))
    for first in range(0, len(instants), 1000):
        last = first + 1000 >= len(instants)
        state.advance(instants[first : first + 1000], np.inf if last else float(instants[first + 1000]))
    return state.run(instants).latency_ms


def contest(world: str, queries: int, heap: Heap) -> Contest:
    """Everything that is compared in one world."""
    pipe, stages = pipeline(world), plain(world)
    many, some, few = arrivals(world, queries), arrivals(world, 20_000), arrivals(world, 2_000)
    found = Contest(
        dict.fromkeys(("latencies", "misses", "full record", "slices", "C++"), queries)
        | {"event loop": len(some), "SimPy": len(some), "port": len(few), "port, cheap comparison": len(few)},
        {
            "latencies": lambda: simulate_stagewise(pipe, many, SLO_MS).latency_ms,
            "misses": lambda: simulate_stagewise(pipe, many, SLO_MS, record="counts").misses,
            "full record": lambda: simulate_stagewise(pipe, many, SLO_MS, record="full").latency_ms,
            "slices": lambda: sliced(pipe, many),
            "event loop": lambda: simulate_events(pipe, some, SLO_MS),
            "SimPy": lambda: simulate_simpy(stages, some.tolist()),
            "port": lambda: simulate_port(stages, np.diff(few).tolist()),
            "port, cheap comparison": lambda: simulate_port(stages, np.diff(few).tolist(), cheap_closeness),
        },
    )  # fmt: skip
    return found


def ratios(found: Contest) -> dict[str, float]:
    """How many times faster."""
    ours = found.rate("latencies")
    measured = {
        "latencies over port": ours / found.rate("port"),
        "latencies over port with a cheap comparison": ours / found.rate("port, cheap comparison"),
        "latencies over SimPy": ours / found.rate("SimPy"),
        "misses over port": found.rate("misses") / found.rate("port"),
        "misses over SimPy": found.rate("misses") / found.rate("SimPy"),
        "misses over latencies": found.rate("misses") / ours,
        "plain event loop over SimPy": found.rate("event loop") / found.rate("SimPy"),
    }
    if "C++" in found.best_s:
        measured["latencies over C++"] = ours / found.rate("C++")
        measured["misses over C++"] = found.rate("misses") / found.rate("C++")
        measured["full record over C++"] = found.rate("full record") / found.rate("C++")
        measured["slices of 1,000 over C++"] = found.rate("slices") / found.rate("C++")
    return measured


def peak_memory_mb(way: str) -> float:
    """Peak resident memory of a fresh process that does `way`, less what it used before it began.

    Nothing is subtracted: interpreter, libraries and compiled kernels count too.
    """
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure(way: str) -> float:
    """Do `way` in this process; peak resident memory in MB."""
    process = LegacyGamma(rate_rps=100.0, scv=4.0, gamma_seed=22)
    if way == "10 M queries, streamed":
        summary = summarise_stream(pipeline("A"), _first(process.chunks(0), 10_000_000), SLO_MS)
        assert summary.queries == 10_000_000
    else:
        run = simulate_stagewise(pipeline("A"), process.arrivals_ms(0, n=10_000_000), SLO_MS)
        assert len(run.latency_ms) == 10_000_000
    # Not getrusage: what it reports survives exec, so a child would report its parent's peak.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _first(chunks: Any, queries: int) -> Any:
    left = queries
    for chunk in chunks:
        yield chunk[:left]
        left -= min(left, len(chunk))
        if not left:
            return


def main() -> int:
    """Print everything; 1 if results differ or a floor is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--measure", choices=list(CEILINGS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(measure(options.measure))
        return 0
    report: dict[str, Any] = {"queries": options.queries, "worlds": {}, "memory_mb": {}, "missed": []}
    with tempfile.TemporaryDirectory() as folder:
        heap = Heap(Path(folder))
        for world in WORLDS:
            wrong = check_equal(world, heap)
            report["missed"] += [f"{world}: {name} gives other results" for name in wrong]
            found = contest(world, options.queries, heap)
            for _ in range(options.rounds):
                found.play(1)
                if heap.program:
                    _, wall = heap.run(world, arrivals(world, options.queries))
                    found.best_s["C++"] = min(wall, found.best_s.get("C++", wall))
            measured = ratios(found)
            report["worlds"][world] = {
                "equal_results": not wrong,
                "queries_per_s": {name: found.rate(name) for name in found.best_s},
                "ratios": measured,
            }
            for (where, name), floor in FLOORS.items():
                if where == world and name in measured and measured[name] < floor:
                    report["missed"].append(
                        f"{world}: {name} is {measured[name]:.3g}, the floor is {floor:.3g}"
                    )
    if not options.no_memory:
        for way, most in CEILINGS.items():
            report["memory_mb"][way] = peak_memory_mb(way)
            if report["memory_mb"][way] > most:
                report["missed"].append(
                    f"{way}: {report['memory_mb'][way]:.0f} MB, at most {most:.0f} are allowed"
                )
    print(json.dumps(report, indent=2) if options.json else as_text(report))
    return 1 if report["missed"] else 0


def as_text(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = []
    for world, found in report["worlds"].items():
        lines.append(f"{world}: results equal: {'yes' if found['equal_results'] else 'NO'}")
        for name, rate in found["queries_per_s"].items():
            lines.append(f"  {name:<46} {rate:>14,.0f} queries/s")
        for name, ratio in found["ratios"].items():
            floor = FLOORS.get((world, name))
            lines.append(f"  {name:<46} {ratio:>14,.2f} x" + (f"   (floor {floor:,.3g})" if floor else ""))
    for way, used in report["memory_mb"].items():
        lines.append(f"{way:<48} {used:>14,.0f} MB   (at most {CEILINGS[way]:,.0f})")
    verdict = [f"missed: {what}" for what in report["missed"]] or ["all floors hold"]
    return "\n".join(lines + verdict)


if __name__ == "__main__":
    sys.exit(main())
