"""From scenario files to results: ledgers, figures, repetition, bad input."""

from __future__ import annotations

import contextlib
import io
import math
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import forerun
from forerun.core.domain import get_domain, simulate
from forerun.core.errors import ScenarioError, TraceError
from forerun.core.scenario.spec import to_data
from forerun.core.scenarios import from_data, loads
from forerun.spot import figures
from forerun.spot.policies.lazy import Lazy
from forerun.spot.policies.oobleck import Oobleck
from forerun.spot.policy import recovery_policies

JOB = """
job:
  depth: 16
  max_pipelines: 4
  step_s: {16: 18, 32: 11, 48: 9, 64: 8}
  samples_per_step: 288
  reconfig: 88s
  load: 47s
  prep: 3min
  write: 89s
"""
POISSON = (
    "fleet: {name: poisson, removals_per_min: 0.25, adds_per_min: 0.25, add_burst: {probability: 0.058}}\n"
)
BASE = f"domain: spot\nseed: 1\nhorizon: 355min\n{POISSON}{JOB}"


def scenario(more: str = "", text: str = BASE, base: Path | None = None) -> Any:
    return loads(text + more, base=base)


def own_trace(folder: Path, rows: str) -> str:
    (folder / "mine.csv").write_text(rows)
    return f"domain: spot\nhorizon: 1h\nfleet: {{name: trace, file: mine.csv}}\n{JOB}"


TWENTY_LINES = (
    "".join(f"0,add,vm-{i}\n" for i in range(17))
    + "1200000,remove,vm-3\n1500000,add,vm-17\n2400000,remove,vm-0\n"
)


def test_own_twenty_line_trace(tmp_path: Path) -> None:
    """The trace of a new user: 17 nodes, two losses, one return."""
    done = simulate(scenario(text=own_trace(tmp_path, TWENTY_LINES), base=tmp_path)).check()
    assert done.summary["reconfigs"] == 2
    assert done.summary["idle_share"] == 0.0
    assert done.summary["end_s"] == 3600.0
    assert any("from then on the fleet stays" in note for note in done.notes)
    assert {figure.id for figure in figures.figures(done)} == {
        "where-the-time-went",
        "fleet",
        "states",
        "progress",
    }
    assert len(done.tables["fleet"]) > 3
    assert done.timeline is not None and len(done.timeline) > 20


@pytest.mark.parametrize("name", recovery_policies().names())
def test_every_recovery_policy_keeps_the_books(name: str) -> None:
    done = simulate(
        scenario(f"policy: {name}\nprices: {{spot_usd_per_h: 0.91, on_demand_usd_per_h: 3.06}}\n")
    ).check()
    assert done.summary["steps_completed"] > 0
    assert done.summary["cost_usd"] > 0


def test_recovery_policies_differ() -> None:
    """One generated history, four answers: redundancy and templates lose less than rollbacks."""
    done = {
        name: simulate(scenario(f"policy: {name}\n")).summary["steps_completed"]
        for name in recovery_policies().names()
    }
    assert len(set(done.values())) == 6
    assert min(done["oobleck"], done["parcae"], done["torchft"]) > done["restart"] > done["varuna"]


def test_policy_argument_replaces_the_scenarios() -> None:
    one = simulate(scenario(), policy=Lazy())
    assert one.summary == simulate(scenario("growth: lazy\n")).summary
    other = simulate(scenario(), policy=Oobleck(pause_s=5.0))
    assert other.summary == simulate(scenario("policy: {name: oobleck, pause: 5s}\n")).summary


def test_a_run_reads_no_file_after_it_is_prepared(tmp_path: Path) -> None:
    """The fleet is read by `prepare` alone: its file may vanish before the run."""
    text = own_trace(tmp_path, TWENTY_LINES) + "prices: {spot_series: {steps: [[0, 0.5], [1800, 1.5]]}}\n"
    spot = get_domain("spot")
    whole = simulate(scenario(text=text, base=tmp_path))
    loaded = scenario(text=text, base=tmp_path)
    inputs = spot.prepare(loaded)
    (tmp_path / "mine.csv").unlink()
    assert spot.summarize(spot.run(inputs)).data() == whole.data()
    with pytest.raises(TraceError, match=r"mine\.csv"):
        spot.prepare(loaded)


