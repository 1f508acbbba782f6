"""Time of the figures of the ElasticFlow paper: `python benchmarks/cluster/figures.py [--json]`, some four minutes.

Wall seconds with kernels compiled, whole figures as `forerun reproduce` makes them: 8(b), 9 and 11 in two processes, 9
and 11 for one draw and for all twenty. Needs the public traces. Exits with 1 where a floor is missed; the floors are times
on a machine of two cores that nobody else uses, so a busy one may miss them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from forerun.replication.elasticflow import reproduce
from forerun.replication.reproduction import Progress

#: wall seconds at most; the published simulator takes half an hour for 8(a) and days for 8(b)
CEILINGS: Final = {
    "fig8a": 10.0,
    "fig8b": 300.0,
    "fig9, one draw": 30.0,
    "fig10": 10.0,
    "fig11, one draw": 30.0,
}
FIGURES: Final[dict[str, Callable[[Progress], Any]]] = {
    "fig6a": reproduce.fig6a,
    "fig8a": reproduce.fig8a,
    "fig10": reproduce.fig10,
    "fig9, one draw": lambda progress: reproduce.fig9(progress, seeds=1),
    "fig11, one draw": lambda progress: reproduce.fig11(progress, seeds=1),
    "fig8b": reproduce.fig8b,
    "fig9, twenty draws": reproduce.fig9,
    "fig11, twenty draws": reproduce.fig11,
}


def quietly(_: str) -> None:
    """Progress of no interest."""


def warm_up() -> None:
    """Compile every kernel that the figures use."""
    reproduce.fig8a(quietly)
    reproduce.fig9(quietly, seeds=1)


def main() -> int:
    """Print a line a figure; 1 if a ceiling is passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    warm_up()
    found: dict[str, Any] = {"processors": os.cpu_count(), "wall_s": {}}
    missed = 0
    for name, play in FIGURES.items():
        begun = time.perf_counter()
        play(quietly)
        seconds = found["wall_s"][name] = time.perf_counter() - begun
        ceiling = CEILINGS.get(name)
        missed += ceiling is not None and seconds > ceiling
        bound = (
            f"  (at most {ceiling:g}{': MISSED' if seconds > ceiling else ''})" if ceiling is not None else ""
        )
        if not as_json:
            print(f"{name:20s} {seconds:8.1f} s{bound}", flush=True)
    if as_json:
        print(json.dumps(found))
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
