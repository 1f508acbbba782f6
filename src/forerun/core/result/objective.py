"""What is better: the summary figures by which results are ranked, and the frontier of two figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from forerun.core.result.stats import Interval, proportion_interval

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Objective:
    """A summary figure that can be ranked. key: its name in the summary; better: which way is up; label: in words.

    least, most: bounds that the figure cannot leave, of a share 0 and 1; None where there is none. Intervals are cut
    there: what lies beyond cannot be true, so they hold the truth as often as before.
    """

    key: str
    better: Literal["higher", "lower"]
    label: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def title(self) -> str:
        """The label, or the key as words."""
        return self.label or self.key.replace("_", " ")

    def ahead(self, difference: float) -> bool:
        """Whether a difference (one minus other) is an improvement."""
        return difference > 0 if self.better == "higher" else difference < 0

    def cut(self, interval: Interval, trials: int = 0) -> Interval:
        """An interval of the figure's mean, within the bounds of the figure.

        trials: independent values that it is of. Where all are at one bound they have no spread, and the interval is the
        exact binomial bound on how many are elsewhere (default 0: none).
        """
        if self.least is None or self.most is None:
            return _cut(interval, self.least, self.most)
        if trials and interval.low == interval.high and interval.low in (self.least, self.most):
            there = interval.low == self.most
            share = proportion_interval(trials * there, trials, interval.confidence)
            widest = self.most - self.least
            return replace(share, low=self.least + widest * share.low, high=self.least + widest * share.high)
        return _cut(interval, self.least, self.most)

    def cut_difference(self, interval: Interval, trials: int = 0) -> Interval:
        """An interval of a mean difference of the figure, within what two such figures can differ by. trials: as in `cut`,
        where no pair differs."""
        if self.least is None or self.most is None:
            return interval
        widest = self.most - self.least
        if trials and interval.low == interval.high == 0:
            share = proportion_interval(0, trials, interval.confidence)
            return replace(share, low=-widest * share.high, high=widest * share.high)
        return _cut(interval, -widest, widest)


def pareto(items: Iterable[T], costs: Callable[[T], tuple[float, float]], *, ties: bool = True) -> list[T]:
    """The frontier of some items: those that no other beats, by being no worse in both of two costs and better in one.

    costs: both costs of an item, each the lower the better. ties: whether all of equal items are there (default), or only
    the first. Returns the items by their first cost, so that the second falls.

    >>> pareto([(3, 1), (1, 2), (2, 2), (1, 2)], lambda item: item, ties=False)
    [(1, 2), (3, 1)]
    """
    front: list[T] = []
    for item in sorted(items, key=costs):
        if front:
            cost, last = costs(item), costs(front[-1])
            if cost[1] >= last[1] and not (ties and cost == last):
                continue
        front.append(item)
    return front


def cost_figure(names: Iterable[str]) -> str:
    """The figure among some that says what a run costs, in money; empty if none does."""
    known = set(names)
    return next((name for name in ("cost_usd", "cost_usd_per_h", "usd") if name in known), "")


def _cut(interval: Interval, least: float | None, most: float | None) -> Interval:
    low = interval.low if least is None else max(interval.low, least)
    high = interval.high if most is None else min(interval.high, most)
    return interval if (low, high) == (interval.low, interval.high) else replace(interval, low=low, high=high)
