"""The serving room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim, record


def claims() -> Iterator[Claim]:
    page, found = "docs/rooms/serving.md", record("serving-bench")
    a, m = (found["worlds"][name] for name in "AM")
    rows = {
        "over a port of the notebook's list scheduler": ("{} × | {} ×", "latencies over port"),
        "over SimPy processes": ("{} × | {} ×", "latencies over SimPy"),
        "over an event heap in C++ (-O2)": ("{} × | {} ×", "latencies over C++"),
        "the compiled event loop over SimPy": ("{} × | {} ×", "compiled event loop over SimPy"),
        "everything recorded, relative to latencies": ("{} | {}", "full record over latencies"),
        "slices of 1,000 arrivals, relative to one piece": ("{} | {}", "slices of 1,000 over one piece"),
    }
    rates = tuple(world["queries_per_s"]["latencies"] / 1e6 for world in (a, m))
    yield Claim(page, "| queries per second, latencies | {} M | {} M |", rates)
    for name, (cells, measure) in rows.items():
        yield Claim(page, f"| {name} | {cells} |", tuple(world["ratios"][measure] for world in (a, m)))
    memory = found["memory_mb"]
    yield Claim(
        page,
        "10 M queries need {} MB with latencies kept, {} MB streamed",
        (memory["10 M queries, latencies kept"], memory["10 M queries, streamed"]),
    )
    first, again = (record("cli-start")[f"serving, {when}"]["cpu_s"] for when in ("first", "again"))
    yield Claim(
        page,
        "compiles the kernels: {} s of processor time for the demonstration, {} times a later one",
        (first, first / again),
    )
    plan = record("serving-plan")
    yield Claim(
        page,
        "median {} ms, most {} ms, in total {} of the greedy's time with the same memory of stages",
        (plan["exact_median_ms"], plan["exact_max_ms"], plan["exact_over_greedy_total"]),
    )
    tuners = record("serving-tuning")["tuners"]
    labels = {
        "`inferline`": "inferline",
        "`inferline`, `scale_down_rho: per_model`": "inferline, per model",
        "`coarse`, mean rate": "coarse, mean",
        "`coarse`, peak of any second": "coarse, peak",
        "`rehearsal`": "rehearsal",
        "`rehearsal`, `headroom: 1.25`": "rehearsal, headroom 1.25",
    }
    for label, name in labels.items():
        one = tuners[name]
        yield Claim(
            page, f"| {label} | {{}} | {{}} | {{}} s |", (one["kept"], one["mean_cost"], one["run_s"])
        )


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/rooms/serving.md", "| option |"),
    ("docs/rooms/serving.md", "| tuner |"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = {
    ("docs/rooms/serving.md", "| load of the busiest stage |"),
}
