"""Costs of restarting, scaling and moving by model and change: what is charged is what the table says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.costs import PRESETS, CostTable, cost_table, plain, read_costs
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import Allocation, Allocator, View, schedulers
from forerun.cluster.summary.ledgers import ledger_of
from forerun.cluster.summary.waits import stretches_of, waits_of
from forerun.cluster.testing import drawn_world
from forerun.core.cli.main import run as forerun
from forerun.core.errors import ScenarioError
from forerun.replication.elasticflow.known_bugs import SWITCHES
from forerun.replication.elasticflow.schedules.plan_ahead import PublishedElasticFlow
from forerun.replication.elasticflow.schedules.themis import Themis
from forerun.replication.elasticflow.schedules.tiresias import Tiresias

from .conftest import play, setting, switched

OWN = {
    "a": {"1->2": 2.5, "2->1": 1.25, "4->8": 4.5, "8->4": 3.0, "migrate": 7.0, "restart": 9.5},
    "b": {"1->2": 0.5, "8->4": 6.0, "migrate": 5.75},
}


def table(made: Setting, costs: dict[str, dict[str, float]] = OWN) -> Setting:
    return replace(made, costs=cost_table(costs, made.jobs, plain(11.0, 1.0, 2.0), "here", "a test"))


def charged(record: Record) -> dict[int, list[tuple[float, float, int]]]:
    """What each job should have paid by the table, from its allocation changes alone: (instant, seconds, GPUs after)."""
    costs = record.setting.costs
    assert costs is not None
    times, rows, gpus = record.changes()
    found: dict[int, list[tuple[float, float, int]]] = {}
    held: dict[int, int] = {}
    for time_s, row, after in zip(times.tolist(), rows.tolist(), gpus.tolist(), strict=True):
        before = held.get(row)
        held[row] = after
        if after and before is not None and after != before:
            found.setdefault(row, []).append((time_s, costs.change_s(row, before, after), after))
    return found


class Restless(Allocator, tag="restless-in-a-test", frozen=True, kw_only=True):
    """Gives everybody another count every two minutes, as drawn."""

    round_s: float = 120.0

    def build(self, rng: np.random.Generator) -> Any:
        outer = rng

        class Scheduler:
            def allocate(self, view: View) -> Allocation:
                gpus, free = np.zeros(view.count, np.int64), view.total
                for at in outer.permutation(view.count).tolist():
                    counts = [int(view.gpus[at])] if view.kind[at] < 0 else [1, 2, 4, 8]
                    wanted = int(outer.choice(counts))
                    if wanted <= free and outer.random() < 0.8:
                        gpus[at] = wanted
                        free -= wanted
                return Allocation(gpus)

        return Scheduler()


# -- the table -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", PRESETS["elasticflow"])
def test_measured_changes_cost_what_was_measured_and_others_lie_between(model: str) -> None:
    made = drawn_world(3)
    jobs = replace(made.setting.jobs, model=(model,) * len(made.setting.jobs))
    costs = cost_table(PRESETS["elasticflow"], jobs, plain(0, 0, 0), "here")
    given = PRESETS["elasticflow"][model]
    assert costs.change_s(0, 1, 2) == given["1->2"]
    assert costs.change_s(0, 2, 1) == given["2->1"]
    assert costs.change_s(0, 8, 16) == pytest.approx(given["8->16"])
    assert costs.change_s(0, 16, 8) == pytest.approx(given["16->8"])
    assert costs.change_s(0, 8, 8) == given["migrate"] == costs.change_s(0, 0, 8)
    low, high = sorted((given["1->2"], given["8->16"]))
    assert low <= costs.change_s(0, 2, 4) <= costs.change_s(0, 2, 4) <= high
    # a third of the way from 2 to 16 in the logarithm
    assert costs.change_s(0, 1, 4) == pytest.approx(given["1->2"] + (given["8->16"] - given["1->2"]) / 3)
    assert costs.change_s(0, 32, 64) == given["8->16"], "the nearest measured beyond the measured"
    levels = np.array([1, 2, 4, 8, 16])
    for i, before in enumerate((0, *levels.tolist())):
        for k, after in enumerate(levels.tolist(), 1):
            assert costs.between(levels)[costs.row[0], i, k] == pytest.approx(
                costs.change_s(0, before, after)
            )
    most = np.full(len(jobs), 16)
    assert costs.worst_s(most)[0] == pytest.approx(max(given.values()))


def test_jobs_without_a_model_pay_the_plain_seconds_and_a_star_is_for_the_rest() -> None:
    jobs = drawn_world(3).setting.jobs
    models = ("a", "", "other", *jobs.model[3:])
    costs = cost_table(
        {**OWN, "*": {"1->2": 1.0, "2->1": 1.0}}, replace(jobs, model=models), plain(11, 1, 2), "here"
    )
    assert [costs.change_s(at, 0, 4) for at in range(3)] == [9.5, 11.0, 1.0]
    assert [costs.change_s(at, 2, 4) for at in range(3)] == [3.5, 1.0, 1.0]


def test_a_file_says_the_same_as_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "costs.csv").write_text(
        "model,1->2,2->1,4->8,8->4,migrate,restart\na,2.5,1.25,4.5,3,7,9.5\nb,0.5,,,6,5.75,\n"
    )
    assert read_costs(tmp_path / "costs.csv") == OWN


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,1->2,2->1\na,1,x\n", "costs.csv:2: 2->1 is 'x'; seconds are expected"),
        ("model,1->2,2->1\na,1,-1\n", "costs.csv:2: 2->1 is -1 s; a finite number from 0"),
        ("model,1->2,2->1\na,1,nan\n", "costs.csv:2: 2->1 is nan s"),
        ("model,1->2,2=>1\na,1,1\n", "costs.csv:2: '2=>1' is no change; known: migrate, restart"),
        ("model,1->2,migrate\na,1,1\n", r"costs.csv:2: has no seconds for shrinking \(2->1\)"),
        ("model,1->2,2->1\na,1,1\na,1,1\n", "costs.csv:3: model 'a' has a row already"),
        ("model,1->2,2->1\na,1\n", "costs.csv:2: has 2 fields, the header has 3"),
        ("name,1->2\na,1\n", "costs.csv:1: is no table of costs; the header is model,1->2"),
    ],
)
def test_tables_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "costs.csv").write_text(text)
    with pytest.raises(ScenarioError, match=said):
        read_costs(tmp_path / "costs.csv")


SCENARIO = """domain: cluster
trace: {file: jobs.csv}
machines: {nodes: [{name: n, count: 1, gpus: 4}]}
profile: [{tables: [bert.csv]}]
policy: srtf
placement: first-fit
costs: %s
"""
HEADER = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ("{preset: elasticflw}", ["costs.preset", "did you mean 'elasticflow'?"]),
        (
            "{models: {brt: {1->2: 1, 2->1: 1}}}",
            ["$.costs.models", "model 'bert' (2 jobs)", "did you mean 'brt'?"],
        ),
        ("{models: {bert: {1->2: 1}}}", ["costs.models.bert", "has no seconds for shrinking"]),
        (
            "{preset: elasticflow, models: {bert: {1->2: 1, 2->1: 1}}}",
            ["preset and models; give one table of costs"],
        ),
        ("{file: gone.csv}", ["gone.csv"]),
    ],
)
def test_costs_that_cannot_be_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, costs: str, said: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bert.csv").write_text("global_batch_size,1,2,4\n64,1,2,4\n")
    Path("jobs.csv").write_text(HEADER + "x,0,4000,bert,90000,64,4,1000\ny,100,400,bert,90000,64,4,100\n")
    Path("s.yaml").write_text(SCENARIO % costs)
    assert forerun(["simulate", "s.yaml", "-o", "kept"]) == 2
    err = capsys.readouterr().err
    assert all(text in err for text in said), err
    assert all(line.startswith("forerun: ") for line in err.splitlines()) and not Path("kept").exists()


def test_a_user_sees_the_seconds_of_the_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """x is preempted by y and starts again: 3.191 s of bert's migration on 4 GPUs."""
    monkeypatch.chdir(tmp_path)
    Path("bert.csv").write_text("global_batch_size,1,2,4\n64,1,2,4\n")
    Path("jobs.csv").write_text(HEADER + "x,0,4000,bert,90000,64,4,1000\ny,100,400,bert,90000,64,4,100\n")
    Path("s.yaml").write_text(SCENARIO % "{preset: elasticflow}")
    assert forerun(["simulate", "s.yaml", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["summary"]["wait_reconfiguration_mean_s"] == pytest.approx(3.191 / 2)
    assert told["summary"]["makespan_s"] == pytest.approx(1103.191)
    assert any("published medians (Gu et al., ElasticFlow" in note for note in told["notes"])


# -- what is charged -----------------------------------------------------------------------------------------------


def test_the_ledger_holds_what_the_table_charges_under_a_policy_of_ones_own() -> None:
    """Seconds of reconfiguration of every job, and overhead in the ledger of GPU time."""
    changes = 0
    for number in range(60):
        scene = drawn_world(number)
        if scene.setting.profiles:
            continue
        made = table(scene.setting)
        record = Record(made)
        recipe = Restless()
        run_rules(AllocatorRules(made, record, recipe, recipe.build(np.random.default_rng(number)), Terms()))
        assert (record.end_s >= 0).all(), str(scene)
        stretches = stretches_of(record)
        waits = waits_of(record, stretches)
        due = charged(record)
        seconds = [sum(cost for _, cost, _ in due.get(row, [])) for row in range(len(made.jobs))]
        np.testing.assert_allclose(waits.reconfiguration, seconds, atol=1e-6, err_msg=str(scene))
        ledger = ledger_of(record, stretches, waits)
        gpu_s = sum(cost * after for pairs in due.values() for _, cost, after in pairs)
        assert ledger.parts["overhead"] == pytest.approx(gpu_s, abs=1e-6), str(scene)
        changes += sum(map(len, due.values()))
    assert changes > 400


def worked_out_end_s(record: Record, row: int) -> float:
    """When a job is done, from its allocation changes and the table alone; the first start is free."""
    setting, costs = record.setting, record.setting.costs
    assert setting.profile is not None and costs is not None
    rate = setting.profile.rate_at()[setting.jobs.kind[row]]
    times, rows, gpus = record.changes()
    mine = rows == row
    left, since_s, held, begun = float(setting.jobs.iterations[row]), 0.0, 0, False
    for time_s, after in zip([*times[mine].tolist(), np.inf], [*gpus[mine].tolist(), 0], strict=True):
        if held and left <= max(0.0, time_s - since_s) * rate[held] + 1e-6:
            return since_s + left / rate[held]
        left -= max(0.0, time_s - since_s) * rate[held] if held else 0.0
        since_s = time_s + (costs.change_s(row, held, after) if after and begun else 0.0)
        held, begun = after, begun or after > 0
    raise AssertionError(f"job {row} never ends by its allocations")


def test_corrected_elasticflow_pays_what_the_table_says_and_no_more() -> None:
    """Ends worked out from the allocations alone, to the second; overhead in seconds by the table."""
    from ..replication.test_admitted_in_time import drawn_world as another

    rng = np.random.default_rng(7)
    seen = paid = 0
    for _ in range(60):
        made = another(rng)
        record = play(PublishedElasticFlow(), table(made, {"m": OWN["a"], "n": OWN["b"]}))
        waits = waits_of(record, stretches_of(record))
        due = charged(record)
        for row in np.flatnonzero(record.end_s >= 0).tolist():
            end_s = worked_out_end_s(record, row)
            assert record.end_s[row] - 1.001 <= end_s <= record.end_s[row] + 1e-5
            seconds = sum(cost for time_s, cost, _ in due.get(row, []) if time_s < end_s)
            assert seconds - 1e-5 <= waits.reconfiguration[row] <= seconds + 1.001
            seen, paid = seen + 1, paid + (seconds > 0)
    assert seen > 300 and paid > 100


@pytest.mark.parametrize("policy", [Tiresias(), Themis()], ids=["dlas-gpu", "themis"])
def test_rigid_schedules_pay_for_each_start_after_the_first(policy: Any) -> None:
    """In whole seconds, rounded up; long slots, so that no restart is cut short."""
    switches = frozenset({"cost_table", "themis_overhead"})
    paid = 0
    for number in range(40):
        scene = drawn_world(number, published=True)
        jobs = replace(scene.setting.jobs, duration_s=scene.setting.jobs.duration_s * 10)
        jobs = replace(jobs, iterations=jobs.iterations * 10)
        made = table(switched(replace(scene.setting, jobs=jobs, slot_s=60), switches))
        record = play(policy, made)
        assert made.costs is not None
        _, rows, gpus = record.changes()
        for row in range(len(jobs)):
            starts = np.count_nonzero((rows == row) & (gpus > 0))
            each = int(np.ceil(made.costs.change_s(row, 0, int(jobs.gpus[row]))))
            assert record.overhead_s[row] <= each * (starts - 1)
            if starts > 1 and isinstance(policy, Themis):
                assert record.overhead_s[row] == each * (starts - 1)
            paid += record.overhead_s[row] > 0
    assert paid > 20


@pytest.mark.parametrize("name", ["ef", "edf-accessctrl", "gandiva"])
def test_the_other_schedules_follow_the_table_too(name: str) -> None:
    """Dearer changes leave less of the held GPU time useful; as published the table changes nothing."""
    dear = {"*": {"1->2": 25.0, "2->1": 25.0, "restart": 25.0, "migrate": 25.0}}
    free = {"*": {"1->2": 0.0, "2->1": 0.0, "restart": 0.0, "migrate": 0.0}}
    overhead: dict[str, float] = {"dear": 0.0, "free": 0.0}
    for number in range(40):
        scene = drawn_world(number, published=True)
        policy = schedulers().get(name)()
        published = play(policy, scene.setting)
        assert play(policy, table(scene.setting, dear)).end_s.tolist() == published.end_s.tolist()
        switches = frozenset({"cost_table", "overhead_when_unchanged", "gandiva_between_arrivals"})
        for which, costs in (("dear", dear), ("free", free)):
            record = play(policy, table(switched(scene.setting, switches), costs))
            stretches = stretches_of(record)
            overhead[which] += ledger_of(record, stretches, waits_of(record, stretches)).parts["overhead"]
    assert overhead["dear"] > overhead["free"]


@pytest.mark.parametrize(
    ("name", "overhead_percent", "met", "mean_s"),
    [
        ("ef-accessctrl", (0.28, 0.27), (178, 178), (16_975, 17_083)),
        ("themis", (0.093, 0.066), (81, 81), (27_653, 27_608)),
        ("gandiva", (0.077, 0.030), (59, 60), (32_041, 31_716)),
    ],
)
def test_the_published_medians_on_the_testbed_trace(
    name: str, overhead_percent: tuple[float, float], met: tuple[int, int], mean_s: tuple[int, int]
) -> None:
    """What our page states: corrected, with the formula and with the preset; overhead in percent of all GPU time."""
    made = setting("195job.csv", "n16g8", 240, corrected=frozenset(SWITCHES))
    costs = cost_table(PRESETS["elasticflow"], made.jobs, plain(0, 0, 0), "here")
    assert isinstance(costs, CostTable)
    for at, scene in enumerate((made, replace(made, costs=costs))):
        record = play(schedulers().get(name)(), scene)
        ended = record.end_s >= 0
        in_time = ended & made.jobs.has_deadline & (record.end_s <= made.jobs.deadline_s)
        assert np.count_nonzero(in_time) == met[at]
        assert round(float((record.end_s - made.jobs.submit_s)[ended].mean())) == mean_s[at]
        stretches = stretches_of(record)
        parts = ledger_of(record, stretches, waits_of(record, stretches)).parts
        percent = 100 * parts["overhead"] / sum(parts.values())
        assert percent == pytest.approx(overhead_percent[at], abs=5e-3 if name == "ef-accessctrl" else 5e-4)
        if name == "ef-accessctrl":
            mine = record.admitted == 1
            assert (record.end_s[mine] <= made.jobs.deadline_s[mine]).all()