def test_same_scenario_same_result(tmp_path: Path) -> None:
    for more in ("", "trials: 200\ngoal: {steps: 900, deadline: 5h}\n"):
        one, other = (simulate(scenario(more)).check() for _ in range(2))
        assert one.data() == other.data()
    saved = from_data(to_data(scenario()))
    assert simulate(saved).summary == simulate(scenario()).summary


def test_scenarios_do_not_hang_on_hashing(tmp_path: Path) -> None:
    """The same bytes in processes that hash texts differently and run other numbers of threads, this and another: fleets
    of six processes, each with every policy; growth rules, single runs and many trials.
    """
    script = tmp_path / "scenarios.py"
    script.write_text(SCENARIOS)
    here = io.StringIO()
    with contextlib.redirect_stdout(here):
        runpy.run_path(str(script))
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    threads = "2" if numba.get_num_threads() == 1 else "1"
    there = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONHASHSEED": seed, "NUMBA_NUM_THREADS": threads},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert here.getvalue() == there and len(there.split()) == 30


SCENARIOS = f'''
import hashlib, json
from forerun.core.domain import get_domain, simulate
from forerun.core.scenarios import loads

FLEETS = (
    "{{name: poisson, removals_per_min: 0.3, adds_per_min: 0.3}}",
    "{{name: per_node, removal_per_node_h: 0.5, return_per_node_h: 2}}",
    "{{name: tick, removals_per_min: 0.3, adds_per_min: 0.3}}",
    "{{name: lifetimes, mean_life_h: 2, mean_return_h: 0.5}}",
    "{{name: bathtub, mean_return_h: 0.5}}",
    "{{name: storms, calm_removals_per_min: 0.05, storm_removals_per_min: 2, adds_per_min: 0.3}}",
)
POLICIES = ("restart", "varuna", "oobleck", "bamboo", "parcae")
for i in range(30):
    text = f"domain: spot\\nseed: {{i}}\\nhorizon: 1h\\npolicy: {{POLICIES[i % 5]}}\\n"
    text += "trials: 70\\n" if i % 5 == 0 else ""
    text += f"growth: {{('lazy', 'hazard', 'drain')[i % 3]}}\\nfleet: {{FLEETS[i % 6]}}\\n" + """{JOB}"""
    data = json.dumps(simulate(loads(text)).data(), default=str)
    print(hashlib.sha256(data.encode()).hexdigest())
'''


def test_trials_give_intervals_and_a_chance() -> None:
    done = simulate(
        scenario("trials: 2000\ngoal: {steps: 900, deadline: 5h}\nprices: {spot_usd_per_h: 0.91}\n")
    ).check()
    assert 0 < done.summary["done_by_deadline"] < 1
    assert done.intervals["done_by_deadline"].low < done.summary["done_by_deadline"]
    assert done.summary["steps_p5"] <= done.summary["steps_p50"] <= done.summary["steps_p95"] == 900
    assert len(done.tables["trials"]) == 2000
    assert [ledger.name for ledger in done.ledgers] == ["wall time", "node time", "goodput categories"]
    assert "time-to-finish" in {figure.id for figure in figures.figures(done)}
    # A trial that ends at the deadline, to the last bit, is done by it.
    trials = done.tables["trials"]
    ends_s = np.sort(trials["end_s"][trials["finished"].astype(bool)])
    at_end = simulate(scenario(f"trials: 2000\ngoal: {{steps: 900, deadline_s: {float(ends_s[99])!r}}}\n"))
    assert at_end.summary["done_by_deadline"] == np.count_nonzero(ends_s <= ends_s[99]) / 2000


def test_shares_are_those_of_the_ledger_whatever_the_length_of_runs() -> None:
    done = simulate(scenario("trials: 400\ngoal: {steps: 500}\n")).check()
    wall = done.ledgers[0].parts
    for line in ("useful", "lost", "reconfig", "idle"):
        assert done.summary[f"{line}_share"] == pytest.approx(wall[line] / math.fsum(wall.values()), rel=1e-9)
        assert done.intervals[f"{line}_share"].low <= done.summary[f"{line}_share"]


