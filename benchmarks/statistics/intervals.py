"""How often intervals hold the truth where seeds are added until the interval is narrow enough.

Run as `python benchmarks/statistics/intervals.py [--json]`. Differences with a known mean of 0 and a spread of 1 are drawn,
looked at as `forerun compare --precision` looks (first after so many seeds, then after half as many more each), and the
interval of the last look is asked whether it holds 0. Exits with 1 where beginning as comparisons begin holds normal truths
less often than 93 %.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.result.stats import paired_interval
from forerun.core.rng import stream
from forerun.core.study.compare import FIRST_SEEDS, next_look

TRUTHS: Final = 6000
MOST_SEEDS: Final = 400
#: half widths asked, in standard deviations of a difference: met at once, after some seeds, and after many
PRECISIONS: Final = (1.0, 0.5, 0.25)
STARTS: Final = (5, FIRST_SEEDS)
FLOOR_PERCENT: Final = 93.0

Draws = NDArray[np.float64]
LAWS: Final[Mapping[str, Callable[[np.random.Generator], Draws]]] = {
    "normal": lambda rng: rng.normal(size=MOST_SEEDS),
    "exponential": lambda rng: rng.exponential(size=MOST_SEEDS) - 1.0,
}


def held(law: str, first_seeds: int, precision: float | None) -> float:
    """Percent of the truths that lie in the interval of the last look (precision None: the first is the last)."""
    hits = 0
    for truth in range(TRUTHS):
        draws = LAWS[law](stream(31, "truth", truth))
        seeds, zeros = first_seeds, np.zeros(MOST_SEEDS)
        found = paired_interval(draws[:seeds], zeros[:seeds])
        while precision is not None and seeds < MOST_SEEDS and found.high - found.low > 2 * precision:
            seeds = next_look(seeds, MOST_SEEDS)
            found = paired_interval(draws[:seeds], zeros[:seeds])
        hits += found.low <= 0 <= found.high
    return 100 * hits / TRUTHS


def main() -> int:
    """Print the shares, or their record as JSON; 1 if the floor is missed."""
    shares = {
        law: {
            f"from {first}": {
                **{f"half width {precision}": held(law, first, precision) for precision in PRECISIONS},
                "fixed": held(law, first, None),
            }
            for first in STARTS
        }
        for law in LAWS
    }
    if "--json" in sys.argv[1:]:
        print(json.dumps({"truths": TRUTHS, "held_percent": shares}))
    else:
        for law, starts in shares.items():
            for start, found in starts.items():
                shares = ", ".join(f"{name}: {share:.1f} %" for name, share in found.items())
                print(f"{law}, {start} seeds: {shares}")
    sequential = [share for name, share in shares["normal"][f"from {FIRST_SEEDS}"].items() if name != "fixed"]
    return int(min(sequential) < FLOOR_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
