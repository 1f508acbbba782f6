"""What the papers and the public trace state, read from `published.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from forerun.energy.policy.view import Job

_DATA: Final[dict[str, Any]] = json.loads(
    Path(__file__).with_name("published.json").read_text(encoding="utf-8")
)
#: the six jobs of the public trace, by data set; a GPU may not hold the default batch size
JOBS: Final[dict[str, Job]] = {job["dataset"]: Job(**job) for job in _DATA["jobs"]["jobs"]}


def published(identifier: str, what: str) -> dict[str, float]:
    """The published bounds of one quantity, `least` and `most`.

    Parameters
    ----------
    identifier : of the reproduction.
    what : the quantity, as `published.json` names it.
    """
    return {bound: float(value) for bound, value in _DATA[identifier][what].items()}
