"""Writes docs/benchmarks.md and docs/coverage.md from the records in benchmarks/results.

    python -m benchmarks.page

`python -m benchmarks --keep` does the same after it has renewed records. A test compares the page with the records.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = Path(__file__).parent / "results"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
COVERAGE_PAGE: Final = ROOT / "docs" / "coverage.md"

HEAD: Final = """\
# Benchmarks

This page is generated from the records in `benchmarks/results`; do not edit it. `make bench ARGS=--keep` measures the main
benchmarks again and writes the page; `python -m benchmarks.page` only writes it. The last table names the script, date and
machine of every record. Ratios compare two programs in one run, on a machine that other programs also use. Another
processor gives other ratios.
"""


def record(name: str) -> dict[str, Any]:
    """A record: command, date, machine, figures."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def rounded(value: float, digits: int = 2) -> str:
    """A number to so many significant digits, without an exponent."""
    if not value:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, places):,.{max(0, places)}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose last column holds numbers."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * (len(head) - 1)}---:|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def speed() -> Iterator[tuple[str, str, str]]:
    """(what, compared with, how many times as fast)."""
    worlds = record("serving-bench")["figures"]["worlds"]
    for world, about in (
        ("A", "arrivals and model of the InferLine notebook"),
        ("M", "thirty replicas, six times the load"),
    ):
        ratios = worlds[world]["ratios"]
        for peer, name in (
            ("C++", "hand-written C++"),
            ("SimPy", "SimPy"),
            ("port", "a port of the notebook's scheduler"),
            ("port with a cheap comparison", "the same port with a cheaper closeness test"),
        ):
            yield (
                f"serving: queries through four models, {about}",
                name,
                rounded(ratios[f"latencies over {peer}"]),
            )
        for ratio, how in (
            ("full record", "every event recorded"),
            ("slices of 1,000", "in slices of 1,000"),
        ):
            yield (
                f"serving: queries through four models, {about}, {how}",
                "hand-written C++",
                rounded(ratios[f"{ratio} over C++"]),
            )
    plan, llm = record("serving-plan")["figures"], record("serving-llm")["figures"]
    yield (
        f"serving: {plan['settings']} exact cheapest plans, with proof",
        "the greedy minimiser",
        rounded(1 / plan["exact_over_greedy_total"]),
    )
    yield (
        f"serving: an hour of {rounded(llm['requests'])} language-model requests",
        "a reference implementation in Python",
        rounded(llm["over_plain"], 3),
    )
    cluster = record("cluster-bench")["figures"]
    for name, policy in (("Srtf", "SRTF"), ("EdfRigid", "EDF")):
        yield (
            f"cluster: 100,000 jobs on 1,024 GPUs under {policy}",
            "a reference implementation in Python with indexed heaps",
            rounded(cluster[name]["ratio"], 3),
        )
    spot = record("spot-bench")["figures"]
    for rate in ("0.05", "0.25", "0.5"):
        yield (
            f"spot: elastic training, {rate} preemptions a minute",
            "a minimal Python loop over time steps, without logs",
            rounded(spot[f"kernel over lean ticks at {rate}"]),
        )
        yield (
            f"spot: elastic training, {rate} preemptions a minute",
            "the simulator of the Bamboo notebook",
            rounded(spot[f"kernel over the notebook's ticks at {rate}"]),
        )
    for race in record("energy-bench")["figures"]["race"]:
        yield (
            f"energy: attempts of a recurring job, {race['case']}",
            "the public `zeus-ml` simulator",
            rounded(race["compiled_ratio"]),
        )
    loading = {row["name"]: row["value"] for row in record("loading-bench")["figures"]["rows"]}
    yield (
        "loading: events of one sample each",
        "a reference implementation in Python",
        rounded(loading["event model, blocks of 1, times faster than its twin"]),
    )
    for blocks in ("1", "16"):
        yield (
            f"loading: events of a merged block of {blocks}",
            "pushing and popping a tuple in a heap of 64",
            rounded(loading[f"event model, blocks of {blocks}, samples/s over the yardstick"]),
        )
    yield (
        "loading: batches of the closed recursion",
        "pushing and popping a tuple in a heap of 64",
        rounded(loading["recursion, batches/s over the yardstick"]),
    )
    yield (
        "loading: the published experiment",
        "real time",
        rounded(loading["simulated over real time, the published experiment"]),
    )
    for verb in ("pack", "unpack"):
        yield (
            f"loading: {verb}ing a folder of files",
            "copying the files",
            rounded(1 / loading[f"{verb} over copy, wall time"]),
        )
    yield (
        "loading: parsing a merged block",
        "the same samples as a tar archive",
        rounded(loading["parse, times faster than tar"]),
    )


