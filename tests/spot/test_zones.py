"""Deadline rules over elastic fleets in several zones, and prices that change."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from forerun.core.domain import simulate
from forerun.core.errors import InputError, TraceError, UsageError
from forerun.core.scenarios import loads
from forerun.spot.engine.run import zone_run
from forerun.spot.engine.zones import Preference
from forerun.spot.explain import SpotExplainer
from forerun.spot.figures import figures
from forerun.spot.inputs import prepare
from forerun.spot.inputs.prices import spot_price
from forerun.spot.policy import Held, deadline_rules
from forerun.spot.scenario import Prices

from ..conftest import cases

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
    done = zone_run(prepare(scenario(BASE.replace("uniform_progress", "on_demand"))))
    seconds = 1200 * 12 + 3 * (1 + (1200 - 2) // 3)
    assert done.replay.finished_s == pytest.approx(seconds)
    assert (done.moves, done.spot_usd) == (0, 0.0)
    assert done.cost_usd == pytest.approx(4 * 3 * seconds / 3600)


def test_no_deadline_is_missed_with_the_last_word() -> None:
    """Random worlds under every rule: done in time whenever on-demand from the start would be, books that sum.

    Without the last word some are missed, so the worlds are hard enough to tell.
    """
    rng, missed = random.Random(3), 0
    for _ in range(cases(6, 500)):
        for rule in deadline_rules().names():
            text = BASE.replace("uniform_progress", rule).replace("seed: 1", f"seed: {rng.randrange(10**6)}")
            text = text.replace("0.2", f"{rng.uniform(0.05, 4):.3f}").replace(
                "deadline: 8h", f"deadline: {rng.uniform(5.2, 9):.2f}h"
            )
            text = text.replace(
                "on_demand_nodes: 4",
                f"on_demand_nodes: 4, tick: {rng.choice([5, 10, 20])}min, by_goodput: {rng.choice(['true', 'false'])}",
            )
            done = zone_run(prepare(scenario(text)))
            setting = scenario(text)
            assert done.replay.finished_s is not None and done.replay.finished_s <= setting.goal.deadline_s, (
                text
            )
            assert math.fsum(done.replay.wall_s.values()) == pytest.approx(done.replay.end_s, rel=1e-9)
            assert math.fsum(h.end_s - h.start_s for h in done.holdings) == pytest.approx(done.replay.end_s)
            if rule != "on_demand":
                alone = zone_run(
                    prepare(scenario(text.replace("by_goodput", "last_word: false, by_goodput")))
                )
                ended = alone.replay.finished_s
                missed += ended is None or ended > setting.goal.deadline_s
    assert missed > 1


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
    done = zone_run(prepare(scenario(text, tmp_path)))
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
    seen = zone_run(prepare(scenario(text)))
    blind = zone_run(
        prepare(scenario(text.replace("on_demand_nodes: 4", "on_demand_nodes: 4, by_goodput: false")))
    )
    assert all(h.held is not Held.SPOT for h in seen.holdings)
    assert any(h.held is Held.SPOT for h in blind.holdings) and seen.cost_usd < blind.cost_usd


BIG = """domain: spot
seed: 1
horizon: 48h
fleet: {name: per_node, removal_per_node_h: 0.6, return_per_node_h: 2, start: 32, cap: 48}
job: {depth: 16, max_pipelines: 4, step_s: {16: 18, 32: 11, 48: 9, 64: 8}, samples_per_step: 288, reconfig: 88s,
      prep: 3min, write: 89s, stall: 9s}
