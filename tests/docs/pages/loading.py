"""The loading room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..claims import Claim, record


def claims() -> Iterator[Claim]:
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


#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    ("docs/rooms/loading.md", "| pace |"): "tests/loading/test_pace.py::test_a_latency_of_5_ms_becomes_40",
    (
        "docs/rooms/loading.md",
        "| surface |",
    ): "tests/loading/test_tuning.py::test_replay_of_measured_surfaces",
    (
        "docs/rooms/loading.md",
        "| figure |",
    ): "tests/loading/test_published.py::test_the_law_fitted_on_one_row_explains_the_others",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    ("docs/rooms/loading.md", "| option |"),
    ("docs/rooms/loading.md", "| tuner |"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
