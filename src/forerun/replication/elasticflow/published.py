"""What the ElasticFlow paper prints, and the names that its figures give to the schedulers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from forerun.core.result.figures import Axis

PAPER: Final = "Gu et al.: ElasticFlow, ASPLOS 2023"
LABEL: Final = {
    "edf": "EDF",
    "gandiva": "Gandiva",
    "dlas-gpu": "Tiresias",
    "themis": "Themis",
    "chronus": "Chronus",
    "pollux": "Pollux",
    "ef-accessctrl": "ElasticFlow",
    "edf-accessctrl": "EDF with admission control",
    "ef": "EDF with elastic scaling",
}
#: the axis of most figures
RATIO: Final = Axis("ratio", "deadlines met, share")
SIX: Final = ("edf", "gandiva", "dlas-gpu", "themis", "chronus", "ef-accessctrl")

#: the values printed in the paper, by figure and schedule: a ratio, or one ratio per trace, cluster or share
PUBLISHED: Final[Mapping[str, Mapping[str, Any]]] = json.loads(
    Path(__file__).with_name("published.json").read_text(encoding="utf-8")
)["figures"]
