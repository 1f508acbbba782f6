"""The numbers that the papers state, from `published.json` beside this file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path


@cache
def published(identifier: str, what: str) -> dict[str, float]:
    """The published bounds of one quantity, `least` and `most`. identifier: of the reproduction."""
    stored = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {bound: float(value) for bound, value in stored[identifier][what].items()}
