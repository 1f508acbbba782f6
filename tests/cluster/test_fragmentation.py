"""Orders and promises are laws under every placement, also where enough GPUs are free but too spread for a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.allocator import PLACEMENTS, AllocatorRules, Terms
from forerun.cluster.engine.kernels import allocator as ak
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.inputs.arrays import Cluster, Jobs
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.backfilling.base import BackfillScheduler
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.las import Las
from forerun.cluster.policies.priority import EdfRigid, Fifo, Sjf, SmallestJobFirst, Srtf
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.policy import Allocation, PriorityPolicy, View, schedulers
from forerun.core.errors import ScenarioError
from forerun.core.scenarios import load

from ..conftest import cases
from .conftest import SHARED, shared_or_skip, waited

#: worlds by policy and placement; FORERUN_CASES asks for more
WORLDS = max(6, cases(0, 2000) // 4)
ON_NODES = tuple(name for name in PLACEMENTS if name != "anywhere")


def fragmented_world(number: int, nodes: int = 3) -> Setting:
    """Jobs of more than half a node beside smaller ones, all of which run for what they ask or less."""
    draw = np.random.default_rng([34, number])
    count = 18
    duration = np.rint(10 ** draw.uniform(1.0, 3.0, count)).astype(np.int64)
    submit = np.cumsum(draw.choice([0, 5, 40, 150], count)).astype(np.int64)
    jobs = Jobs.of(
        submit,
        draw.choice([1, 2, 3, 3, 5, 5, 6, 8, *([11] if nodes > 2 else [])], count).astype(np.int64),
        duration,
        deadline_s=submit + duration * 3,
        requested_s=np.ceil(duration * draw.uniform(1.0, 2.5, count)).astype(np.int64),
    )
    return Setting(jobs, Cluster.uniform(1, nodes, 8), None, 60, seed=number)


class Watched:
    """A scheduler at work, with what each of its views and answers was."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.order: list[int] = []
        self.promised: dict[int, float] = {}

    def allocate(self, view: View) -> Allocation:
        if isinstance(self.inner, BackfillScheduler):
            answer = self.inner.allocate(view)
            for job, promise in self.inner.promised.items():
                before_s = self.promised.setdefault(job, promise.start_s)
                assert promise.start_s <= before_s, (
                    f"t={view.now_s:g} s: job {job} was promised {before_s:g} s"
                )
                self.promised[job] = promise.start_s
            return answer
        order = np.argsort(self.inner.order.of(view), kind="stable")
        if not self.inner.preemptive:
            order = order[np.argsort(view.held[order] == 0, kind="stable")]
        self.order = view.job[order].tolist()
        allocation: Allocation = self.inner.allocate(view)
        return allocation


def rules_of(policy: Any, made: Setting, placement: str) -> tuple[AllocatorRules, Watched]:
    watched = Watched(policy.build(np.random.default_rng(0)))
    return AllocatorRules(made, Record(made), policy, watched, Terms(placement=placement)), watched


@pytest.mark.parametrize("placement", ON_NODES)
@pytest.mark.parametrize(
    "policy", [Fifo(), Sjf(), SmallestJobFirst(), Srtf(), EdfRigid()], ids=lambda one: type(one).__name__
)
def test_whoever_has_gpus_comes_first_in_the_order(policy: PriorityPolicy, placement: str) -> None:
    """After every decision the jobs with GPUs are the first in the order, and the next one has no place."""
    spread_s = 0.0
    for number in range(WORLDS):
        rules, watched = rules_of(policy, fragmented_world(number), placement)

        def look(
            now_s: float, rules: AllocatorRules = rules, watched: Watched = watched, number: int = number
        ) -> None:
            state = rules.state
            order = [job for job in watched.order if state.i[ak.STATE, job] != ak.DONE]
            holds = [bool(state.i[ak.HELD, job]) for job in order]
            assert holds == sorted(holds, reverse=True), f"world {number}, t={now_s:g} s: {order} {holds}"
            if not all(holds):
                first = order[holds.index(False)]
                need = int(rules.setting.jobs.gpus[first])
                free = int(np.count_nonzero(state.owner < 0))
                assert free < need or not len(rules._seats_of(first, state.owner, need, 0)), f"t={now_s:g} s"

        run_rules(rules, [look])
        assert (rules.record.end_s >= 0).all()
        spread_s += float(waited(rules.record, policy, rules.terms)["fragmentation"].sum())
    assert spread_s > 0 or placement == "consolidated"  # which takes what is free, wherever it is


