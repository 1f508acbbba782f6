"""ElasticFlow and EDF as published: every reference run, every small setting, and the planner against its slow reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.kernels.planner import Grid, Ladder, Task, plan
from forerun.replication.elasticflow.schedules.plan_ahead import (
    AdmittingEdf,
    EarliestDeadlineFirst,
    ElasticScaling,
    PublishedElasticFlow,
)

from ..cluster.conftest import (
    assert_equals_reference,
    play,
    runs,
    setting,
    shared_or_skip,
    small_worlds,
)
from ..conftest import cases
from .reference_elastic import Job, Reference, tidy

RECIPES = {
    "ef": ElasticScaling(),
    "ef-accessctrl": PublishedElasticFlow(),
    "edf": EarliestDeadlineFirst(),
    "edf-accessctrl": AdmittingEdf(),
}
#: of logs that differ in their size or on clusters that do, where FORERUN_CASES is set
ALIKE = (
    "fig8b_cluster01",
    "fig8b_cluster02",
    "fig8b_cluster06",
    "fig8b_philly",
    "fig9_n8g8",
    "fig11_0.1_n8g8",
)
REFERENCE = [
    run for run in runs() if run["schedule"] in RECIPES and (cases(0) or not run["run"].startswith(ALIKE))
]


@pytest.mark.parametrize("run", REFERENCE or [None], ids=lambda run: run["run"] if run else "no data")
def test_reference_run(run):
    shared_or_skip()
    played = play(
        RECIPES[run["schedule"]], setting(run["trace"], run["cluster"], run["slot_s"], run["gpu_type"])
    )
    assert_equals_reference(played, run)


@pytest.mark.parametrize(
    ("trace", "cluster", "slot_s", "gpu_type", "first", "accepted"),
    [
        ("195job.csv", "n4g8", 240, "A100", 25, (18, 22, 22)),
        ("195job.csv", "n16g8", 240, "A100", 195, (146, 173, 176)),
        ("elasticVpollux_e.csv", "n16g4", 60, "T4", 195, (142, 153, 164)),
    ],
)
def test_admission_one_by_one(trace, cluster, slot_s, gpu_type, first, accepted):
    """Accepted as published, with `admission` corrected, and with `late_incumbent` as well."""
    whole = setting(trace, cluster, slot_s, gpu_type)
    scene = replace(whole, jobs=whole.jobs.take(range(first)))
    for switches, expected in zip(
        ((), ("admission",), ("admission", "late_incumbent")), accepted, strict=True
    ):
        played = play(PublishedElasticFlow(), replace(scene, corrected=frozenset(switches)))
        assert played.accepted == expected, switches


@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("schedule", list(RECIPES))
def test_small_setting(number, schedule):
    shared_or_skip()
    small = small_worlds()[number]
    shape = (small["switches"], small["nodes_per_switch"], small["gpus_per_node"])
    scene = setting(small["trace"], shape, small["slot_s"], small["gpu_type"])
    played = play(RECIPES[schedule], scene)
    wanted = small["runs"][schedule]
    assert played.accepted == wanted["accepted"]
    assert played.declined_count == wanted["declined"]
    assert len(played.events()[0]) == wanted["events"]
    ends = {str(row): end for row, end in zip(scene.jobs.file_row, played.end_s) if end >= 0}
    assert ends == {row: end for row, end in wanted["end"].items() if end is not None}
    admitted = {str(row): int(value != 0) for row, value in zip(scene.jobs.file_row, played.admitted)}
    assert admitted == wanted["admitted"]


@pytest.mark.parametrize("schedule", list(RECIPES))
@pytest.mark.parametrize("rows", [40, 70][: cases(1, 2)])
def test_reference_implementation_agrees_on_the_testbed_trace(schedule, rows):
    """The dictionary reference, written from the same rules, leaves the same ends and the same events."""
    full = setting("195job.csv", "n8g8", 240)
    scene = Setting(full.jobs.take(range(rows)), full.cluster, full.profile, 240)
    played = play(RECIPES[schedule], scene)
    reference = Reference(scene, schedule)
    getattr(reference, f"run_{schedule.replace('-', '_')}")()
    assert {row: int(end) for row, end in enumerate(played.end_s) if end >= 0} == reference.end
    assert played.events()[0].tolist() == [time_s for time_s, _, _ in reference.log]


@pytest.mark.parametrize(
    ("schedule", "seed"),
    [(name, seed) for at, name in enumerate(RECIPES) for seed in range(4) if cases(0) or seed == at],
)
def test_reference_implementation_agrees_on_a_crowded_cluster(schedule, seed):
    """The reference implementation repeats every trial and plans whole queues; kernels skip what cannot have changed."""
    from forerun.cluster.inputs.files import JobTable, jobs_of
    from forerun.cluster.traces.published import PublishedGenerator, published

    measured = setting("195job.csv", ("n4g8", "n8g8")[seed % 2], 240)
    spec = PublishedGenerator(jobs=40, mean_gap_s=150.0 * (1 + seed), best_effort_share=0.3, slack_seed=seed)
    drawn = published(spec, measured.profile, seed)
    scene = Setting(
        jobs_of(JobTable("generated", drawn), measured.profile),
        measured.cluster,
        measured.profile,
        (60, 240)[seed // 2],
    )
    played = play(RECIPES[schedule], scene)
    reference = Reference(scene, schedule)
    getattr(reference, f"run_{schedule.replace('-', '_')}")()
    assert {row: int(end) for row, end in enumerate(played.end_s) if end >= 0} == reference.end
    assert played.events()[0].tolist() == [time_s for time_s, _, _ in reference.log]


def own_reference(levels: list[int], total: int, slot_s: int) -> Reference:
    reference = Reference.__new__(Reference)
    reference.levels, reference.N, reference.S = levels, total, slot_s
    return reference


@st.composite
def planning(draw):
    """A job, a profile of free GPUs ending in an idle cluster, perhaps a boost trial."""
    total = draw(st.sampled_from([4, 8, 32]))
    slot_s = draw(st.sampled_from([60, 240]))
    now_s = draw(st.integers(0, 3000))
    free = {now_s: draw(st.integers(0, total))}
    at = now_s
    for _ in range(draw(st.integers(0, 6))):
        at += draw(st.one_of(st.integers(1, 300), st.just(slot_s)))
        free[at] = draw(st.integers(0, total))
    free[at] = total
    levels = [1, 2, 4, 8, 16]
    gains = [draw(st.floats(0.7, 2.0)) for _ in levels]
    rate = np.cumprod(gains) * draw(st.floats(0.01, 5.0))
    top = draw(st.integers(1, 5))
    deadline_s = max(now_s + draw(st.integers(-400, 2000)), 0)  # no job is due before the run begins
    left = draw(st.floats(0.001, 20_000.0))
    usable = [i for i in range(top) if levels[i] <= free[now_s]]
    assign = draw(st.sampled_from([-1, *usable]))
    return total, slot_s, now_s, tidy(free), levels, rate, top, deadline_s, left, assign


@given(planning())
@settings(max_examples=cases(80))
def test_planner_agrees_with_its_reference_implementation(case):
    total, slot_s, now_s, free, levels, rate, top, deadline_s, left, assign = case
    # a late job alone on an idle cluster already holds its largest count: nobody tries to give it more
    assume(assign < 0 or len(free) > 1 or deadline_s >= now_s)
    reference = own_reference(levels, total, slot_s)
    job = Job(0, 0, deadline_s, left, dict(zip(levels, rate.tolist())), levels[top - 1])
    alloc, end_s, real_s, remaining, in_time = reference.plan(
        job, now_s, free, levels[assign] if assign >= 0 else None
    )
    profile = np.array([[*free.keys()], [*free.values()]], np.int64)
    out, new = np.zeros((2, 2, len(free) + 8), np.int64)
    floor = np.searchsorted(levels, np.arange(total + 1), side="right") - 1
    task, ladder = Task(left, deadline_s, rate, top), Ladder(np.array(levels), floor)
    found = plan(task, ladder, Grid(now_s, slot_s, -1), profile, len(free), assign, out, new)
    (out_t, out_g), (new_t, new_g) = out.tolist(), new.tolist()
    assert (found.end_s, found.real_s, found.in_time) == (end_s, real_s, in_time)
    assert dict(zip(out_t[: found.entries], out_g[: found.entries])) == tidy(alloc)
    assert dict(zip(new_t[: found.keys], new_g[: found.keys])) == remaining
    assert found.gpu_s == reference.gputime(tidy(alloc), end_s)
