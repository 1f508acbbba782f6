"""Where arrivals come from: a process, a file, or a list."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from forerun.core.scenario.numbers import Count, NotNegative
from forerun.core.scenario.spec import Input, Spec, chosen_from
from forerun.core.trace.arrivals import ArrivalProcess, processes
from forerun.core.trace.reader import format_problems
from forerun.serving.traces.recorded import Bootstrap

#: clients of a closed loop, at most
MOST_CLIENTS: Final = 1_000_000


class Generated(Spec, frozen=True, kw_only=True):
    """Arrivals made by a process: the first `queries`, or all before `horizon_s`. Exactly one is given (0: not)."""

    process: Annotated[ArrivalProcess, chosen_from(processes)]
    queries: Annotated[int, msgspec.Meta(ge=0)] = 0
    horizon_s: NotNegative = 0.0

    def problems(self) -> list[tuple[str, str]]:
        if bool(self.queries) == bool(self.horizon_s):
            given = "both" if self.queries else "neither"
            return [
                ("", f"give exactly one of queries (how many) and horizon (until when); {given} was given")
            ]
        return []


class Replayed(Spec, frozen=True, kw_only=True):
    """Recorded arrivals: a file in a public format (recognised by its content if `format` is empty)."""

    file: Input
    format: str = ""
    options: dict[str, Any] = {}

    def problems(self) -> list[tuple[str, str]]:
        """A format that exists."""
        return format_problems(self.format)


class Listed(Spec, frozen=True, kw_only=True):
    """Arrivals written out, ascending."""

    arrivals_ms: tuple[NotNegative, ...]

    def problems(self) -> list[tuple[str, str]]:
        if not self.arrivals_ms:
            return [("arrivals_ms", "lists no arrival")]
        pairs = enumerate(zip(self.arrivals_ms, self.arrivals_ms[1:]), start=1)
        late = next(((row, a, b) for row, (a, b) in pairs if b < a), None)
        if late is None:
            return []
        row, before, after = late
        return [(f"arrivals_ms.{row}", f"{after} comes after {before}; arrivals ascend")]


class ClosedLoop(Spec, frozen=True, kw_only=True):
    """Clients who send a query, wait for its answer, think, and send the next.

    clients: how many there are.
    queries: how many they send in all; whoever is ready sends the next.
    think_s: mean time from an answer to the client's next query (default 0).
    think_cv: standard deviation of this time over its mean: 0 (default) always the mean, 1 exponential, else a gamma law.
    ramp_up_s: the clients begin one after the other, evenly over this time (default 0: all at once).
    """

    clients: Annotated[int, msgspec.Meta(ge=1, le=MOST_CLIENTS)]
    queries: Count
    think_s: NotNegative = 0.0
    think_cv: Annotated[float, msgspec.Meta(ge=0, le=1e3)] = 0.0
    ramp_up_s: NotNegative = 0.0


#: where queries come from
AnyTrace: TypeAlias = Generated | Replayed | Listed | ClosedLoop


def resamples(trace: AnyTrace) -> bool:
    """Whether other traces like this one are drawn from it, and so say little about the rest of the world."""
    return isinstance(trace, Replayed | Listed) or isinstance(getattr(trace, "process", None), Bootstrap)


#: what a plan says that holds on so many of them
RESAMPLED = "fresh traces are resamples of the one recorded trace: how many keep the objectives says little of other traces"
