"""The front page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ..claims import ROOT, Claim, constant, record, table_rows


def claims() -> Iterator[Claim]:
    page, serving, chat = "README.md", record("serving-bench")["worlds"]["A"]["ratios"], record("serving-llm")
    yield Claim(
        page,
        "| a port of the notebook's scheduler / SimPy / hand-written C++ | {} (about {} with a cheaper closeness test in "
        "the port) / {} / {} |",
        tuple(
            serving[f"latencies over {name}"]
            for name in ("port", "port with a cheap comparison", "SimPy", "C++")
        ),
    )
    hour_s = chat["hour_s"]["1 replica, requests"]
    yield Claim(
        page,
        "| an hour of language-model requests (about {}), {} s | a pure-Python twin | {} |",
        (chat["requests"], hour_s, chat["over_plain"]),
    )
    cluster = record("cluster-bench")
    both = [cluster[name] for name in ("Srtf", "EdfRigid")]
    yield Claim(
        page,
        "| {} jobs on {} GPUs under SRTF and EDF, {} million jobs/s | a pure-Python twin with indexed heaps | {} and {} |",
        (
            *(constant("benchmarks/cluster/bench.py", name) for name in ("JOBS", "GPUS")),
            min(one["compiled_jobs_per_s"] for one in both) / 1e6,
            *(one["ratio"] for one in both),
        ),
    )
    yield Claim(
        page,
        "| a lean pure-Python tick machine without logs | {} |",
        (record("spot-bench")["kernel over lean ticks at 0.25"],),
    )
    raced = [one["compiled_ratio"] for one in record("energy-bench")["race"]]
    yield Claim(page, "| the public `zeus-ml` simulator, per attempt | {} to {} |", (min(raced), max(raced)))
    loading = {one["name"]: one["value"] for one in record("loading-bench")["rows"]}
    yield Claim(
        page, "| the same samples as a tar archive | {} |", (loading["parse, times faster than tar"],)
    )
    yield from _reality(page)
    start = record("cli-start")
    yield Claim(
        page,
        "({} s the first time on two cores, {} s later)",
        (start["all, first"]["wall_s"], start["all, again"]["wall_s"]),
    )
    first = [one["cpu_s"] for what, one in start.items() if what.endswith(", first") and what != "all, first"]
    yield Claim(
        page,
        "The first run of a room compiles its kernels once ({} to {} s of processor time",
        (min(first), max(first)),
    )
    from forerun.catalog import demos
    from forerun.domains.spot.policy import growth_rules

    yield Claim(page, "`forerun demo` asks all {} rooms", (len(demos()),))
    yield Claim(page, "checkpoint/restart with {} growth rules", (len(growth_rules().names()),))
    yield Claim(
        page, "[{} examples](examples/) run in the tests", (len([*(ROOT / "examples").glob("*.py")]),)
    )
    listed = "ElasticFlow, EDF, Gandiva, Tiresias, Themis, Chronus, Pollux, Gavel"
    yield Claim(page, f"{{}} published schedulers ({listed})", (len(listed.split(",")),))
    held = next(
        row.cells
        for row in table_rows((ROOT / page).read_text(encoding="utf-8"))
        if row.cells[1] == "chronus deadline ratio"
    )
    yield Claim(
        page,
        "with its greedy rule at every lease it meets {} of the deadlines, not {}",
        (float(held[3]), float(held[2])),
    )


def _reality(page: str) -> Iterator[Claim]:
    """The worst of each real run beside its prediction, in percent."""
    served, loaded, trained = (record(f"{room}-reality") for room in ("serving", "loading", "spot"))

    def worst(rows: Iterable[Mapping[str, float]], name: str) -> float:
        return 100 * max(abs(row[name]) for row in rows)

    for kind, text in (
        ("sleeping", "replicas that sleep | {} % at P50, {} % at P99 |"),
        ("computing", "disturbed by the machine | {} % at P50, {} % at P99 |"),
    ):
        rows = served[kind]["rows"]
        yield Claim(page, text, (worst(rows, "p50_error"), worst(rows, "p99_error")))
    loads = {row["load"] for row in served["sleeping"]["rows"]}
    yield Claim(page, "a served pipeline, {} loads up to overload", (len(loads),))
    disturbed = (served["computing"]["disturbed"], len(served["computing"]["rows"]))
    assert disturbed[0] == disturbed[1], "the page says all"
    yield Claim(page, "all {} runs disturbed by the machine", disturbed[:1])
    rounds = loaded["rounds"]
    yield Claim(
        page,
        "loading from stores {}, {} and {} ms away, settings that were not probed | {} %, {} % in the mean |",
        (*(one["latency_ms"] for one in rounds), worst(rounds, "worst_error"), worst(rounds, "mean_error")),
    )
    over = (100 * trained[name]["steps_over_prediction"] for name in ("numpy", "torch"))
    yield Claim(page, "{} % (perceptron), {} % (transformer) |", tuple(over))


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    ("README.md", "| result |"): "tests/docs/test_documents.py::test_the_readmes_published_numbers_come_out",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = set()

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
