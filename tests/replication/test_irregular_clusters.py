"""Settings drawn to break the admission promise: nodes and levels that are no powers of two, bursts, bumpy tables, dear
changes. Nobody admitted is late, and no run ends in an error."""

from __future__ import annotations

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.allocator import Terms
from forerun.cluster.inputs.arrays import NO_DEADLINE_S, Cluster, Jobs, ThroughputTable
from forerun.cluster.inputs.costs import cost_table, plain
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import schedulers
from forerun.cluster.testing import Scene
from forerun.core.errors import PolicyError
from forerun.replication.elasticflow.kernels import plan_state as mk
from forerun.replication.elasticflow.known_bugs import SWITCHES
from forerun.replication.elasticflow.schedules.plan_ahead import PublishedElasticFlow

from ..cluster.conftest import Switched, lawful, play, setting
from ..conftest import cases

ALL = frozenset(SWITCHES)
#: random settings in a run of the suite; FORERUN_CASES asks for more
WORLDS = cases(20, 1500)


def bumpy_profile(rng: np.random.Generator, total: int) -> ThroughputTable:
    """Two kinds of job on counts that are any numbers: concave, superlinear or bumpy, some without the least counts."""
    many = int(rng.integers(1, 7))
    most = int(rng.integers(1, total + 3))
    levels = np.unique(rng.integers(1, most + 1, many))
    if rng.random() < 0.7:
        levels = np.unique(np.append(levels, int(rng.integers(1, min(total, 3) + 1))))
    rate = np.empty((2, len(levels)))
    for kind in range(2):
        power = float(rng.choice([0.3, 0.8, 1.0, 1.4]))
        rate[kind] = rng.uniform(0.2, 20.0) * levels**power
        if rng.random() < 0.5:
            rate[kind] *= rng.uniform(0.4, 1.6, len(levels))
        if len(levels) > 1 and rng.random() < 0.3:
            rate[kind, 0] = np.nan
        if len(levels) > 2 and rng.random() < 0.2:
            rate[kind, rng.integers(1, len(levels))] = np.nan
        if levels[np.flatnonzero(rate[kind] > 0)[0]] > total:
            rate[kind, 0] = 1.0
    if levels[0] > total:
        return bumpy_profile(rng, total)
    return ThroughputTable(
        "A", (("a", 64), ("b", 512)), levels.astype(np.int64), rate,
        np.array([int(levels[-1])] * 2), "drawn",
    )  # fmt: skip


def hostile_world(number: int, corrected: frozenset[str] = ALL) -> Setting:
    """The `number`-th setting: 1 to 12 GPUs a node, slots of 1 to 240 s, submissions in bursts, changes of up to 1,800 s."""
    rng = np.random.default_rng([20, number])
    node = int(rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 9, 12]))
    cluster = Cluster.uniform(int(rng.integers(1, 3)), int(rng.integers(1, 6)), node)
    profile = bumpy_profile(rng, cluster.gpus)
    slot_s = int(rng.choice([1, 7, 30, 60, 100, 240]))
    count = int(rng.integers(2, 26))
    gap_s = int(rng.choice([1, 40, 400, 3000]))
    submit = np.sort(np.cumsum(rng.integers(0, gap_s, count) * (rng.random(count) < 0.5)))
    kind = rng.integers(0, 2, count)
    can = np.nan_to_num(profile.rate, nan=0.0) * (profile.levels <= cluster.gpus)
    duration = rng.integers(1, int(rng.choice([300, 3000, 20_000])), count)
    iterations = np.maximum(1, duration * can.max(axis=1)[kind] * rng.uniform(0.2, 1.0, count))
    effort = rng.random(count) < 0.2
    due = submit + (rng.uniform(0.3, 4.0, count) * duration).astype(np.int64) + rng.integers(0, 2 * slot_s)
    jobs = Jobs(
        np.arange(count), tuple(range(count)), submit, np.where(effort, NO_DEADLINE_S, due),
        iterations.astype(np.int64), kind, tuple("ab"[k] for k in kind), np.where(kind == 0, 64, 512),
        np.full(count, int(profile.levels[0])), duration, effort, ("u",) * count, due,
    )  # fmt: skip
    costs = None
    if rng.random() < 0.7:
        most_s = float(rng.choice([5.0, 60.0, 1800.0]))
        changes = ("1->2", "2->1", "8->16", "16->8", "migrate")
        drawn = dict(zip(changes, rng.uniform(0.0, most_s, len(changes)).tolist(), strict=True))
        costs = cost_table({"*": drawn}, jobs, plain(0, 0, 0), "here")
    return Switched(jobs, cluster, profile, slot_s, "A", corrected=corrected, costs=costs)


