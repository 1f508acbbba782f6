"""Fixed blocks in growing order, with an early stop."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from forerun.loading.policy import Ask, Cell, Probe, Tuner, TunerSpec, TunerView

#: a last-bit allowance: 105 over 100 is a gain of 5 %, not above it
_ROUNDING = 1e-12


class FixedBlocks(TunerSpec, frozen=True, kw_only=True, tag="fixed_blocks"):
    """Block sizes in growing order at one thread, until the gain over the size before was small often enough.

    The notebook's baseline 2 [CNDLSys, COMSNETS'24]: `gain` 0.05, `running` 3; the best size seen is taken.
    """

    gain: float = 0.05
    running: int = 3
    threads: int = 1

    def build(self, view: TunerView) -> Tuner:
        """A tuner over the sizes on offer."""
        sizes = sorted({cell.block for cell in view.cells if cell.threads == self.threads})
        return _Growing(self, sizes, view.load.samples)


@dataclass
class _Growing:
    spec: FixedBlocks
    sizes: Sequence[int]
    samples: int
    rates: list[float] = field(default_factory=list)

    def ask(self) -> Ask | None:
        if len(self.rates) == len(self.sizes) or stopped(self.rates, self.spec.gain, self.spec.running):
            return None
        return Ask(Cell(self.sizes[len(self.rates)], self.spec.threads), self.samples)

    def tell(self, probe: Probe) -> None:
        self.rates.append(probe.samples / probe.total_s)

    def choice(self) -> Cell:
        best = max(range(len(self.rates)), key=lambda at: self.rates[at])
        return Cell(self.sizes[best], self.spec.threads)


def stopped(rates: Sequence[float], gain: float = 0.05, running: int = 3) -> bool:
    """Whether the last gains were all small.

    Parameters
    ----------
    rates : samples a second at each block size, in growing order.
    gain : over the size before, as a share, up to which it is small (default: 0.05).
    running : how many in a row must be (default: 3).
    """
    gains = [later / earlier - 1 for earlier, later in itertools.pairwise(rates)]
    return len(gains) >= running and all(value <= gain + _ROUNDING for value in gains[-running:])
