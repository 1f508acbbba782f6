"""What intervals of savings cover: a new deployment in many synthetic worlds, by seeds alone and by both levels.

    python benchmarks/energy/intervals.py [--json]

The worlds are those of `tests/energy/test_intervals.py`; 20 runs each, of which the range is nominally 19 in 21. Exit code 1
if the two-level interval covers less than nine in ten.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.energy.conftest import toy  # the worlds, and what is counted of them
from tests.energy.test_intervals import RECORDED, coverage

WORLDS, RUNS = 300, 20
LEAST = 0.9


def main() -> int:
    """Print the shares; 1 if the two-level interval is too tight."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    worlds, covered = coverage(toy, WORLDS, RUNS)
    found = {
        "worlds": worlds,
        "runs": RUNS,
        "recorded runs a size": RECORDED,
        **{name: count / worlds for name, count in covered.items()},
    }
    print(json.dumps(found) if as_json else "\n".join(f"{name:<22} {one:.4g}" for name, one in found.items()))
    return int(found["two-level"] < LEAST)


if __name__ == "__main__":
    sys.exit(main())
