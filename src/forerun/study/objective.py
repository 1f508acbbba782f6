"""What is better: the summary figures by which a room's results are ranked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Objective:
    """A summary figure that can be ranked. key: its name in the summary; better: which way is up; label: in words."""

    key: str
    better: Literal["higher", "lower"]
    label: str = ""

    @property
    def title(self) -> str:
        """The label, or the key as words."""
        return self.label or self.key.replace("_", " ")

    def ahead(self, difference: float) -> bool:
        """Whether a difference (one minus other) is an improvement."""
        return difference > 0 if self.better == "higher" else difference < 0