def throughput() -> Iterator[tuple[str, str]]:
    """(what, how much)."""
    queries = record("serving-bench")["figures"]["worlds"]["A"]["queries_per_s"]
    yield "serving: queries a second, latencies only", f"{rounded(queries['latencies'] / 1e6)} million"
    yield (
        "serving: queries a second, every event recorded",
        f"{rounded(queries['full record'] / 1e6)} million",
    )
    memory = record("serving-bench")["figures"]["memory_mb"]
    for kept in ("latencies kept", "streamed"):
        yield (
            f"serving: memory of 10 million queries, {kept}",
            f"{rounded(memory[f'10 M queries, {kept}'])} MB",
        )
    hour = record("serving-llm")["figures"]["hour_s"]
    for what in ("requests", "requests and iterations"):
        for replicas in ("1 replica", "4 replicas"):
            yield (
                f"serving: an hour of language-model requests on {replicas}, {what} recorded",
                f"{rounded(hour[f'{replicas}, {what}'])} s",
            )
    planned = record("serving-llm_plan")["figures"]
    for name, plan in planned["plans"].items():
        yield (
            f"serving: a plan over {planned['cells']:,} cells of an hour of language-model requests, {name} objectives",
            f"{rounded(plan['wall_s'])} s",
        )
    for name, plan in planned["drawn"].items():
        yield (
            f"serving: a plan over 20,000 cells in {plan.get('traces', 32)} models and traffics, {name} objectives"
            f"{'' if plan['feasible'] else ', which nothing keeps'}, processor time",
            f"{rounded(plan['processor_s'])} s",
        )
    cluster = record("cluster-bench")["figures"]
    yield (
        "cluster: jobs a second under SRTF",
        f"{rounded(cluster['Srtf']['compiled_jobs_per_s'] / 1e6)} million",
    )
    python = cluster["python_policy"]["jobs_per_s"]
    yield "cluster: jobs a second, a Python policy in rounds of 60 s", f"{rounded(python / 1e3)} thousand"
    yield "cluster: memory of a million jobs", f"{rounded(cluster['memory_mb'])} MB"
    logs = record("cluster-log_memory")["figures"]
    for format, one in logs["formats"].items():
        yield (
            f"cluster: memory of reading a log of {logs['jobs']:,} jobs, `{format}`, at most {logs['most_mb']:,.0f} MB",
            f"{rounded(one['mb'])} MB",
        )
    for size in (cluster["growth"][0], cluster["growth"][-1]):
        yield (
            f"cluster: an event in a trace of {size['jobs']:,} jobs, at most {size['most_waiting']:,} waiting",
            f"{rounded(size['event_us'])} us",
        )
    for figure, wall_s in record("cluster-figures")["figures"]["wall_s"].items():
        name, _, draws = figure.partition(", ")
        what = f"`forerun reproduce ef-{name}`" + (f", {draws}" if draws else "")
        yield f"cluster: {what}, wall time on two cores", f"{rounded(wall_s)} s"
    spot = record("spot-bench")["figures"]
    yield (
        "spot: one history at 0.25 preemptions a minute",
        f"{rounded(spot['kernel microseconds a trial at 0.25'])} us",
    )
    for trials, peak in record("spot-memory")["figures"].items():
        yield f"spot: memory of {int(trials.split()[2]):,} trials", f"{rounded(peak)} MiB"
    reserved = record("spot-reserved")["figures"]
    for what, more in (
        ("", ""),
        (", failures that cause others and tiers of checkpoints", ", Hawkes and tiers"),
    ):
        yield (
            f"spot: processor time of 200 trials of 54 days on 12,500 reserved nodes{what}",
            f"{rounded(reserved[f'CPU s of 200 trials, 12500 nodes{more}'])} s",
        )
    yield (
        "spot: memory of a reserved cluster of 100,000 nodes",
        f"{rounded(reserved['MB of 100000 nodes'])} MB",
    )
    yield (
        "spot: 20,000 trials of 355 minutes at 2 preemptions a minute",
        (f"{rounded(spot['CPU seconds of 20000 trials at 2.0'])} s"),
    )
    energy = record("energy-bench")["figures"]
    for mode in ("compat", "corrected", "joint"):
        yield (
            f"energy: 1,000 seeds of 100 recurrences, {mode}",
            f"{rounded(energy['marks'][f'1,000 seeds x 100 recurrences, {mode}, s'])} s",
        )
    loading = {row["name"]: row["value"] for row in record("loading-bench")["figures"]["rows"]}
    yield (
        "loading: samples a second of the event model, blocks of 1",
        rounded(loading["event model, blocks of 1, samples/s"]),
    )
    for case in ("single files", "blocks of 64, 8 threads"):
        overhead_ms = loading[f"own loader's overhead, ms a sample, {case}"]
        yield f"loading: overhead of our loader a sample, {case}", f"{rounded(overhead_ms * 1e3)} us"
    for one in of_the_reader("local"):
        threads = f"{one['threads']} thread{'s' * (one['threads'] != 1)}"
        case = f"local blocks of {one['block_samples']}, {threads}"
        for name, time in (("cpu_overhead", "processor time"), ("overhead", "wall time")):
            yield (
                f"loading: {time} of `BlockDataset` over a plain loop's, {case}",
                f"{100 * one[name]:+.1f} %",
            )
    starts, controller = record("live-starts")["figures"], record("live-controller")["figures"]
    for program in ("numpy", "torch"):
        for way, text in (("warm_s", "warm"), ("cold_s", "cold")):
            yield (
                f"live: from the command to the first step of {starts['ranks']} ranks, {program}, {text}",
                f"{rounded(statistics.median(starts[program][way]))} s",
            )
    decided = controller["decisions"]
    about = f"live: a decision on {decided['slots']:,} slots with 200 to {decided['most_active_jobs']} active jobs"
    yield f"{about}, median", f"{rounded(decided['median_s'])} s"
    yield f"{about}, longest", f"{rounded(decided['most_s'])} s"
    yield (
        "live: recovery from a journal of 10,000 observations",
        f"{rounded(controller['recovery']['of_10000_s'])} s",
    )
    share = controller["share"]
    yield (
        f"live: the controller's share of a core at {share['slots']} slots",
        f"{rounded(share['core_percent'])} %",
    )
    cells = record("study-bench")["figures"]
    for workers in ("1", "2"):
        overhead = cells[f"workers_{workers}"]["overhead_ms"]
        noun = "worker" if workers == "1" else "workers"
        yield (
            f"studies: processor time of a cell beyond its simulation, {workers} {noun}",
            f"{rounded(overhead)} ms",
        )
    for size, peak in cells["peak_mb"].items():
        yield f"studies: peak memory, {size}", f"{rounded(peak)} MB"
    yield f"studies: reading and drawing {cells['cells']:,} cells", f"{rounded(cells['report_s'])} s"


def backfilling() -> Iterator[tuple[str, ...]]:
    """(policy, order, jobs waiting, jobs a second of processor time, seconds of 100,000 jobs, bar)."""
    named = [
        case | {"order": "multifactor", "named": True}
        for case in record("cluster-named_nodes")["figures"]["cases"]
    ]
    for case in [*record("cluster-backfill")["figures"]["cases"], *named]:
        missed = "" if case["cpu_s"] / case["jobs"] * 1e5 <= case["bar_s"] else " *"
        yield (
            f"`{case['policy']}`"
            + (", limits" * case.get("limits", 0))
            + (", named nodes" * case.get("named", 0)),
            f"`{case['order']}`",
            f"{case['waiting']:,.0f}",
            f"{rounded(case['jobs'] / case['cpu_s'] / 1e3)} thousand",
            f"{rounded(case['cpu_s'] / case['jobs'] * 1e5)}{missed}",
            f"{case['bar_s']:g}",
        )


def bounds() -> Iterator[tuple[str, ...]]:
    """(cluster, jobs, reached, bound, gap, processor seconds of the search and of the verification)."""
    for name, case in record("cluster-bounds")["figures"]["cases"].items():
        yield (
            name,
            f"{case['jobs']:,}",
            f"{case['reached']:,.0f}",
            f"{case['bound']:,.0f}",
            f"{100 * case['gap']:.1f} %",
            rounded(case["search_s"]),
            rounded(case["verifying_s"]),
        )


def allocators() -> Iterator[tuple[str, ...]]:
    """(trace, schedule, deadlines met and mean completion of it, and of the allocator of the same paper)."""
    for row in record("cluster-allocators")["figures"]["rows"]:
        both = (row["published"], row["view"])
        refused = [f" ({one['refused']:,} refused)" if one["refused"] else "" for one in both]
        yield (
            row["trace"],
            f"`{row['schedule']}`",
            f"{both[0]['met']:,} of {both[0]['deadlines']:,}{refused[0]}",
            f"{both[0]['jct_mean_s']:,.0f}",
            f"`{row['allocator']}`",
            f"{both[1]['met']:,}{refused[1]}",
            f"{both[1]['jct_mean_s']:,.0f}",
        )


