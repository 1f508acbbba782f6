"""Preemption by partitions and QOS: what a real slurmctld did, laws on drawn sequences, and the files that say it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import forerun
from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import Cluster, JobLabels, Jobs, NodeGroup
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.backfilling.preemption import Preemption
from forerun.cluster.policies.orders.multifactor import Multifactor, Partition, Weights
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.summary.ledgers import ledger_of
from forerun.cluster.summary.waits import stretches_of, waits_of
from forerun.core.errors import ForerunError
from forerun.core.scenarios import load

from .conftest import rules_of, whole_as_by_views

CASES = int(os.environ.get("FORERUN_CASES", "12"))
CONF = """ClusterName=c
SchedulerType=sched/backfill
PriorityType=priority/multifactor
PriorityWeightPartition=100
PreemptType=preempt/partition_prio
PreemptMode={mode}
NodeName=n[1-4] CPUs=64 Gres=gpu:8
PartitionName=gpu Nodes=ALL Default=YES PriorityTier=1
PartitionName=mid Nodes=ALL PriorityTier=5 {mid}
PartitionName=hi Nodes=ALL PriorityTier=10
"""
HEADER = "job_id,submit_s,duration_s,gpus,nodes,requested_s,partition,qos\n"


def simulated(
    folder: Path,
    jobs: str,
    *,
    mode: str = "REQUEUE",
    mid: str = "",
    conf: str = "",
    more: str = "",
    **files: str,
) -> forerun.Result:
    """The run of jobs (name, submission, duration, nodes, GPUs on each, minutes asked for, partition) on four nodes."""
    rows = [line.split() for line in jobs.strip().splitlines()]
    (folder / "jobs.csv").write_text(
        HEADER
        + "".join(
            f"{name},{at},{seconds},{int(nodes) * int(gpus)},{nodes},{60 * int(minutes)},{where},{where}\n"
            for name, at, seconds, nodes, gpus, minutes, where in rows
        )
    )
    (folder / "slurm.conf").write_text(conf or CONF.format(mode=mode, mid=mid))
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    site = ", ".join(f"{name}.txt" for name in files)
    (folder / "site.yaml").write_text(
        f"domain: cluster\ntrace: {{file: jobs.csv}}\nmachines: {{file: slurm.conf, site: [{site}]}}\n"
        f"policy: {{name: slurm-backfill, order: {{name: multifactor}}}}\n{more}"
    )
    return forerun.simulate(load(folder / "site.yaml"))


def runs_of(result: forerun.Result) -> dict[str, list[tuple[float, float]]]:
    """The stretches in which each job ran."""
    table, found = result.tables["allocations"], dict[str, list[tuple[float, float]]]()
    for name, from_s, to_s in zip(table["job"], table["from_s"], table["to_s"], strict=True):
        found.setdefault(str(name), []).append((float(from_s), float(to_s)))
    return found


#: jobs, and the starts and ends that slurmctld 22.05.8 gave them in lockstep; it was the same with `mode: CANCEL` up to
#: the first end of each run
SEEN = {
    "few of a node, then all, then those of another node": (
        """a 0 3000 1 2 60 gpu
        b 10 3000 1 2 60 gpu
        c 20 3000 1 2 60 gpu
        d 30 3000 1 2 60 gpu
        e 40 3000 1 4 60 gpu
        f 50 3000 1 4 60 gpu
        g 60 3000 1 8 60 gpu
        i 70 3000 1 8 60 gpu
        h1 600 500 1 4 20 hi
        h2 2000 500 1 8 20 hi
        h3 2050 500 1 8 20 hi""",
        {
            "a": [(1, 601), (1104, 2001), (2505, 5505)],
            "b": [(11, 601), (1104, 2001), (2505, 5505)],
            "c": [(21, 2001), (2505, 5505)],
            "d": [(31, 2001), (2505, 5505)],
            "e": [(41, 2051), (2555, 5555)],
            "f": [(51, 2051), (2555, 5555)],
            "g": [(61, 3061)],
            "i": [(71, 3071)],
            "h1": [(603, 1103)],
            "h2": [(2004, 2504)],
            "h3": [(2054, 2554)],
        },
    ),
    "not more than have to go": (
        """a 0 3000 1 8 60 gpu
        b 10 3000 1 8 60 gpu
        c 20 3000 1 2 60 gpu
        d 30 3000 1 6 60 gpu
        e 40 3000 1 8 60 gpu
        h1 600 500 2 8 20 hi
        h2 700 200 1 6 20 hi""",
        {
            "a": [(1, 601), (1104, 4104)],
            "b": [(11, 601), (1104, 4104)],
            "c": [(21, 3021)],
            "d": [(31, 701), (931, 3931)],
            "e": [(41, 3041)],
            "h1": [(603, 1103)],
            "h2": [(704, 904)],
        },
    ),
    "the lowest tier first": (
        """a 0 3000 1 8 60 mid
        b 10 3000 1 8 60 mid
        c 20 3000 2 8 60 gpu
        h1 600 500 1 8 20 hi
        m1 700 500 1 8 20 mid
        h2 800 300 2 8 20 hi""",
        {
            "a": [(1, 801), (1102, 4102)],
            "b": [(11, 801), (1102, 4102)],
            "c": [(21, 601), (1203, 4203)],
            "h1": [(603, 1103)],
            "m1": [(701, 1201)],
            "h2": [(801, 1101)],
        },
    ),
    "by a plan, as another job holds up the partition": (
        """a 0 3000 1 8 60 gpu
        b 10 3000 1 8 60 gpu
        h0 20 2000 2 8 40 hi
        h1 600 500 4 8 20 hi
        h2 700 500 1 8 10 hi""",
        {
            "a": [(1, 701), (2526, 5526)],
            "b": [(11, 2022), (2526, 5526)],
            "h0": [(21, 2021)],
            "h1": [(2025, 2525)],
            "h2": [(731, 1231)],
        },
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_jobs_are_stopped_as_a_real_slurmctld_was_seen_to_stop_them(name: str, tmp_path: Path) -> None:
    jobs, seen = SEEN[name]
    found = runs_of(simulated(tmp_path, jobs))
    assert {job: len(those) for job, those in found.items()} == {
        job: len(those) for job, those in seen.items()
    }
    for job, those in seen.items():
        np.testing.assert_allclose(found[job], those, atol=34, err_msg=job)


def test_jobs_that_are_cancelled_do_not_come_again(tmp_path: Path) -> None:
    result = simulated(tmp_path, SEEN["the lowest tier first"][0], mode="CANCEL")
    found = runs_of(result)
    assert len(found["c"]) == 1 and found["c"][0][1] == pytest.approx(601, abs=34)
    jobs = result.tables["jobs"]
    (at,) = np.flatnonzero(jobs["job"] == "c")
    assert np.isnan(jobs["end_s"][at]) and jobs["lost_gpu_s"][at] == jobs["gpu_s"][at] > 0


def test_who_runs_on_for_a_while_is_stopped_then_and_the_other_starts_after_it(tmp_path: Path) -> None:
    conf = CONF.format(mode="REQUEUE", mid="").replace("PriorityTier=1\n", "PriorityTier=1 GraceTime=300\n")
    found = runs_of(
        simulated(tmp_path, "a 0 3000 4 8 60 gpu\nh 600 500 1 8 20 hi\nk 610 500 1 8 20 hi", conf=conf)
    )
    assert found["a"][0] == (1, 901)
    assert [found[name][0][0] for name in "hk"] == pytest.approx([901, 901], abs=34)


def test_checkpoints_keep_work(tmp_path: Path) -> None:
    """400 of 1,000 s are kept, so that the second run takes 600; the other 200 of the first 600 s are lost."""
    jobs = "a 0 1000 4 8 60 gpu\nh 600 500 1 8 20 hi"
    result = simulated(tmp_path, jobs, more="costs: {checkpoint_s: 400, restart_s: 10}")
    (first, second), (at, *_) = runs_of(result)["a"], np.flatnonzero(result.tables["jobs"]["job"] == "a")
    assert first == (1, 601) and second[1] - second[0] == 600 + 10
    assert result.tables["jobs"]["lost_gpu_s"][at] == 200 * 32
    assert result.tables["jobs"]["wait_not_eligible_s"][at] == 121
    assert result.ledgers[0].parts["lost"] == 200 * 32


def test_preemption_that_is_not_simulated_is_named_with_its_jobs(tmp_path: Path) -> None:
    jobs = "a 0 1000 4 8 60 gpu\nm 1 500 1 8 20 mid\nh 600 500 1 8 20 hi"
    notes = simulated(tmp_path, jobs, mid="PreemptMode=SUSPEND").notes
    assert [note for note in notes if "reempt" in note] == [
        "not simulated: PreemptMode SUSPEND of partition mid, of 1 of 3 jobs, which others do not stop here",
        "preemption by partition as the site's files have it: mid stops gpu; hi stops gpu",
    ]


QOS = "Name|Priority|Preempt|PreemptMode\ngpu|0||cluster\nmid|5|gpu|cancel\nhi|9|gpu,mid|cluster\n"


def test_qos_stops_the_qos_that_it_names(tmp_path: Path) -> None:
    conf = CONF.format(mode="REQUEUE", mid="").replace("partition_prio", "qos").replace("PriorityTier", "#")
    jobs = "m 0 3000 1 8 60 mid\na 1 3000 3 8 60 gpu\nh 600 500 4 8 20 hi"
    result = simulated(tmp_path, jobs, conf=conf, qos=QOS)
    found = runs_of(result)
    assert len(found["m"]) == 1 and len(found["a"]) == 2 and found["h"][0][0] == pytest.approx(603, abs=34)
    with pytest.raises(
        ForerunError, match=r"qos.txt:2:Preempt: QOS gpu preempts hi, which may preempt it in turn"
    ):
        simulated(tmp_path, jobs, conf=conf, qos=QOS.replace("gpu|0||", "gpu|0|hi|"))


def test_a_rule_that_runs_in_a_circle_is_an_error() -> None:
    rule = Preemption(by="qos", over={"a": ("b",), "b": ("c",), "c": ("a",)})
    assert rule.problems() == [("over", "qos a stops jobs of b, which may stop its own in turn")]


def drawn(number: int) -> tuple[Setting, SlurmBackfill, Terms]:
    """Jobs of three partitions on four nodes, some of them exclusive, and a rule."""
    rng = np.random.default_rng(number)
    count, names = 40, ("gpu", "mid", "hi")
    nodes, duration_s = rng.choice([1, 1, 1, 2], count), rng.integers(60, 3_000, count)
    jobs = Jobs.of(
        np.sort(rng.integers(0, 9_000, count)),
        np.where(nodes > 1, 16, rng.choice([1, 2, 4, 8], count)),
        duration_s,
        requested_s=duration_s + rng.integers(0, 900, count),
        labels=JobLabels.of(
            count,
            partition=tuple(rng.choice(names, count).tolist()),
            nodes=nodes,
            exclusive=rng.random(count) < 0.1,
        ),
    )
    every = dict.fromkeys(names, (0, 1, 2, 3))
    cluster = Cluster((NodeGroup("n", 4, 8),), partitions=every)
    rule = Preemption(
        by="partition",
        over={"hi": ("gpu", "mid"), "mid": ("gpu",)},
        cancels=("mid",) if rng.random() < 0.3 else (),
        grace_s={"gpu": 120.0} if rng.random() < 0.3 else {},
        exempt_s=float(rng.choice([0, 0, 300])),
    )
    ranks = {name: Partition(tier=at + 1) for at, name in enumerate(names)}
    order = Multifactor(weights=Weights(age=1000), max_age_s=3600.0, partitions=ranks)
    policy = SlurmBackfill(order=order, preemption=rule, bf_interval_s=float(rng.choice([30, 30, 0])))
    return (
        Setting(jobs=jobs, cluster=cluster, profile=None, slot_s=60),
        policy,
        Terms(restart_s=float(rng.choice([0, 17])), checkpoint_s=float(rng.choice([0, 0, 250]))),
    )


def test_work_is_conserved_and_nobody_is_stopped_who_may_not_be() -> None:
    stopped = 0
    for number in range(CASES):
        setting, policy, terms = drawn(number)
        record = Record(setting)
        run_rules(rules_of(policy, setting, record, terms))
        stretches = stretches_of(record)
        waits, jobs = waits_of(record, stretches, checkpoint_s=terms.checkpoint_s), setting.jobs
        ended, gone = record.end_s >= 0, np.isin(np.arange(len(jobs)), list(record.cancelled))
        assert (ended | gone).all(), number
        assert jobs.labels is not None and policy.preemption is not None
        partition = np.array(jobs.labels.partition)
        stopped += int(record.preempts.sum())
        assert not record.preempts[partition == "hi"].any(), number
        assert set(partition[gone]) <= set(policy.preemption.cancels), number
        worked = waits.running * jobs.gpus
        np.testing.assert_allclose(
            worked[ended], (jobs.duration_s * jobs.gpus + waits.lost_gpu_s)[ended], err_msg=str(number)
        )
        np.testing.assert_allclose(worked[gone], waits.lost_gpu_s[gone], err_msg=str(number))
        np.testing.assert_allclose(
            waits.total()[ended], (record.end_s - jobs.submit_s)[ended], err_msg=str(number)
        )
        back = {(row, from_s): to_s for row, from_s, to_s in record.away}
        assert all(to_s - from_s == policy.preemption.requeue_s for (_, from_s), to_s in back.items())
        for row, from_s, to_s in record.away:
            later = stretches.from_s[(stretches.row == row) & (stretches.from_s > from_s)]
            assert (later >= to_s).all(), number
        ledger_of(record, stretches, waits).check()
    assert stopped > 2 * CASES


def test_a_whole_run_stops_jobs_as_one_through_views_does() -> None:
    """Each second of age counts, so that no order depends on when priorities were counted last."""
    stopped = 0
    for number in range(CASES // 2):
        setting, policy, terms = drawn(number)
        by_age = replace(policy.order, weights=Weights(age=10**6), max_age_s=1e6)
        policy = replace(policy, order=by_age, bf_interval_s=30.0)
        stopped += int(whole_as_by_views(policy, setting, terms, f"world {number}").preempts.sum())
    assert stopped > CASES
