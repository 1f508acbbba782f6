"""The picture in docs/core/studies.md is what its script draws."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[3] / "docs" / "figures"


def test_common_seeds_cut_the_interval() -> None:
    """Two policies at 90 queries/s: 7 to 8 times as narrow at every number of seeds, as the page says."""
    made = runpy.run_path(str(FOLDER / "common_random_numbers.py"))
    drawn = made["figure"]()
    assert made["RATE_RPS"] == 90
    ways, half = np.array(drawn.data["way"]), np.array(drawn.data["half"])
    common, apart = half[ways == made["COMMON"]], half[ways == made["APART"]]
    assert len(common) == len(made["SHOWN"])
    assert ((apart / common).min().round(), (apart / common).max().round()) == (7, 8)
    kept = (FOLDER / "common-random-numbers.svg").read_text(encoding="utf-8")
    assert kept.startswith("<svg") and drawn.title in kept


def test_common_seeds_are_worth_little_where_variants_part_ways() -> None:
    """Batch limits 8 and 16 at 60 queries/s: 1 to 6 per cent narrower."""
    made = runpy.run_path(str(FOLDER / "common_random_numbers.py"))
    found = made["half_widths"](f"{made['LIMIT']}=8", f"{made['LIMIT']}=16", 60)
    saved = [round(100 * (1 - common / apart)) for _, common, apart in found]
    assert (min(saved), max(saved)) == (1, 6)
