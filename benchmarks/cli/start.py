"""What a newcomer waits for: the first demonstrations, which compile kernels, the same again, and the help.

    python benchmarks/cli/start.py [--json]

Processor seconds (all processes together) and wall seconds, with a cache folder of its own that is empty at first.
Exit code 1 if a ceiling is missed: all demonstrations 60 s, the help 0.15 s of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from forerun.core.catalog import demos

#: wall seconds of all demonstrations, with nothing compiled
MOST_DEMO_S = 60.0
#: processor seconds of `forerun --help`
MOST_HELP_S = 0.15


def timed(folder: Path, cache: Path, *words: str) -> dict[str, float]:
    """Seconds of one command line in a process of its own."""
    environment = {**os.environ, "FORERUN_CACHE_DIR": str(cache)}
    before, begun_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "forerun", *words]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    wall_s, after = time.perf_counter() - begun_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "wall_s": wall_s}


def main() -> int:
    """Measure and print; 1 if a ceiling is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for domain in (demo.domain for demo in demos()):
            cache = folder / f"cache-{domain}"
            found[f"{domain}, first"] = timed(folder, cache, "demo", domain, "-q")
            found[f"{domain}, again"] = timed(folder, cache, "demo", domain, "-q")
        found["all, first"] = timed(folder, folder / "cache", "demo", "-q")
        found["all, again"] = timed(folder, folder / "cache", "demo", "-q")
        helps = [timed(folder, folder / "cache", "--help") for _ in range(5)]
        found["help"] = min(helps, key=lambda one: one["cpu_s"])
    if given.json:
        print(json.dumps(found))
    else:
        for what, one in found.items():
            print(f"{what:<16} {one['cpu_s']:7.2f} s of processor time {one['wall_s']:7.2f} s of wall time")
    slow = found["all, first"]["wall_s"] > MOST_DEMO_S or found["help"]["cpu_s"] > MOST_HELP_S
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
