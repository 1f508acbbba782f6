"""Jobs that keep their number of GPUs keep the GPUs; who moves pays for it, and no promise is broken by that."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.costs import cost_table, plain
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import schedulers
from forerun.cluster.testing import Scene
from forerun.core.errors import ScenarioError
from forerun.core.scenario.spec import canonical_json, content_id, to_data
from forerun.replication.elasticflow.planning.promises import PromisingRules
from forerun.replication.elasticflow.schedules.plan_ahead import PublishedElasticFlow

from ..cluster.conftest import lawful, play, rules_of, setting
from ..conftest import cases
from .test_admitted_in_time import ALL, drawn_world
from .test_irregular_clusters import hostile_world

#: random settings in a run of the suite; FORERUN_CASES asks for more
WORLDS = cases(32, 1500)


def world(number: int) -> Setting:
    """Equal nodes of eight, or odd ones; dear changes in some."""
    made = hostile_world(number) if number % 2 else drawn_world(np.random.default_rng(number))
    return replace(made, placement_kept=True)


def test_promises_hold_what_moves_cost() -> None:
    """Every law after every event, no GPU given twice, and nobody admitted is late."""
    admitted = moves = spread = 0
    for number in range(WORLDS):
        made = world(number)
        record, _ = lawful(PublishedElasticFlow(), Scene(number, made, Terms()))
        mine = record.admitted == 1
        assert (record.end_s[mine] >= 0).all(), f"setting {number}"
        late = np.flatnonzero(mine & (record.end_s > made.jobs.deadline_s))
        assert not len(late), f"setting {number}: jobs {late}"
        admitted += int(mine.sum())
        moves += len(record.moves)
        spread += len(record.spread_rows)
    assert admitted > 5 * WORLDS and moves > WORLDS / 4 and spread > WORLDS / 8, (admitted, moves, spread)


def test_moves_that_cost_nothing_in_the_plan_break_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law can fail: jobs that are moved whether or not their plans hold it are late."""
    monkeypatch.setattr(PromisingRules, "settle", lambda self, seats, wanted, now_s: seats.settle(wanted))
    late = 0
    for number in range(cases(100)):
        made = world(number)
        dear = cost_table(
            {"*": {"1->2": 1.0, "2->1": 1.0, "migrate": 3000.0}}, made.jobs, plain(0, 0, 0), "here"
        )
        record = play(PublishedElasticFlow(), replace(made, costs=dear))
        late += int(((record.admitted == 1) & (record.end_s > made.jobs.deadline_s)).sum())
        if late:
            return
    raise AssertionError("nobody was late")


def moves_of(record: Record) -> int:
    return len({(at_s, row) for at_s, row, _ in record.moves})


@pytest.mark.parametrize("name", ["ef-accessctrl", "ef", "edf", "edf-accessctrl"])
def test_jobs_move_seldom(name: str) -> None:
    """On the testbed trace; and everybody that is admitted ends."""
    made = replace(setting("195job.csv", "n16g8", 240, corrected=ALL), placement_kept=True)
    record = play(schedulers().get(name)(), made)
    assert (record.end_s[record.admitted == 1] >= 0).all()
    changes = len(record.changes()[0])
    assert moves_of(record) < changes / 40, (moves_of(record), changes)
    assert record.spread_gpu_s == 0.0  # powers of two always find room


def test_who_moves_pays_the_table() -> None:
    """A job loses exactly the seconds of each of its moves, where only these cost anything."""
    paid = 0
    for number in range(WORLDS):
        made = drawn_world(np.random.default_rng([4, number]))
        dear = cost_table(
            {"*": {"1->2": 0.0, "2->1": 0.0, "migrate": 7.0, "restart": 0.0}},
            made.jobs,
            plain(0, 0, 0),
            "here",
        )
        made = replace(made, placement_kept=True, costs=dear)
        record = Record(made)
        rules = rules_of(PublishedElasticFlow(), made, record)
        assert isinstance(rules, PromisingRules)
        pauses: list[tuple[float, int, float]] = []

        def look(
            now_s: float, rules: PromisingRules = rules, pauses: list[tuple[float, int, float]] = pauses
        ) -> None:
            pauses += [
                (now_s, row, float(rules.pause_s[row])) for row in np.flatnonzero(rules.pause_s).tolist()
            ]

        run_rules(rules, [look])
        moved = {(at_s, row) for at_s, row, _ in record.moves}
        fresh = {(at_s, row): seconds for at_s, row, seconds in pauses if (at_s, row) in moved}
        assert fresh.keys() == moved and all(seconds >= 7.0 for seconds in fresh.values()), (
            f"setting {number}"
        )
        assert all((at_s, row) in moved or seconds < 7.0 for at_s, row, seconds in pauses), (
            f"setting {number}"
        )
        paid += len(moved)
    assert paid > WORLDS / 8


def test_a_scenario_asks_for_it_and_others_keep_their_ids() -> None:
    text = """
        domain: cluster
        trace: {published: {jobs: 30, mean_gap_s: 200}}
        machines: {nodes: [{count: 4, gpus: 8}]}
        profile:
          - analytic: balanced
            kinds: [[resnet50, 64], [resnet50, 128], [resnet50, 256], [vgg16, 64], [vgg16, 128], [vgg16, 256],
                    [inception3, 64], [inception3, 128], [gpt2, 128], [gpt2, 256], [bert, 64], [bert, 128],
                    [deepspeech2, 32], [deepspeech2, 64]]
    """
    kept, free = forerun.loads(text, ["placement_kept=true"]), forerun.loads(text)
    assert content_id(kept, "1") != content_id(free, "1")
    before = to_data(free)
    for spec, data in (
        (free, before),
        (free.trace, before["trace"]),
        (free.machines, before["machines"]),
        (free.costs, before["costs"]),
    ):
        for name in spec.added_later:
            assert not data.pop(name)
    assert content_id(free, "1") == hashlib.sha256(b"1\0" + canonical_json(before)).hexdigest()[:16]
    with pytest.raises(ScenarioError, match="placement_kept: is false; real jobs move only when they must"):
        forerun.loads(text, ["placement_kept=false", "live={}"])
    assert forerun.simulate(kept).summary["deadlines_met"] > 0