def allocators_text() -> str:
    """Why allocators differ from the schedules of the same papers, and the table."""
    asides = record("cluster-allocators")["figures"]["asides"]
    head = ("trace", "schedule", "deadlines met", "mean JCT, s", "allocator", "met", "mean JCT, s")
    return f"""\
Schedules run corrected, and a change of GPUs takes two seconds on both sides. Why the columns differ: schedules act at the
ends of slots, allocators at once. In slots of 1 s `edf-accessctrl` meets {asides["short slots"]["met"]} deadlines of figure 6(b), nearly as many as
`edf-admission`, which has no admitted job late. `dlas-gpu` parts its queues by the jobs that have ended; `tiresias` has
fixed limits, here the default of 3,250 and 7,200 GPU-seconds, which are low for the jobs of Philly (with 10,000 and 100,000
it meets {asides["high limits"]["met"]}). `gandiva` lends whole nodes to jobs of one size; `gandiva-turns` shares all GPUs. `themis` orders jobs anew
in each slot by slowdown alone; the auction of `themis-auction` favours short jobs.

""" + table(head, allocators())  # noqa: E501


def waits() -> Iterator[tuple[str, ...]]:
    """(answers, how many, coverage of the four intervals, losses of the answers, of class histories and of bounds)."""
    figures = record("cluster-wait_time")["figures"]
    for part in (*figures["coverage"], *figures["fortnights"]):
        yield (
            part["part"],
            f"{part['answers']:,}",
            *(f"{100 * part[f'within {promised}']:.0f} %" for promised in ("50%", "80%", "90%", "95%")),
            *(f"{part[name]:.3f}" for name in ("loss", "class history", "bounds")),
        )


def waits_measured() -> Iterator[tuple[str, str]]:
    """(measured, value) of forecasts of waits, besides the rows of `waits`."""
    figures = record("cluster-wait_time")["figures"]
    difference, low, high = figures["difference"]
    yield "loss of the answers over that of the best class history", f"{figures['ratio']:.2f}"
    yield "difference of the two (95 % interval)", f"{difference:.3f} ({low:.3f} to {high:.3f})"
    yield "jobs asked about", f"{figures['jobs asked about']:,}"
    yield "without an answer, as too few had started before", f"{figures['without an answer']:,}"
    yield "an answer with 100 draws, processor time", f"{rounded(figures['answer_s'])} s"
    yield (
        "with the former questions that it is judged by",
        f"{rounded(figures['answer_with_former_questions_s'])} s",
    )
    yield "the back-test", f"{rounded(figures['back_test_s'])} s"


def waits_text() -> str:
    """How forecasts of waits did on a real log, and what they cost."""
    figures = record("cluster-wait_time")["figures"]
    return (
        "`forerun wait-time backtest` on five months of Theta (ALCF), its large jobs: how often intervals contained\n"
        "the start, and the mean pinball loss on the scale log10(wait + a minute), beside the best class history, chosen\n"
        "afterwards, and bounds as QBETS makes them.\n\n"
        + table(
            (
                "answers",
                "how many",
                "in 50 %",
                "in 80 %",
                "in 90 %",
                "in 95 %",
                "loss",
                "class history",
                "bounds",
            ),
            waits(),
        )
        + "\n"
        + table(("measured", f"value; class history: {figures['best'].partition(',')[0]}"), waits_measured())
    )


def replays() -> Iterator[tuple[str, ...]]:
    """(log, part, jobs, policy, mean wait, refused, error of the mean wait, of its worst class) of replays out of time."""
    for one in record("cluster-replay")["figures"]["parts"]:
        log = one["log"] + ("" if one["kind"] == "real logs" else one["kind"].replace("drawn sites", ""))
        wait, errors = rounded(one["recorded_h"]), (f"{one[name]:+.0%}" for name in ("off", "worst"))
        star = "" if one["near"] else " *"
        off, worst = errors
        yield (
            log,
            one["part"],
            str(one["jobs"]),
            one["policy"],
            wait,
            one["refused"] or "–",
            off,
            f"{worst}{star}",
        )


def replays_text() -> str:
    """Replays out of time, by kind of log, then every part."""
    parts = record("cluster-replay")["figures"]["parts"]
    lines = []
    for kind in dict.fromkeys(one["kind"] for one in parts):
        mine = [one for one in parts if one["kind"] == kind]
        answered = [one for one in mine if not one["refused"]]
        refused = [one for one in mine if one["refused"]]
        near = [sum(one["near"] for one in some) for some in (answered, refused)]
        off = [
            rounded(statistics.median(abs(one["off"]) for one in some)) if some else "–"
            for some in (answered, refused)
        ]
        lines.append(
            (
                kind,
                str(len(mine)),
                str(len(answered)),
                f"{near[0]} of {len(answered)}",
                f"{near[1]} of {len(refused)}",
                *off,
            )
        )
    return (
        "`forerun replay backtest` on every part of every log, none chosen: months of real ones, fortnights of drawn\n"
        "sites. Machine, policy and refusal are known from before a part; refused ones are scored, too. \\* is beyond the\n"
        "limits: 10 % of the mean wait, 30 % of its worst class.\n\n"
        + table(
            (
                "logs",
                "parts",
                "answered",
                "of these within",
                "of refused within",
                "answered off by",
                "refused off by",
            ),
            lines,
        )
        + "\n"
        + table(("log", "part", "jobs", "policy", "mean wait, h", "refused", "off", "worst class"), replays())
    )


def first_runs() -> Iterator[tuple[str, str, str]]:
    """(command, first time, later), in seconds of processor time: the first run compiles the kernels."""
    start = record("cli-start")["figures"]
    for name in ("cluster", "serving", "spot", "loading", "energy"):
        yield (
            f"`forerun demo {name}`",
            *(rounded(start[f"{name}, {when}"]["cpu_s"]) for when in ("first", "again")),
        )
    yield "`forerun demo`", *(rounded(start[f"all, {when}"]["cpu_s"]) for when in ("first", "again"))


def worst(rows: Iterable[Mapping[str, float]], name: str) -> str:
    """The largest error of some runs, in percent."""
    return f"{rounded(100 * max(abs(row[name]) for row in rows))} %"


