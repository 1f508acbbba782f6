"""`make bench`: every area's benchmark, one after the other, each in a process of its own.

A benchmark is a script `benchmarks/<area>/<name>.py`. It measures ratios against named peers in one run, after checking
that all give equal results, and exits with 1 where a floor is missed. The usual ones (`bench`, `plan`, `llm`, `start`) run
by themselves; name areas to run only theirs, or `area/name` for one script (the longer ones run only so, those of
`validation/<area>` too).

    python -m benchmarks [--keep] [AREA | AREA/NAME]...

`--keep` asks each for `--json` and keeps what it says as `benchmarks/results/<area>-<name>.json`, with the date, the
machine, its load and the command, and writes docs/benchmarks.md from all records.
The figures in the documents are compared with these records by a test: whoever renews a record renews the sentence.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks import page

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results"
#: scripts that run without being named
USUAL: Final = ("bench", "plan", "llm", "start")


def scripts() -> dict[str, Path]:
    """Every benchmark by its name, `area/script`: what can print its figures as JSON. `benchmarks/mutants` judges tests."""
    found = sorted(path for folder in (HERE, HERE.parent / "validation") for path in folder.glob("*/*.py"))
    return {"benchmarks/mutants": HERE / "mutants.py"} | {
        f"{path.parent.name}/{path.stem}": path for path in found if '"--json"' in path.read_text("utf-8")
    }


def machine() -> dict[str, Any]:
    """What it ran on, in general words."""
    kinds = {"x86_64": "x86-64", "aarch64": "ARM, 64 bits"}
    return {
        "processor": kinds.get(platform.machine(), platform.machine()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("numba", "numpy")},
    }


def kept(name: str, path: Path) -> int:
    """Run one for its figures and keep them; its exit code."""
    command = [sys.executable, str(path), "--json"]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    try:
        figures = json.loads(done.stdout)
    except ValueError:
        print(f"{name} gave no figures; its record stays as it was", file=sys.stderr)
        return done.returncode or 1
    record = {
        "command": f"python {path.relative_to(HERE.parent).as_posix()}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "load_average_before": None if load is None else round(load, 1),
        "floors_held": done.returncode == 0,
        "figures": figures,
    }
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name.replace('/', '-')}.json"
    target.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"kept: {target.relative_to(HERE.parent)}")
    return done.returncode


def main() -> int:
    """Run the benchmarks of the named areas, or all; 1 if any missed a floor."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="AREA|AREA/NAME")
    parser.add_argument("--keep", action="store_true", help="renew the records that the documents cite")
    given = parser.parse_args()
    known = scripts()
    usual = [name for name in known if name.endswith(tuple(f"/{one}" for one in USUAL))]
    chosen: list[str] = []
    for name in given.names or usual:
        found = [name] if name in known else [one for one in usual if one.startswith(f"{name}/")]
        if not found:
            print(f"no benchmark named {name!r}; known: {', '.join(known)}", file=sys.stderr)
            return 2
        chosen += found
    failed = []
    for name in chosen:
        print(f"== {name}", flush=True)
        path = known[name]
        if (
            kept(name, path)
            if given.keep
            else subprocess.run([sys.executable, str(path)], check=False).returncode
        ):
            failed.append(name)
    if given.keep:
        page.main()
    print(f"missed: {', '.join(failed)}" if failed else "every floor is held")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
