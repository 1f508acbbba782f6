"""The spot page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from forerun.replication.bamboo import reproduce

from ..claims import Claim, Within, constant, record, row


def claims() -> Iterator[Claim]:
    page, rows = "docs/domains/spot-reference.md", record("spot-notebook")

    def rounded(name: str) -> float:
        return float(rows[name]["corrected"])

    for level in (0.01, 0.05, 0.1, 0.25, 0.5, 1.0):
        label, at = f"{level:g}".removeprefix("0"), f"at {level} events/min"
        values = [rounded(f"{part} share {at}") for part in ("useful", "lost", "reconfig", "idle")]
        yield row(page, label, *values, rounded(f"steps {at}"), after="### The question of 2021")
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
        "`no_stall`: checkpoints do not block training": "no_stall",
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

    yield from _histories(page, rows)
    yield from _real(page)
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
        "terminations is {} s instead of {}",
        (
            rows["stamps: additions stamped too early by, s"]["compat"],
            *both("stamps: mean gap of terminations, s"),
        ),
    )


def _histories(page: str, rows: Any) -> Iterator[Claim]:
    """How many histories of which length; and what depends on their number."""
    minutes = reproduce.HORIZON_S / 60
    yield Claim(page, "{} trials of {} minutes, its rounded profile", (reproduce.TRIALS, minutes))
    yield Claim(page, "(means of {} traces of {} minutes)", (reproduce.SEEDS, minutes))
    left = rows["stamps: nodes lost by falls of the count"]
    yield Claim(page, "teardown counts as {} losses", (left["compat"] - left["corrected"],))
    paired = [row for name, row in rows.items() if "against immediate" in name]
    yield Claim(
        page,
        "paired over {} fleets, in percent (intervals at most ±{})",
        (reproduce.TRIALS, 100 * max(float(row["note"][1:].partition(",")[0]) for row in paired)),
    )
    yield from _zones(page)


def _real(page: str) -> Iterator[Claim]:
    """Trainings whose processes were killed, beside their predictions."""
    found = record("spot-reality")
    perceptron, transformer = found["numpy"], found["torch"]
    for name, one in (("perceptron", perceptron), ("transformer", transformer)):
        for side in ("measured", "predicted"):
            seconds = [one["run"]["ledger"][line][f"{side}_s"] for line in LINES]
            yield row(page, f"{name}, {side}", *seconds, one["run"]["counts"]["steps completed"][side])
    yield Claim(
        page,
        "a perceptron of {} parameters and a transformer of {}: three nodes, an hour of trace in {} s",
        (perceptron["parameters"], transformer["parameters"], perceptron["seconds"]),
    )
    yield Claim(
        page,
        "(load averages of {} and {} before the runs)",
        tuple(one["load_average_before"] for one in (perceptron, transformer)),
    )
    over = [
        100 * number
        for one in (perceptron, transformer)
        for number in (one["worst_line"], one["steps_over_prediction"])
    ]
    losses = (transformer["run"]["first_loss"], transformer["run"]["last_loss"])
    yield Claim(
        page,
        "by more than {} % of the run, and steps were {} % above the prediction; of the transformer, "
        "whose loss fell from {} to {} meanwhile, {} % and {} %.",
        (*over[:2], *losses, *over[2:]),
    )
    restart = transformer["profile"]["timings"]["restart"]
    yield Claim(page, "Its restarts took {} ± {} s before the run", (restart["mean_s"], restart["std_s"]))


def _zones(page: str) -> Iterator[Claim]:
    """Spot beside on-demand nodes, with and without `deadline.by_goodput`."""
    found = record("spot-zones")
    rates = found["rates"]
    for rate, one in rates.items():
        label = f"{float(rate):g}"
        cells = [
            value
            for name in ("with", "without")
            for value in (one[f"{name}_usd"], 1.96 * one[f"{name}_se_usd"], one[f"{name}_moves"])
        ]
        text = f"| {label} | ${{}} ± {{}} | {{}} | ${{}} ± {{}} | {{}} |"
        yield Claim(page, text, tuple(cells), after="## A fleet with a deadline")
    alone = next(iter(rates.values()))["on_demand_usd"]
    usual = constant("benchmarks/spot/zones.py", "USUAL")
    yield Claim(
        page,
        "One zone of 32 to 48 nodes at ${}, {} steps in {} hours, 32 on-demand nodes at $3.06 (alone: ${}), "
        "means over {} histories",
        (
            usual["usd_per_h"], usual["steps"], usual["deadline_h"], alone,
            constant("benchmarks/spot/zones.py", "HISTORIES"),
        ),
    )  # fmt: skip
    first_s = usual["prep_s"] + usual["reconfig_s"]
    prepared = alone + first_s / 3600 * 32 * 3.06
    yield Claim(page, "On-demand nodes cost ${} if they are taken after the first tick", (prepared,))
    dear = max(one["with_usd"] for one in rates.values())
    yield Claim(page, "it has cost what leaving costs: at most ${} here", (Within(most=dear - alone),))
    yield Claim(
        page,
        "Over {} random settings (prices, rates, shapes, pauses, deadlines, three rules, up to three zones, {} "
        "histories each) none costs more with `by_goodput` than without, {} cost at least 1 % less, and the mean is {} % "
        "lower",
        (
            found["settings"],
            found["histories of a setting"],
            found["settings that cost more than 1 % less"],
            100 * (1 - found["mean ratio"]),
        ),
    )


LINES: Final = ("useful", "stall", "lost", "reconfig", "idle")
PAGE: Final = "docs/domains/spot-reference.md"
RUN86: Final = "tests/spot/test_measured.py::test_the_figures_of_the_page"

#: what the named test holds
TESTED: Final[dict[tuple[str, str], str]] = {
    (PAGE, "its one-minute counts shows 10 of its 15 reconfigurations"): RUN86,
    (PAGE, "Run 86 of Bamboo's authors: 64 nodes, 2.66 hours, 16 segments"): RUN86,
    (PAGE, "the model gives 627 executed steps for 623, and 438 retained for 421"): RUN86,
    (PAGE, "(useful .612 for .591, lost .178 for .206)"): RUN86,
    (PAGE, "rounded and without the stall, gives 713 and 519"): RUN86,
    (
        PAGE,
        "no deadline was missed in 72 random worlds",
    ): "tests/spot/test_zones.py::test_no_deadline_is_missed_with_the_last_word",
}

#: what defines something, or carries a figure over whose source stands beside it
GIVEN: Final[set[tuple[str, str]]] = {
    (PAGE, "| format |"),
    (PAGE, "| policy |"),
    (PAGE, "`hourly` 24 of them"),
}

#: what was measured once, and nobody can measure again to the digit; how stands beside it
SINGLE: Final[set[tuple[str, str]]] = set()
