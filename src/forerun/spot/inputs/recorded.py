"""Recorded fleets: from a trace file to who was there when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forerun.core.errors import TraceError
from forerun.core.rng import stream
from forerun.core.trace.reader import options_from, read_trace
from forerun.core.trace.table import Trace
from forerun.spot.engine.membership import Membership
from forerun.spot.scenario import Leaves, Recorded

MOST_NODES = 200_000


@dataclass(frozen=True, slots=True)
class Recording:
    """A fleet's history with what a reader should know about it.

    Parameters
    ----------
    until_s : when the recording ends, which may be after its last change.
    """

    fleet: Membership
    notes: tuple[str, ...] = ()
    until_s: float = 0.0

    @property
    def end_s(self) -> float:
        """The last instant that is known of the fleet."""
        return max(self.until_s, self.fleet.end_s)


def recording(spec: Recorded, seed: int) -> Recording:
    """Read a scenario's trace.

    Raises TraceError for files that cannot be read or contain something else than a fleet.
    """
    options = options_from(tuple(f"{name}={value}" for name, value in spec.options.items()))
    trace = read_trace(Path(spec.file.path), spec.format, options=options, strict=spec.strict)
    repairs = [f"{row['rule']}: {row['count']}" for row in trace.provenance.repairs]
    notes = [f"trace repaired ({'; '.join(repairs)})"] if repairs else []
    fleet = fleet_of(trace, spec.leaves, seed, spec.file.path)
    if trace.kind == "capacity":
        notes.append(
            f"nodes are made of counts by the rule {spec.leaves!r}: node-hours are exact, "
            f"swaps within any of its {_intervals(trace)} intervals cannot be seen, so losses are undercounted"
        )
    return Recording(fleet, tuple(notes), looked_until_s(trace))


def fleet_of(trace: Trace, leaves: Leaves, seed: int, where: str | Path) -> Membership:
    """The fleet of a trace of membership, or of counts with nodes made of them.

    Parameters
    ----------
    leaves : which node leaves where only counts are known.
    where : the file, for messages.

    Raises TraceError for other traces.
    """
    if trace.kind == "membership":
        return of_membership(trace)
    if trace.kind == "capacity":
        return of_counts(trace["t_s"].tolist(), trace["nodes"].tolist(), leaves, seed)
    raise TraceError.at(where, f"contains {trace.kind}, not the membership or capacity of a fleet")


def _intervals(trace: Trace) -> int:
    """Intervals between two rows of a count, in each of which a replaced node stays unseen."""
    options = trace.provenance.options
    looks = options.get("rows", options.get("ticks", len(trace)))
    return max(1, int(str(looks)) - 1)


def looked_until_s(trace: Trace) -> float:
    """When a recording ends: after the last change, where the reader knows of later rows."""
    options = trace.provenance.options.get("until_s")
    last_s = float(trace["t_s"][-1]) if len(trace) else 0.0
    return max(last_s, float(options)) if isinstance(options, int | float) else last_s


def of_membership(trace: Trace) -> Membership:
    """The fleet of a membership trace."""
    columns = (trace[name].tolist() for name in ("t_s", "added", "node"))
    return Membership.from_rows((t_s, bool(added), node) for t_s, added, node in zip(*columns, strict=True))


def of_counts(times_s: Sequence[float], counts: Sequence[int], leaves: Leaves, seed: int = 0) -> Membership:
    """A fleet with these counts: rises add new nodes, falls remove the oldest, the youngest, or any.

    Parameters
    ----------
    times_s, counts : when there were how many; of several counts at one time the last one counts.
    leaves : who leaves.
    seed : of the draws, where any may leave (default: 0).

    Raises TraceError for fleets too large to simulate.
    """
    draws = stream(seed, "which node left")
    alive: list[str] = []
    rows: list[tuple[float, bool, str]] = []
    born = 0
    last_of_each = dict(zip(times_s, counts, strict=True))
    for t_s, count in last_of_each.items():
        if count > MOST_NODES:
            raise TraceError.at(f"t = {t_s:g} s", f"{count} nodes are more than {MOST_NODES}")
        while len(alive) < count:
            alive.append(f"node{born}")
            rows.append((t_s, True, alive[-1]))
            born += 1
        while len(alive) > count:
            at = {"fifo": 0, "lifo": len(alive) - 1}.get(leaves)
            at = int(draws.integers(len(alive))) if at is None else at
            rows.append((t_s, False, alive.pop(at)))
    return Membership.from_rows(rows)
