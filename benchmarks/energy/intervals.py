"""What intervals cover in many synthetic worlds: of savings a new deployment, of comparisons the true difference.

    python benchmarks/energy/intervals.py [--json]

The worlds are those of `tests/energy/test_intervals.py`; 20 runs each, of which the range is nominally 19 in 21, and
comparisons of 10 and of 40 seeds. Exit code 1 if the two-level interval, or one of comparisons, covers less than 90 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.energy.conftest import toy  # the worlds, and what is counted of them
from tests.energy.test_intervals import RECORDED, compared_worlds, coverage

WORLDS, RUNS = 300, 20
COMPARED, SEEDS = 200, (10, 40)
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
    found["compared worlds"] = COMPARED
    with tempfile.TemporaryDirectory() as folder:
        for seeds in SEEDS:
            shares = compared_worlds(Path(folder), COMPARED, seeds)
            found |= {f"{name}, {seeds} seeds": share for name, share in shares.items()}
    least = min(found[name] for name in ("two-level", *(f"compare, {seeds} seeds" for seeds in SEEDS)))
    print(json.dumps(found) if as_json else "\n".join(f"{name:<22} {one:.4g}" for name, one in found.items()))
    return int(least < LEAST)


if __name__ == "__main__":
    sys.exit(main())
