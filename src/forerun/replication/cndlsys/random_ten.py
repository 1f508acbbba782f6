"""Ten random cells, half the data each."""

from __future__ import annotations

from dataclasses import dataclass, field

from forerun.loading.policy import HIDDEN, Ask, Cell, Probe, Tuner, TunerSpec, TunerView


class RandomTen(TunerSpec, frozen=True, kw_only=True, tag="random_ten"):
    """What the published system does: first no merging, then draws with replacement, each on half the data.

    Its search library starts with 20 random trials by default, so `draws` 10 evaluations are random [CNDLSys source,
    hyperopt 0.3.0]. It ends early at a probe without stall, and drops a result that is worse than the first probe.
    """

    draws: int = 10
    data_share: float = 0.5
    stops_when_hidden: bool = True

    def build(self, view: TunerView) -> Tuner:
        """A tuner that draws."""
        return Drawing(
            view, self.draws, max(1, int(view.load.samples * self.data_share)), self.stops_when_hidden
        )


@dataclass
class Drawing:
    """First no merging, then cells from `pick`; the best that is no worse than the first probe.

    Parameters
    ----------
    view : the cells, the work, and the random stream.
    draws : cells beside the first probe.
    samples : of each probe.
    stops_when_hidden : whether a probe that shows no stall ends the search.
    seen : (seconds a sample, cell) of each probe.
    hidden : whether the last probe showed no stall.
    """

    view: TunerView
    draws: int
    samples: int
    stops_when_hidden: bool
    seen: list[tuple[float, Cell]] = field(default_factory=list)
    hidden: bool = False

    def ask(self) -> Ask | None:
        """No merging first; then the next draw, unless nothing is stalled any more."""
        if self.hidden or len(self.seen) > self.draws:
            return None
        return Ask(self.pick() if self.seen else Cell(1, 1), self.samples)

    def pick(self) -> Cell:
        """The next cell."""
        return self.view.cells[int(self.view.rng.integers(len(self.view.cells)))]

    def tell(self, probe: Probe) -> None:
        """Keep the seconds a sample."""
        self.seen.append((probe.total_s / probe.samples, probe.cell))
        self.hidden = self.stops_when_hidden and probe.load_share < HIDDEN

    def choice(self) -> Cell:
        """The best seen; the first probe wins ties."""
        return min(self.seen, key=lambda seen: seen[0])[1]
