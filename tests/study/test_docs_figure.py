"""The picture in docs/studies.md is what its script draws."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[2] / "docs" / "figures"


def test_common_seeds_cut_the_interval() -> None:
    """At every number of seeds the paired interval is at most half as wide, so that it takes a quarter of the runs."""
    made = runpy.run_path(str(FOLDER / "common_random_numbers.py"))
    drawn = made["figure"]()
    ways, half = np.array(drawn.data["way"]), np.array(drawn.data["half"])
    common, apart = half[ways == made["COMMON"]], half[ways == made["APART"]]
    assert len(common) == len(made["SHOWN"]) and (common < apart / 2).all()
    kept = (FOLDER / "common-random-numbers.svg").read_text(encoding="utf-8")
    assert kept.startswith("<svg") and drawn.title in kept