prices: {spot_usd_per_h: 0.8, on_demand_usd_per_h: 3.06}
goal: {steps: 5000, deadline: 26h}
deadline: {rule: uniform_progress, on_demand_nodes: 32}
"""


@pytest.mark.parametrize("rate, most", [(0.1, 1.0), (0.5, 1.0), (0.6, 1.0), (0.8, 0.96), (1.2, 0.96)])
def test_a_zone_is_not_changed_at_every_swing_of_its_worth(rate: float, most: float) -> None:
    """Where spot costs about as much a step as on-demand nodes, its worth swings with the number of nodes alive."""
    text = BIG.replace("removal_per_node_h: 0.6", f"removal_per_node_h: {rate}")
    runs = [zone_run(prepare(scenario(text)), trial) for trial in range(4)]
    without = scenario(text.replace("on_demand_nodes: 32", "on_demand_nodes: 32, by_goodput: false"))
    plain = [zone_run(prepare(without), trial) for trial in range(4)]
    assert sum(run.cost_usd for run in runs) <= most * sum(run.cost_usd for run in plain)
    assert max(run.moves for run in runs) <= 4


def test_a_preference_changes_once_a_change_has_paid() -> None:
    """By hand: swings smaller than the cost of a change change nothing, a lasting saving does when it reaches it."""
    swings, lasting, free = Preference(), Preference(), Preference()
    for saved in (3, *[-6, 6] * 20):
        swings.update(saved, to_zone_usd=5, to_on_demand_usd=4)
        assert swings.preferred is True
    swings.update(9, to_zone_usd=5, to_on_demand_usd=4)
    swings.update(-7, to_zone_usd=5, to_on_demand_usd=4)
    assert swings.preferred is True and swings.saved_usd == -2  # 5, the most it remembers, less 7
    swings.update(-2, to_zone_usd=5, to_on_demand_usd=4)
    assert swings.preferred is False
    lasting.update(-4, to_zone_usd=5, to_on_demand_usd=4)
    seen = []
    for _ in range(11):
        lasting.update(1, to_zone_usd=5, to_on_demand_usd=4)
        seen.append(lasting.preferred)
    assert seen == [False] * 8 + [True] * 3  # from -4 to 5
    for saved, expected in ((1, True), (-1, False), (0, False), (2, True)):
        free.update(saved, to_zone_usd=0, to_on_demand_usd=0)
        assert free.preferred is expected


def test_removals_of_a_recorded_zone_are_learned_while_it_is_not_in_use(tmp_path: Path) -> None:
    """Every ten minutes all nodes go and come back: on-demand nodes are taken once, and kept."""
    rows = [f"0,add,n{i}\n" for i in range(32)]
    for minute in range(10, 26 * 60, 10):
        rows += [f"{minute * 60_000},{verb},n{i}\n" for verb in ("remove", "add") for i in range(32)]
    (tmp_path / "zone.csv").write_text("".join(rows))
    text = BIG.replace(BIG[BIG.index("{name: per") : BIG.index("job")], "{name: trace, file: zone.csv}\n")
    done = zone_run(prepare(scenario(text, tmp_path)))
    assert [h.held for h in done.holdings] == [Held.SPOT, Held.ON_DEMAND]


@pytest.mark.parametrize(
    "change",
    [
        ("stall: 3s", "stall: 3s"),
        ("stall: 3s", "stall: 3s\n  warm_start: false"),
        ("stall: 3s", "stall: 3s\n  snapshots: {rule: back_to_back, write: sync}"),
        ("stall: 3s", "stall: 3s\n  initial_saved: 99"),
        ("max_pipelines: 2", "max_pipelines: 1"),
    ],
)
def test_the_cost_on_demand_is_that_of_the_rule_on_demand(change: tuple[str, str]) -> None:
    """Preparation, checkpoints and work already done included; with it, what is cheaper is said."""
    text = BASE.replace(*change).replace("deadline: 8h", "deadline: 11h").replace("12h", "16h")
    alone = simulate(scenario(text.replace("uniform_progress", "on_demand"))).summary
    assert alone["all_on_demand_cost_usd"] == alone["cost_usd"]
    assert simulate(scenario(text)).summary["all_on_demand_cost_usd"] == alone["cost_usd"]


def test_the_preparation_of_on_demand_nodes_is_paid() -> None:
    """By hand: four nodes for three minutes more, without a warm start."""
    warm, cold = (
        simulate(scenario(BASE.replace("stall: 3s", f"stall: 3s\n  warm_start: {word}"))).summary[
            "all_on_demand_cost_usd"
        ]
        for word in ("true", "false")
    )
    assert cold - warm == pytest.approx(4 * 3 * (120 + 60) / 3600)


def test_why_says_whether_on_demand_alone_is_cheaper() -> None:
    dear = BIG.replace("on_demand_nodes: 32", "on_demand_nodes: 32, by_goodput: false").replace("0.6", "1.2")
    assert "would be cheaper" in simulate(scenario(dear)).why
    assert "would be cheaper" in simulate(scenario(dear + "trials: 4\n")).why
    good = BIG.replace("removal_per_node_h: 0.6", "removal_per_node_h: 0.05")
    assert "more" in simulate(scenario(good)).why
    late = BASE.replace("deadline: 8h", "deadline: 5h").replace("on_demand_nodes: 4", "on_demand_nodes: 2")
    assert "miss the deadline" in simulate(scenario(late)).why


def test_a_zone_below_the_fewest_pipelines_is_not_offered() -> None:
    """Step times are given from `min_pipelines` on; fewer nodes train nowhere."""
    job = JOB.replace("max_pipelines: 2", "max_pipelines: 2\n  min_pipelines: 2").replace(
        "{2: 20, 4: 12}", "{4: 12}"
    )
    text = BASE.replace(JOB, job).replace("0.2", "3")
    done = zone_run(prepare(scenario(text)))
    assert done.replay.finished_s is not None
    with pytest.raises(InputError, match="on_demand_nodes"):
        loads(text.replace("on_demand_nodes: 4", "on_demand_nodes: 2"))


def test_the_policy_argument_may_be_a_deadline_rule() -> None:
    done = simulate(scenario(), policy=deadline_rules().get("on_demand")())
    assert done.summary == simulate(scenario(BASE.replace("uniform_progress", "on_demand"))).summary
    assert done.scenario.deadline.rule == deadline_rules().get("on_demand")(), "the result records the rule"
    plain = scenario(BASE.partition("deadline: {")[0])
    with pytest.raises(UsageError, match="needs a scenario with `deadline`"):
        simulate(plain, policy=deadline_rules().get("on_demand")())


def test_results_say_what_was_held_and_how_sure() -> None:
    one = simulate(scenario()).check()
    told = SpotExplainer().answer(one.summary)
    assert told.holds and "deadline" in told.question
    assert {lever.path for lever in SpotExplainer().what_ifs(scenario(), one)} >= {
        "growth",
        "deadline.rule",
        "goal.deadline_s",
    }
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
    """A constant series is the constant; price x k is cost x k; over trials the mean until the horizon."""
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
