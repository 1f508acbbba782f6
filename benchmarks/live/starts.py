"""How long ranks take from the command to their first step: forked from a process that has the imports, or started afresh.

Run as `python benchmarks/live/starts.py [--ranks N] [--repeats N] [--json]`. Programs are the numpy and the torch job of the
package, on the engine of one machine. The first warm start of a program also starts the process that is forked; it is
printed apart. Seconds depend on the load of the machine, which is printed too.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from forerun.live.engines.engine import Heartbeat, Kill, Start, Term
from forerun.live.engines.local import LocalEngine
from forerun.live.folder import RunFolder
from forerun.live.observation import FirstStep, Gone, Left, NodeUp, Refused
from forerun.live.spec import JobSpec

PROGRAMS: Final = {"numpy": "forerun.live.programs.numpy_job", "torch": "forerun.live.programs.torch_mlp"}
#: wall seconds after which a start that does nothing is an error
PATIENCE_S: Final = 600.0
TERM_S: Final = 120.0
#: the warm start that is aimed at, for a small model on 8 ranks of a quiet machine
AIM_S: Final = 0.5


class Bench:
    """A node whose leases are renewed while it is waited for. folder: of the run; slots: of the node."""

    def __init__(self, folder: Path, slots: int) -> None:
        self.engine = LocalEngine(RunFolder.create(folder), {"node": slots})
        self.slots, self.epoch = slots, 0
        self.term: Term | None = None
        while self.term is None:
            self._look(NodeUp)

    def _look(self, *kinds: type) -> object | None:
        """What was observed of these kinds, None if nothing."""
        seen = None
        for one in self.engine.poll(0.05):
            if isinstance(one, NodeUp | Heartbeat):
                stamp_s = one.stamp_s
                self.term = Term(one.boot, stamp_s + TERM_S)
            if isinstance(one, Heartbeat):
                self.engine.renew(one, TERM_S, {"job": self.epoch})
            if isinstance(one, kinds) and getattr(one, "epoch", self.epoch) == self.epoch:
                seen = one
        return seen

    def _until(self, kind: type, *others: type) -> None:
        """Wait for an observation of a kind; one of the others before it is an error."""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            one = self._look(kind, *others)
            if isinstance(one, kind):
                return
            if one is not None or time.monotonic() > end_s:
                raise SystemExit(f"no {kind.__name__}: {one}")

    def start_s(self, command: tuple[str, ...]) -> float:
        """Seconds from the command to the first step of all ranks."""
        assert self.term is not None
        self.epoch += 1
        spec = JobSpec(name="job", command=command, iterations=10**9, batch=8 * self.slots)
        began_s = time.perf_counter()
        where = {"node": tuple(range(self.slots))}
        self.engine.send(Start("job", self.epoch, where, spec, terms={"node": self.term}))
        self._until(FirstStep, Refused, Left, Gone)
        took_s = time.perf_counter() - began_s
        self.engine.send(Kill("job", self.epoch))
        self._until(Gone)
        return took_s


def measured(ranks: int, repeats: int) -> dict[str, Any]:
    """Seconds by program and way to start."""
    figures: dict[str, Any] = {
        "ranks": ranks,
        "repeats": repeats,
        "load_average": round(os.getloadavg()[0], 1),
    }
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder) / "run", ranks)
        with contextlib.closing(bench.engine):
            for name, module in PROGRAMS.items():
                if importlib.util.find_spec(name) is None:
                    continue
                warm = (sys.executable, "-m", module)
                # Only Python programs are forked; this one is started by another program.
                cold = ("env", *warm)
                figures[name] = {
                    "first_s": round(bench.start_s(warm), 3),
                    "warm_s": [round(bench.start_s(warm), 3) for _ in range(repeats)],
                    "cold_s": [round(bench.start_s(cold), 3) for _ in range(repeats)],
                }
    return figures


def main() -> int:
    """Run from the command line; 1 where warm starts are no faster than cold ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = measured(given.ranks, given.repeats)
    programs = {name: figures[name] for name in PROGRAMS if name in figures}
    if given.json:
        print(json.dumps(figures))
    else:
        print(f"{given.ranks} ranks, load {figures['load_average']}; aim: {AIM_S} s warm on a quiet machine")
        for name, one in programs.items():
            texts = [
                f"{way} {statistics.median(one[way]):.2f} s ({min(one[way]):.2f} to {max(one[way]):.2f})"
                for way in ("warm_s", "cold_s")
            ]
            print(f"{name}: {', '.join(texts)}; first {one['first_s']:.2f} s".replace("_s ", " "))
    return int(
        any(statistics.median(one["warm_s"]) >= statistics.median(one["cold_s"]) for one in programs.values())
    )


if __name__ == "__main__":
    sys.exit(main())
