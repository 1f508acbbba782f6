"""The front page."""

from __future__ import annotations

from collections.abc import Iterator
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
    from forerun.domains.demos import demos
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


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    ("README.md", "| result |"): "tests/docs/test_documents.py::test_the_readmes_published_numbers_come_out",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = set()

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
