"""Run an unmodified slurmctld in lockstep: no nodes, no waiting (``lockstep/``; its notice stands in ``lockstep.c``)."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.cluster.slurm_reference import Machine

LOCKSTEP = Path(__file__).parent / "lockstep"
VERSION = "22.05"
INSTALL = (
    "apt-get install --no-install-recommends slurmctld slurm-client libslurm-dev libnss-wrapper gcc libc6-dev"
)

CONF = """\
SchedulerType=sched/{scheduler}
PriorityType=priority/basic
NodeName=n[1-{nodes}] CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 \
NodeAddr=127.1.0.[1-{nodes}] RealMemory=500000 Gres=gpu:8 State=UNKNOWN
{partitions}
DebugFlags=Backfill,BackfillMap
"""


def version() -> str:
    """The version of the daemon on this machine, or nothing."""
    if shutil.which("slurmctld") is None:
        return ""
    said = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+\.\d+\.\d+", said)
    return found[0] if found else ""


def why_not() -> str | None:
    """Why the daemon cannot run here, in one line, or nothing if it can."""
    if not (here := version()):
        return f"slurmctld is not installed: {INSTALL}"
    if not here.startswith(VERSION):
        return f"slurmctld is {here}; the layout of its messages is known for {VERSION} only"
    if shutil.which("gcc") is None or not Path("/usr/include/slurm/slurm.h").exists():
        return f"gcc or slurm's headers are missing: {INSTALL}"
    if os.geteuid() != 0:
        return "slurmctld submits jobs of several users, which needs root"
    return None


def build(folder: Path) -> Path:
    """A copy of the tool with its library compiled."""
    tool = folder / "lockstep"
    shutil.copytree(LOCKSTEP, tool)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", "lockstep.so", "lockstep.c", "-ldl", "-lpthread"]
    subprocess.run(command, cwd=tool, check=True, capture_output=True)
    return tool


def free_port() -> int:
    """A port of which the next one is free, too: slurmctld's and that of the nodes that it believes in."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def run(
    tool: Path,
    trace: Path,
    folder: Path,
    machine: Machine,
    *,
    scheduler: str = "backfill",
    phase_s: float = 0,
) -> Path:
    """Run one trace; ``folder`` gets slurm.conf, out.tsv and the logs with every plan."""
    names = machine.partitions or {"gpu": frozenset(machine.gpus)}
    partitions = "\n".join(
        f"PartitionName={name} Nodes=n[{','.join(map(str, sorted(on)))}] Default={'NO' if at else 'YES'} "
        f"PriorityTier={machine.tiers.get(name, 1)} MaxTime=UNLIMITED State=UP OverSubscribe=NO DefMemPerNode=1000"
        for at, (name, on) in enumerate(names.items())
    )
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write(CONF.format(scheduler=scheduler, nodes=len(machine.gpus), partitions=partitions))
        conf.flush()
        return launch(tool, Path(conf.name), trace, folder, LOCKSTEP_PHASE_MS=str(round(phase_s * 1000)))


def launch(tool: Path, conf: Path, trace: Path, folder: Path, **environment: str) -> Path:
    """Run the daemon. conf: the tail of its configuration; environment: of the tool (`lockstep/lockstep.c`)."""
    command = [str(tool / "run.sh"), str(folder), str(conf), str(trace)]
    given = os.environ | {"TZ": "UTC", "PORT": str(free_port())} | environment
    subprocess.run(
        command, env=given, check=False, capture_output=True, timeout=400 + int(given.get("LIMIT", 0))
    )
    if not (folder / "out.tsv").exists():
        log = folder / "slurmctld.log"
        last = log.read_text().splitlines()[-1] if log.exists() else "no log"
        raise RuntimeError(f"slurmctld wrote no out.tsv in {folder}: {last}")
    return folder