def test_every_assumption_has_its_elasticity() -> None:
    """Longer steps cost as much as they are longer, more removals and longer pauses cost something; no stall, no row."""
    table = simulate(scenario("trials: 800\n")).tables["sensitivity"]
    found = dict(
        zip(
            table["field"].tolist(),
            zip(*(table[n].tolist() for n in ("elasticity", "low", "high"))),
            strict=True,
        )
    )
    assert set(found) == {
        "fleet.removals_per_min",
        "fleet.adds_per_min",
        "job.step_s",
        "job.reconfig_s",
        "job.prep_s",
        "job.write_s",
    }
    assert -1.15 < found["job.step_s"][0] < -0.85
    for field in ("fleet.removals_per_min", "job.reconfig_s", "job.write_s"):
        assert found[field][2] < 0, field
    sizes = [abs(value) for value in table["elasticity"].tolist()]
    assert sizes == sorted(sizes, reverse=True)


def test_trials_of_a_policy_without_kernel_are_replayed() -> None:
    done = simulate(scenario("trials: 10\npolicy: varuna\n")).check()
    assert any("one by one" in note for note in done.notes)


def test_money(tmp_path: Path) -> None:
    """Price x k is cost x k; billing by the hour rounds every life up; on-demand nodes have their own
    price.
    """
    text = own_trace(tmp_path, TWENTY_LINES)
    prices = [
        simulate(scenario(f"prices: {{spot_usd_per_h: {price}}}\n", text, tmp_path)).summary["cost_usd"]
        for price in (1, 3)
    ]
    assert prices[1] == pytest.approx(3 * prices[0])
    lives_h = 15 * 1.0 + 1200 / 3600 + 2400 / 3600 + (3600 - 1500) / 3600
    assert prices[0] == pytest.approx(lives_h)
    hourly = simulate(scenario("prices: {spot_usd_per_h: 1, billing: 1h}\n", text, tmp_path)).summary[
        "cost_usd"
    ]
    assert hourly == pytest.approx(18.0)
    series = "prices: {spot_series: {steps: [[0, 1], [1800, 2]]}}\n"
    dearer = 15 * 1.5 + (1200 * 1 + (1800 * 1 + 600 * 2) + (300 * 1 + 1800 * 2)) / 3600
    assert simulate(scenario(series, text, tmp_path)).summary["cost_usd"] == pytest.approx(dearer)
    steady = simulate(scenario("on_demand_nodes: 16\nprices: {on_demand_usd_per_h: 3}\n", text, tmp_path))
    assert steady.summary["cost_usd"] == pytest.approx(48.0)
    assert steady.summary["idle_share"] == 0.0


# --------------------------------------------------------------------- bad input

BAD_SCENARIOS = [
    (BASE.replace("depth: 16", "depth: 0"), "depth"),
    (BASE.replace("48: 9, ", ""), "step_s"),
    (BASE.replace("64: 8", "64: 0"), "step_s"),
    (BASE.replace("reconfig: 88s", "reconfig: -1s"), "reconfig"),
    (BASE.replace("horizon: 355min\n", ""), "horizon"),
    (BASE.replace("removals_per_min: 0.25", "removals_per_min: -0.1"), "removals_per_min"),
    (BASE.replace("removals_per_min: 0.25", "removals_per_min: .inf"), "removals_per_min"),
    (BASE.replace("removals_per_min: 0.25", "removals_per_min: 1e9"), "fleet"),
    (BASE.replace("64: 8", "64: 1e-6"), "step_s"),
    (
        BASE.replace(POISSON, "fleet: {name: tick, removals_per_min: 1, adds_per_min: 1, tick: 1us}\n"),
        "fleet",
    ),
    (BASE.replace(POISSON, "fleet: {name: lifetimes, mean_life_h: 0, mean_return_h: 0}\n"), "mean_life"),
    (BASE.replace(POISSON, f"fleet: {{name: hourly, remove: {[1] * 24}, add: {[0] * 24}}}\n"), "remove"),
    (BASE.replace("name: poisson", "name: poison"), "fleet"),
    (BASE + "goal: {steps: 1000, deadline: 1h}\n", "deadline"),
    (BASE + "goal: {deadline: 1h}\n", "steps"),
    (BASE + "growth: eager\n", "growth"),
    (BASE + "policy: {name: oobleck, tolerates: 0}\n", "tolerates"),
    (BASE.replace("adds_per_min: 0.25", "adds_per_min: 0.25, start: 65"), "start"),
    (BASE.replace("  write: 89s", "  write: 89s\n  snapshots: {rule: every_steps}"), "steps"),
    (BASE.replace("load: 47s", "load: 100s"), "load"),
]


