"""What the documents say in numbers, as sentences with gaps, and the values that belong into the gaps.

A value comes from a record of a benchmark (`benchmarks/results`, renewed by `python -m benchmarks --keep`), from a constant
of the code, or is recomputed here. `test_figures.py` holds the documents to them.

`python -m tests.docs.claims` puts the values into the documents, to as many digits as stand there.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "benchmarks" / "results"

#: a number as the documents write them: 4,100 or 0.36 or .36 or 7.2e5 or −8.5
NUMBER: Final = re.compile(r"[-+−]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Within:
    """A value for a gap that states a bound rather than the value: a shown number no less (or no more) than it."""

    most: float | None = None
    least: float | None = None


@dataclass(frozen=True)
class Claim:
    """A piece of a document with gaps `{}`, and the value of each. after: what stands before it, where it occurs twice."""

    document: str
    text: str
    values: tuple[float | Within, ...]
    after: str = ""

    def places(self, page: str) -> list[re.Match[str]]:
        """Where a page, with blanks folded, says this: its only place, unless it says it never or too often."""
        if self.after:
            found = pattern(self).search(page, page.index(folded(self.after)))
            return [found] if found else []
        return list(pattern(self).finditer(page))


@functools.cache
def record(name: str) -> Any:
    """The figures of a benchmark's record."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["figures"]


def folded(text: str) -> str:
    """A text with each run of blanks as one."""
    return " ".join(text.split())


def shown_as(text: str) -> tuple[float, float]:
    """(value, half a unit of its last significant place) of a number as it is written."""
    plain = text.replace(",", "").replace("−", "-").lstrip("+")
    mantissa, _, exponent = plain.partition("e")
    whole, point, part = mantissa.lstrip("-").partition(".")
    if point:
        place = -len(part)
    else:
        place = len(whole) - len(whole.rstrip("0")) if whole.strip("0") else 0
    return float(plain), 0.5 * 10.0 ** (place + int(exponent or 0))


def agrees(text: str, value: float | Within) -> bool:
    """Whether a shown number is the value, rounded to what is shown; or keeps the bound."""
    shown, half = shown_as(text)
    if isinstance(value, Within):
        return (value.most is None or value.most <= shown) and (value.least is None or value.least >= shown)
    return abs(shown - value) <= half * (1 + 1e-9)


def restated(text: str, value: float | Within) -> str:
    """A value written as the number that stands there: as many places, or as many digits before zeros."""
    if isinstance(value, Within) or agrees(text, value) or "e" in text:
        return text
    plain = text.lstrip("+-−")
    point = plain.partition(".")
    if point[1]:
        found = f"{abs(value):,.{len(point[2])}f}"
        found = found.removeprefix("0") if not point[0] else found
    else:
        digits = len(plain.replace(",", "").rstrip("0")) or 1
        size = math.floor(math.log10(abs(value))) + 1 if value else 1
        found = f"{round(abs(value), min(0, digits - size)):,.0f}"
    sign = "-" if value < 0 else "+" if text[0] in "-+−" else ""
    return sign.replace("-", "−" if "−" in text else "-") + found


def renewed(document: str, text: str) -> str:
    """A document's text with every gap filled with its value."""
    for claim in claims():
        if claim.document == document:
            blanks = re.compile(pattern(claim).pattern.replace("\\ ", r"\s+"))
            found = blanks.search(text, text.index(claim.after) if claim.after else 0)
            for at in range(len(claim.values), 0, -1) if found else ():
                start, end = found.span(at)
                text = text[:start] + restated(found[at], claim.values[at - 1]) + text[end:]
    return text


def pattern(claim: Claim) -> re.Pattern[str]:
    """The claim's text as a pattern whose groups are the numbers in its gaps."""
    pieces = [re.escape(piece) for piece in folded(claim.text).split("{}")]
    return re.compile(f"({NUMBER.pattern})".join(pieces))


def _row(document: str, label: str, *values: float | Within | None, after: str = "") -> Claim:
    """A row of a table: what stands in its first cells, then a number in each cell (None: a dash)."""
    cells = " | ".join("–" if value is None else "{}" for value in values)
    shown = tuple(value for value in values if value is not None)
    return Claim(document, f"| {label} | {cells} |", shown, after)


