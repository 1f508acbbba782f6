"""Ledgers: where every second (GPU-second, joule, dollar) went. The parts always sum to the whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from forerun.core.errors import CheckFailed
from forerun.core.result import notebook
from forerun.core.result.numbers import format_number
from forerun.core.units import readable_unit


@dataclass(frozen=True)
class Ledger:
    """One whole, split into parts.

    `name` says what is accounted for ("GPU time"), `unit` in what, `whole` how much there was; `parts` are in the
    order they are shown. `meanings` explains parts whose name does not. `tolerance` is the relative rounding allowed
    (0 for integers).
    """

    name: str
    unit: str
    whole: float
    parts: Mapping[str, float]
    meanings: Mapping[str, str] | None = None
    tolerance: float = 1e-9

    def check(self) -> None:
        """Check conservation. Raises CheckFailed if a part is negative or the parts do not sum to the whole."""
        total = math.fsum(self.parts.values())
        allowed = self.tolerance * max(abs(self.whole), *(abs(part) for part in self.parts.values()), 0.0)
        negative = [name for name, part in self.parts.items() if part < -allowed]
        if negative:
            raise CheckFailed.at(
                f"ledger {self.name!r}", f"the part {negative[0]!r} is {self.parts[negative[0]]} {self.unit}"
            )
        if not abs(total - self.whole) <= allowed:
            raise CheckFailed.at(
                f"ledger {self.name!r}",
                f"the parts sum to {total!r} {self.unit}, the whole is {self.whole!r} {self.unit}",
            )

    def shares(self) -> dict[str, float]:
        """Each part as a share of the whole (all 0 if there is nothing to split)."""
        return {name: part / self.whole if self.whole else 0.0 for name, part in self.parts.items()}

    def __repr__(self) -> str:
        shares = self.shares()
        parts = ", ".join(f"{name} {shares[name]:.1%}" for name in self.parts)
        return f"<ledger {self.name}: {format_number(float(self.whole))} {readable_unit(self.unit)}; {parts}>"

    def _repr_html_(self) -> str:
        return notebook.bar(self.name, self.unit, self.whole, self.parts, self.shares())
