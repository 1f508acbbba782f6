"""Liveput: the samples a shape of the job is expected to make when some of its nodes are about to vanish.

A strategy is (replicas, stages): node i of replicas x stages has stage i mod stages, the others are spares.
Of `nodes`, `removed` vanish, all sets equally likely. [Duan et al., Parcae: proactive, liveput-optimized DNN training on
preemptible instances, NSDI'24.]  Where the paper samples, the probabilities here are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import TypeAlias

Strategy: TypeAlias = tuple[int, int]
"""(replicas, stages); (0, 0) is no training."""


@lru_cache(maxsize=65_536)
def survival(nodes: int, replicas: int, stages: int, removed: int, keep: int) -> Fraction:
    """P(each of `stages` keeps at least `keep` of its `replicas` when `removed` of `nodes` vanish), exactly.

    Counts the sets of victims stage by stage: sets[k] sets of k victims among the stages so far, none losing more
    than replicas - keep; the rest are among the spares.

    Parameters
    ----------
    nodes, removed : all that are usable, and how many of them vanish, each set as likely as the others.
    replicas, stages : the shape that trains; nodes beyond it are spares.
    keep : fewest replicas that every stage must have afterwards.

    Raises ValueError for more victims than nodes, or a shape that the nodes do not fill.
    """
    if not 0 <= removed <= nodes or replicas * stages > nodes or keep < 0:
        raise ValueError(
            f"{removed} of {nodes} nodes, {replicas} x {stages} of them training, keeping {keep}"
        )
    if keep > replicas:
        return Fraction(0)
    sets = [1] + [0] * removed
    for _ in range(stages):
        following = [0] * (removed + 1)
        for gone, count in enumerate(sets):
            if count:
                for lost in range(min(replicas - keep, removed - gone) + 1):
                    following[gone + lost] += count * comb(replicas, lost)
        sets = following
    spares = nodes - replicas * stages
    fitting = sum(count * comb(spares, removed - gone) for gone, count in enumerate(sets))
    return Fraction(fitting, comb(nodes, removed))


@lru_cache(maxsize=65_536)
def expected_missing(nodes: int, replicas: int, stages: int, removed: int) -> Fraction:
    """Expected number of stages that lose all their replicas, exactly.

    Parameters
    ----------
    nodes, removed : all that are usable, and how many of them vanish, each set as likely as the others.
    replicas, stages : the shape that trains.
    """
    trained = replicas * stages
    if removed < replicas:
        return Fraction(0)
    assert trained <= nodes
    return stages * Fraction(comb(nodes - replicas, removed - replicas), comb(nodes, removed))


@lru_cache(maxsize=65_536)
def _outcomes(
    nodes: int, replicas: int, stages: int, removed: int
) -> tuple[tuple[tuple[int, float], ...], float, float]:
    """Chances of each least number of replicas that a stage has left, most first; that a stage loses all of them; and how
    many stages do then.  Exact fractions, rounded once.
    """
    shares = []
    for left in range(replicas, 0, -1):
        share = survival(nodes, replicas, stages, removed, left)
        shares.append((left, float(share - survival(nodes, replicas, stages, removed, left + 1))))
    broken = 1 - survival(nodes, replicas, stages, removed, 1)
    missing = expected_missing(nodes, replicas, stages, removed) / broken if broken else Fraction(0)
    return tuple(shares), float(broken), float(missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What changes of shape cost, in seconds.

    Parameters
    ----------
    regroup_s : same stages, fewer replicas, every stage still there (default: 6.6).
    restart_s : a process restarts (default: 0.24).
    copy_s : a missing stage's states are copied over the link (default: 5).
    repartition_s : other stages, all states move (default: 14).
    """

    regroup_s: float = 6.6
    restart_s: float = 0.24
    copy_s: float = 5.0
    repartition_s: float = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """What can be trained.

    Parameters
    ----------
    samples_per_s : by strategy (pipelines, stages); one that is missing gives nothing.
    interval_s : length of an interval (default: 60 s).
    moves : what changes of shape cost.
    """

    samples_per_s: Mapping[Strategy, float]
    interval_s: float = 60.0
    moves: Moves = Moves()

    def fitting(self, nodes: int) -> list[Strategy]:
        """Strategies that `nodes` can run; (0, 0) always."""
        return [(0, 0), *sorted(s for s in self.samples_per_s if s[0] * s[1] <= nodes)]

    def rate(self, strategy: Strategy) -> float:
        """Samples a second; 0 for shapes that were not measured."""
        return self.samples_per_s.get(strategy, 0.0)

    def change_s(self, before: Strategy, after: Strategy) -> float:
        """Seconds without training when the shape changes on purpose.

        Parameters
        ----------
        before, after : (pipelines, stages); going idle costs nothing.
        """
        if before == after or after == (0, 0):
            return 0.0
        if before[1] == after[1]:
            copies = 0.0 if after[0] <= before[0] else self.moves.copy_s
            return self.moves.regroup_s + copies
        return self.moves.repartition_s

    def liveput(self, strategy: Strategy, nodes: int, removed: int) -> float:
        """Expected samples of an interval at whose start `removed` of `nodes` vanish.

        Nobody training lost: full speed.  Every stage keeps D' >= 1 replicas: regroup to D'.  Otherwise: copy
        the missing stages, restart, and go on with as many replicas as are left.

        Parameters
        ----------
        strategy : pipelines and stages that train.
        nodes, removed : usable at the start of the interval, and how many of them vanish then.
        """
        replicas, stages = strategy
        if strategy == (0, 0):
            return 0.0
        removed = min(removed, nodes)
        shares, broken, missing = _outcomes(nodes, replicas, stages, removed)
        total = 0.0
        for survivors, share in shares:
            pause_s = 0.0 if survivors == replicas else self.moves.regroup_s
            total += share * self.rate((survivors, stages)) * max(0.0, self.interval_s - pause_s)
        left = min(replicas, (nodes - removed) // stages)
        if broken and left >= 1:
            pause_s = self.moves.restart_s + self.moves.regroup_s + missing * self.moves.copy_s
            total += broken * self.rate((left, stages)) * max(0.0, self.interval_s - pause_s)
        return total

    def usable(self, before: Strategy, after: Strategy) -> float:
        """Share of an interval that is left after a change of shape on purpose."""
        return max(0.0, 1.0 - self.change_s(before, after) / self.interval_s)

    def look_ahead(
        self, start: Strategy, forecast: Sequence[tuple[int, int]]
    ) -> tuple[list[Strategy], float]:
        """The sequence of strategies with the largest expected samples over a forecast, and those samples.

        By dynamic programming; of equal ones that with the largest throughput should nobody vanish.

        Parameters
        ----------
        start : the present strategy.
        forecast : (nodes, removed) of each interval.
        """
        value: dict[Strategy, tuple[tuple[float, float], list[Strategy]]] = {start: ((0.0, 0.0), [])}
        for nodes, removed in forecast:
            following: dict[Strategy, tuple[tuple[float, float], list[Strategy]]] = {}
            for after in self.fitting(nodes):
                samples, rate = self.liveput(after, nodes, removed), self.rate(after)
                score, path = max(
                    (
                        ((total + self.usable(before, after) * samples, calm + rate), path)
                        for before, ((total, calm), path) in value.items()
                    ),
                    key=lambda scored: scored[0],
                )
                following[after] = (score, [*path, after])
            value = following
        (best, _), path = max(value.values(), key=lambda scored: scored[0])
        return path, best