def claims() -> Iterator[Claim]:
    """Every claim."""
    yield from _readme()
    yield from _studies()
    yield from _serving()
    yield from _language_models()
    yield from _energy()
    yield from _loading()
    yield from _spot()
    yield from _cluster()
    yield from _limits()


def _readme() -> Iterator[Claim]:
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
        "| an hour of language-model requests (about 20,000), {} s | a pure-Python twin | {} |",
        (hour_s, chat["over_plain"]),
    )
    cluster = record("cluster-bench")
    both = [cluster[name] for name in ("Srtf", "EdfRigid")]
    yield Claim(
        page,
        "under SRTF and EDF, {} million jobs/s | a pure-Python twin with indexed heaps | {} and {} |",
        (min(one["compiled_jobs_per_s"] for one in both) / 1e6, both[0]["ratio"], both[1]["ratio"]),
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


def _studies() -> Iterator[Claim]:
    found = record("study-bench")
    one, two = found["workers_1"], found["workers_2"]
    page = "docs/studies.md"
    yield Claim(
        page,
        "{} ms of processor time a cell beyond the simulation on one worker and {} ms on two, all processes together "
        "(wall {} and {} ms at load {}; {} and {} times that of a plain pool that keeps nothing)",
        (
            *(each["overhead_ms"] for each in (one, two)),
            *(each["wall_ms"] for each in (one, two)),
            one["load_average"],
            *(each["over_plain_pool"] for each in (one, two)),
        ),
    )
    peaks = found["peak_mb"]
    yield Claim(
        page,
        "The peak is {} MB at 1,000 and {} MB at 10,000 cells",
        (peaks["1,000 cells"], peaks["10,000 cells"]),
    )
    yield Claim(page, "Reading and drawing 10,000 cells takes {} s (100 combinations)", (found["report_s"],))


def _serving() -> Iterator[Claim]:
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


def _language_models() -> Iterator[Claim]:
    found = record("serving-llm")
    hour = found["hour_s"]
    yield Claim(
        "docs/rooms/serving-llm.md",
        "{} s on one replica, {} s on four; {} s and {} s with every iteration recorded. Over the plain twin: {} times",
        (
            hour["1 replica, requests"],
            hour["4 replicas, requests"],
            hour["1 replica, requests and iterations"],
            hour["4 replicas, requests and iterations"],
            found["over_plain"],
        ),
    )


def _energy() -> Iterator[Claim]:
    page, found = "docs/rooms/energy.md", record("energy-bench")
    race, marks = found["race"], found["marks"]
    theirs = [one["reference_ms_per_attempt"] for one in race]
    ours = [one["compiled_us_per_attempt"] for one in race]
    compiled = [one["compiled_ratio"] for one in race]
    readable = [one["readable_ratio"] for one in race]
    yield Claim(
        page,
        "CPU time an attempt: about {} ms there, {} to {} µs in the compiled loops, {} to {} times less; {} to {} times "
        "less in the readable loops",
        (
            sum(theirs) / len(theirs),
            min(ours),
            max(ours),
            min(compiled),
            max(compiled),
            min(readable),
            max(readable),
        ),
    )
    yield Claim(
        page,
        "1,000 seeds of 100 recurrences take {} s in compat mode and {} s in corrected mode on one core, {} s with `joint`",
        tuple(
            marks[f"1,000 seeds x 100 recurrences, {mode}, s"] for mode in ("compat", "corrected", "joint")
        ),
    )
    growth = [one["ratio"] for one in found["scaling"].values()]
    yield Claim(
        page,
        "Ten times the submissions of a group take {} to {} times as long",
        (min(growth), max(growth)),
    )
    pipelines = found["pipelines"]
    yield Claim(
        page,
        "at most {} times its energy at each of its times, {} times as fast",
        (pipelines["worst_energy_ratio"], pipelines["times_as_fast"]),
    )
    for row in record("energy-joint"):
        label = f"| {row['eta']:g} | {row['beta']:g} | {row['seeds']} |"
        unit = " of pruning-gts'" if row is record("energy-joint")[0] else ""
        yield Claim(
            page,
            f"{label} {{}} | {{}} | {{}} of {{}} | {{}}{unit} |",
            (row["joint"], row["pruning_gts"], row["better_on"], row["workloads"], row["worst"]),
        )


def _loading() -> Iterator[Claim]:
    page = "docs/rooms/loading.md"
    speed = {one["name"]: one["value"] for one in record("loading-bench")["rows"]}

    def fast(*names: str) -> tuple[float, ...]:
        return tuple(speed[name] for name in names)

    model, over = "event model, blocks of 1, samples/s", "samples/s over the yardstick"
    yield Claim(page, "pushed and popped, here {} a second", fast("heap pairs a second (yardstick)"))
    yield Claim(page, "| event model, blocks of 1 | {} samples/s | 200,000 |", fast(model))
    yield Claim(
        page,
        "| event model over Y, blocks of 1; 16 | {}; {} | 0.05; 0.3 |",
        fast(f"event model, blocks of 1, {over}", f"event model, blocks of 16, {over}"),
    )
    twin = "event model, blocks of 1, times faster than its twin"
    yield Claim(page, "| event model over its twin in SimPy, blocks of 1 | {} | 10 |", fast(twin))
    probe = "60 cells of the event model over one probe's seconds"
    yield Claim(page, "| 60 cells of the event model over a probe's 4 s | {} | 1 |", fast(probe))
    published = "simulated over real time, the published experiment"
    for label, name in (
        ("| recursion over Y | {} | 5 |", "recursion, batches/s over the yardstick"),
        ("| 60 cells of the recursion | {} s | 1 s |", "60 cells of the recursion, s"),
        (f"| {published} | {{}} | 100 |", published),
        ("| parsing a sample, times faster than from tar | {} | 50 |", "parse, times faster than tar"),
    ):
        yield Claim(page, label, fast(name))
    yield Claim(
        page,
        "| own loader's overhead a sample, single files; blocks of 64, 8 threads | {}; {} ms | 0.15 ms |",
        fast(
            "own loader's overhead, ms a sample, single files",
            "own loader's overhead, ms a sample, blocks of 64, 8 threads",
        ),
    )
    yield Claim(
        page,
        "| packing; unpacking over copying the files | {}; {} | 2; 2 |",
        fast("pack over copy, wall time", "unpack over copy, wall time"),
    )
    rounds = {one["latency_ms"]: one for one in record("loading-reality")["rounds"]}
    for latency, one in rounds.items():
        yield Claim(
            page,
            f"| {latency:g} ms | {{}} % | {{}} % ({one['worst_cell'].replace('x', '×')}) | {{}} % | {{}} × |",
            (
                *(100 * one[name] for name in ("mean_error", "worst_error", "regret")),
                one["gain_of_256"],
            ),
        )
    yield Claim(page, "what single files take by {} % at most", (100 * rounds[0.0]["merging_changes"],))
    for one in record("loading-choices")["choices"]:
        (cell,) = {each["cell"] for each in one["rounds"]}
        yield Claim(
            page,
            f"| {one['latency_ms']:g} ms | {cell.replace('x', '×')} | {{}} % |",
            (100 * max(each["regret"] for each in one["rounds"]),),
        )
    shared = {(one["law"], one["at"]): one for one in record("loading-sharing")["rows"]}
    links = [one for (law, _), one in shared.items() if law == "link"]
    slots = [one for (law, _), one in shared.items() if law == "slots"]
    yield Claim(
        page,
        "a link of 20 MB/s had {}, {}, {} and {} samples/s each, 1 to 4 of them, against a law of {}, {}, {} and {} "
        "({} % at most). Eight threads on 1, 2 and 4 slots of 20 ms had {}, {} and {} files/s against {}, {} and {} "
        "({} % at most)",
        (
            *(one["measured"] for one in links),
            *(one["predicted"] for one in links),
            100 * max(abs(one["error"]) for one in links),
            *(one["measured"] for one in slots),
            *(one["predicted"] for one in slots),
            100 * max(abs(one["error"]) for one in slots),
        ),
    )
    for one in record("loading-workers")["rows"]:
        yield Claim(
            page,
            f"| {one['workers']}, {one['prefetch']}, {1e3 * one['step_s']:g} ms | {{}} s | {{}} s | {{}} % |",
            (one["measured_s"], one["predicted_s"], 100 * one["error"]),
        )
    tried = record("loading-trial")
    files, packed = tried["files behind 40 ms"], tried["blocks behind 40 ms"]
    yield Claim(page, "| the folder, local | {} s |", (tried["local"]["took_s"],))
    yield Claim(
        page,
        "| the same behind 40 ms, as files | {} s | the thread law binds, {} × short of hiding; 8 threads hide it with "
        "blocks of {}, 4 with {}, 2 with {}, 1 with {}; blocks of {} and {} threads do with room, {} samples/s ({} to {}) |",
        (
            files["took_s"],
            files["short_of_hiding"],
            *files["smallest"].values(),
            *(files[name] for name in ("block", "threads", "samples_per_s", "low", "high")),
        ),
    )
    yield Claim(
        page,
        "| packed into blocks of 8, behind 40 ms | {} s | the same choice, {} samples/s ({} to {}); "
        "verified by a short run: {} |",
        tuple(packed[name] for name in ("took_s", "samples_per_s", "low", "high", "verified_samples_per_s")),
    )
    yield Claim(
        page,
        "| packing in blocks of 8, from the folder | {} s | the same bytes as through 40 ms",
        (tried["packing"]["took_s"],),
    )


def _spot() -> Iterator[Claim]:
    page, bench, rows = "docs/rooms/spot.md", record("spot-bench"), record("spot-notebook")

    def rounded(name: str) -> float:
        return float(rows[name]["corrected"])

    for level in (0.01, 0.05, 0.1, 0.25, 0.5, 1.0):
        label, at = f"{level:g}".removeprefix("0"), f"at {level} events/min"
        values = [rounded(f"{part} share {at}") for part in ("useful", "lost", "reconfig", "idle")]
        yield _row(page, label, *values, rounded(f"steps {at}"), after="### The question of 2021")
    for level in (0.01, 0.05, 0.1, 0.163, 0.25, 0.5, 1.0):
        label, at = f"{level:g}".removeprefix("0"), f"against immediate at {level} events/min"
        plain = [
            100 * rounded(f"{rule} {at}, stall 0 s")
            for rule in ("lazy", "lazy2", "drain", "hazard", "hazard_drain")
        ]
        stall = [
            100 * rounded(f"{rule} {at}, stall 8.9 s") for rule in ("lazy", "drain", "hazard", "hazard_drain")
        ]
        cells = " | ".join(["{}"] * len(plain) + [""] + ["{}"] * len(stall)).replace("|  |", "| |")
        yield Claim(page, f"| {label} | {cells} |", (*plain, *stall), after="## Growing")
    levels = (0.05, 0.25, 0.5)

    def worth(switch: str) -> list[float]:
        told = [rows[f"{switch}: steps at {level} events/min"] for level in levels]
        none = [rows[f"none: steps at {level} events/min"]["compat"] for level in levels]
        return [100 * (float(one["compat"]) / without - 1) for one, without in zip(told, none, strict=True)]

    switches = {
        "`extend`: each event in a pause adds a whole pause to its old end": "extend",
        "`no_stall`: snapshots do not block training": "no_stall",
        "`rounded`: whole seconds for measured times": "rounded",
        "all but the last": "all defects, without missing_ws",
    }
    for label, switch in switches.items():
        yield Claim(page, f"| {label} | {{}} % | {{}} % | {{}} % |", tuple(worth(switch)))
    small = [
        max(abs(worth(name)[at]) for name in ("strict", "initial0", "row_ws", "tick")) for at in range(3)
    ]
    yield Claim(
        page,
        "| `strict`, `initial0`, `row_ws`, `tick` (5 s) | less than {} % | less than {} % | at most {} % |",
        tuple(Within(most=round(value, 1)) for value in small),
    )
    stopped = [
        rows[f"missing_ws: runs stopped by a KeyError at {level} events/min"]["compat"] for level in levels
    ]
    yield Claim(page, "| `missing_ws`: stops at world size 0 (of 100 runs) | {} | {} | {} |", tuple(stopped))

    def fewer(switch: str) -> float:
        return 100 * (1 - rows[f"{switch}: steps"]["compat"] / rows[f"{switch}: steps"]["corrected"])

    def both(name: str) -> tuple[float, float]:
        return rows[name]["compat"], rows[name]["corrected"]

    yield Claim(page, "every run stops at its first removal (Python {} and later)", (3.11,))
    yield Claim(
        page, "| `over_ask` | {} of 100 runs stop", (rows["over_ask: runs stopped by an error"]["compat"],)
    )
    yield Claim(
        page,
        "| `marks` | {} removals a minute for {}; {} nodes in the mean for {}; {} % fewer steps |",
        (*both("marks: removals/min"), *both("marks: mean nodes"), fewer("marks")),
    )
    yield Claim(
        page,
        "| `big_share` | large additions at .05 and up to 31 nodes: {} nodes for {}; {} % fewer steps |",
        (*both("big_share: mean nodes"), fewer("big_share")),
    )
    yield Claim(
        page,
        "| `rate_over_12` | {} removals a minute for {}; {} % fewer steps |",
        (*both("rate_over_12: removals/min"), fewer("rate_over_12")),
    )
    yield Claim(page, "population passes the cap by a few: {} % fewer steps |", (fewer("clamp_hole"),))
    yield Claim(
        page,
        "additions carry the time of the row before, {} s too early; one date falls back at midnight, so the mean gap of "
        "terminations comes out as {} s for {}",
        (
            rows["stamps: additions stamped too early by, s"]["compat"],
            *both("stamps: mean gap of terminations, s"),
        ),
    )
    per = [
        [bench[f"{what} at {level}"] for level in levels]
        for what in (
            "kernel over lean ticks",
            "kernel over the notebook's ticks",
            "replay over the notebook's ticks",
        )
    ]
    yield Claim(
        page,
        "the kernel is {}, {} and {} times a lean pure-Python tick machine without a log at .05, .25 and .5 events a minute "
        "({}, {} and {} times the notebook's own machine); the exact replay is {}, {} and {} times the notebook's.",
        (*per[0], *per[1], *per[2]),
    )
    yield Claim(
        page,
        "20 000 trials of 355 minutes take {} s at .25 and {} s at 2 events a minute; twelve levels {} s",
        (
            bench["CPU seconds of 20000 trials at 0.25"],
            bench["CPU seconds of 20000 trials at 2.0"],
            bench["CPU seconds of the sweep of 12 levels"],
        ),
    )


def _cluster() -> Iterator[Claim]:
    page, bench, took = "docs/rooms/cluster.md", record("cluster-bench"), record("cluster-figures")["wall_s"]
    srtf, edf, growth = bench["Srtf"], bench["EdfRigid"], bench["growth"]
    yield Claim(
        page,
        "SRTF {} M and EDF {} M jobs/s in the compiled queue, {} and {} times a pure-Python twin",
        (srtf["compiled_jobs_per_s"] / 1e6, edf["compiled_jobs_per_s"] / 1e6, srtf["ratio"], edf["ratio"]),
    )
    yield Claim(
        page,
        "A user's Python policy in rounds of 60 s: {} k jobs/s. A million jobs: {} MB. An event costs {} us in a trace of "
        "10,000 jobs and {} us in one of a million, with {} jobs waiting",
        (
            bench["python_policy"]["jobs_per_s"] / 1e3,
            bench["memory_mb"],
            growth[0]["event_us"],
            growth[-1]["event_us"],
            growth[-1]["most_waiting"],
        ),
    )
    sentences = {
        "as published and again corrected: {} s": ("fig8a",),
        "six schedulers in two processes: {} s": ("fig8b",),
        "Figure 9: {} s with one draw": ("fig9, one draw",),
        "one in both modes), {} s with twenty": ("fig9, twenty draws",),
        "Figure 10: {} s.": ("fig10",),
        "Figure 11: {} s with one draw, {} s with twenty": ("fig11, one draw", "fig11, twenty draws"),
    }
    for text, names in sentences.items():
        yield Claim(page, text, tuple(took[name] for name in names))


def _limits() -> Iterator[Claim]:
    """Limits that are constants of the code."""
    from forerun.data.archive import DEFAULT_LIMITS
    from forerun.report import thin
    from forerun.scenario.text import MAX_DEPTH

    page = "docs/reports.md"
    yield Claim(page, "| line, step, cdf | at most about {} points |", (thin.MOST_POINTS,))
    yield Claim(page, "| points | at most {} |", (thin.MOST_MARKS,))
    yield Claim(page, "| bar, stacked bar | the {} largest |", (thin.MOST_CATEGORIES,))
    yield Claim(page, "| histogram | at most {} bins |", (thin.MOST_BINS,))
    yield Claim(page, "| heat map | at most {} × {} cells |", tuple(thin.MOST_CELLS))
    yield Claim(page, "| gantt | {} tracks, about {} intervals |", (thin.MOST_TRACKS, thin.MOST_INTERVALS))
    yield Claim(
        "docs/museum.md",
        "more than {} members, and what unpacks to more than {} times its size are refused",
        (DEFAULT_LIMITS.members, DEFAULT_LIMITS.expansion),
    )
    yield Claim("docs/scenarios.md", "nesting beyond {} levels", (MAX_DEPTH,))


#: tables whose numbers another test holds: (document, first header cell) and that test
ELSEWHERE: Final[dict[tuple[str, str], str]] = {
    (
        "docs/rooms/cluster.md",
        "schedule",
    ): "tests/docs/test_figures.py::test_switches_do_what_their_record_says",
    ("README.md", "result"): "tests/docs/test_documents.py::test_the_readmes_published_numbers_come_out",
    (
        "docs/museum.md",
        "defect",
    ): "tests/museum/test_museum_page.py::test_the_page_tells_what_is_said_to_every_exhibit",
    ("docs/reproducing.md", "id"): "tests/docs/test_figures.py::test_the_list_of_results_is_the_programs",
    ("docs/rooms/loading.md", "pace"): "tests/loading/test_pace.py::test_a_latency_of_5_ms_becomes_40",
    ("docs/rooms/loading.md", "surface"): "tests/loading/test_tuning.py::test_replay_of_measured_surfaces",
    (
        "docs/rooms/loading.md",
        "figure",
    ): "tests/loading/test_published.py::test_the_law_fitted_on_one_row_explains_the_others",
    ("docs/rooms/serving-llm.md", ""): "tests/serving/test_llm_medians.py::"
    "test_points_left_out_are_told_from_their_neighbours",
    ("docs/composition.md", ""): "tests/docs/test_figures.py::test_the_composed_figures_come_out",
}


#: tables whose numbers define something and report nothing
DEFINING: Final = {
    ("docs/rooms/cluster.md", "name"),
    ("docs/rooms/energy.md", ""),  # the switches of the two modes
    ("docs/rooms/serving.md", "option"),
    ("docs/rooms/serving.md", "tuner"),
    ("docs/rooms/serving-llm.md", "key"),
    ("docs/rooms/spot.md", "format"),
    ("docs/rooms/spot.md", "policy"),
    ("docs/composition.md", "profile"),
    ("docs/rooms/loading.md", "tuner"),
    ("docs/rooms/loading.md", "option"),
    ("docs/studies.md", "room"),
}


#: tables of a single measurement, which nobody can make again to the digit; its command stands beside the table
SINGLE: Final = {
    ("docs/rooms/serving.md", "load of the busiest stage"),
    ("docs/rooms/spot.md", "seconds"),
}


@dataclass(frozen=True)
class TableRow:
    """A row of a table in a document: its header's first cell, and its cells."""

    head: str
    cells: Sequence[str]
    line: str


def table_rows(text: str) -> Iterator[TableRow]:
    """Every body row of every table outside code blocks."""
    head: str | None = None
    lines = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
    for at, line in enumerate(lines):
        if not line.startswith("|"):
            head = None
        elif head is None and at + 1 < len(lines) and re.match(r"^\|[-:| ]+\|$", lines[at + 1]):
            head = _cells(line)[0]
        elif head is not None and not re.match(r"^\|[-:| ]+\|$", line):
            yield TableRow(head, _cells(line), line)


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


if __name__ == "__main__":
    for name in sorted({claim.document for claim in claims()}):
        before = (ROOT / name).read_text(encoding="utf-8")
        after = renewed(name, before)
        if after != before:
            (ROOT / name).write_text(after, encoding="utf-8")
            print(f"renewed: {name}")
