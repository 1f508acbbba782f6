"""Draw workloads, run slurmctld and the reference model, and show the first plan in which they differ.

``python -m validation.slurm.differences --micro 10 --traces 3 --out FOLDER`` keeps each run with a manifest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.slurm_reference import Job, Likeness, Machine, alike, plan, read_run, read_trace, replay

from validation.slurm import workloads
from validation.slurm.daemon import build, run, version, why_not
from validation.slurm.plans import Cycle, cycles


@dataclass(frozen=True)
class Difference:
    """A cycle in which the model, given Slurm's state, planned something else."""

    cycle: Cycle
    ours: list[tuple[str, float, float, frozenset[int]]]


@dataclass(frozen=True)
class Forced:
    """The model on every state that slurmctld printed."""

    cycles: int
    f1: float
    first: Difference | None


def forced(folder: Path, jobs: list[Job], machine: Machine) -> Forced:
    """Give each recorded state to the model; F1 counts the pairs of job and nodes, started or promised."""
    count = both = mine = theirs = 0
    first: Difference | None = None
    for cycle in cycles(folder, jobs, machine):
        count += 1
        found = plan(cycle.state)
        ours = [(one.job.id, one.start_s, one.end_s, one.nodes) for one in found.promises]
        pairs = {(one.job.id, one.nodes) for one in found.starts}
        pairs |= {(one.job.id, one.nodes) for one in found.promises}
        slurm = set(cycle.starts) | {(job, nodes) for job, _, _, nodes in cycle.promises}
        both, mine, theirs = both + len(pairs & slurm), mine + len(pairs), theirs + len(slurm)
        if first is None and (ours != cycle.promises or pairs != slurm):
            first = Difference(cycle, ours)
    return Forced(count, 2 * both / (mine + theirs) if mine + theirs else 1.0, first)


def record(folder: Path, trace: Path, machine: Machine, scheduler: str) -> None:
    """Say what made this run: trace, configuration, version, and the digest of each file that a judge reads."""
    files = {
        "trace": trace,
        "conf": folder / "slurm.conf",
        "out": folder / "out.tsv",
        "plans": folder / "slurmctld.log",
    }
    manifest = {
        "slurm": version(),
        "nodes": len(machine.gpus),
        "partitions": {name: sorted(on) for name, on in machine.partitions.items()},
        "scheduler": scheduler,
        "setup": None,
        "sacctmgr": None,
        "priorities": "priority/basic",
        "files": {
            name: {"path": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for name, path in files.items()
        },
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def judge(tool: Path, jobs: list[Job], folder: Path, machine: Machine) -> tuple[Forced, Likeness]:
    """Run both on the same jobs."""
    trace = folder.with_suffix(".tsv")
    workloads.write(jobs, trace)
    run(tool, trace, folder, machine)
    record(folder, trace, machine, "backfill")
    jobs = read_trace(trace)
    return forced(folder, jobs, machine), alike(jobs, replay(jobs, machine), read_run(folder / "out.tsv"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--micro", type=int, default=10, help="micro runs of each kind")
    parser.add_argument("--traces", type=int, default=0, help="traces of 150 jobs")
    parser.add_argument("--seed", type=int, default=100, help="the first seed")
    parser.add_argument("--out", type=Path, help="keep the runs here")
    options = parser.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        tool = build(Path(temporary))
        seeds = range(options.seed, options.seed + options.micro)
        drawn = [
            (f"{kind}-{seed}", workloads.machine(4), workloads.micro(kind, seed))
            for kind in ("whole", "shared")
            for seed in seeds
        ]
        for seed in range(options.seed, options.seed + options.traces):
            kind, nodes = ("whole", 16) if seed % 2 else ("shared", 8)
            machine = workloads.machine(nodes)
            drawn.append((f"trace-{kind}-{seed}", machine, workloads.trace(kind, seed, 150, machine, 0.9)))
            for kind in workloads.PARTITIONS:
                machine = workloads.machine(12, kind)
                jobs = workloads.trace("shared", seed, 150, machine, 1.0)
                drawn.append((f"trace-{kind}-{seed}", machine, jobs))
        for name, machine, jobs in drawn:
            given, likeness = judge(tool, jobs, out.resolve() / name, machine)
            print(
                f"{name}: {given.cycles} plans, F1 {given.f1:.4f}; alone: same cycle {likeness.same_cycle:.3f}, "
                f"same nodes {likeness.same_nodes:.3f}, mean wait {likeness.mean_wait_s:.0f} s "
                f"for Slurm's {likeness.other_mean_wait_s:.0f} s",
                flush=True,
            )
            if given.first:
                cycle = given.first.cycle
                print(f"  first other plan, at {cycle.state.now_s:.0f}; starts of Slurm's: {cycle.starts}")
                theirs, ours = set(cycle.promises), set(given.first.ours)
                for who, plans in (("Slurm", theirs - ours), ("model", ours - theirs)):
                    for job, start_s, end_s, on in sorted(plans, key=lambda one: one[1]):
                        print(f"  {who}: {job} from {start_s:.0f} to {end_s:.0f} on {sorted(on)}")


if __name__ == "__main__":
    main()