@pytest.mark.parametrize("placement", ON_NODES)
def test_no_promise_moves_back(placement: str) -> None:
    """`Watched` looks at every promise after every decision; each job starts by the first that it was made."""
    spread_s = 0.0
    for number in range(WORLDS):
        for policy in (Conservative(), Conservative(examined=2)):
            rules, watched = rules_of(policy, fragmented_world(number), placement)
            run_rules(rules)
            for job, promised_s in watched.promised.items():
                assert rules.record.first_start_s[job] <= promised_s, f"world {number}, job {job}"
            spread_s += float(waited(rules.record, policy, rules.terms)["fragmentation"].sum())
    assert spread_s > 0 or placement == "consolidated"  # which takes what is free, wherever it is


@pytest.mark.parametrize("placement", ON_NODES)
def test_nobody_delays_the_first_in_the_queue(placement: str) -> None:
    """EASY: the first waiting job starts by the first instant at which those that run by requests leave it a place."""

    def place_s(view: View, rules: AllocatorRules, first: int) -> float:
        owner, need = view.owner.copy(), int(view.gpus[first])
        ends_s = view.changed_s + view.requested_s
        for at in np.argsort(ends_s, kind="stable").tolist():
            if view.held[at]:
                owner[owner == view.job[at]] = -1
                if np.count_nonzero(owner < 0) >= need and len(rules._seats_for(first, owner, need, 0)):
                    return float(ends_s[at])
        raise AssertionError("an empty cluster has no place")

    heads = 0
    for number in range(WORLDS):
        rules, watched = rules_of(Easy(), fragmented_world(number), placement)
        by_s: dict[int, float] = {}

        def allocate(
            view: View, rules: Any = rules, inner: Any = watched.inner, by_s: Any = by_s
        ) -> Allocation:
            waiting = np.flatnonzero(view.held == 0)
            answer: Allocation = inner.allocate(view)
            left = [at for at in waiting.tolist() if not answer.gpus[at]]
            started = [at for at in waiting.tolist() if answer.gpus[at]]
            if left and (not started or started[0] > left[0]):
                by_s.setdefault(int(view.job[left[0]]), place_s(view, rules, left[0]))
            return answer

        watched.allocate = allocate  # type: ignore[method-assign]
        run_rules(rules)
        late = {job: at_s for job, at_s in by_s.items() if rules.record.first_start_s[job] > at_s}
        assert not late, f"world {number}: {late}"
        heads += len(by_s)
    assert heads > WORLDS


