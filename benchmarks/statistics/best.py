"""How often a study says that a combination differs from the best one where none does, and how often it finds what differs.

Run as `python benchmarks/statistics/best.py [--json]`. Combinations are drawn on common seeds, the best is the one with the
lowest mean, and the others are compared with it as `forerun study` does. `false_percent` is the percentage of studies with
any claim where all means are equal: as it is now, and with Holm's correction, which assumes a best that was known before.
`power_percent` is the percentage of the others distinguished from a best that is ahead by so many standard deviations of a
paired difference. Exits with 1 where symmetric differences give false claims in more than 5 % of studies, beyond three
standard errors of the count.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.result.stats import chosen_best_p, holm, paired_p
from forerun.core.rng import stream

STUDIES: Final = 2000
COMBINATIONS: Final = (2, 10, 30)
SEEDS: Final = (5, 10, 20, 50)
#: how far the best is ahead, in standard deviations of a paired difference
AHEAD: Final = (1.0, 2.0)
CEILING_PERCENT: Final = 5 + 3 * 100 * (0.05 * 0.95 / STUDIES) ** 0.5

Draws = NDArray[np.float64]
Law = Callable[[np.random.Generator, int, int], Draws]
#: float64[seeds, combinations] with equal means. common: most of the variation is the seed's. unequal: spreads from 1 to 30.
#: skewed: one combination only is exponential, so differences are skewed and no t test is right at few seeds.
LAWS: Final[Mapping[str, Law]] = {
    "normal": lambda rng, n, k: rng.normal(size=(n, k)),
    "common": lambda rng, n, k: 5 * rng.normal(size=(n, 1)) + rng.normal(size=(n, k)),
    "unequal": lambda rng, n, k: rng.normal(size=(n, k)) * np.geomspace(1, 30, k),
    "exponential": lambda rng, n, k: rng.exponential(size=(n, k)),
    "skewed": lambda rng, n, k: np.column_stack(
        [rng.exponential(size=n) - 1, 0.05 * rng.normal(size=(n, k - 1))]
    ),
}
SYMMETRIC: Final = tuple(law for law in LAWS if law != "skewed")


def p_values(draws: Draws) -> tuple[list[float], int]:
    """The p value of each other combination against the best, and which the best is."""
    best = int(draws.mean(axis=0).argmin())
    return [paired_p(draws[:, at], draws[:, best]) for at in range(draws.shape[1]) if at != best], best


def false_claims(law: str, combinations: int, seeds: int) -> dict[str, float]:
    """Percent of studies of equal combinations that tell any of them apart."""
    now = before = 0
    for study in range(STUDIES):
        p, _ = p_values(LAWS[law](stream(47, law, study), seeds, combinations))
        now += min(chosen_best_p(p, combinations)) <= 0.05
        before += min(holm(p)) <= 0.05
    return {"false": 100 * now / STUDIES, "false after Holm": 100 * before / STUDIES}


def power_of(combinations: int, seeds: int, ahead: float) -> float:
    """Percent of the others that are distinguished from a best that is really ahead, and was chosen."""
    hits = 0
    for study in range(STUDIES // 4):
        draws = LAWS["common"](stream(48, "power", study), seeds, combinations)
        draws[:, 0] -= ahead * np.sqrt(2)
        p, best = p_values(draws)
        hits += 0 if best else sum(one <= 0.05 for one in chosen_best_p(p, combinations))
    return 100 * hits / (STUDIES // 4) / (combinations - 1)


def main() -> int:
    """Print the percentages, or their record as JSON; 1 if the ceiling is exceeded."""
    figures = {
        law: {
            f"{k} combinations": {f"{n} seeds": false_claims(law, k, n) for n in SEEDS} for k in COMBINATIONS
        }
        for law in LAWS
    }
    power = {
        f"ahead by {ahead:g}": {
            f"{k} combinations": {f"{n} seeds": power_of(k, n, ahead) for n in SEEDS} for k in COMBINATIONS
        }
        for ahead in AHEAD
    }
    if "--json" in sys.argv[1:]:
        print(json.dumps({"studies": STUDIES, "false_percent": figures, "power_percent": power}))
    else:
        for name, table in (*figures.items(), *power.items()):
            for combinations, row in table.items():
                print(f"{name}, {combinations}: {row}")
    worst = max(cell["false"] for law in SYMMETRIC for row in figures[law].values() for cell in row.values())
    return int(worst > CEILING_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