def methods() -> Iterator[tuple[str, str]]:
    """(what is compared, value): policies, tuners and intervals, as the reference pages discuss them."""
    for schedule, switches in record("cluster-switches")["figures"].items():
        if "all" in switches:
            pairs = [
                " to ".join(str(switches[mode][world]["accepted"]) for mode in ("published", "all"))
                for world in (0, 1)
            ]
            what = "jobs accepted of 195, as published to corrected, on 128 A100; on 64 T4"
            yield f"cluster: `{schedule}`, {what}", "; ".join(pairs)
    tuning = record("serving-tuning")["figures"]
    for tuner, one in tuning["tuners"].items():
        what = f"objective met, of {tuning['steps']} steps of load; cost over that of one who knows the step"
        yield f"serving: tuner `{tuner}`, {what}", f"{one['kept']}; {one['mean_cost']:.2f}"
    for rate, one in record("spot-zones")["figures"]["rates"].items():
        what = f"a fleet with a deadline, {rate} removals per node-hour, with `by_goodput`; without"
        yield f"spot: {what}", f"${one['with_usd']:,.0f}; ${one['without_usd']:,.0f}"
    drawn = record("energy-drawn")["figures"]
    what = f"cost of `joint` over `pruning-gts`, {drawn['settings']} drawn settings, mean; worst"
    yield f"energy: {what}", f"{drawn['mean_ratio']:.3f}; {drawn['worst_ratio']:.3f}"
    for policy, excess in record("energy-drift")["figures"]["excess"].items():
        what = f"excess cost of `{policy}` after five changes over the new optimum, mean; worst"
        yield f"energy: {what}", f"{statistics.mean(excess):.3f}; {max(excess):.3f}"
    for row in record("loading-head_to_head")["figures"]["rows"]:
        what = f"blocks of {row['block']}, {row['threads']} threads behind 40 ms: measured; ours; MosaicML's simulator, s"
        yield (
            f"loading: {what}",
            "; ".join(rounded(row[f"{name}_s"], 3) for name in ("measured", "ours", "theirs")),
        )
    for method, one in record("statistics-resample")["figures"]["percent"].items():
        yield f"95 % intervals from resamples of one log, {method}: contain the truth", f"{one['held']:.0f} %"
    for kind, figures in record("statistics-blocks")["figures"]["percent"].items():
        found = "; ".join(f"{one['held']:.0f} %" for one in figures.values())
        what = "mean completion, its 99th percentile, share of deadlines: contain the truth"
        yield f"95 % intervals from blocks of one log, {kind} queue, {what}", found


def of_the_reader(part: str) -> list[dict[str, Any]]:
    """The rows of a part of the record of `BlockDataset`; none until somebody has a quiet machine for it."""
    path = RESULTS / "loading-reader.json"
    return record(path.stem)["figures"][part] if path.exists() else []


def accuracy() -> Iterator[tuple[str, str, str]]:
    """(what ran, predicted figure, largest error)."""
    served = record("serving-reality")["figures"]
    for kind, text in (("sleeping", "replicas sleep"), ("computing", "replicas compute")):
        disturbed = served[kind].get("disturbed")
        text = f"a served pipeline whose {text}" + (
            f"; {disturbed} of {len(served[kind]['rows'])} runs were disturbed by the machine"
            if disturbed
            else ""
        )
        for name in ("p50", "p99"):
            yield text, f"latency, {name.upper()}", worst(served[kind]["rows"], f"{name}_error")
    for one in record("loading-reality")["figures"]["rounds"]:
        text = f"loading from a store {one['latency_ms']:g} ms away, settings that were not probed"
        yield text, "seconds an epoch, the worst setting", f"{rounded(100 * one['worst_error'])} %"
        yield text, "seconds an epoch, mean", f"{rounded(100 * one['mean_error'])} %"
    cached = record("loading-caches")["figures"]["rows"]
    text = (
        "four nodes on a store, without caches and with caches that are shared in three ways, pinned and LRU"
    )
    yield text, "seconds of a warm epoch", worst(cached, "error")
    apart = [abs(one["store_bytes"] - one["predicted_store_bytes"]) / one["whole_bytes"] for one in cached]
    yield text, "bytes from the store, of all bytes", f"{rounded(100 * max(apart))} %"
    for one in of_the_reader("behind_latency"):
        text = f"`BlockDataset` as planned ({one['cell']}), store {one['latency_ms']:g} ms away"
        yield (
            text,
            "share of the planned throughput that is reached",
            f"{100 * one['share_of_predicted']:.1f} %",
        )
    trained = record("spot-reality")["figures"]
    for name, text in (("numpy", "a perceptron"), ("torch", "a transformer")):
        error = abs(trained[name]["steps_over_prediction"])
        yield f"{text} on nodes that are killed", "steps completed in a minute", f"{rounded(100 * error)} %"
    runs = record("live-against_simulation")["figures"]["runs"].values()
    text = f"ten paced jobs with deadlines on eight slots, {len(runs)} runs"
    for name, predicted in (
        ("makespan", "until the last job ends"),
        ("mean_jct", "mean completion time"),
        ("worst_jct", "completion time, the worst job"),
    ):
        yield text, predicted, worst((run["forecast"] for run in runs), name)


#: figures of a language model's server, and their headings
SERVED: Final = {
    "ttft_mean_ms": "time to first token, mean",
    "ttft_p99_ms": "its P99",
    "tpot_mean_ms": "time per token, mean",
    "e2e_mean_ms": "whole, mean",
    "e2e_p99_ms": "its P99",
    "throughput_rps": "throughput",
}


def language_models() -> Iterator[tuple[str, ...]]:
    """(model, load, error of each figure in percent; a star where it misses its bar)."""
    figures = record("serving-accuracy")["figures"]
    for one in figures["rates"]:
        errors = (one["errors"].get(name) for name in SERVED)
        stars = ("*" if name in one["over"] else "" for name in SERVED)
        shown = (
            f"{100 * error:+.1f}{star}" if error is not None else "" for error, star in zip(errors, stars)
        )
        yield one["model"], f"`{one['experiment']}`", *shown
    medians, bars = figures["medians"], figures["bars"]
    yield "all", "median of sizes", *(f"{100 * medians[name]:.1f}" for name in SERVED)
    yield "", "bar", *(f"{100 * bars[name]:g}" for name in SERVED)