@pytest.mark.parametrize("placement", [name for name in ON_NODES if name != "buddy"])
def test_on_one_node_places_are_counts(placement: str) -> None:
    policies = (Fifo(), Sjf(), Srtf(), EdfRigid(), Las(), Easy(), Conservative(), SlurmBackfill())
    for number in range(WORLDS // 2):
        made = fragmented_world(number, nodes=1)
        for policy in policies:
            record, counted = Record(made), Record(made)
            run_rules(rules_for(policy, made, record, Terms(placement=placement), number))
            run_rules(rules_for(policy, made, counted, Terms(), number))
            assert record.first_start_s.tolist() == counted.first_start_s.tolist(), (
                number,
                type(policy).__name__,
            )
            assert record.end_s.tolist() == counted.end_s.tolist(), (number, type(policy).__name__)


def test_the_least_served_gets_a_place() -> None:
    """Under `las` a wide job that has had nothing is not kept waiting by narrow ones that have."""
    jobs = Jobs.of([0, 0, 0, 60], [5, 5, 5, 6], [5000, 5000, 5000, 100])
    made = Setting(jobs, Cluster.uniform(1, 3, 8), None, 60)
    record = Record(made)
    run_rules(rules_for(Las(), made, record, Terms(placement="first-fit"), 0))
    assert record.first_start_s[3] == 60 and record.preempts.sum() >= 1


#: trace, nodes, and the starts that the real scheduler gave its first jobs (rounded to its last decision)
BY_SLURM = {
    ("frag", "fifo"): [0, 0, 1000, 1000, 1000],
    ("frag", "easy"): [0, 0, 1000, 20, 1000],
    ("frag", "conservative"): [0, 0, 1000, 20, 1000],
    ("frag3", "fifo"): [0, 0, 0, 1000, 1000, 1000, 1000, 1000, 1220],
    ("frag3", "easy"): [0, 0, 0, 1000, 20, 320, 920, 1000, 1220],
    ("frag3", "conservative"): [0, 0, 0, 1000, 20, 320, 920, 1000, 1220],
}
FRAG = Jobs.of(
    [0, 0, 10, 20, 30],
    [5, 5, 6, 3, 3],
    [1000, 1000, 100, 5000, 5000],
    requested_s=[1200, 1200, 300, 6000, 6000],
)
FRAG3 = Jobs.of(
    [0, 0, 0, 10, *range(20, 5721, 300)],
    [5, 5, 5, 6, *[3] * 20],
    [1000, 1000, 1000, 100, *[900] * 20],
    requested_s=[1200, 1200, 1200, 300, *[1200] * 20],
)


@pytest.mark.parametrize(("trace", "policy"), BY_SLURM)
def test_a_job_that_fragmentation_blocks_waits_as_under_slurm(trace: str, policy: str) -> None:
    made = Setting(
        FRAG if trace == "frag" else FRAG3, Cluster.uniform(1, 2 if trace == "frag" else 3, 8), None, 60
    )
    record = Record(made)
    asked, terms = schedulers().get(policy)(), Terms(placement="first-fit")
    run_rules(rules_for(asked, made, record, terms, 0))
    expected = BY_SLURM[trace, policy]
    assert record.first_start_s.tolist()[: len(expected)] == expected
    assert waited(record, asked, terms)["fragmentation"][2 if trace == "frag" else 3] > 0
    shared_or_skip()
    name = f"{trace}-{'bi' if policy == 'fifo' else 'bf'}{2 if trace == 'frag' else 3}.tsv"
    lines = (SHARED / "golden" / "slurm" / name).read_text().splitlines()[1:]
    theirs = np.array([float(line.split("\t")[2]) for line in lines])
    assert (np.abs(record.first_start_s - theirs) <= 44).all()  # a cycle of 30 s, and what its clock takes


def test_a_job_that_no_empty_nodes_can_host_is_refused_at_the_start() -> None:
    """Eight GPUs are whole nodes of the largest kind, of which there is one."""
    from forerun.cluster.inputs.arrays import NodeGroup

    cluster = Cluster((NodeGroup("x", 1, 4, ""), NodeGroup("y", 2, 2, "")))
    made = Setting(Jobs.of([0, 0], [1, 8], [10, 10]), cluster, None, 60)
    with pytest.raises(ScenarioError, match="asks for 8 GPUs, for which the placement best-fit has no nodes"):
        rules_for(Fifo(), made, Record(made), Terms(placement="best-fit"), 0)
    record = Record(made)
    run_rules(rules_for(Fifo(), made, record, Terms(placement="consolidated"), 0))
    assert record.end_s.tolist() == [10, 20]


def test_no_job_of_a_strict_queue_of_kueue_is_passed(tmp_path: Path) -> None:
    """Nor where only nodes are missing: `StrictFIFO` on two nodes, as `fifo` above."""
    (tmp_path / "queues.yaml").write_text(
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: a100}\n---\n"
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: nlp}\nspec:\n"
        "  queueingStrategy: StrictFIFO\n  resourceGroups:\n  - coveredResources: [nvidia.com/gpu]\n    flavors:\n"
        "    - {name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}\n"
    )
    rows = ("a,0,5,1000,nlp", "b,0,5,1000,nlp", "c,10,6,100,nlp", "d,20,3,5000,nlp", "e,30,3,5000,nlp")
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,gpus,duration_s,vc\n" + "\n".join(rows) + "\n")
    (tmp_path / "s.yaml").write_text(
        "domain: cluster\ntrace: jobs.csv\npolicy: kueue\nplacement: best-fit\n"
        "machines: {nodes: [{count: 2, gpus: 8, gpu_type: a100}], site: [queues.yaml]}\n"
    )
    jobs = forerun.simulate(load(tmp_path / "s.yaml")).tables["jobs"]
    assert jobs["first_start_s"].tolist() == [0, 0, 1000, 1000, 1000]
    assert jobs["wait_fragmentation_s"].tolist()[2] == 990
