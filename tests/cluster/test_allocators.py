"""Policies with a view: laws on random settings, views and allocations, nodes, quotas, bad input, commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forerun
from forerun.cluster.engine import engine_of
from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.priority import PriorityRules
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import NO_DEADLINE_S, Cluster, Jobs, NodeGroup, ThroughputTable
from forerun.cluster.inputs.files import read_cluster, read_jobs, read_profile
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.inputs.throughput import analytic
from forerun.cluster.policies.gavel_maxmin import GavelMaxMin, fair_shares
from forerun.cluster.policies.las import Las
from forerun.cluster.policies.priority import EdfRigid, Fifo, FifoBackfill, Sjf, Srtf
from forerun.cluster.policy import (
    Allocation,
    Allocator,
    OracleAllocator,
    PriorityPolicy,
    Schedule,
    View,
    schedulers,
)
from forerun.cluster.summary.ledgers import ledger_of
from forerun.cluster.summary.waits import stretches_of, waits_of
from forerun.core.errors import InputError, PolicyError, ScenarioError, TraceError
from forerun.core.scenarios import load, loads
from forerun.core.trace.repair import RepairLog

from ..conftest import cases
from .conftest import rules_of, waited

RIGID = (Fifo(), Sjf(), Srtf(), EdfRigid())
PROFILE = analytic([("a", 64), ("b", 32)], "balanced", levels=(1, 2, 4, 8))


def jobs(
    submit: list[int],
    work: list[int],
    gpus: list[int] | None = None,
    deadline: list[int] | None = None,
    kind: list[int] | None = None,
    user: list[str] | None = None,
) -> Jobs:
    """Jobs from a few columns; iterations follow from the profile where a kind is given."""
    count = len(submit)
    gpus = gpus or [1] * count
    kinds = np.array(kind or [-1] * count)
    rate = PROFILE.rate_at()
    iterations = [max(1, int(w * rate[k, g])) if k >= 0 else 0 for w, g, k in zip(work, gpus, kinds)]
    due = np.array(deadline or [NO_DEADLINE_S] * count)
    return Jobs(
        file_row=np.arange(count),
        id=tuple(range(count)),
        submit_s=np.array(submit, np.int64),
        deadline_s=due.astype(np.int64),
        iterations=np.array(iterations, np.int64),
        kind=kinds.astype(np.int64),
        model=tuple(PROFILE.kinds[k][0] if k >= 0 else "" for k in kinds),
        batch=np.array([PROFILE.kinds[k][1] if k >= 0 else 0 for k in kinds], np.int64),
        gpus=np.array(gpus, np.int64),
        duration_s=np.array(work, np.int64),
        best_effort=due >= NO_DEADLINE_S,
        user=tuple(user or [""] * count),
        written_deadline_s=due.astype(np.int64),
    )


def cluster_of(nodes: int = 2, gpus: int = 4) -> Cluster:
    return Cluster.uniform(1, nodes, gpus)


def play(policy: Any, setting: Setting, terms: Terms | None = None) -> Record:
    record = Record(setting)
    if isinstance(policy, Schedule):
        run_rules(rules_of(policy, setting, record))
    else:
        scheduler = policy.build(np.random.default_rng(0))
        run_rules(AllocatorRules(setting, record, policy, scheduler, terms or Terms()))
    return record


# -- laws --------------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> Setting:
    count = draw(st.integers(1, 14))
    gaps = draw(st.lists(st.integers(0, 400), min_size=count, max_size=count))
    work = draw(st.lists(st.integers(1, 1500), min_size=count, max_size=count))
    size = draw(st.lists(st.sampled_from([1, 1, 2, 4, 8]), min_size=count, max_size=count))
    slack = draw(st.lists(st.integers(-50, 3000), min_size=count, max_size=count))
    effort = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    kinds = draw(st.lists(st.sampled_from([0, 1]), min_size=count, max_size=count))
    users = draw(st.lists(st.sampled_from(["u", "v"]), min_size=count, max_size=count))
    submit = np.cumsum(gaps).tolist()
    due = [NO_DEADLINE_S if e else s + w + k for s, w, k, e in zip(submit, work, slack, effort)]
    return Setting(
        jobs(submit, work, size, due, kinds, users),
        cluster_of(),
        PROFILE,
        draw(st.sampled_from([30, 60])),
        "A100",
    )


def assert_laws(record: Record) -> None:
    """Capacity, conservation of jobs, causality of starts, waits and ledger that sum."""
    setting = record.setting
    times, rows, gpus = record.changes()
    held = np.zeros(len(setting.jobs), np.int64)
    for at in range(len(times)):
        held[rows[at]] = gpus[at]
        if at + 1 == len(times) or times[at + 1] > times[at]:
            assert 0 <= held.sum() <= setting.cluster.gpus, f"at {times[at]}"
            assert (held >= 0).all()
    ended = record.end_s >= 0
    refused = record.admitted == 0
    assert not (ended & refused).any()
    assert (
        record.first_start_s[record.first_start_s >= 0] >= setting.jobs.submit_s[record.first_start_s >= 0]
    ).all()
    assert (record.end_s[ended] >= setting.jobs.submit_s[ended]).all()
    stretches = stretches_of(record)
    waits = waits_of(record, stretches)
    ledger_of(record, stretches, waits).check()
    for cause in (*waits.by_cause().values(), waits.running):
        assert (cause >= -1e-6).all()
    whole = np.where(ended, record.end_s - setting.jobs.submit_s, 0.0)
    np.testing.assert_allclose(waits.total()[ended], whole[ended], atol=1e-6)


@given(
    setting=worlds(), placement=st.sampled_from(["first-fit", "best-fit", "consolidated", "buddy", "random"])
)
@settings(max_examples=cases(25))
def test_no_gpu_of_a_node_has_two_jobs(setting: Setting, placement: str) -> None:
    record = Record(setting)
    recipe = FifoBackfill()
    terms = Terms(placement=placement, restart_s=5.0)
    rules = AllocatorRules(setting, record, recipe, recipe.build(np.random.default_rng(0)), terms)

    def look(now_s: float, _: Any) -> None:
        state = rules.state
        owners, counts = np.unique(state.owner[state.owner >= 0], return_counts=True)
        np.testing.assert_array_equal(counts, state.i[0, owners])
        assert state.type_free.sum() == np.count_nonzero(state.owner < 0)

    run_rules(rules, [lambda now_s: look(now_s, None)])
    assert (record.end_s >= 0).all()
    assert_laws(record)


@given(setting=worlds(), recipe=st.sampled_from(RIGID))
@settings(max_examples=cases(50))
def test_compiled_queue_agrees_with_sorting_all_jobs(setting: Setting, recipe: PriorityPolicy) -> None:
    """Two heaps and a pointer, against sorting all jobs at every event."""
    plain = Setting(setting.jobs.take(range(len(setting.jobs))), setting.cluster, None, setting.slot_s)
    fast = Record(plain)
    run_rules(PriorityRules(plain, fast, recipe, Terms()))
    slow = play(recipe, plain)
    np.testing.assert_allclose(fast.end_s, slow.end_s, atol=1e-6)
    np.testing.assert_allclose(fast.first_start_s, slow.first_start_s, atol=1e-6)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40)), min_size=1, max_size=6))
@settings(max_examples=cases(40))
def test_srtf_has_the_least_mean_completion_time_on_one_gpu(drawn: list[tuple[int, int]]) -> None:
    """Schrage, 1968: against every policy here that runs rigid jobs."""
    drawn.sort()
    setting = Setting(jobs([s for s, _ in drawn], [w for _, w in drawn]), cluster_of(1, 1), None, 60)
    best = play(Srtf(), setting).end_s.mean()
    for other in (Fifo(), Sjf(), EdfRigid(), Las(round_s=1.0)):
        assert best <= play(other, setting).end_s.mean() + 1e-9


@given(setting=worlds(), cut=st.integers(1, 13))
@settings(max_examples=cases(25))
def test_what_comes_later_changes_nothing_before(setting: Setting, cut: int) -> None:
    """Causality: without the last jobs, everything before they come is the same."""
    count = max(1, len(setting.jobs) - cut)
    short = Setting(
        setting.jobs.take(range(count)), setting.cluster, setting.profile, setting.slot_s, setting.gpu_type
    )
    until = setting.jobs.submit_s[count] if count < len(setting.jobs) else np.inf
    for recipe in (Srtf(), FifoBackfill(), Las()):
        whole, part = play(recipe, setting), play(recipe, short)
        for one, other in zip(whole.changes(), part.changes()):
            seen = np.count_nonzero(whole.changes()[0] < until)
            np.testing.assert_array_equal(one[:seen], other[:seen])


# -- views and allocations -----------------------------------------------------------------------------------------


class Longest(Allocator, tag="longest-waiting-first", frozen=True):
    """A user's policy: twelve lines."""

    round_s: float = 60.0

    def build(self, rng: np.random.Generator) -> Any:
        return LongestScheduler()