def checks() -> Iterator[tuple[str, str]]:
    """(what else was checked, how it came out)."""
    figures = record("serving-accuracy")["figures"]
    covered = figures["coverage"]["rates"]
    yield (
        f"share of {covered['figures']} figures of Qwen3-14B inside intervals for 90 %, made of the other loads' errors",
        f"{100 * covered['share']:.0f} %",
    )
    others = record("serving-models")["figures"]["fitted"]["coverage"]
    yield (
        f"the same of {others['figures']} figures of BLIS's experiments, from the errors of the model's other experiments",
        f"{100 * others['share']:.0f} %",
    )
    others = record("serving-models")["figures"]["built"]["coverage"]
    yield (
        f"the same of {others['figures']} figures of dense models built from kernels, from the errors of other models",
        f"{100 * others['share']:.0f} %",
    )
    promised = record("serving-promises")["figures"]["pooled"]
    yield (
        f"share of {promised['promises']} promises of plans at 90 %, made from half of a server's experiments, that hold on "
        f"{promised['experiments']} others ({100 * promised['low']:.0f} to {100 * promised['high']:.0f} %)",
        f"{100 * promised['holds']:.1f} %",
    )
    built = record("serving-models")["figures"]["built"]["overhead"]
    yield (
        "what servers take beyond kernels, fitted to all families: times the kernels",
        f"{built['scale']:.3f}",
    )
    for name, text in (
        ("prompt_scale", "times those of prompts"),
        ("layer_ms", "ms of every layer"),
        ("piece_ms", "ms beside it where layers are recorded in pieces"),
        ("sample_ns", "ns of every decode and token that exists"),
        ("sort_ns", "ns beside it where tokens are sorted"),
        ("message_ms", "ms of every decode where accelerators wait for their host"),
        ("launch_ms", "ms of every layer whose kernels are launched one by one"),
        ("client_ms", "ms of every request between client and queue"),
    ):
        yield f"the same: {text}", rounded(built[name], 3)
    for one in figures["steps"]:
        run = f"iterations of `{one['run']}`, {one['iterations']:,}"
        yield (
            f"{run}: mean error from others of the run at random (bar 1.5 %)",
            f"{100 * one['within']:.2f} %",
        )
        yield f"{run}: mean error from its lighter half (bar 3 %)", f"{100 * one['across']:.2f} %"


#: figures of a server that was not fitted to under this load, and their headings
PREDICTED: Final = {
    "ttft_mean_ms": "first token, mean",
    "ttft_p90_ms": "its P90",
    "ttft_p99_ms": "its P99",
    "tpot_mean_ms": "time per token",
    "e2e_mean_ms": "whole, mean",
    "e2e_p90_ms": "its P90",
    "e2e_p99_ms": "its P99",
}
#: how kinds of models are called
KINDS: Final = {
    "dense": "dense, 16 bits",
    "experts": "with experts, 16 bits",
    "8 bits": "with experts, 8 bits",
    "sweep": "Qwen3-14B, prompts processed, the loads above",
}


def predicted_rows(part: str) -> Iterator[tuple[str, ...]]:
    """(model, experiment, requests under way, error of each figure in percent; a star where it misses its bar)."""
    found = record("serving-models")["figures"]
    for one in found[part]["rows"]:
        shown = []
        for name in PREDICTED:
            error = one["errors"].get(name)
            near = "saturating" if name in one["saturating"] else ""
            shown.append(near if error is None else f"{100 * error:+.1f}{'*' if name in one['over'] else ''}")
        yield one["model"], f"`{one['experiment']}`", f"{one['in_flight']:.0f}", *shown


def predicted_errors() -> Iterator[tuple[str, ...]]:
    """(how it was predicted, kind of model, experiments, median and mean errors in percent)."""
    found = record("serving-models")["figures"]
    for part, text in (
        ("fitted", "costs fitted to other workloads"),
        ("built", "costs from kernels, other models"),
    ):
        for kind, errors in found[part]["errors"].items():
            own = [row for row in found[part]["rows"] if row["kind"] == kind]
            counted = sum("e2e_mean_ms" in row["errors"] for row in own)
            shown = (
                f"{100 * errors[name]['median']:.1f} / {100 * errors[name]['mean']:.1f}" for name in PREDICTED
            )
            yield text, KINDS[kind], f"{counted} of {len(own)}", *shown


def changes() -> Iterator[tuple[str, ...]]:
    """(change, predicted from, rates before and after it, and the change in percent; a star where it misses its bar; its
    interval)."""
    for one in record("serving-settings")["figures"]["rows"]:
        shown = [f"{one[key][1]:.0f} ({one[key][0]:.0f})" for key in ("before_rps", "after_rps")]
        measured, own = one["change_percent"]
        low, high = one.get("interval_percent", (None, None))
        sure = "" if low is None else f"{low:+.0f} to {high:+.0f}"
        yield (
            one["change"],
            one["from"],
            *shown,
            f"{own:+.0f} ({measured:+.0f}){'' if one['kept'] else '*'}",
            sure,
        )
    yield "bar", "", "", "", f"{record('serving-settings')['figures']['bar_points']:g}", ""


def pools() -> Iterator[tuple[str, ...]]:
    """(servers; times to the first token and between tokens, and long gaps, ms: as called, all alike, measured)."""
    for one in record("serving-settings")["figures"]["apart"]:
        shown = [
            f"{one[key][1]:.0f} / {one[key][2]:.0f} ({one[key][0]:.0f})"
            for key in ("ttft_mean_ms", "tpot_mean_ms", "itl_p99_ms")
        ]
        yield f"`{one['servers']}`, {one['card']}", *shown


def simulators() -> Iterator[tuple[str, ...]]:
    """(simulator, experiments, mean errors in percent: ours as measured, others' as published)."""
    found = record("serving-models")["figures"]
    for part, text in (
        ("built", "forerun, dense models that it has not measured"),
        ("fitted", "forerun, workloads that it has not measured, dense models"),
    ):
        errors = found[part]["errors"]["dense"]
        count = sum(row["kind"] == "dense" and "e2e_mean_ms" in row["errors"] for row in found[part]["rows"])
        means = (
            f"{100 * errors[name]['mean']:.1f}" for name in ("ttft_mean_ms", "tpot_mean_ms", "e2e_mean_ms")
        )
        yield text, f"{count}", *means, f"{100 * errors['e2e_mean_ms']['median']:.1f}"
    peers = json.loads((Path(__file__).parent / "serving" / "peers.json").read_text(encoding="utf-8"))
    for one in peers["peers"]:
        errors = (f"{one[name]:g}" for name in ("ttft", "itl", "e2e", "e2e_median"))
        yield one["name"], f"{one['experiments']}", *errors


#: times of an engine that ran beside its simulation, and their headings
BESIDE: Final = {
    "ttft_p50": "first token, P50",
    "ttft_p99": "its P99",
    "itl_p50": "between tokens, P50",
    "itl_p99": "its P99",
}


