"""Published profiles and results of Bamboo, read from `published.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from forerun.replication.bamboo.ring import PublishedJob
from forerun.spot.traces.measured_run import MeasuredProfile

_DATA: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("published.json").read_text())


def _by_number(table: dict[str, Any]) -> dict[int, Any]:
    """A table of the file with its keys as whole numbers; JSON has text keys only."""
    return {int(key): value for key, value in table.items()}


def _profile(name: str) -> MeasuredProfile:
    """A measured profile of the file. name: its key, `rounded` or `run86`."""
    values = _DATA[name]
    return MeasuredProfile(**{**values, "step_s": _by_number(values["step_s"])})


#: Bamboo's jobs by model
BAMBOO_JOBS: Final = {
    model: PublishedJob(**{**values, "step_ms": _by_number(values["step_ms"])})
    for model, values in _DATA["jobs"].items()
}
BAMBOO_GOAL_STEPS: Final[int] = _DATA["goal_steps"]
SPOT_USD_PER_H: Final[float] = _DATA["spot_usd_per_h"]
#: the figures that Bamboo's simulator prints for BERT, by the hourly removal probability; means over seeds 1 to 60
BAMBOO_TABLE: Final[dict[float, dict[str, float]]] = {float(p): row for p, row in _DATA["table"].items()}
#: what the simulation notebook of 2021 prints about the 64-node trace
NOTEBOOK_PRINTED: Final[dict[str, float]] = _DATA["notebook"]
#: the notebook's profile of the measured run 86: rounded, and without the stall
ROUNDED: Final = _profile("rounded")
#: the means of run 86's own logs
RUN86: Final = _profile("run86")
