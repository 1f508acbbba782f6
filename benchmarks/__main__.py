"""`make bench`: every room's benchmark, one after the other, each in a process of its own.

A room's benchmarks are the scripts `benchmarks/<room>/bench.py` and, where it plans, `plan.py`, and `llm.py` where it serves
language models; each prints ratios against
named peers measured in one run, after checking that all give equal results, and exits with 1 where a floor is missed. Name
rooms to run only those.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    """Run the benchmarks of the named rooms, or all; 1 if any missed a floor."""
    known: dict[str, list[Path]] = {}
    for path in sorted([*HERE.glob("*/bench.py"), *HERE.glob("*/plan.py"), *HERE.glob("*/llm.py")]):
        known.setdefault(path.parent.name, []).append(path)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark named {unknown[0]!r}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or known:
        for path in known[name]:
            print(f"== {name}/{path.name}", flush=True)
            if subprocess.run([sys.executable, str(path)], check=False).returncode:
                failed.append(f"{name}/{path.name}")
    print(f"missed: {', '.join(failed)}" if failed else "every floor is held")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
