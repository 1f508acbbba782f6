"""InferLine: its comparison notebook's scheduler (`mode: compat` of serving), its planner's costs, its tuner."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any


@functools.cache
def published() -> dict[str, Any]:
    """The published figures, by part: `notebook`, `planner`, `tuner`; each says in `what` where they come from.

    Read once from `published.json` beside this module; callers share the same dictionary and must not change it.
    """
    figures: dict[str, Any] = json.loads((Path(__file__).parent / "published.json").read_text("utf-8"))
    return figures
