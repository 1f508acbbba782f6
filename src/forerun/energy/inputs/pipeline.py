"""Pipeline-parallel training: one iteration of a synchronous schedule, a frequency an operation.

Each of S stages runs M microbatches forwards and backwards in the order one-forward-one-backward: min(S - s, M)
forwards first, then backward and forward by turns, then the backwards that are left. A forward waits for the stage
before it, a backward for the stage after it. An operation runs at one of its measured frequencies; a stage that does
not compute draws a constant power until the iteration ends. So with e the joules and t the seconds of an operation

    energy = sum(e - blocked * t) + S * blocked * makespan

[Chung et al.: Perseus, SOSP 2024].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from forerun.energy.policy.view import Floats

Kind = Literal["forward", "backward"]
KINDS: Final[tuple[Kind, ...]] = ("forward", "backward")
#: one number an operation, in the order of `Pipeline.operations`: which of its frequencies it runs at
Frequencies = tuple[int, ...]


@dataclass(frozen=True)
class Choices:
    """What an operation may run at, highest frequency first.

    frequency_mhz: float64[F] [MHz]. time_s: float64[F], what it takes [s]. energy_j: float64[F] [J].
    """

    frequency_mhz: Floats
    time_s: Floats
    energy_j: Floats


@dataclass(frozen=True)
class Operation:
    """One computation of a stage.

    stage: from 0. kind: the forward or the backward pass. microbatch: of which, from 0.
    """

    stage: int
    kind: Kind
    microbatch: int


@dataclass(frozen=True)
class Timed:
    """One iteration.

    start_s, end_s: when each operation runs [s]. makespan_s: how long the iteration takes. energy_j: what it draws.
    """

    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    makespan_s: float
    energy_j: float


@dataclass(frozen=True)
class Pipeline:
    """A measured pipeline.

    choices: what each stage measured for each kind of pass. microbatches: of one iteration. blocked_power_w: draw of a
    waiting stage [W].
    """

    choices: tuple[dict[Kind, Choices], ...]
    microbatches: int
    blocked_power_w: float

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.choices)

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """All operations, stage by stage, each stage in the order it runs them."""
        return tuple(
            op for stage in range(self.stages) for op in _order(stage, self.stages, self.microbatches)
        )

    @cached_property
    def waits_for(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the operations that must have ended before each begins."""
        at = {op: place for place, op in enumerate(self.operations)}
        waits = []
        for place, op in enumerate(self.operations):
            before = [place - 1] if place and self.operations[place - 1].stage == op.stage else []
            beside = op.stage + (-1 if op.kind == "forward" else 1)
            if 0 <= beside < self.stages:
                before.append(at[Operation(beside, op.kind, op.microbatch)])
            waits.append(tuple(before))
        return tuple(waits)

    @cached_property
    def topological(self) -> tuple[int, ...]:
        """Positions of the operations, each after those it waits for."""
        followers: list[list[int]] = [[] for _ in self.operations]
        missing = [len(before) for before in self.waits_for]
        for place, before in enumerate(self.waits_for):
            for other in before:
                followers[other].append(place)
        ready = [place for place, count in enumerate(missing) if not count]
        order = []
        while ready:
            place = ready.pop()
            order.append(place)
            for other in followers[place]:
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
        assert len(order) == len(self.operations), "the schedule waits for itself"
        return tuple(order)

    def of(self, place: int) -> Choices:
        """What the operation at this position may run at."""
        op = self.operations[place]
        return self.choices[op.stage][op.kind]

    @property
    def all_highest(self) -> Frequencies:
        """Every operation at its highest frequency."""
        return (0,) * len(self.operations)

    def run(self, at: Sequence[int]) -> Timed:
        """One iteration with the given frequency an operation (its index in `Choices`)."""
        count = len(self.operations)
        times = [float(self.of(place).time_s[at[place]]) for place in range(count)]
        joules = [float(self.of(place).energy_j[at[place]]) for place in range(count)]
        start, end = [0.0] * count, [0.0] * count
        for place in self.topological:
            start[place] = max((end[other] for other in self.waits_for[place]), default=0.0)
            end[place] = start[place] + times[place]
        makespan = max(end)
        idle_s = self.stages * makespan - math.fsum(times)
        return Timed(tuple(start), tuple(end), makespan, math.fsum(joules) + self.blocked_power_w * idle_s)

    def sums(self, places: Iterable[int], at: Sequence[int]) -> tuple[float, float]:
        """Seconds and joules of the operations at these positions together, at the given frequencies."""
        places = tuple(places)
        return (
            math.fsum(float(self.of(place).time_s[at[place]]) for place in places),
            math.fsum(float(self.of(place).energy_j[at[place]]) for place in places),
        )


def _order(stage: int, stages: int, microbatches: int) -> list[Operation]:
    """What a stage runs, in order."""
    ahead = min(stages - stage, microbatches)
    operations = [Operation(stage, "forward", m) for m in range(ahead)]
    for m in range(microbatches - ahead):
        operations += [Operation(stage, "backward", m), Operation(stage, "forward", ahead + m)]
    operations += [Operation(stage, "backward", m) for m in range(microbatches - ahead, microbatches)]
    return operations
