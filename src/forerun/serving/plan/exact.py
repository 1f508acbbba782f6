"""The cheapest configuration, proved: best first on cost, with forced misses as the only reason to prune.

A *cell* fixes hardware and replicas of every stage, hence the cost; batch sizes are free within it. Cells are visited
in ascending cost. A *part* is a stage with its ancestors, all configured. Queries that are late at some stage of a part
whatever follows are its *forced misses*; a part with more of them than allowed is dead. If every part of some stage is
dead in a cell, only cells that differ from it among that stage and its ancestors can do better. The first cell with a
feasible choice of batches is cheapest; within it the fewest misses win, then the smallest batches.

Nothing is concluded from "more replicas" or "larger batches": either may add misses.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forerun.serving.inputs.pipeline import SOURCE
from forerun.serving.plan.space import Choice, Configuration, Space, Traffic
from forerun.serving.plan.stage_runs import StageRun, StageRuns


class Part(NamedTuple):
    """A stage with its ancestors, configured.

    Parameters
    ----------
    choices : by stage number.
    outcomes : on each trace, by stage number; a stage that was cut short is missing.
    late : on each trace, the queries that are late at some stage of it: query q at bit q.
    """

    choices: dict[int, Choice]
    outcomes: tuple[dict[int, StageRun], ...]
    late: tuple[int, ...]

    @property
    def misses(self) -> int:
        """Forced misses over all traces."""
        return sum(late.bit_count() for late in self.late)

    def agrees(self, other: Part) -> bool:
        """Whether stages of both are configured alike."""
        return all(self.choices.get(s, choice) == choice for s, choice in other.choices.items())

    def batches(self) -> tuple[int, ...]:
        """Its batch sizes, by stage."""
        return tuple(self.choices[s].max_batch for s in sorted(self.choices))


class Option(NamedTuple):
    """Hardware and replicas of one stage.

    Parameters
    ----------
    whole_cost : of all its replicas together, in whole units (see `Space.whole_price`), so that sums are exact.
    hardware : what the replicas run on.
    replicas : how many there are.
    """

    whole_cost: int
    hardware: str
    replicas: int


@dataclass(frozen=True)
class VisitedCell:
    """A cell that was visited.

    Parameters
    ----------
    cost : $ per hour.
    cell : hardware and replicas, by stage.
    hopeless : names of the stages that are too slow together whatever the batches (none: it is feasible).
    """

    cost: float
    cell: tuple[tuple[str, int], ...]
    hopeless: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """The outcome of a search, and what was looked at.

    Parameters
    ----------
    configuration : the cheapest feasible one (None: there is none).
    cost : $ per hour; NaN if there is none.
    misses : per trace.
    runs : stages simulated.
    cells : those visited, in order.
    """

    configuration: Configuration | None
    cost: float
    misses: tuple[int, ...]
    runs: int
    cells: tuple[VisitedCell, ...] = field(repr=False, default=())


class Search:
    """A search over one space and one or more traces."""

    def __init__(self, space: Space, traffics: Sequence[Traffic] = (), *, failing: int = 0) -> None:
        """Begin with no part known.

        Parameters
        ----------
        space : what can be chosen, the objective, and the misses that are allowed on each trace.
        traffics : the traces, all equally long (default: the space's own).
        failing : on how many of them a configuration may miss more than allowed (default: on none).
        """
        self.space, self.failing = space, failing
        self.known = [StageRuns(space, traffic) for traffic in traffics or (space.traffic,)]
        self._nothing = Part({}, tuple({} for _ in self.known), (0,) * len(self.known))
        #: traces, the most informative first
        self._order = list(range(len(self.known)))
        self._refuted = [0] * len(self.known)
        self._parts: dict[tuple[object, ...], list[Part]] = {}
        self._saturated: dict[tuple[object, ...], bool] = {}
        self._options = [self._options_of(s) for s in range(len(space.names))]

    @property
    def runs(self) -> int:
        """Stages simulated so far."""
        return sum(known.runs for known in self.known)

    def cheapest(self, *, budget: int | None = None) -> Found:
        """The cheapest feasible configuration; among equals the one with fewest misses, then the smallest batches.

        Parameters
        ----------
        budget : it costs at most this many whole units (default: any cost; see `Space.whole_price`).
        """
        tried: list[VisitedCell] = []
        names = self.space.names
        for whole, cell in self._cells_after(tried):
            if budget is not None and whole > budget:
                break
            choices = [(option.hardware, option.replicas) for option in cell]
            hopeless = self._hopeless(choices)
            best = None if hopeless is not None else self._best_batches(choices)
            blamed = range(len(names)) if hopeless is None else self.space.closures[hopeless]
            blame = () if best else tuple(names[s] for s in blamed)
            tried.append(VisitedCell(self.space.as_price(whole), tuple(choices), blame))
            if best is not None:
                configuration, misses = best
                return Found(configuration, self.space.as_price(whole), misses, self.runs, tuple(tried))
        return Found(None, float("nan"), (), self.runs, tuple(tried))

    def _cells_after(self, tried: list[VisitedCell]) -> Iterator[tuple[int, list[Option]]]:
        """Cells in ascending cost; of a hopeless one (the last in `tried`) only successors that change what is to blame.

        Every cell that could be feasible stays reachable: it differs from a hopeless cell below it at a stage to blame,
        and the step there leads to a cell still below it.
        """
        options = self._options
        begin = (0,) * len(options)
        heap = [(sum(stage[0].whole_cost for stage in options), begin)]
        seen = {begin}
        while heap:
            whole, at = heapq.heappop(heap)
            cell = [options[s][i] for s, i in enumerate(at)]
            yield whole, cell
            for s, i in enumerate(at):
                if self.space.names[s] not in tried[-1].hopeless:
                    continue
                step = self._next_option(s, i, tried[-1].cell)
                after = (*at[:s], step, *at[s + 1 :])
                if step < len(options[s]) and after not in seen:
                    seen.add(after)
                    heapq.heappush(heap, (whole - cell[s].whole_cost + options[s][step].whole_cost, after))

    def _next_option(self, stage: int, at: int, cell: tuple[tuple[str, int], ...]) -> int:
        """The next dearer option, leaving out those known to give the same runs: replicas that never would be busy."""
        options = self._options[stage]
        key = (stage, *(cell[s] for s in self.space.closures[stage]))
        step = at + 1
        if self._saturated.get(key, False):
            while step < len(options) and options[step].hardware == options[at].hardware:
                step += 1
        return step

    def _options_of(self, stage: int) -> list[Option]:
        options = [
            Option(self.space.whole_price(offer) * replicas, offer.hardware, replicas)
            for offer in self.space.offers[stage]
            for replicas in range(1, self.space.max_replicas + 1)
        ]
        return sorted(options, key=lambda option: option.whole_cost)

    def _hopeless(self, cell: Sequence[tuple[str, int]]) -> int | None:
        """A stage that, with its ancestors, is dead whatever the batches; those with fewest ancestors first."""
        closures = self.space.closures
        for s in sorted(range(len(closures)), key=lambda s: len(closures[s])):
            if not self.parts(s, cell):
                return s
        return None

    def parts(self, stage: int, cell: Sequence[tuple[str, int]]) -> list[Part]:
        """All parts of a stage in a cell that are not dead, fewest misses first.

        Parameters
        ----------
        stage : its number.
        cell : hardware and replicas by stage; only those of the stage and its ancestors are read.
        """
        key = (stage, *(cell[s] for s in self.space.closures[stage]))
        alive = self._parts.get(key)
        if alive is None:
            alive, saturated = [], True
            hardware, replicas = cell[stage]
            batches = self.space.offer(stage, hardware).batches
            for before in self._parts_before(stage, cell):
                for batch in batches:
                    part, full = self._extended(before, stage, Choice(hardware, batch, replicas))
                    saturated = saturated and full
                    if part is not None:
                        alive.append(part)
            alive.sort(key=lambda part: (part.misses, part.batches()))
            self._parts[key], self._saturated[key] = alive, saturated
        return alive

    def _parts_before(self, stage: int, cell: Sequence[tuple[str, int]]) -> Iterator[Part]:
        """What may stand before a stage: a part of each parent, agreeing where they share stages."""
        parents = [p for p in self.space.parents[stage] if p != SOURCE]
        lists = [self.parts(p, cell) for p in parents]
        for chosen in itertools.product(*lists):
            joined = self._nothing
            for part in chosen:
                if not joined.agrees(part):
                    break
                joined = _joined(joined, part)
            else:
                if not self._dead(joined.late):
                    yield joined

    def _extended(self, before: Part, stage: int, choice: Choice) -> tuple[Part | None, bool]:
        """The part with one more stage, None if dead; and whether more replicas would change nothing."""
        parents = self.space.parents[stage]
        outcomes, late = list(before.outcomes), list(before.late)
        fails, saturated = 0, True
        for place, m in enumerate(self._order):
            behind = [None if p == SOURCE else before.outcomes[m].get(p) for p in parents]
            if any(p != SOURCE and run is None for p, run in zip(parents, behind)):
                fails += 1  # a parent was cut short here: this trace is lost already
            else:
                outcome = self.known[m].stage_run(stage, choice, behind)
                saturated = saturated and outcome.saturated
                late[m] |= outcome.late
                if late[m].bit_count() > self.space.allowed:
                    fails += 1
                    self._refuted[m] += 1
                if outcome.count <= self.known[m].allowed:
                    outcomes[m] = {**before.outcomes[m], stage: outcome}
            if fails > self.failing:
                self._tell(place)
                return None, saturated
        return Part({**before.choices, stage: choice}, tuple(outcomes), tuple(late)), saturated

    def _tell(self, place: int) -> None:
        """Put the trace that refuted before one that refutes less often."""
        order = self._order
        while place > 0 and self._refuted[order[place]] > self._refuted[order[place - 1]]:
            order[place], order[place - 1] = order[place - 1], order[place]
            place -= 1

    def _dead(self, late: Sequence[int]) -> bool:
        allowed = self.space.allowed
        return sum(bits.bit_count() > allowed for bits in late) > self.failing

    def _best_batches(self, cell: Sequence[tuple[str, int]]) -> tuple[Configuration, tuple[int, ...]] | None:
        """The batches of a cell with fewest failing traces, then fewest misses; None if none is feasible."""
        lists = [self.parts(s, cell) for s in self.space.sinks]
        best: Part | None = None
        rank = (self.failing, float("inf"))

        def look(joined: Part, left: list[list[Part]]) -> None:
            nonlocal best, rank
            own = self._rank(joined.late)
            if own[0] > self.failing or own >= rank:
                return
            if not left:
                best, rank = joined, own
                return
            for part in left[0]:
                if self._rank(part.late) >= rank:
                    if len(self.known) == 1:
                        break
                    continue
                if joined.agrees(part):
                    look(_joined(joined, part), left[1:])

        look(self._nothing, lists)
        if best is None:
            return None
        configuration = tuple(best.choices[s] for s in range(len(self.space.names)))
        return configuration, tuple(bits.bit_count() for bits in best.late)

    def _rank(self, late: Sequence[int]) -> tuple[int, float]:
        """Failing traces, then misses: neither falls as stages are added."""
        counts = [bits.bit_count() for bits in late]
        return sum(count > self.space.allowed for count in counts), sum(counts)


def _joined(left: Part, right: Part) -> Part:
    return Part(
        {**left.choices, **right.choices},
        tuple({**a, **b} for a, b in zip(left.outcomes, right.outcomes)),
        tuple(a | b for a, b in zip(left.late, right.late)),
    )


def cheapest(space: Space, *, budget: int | None = None) -> Found:
    """The cheapest feasible configuration of a space.

    Parameters
    ----------
    space : what can be chosen, on its own traffic.
    budget : it costs at most this many whole units (default: any cost).
    """
    return Search(space).cheapest(budget=budget)
