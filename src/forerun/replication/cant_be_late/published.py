"""Published costs of deadline rules, read from `published.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_DATA: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("published.json").read_text())

#: mean dollars by policy and hourly preemption rate, and over how many traces
DEADLINE_COSTS: Final[dict[str, dict[float, tuple[float, int]]]] = {
    policy: {float(rate): (cell["usd"], cell["traces"]) for rate, cell in by_rate.items()}
    for policy, by_rate in _DATA["costs"].items()
}