def beside() -> Iterator[tuple[str, ...]]:
    """(load, requests, measured time and error of each figure; a star where it misses its bar)."""
    for one in record("serving-truth")["figures"]["rows"]:
        shown = {each["figure"]: each for each in one["figures"]}
        cells = []
        for name in BESIDE:
            each, star = shown[name], "*" if name in one["over"] else ""
            off = "saturating"
            if not each["saturating"]:
                low, high = 100 * each["error_low"], 100 * each["error_high"]
                off = f"{100 * each['error']:+.1f}{star} ({low:+.1f} to {high:+.1f})"
            cells.append(f"{rounded(each['measured_ms'], 3)}: {off}")
        yield f"{one['load']:g}", f"{one['requests']}", *cells
    found = record("serving-truth")["figures"]
    yield "bar", "", *(f"{100 * found['bars'][name]:g}" for name in BESIDE)
    shift = (f"{100 * found['machine_changed'][name]:+.1f}" for name in ("ttft", "itl"))
    yield "the machine", "", *(cell for one in shift for cell in (one, ""))


def beside_text() -> str:
    """An engine that ran, beside its simulation; empty while that has not been measured."""
    if not (RESULTS / "serving-truth.json").is_file():
        return ""
    client = record("serving-truth")["figures"]["client"]
    return (
        "\nAn engine that ran for it: llama.cpp's server on one core with a small model of random weights. Loads, sent\n"
        f"by {client}, are shares of what it carries. Costs are fitted to a load with a limit of\n"
        "requests under way and to others of other rates and lengths. Each cell: measured ms, the error of the\n"
        "prediction in percent,\n"
        "and its interval; the last row says by how much the medians of one light load changed from beginning to end,\n"
        "which no prediction knows:\n\n" + table(("load", "requests", *BESIDE.values()), beside())
    )


def language_model_text() -> str:
    """The section on servers of language models."""
    headings = ("model", "experiment", "under way", *PREDICTED.values())
    return (
        "Public measurements of others, each load of one model predicted by costs that `forerun fit` finds from its other\n"
        "loads alone (real prompts, up to past saturation, where the throughput is judged). Errors in percent; a star\n"
        "marks what misses its bar.\n\n"
        + table(("model", "load", *SERVED.values()), language_models())
        + "\n"
        + table(("checked", "value"), checks())
        + beside_text()
        + "\nServers of many models with one kind of traffic (BLIS's experiments: vLLM on H100, prompts nearly all in the\n"
        "prefix cache, constant rates), below saturation; those whose rate is not public are left out. Answers are taken\n"
        "to be as long as they were asked for, because the client counts tokens of their text. Median and mean errors in\n"
        "percent. Figures that the prediction calls saturating do not count; the third column says in how many experiments\n"
        "the whole time counts.\n\n"
        + table(("predicted from", "models", "experiments", *PREDICTED.values()), predicted_errors())
        + "\nBeside what simulators report of the same project's servers, mean errors in percent, from the error tables of\n"
        "`inference-sim/sim-to-real-accuracy-validation` on GitHub. They cover other experiments, too, and predict servers\n"
        "that were not measured: compare them with the first row. The second row is fitted to other workloads of the same\n"
        "server.\n\n"
        + table(
            ("simulator", "experiments", "first token", "time per token", "whole", "whole, median"),
            simulators(),
        )
        + "\nWhat prefix caching with chunked prefill is worth to a server whose prompts begin alike, and what drafts by\n"
        "EAGLE-3 cost it (`Llama-3.1-8B-Instruct` on one H100, `kubernetes-sigs/inference-perf` on GitHub): the highest\n"
        "rate before and after, predicted (measured), requests a second and percent, with an interval from what the runs\n"
        "before the change, and kernels for the draft, leave unsure of the costs. Kernels are corrected by these runs\n"
        "alone, and the change is over what was measured before it. The client sends a hundred prompts over and over; the\n"
        "share of right drafts is read from pieces of the stream per token of the changed server, and is low because the\n"
        "prompts are random text. A star marks what misses by more than its bar, in percentage points:\n\n"
        + table(("changed", "predicted from", "before", "after", "change", "interval"), changes())
        + "\nPrefill and decode apart, or by the same replicas (`llm-d/llm-d-benchmark` on GitHub, prompts of thousands of\n"
        "tokens), from kernels alone, times in ms: predicted as the servers are called / as if each did both (measured).\n"
        "Apart gained nothing there, and the longest gaps say why: a server that decodes alone has none as long as a\n"
        "prompt, but the servers called apart have the same as those that do both. So prompts were processed where answers\n"
        "were decoded, and the second prediction is the one to compare. `forerun plan` takes replicas that do both where\n"
        "pools apart cost the same, and says what a plan of pools rests on:\n\n"
        + table(("servers", "time to first token", "time per token", "gap, P99"), pools())
        + "\nEach workload from costs fitted to the other workloads of that server. A star marks what misses its bar;\n"
        "*saturating* marks what slightly longer iterations change by half. The slowest first tokens belong to prompts\n"
        "that are not cached yet:\n\n"
        + table(headings, predicted_rows("fitted"))
        + "\nEach of these models from its configuration and AIConfigurator's tables of kernels; what a server takes\n"
        "beyond kernels is fitted to other families:\n\n"
        + table(headings, predicted_rows("built"))
        + "\nTime per output token of families that the law of servers has not seen, as closed loops of their clients\n"
        "with the programs' defaults (`ai-dynamo/aiconfigurator` on GitHub). Mean absolute errors in percent, beside\n"
        "those of a constant and of a line in logarithms that are fitted within the family, and errors where the first\n"
        "token took over 10 s. Qwen3 in 8 bits is taken to be Qwen's checkpoint, with a scale a block, because the\n"
        "publisher's guide deploys that one; with a scale a tensor, as a column of the rows says, its error was 11.8. A\n"
        "star marks what misses its bar. [Coverage](coverage.md) has the intervals:\n\n"
        + table(("family", "rows", "tables", "bias", "a constant", "a line", "queued", "error"), silicon())
    )


def silicon() -> Iterator[tuple[str, ...]]:
    """(family, rows, tables, bias, errors of a constant and of a line within the family, of queued rows, of all others)."""
    figures = record("serving-silicon")["figures"]
    for one in figures["families"]:
        star = "*" if one["error"] > figures["bar"] else ""
        yield (
            one["family"],
            str(one["rows"]),
            ", ".join(one["tables"]),
            f"{100 * one['bias']:+.1f}",
            f"{100 * one['constant']:.1f}",
            f"{100 * one['line']:.1f}",
            ", ".join(f"{100 * error:+.0f}" for error in one["queued"]),
            f"{100 * one['error']:.1f}{star}",
        )


#: shares that intervals should contain, as records name them
LEVELS: Final = ("0.5", "0.8", "0.9", "0.95")


