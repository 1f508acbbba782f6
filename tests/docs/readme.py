"""The front page: its one table of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from .claims import ROOT, Claim, constant, record, table_rows

PAGE: Final = "README.md"


def claims() -> Iterator[Claim]:
    ratios, cluster = record("serving-bench")["worlds"]["A"]["ratios"], record("cluster-bench")
    yield from _reality()
    yield Claim(
        PAGE,
        "| hand-written C++ / SimPy | {} / {} times as fast |",
        (ratios["latencies over C++"], ratios["latencies over SimPy"]),
    )
    yield Claim(
        PAGE,
        "| {} jobs on {} GPUs under SRTF and EDF | a Python program with indexed heaps | {} and {} times as fast |",
        (
            *(constant("benchmarks/cluster/bench.py", name) for name in ("JOBS", "GPUS")),
            *(cluster[name]["ratio"] for name in ("Srtf", "EdfRigid")),
        ),
    )
    yield Claim(
        PAGE,
        "| a Python loop over time steps | {} times as fast |",
        (record("spot-bench")["kernel over lean ticks at 0.25"],),
    )
    raced = [one["compiled_ratio"] for one in record("energy-bench")["race"]]
    yield Claim(PAGE, "| the public `zeus-ml` simulator | {} to {} times as fast |", (min(raced), max(raced)))
    chronus = next(
        row.cells
        for row in table_rows((ROOT / "docs" / "replication" / "published.md").read_text(encoding="utf-8"))
        if row.cells[1] == "chronus deadline ratio"
    )
    yield Claim(
        "docs/replication/published.md",
        "with its greedy rule at every lease it meets {} of the deadlines, not {}",
        (float(chronus[3]), float(chronus[2])),
    )


def _reality() -> Iterator[Claim]:
    """The largest error of each prediction, in percent."""
    served, loaded, trained = (record(f"{domain}-reality") for domain in ("serving", "loading", "spot"))

    def worst(rows: Iterable[Mapping[str, float]], name: str) -> float:
        return 100 * max(abs(row[name]) for row in rows)

    for kind, text in (
        ("sleeping", "replicas that sleep | a real run | at most {} % off at P50, {} % at P99 |"),
        ("computing", "disturbed by the machine | a real run | at most {} % off at P50, {} % at P99 |"),
    ):
        rows = served[kind]["rows"]
        yield Claim(PAGE, text, (worst(rows, "p50_error"), worst(rows, "p99_error")))
    loads = {row["load"] for row in served["sleeping"]["rows"]}
    yield Claim(PAGE, "a served pipeline, {} loads up to overload", (len(loads),))
    disturbed = (served["computing"]["disturbed"], len(served["computing"]["rows"]))
    assert disturbed[0] == disturbed[1], "the page says all"
    yield Claim(PAGE, "all {} runs disturbed by the machine", disturbed[:1])
    built = record("serving-models")["built"]
    counted = [row for row in built["rows"] if row["kind"] == "dense" and "e2e_mean_ms" in row["errors"]]
    whole = built["errors"]["dense"]["e2e_mean_ms"]
    yield Claim(
        PAGE,
        "| public measurements, {} experiments | {} % off in the mean, {} % in the median |",
        (len(counted), 100 * whole["mean"], 100 * whole["median"]),
    )
    rounds = loaded["rounds"]
    yield Claim(
        PAGE,
        "loading from stores {}, {} and {} ms away, settings that were not probed | real runs | at most {} % off, {} % in "
        "the mean |",
        (*(one["latency_ms"] for one in rounds), worst(rounds, "worst_error"), worst(rounds, "mean_error")),
    )
    forecasts = [run["forecast"] for run in record("live-against_simulation")["runs"].values()]
    yield Claim(PAGE, "on eight slots, {} runs | its forecast", (len(forecasts),))
    yield Claim(
        PAGE,
        "| at most {} % off until the last job ends, {} % in mean completion time, {} % for the worst job |",
        tuple(worst(forecasts, name) for name in ("makespan", "mean_jct", "worst_jct")),
    )
    busy = [run["offs"] for run in record("live-intervals")["runs"].values()]
    offs = tuple(worst(busy, name) for name in ("makespan", "mean_jct", "worst_jct"))
    text = "the same, {} runs on a busy machine | its forecast | at most {} %, {} % and {} % off |"
    yield Claim(PAGE, text, (len(busy), *offs))
    over = (100 * trained[name]["steps_over_prediction"] for name in ("numpy", "torch"))
    yield Claim(PAGE, "{} % off (perceptron), {} % (transformer) |", tuple(over))
