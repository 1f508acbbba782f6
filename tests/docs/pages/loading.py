"""The page of the loading domain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from forerun.core.trace.domain_traces import Wanted
from forerun.loading.measure.answers import Job
from forerun.loading.measure.probing import BLOCKS, COLD, FIRST_REQUESTS, PROBE_REQUESTS, PROBE_S, THREADS
from forerun.loading.policies.fixed_blocks import FixedBlocks
from forerun.loading.policies.pace import ByInterval
from forerun.loading.policies.three_probes import ThreeProbes
from forerun.loading.summary.measured import MEAN_ERROR, WORST_ERROR
from forerun.loading.traces import TRACES

from ..claims import RESULTS, Claim, constant, record

PAGE: Final = "docs/domains/loading-reference.md"


def claims() -> Iterator[Claim]:
    yield from _reality()
    yield from _head_to_head()
    yield from _constants()
    yield from _trial()


def load_before(name: str) -> float:
    """The load average before a benchmark whose record is kept."""
    return float(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["load_average_before"])


def _constants() -> Iterator[Claim]:
    recipe, pace = ThreeProbes(), ByInterval()
    yield Claim(
        PAGE,
        "by one {} % slower (`slack`): a cell that only just hides loading is passed over where another has a margin. A "
        "check that is off by more than {} % becomes a fourth probe",
        (100 * recipe.slack, 100 * recipe.tolerance),
    )
    yield Claim(PAGE, "the cell of least memory within {} % of the best", (100 * recipe.margin,))
    yield Claim(PAGE, "stops when three gains running were at most {} %", (100 * FixedBlocks().gain,))
    yield Claim(
        PAGE,
        "held-out cells (`--check`) within {} % in the mean and {} % at most",
        (100 * MEAN_ERROR, 100 * WORST_ERROR),
    )
    yield Claim(PAGE, "a policy is asked each {} batches (`every_batches`)", (pace.every_batches,))
    yield Claim(PAGE, "as the thread law wants with {} % of headroom", (100 * (pace.headroom - 1),))
    assert (FIRST_REQUESTS, PROBE_S) == (8, 4.0), "the page says eight requests and four seconds"
    yield Claim(PAGE, "four seconds (`--probe`) or {} requests each", (PROBE_REQUESTS,))
    yield Claim(PAGE, 'a result says "cold" only below {} %', (100 * COLD,))
    drawn, script = record("loading-drawn"), "benchmarks/loading/drawn.py"
    (least_s, most_s), (slow, fast) = constant(script, "LATENCY_S"), constant(script, "CONN_BYTES_PER_S")
    assert drawn["seeds"] == 2, "the page says two seeds each"
    yield Claim(
        PAGE,
        "On {} drawn stores with two seeds each (latency {} to {} ms, {} MB/s to {} GB/s, some with {} or {} slots, "
        "which the model does not know) it stays within {} % in {} % of the runs, without `slack` in {} %",
        (
            drawn["stores"],
            *(1e3 * least_s, 1e3 * most_s, slow / 1e6, fast / 1e9),
            *constant(script, "SLOTS")[1:],
            100 * constant(script, "BAR"),
            *(100 * drawn[name]["share_within"] for name in ("with slack", "without slack")),
        ),
    )


def _reality() -> Iterator[Claim]:
    page, job = PAGE, Job()
    names = ("reality", "choices", "sharing", "workers")
    averages = [load_before(f"loading-{name}") for name in names]
    for one in (*record("loading-reality")["rounds"], *record("loading-choices")["choices"]):
        averages += [one["load_before"], one["load_after"]]
    yield Claim(page, "beside other work, load averages of {} to {};", (min(averages), max(averages)))
    grid = (BLOCKS[0], BLOCKS[-1], THREADS[0], THREADS[-1])
    reality, tuner = "benchmarks/loading/reality.py", "benchmarks/loading/choices.py"
    (held_out,) = {one["held_out"] for one in record("loading-reality")["rounds"]}
    samples, more = constant(reality, "SAMPLES"), constant(tuner, "SAMPLES")
    yield Claim(
        page,
        "Sleep decode of {} ms, step {} ms, batch {}. `python benchmarks/loading/reality.py`: {} samples a cell, "
        "medians of {} interleaved repeats; the {} cells (blocks of {} to {}, {} to {} threads) that were not "
        "probes; regret of what the model chooses for {} samples;",
        (1e3 * job.decode_s, 1e3 * job.step_s, job.batch, samples, 3, held_out, *grid, samples),
    )
    assert (constant(tuner, "ROUNDS"), constant(tuner, "REPEATS")) == (5, 6), "the page says five and six"
    chosen = record("loading-choices")["choices"]
    assert {each["probes"] for one in chosen for each in one["rounds"]} == {4}, "the page says four probes"
    yield Claim(
        page,
        "five times at each latency (blocks of {} to {}, {} to {} threads, four probes), and runs its choices and "
        "every cell predicted within a tenth of the best six times, interleaved, {} samples each",
        (*grid, more),
    )
    (slow,) = (one for one in chosen if one["latency_ms"] == 40)
    took = {one["cell"]: one["median_s"] for one in slow["cells"]}
    assert more == 2 * samples, "the page says that start-up counts twice"
    yield Claim(
        page,
        "An epoch of {} samples is {} times as long as these runs; in runs of {} samples start-up counts twice. "
        "Without slack {} × {} would be chosen at {} ms, {} % behind",
        (
            20_000,
            20_000 / more,
            samples,
            4,
            8,
            slow["latency_ms"],
            100 * (took["4 x 8"] / min(took.values()) - 1),
        ),
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
    yield Claim(
        page,
        "At {} ms one probe was enough",
        (next(latency for latency, one in rounds.items() if one["probes"] == 1),),
    )
    yield Claim(
        page,
        "Blocks of {} to {} changed what single files take by {} % at most there, with {} threads and more",
        (BLOCKS[1], BLOCKS[-1], 100 * rounds[0.0]["merging_changes"], THREADS[1]),
    )
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
    caches = "benchmarks/loading/caches.py"
    yield Claim(
        page,
        "on a link of {} MB/s that is {} ms away, each",
        (constant(caches, "LINK_BYTES_PER_S") / 1e6, 1e3 * constant(caches, "LATENCY_S")),
    )
    for one in record("loading-caches")["rows"]:
        own = {"no cache": "none", "none": "own"}.get(one["sharing"], one["sharing"])
        policy = {"": "", "pinned": ", pinned", "lru": ", LRU"}[one["policy"]]
        law = "–" if one["law_store_bytes"] is None else "{} MB"
        numbers = [one["store_bytes"], one["predicted_store_bytes"]]
        numbers += [] if one["law_store_bytes"] is None else [one["law_store_bytes"]]
        yield Claim(
            page,
            f"| {own}{policy} | {{}} MB | {{}} MB | {law} | {{}} s | {{}} % |",
            (*(number / 1e6 for number in numbers), one["last_epoch_s"], 100 * one["error"]),
        )
    rows = record("loading-workers")["rows"]
    yield Claim(
        page,
        "batches that take {} s asleep, twelve a worker, from two probes ({} and {} workers, no step)",
        (max(one["build_s"] for one in rows), *constant("benchmarks/loading/workers.py", "PROBED")),
    )
    for one in rows:
        yield Claim(
            page,
            f"| {one['workers']}, {one['prefetch']}, {1e3 * one['step_s']:g} ms | {{}} s | {{}} s | {{}} % |",
            (one["measured_s"], one["predicted_s"], 100 * one["error"]),
        )


def _head_to_head() -> Iterator[Claim]:
    kept, job = record("loading-head_to_head"), Job()
    (about,) = kept["about"]
    assert about["peer"] == "mosaicml-streaming 0.13.0", "the page names the version"
    yield Claim(
        PAGE,
        "a loader behind {} ms, with decoding of {} ms and steps of {} ms (blocks are its shards, threads its workers), "
        "and {} samples were really loaded",
        (about["latency_ms"], 1e3 * job.decode_s, 1e3 * job.step_s, about["samples"]),
    )
    for one in kept["rows"]:
        yield Claim(
            PAGE,
            f"| {one['block']} × {one['threads']} | {{}} s | {{}} s | {{}} s |",
            (one["measured_s"], one["ours_s"], one["theirs_s"]),
        )


def _trial() -> Iterator[Claim]:
    page, job = PAGE, Job()
    made = TRACES.generate(Wanted(count=20_000)).report.data
    yield Claim(
        page,
        "A folder of {} files (`forerun trace generate loading -n 20000 -o DIR`, {} GB) as a new user would try it, "
        "decode {} ms, step {} ms, batch {} (the step admits {} samples/s)",
        (
            *(made["files"], made["bytes"] / 1e9),
            *(1e3 * job.decode_s, 1e3 * job.step_s, job.batch, job.batch / job.step_s),
        ),
    )
    tried = record("loading-trial")
    files, packed = tried["files behind 40 ms"], tried["blocks behind 40 ms"]
    yield Claim(page, "| the folder, local | {} s |", (tried["local"]["took_s"],))
    yield Claim(
        page,
        "| the same behind 40 ms, as files | {} s | the thread law binds, {} × short of hiding; 8 threads hide it with "
        "blocks of {}, 4 with {}, 2 with {}, 1 with {}; blocks of {} and {} threads do with time to spare, {} samples/s ({} "
        "to {}) |",
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


_PUBLISHED = "tests/loading/test_published.py"
_TUNING = "tests/loading/test_tuning.py"

#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (PAGE, "max over k of (⌊k/W⌋ + 1)·build + (N − k)·step"): (
        "tests/loading/test_laws_hold.py::test_closed_form_of_equal_batches"
    ),
    (PAGE, "| surface |"): f"{_TUNING}::test_replay_of_measured_surfaces",
    (PAGE, "measured by ourselves (16 to 20 cells;"): f"{_TUNING}::test_replay_of_measured_surfaces",
    (
        PAGE,
        "On five synthetic stores with 1 % noise its regret stays within 3 % in at least 19 of 20 seeds each, with "
        "at most four probes and, of 12,800 samples,",
    ): f"{_TUNING}::test_few_probes_and_little_regret",
    (PAGE, "| pace |"): "tests/loading/test_pace.py::test_a_latency_of_5_ms_becomes_40",
    (
        PAGE,
        "one thread, blocks of 4, 5 ms that become 40, 400 steps of 100 ms",
    ): "tests/loading/test_pace.py::test_a_latency_of_5_ms_becomes_40",
    (
        PAGE,
        "On a stream of 240 gangs over 24 nodes local hits are 75.4 % against 52.9, 51.8, 47.1 and 55.2 %",
    ): "tests/loading/test_placement.py::test_the_long_stream",
    (PAGE, "54 ResNet-50 on H100, three 3D-UNets"): "tests/loading/test_workloads.py::test_demands",
    (
        PAGE,
        "On the 35 published series that stall it finds the eight workers each time; predicted totals are 5.7 % too long "
        "(8.4 at most)",
    ): "tests/loading/test_workloads.py::test_a_log_betrays_its_workers",
    (
        PAGE,
        "Gains at compute times of 0.75 and 1 s (−1.55 and −0.79 %) rest on one merged run of three each",
    ): f"{_PUBLISHED}::test_the_improvement_column_and_what_it_rests_on",
    (PAGE, "| figure |"): f"{_PUBLISHED}::test_the_law_fitted_on_one_row_explains_the_others",
    (
        PAGE,
        "a model without that is up to 57 % off",
    ): f"{_PUBLISHED}::test_pools_that_share_the_cores_explain_every_merged_run",
    (
        PAGE,
        "Of runs of 1,000 synthetic stores, drawn with 0.3 to 3 % of noise, 94.7 % lay in theirs",
    ): "tests/loading/test_intervals.py::test_what_is_measured_lies_in_the_interval_as_often_as_it_says",
    (
        PAGE,
        "a server that answers 200 to a range",
    ): "tests/loading/test_measure.py::test_dishonest_servers_are_not_believed",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    (PAGE, "| option |"),
    (PAGE, "| tuner |"),
    (PAGE, "| format |"),
    (PAGE, "one thread without decoding, blocks of 256 over single files"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = {
    (
        PAGE,
        "On the same machine left alone, once each, mean errors were 0.8 % at 10 ms and 1.7 % at 40 ms, worst 3.0 "
        "and 3.6 %, and blocks of 256 gained 95 and 156 times. Without raised priority, at load averages of 4 to 12, "
        "mean errors were 1.5 to 6.3 %, the worst 20 %;",
    ),
}