def coverage_of_families() -> Iterator[tuple[str, ...]]:
    """(family, figures, share inside in percent and width, by level)."""
    figures = record("serving-families")["figures"]
    whole = figures["pooled"]
    rows = [*figures["families"].items(), (f"all {len(figures['families'])}", whole)]
    for name, row in rows:
        count = row["figures"] if "figures" in row else whole[LEVELS[0]]["figures"]
        shown = (f"{100 * row[level]['inside']:.0f} ({row[level]['width']:.2f})" for level in LEVELS)
        yield name, str(count), *shown
    # Intervals are made so that each family counts alike, the row of all so that each figure does.
    families = figures["families"].values()
    means = (
        " ".join(
            (
                f"{100 * statistics.mean(one['inside'] for one in own):.0f}",
                f"({statistics.mean(one['width'] for one in own):.2f})",
            )
        )
        for own in ([row[level] for row in families if level in row] for level in LEVELS)
    )
    yield "mean of families", "", *means


def shares_and_widths(row: Mapping[str, Any]) -> Iterator[str]:
    """Share inside in percent and width by level; not 95 %, for which there are too few groups."""
    for level in LEVELS[:-1]:
        yield f"{100 * row[level]['inside']:.0f} ({row[level]['width']:.2f})"


def coverage_of_waits() -> Iterator[tuple[str, ...]]:
    """(log, answers, share inside in percent and width by level, loss over that of the best class history)."""
    for one in record("cluster-wait_time")["figures"]["logs"]:
        if "refused" in one:
            yield one["log"], "0", *("–" for _ in LEVELS[:-1]), "–"
            continue
        whole = one["parts"][0]
        percents = (f"{100 * float(level):.0f}%" for level in LEVELS[:-1])
        shown = (
            f"{100 * whole[f'within {each}']:.0f} ({whole[f'width at {each}']:.2f})" for each in percents
        )
        star = " *" if one["kind"] == "chosen on" else ""
        yield f"{one['log']}{star}", f"{whole['answers']:,}", *shown, f"{one['ratio']:.2f}"


def coverage_of_loading() -> Iterator[tuple[str, ...]]:
    """(store, runs, share inside in percent and width by level, mean and worst error in percent)."""
    figures = record("loading-intervals")["figures"]
    rows = figures["stores"] | {"all without a star": figures["others"]}
    for name, row in rows.items():
        errors = (f"{100 * row[what]:.1f}" for what in ("mean_error", "worst_error"))
        star = " *" if row.get("chosen") else ""
        yield f"{name}{star}", str(row["runs"]), *shares_and_widths(row), *errors


def coverage_of_logs() -> Iterator[tuple[str, ...]]:
    """(setting, predictions, share inside in percent and width by level, mean and worst error in percent)."""
    for name, row in record("loading-laws")["figures"]["logs"].items():
        errors = (f"{100 * row[what]:.1f}" for what in ("mean_error", "worst_error"))
        yield name, str(row["predictions"]), *shares_and_widths(row), *errors


def fed_by_stores() -> str:
    """How many accelerators a link was said to feed over how many it fed, least and most, in words."""
    systems = record("loading-laws")["figures"]["stores"]
    over = sorted(value for row in systems.values() for value in row["over"])
    near = sum(row["over"][0] >= 0.8 and row["over"][-1] <= 1.25 for row in systems.values())
    return (
        f"{over[0]:.2f} to {over[-1]:.2f} times as many as there were ({len(over)} predictions, {len(systems)} systems),\n"
        f"and within 25 % for all pairs of {near} systems."
    )


#: figures of a fleet and a job on it, as the record of spot names them
OF_A_FLEET: Final = {
    "mean_nodes": "nodes, mean",
    "removals": "removals",
    "useful_share": "useful share of the job",
    "steps_completed": "its steps",
}


def coverage_of_fleets() -> Iterator[tuple[str, ...]]:
    """(recording or figure, figures, share inside in percent and width, by level but the last)."""
    figures = record("spot-intervals")["figures"]
    rows = [
        *figures["groups"].items(),
        *((f"all, {words}", figures["figures"][name]) for name, words in OF_A_FLEET.items()),
        (f"all {len(figures['groups'])}", figures["pooled"]),
        ("all, one rate for all trials", figures["known_rates"]),
    ]
    for name, row in rows:
        shown = (f"{100 * row[level]['inside']:.0f} ({row[level]['width']:.2f})" for level in LEVELS[:-1])
        yield name, str(row["figures"]), *shown


def coverage_of_runs() -> Iterator[tuple[str, ...]]:
    """(figure, predicted from, runs, share inside in percent and width, by level but the last)."""
    figures = record("live-intervals")["figures"]
    names = {
        "makespan": "until the last job ends",
        "mean_jct": "mean completion time",
        "worst_jct": "all jobs at once",
    }
    sources = {
        "from_runs_before": "the runs before it",
        "from_another_day": f"{figures['other_day_runs']} quiet runs of {figures['other_day']}",
    }
    for key, source in sources.items():
        for name, words in names.items():
            cells = []
            for level in LEVELS[:-1]:
                one = figures[key][name].get(level)
                cells.append(
                    f"{100 * one['inside']:.0f} of {one['runs']} ({one['width']:.2f})" if one else "too few"
                )
            yield words, source, *cells


def spot_and_live() -> str:
    """Ranges of trials of recorded fleets, and intervals of live runs from earlier ones."""
    fleets, runs = record("spot-intervals")["figures"], record("live-intervals")["figures"]
    scores = [fleets[name]["0.9"]["score"] for name in ("pooled", "known_rates")]
    loads = [load for one in runs["runs"].values() for load in one["load_average"]]
    levels = [f"{100 * float(level):.0f} %" for level in LEVELS[:-1]]
    return (
        "\n## Spot instances\n\n"
        "Public recordings of fleets; a recording is a group. `forerun trace fit spot` sees it up to an instant, and\n"
        "trials say what the eighth that follows brings to the fleet and to a small job on it, four times from the\n"
        "middle on: ranges of single runs, from the table `outcomes` (`python -m benchmarks --keep spot/intervals`).\n"
        "Nothing is fitted to what is judged; the law of the rates was chosen with these recordings in sight. Windows of\n"
        "one recording are not independent; copies of recordings are left out. In brackets the mean width, as a share\n"
        "of the complete fleet, of the removals that the past would bring, of the time, and of the steps of a complete\n"
        f"fleet that stays. The interval score at 90 % is {scores[0]:.2f}, that of one rate for all {scores[1]:.2f}.\n"
        f"{len(fleets['groups'])} groups are too few for 95 %.\n\n"
        + table(("recording", "figures", *levels), coverage_of_fleets())
        + "\n## Live clusters\n\n"
        f"`forerun live forecast`: {len(runs['runs'])} runs of ten paced jobs on eight slots, of different seeds,\n"
        f"one after the other, at loads of {min(loads):g} to {max(loads):g} on two cores\n"
        "(`python -m benchmarks --keep live/intervals`). A run is a group. Each is predicted from those before it,\n"
        "where they are enough, and then from runs of another day, when the machine was quiet. Shares in percent of how\n"
        "many runs, and in brackets the mean width as a share of the forecast.\n\n"
        + table(("figure", "from", *levels), coverage_of_runs())
    )


