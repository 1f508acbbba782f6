"""Deadline rules over elastic fleets in several zones, and prices that change."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from forerun.domains.spot import simulate
from forerun.domains.spot.deadline import Held
from forerun.domains.spot.deadline_runs import zone_run
from forerun.domains.spot.figures import figures
from forerun.domains.spot.levers import answer, levers
from forerun.domains.spot.policy import deadline_rules
from forerun.domains.spot.prices import fleet_usd, spot_price
from forerun.domains.spot.recorded import of_counts
from forerun.domains.spot.scenario import Prices
from forerun.errors import InputError, TraceError
from forerun.scenario.load import loads
from forerun.trace.signal import Signal

JOB = """
job:
  depth: 2
  max_pipelines: 2
  step_s: {2: 20, 4: 12}
  samples_per_step: 8
  reconfig: 60s
  prep: 2min
  write: 30s
  stall: 3s
"""
BASE = f"""domain: spot
seed: 1
horizon: 12h
fleet: {{name: per_node, removal_per_node_h: 0.2, return_per_node_h: 1, start: 4, cap: 4}}
{JOB}
prices: {{spot_usd_per_h: 1, on_demand_usd_per_h: 3}}
goal: {{steps: 1200, deadline: 8h}}
deadline: {{rule: uniform_progress, on_demand_nodes: 4}}
"""


def scenario(text: str = BASE, base: Path | None = None) -> Any:
    return loads(text, base=base)


def test_on_demand_alone_costs_what_it_takes() -> None:
    """1200 steps of 12 s with a stall after the first and every third: by hand, and never disturbed."""
    done, _ = zone_run(scenario(BASE.replace("uniform_progress", "on_demand")))
    seconds = 1200 * 12 + 3 * (1 + (1200 - 2) // 3)
    assert done.replay.finished_s == pytest.approx(seconds)
    assert (done.moves, done.spot_usd) == (0, 0.0)
    assert done.cost_usd == pytest.approx(4 * 3 * seconds / 3600)


def test_no_deadline_is_missed_with_the_last_word() -> None:
    """72 random worlds under every rule: done in time whenever on-demand from the start would be, books that sum.

    Without the last word some are missed, so the worlds are hard enough to tell.
    """
    rng, missed = random.Random(3), 0
    for _ in range(18):
        for rule in deadline_rules().names():
            text = BASE.replace("uniform_progress", rule).replace("seed: 1", f"seed: {rng.randrange(10**6)}")
            text = text.replace("0.2", f"{rng.uniform(0.05, 4):.3f}").replace(
                "deadline: 8h", f"deadline: {rng.uniform(5.2, 9):.2f}h"
            )
            text = text.replace(
                "on_demand_nodes: 4",
                f"on_demand_nodes: 4, tick: {rng.choice([5, 10, 20])}min, by_goodput: {rng.choice(['true', 'false'])}",
            )
            done, _ = zone_run(scenario(text))
            setting = scenario(text)
            assert done.replay.finished_s is not None and done.replay.finished_s <= setting.goal.deadline_s, (
                text
            )
            assert math.fsum(done.replay.wall_s.values()) == pytest.approx(done.replay.end_s, rel=1e-9)
            assert math.fsum(h.end_s - h.start_s for h in done.holdings) == pytest.approx(done.replay.end_s)
            if rule != "on_demand":
                alone, _ = zone_run(scenario(text.replace("by_goodput", "last_word: false, by_goodput")))
                ended = alone.replay.finished_s
                missed += ended is None or ended > setting.goal.deadline_s
    assert missed > 5


def test_a_zone_that_dries_up_is_left_for_the_cheapest(tmp_path: Path) -> None:
    """Zone one is there for an hour; of the two others the cheaper takes over, egress is paid once, nothing twice."""
    (tmp_path / "one.csv").write_text(
        "".join(f"0,add,a{i}\n" for i in range(4)) + "".join(f"3600000,remove,a{i}\n" for i in range(4))
    )
    (tmp_path / "still.csv").write_text("".join(f"0,add,a{i}\n" for i in range(4)))
    text = BASE.replace(
        "{name: per_node, removal_per_node_h: 0.2, return_per_node_h: 1, start: 4, cap: 4}",
        "{name: trace, file: one.csv}",
    ).replace("on_demand_nodes: 4", "on_demand_nodes: 4, egress_usd: 7")
    text += (
        "zones:\n- {name: dear, fleet: {name: trace, file: still.csv}, spot_usd_per_h: 2}\n"
        "- {name: cheap, fleet: {name: trace, file: still.csv}, spot_usd_per_h: 1.5}\n"
    )
    done, _ = zone_run(scenario(text, tmp_path))
    assert [(h.held, h.zone) for h in done.holdings] == [(Held.SPOT, "fleet"), (Held.SPOT, "cheap")]
    end_s = done.replay.end_s
    assert done.egress_usd == 7.0 and done.on_demand_usd == 0.0
    assert done.spot_usd == pytest.approx(4 * (3600 * 1 + (end_s - 3600) * 1.5) / 3600)
    lost = done.replay.counts.removed_active
    assert lost == 4 and done.replay.counts.idle_spells == 1


def test_a_zone_not_worth_its_price_is_not_offered() -> None:
    """Nodes that live a minute at almost the on-demand price: with goodput in view nobody holds them."""
    text = BASE.replace("removal_per_node_h: 0.2", "removal_per_node_h: 30").replace(
        "spot_usd_per_h: 1", "spot_usd_per_h: 2.9"
    )
    text = text.replace("return_per_node_h: 1", "return_per_node_h: 60").replace(
        "deadline: 8h", "deadline: 6h"
    )
    seen, _ = zone_run(scenario(text))
    blind, _ = zone_run(scenario(text.replace("on_demand_nodes: 4", "on_demand_nodes: 4, by_goodput: false")))
    assert all(h.held is not Held.SPOT for h in seen.holdings)
    assert any(h.held is Held.SPOT for h in blind.holdings) and seen.cost_usd < blind.cost_usd


def test_results_say_what_was_held_and_how_sure() -> None:
    one = simulate(scenario()).check()
    told = answer(one.summary)
    assert told.holds and "deadline" in told.question
    assert {lever.path for lever in levers(scenario(), one)} >= {"growth", "deadline.rule", "goal.deadline_s"}
    assert one.summary["met_deadline"] is True and len(one.tables["holdings"]) >= 1
    assert one.summary["cost_usd"] < one.summary["all_on_demand_cost_usd"]
    many = simulate(scenario(BASE + "trials: 12\n")).check()
    assert many.summary["done_by_deadline"] == 1.0 and many.intervals["done_by_deadline"].low > 0.7
    assert [ledger.name for ledger in many.ledgers] == [ledger.name for ledger in one.ledgers]
    assert many.data() == simulate(scenario(BASE + "trials: 12\n")).data()


@pytest.mark.parametrize(
    "old, new, place",
    [
        ("goal: {steps: 1200, deadline: 8h}", "goal: {steps: 1200}", "goal"),
        ("horizon: 12h", "horizon: 6h", "horizon"),
        ("on_demand_nodes: 4", "on_demand_nodes: 1", "on_demand_nodes"),
        ("on_demand_nodes: 4", "on_demand_nodes: 4, tick: 0s", "tick"),
        ("rule: uniform_progress", "rule: uniform", "uniform"),
        ("on_demand_usd_per_h: 3}", "on_demand_usd_per_h: 3, billing: 1h}", "billing"),
        ("on_demand_usd_per_h: 3}", "on_demand_usd_per_h: 3}\npolicy: varuna", "policy"),
        (
            "deadline: {rule: uniform_progress, on_demand_nodes: 4}",
            "zones: [{name: b, fleet: {name: trace, file: b.csv}}]",
            "zones",
        ),
        ("spot_usd_per_h: 1,", "spot_usd_per_h: 1, spot_series: {steps: [[0, 1]]},", "spot_series"),
        ("spot_usd_per_h: 1,", "spot_series: {steps: [[0, 1]]}, billing: 1h,", "billing"),
        ("spot_usd_per_h: 1,", "spot_series: {steps: [[5, 1]]},", "steps"),
    ],
)  # fmt: skip
def test_bad_scenarios_name_the_place(old: str, new: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("0,add,a\n")
    with pytest.raises(InputError) as caught:
        loads(BASE.replace(old, new), base=tmp_path)
    assert place in str(caught.value)


# --------------------------------------------------------------------- prices


def test_a_price_over_time_is_paid_as_it_goes() -> None:
    """By hand; a constant series is the constant; price x k is cost x k; over trials the mean until the horizon."""
    fleet = of_counts([0.0, 3600.0, 7200.0], [2, 5, 1], "lifo")
    price = Signal([0.0, 5400.0], [1.0, 2.0], unit="usd_per_h")
    assert fleet_usd(fleet, price, 9000.0) == pytest.approx(2 * 1 + 5 * (0.5 * 1 + 0.5 * 2) + 1 * 0.5 * 2)
    text = BASE.split("deadline: {rule")[0]

    def cost(prices: str, more: str = "") -> float:
        return float(simulate(scenario(text.replace("spot_usd_per_h: 1", prices) + more)).summary["cost_usd"])

    series = "spot_series: {{steps: [[0, {}], [5400, {}]], repeat: 3h}}"
    shown = simulate(scenario(text.replace("spot_usd_per_h: 1", series.format(1, 2))))
    assert shown.tables["price"]["usd_per_h"].tolist()[:4] == [1.0, 2.0, 1.0, 2.0]
    assert "price" in {figure.id for figure in figures(shown)}
    assert cost(series.format(1, 1)) == pytest.approx(cost("spot_usd_per_h: 1"))
    assert cost(series.format(3, 6)) == pytest.approx(3 * cost(series.format(1, 2)))
    assert cost(series.format(1, 2), "trials: 50\n") == pytest.approx(
        1.5 * cost("spot_usd_per_h: 1", "trials: 50\n")
    )


def test_prices_from_a_file(tmp_path: Path) -> None:
    """One market of the file, its last price held; several need a choice; other files are refused."""
    entries = [
        {
            "Timestamp": f"2024-05-01T1{hour}:00:00Z",
            "SpotPrice": price,
            "AvailabilityZone": zone,
            "InstanceType": "m",
        }
        for hour, price, zone in ((2, "3.0", "b"), (1, "2.0", "a"), (0, "1.0", "a"))
    ]
    (tmp_path / "p.json").write_text(json.dumps({"SpotPriceHistory": entries}))
    text = BASE.replace("spot_usd_per_h: 1", "spot_file: {file: p.json, options: {zone: a}}")
    price = spot_price(scenario(text, tmp_path).prices)
    assert (price.at(0), price.at(3599), price.at(3600), price.at(1e9)) == (1.0, 1.0, 2.0, 2.0)
    with pytest.raises(TraceError, match="2 markets"):
        spot_price(scenario(text.replace(", options: {zone: a}", ""), tmp_path).prices)
    (tmp_path / "p.json").write_text("0,add,a\n")
    with pytest.raises(TraceError, match="not prices"):
        spot_price(scenario(text.replace(", options: {zone: a}", ""), tmp_path).prices)
    assert spot_price(Prices()).at(0) == 0.0
