"""Traces made by a process instead of recorded from the world."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from forerun.core.errors import UsageError
from forerun.core.scenario.decode import decode
from forerun.core.scenario.resolve import apply_overrides, resolve
from forerun.core.scenario.spec import Spec, chosen_from, to_data
from forerun.core.scenario.text import Document, read_document
from forerun.core.trace.arrivals import ArrivalProcess, processes
from forerun.core.trace.domain_traces import is_description
from forerun.core.trace.table import Column, Provenance, Trace
from forerun.core.units import parse_quantity

ARRIVAL = Column("arrival_ms", "ms", "instant of arrival")


class _Chosen(Spec, frozen=True, kw_only=True):
    process: Annotated[ArrivalProcess, chosen_from(processes)]


def process_from(name_or_file: str, settings: Iterable[str] = ()) -> ArrivalProcess:
    """A process by its name (`gamma`) or from a file that describes one, with texts `rate_rps=100` applied.

    Values may carry units (`mean_on_s=2min`). Raises ScenarioError with every problem, UsageError for a
    setting without `=`.
    """
    path = Path(name_or_file)
    from_file = is_description(name_or_file)
    document = read_document(path) if from_file else Document("process", {"name": name_or_file})
    _, document = apply_overrides(document, settings, domain="")
    lines = {("process", *place): line for place, line in document.lines.items()}
    whole = Document(document.name, {"process": document.data}, lines)
    base = path.resolve().parent if from_file else Path.cwd()
    chosen: _Chosen = resolve(decode(whole, _Chosen), base=base, document=whole)
    return chosen.process


def generate(
    process: ArrivalProcess, *, seed: int, n: int | None = None, horizon_s: float | None = None
) -> Trace:
    """A trace of requests of a process, with how it was made. Exactly one of `n` and `horizon_s` is given.

    Parameters
    ----------
    process : when requests arrive.
    seed : of its random streams.
    n : how many requests.
    horizon_s : until when requests arrive [s].

    Raises ScenarioError as `ArrivalProcess.arrivals_ms` does.
    """
    instants = process.arrivals_ms(seed, n=n, horizon_s=horizon_s)
    options: dict[str, object] = {"process": to_data(process), "seed": seed}
    options |= {"n": n} if n is not None else {"horizon_s": horizon_s}
    made = Provenance(format="generated", options=options)
    return Trace("requests", [ARRIVAL], {"arrival_ms": instants}, time="arrival_ms", provenance=made)


def seconds(text: str) -> float:
    """A time as people write it (`10min`, `90`) in seconds; UsageError if it is none."""
    try:
        return parse_quantity(text if text.strip()[-1:].isalpha() else f"{text}s", "s")
    except ValueError as error:
        raise UsageError.at("time", str(error)) from None
