"""When requests arrive: stochastic processes as named specs, one a file in `forerun.core.trace.processes`.

A process yields ascending instants in milliseconds, in chunks, from one seed and its own named streams.
Asking for more arrivals extends the sequence and changes none of those before. The first arrival comes one
gap after 0, unless the process says otherwise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import Problem, ScenarioError
from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec

Floats = NDArray[np.float64]

CHUNK = 1 << 14
MOST_ARRIVALS = 1_000_000_000


class ArrivalProcess(NamedSpec, frozen=True, kw_only=True):
    """How requests arrive. Subclasses give it a name (`tag`), parameters as fields, and `chunks`.

    paper: where the process comes from.
    """

    paper: ClassVar[str] = ""

    def chunks(self, seed: int) -> Iterator[Floats]:
        """The arrivals as consecutive ascending arrays of milliseconds; ends only if the process does."""
        raise AssertionError(f"{type(self).__name__} does not say how it arrives")

    def arrivals_ms(
        self, seed: int, *, n: int | None = None, horizon_s: float | None = None, most: int = MOST_ARRIVALS
    ) -> Floats:
        """The first `n` arrivals, or all before `horizon_s`: float64[arrivals], ascending, in milliseconds.

        Exactly one of `n` and `horizon_s` is given.

        Parameters
        ----------
        seed : of the process's random streams; longer asks with one seed begin with the same arrivals.
        n : how many.
        horizon_s : until when [s], itself excluded.
        most : with `horizon_s`, stop a little beyond this many arrivals (whoever gives it refuses them).

        Raises ScenarioError if the parameters do not make a process, or if it ends before `n` arrivals.
        """
        problems = self.faults()
        if (n is None) == (horizon_s is None):
            problems = [
                *problems,
                ("", "give exactly one of n (how many arrivals) and horizon_s (until when)"),
            ]
        if n is not None and not 0 < n <= MOST_ARRIVALS:
            problems = [*problems, ("n", f"{n} arrivals were asked for; 1 to {MOST_ARRIVALS} can be had")]
        if horizon_s is not None and not 0 < horizon_s < math.inf:
            problems = [*problems, ("horizon_s", f"{horizon_s} is not a positive, finite time")]
        if problems:
            raise ScenarioError(*(Problem(path, what) for path, what in problems))
        return self._first(seed, n) if n is not None else self._before(seed, (horizon_s or 0.0) * 1e3, most)

    def _first(self, seed: int, n: int) -> Floats:
        parts, count = [], 0
        for chunk in self.chunks(seed):
            parts.append(chunk[: n - count])
            count += len(parts[-1])
            if count == n:
                return np.concatenate(parts)
        raise ScenarioError.at("n", f"{n} arrivals were asked for; the process ends after {count}")

    def _before(self, seed: int, horizon_ms: float, most: int) -> Floats:
        parts: list[Floats] = [np.empty(0)]
        count = 0
        for chunk in self.chunks(seed):
            parts.append(chunk[: np.searchsorted(chunk, horizon_ms)])
            count += len(parts[-1])
            if count > MOST_ARRIVALS:
                raise ScenarioError.at(
                    "horizon_s", f"more than {MOST_ARRIVALS} arrivals before {horizon_ms / 1e3:g} s"
                )
            if len(parts[-1]) < len(chunk) or count > most:
                break
        return np.concatenate(parts)


@functools.cache
def processes() -> Registry[ArrivalProcess]:
    """All arrival processes, built in and announced by plugins."""
    return Registry(
        "arrival process",
        "forerun.core.trace.processes",
        base=ArrivalProcess,
        group="forerun.arrival_processes",
    )


def summed(gaps: Iterator[Floats]) -> Iterator[Floats]:
    """Running sums of gaps, chunk after chunk; how they are cut changes no bit."""
    last = 0.0
    for chunk in gaps:
        instants = np.cumsum(np.concatenate([[last], chunk]))[1:]
        last = float(instants[-1]) if len(instants) else last
        yield instants


def one_of(given: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """The problem, if not exactly one of these parameters is given."""
    names = " and ".join(given)
    given_ = [value for value in given.values() if value is not None]
    if len(given_) == 1:
        return []
    return [("", f"give exactly one of {names}; {'both were' if given_ else 'none was'} given")]


def described_processes() -> list[dict[str, str]]:
    """Every process: name, parameters (with defaults where there are), what it is, its source."""
    known = processes()
    return [
        {
            "process": name,
            "parameters": " ".join(map(_parameter, msgspec.structs.fields(process))),
            "about": (process.__doc__ or "").strip().splitlines()[0],
            "source": process.paper,
        }
        for name, process in ((name, known.get(name)) for name in known.names())
    ]


def _parameter(field: msgspec.structs.FieldInfo) -> str:
    written = isinstance(field.default, bool | int | float | str) and field.default != ""
    return f"{field.name}={field.default}" if written else field.name