def coverage_page() -> str:
    """How often intervals contained what was measured, of every domain."""
    whole = record("serving-families")["figures"]["pooled"]["0.9"]
    logs = record("cluster-wait_time")["figures"]["logs"]
    stores = record("loading-intervals")["figures"]["stores"]
    levels = [f"{100 * float(level):.0f} %" for level in LEVELS]
    return (
        "# Coverage of intervals\n\n"
        "This page is generated from the records in `benchmarks/results`; do not edit it. It has how often intervals\n"
        "contained what was measured, in groups that no coefficient was fitted to.\n\n"
        "## Servers of language models\n\n"
        "Costs from kernels. A family shares model, precision, accelerator, program and client. Each is predicted, and its\n"
        "intervals are made, from the others (`python -m benchmarks --keep serving/families`). In brackets the mean width\n"
        "of the logarithm. Coefficients never saw the family; the form of the law and of the intervals, and the servers'\n"
        "defaults, were chosen with these in sight. In one of the last rows each figure counts alike, in the other each\n"
        f"family, as intervals are made. The interval score at 90 % is {whole['score']:.3f}, that of one interval for all\n"
        f"{whole['global']:.3f}.\n\n"
        + table(("family", "figures", *levels), coverage_of_families())
        + "\n## Waits in queues\n\n"
        f"`forerun wait-time backtest` on {len(logs)} logs, each a group (`cluster/wait_time`). The method was chosen on\n"
        "the one with a star, and on drawn sites other than these. In brackets the mean width of log10(wait + a minute),\n"
        "on which 1 is a factor of ten. The last column is the loss over that of the best history of a class of jobs,\n"
        "chosen afterwards for each log. Of the two other real logs every fourth job is asked about. Drawn sites have a\n"
        "reference scheduler with partitions, shares, limits and failures. What Theta's answers were over time is in\n"
        "[benchmarks](benchmarks.md#when-will-my-job-start).\n\n"
        + table(("log", "answers", *levels[:-1], "loss over history's"), coverage_of_waits())
        + "\n## Loading\n\n"
        f"`forerun measure loading` on {len(stores)} stores on one machine, each a group: how long one run of a setting\n"
        "takes that was not probed (`loading/intervals`). In brackets the mean width of the logarithm; the last columns\n"
        "are mean and largest errors of the logarithm in percent. How far settings are off that were not probed was found\n"
        "on older runs of the stores with a star. The model has no slots and no limit of requests, and a shared link shows\n"
        "little where probes read blocks.\n\n"
        + table(("store", "runs", *levels[:-1], "error", "worst"), coverage_of_loading())
        + "\n`forerun trace fit loading` on published runs of one system (CNDLSys): the seconds of a run from the log of\n"
        "another of the same configuration with other steps (`loading/laws`). Groups are data sets, places and merging;\n"
        "three have more than five predictions. Nothing was fitted to them. Runs of a configuration differ by more than\n"
        "rounds of one show, so these intervals are too narrow on ImageNet.\n\n"
        + table(("runs", "predictions", *levels[:-1], "error", "worst"), coverage_of_logs())
        + "\nNo interval: how many accelerators `forerun trace stats loading` says a link feeds. From the bandwidth that\n"
        "one result of MLPerf Storage v1.0 reached, to the same system, workload and hosts with another accelerator:\n"
        + fed_by_stores()
        + "\n`forerun simulate` and `plan` have none for what their model lacks.\n"
        + spot_and_live()
    )


def put_back() -> tuple[str, str, str]:
    """(faults, those that a test names, those of the first forty)."""
    found = record("benchmarks-mutants")["figures"]
    return f"{found['faults']}", f"{found['named']}", f"{found['first_40']}"


def records() -> Iterator[tuple[str, str, str, str, str]]:
    """(record, command, date, machine, load before)."""
    for path in sorted(RESULTS.glob("*.json")):
        one = record(path.stem)
        machine = one["machine"]
        load = one.get("load_average_before")
        yield (
            f"`{path.stem}`",
            ", ".join(f"`{command}`" for command in one["command"].split("; ")),
            one["date"],
            f"{machine['cores']} cores, {machine['processor']}, Python {machine['python']}",
            "–" if load is None else f"{load:g}",
        )


def page() -> str:
    """The whole page."""
    sections = (
        ("Speed against other programs", table(("what", "compared with", "times as fast"), speed())),
        ("Throughput", table(("measured", "value"), throughput())),
        (
            "Bounds",
            "Deadlines of the published traces that a schedule meets, and the most that any can, with the processor time\n"
            "of both and of verifying the proof. Where the two columns differ, the best schedule lies between them.\n\n"
            + table(("cluster", "jobs", "met", "most", "gap", "search, s", "verification, s"), bounds()),
        ),
        ("Published schedules, and allocators of the same papers", allocators_text()),
        ("When will my job start?", waits_text()),
        (
            "Replays of real queues",
            replays_text(),
        ),
        (
            "Backfilling",
            "A hundred thousand jobs on 256 GPUs, with a queue that stays as long: each start is followed by a submission.\n"
            "With limits on what users have running it is scaled up from a tenth as many jobs. On named nodes: 60 days of\n"
            "1,000 nodes in ten partitions, with fair share and limits. Processor time of the whole run; a star marks what\n"
            "misses its bar.\n\n"
            + table(
                ("policy", "order", "jobs waiting", "jobs a second", "processor time, s", "bar, s"),
                backfilling(),
            ),
        ),
        (
            "The first run",
            "The first run in a domain compiles its kernels once and keeps them.\n\n"
            + table(("command", "processor time, first run, s", "later, s"), first_runs()),
        ),
        (
            "Predictions and measurements",
            "`forerun measure` and the scripts below run the real thing on one machine, beside a prediction made from\n"
            "other measurements. Nothing is fitted to the runs that are judged.\n\n"
            + table(("what ran", "predicted", "largest error"), accuracy()),
        ),
        (
            "Policies and methods",
            "What the reference pages compare. Each record says which settings it is about.\n\n"
            + table(("compared", "value"), methods()),
        ),
        ("Servers of language models", language_model_text()),
        (
            "Faults put back",
            "Faults that the project had, one at a time, and whether a test names each; operators and constants that were\n"
            "changed by hand are among them (`benchmarks/mutants.toml`).\n\n"
            + table(("put back", "named by a test", "of the first forty"), [put_back()]),
        ),
        ("Records", table(("record", "script", "date", "on", "load average before"), records())),
    )
    return HEAD + "".join(f"\n## {title}\n\n{text}" for title, text in sections)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    COVERAGE_PAGE.write_text(coverage_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