class LongestScheduler:
    def allocate(self, view: View) -> Allocation:
        return view.take(np.argsort(-view.unchanged_s, kind="stable"))


def test_a_policy_in_twelve_lines_runs_all_jobs():
    setting = Setting(jobs([0, 0, 30, 90], [100, 300, 50, 10], [4, 8, 2, 2]), cluster_of(), None, 60)
    record = play(Longest(), setting)
    assert (record.end_s >= 0).all()
    assert_laws(record)


def cook_of(answer: Any) -> Any:
    class Scheduler:
        def allocate(self, view: View) -> Any:
            return answer(view)

    class Odd(Allocator, tag="odd", frozen=True):
        """A policy that misbehaves."""

        def build(self, rng: np.random.Generator) -> Any:
            return Scheduler()

    return Odd()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda view: Allocation(np.full(view.count, 8)), "count it cannot run on"),
        (lambda view: Allocation(np.full(view.count, -1)), "not negative"),
        (lambda view: Allocation(view.gpus * 1 + 0 * view.held), "more than the 8"),
        (lambda view: Allocation(np.ones(view.count + 1, np.int64)), "shape"),
        (lambda view: Allocation(np.full(view.count, np.nan)), "nan"),
        (lambda view: {"job": 1}, "dict"),
        (lambda view: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_impossible_allocations_are_named(answer, said):
    setting = Setting(jobs([0, 0, 0], [100, 100, 100], [4, 4, 4]), cluster_of(), None, 60)
    with pytest.raises(PolicyError, match=said) as found:
        play(cook_of(answer), setting)
    assert "t=0 s" in str(found.value)


def test_a_policy_that_starves_all_jobs_ends_the_run_and_says_so():
    setting = Setting(jobs([0, 10], [100, 100]), cluster_of(), None, 60)
    record = play(cook_of(lambda view: Allocation(np.zeros(view.count, np.int64))), setting)
    assert "gives GPUs to none of 2 waiting jobs" in record.ended_because
    assert not (record.end_s >= 0).any()


def test_only_oracles_see_the_work_left():
    assert not hasattr(View(1, np.zeros((1, 1, 1)), np.array([1])), "left_s")
    assert issubclass(Srtf, OracleAllocator) and not issubclass(Las, OracleAllocator)


def test_elastic_allocations_speed_jobs_up_by_their_profile():
    setting = Setting(jobs([0], [1000], [1], kind=[0]), cluster_of(), PROFILE, 60)
    rate = PROFILE.rate_at()[0]
    record = play(cook_of(lambda view: Allocation(np.full(view.count, 4))), setting)
    assert record.end_s[0] == pytest.approx(setting.jobs.iterations[0] / rate[4], rel=1e-9)


def test_restarts_cost_what_the_scenario_says():
    setting = Setting(jobs([0, 10], [100, 20], [8, 8]), cluster_of(), None, 60)
    record = play(Srtf(), setting, Terms(restart_s=7.0))
    assert record.end_s.tolist() == [127.0, 30.0]
    waits = waits_of(record, stretches_of(record))
    assert waits.reconfiguration.tolist() == [7.0, 0.0]


# -- nodes, types, quotas --------------------------------------------------------------------------------------------


def test_a_job_waits_for_one_node_though_enough_gpus_are_free():
    """Two nodes of 4: jobs of 3 and 3 leave 1 + 1; a job of 2 waits for fragmentation, consolidated it runs split."""
    setting = Setting(jobs([0, 0, 10], [100, 200, 50], [3, 3, 2]), cluster_of(), None, 60)
    spread = play(Fifo(), setting, Terms(placement="first-fit"))
    assert spread.first_start_s.tolist() == [0, 0, 100]
    assert waited(spread, Fifo(), Terms(placement="first-fit"))["fragmentation"].tolist() == [0, 0, 90]
    together = play(Fifo(), setting, Terms(placement="consolidated", penalty=(1.0, 1.0, 0.5)))
    assert together.first_start_s[2] == 10 and together.end_s[2] == pytest.approx(110.0)


def test_quotas_bind_and_idle_gpus_can_be_borrowed():
    setting = Setting(
        jobs([0, 0, 5], [100, 100, 40], [4, 4, 4], user=["u", "u", "v"]), cluster_of(), None, 60
    )
    hard = play(FifoBackfill(), setting, Terms(quota=np.array([4, 4, 0])))
    assert hard.first_start_s.tolist() == [0, 100, 5]
    # also from 5 to 45 s, when no GPU is free
    assert waited(hard, FifoBackfill(), Terms(quota=np.array([4, 4, 0])))["limit"][1] == pytest.approx(100.0)
    lent = play(Las(round_s=5.0), setting, Terms(quota=np.array([4, 4, 1])))
    assert lent.first_start_s.tolist() == [0, 0, 5]


def test_heterogeneous_shares_are_max_min_fair():
    """Opposite tastes: each job gets its own type whole, 4 against an equal share's 2.5; and shares stay feasible."""
    share = fair_shares(np.array([[4.0, 1.0], [1.0, 4.0]]), np.ones(2, np.int64), np.array([1, 1]))
    np.testing.assert_allclose(share, np.eye(2), atol=1e-9)
    speed = np.array([[4.0, 1.0], [3.0, 1.0], [2.0, 1.0]])
    share = fair_shares(speed, np.ones(3, np.int64), np.array([1, 2]))
    relative = (speed * share).sum(axis=1) / (speed @ (np.array([1, 2]) / 3))
    assert relative.min() >= 1 - 1e-9
    assert (share.sum(axis=1) <= 1 + 1e-9).all() and (share.sum(axis=0) <= np.array([1, 2]) + 1e-9).all()


def test_gavel_runs_each_job_on_one_type_at_a_time():
    fast = ThroughputTable("fast", PROFILE.kinds, PROFILE.levels, PROFILE.rate * 3, PROFILE.largest_column)
    slow = ThroughputTable("slow", PROFILE.kinds, PROFILE.levels, PROFILE.rate, PROFILE.largest_column)
    nodes = Cluster((NodeGroup("x", 1, 4, "slow"), NodeGroup("y", 1, 4, "fast")))
    made = jobs([0, 0, 0, 0], [2000, 2000, 3000, 500], [4, 4, 2, 2], kind=[0, 1, 0, 1])
    record = play(GavelMaxMin(round_s=60.0), Setting(made, nodes, slow, 60, "slow", profiles=(slow, fast)))
    assert (record.end_s >= 0).all()
    assert_laws(record)


# -- files -------------------------------------------------------------------------------------------------------------


HEADERS = {
    "native": "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
    "7,5,10,a,90,64,2,30,1\n",
    "microsoft": "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
    "x-1,5,10,a,90,64,2,30",
    "philly": "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration"
    "\n"
    "7,5,99,a,90,64,2,99,30,10",
    "raw": "job_id,submission_time,duration,num_gpu\n7,5,30,2\n",
}


@pytest.mark.parametrize("name", HEADERS)
def test_all_four_headers_are_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(HEADERS[name])
    jobs = read_jobs(path).jobs
    assert (jobs.submit_s, jobs.duration_s, jobs.gpus) == ([5], [30], [2])
    assert jobs.id == ("x-1",) if name == "microsoft" else (7,)
    if name != "raw":
        assert (jobs.iterations, jobs.written_deadline_s) == ([10], [90])
    assert jobs.best_effort == [name in ("native", "raw")]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1,5.5,10,a,90,64,2,30", "jobs.csv:2:submit_time: '5.5' is not a whole number"),
        ("1,-5,10,a,90,64,2,30", "jobs.csv:2:submit_time: -5 is negative"),
        ("1,5,10,a,90,64,2,0", "no usable job is left; all take zero seconds"),
        ("1,5,10,a,90,64,0,30", "jobs.csv:2:num_gpu: 0 is below 1"),
        ("1,5,10,a,90,64,2", "has 7 cells, 8 are expected"),
        ("1,x,10,a,90,64,2,30", "jobs.csv:2:submit_time: 'x' is not a number"),
        ("1,5,10,a,90,64,2,30\n1,6,10,a,90,64,2,30", "already used on line 2"),
    ],
)
def test_bad_rows_are_named_with_line_and_field(row: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n" + row)
    with pytest.raises(TraceError, match=said) as found:
        read_jobs(path)
    assert "jobs.csv:" in str(found.value)


def test_a_mark_and_crlf_are_repaired_and_utf_16_is_refused(tmp_path: Path) -> None:
    path, notes = tmp_path / "jobs.csv", RepairLog()
    path.write_bytes(HEADERS["raw"].replace("\n", "\r\n").encode("utf-8-sig"))
    assert read_jobs(path, notes).jobs.gpus == [2]
    assert [repair.rule for repair in notes.repairs] == [
        "byte-order mark dropped",
        "CRLF line ends read as LF",
    ]
    path.write_bytes(HEADERS["raw"].encode("utf-16"))
    with pytest.raises(TraceError, match="the file is UTF-16; save it as UTF-8"):
        read_jobs(path)


def test_holes_zeros_and_nan_in_throughput_are_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("global_batch_size,1,2,4,8\r\n64,1.5,nan,0,\r\n")
    profile = read_profile(tmp_path, "X")
    assert profile.rate[0, 0] == 1.5 and np.isnan(profile.rate[0, [1, 3]]).all() and profile.rate[0, 2] == 0
    assert profile.largest_column[0] == 8
    (tmp_path / "a.csv").write_text("global_batch_size,1,2\n64,-1,x\n")
    with pytest.raises(InputError) as found:
        read_profile(tmp_path, "X")
    assert len(found.value.problems) == 2


def test_cluster_files_say_what_they_miss(tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    path.write_text("num_switch num_node_p_switch num_gpu_p_node num_cpu_p_node mem_p_node\n2 3 4 8 16")
    assert read_cluster(path).gpus == 24
    path.write_text("num_switch num_node_p_switch\n2 3")
    with pytest.raises(ScenarioError, match="num_gpu_p_node"):
        read_cluster(path)


# -- doors -------------------------------------------------------------------------------------------------------------

DEMO = Path(forerun.__file__).parent / "cluster" / "demo.yaml"


def test_a_log_without_models_answers_who_waits(tmp_path: Path) -> None:
    """A newcomer's CSV: four columns, fifty jobs."""
    rng = np.random.default_rng(5)
    rows = [f"{i},{int(t)},{int(d)},{g}" for i, (t, d, g) in enumerate(
        zip(np.cumsum(rng.integers(1, 300, 50)), rng.integers(60, 4000, 50), rng.choice([1, 2, 4, 8], 50))
    )]  # fmt: skip
    (tmp_path / "jobs.csv").write_text("job_id,submission_time,duration,num_gpu\n" + "\n".join(rows))
    (tmp_path / "cluster.yaml").write_text(
        "domain: cluster\ntrace: {file: jobs.csv}\nmachines: {nodes: [{count: 2, gpus: 8}]}\npolicy: srtf\n"
    )
    result = forerun.simulate(load(tmp_path / "cluster.yaml")).check()
    assert result.summary["finished_jobs"] == 50
    assert any("no model" in note for note in result.notes)


def test_a_job_larger_than_the_cluster_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job_id,submission_time,duration,num_gpu\nbig,0,10,64\n")
    text = (
        "domain: cluster\ntrace: {file: jobs.csv}\nmachines: {nodes: [{count: 2, gpus: 8}]}\npolicy: fifo\n"
    )
    with pytest.raises(TraceError, match=r"jobs\.csv:2: job big: asks for 64 GPUs, the cluster has 16"):
        forerun.simulate(loads(text, base=tmp_path))


@pytest.mark.parametrize(
    "policy", ["srtf", "las", "fifo-backfill-unreserved", "ef-accessctrl", "edf", "gandiva", "themis"]
)
def test_the_demonstration_runs_under_every_kind_of_policy(policy: str) -> None:
    result = forerun.simulate(load(DEMO, [f"policy={policy}", "trace.generate.jobs=60"])).check()
    assert result.summary["finished_jobs"] + result.summary["refused_jobs"] == 60
    assert result.timeline is not None


def test_a_switch_can_be_set_alone() -> None:
    scenario = load(DEMO, ["cluster.mode=compat", "cluster.compat.marginal_order=corrected"])
    assert engine_of(scenario).corrected == {"marginal_order"}
    with pytest.raises(ScenarioError, match="did you mean 'marginal_order'"):
        load(DEMO, ["cluster.compat.marginal_ordr=corrected"])


def test_refusals_name_what_binds() -> None:
    result = forerun.simulate(load(DEMO, ["trace.generate.least_slack=0.1", "trace.generate.most_slack=0.6"]))
    refused = result.tables["jobs"]["refused_because"]
    told = [text for text in refused if text]
    assert len(told) == result.summary["refused_jobs"] > 0
    assert any(text.startswith("own speed") for text in told)
    assert all(text.startswith(("own speed", "capacity in", "job ", "it would", "with it")) for text in told)


def test_scaling_efficiency_is_throughput_over_one_gpu_throughput() -> None:
    """One elastic job held at 4 GPUs throughout: its work is worth rate(4) / rate(1) GPUs of the four it held."""
    from forerun.cluster.summary.waits import one_gpu_work

    setting = Setting(jobs([0], [1000], [1], kind=[0]), cluster_of(), PROFILE, 60)
    record = play(cook_of(lambda view: Allocation(np.full(view.count, 4))), setting)
    stretches = stretches_of(record)
    held, worth = one_gpu_work(record, stretches, waits_of(record, stretches))
    rate = PROFILE.rate_at()[0]
    assert held == pytest.approx(4 * record.end_s[0])
    assert worth / held == pytest.approx(rate[4] / rate[1] / 4)
    assert worth == pytest.approx(setting.jobs.iterations[0] / rate[1])


def test_the_figure_of_each_gpu_shows_its_jobs() -> None:
    """One track a GPU: seconds drawn on all tracks are the GPU time held, and no track holds two jobs at once."""
    from forerun.cluster.figures import figures

    result = forerun.simulate(load(DEMO, ["policy=srtf", "trace.generate.jobs=40", "placement=best-fit"]))
    drawn = {figure.id: figure for figure in figures(result)}["gpus-by-job"].data
    seconds = drawn["to_s"] - drawn["from_s"]
    assert seconds.sum() == pytest.approx(result.tables["jobs"]["gpu_s"].sum())
    assert len(set(drawn["gpu"].tolist())) <= result.summary["gpus"]
    for gpu in set(drawn["gpu"].tolist()):
        mine = drawn["gpu"] == gpu
        order = np.argsort(drawn["from_s"][mine])
        assert (drawn["to_s"][mine][order][:-1] <= drawn["from_s"][mine][order][1:] + 1e-9).all()


def test_every_policy_is_documented() -> None:
    """Each class says its paper, what it needs and guarantees, and its cost."""
    for name in schedulers().names():
        policy = schedulers().get(name)
        assert policy.paper and policy.needs and policy.guarantees and policy.cost, name


def test_no_completion_time_is_below_zero(tmp_path: Path) -> None:
    """Three jobs of very different lengths: their mean's interval is wide, and still of times."""
    (tmp_path / "jobs.csv").write_text(
        "job_id,submission_time,duration,num_gpu\na,0,50,1\nb,0,60,1\nc,0,90000,1\n"
    )
    (tmp_path / "cluster.yaml").write_text(
        "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 1, gpus: 8}]}\npolicy: fifo\n"
    )
    found = forerun.simulate(load(tmp_path / "cluster.yaml"))
    assert (
        found.intervals["jct_mean_s"].low
        == 0
        < found.summary["jct_mean_s"]
        < found.intervals["jct_mean_s"].high
    )