@pytest.mark.parametrize(
    "text, place", BAD_SCENARIOS, ids=[f"{i}-{row[1]}" for i, row in enumerate(BAD_SCENARIOS)]
)
def test_bad_scenarios_name_the_place(text: str, place: str) -> None:
    with pytest.raises((ScenarioError, forerun.core.errors.InputError)) as caught:
        loads(text)
    assert place in str(caught.value)


BAD_TRACES = [
    ("0,add,a\n5,ad,b\n", "2"),
    ("0,add,a\n5,add,a\n", "2"),
    ("0,add,a\n-5,remove,a\n", "2"),
    ("0,add,a\nx,remove,a\n", "2"),
    ("0,add,a\n1e400,remove,a\n", "2"),
    ("", "empty"),
    ("0,add,a\n5,remove\n", "2"),
    ("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "LFS"),
]


@pytest.mark.parametrize("rows, place", BAD_TRACES, ids=range(len(BAD_TRACES)))
def test_bad_traces_name_the_place(rows: str, place: str, tmp_path: Path) -> None:
    text = own_trace(tmp_path, rows).replace("file: mine.csv", "file: mine.csv, format: spot_membership")
    with pytest.raises(TraceError) as caught:
        simulate(scenario(text=text, base=tmp_path))
    assert place in str(caught.value) and "mine.csv" in str(caught.value)


def test_dirt_is_repaired_and_counted(tmp_path: Path) -> None:
    rows = "\ufeff0,add,a\r\n9000,remove,ghost\r\n5000,add,b\r\n7000,add,c\r\n7000,remove,c\r\n"
    text = own_trace(tmp_path, rows)
    done = simulate(scenario(text=text, base=tmp_path))
    notes = " ".join(done.notes)
    for repair in ("out of order", "not alive, ignored", "in one instant, dropped"):
        assert repair in notes
    assert done.summary["steps_completed"] == 0 and done.summary["usd_per_million_samples"] is None
    strict = text.replace("file: mine.csv", "file: mine.csv, strict: true")
    with pytest.raises(TraceError):
        simulate(scenario(text=strict, base=tmp_path))


def test_no_node_ever_is_all_idle(tmp_path: Path) -> None:
    done = simulate(scenario().with_(fleet=scenario().fleet.with_(start=0, adds_per_min=0.0))).check()
    assert done.summary["idle_share"] == 1.0 and done.summary["idle_spells"] == 1
    assert done.summary["samples_per_s"] == 0.0


def test_counts_become_nodes_by_a_stated_rule(tmp_path: Path) -> None:
    """Node-hours do not depend on who leaves; the report says that swaps cannot be seen."""
    (tmp_path / "counts.csv").write_text(
        "timestamp,count\n2021-07-26T17:00:00Z,40\n2021-07-26T17:20:00Z,30\n2021-07-26T17:40:00Z,35\n"
    )
    text = f"domain: spot\nhorizon: 1h\nfleet: {{name: trace, file: counts.csv, leaves: LEAVES}}\n{JOB}"
    done = {
        rule: simulate(scenario(text=text.replace("LEAVES", rule), base=tmp_path)).check()
        for rule in ("fifo", "lifo", "random")
    }
    assert len({round(one.summary["mean_nodes"], 9) for one in done.values()}) == 1
    assert all(
        any("swaps within any of its 2 intervals" in note for note in one.notes) for one in done.values()
    )