def test_no_admitted_job_is_late_and_no_run_fails() -> None:
    """Every law after every event as well: no GPU held twice, capacity never exceeded, waits and ledger sum."""
    admitted = refused = spread = 0
    for number in range(WORLDS):
        made = hostile_world(number)
        record, _ = lawful(PublishedElasticFlow(), Scene(number, made, Terms()))
        mine = record.admitted == 1
        assert (record.end_s[mine] >= 0).all(), f"setting {number}"
        late = np.flatnonzero(mine & (record.end_s > made.jobs.deadline_s))
        assert not len(late), f"setting {number}: jobs {late}"
        admitted += int(np.count_nonzero(mine & made.jobs.has_deadline))
        refused += int(np.count_nonzero(record.admitted == 0))
        spread += record.spread_gpu_s > 0
    assert refused > WORLDS and spread > WORLDS / 10
    assert admitted == 13_300 if WORLDS == 1500 else admitted > 5 * WORLDS


@pytest.mark.parametrize("name", ["ef", "edf", "edf-accessctrl"])
def test_other_elastic_schedules_place_by_count_too(name: str) -> None:
    """Corrected, every run ends; as published, many of the same settings end in the placement's error."""
    policy, failed = schedulers().get(name), 0
    for number in range(cases(12)):
        made = hostile_world(number)
        record = play(policy(), made)
        assert (record.end_s[record.admitted == 1] >= 0).all(), f"setting {number}"
        assert (record.events()[3] >= 0).all(), f"setting {number}: more GPUs are held than there are"
        try:
            play(policy(), hostile_world(number, ALL - {"buddy_only"}))
        except PolicyError as error:
            assert "the buddy placement" in str(error) and "compat.buddy_only" in str(error)
            failed += 1
    assert failed > 1


@pytest.mark.parametrize(
    ("name", "number", "switches"),
    [
        ("ef", 47, frozenset()),
        ("ef", 97, frozenset()),
        ("dlas-gpu", 9, ALL - {"overhead_when_unchanged"}),
        ("gandiva", 1, ALL),
    ],
)
def test_restarts_that_leave_no_time_for_work_end_the_run(
    name: str, number: int, switches: frozenset[str]
) -> None:
    """A schedule that charges restarts at every instant can do so for ever: the run ends, and says why."""
    made = hostile_world(number, switches)
    record = play(schedulers().get(name)(), made)
    assert "charged restarts at 1000 instants in a row" in record.ended_because
    assert (record.end_s[record.admitted != 0] < 0).any()
    assert len(record.events()[0]) < 5000


@pytest.mark.parametrize(("node_gpus", "admitted"), [(6, 170), (5, 167)])
def test_the_testbed_trace_on_nodes_that_cannot_be_halved(node_gpus: int, admitted: int) -> None:
    made = setting("195job.csv", (1, 16, node_gpus), 240, corrected=ALL)
    record = play(PublishedElasticFlow(), made)
    mine = (record.admitted == 1) & made.jobs.has_deadline
    assert int(mine.sum()) == admitted
    assert (record.end_s[mine] >= 0).all() and (record.end_s[mine] <= made.jobs.deadline_s[mine]).all()
    assert record.spread_gpu_s > 0


def test_placing_by_count_gives_each_job_its_number_on_few_nodes() -> None:
    """Whoever fits on a node is on one while any node has room; larger jobs leave no more than two nodes in part."""
    rng = np.random.default_rng(4)
    for _ in range(300):
        node, nodes = int(rng.integers(1, 10)), int(rng.integers(1, 8))
        sizes = []
        while (size := int(rng.integers(1, 3 * node))) <= node * nodes - sum(sizes):
            sizes.append(size)
        j = np.zeros((mk.COLUMNS, len(sizes) + 1), np.int64)
        j[mk.GPUS, 1:] = sizes
        rows = 1 + rng.permutation(len(sizes))
        owner = np.empty(node * nodes, np.int64)
        mk.place_by_count(j, rows, len(rows), node, owner)
        assert np.bincount(owner[owner >= 0], minlength=len(j[0])).tolist() == j[mk.GPUS].tolist()
        if len(rows):
            first = np.flatnonzero(owner == rows[0])
            assert len(np.unique(first // node)) == -(-len(first) // node)


def test_what_spreading_took_is_in_the_result() -> None:
    """The GPU time of jobs on more nodes than they need stands in the summary and in a note; elsewhere there is neither."""
    text = """
        domain: cluster
        trace: {{published: {{jobs: 30, mean_gap_s: 200}}}}
        machines: {{nodes: [{{count: 4, gpus: {gpus}}}]}}
        policy: ef-accessctrl
        profile:
          - analytic: balanced
            kinds: [[resnet50, 64], [resnet50, 128], [resnet50, 256], [vgg16, 64], [vgg16, 128], [vgg16, 256],
                    [inception3, 64], [inception3, 128], [gpt2, 128], [gpt2, 256], [bert, 64], [bert, 128],
                    [deepspeech2, 32], [deepspeech2, 64]]
    """
    odd = forerun.simulate(forerun.loads(text.format(gpus=6)))
    even = forerun.simulate(forerun.loads(text.format(gpus=8)))
    notes = [note for note in odd.notes if "more nodes than they need" in note]
    assert len(notes) == 1 and odd.summary["spread_gpu_s"] > 0
    assert f"{odd.summary['spread_gpu_s'] / 3600:.4g} GPU-h" in notes[0]
    assert "spread_gpu_s" not in even.summary and not any("more nodes" in note for note in even.notes)
