"""Where nodes come from and go: random processes, as data, and the membership histories they generate.

A process names its rates; the sizes of its batches are a `BatchSizes`.  `generate` makes one history of named
nodes, with one random stream for each purpose, so that changing one part of the process leaves the others'
random numbers alone. The Monte Carlo kernel simulates the same processes as counts (`engine.trials`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache, partial
from random import Random
from typing import Annotated, ClassVar, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from forerun.core.rng import stream
from forerun.core.scenario.numbers import NotNegative, Positive, Whole
from forerun.core.scenario.spec import NamedSpec
from forerun.spot.engine.membership import Membership
from forerun.spot.scenario.batches import BatchSizes, Burst, Empirical, Marks, with_burst
from forerun.spot.scenario.rates import TRIALS, Stretches

Rows: TypeAlias = list[tuple[float, bool, str]]

LARGEST_FLEET = 100_000
Nodes: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_FLEET)]


# --------------------------------------------------------------------------- processes


class Poisson(NamedSpec, frozen=True, kw_only=True, tag="poisson"):
    """Removals and additions as Poisson events of the whole fleet, in batches; victims uniform over nodes
    alive.

    `start` nodes are there at time 0; a batch that would exceed `cap`, or what exists, is cut.
    `stretches` of a recording give each trial rates of its own (default: all have the rates above).
    """

    added_later: ClassVar[tuple[str, ...]] = ("stretches",)

    removals_per_min: NotNegative
    adds_per_min: NotNegative
    removal_batch: BatchSizes = Marks()
    add_batch: BatchSizes = Marks()
    add_burst: Burst = Burst()
    start: Whole = 32
    cap: Nodes = 64
    stretches: Stretches | None = None

    def problems(self) -> list[tuple[str, str]]:
        """The start fits."""
        return _start_problems(self.start, self.cap)

    def removal_sizes(self) -> NDArray[np.float64]:
        """float64[k]: probability that a removal takes 1 ... k nodes."""
        return self.removal_batch.probabilities()

    def add_sizes(self) -> NDArray[np.float64]:
        """float64[k]: probability that an addition brings 1 ... k nodes."""
        return with_burst(self.add_batch.probabilities(), self.add_burst)

    def rows(self, seed: int, trial: int, horizon_s: float) -> Rows:
        """One history: (time in s, is it an addition, node)."""
        rate_per_s = self.removals_per_min / 60.0
        removals = _events(seed, trial, "removal", rate_per_s, self.removal_sizes(), horizon_s)
        adds = _events(seed, trial, "addition", self.adds_per_min / 60.0, self.add_sizes(), horizon_s)
        return _merged(seed, trial, removals, adds, self.start, self.cap)


class PerNode(NamedSpec, frozen=True, kw_only=True, tag="per_node"):
    """Each node fails on its own, and each missing node returns on its own (a machine-repair model).

    `removal_per_node_h` is the hazard of a node alive, `return_per_node_h` of one missing below `cap`.
    `stretches` of a recording give each trial rates of its own (default: all have the rates above).
    """

    added_later: ClassVar[tuple[str, ...]] = ("stretches",)

    removal_per_node_h: NotNegative
    return_per_node_h: NotNegative
    start: Whole = 32
    cap: Nodes = 64
    stretches: Stretches | None = None

    def problems(self) -> list[tuple[str, str]]:
        """The start fits."""
        return _start_problems(self.start, self.cap)

    def rows(self, seed: int, trial: int, horizon_s: float) -> Rows:
        """One history: (time in s, is it an addition, node)."""
        clock, victims = stream(seed, "node events", trial), stream(seed, "victims", trial)
        nodes, t_s = _Nodes(self.start, self.cap), 0.0
        while True:
            out = self.removal_per_node_h * len(nodes.alive) / 3600.0
            back = self.return_per_node_h * (self.cap - len(nodes.alive)) / 3600.0
            t_s += clock.exponential(1.0 / (out + back)) if out + back > 0 else math.inf
            if t_s >= horizon_s:
                return nodes.rows
            if clock.random() * (out + back) < out:
                nodes.remove(t_s, victims)
            else:
                nodes.add(t_s)


class Tick(NamedSpec, frozen=True, kw_only=True, tag="tick"):
    """The 2021 notebook's generator with its sampling repaired: at most one batch of each kind every tick.

    Rates are used as the notebook uses them: rate x tick / 60 is the chance of an event in a tick.  Draws
    come from Python's own generator, so a seed gives the same trace on any machine.
    """

    removals_per_min: NotNegative
    adds_per_min: NotNegative
    removal_batch: Marks = Marks()
    add_batch: Marks = Marks()
    add_burst: Burst = Burst(probability=0.058, low=11, high=31)
    start: Whole = 32
    cap: Nodes = 64
    tick_s: Positive = 5.0

    def problems(self) -> list[tuple[str, str]]:
        """Chances are at most one; the start fits."""
        problems = _start_problems(self.start, self.cap)
        if max(self.removals_per_min, self.adds_per_min) * self.tick_s > 60:
            problems.append(("tick_s", "the chance of an event in a tick would exceed 1; use a shorter tick"))
        return problems

    def rows(self, seed: int, trial: int, horizon_s: float) -> Rows:
        """One history: (time in s, is it an addition, node); the trial is added to the seed.

        The fleet changes at ticks only; each draws additions before removals, which happen first.
        """
        random, burst = Random(seed + trial), self.add_burst
        chance_add, chance_remove = (
            rate * self.tick_s / 60 for rate in (self.adds_per_min, self.removals_per_min)
        )
        nodes, tick = _Nodes(self.start, self.cap), 0
        while (t_s := tick * self.tick_s) < horizon_s:
            adds = removals = 0
            if random.random() < chance_add:
                if random.random() < burst.probability:
                    adds = random.randrange(burst.low, burst.high + 1)
                else:
                    adds = _rounded_normal(random, self.add_batch)
            if random.random() < chance_remove:
                removals = _rounded_normal(random, self.removal_batch)
            if tick > 0:
                for victim in random.sample(nodes.alive, min(len(nodes.alive), removals)):
                    nodes.alive.remove(victim)
                    nodes.rows.append((t_s, False, victim))
                nodes.add(t_s, adds)
            tick += 1
        return nodes.rows


class Lifetimes(NamedSpec, frozen=True, kw_only=True, tag="lifetimes"):
    """Each slot of the fleet has a node for a Weibull lifetime, then is empty for an exponential delay.

    `shape` 1 is exponential; below 1 young nodes vanish soonest, above 1 old ones do. `mean_life_h` is the
    mean lifetime, `mean_return_h` the mean delay; `start` of the `slots` are filled at the start (default: all).
    `stretches` of a recording give each trial means of its own (default: all have the means above).
    """

    added_later: ClassVar[tuple[str, ...]] = ("start", "stretches")

    mean_life_h: Positive
    mean_return_h: Positive
    shape: Positive = 1.0
    slots: Nodes = 64
    start: Whole | None = None
    stretches: Stretches | None = None

    def problems(self) -> list[tuple[str, str]]:
        """The start fits."""
        return _start_problems(self.start or 0, self.slots)

    def rows(self, seed: int, trial: int, horizon_s: float) -> Rows:
        """One history: (time in s, is it an addition, node)."""
        scale_s = self.mean_life_h * 3600.0 / math.gamma(1 + 1 / self.shape)

        def life_s(draws: np.random.Generator) -> float:
            return scale_s * float(draws.weibull(self.shape))

        start = self.slots if self.start is None else self.start
        return _slots(seed, trial, horizon_s, self.slots, life_s, self.mean_return_h, start)


class Bathtub(NamedSpec, frozen=True, kw_only=True, tag="bathtub"):
    """Slots have nodes that vanish mostly when young or near a time limit, as some providers impose.

    The chance to be gone after t hours is early_share (1 - exp(-t / early_h) + exp((t - rise_h) / late_h)), and 1 from
    `limit_h` on.  An assumed shape, not a measured one: compare it with lifetimes of your own first (`forerun trace stats`).
    Empty slots are filled after exponential times with mean `mean_return_h`; all `slots` are filled at the start.
    """

    mean_return_h: Positive
    early_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.4
    early_h: Positive = 1.0
    rise_h: Positive = 24.0
    late_h: Positive = 0.8
    limit_h: Positive = 24.0
    slots: Nodes = 64

    def gone_by(self, age_h: float) -> float:
        """Probability that a node is gone at an age."""
        if age_h >= self.limit_h:
            return 1.0
        rise = math.exp((age_h - self.rise_h) / self.late_h)
        return min(1.0, self.early_share * (1 - math.exp(-age_h / self.early_h) + rise))

    def life_h(self, share: float) -> float:
        """The age by which a node is gone with probability `share`, by bisection."""
        low, high = 0.0, self.limit_h
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.gone_by(middle) < share else (low, middle)
        return high

    def rows(self, seed: int, trial: int, horizon_s: float) -> Rows:
        """One history: (time in s, is it an addition, node)."""

        def life_s(draws: np.random.Generator) -> float:
            return self.life_h(float(draws.random())) * 3600.0

        return _slots(seed, trial, horizon_s, self.slots, life_s, self.mean_return_h, self.slots)


class Hourly(NamedSpec, frozen=True, kw_only=True, tag="hourly"):
    """Hazards that follow the hour of the day: within hour h a node vanishes with probability `remove[h]`, and a
    missing one returns with probability `add[h]`.

    Both lists have 24 entries below 1; the run begins at `start_hour`.  Within an hour the hazard is constant.
    """

    remove: tuple[float, ...]
    add: tuple[float, ...]
    start_hour: Annotated[int, msgspec.Meta(ge=0, le=23)] = 0
    start: Whole = 32
    cap: Nodes = 64

    def problems(self) -> list[tuple[str, str]]:
        """24 probabilities each; the start fits."""
        problems = []
        for name in ("remove", "add"):
            values = getattr(self, name)
            if len(values) != 24 or any(not 0 <= p < 1 for p in values):
                problems.append((name, f"needs 24 probabilities from 0 to below 1, not {len(values)} values"))
        return problems + _start_problems(self.start, self.cap)

    def rows(self, seed: int, trial: int, horizon_s: float) -> Rows:
        """One history: (time in s, is it an addition, node)."""
        clock, victims = stream(seed, "node events", trial), stream(seed, "victims", trial)
        nodes, hour, t_s = _Nodes(self.start, self.cap), 0, 0.0
        while t_s < horizon_s:
            of_day = (self.start_hour + hour) % 24
            out = -math.log1p(-self.remove[of_day]) * len(nodes.alive) / 3600.0
            back = -math.log1p(-self.add[of_day]) * (self.cap - len(nodes.alive)) / 3600.0
            next_s = t_s + clock.exponential(1.0 / (out + back)) if out + back > 0 else math.inf
            if next_s >= (hour + 1) * 3600.0:  # the hazards change first; waiting has no memory
                hour += 1
                t_s = hour * 3600.0
                continue
            t_s = next_s
            if t_s >= horizon_s:
                break
            if clock.random() * (out + back) < out:
                nodes.remove(t_s, victims)
            else:
                nodes.add(t_s)
        return nodes.rows


class Storms(NamedSpec, frozen=True, kw_only=True, tag="storms"):
    """Calm and storm by turns: Poisson removals at one rate in calm and at another in storms, additions
    throughout.

    Lengths of calm and storm are exponential; the run begins in calm. Single nodes vanish and return.
    """

    calm_removals_per_min: NotNegative
    storm_removals_per_min: NotNegative
    adds_per_min: NotNegative
    mean_calm_h: Positive = 6.0
    mean_storm_h: Positive = 0.5
    start: Whole = 32
    cap: Nodes = 64

    def problems(self) -> list[tuple[str, str]]:
        """The start fits."""
        return _start_problems(self.start, self.cap)

    def rows(self, seed: int, trial: int, horizon_s: float) -> Rows:
        """One history: (time in s, is it an addition, node)."""
        weather, one = stream(seed, "storms", trial), np.array([1.0])
        removals: list[tuple[float, int]] = []
        start_s, stormy, spell = 0.0, False, 0
        while start_s < horizon_s:
            mean_h = self.mean_storm_h if stormy else self.mean_calm_h
            end_s = min(horizon_s, start_s + float(weather.exponential(mean_h * 3600.0)))
            rate = self.storm_removals_per_min if stormy else self.calm_removals_per_min
            events = _events(seed, trial, f"removals of spell {spell}", rate / 60.0, one, end_s - start_s)
            removals += [(start_s + t_s, size) for t_s, size in events]
            start_s, stormy, spell = end_s, not stormy, spell + 1
        adds = _events(seed, trial, "addition", self.adds_per_min / 60.0, one, horizon_s)
        return _merged(seed, trial, removals, adds, self.start, self.cap)


class _Nodes:
    """A fleet while its history is made.

    Parameters
    ----------
    start, cap : nodes at 0, and at most.

    Attributes
    ----------
    alive : the nodes there are.
    born : how many there ever were, which names the next one.
    rows : (time in s, is it an addition, node) so far.
    """

    def __init__(self, start: int, cap: int) -> None:
        self.cap, self.born = cap, 0
        self.alive: list[str] = []
        self.rows: Rows = []
        self.add(0.0, start)

    def add(self, t_s: float, nodes: int = 1) -> None:
        """New nodes come, as many as fit."""
        for _ in range(min(nodes, self.cap - len(self.alive))):
            self.alive.append(f"node{self.born}")
            self.rows.append((t_s, True, self.alive[-1]))
            self.born += 1

    def remove(self, t_s: float, victims: np.random.Generator) -> None:
        """A node vanishes, each with the same probability."""
        self.rows.append((t_s, False, self.alive.pop(int(victims.integers(len(self.alive))))))


def _merged(
    seed: int,
    trial: int,
    removals: list[tuple[float, int]],
    adds: list[tuple[float, int]],
    start: int,
    cap: int,
) -> Rows:
    """A fleet under removals and additions: victims uniform over nodes alive, sizes cut to what is there or fits.

    Parameters
    ----------
    seed, trial : name the random stream of the victims.
    removals, adds : (time in s, size) of each event, in any order.
    start, cap : nodes at 0, and at most.
    """
    victims, nodes = stream(seed, "victims", trial), _Nodes(start, cap)
    events = [*((t, False, n) for t, n in removals), *((t, True, n) for t, n in adds)]
    for t_s, is_add, size in sorted(events):
        if is_add:
            nodes.add(t_s, size)
        else:
            for _ in range(min(size, len(nodes.alive))):
                nodes.remove(t_s, victims)
    return nodes.rows


def _rounded_normal(random: Random, sizes: Marks) -> int:
    """A batch as the notebook draws it: 1 if its normal rounds to 0."""
    return abs(round(random.gauss(sizes.mean, sizes.std))) or 1


def _slots(
    seed: int,
    trial: int,
    horizon_s: float,
    slots: int,
    life_s: Callable[[np.random.Generator], float],
    mean_return_h: float,
    start: int,
) -> Rows:
    """Slots with one node after another.

    Parameters
    ----------
    seed, trial : name the random streams, one a slot.
    horizon_s : end of the history.
    slots : how many there are.
    life_s : draws the lifetime of a node, in seconds.
    mean_return_h : mean of the exponential times for which a slot is empty.
    start : slots that are filled at 0.
    """
    rows: Rows = []
    for slot in range(slots):
        draws = stream(seed, "lifetimes", trial, slot)
        t_s, life = 0.0, 0
        if slot >= start:
            t_s = float(draws.exponential(mean_return_h * 3600.0))
        while t_s < horizon_s:
            node = f"slot{slot}-life{life}"
            rows.append((t_s, True, node))
            t_s += max(1e-6, life_s(draws))
            if t_s < horizon_s:
                rows.append((t_s, False, node))
            t_s += float(draws.exponential(mean_return_h * 3600.0))
            life += 1
    return sorted(rows)


def _events(
    seed: int, trial: int, purpose: str, rate_per_s: float, sizes: NDArray[np.float64], horizon_s: float
) -> list[tuple[float, int]]:
    """Poisson instants and their batch sizes, before the horizon.

    Parameters
    ----------
    seed, trial, purpose : name the random streams.
    rate_per_s : events a second; 0 gives none.
    sizes : float64[k], probability of a batch of 1 ... k nodes.
    horizon_s : end of the history, excluded.
    """
    if rate_per_s == 0:
        return []
    clock, marks = stream(seed, f"{purpose} times", trial), stream(seed, f"{purpose} batches", trial)
    cumulative = np.cumsum(sizes)[:-1].tolist()
    events, t_s = [], clock.exponential(1.0 / rate_per_s)
    while t_s < horizon_s:
        events.append((float(t_s), bisect_right(cumulative, marks.random()) + 1))
        t_s += clock.exponential(1.0 / rate_per_s)
    return events


def _start_problems(start: int, cap: int) -> list[tuple[str, str]]:
    """A start that fits."""
    return [("start", f"{start} nodes at the start, but the cap is {cap}")] if start > cap else []


Process: TypeAlias = Poisson | PerNode | Hourly | Tick | Lifetimes | Bathtub | Storms


def changes_per_h(process: Process) -> float:
    """An upper bound of the changes of the fleet in an hour, or of the draws made for them."""
    match process:
        case Poisson():
            return 60.0 * (process.removals_per_min + process.adds_per_min)
        case PerNode():
            return (process.removal_per_node_h + process.return_per_node_h) * process.cap
        case Hourly():
            worst = (-math.log1p(-max(chances)) for chances in (process.remove, process.add) if chances)
            return math.fsum(worst) * process.cap
        case Tick():
            return 3600.0 / process.tick_s
        case Lifetimes():
            return 2.0 * process.slots / (process.mean_life_h + process.mean_return_h)
        case Bathtub():
            return 2.0 * process.slots / process.mean_return_h
        case Storms():
            worst_per_min = max(process.calm_removals_per_min, process.storm_removals_per_min)
            spells = 2.0 / (process.mean_calm_h + process.mean_storm_h)
            return 60.0 * (worst_per_min + process.adds_per_min) + spells


def generate(process: Process, *, seed: int, horizon_s: float, trial: int = 0) -> Membership:
    """One history of the fleet from time 0 to the horizon.

    Parameters
    ----------
    process : what the scenario or a description says of the fleet.
    seed : of all trials.
    horizon_s : end of the history.
    trial : its number, which names its random streams (default: 0).
    """
    return Membership.from_rows(of_trial(process, seed, trial).rows(seed, trial, horizon_s))


def of_trial(process: Process, seed: int, trial: int) -> Process:
    """The process with the rates and batch sizes of one trial; itself where these are known.

    Counted sizes are drawn by Bayesian bootstrap [Rubin, 1981].
    """
    if not isinstance(process, Poisson | PerNode | Lifetimes) or process.stretches is None:
        return process
    removals, adds = process.stretches.factors(seed, trial)
    # Draws are in range, and need not be checked as a file is.
    drawn = partial(msgspec.structs.replace, process, stretches=None)
    if isinstance(process, Lifetimes):
        return drawn(mean_life_h=process.mean_life_h / removals, mean_return_h=process.mean_return_h / adds)
    if isinstance(process, PerNode):
        return drawn(
            removal_per_node_h=process.removal_per_node_h * removals,
            return_per_node_h=process.return_per_node_h * adds,
        )
    return drawn(
        removals_per_min=process.removals_per_min * removals,
        adds_per_min=process.adds_per_min * adds,
        removal_batch=_resampled(process.removal_batch, seed, "removal sizes of a trial", trial),
        add_batch=_resampled(process.add_batch, seed, "addition sizes of a trial", trial),
    )


@lru_cache(maxsize=2 * TRIALS)
def _resampled(sizes: BatchSizes, seed: int, purpose: str, trial: int) -> BatchSizes:
    """Counted sizes as other countings of the same fleet might have been; laws as they are."""
    return sizes.resampled(stream(seed, purpose, trial)) if isinstance(sizes, Empirical) else sizes
