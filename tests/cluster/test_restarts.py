"""Jobs that start again: runs after the end of others, beside a slow reference and laws."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import Cluster, JobLabels, Jobs
from forerun.cluster.inputs.files import JobTable
from forerun.cluster.inputs.node_failures import own_mtbf_s, with_drawn_failures
from forerun.cluster.inputs.setting import Failure, Setting, Window
from forerun.cluster.inputs.site import Site
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.first_fit import FirstFit
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.policies.time_slices import TimeSlices
from forerun.cluster.policy import Policy, schedulers
from forerun.cluster.scenario import Failures
from forerun.cluster.summary.waits import stretches_of, waits_of
from forerun.core.errors import ForerunError
from forerun.core.scenarios import load

from .conftest import play, rules_of, whole_as_by_views

CASES = int(os.environ.get("FORERUN_CASES", "20"))


def drawn(number: int) -> Setting:
    """A small cluster, and jobs some of which come after the end of one before them."""
    rng = np.random.default_rng(number)
    count = 30
    submit_s = np.sort(rng.integers(0, 4_000, count))
    before = [int(rng.integers(0, at)) if at and rng.random() < 0.5 else -1 for at in range(count)]
    duration_s = rng.integers(1, 1_500, count)
    jobs = Jobs.of(
        submit_s,
        rng.integers(1, 9, count),
        duration_s,
        requested_s=duration_s + rng.integers(0, 900, count),
        labels=JobLabels.of(
            count,
            after=tuple(str(one) if one >= 0 else "" for one in before),
            after_delay_s=rng.choice([0, 0, 120, 7], count),
        ),
    )
    return Setting(jobs=jobs, cluster=Cluster.uniform(1, 2, 4), profile=None, slot_s=60)


def in_order(setting: Setting) -> list[float]:
    """Starts of a queue in which nobody passes anybody, second by second."""
    jobs, free, now_s = setting.jobs, setting.cluster.gpus, 0
    before, delay_s = jobs.predecessor().tolist(), jobs.labels.after_delay_s.tolist() if jobs.labels else []
    start_s, end_s = [-1] * len(jobs), [-1] * len(jobs)
    queue: list[int] = []
    while -1 in end_s:
        for row in range(len(jobs)):
            if start_s[row] >= 0 and start_s[row] + jobs.duration_s[row] == now_s:
                end_s[row], free = now_s, free + int(jobs.gpus[row])
        for row, one in enumerate(before):
            comes_s = (
                int(jobs.submit_s[row]) if one < 0 else end_s[one] + delay_s[row] if end_s[one] >= 0 else -1
            )
            if comes_s == now_s:
                queue.append(row)
        while queue and jobs.gpus[queue[0]] <= free:
            row = queue.pop(0)
            start_s[row], free = now_s, free - int(jobs.gpus[row])
        now_s += 1
    return [float(one) for one in start_s]


def test_a_queue_in_order_is_that_of_the_slow_reference() -> None:
    for number in range(CASES):
        setting = drawn(number)
        record = play(schedulers().get("fifo")(), setting)
        assert record.first_start_s.tolist() == in_order(setting), f"world {number}"


def check(setting: Setting, record: Record, what: str) -> None:
    """Nobody starts before the one before him has ended and the delay is over, and comes at that very instant."""
    before = setting.jobs.predecessor()
    assert setting.jobs.labels is not None
    after = before >= 0
    comes_s = record.end_s[before] + setting.jobs.labels.after_delay_s
    assert (record.end_s >= 0).all(), what
    np.testing.assert_allclose(record.came_s[after], comes_s[after], err_msg=what)
    np.testing.assert_array_equal(record.came_s[~after], setting.jobs.submit_s[~after], err_msg=what)
    assert (record.first_start_s >= record.came_s - 1e-6).all(), what


@pytest.mark.parametrize(
    "policy",
    [Easy(), Conservative(), FirstFit(), SlurmBackfill(), TimeSlices()],
    ids=lambda one: type(one).__name__,
)
def test_nobody_starts_before_the_one_before_him_has_ended(policy: Policy) -> None:
    for number in range(CASES // 4):
        setting = drawn(number)
        check(setting, play(policy, setting), f"world {number}")


def scenario(folder: Path, rows: Sequence[str], policy: str = "fifo", more: str = "") -> forerun.Result:
    """The run of a Slurm log on one node of four GPUs."""
    header = "JobID|User|Partition|Submit|Eligible|Start|End|State|ElapsedRaw|AllocTRES|Timelimit|NNodes"
    (folder / "jobs.txt").write_text("\n".join((header, *rows)) + "\n")
    (folder / "site.yaml").write_text(
        "domain: cluster\ntrace: {file: jobs.txt, format: sacct}\n"
        f"machines: {{nodes: [{{count: 1, gpus: 4}}]}}\npolicy: {{name: {policy}}}\n{more}"
    )
    return forerun.simulate(load(folder / "site.yaml"))


def row(
    job: str, submit: int, start: int, end: int, state: str = "COMPLETED", gpus: int = 4, eligible: int = -1
) -> str:
    """Of a log in minutes."""
    at = [
        "2026-03-02T{:02d}:{:02d}:00".format(*divmod(one, 60))
        for one in (submit, max(eligible, submit), start, end)
    ]
    return (
        f"{job}|ann|gpu|{'|'.join(at)}|{state}|{60 * (end - start)}|cpu=8,gres/gpu={gpus},node=1|08:00:00|1"
    )


def test_runs_of_a_requeued_job_follow_each_other_and_the_recorded_delay(tmp_path: Path) -> None:
    """The log had another order: the first run of 7 starts an hour earlier here, and so does the second."""
    jobs = scenario(
        tmp_path,
        [
            row("7", 0, 90, 120, "NODE_FAIL"),
            row("7", 120, 130, 190, eligible=122),
            row("8", 1, 30, 90),
        ],
    ).tables["jobs"]
    found = {
        name: (float(came), float(start), float(end))
        for name, came, start, end in zip(
            jobs["job"], jobs["submit_s"], jobs["first_start_s"], jobs["end_s"], strict=True
        )
    }
    assert found == {"7": (0, 0, 1800), "8": (60, 1800, 5400), "7#2": (1920, 5400, 9000)}


def test_history_judges_a_restart_by_its_wait_since_it_came(tmp_path: Path) -> None:
    rows = [
        row("6", 0, 0, 1),
        row("7", 120, 180, 210, "NODE_FAIL"),
        row("7", 210, 212, 272, eligible=212),
        row("8", 400, 400, 401),
    ]
    summary = scenario(tmp_path, rows).summary
    (everybody,) = [one for name, one in summary["history"].items() if name == "all jobs"]
    assert everybody["simulated_mean_s"] == 0 and everybody["recorded_mean_s"] == pytest.approx(1200)


EVENTS = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
SLURM = "ClusterName=site\nSchedulerType=sched/backfill\nNodeName=n[1-2] Gres=gpu:4\nPartitionName=gpu Nodes=ALL\n"


def on_a_site(folder: Path, rows: Sequence[str], events: str, more: str = "") -> forerun.Result:
    """The run of a Slurm log on two nodes of four GPUs, with what sacctmgr says of them."""
    header = (
        "JobID|User|Partition|Submit|Eligible|Start|End|State|ElapsedRaw|AllocTRES|Timelimit|NNodes|NodeList"
    )
    (folder / "jobs.txt").write_text("\n".join((header, *rows)) + "\n")
    (folder / "slurm.conf").write_text(SLURM)
    (folder / "events.txt").write_text(EVENTS + events)
    (folder / "site.yaml").write_text(
        "domain: cluster\ntrace: {file: jobs.txt, format: sacct, options: {timezone: Europe/Berlin}}\n"
        "machines: {file: slurm.conf, site: [events.txt]}\npolicy: {name: easy}\nplacement: first-fit\n"
        + more
    )
    return forerun.simulate(load(folder / "site.yaml"))


def ran(result: forerun.Result) -> dict[str, list[tuple[float, float]]]:
    """The minutes from when to when each job ran."""
    found, table = dict[str, list[tuple[float, float]]](), result.tables["allocations"]
    for name, from_s, to_s in zip(table["job"], table["from_s"], table["to_s"], strict=True):
        found.setdefault(str(name), []).append((float(from_s) / 60, float(to_s) / 60))
    return found


LOG = [
    row("1", 0, 0, 30, "NODE_FAIL") + "|n1",
    row("1", 30, 32, 92, eligible=32) + "|n2",
    row("2", 100, 100, 160) + "|n1",
    row("3", 101, 101, 401) + "|n2",
]


def test_a_node_that_fails_as_in_the_log_cuts_a_run_short_once(tmp_path: Path) -> None:
    """Job 1 has an hour of work: half an hour of it is lost with node 1, which is away for an hour."""
    result = on_a_site(tmp_path, LOG, "site|n1|2026-03-02T00:30:00|2026-03-02T01:30:00|DOWN|gone|root\n")
    assert ran(result) == {"1": [(0, 30), (32, 92)], "2": [(100, 160)], "3": [(101, 401)]}
    jobs = result.tables["jobs"]
    assert jobs["job"].tolist() == ["1", "2", "3"]
    assert jobs["lost_gpu_s"].tolist() == [30 * 60 * 4, 0, 0]
    assert jobs["wait_not_eligible_s"][0] == 120
    assert any("1 runs after a failure or preemption" in note for note in result.notes)


def test_with_checkpoints_the_work_of_a_job_is_what_its_runs_did(tmp_path: Path) -> None:
    """20 of its first 30 minutes are kept, so that the job has 80 of work, 60 of them after the failure."""
    events = "site|n1|2026-03-02T00:30:00|2026-03-02T01:30:00|DOWN|gone|root\n"
    result = on_a_site(tmp_path, LOG, events, "costs: {checkpoint_s: 1200}\n")
    assert ran(result)["1"] == [(0, 30), (32, 92)]
    assert result.tables["jobs"]["lost_gpu_s"][0] == 10 * 60 * 4


def test_a_node_that_is_drained_lets_its_jobs_go_on_and_one_that_fails_stops_any(tmp_path: Path) -> None:
    drained = "site|n1|2026-03-02T01:50:00|2026-03-02T05:00:00|DRAIN|slow|root\n"
    log = [*LOG[2:], row("4", 500, 500, 501) + "|n2"]
    assert ran(on_a_site(tmp_path, log, drained))["2"] == [(0, 60)]
    failed = ran(on_a_site(tmp_path, log, drained.replace("DRAIN", "DOWN")))
    assert [round(at, 2) for run in failed["2"] for at in run] == [
        0,
        10,
        200,
        260,
    ]  # node 1 is back before node 2 is free
    assert failed["3"] == [(1, 301)]


def test_failures_that_no_event_shows_stay_runs_of_their_own(tmp_path: Path) -> None:
    elsewhere = "site|n2|2026-03-02T08:00:00|2026-03-02T08:10:00|DOWN|gone|root\n"
    result = on_a_site(tmp_path, LOG, elsewhere)
    assert ran(result) == {"1": [(0, 30)], "1#2": [(32, 92)], "2": [(100, 160)], "3": [(101, 401)]}
    assert result.tables["jobs"]["attempt"].tolist() == [1, 2, 1, 1]
    assert result.tables["jobs"]["lost_gpu_s"].tolist() == [30 * 60 * 4, 0, 0, 0]


def failing(number: int) -> Setting:
    """Jobs on four nodes that fail now and then."""
    rng = np.random.default_rng(1_000 + number)
    count = 30
    duration_s = rng.integers(60, 3_000, count)
    jobs = Jobs.of(
        np.sort(rng.integers(0, 6_000, count)),
        rng.choice([1, 2, 4, 8, 16], count),
        duration_s,
        requested_s=duration_s + rng.integers(0, 900, count),
    )
    at_s = np.sort(rng.integers(0, 9_000, 6)).tolist()
    nodes = [int(rng.integers(0, 4)) for _ in at_s]
    return Setting(
        jobs=jobs,
        cluster=Cluster.uniform(1, 4, 8),
        profile=None,
        slot_s=60,
        maintenance=tuple(
            Window(at, at + 700, 8, at, nodes=(node,)) for at, node in zip(at_s, nodes, strict=True)
        ),
        failures=tuple(Failure(at, (node,), 60.0) for at, node in zip(at_s, nodes, strict=True)),
    )


@pytest.mark.parametrize("policy", [Easy(), FirstFit(), SlurmBackfill()], ids=lambda one: type(one).__name__)
def test_work_is_conserved_where_nodes_fail_and_nothing_runs_on_them(policy: Policy) -> None:
    lost = 0.0
    for number in range(CASES // 4):
        setting, terms = (
            failing(number),
            Terms(restart_s=[0.0, 25.0][number % 2], checkpoint_s=[0.0, 300.0][number // 2 % 2]),
        )
        record = Record(setting)
        run_rules(rules_of(policy, setting, record, terms))
        stretches = stretches_of(record)
        waits, jobs, what = (
            waits_of(record, stretches, checkpoint_s=terms.checkpoint_s),
            setting.jobs,
            f"world {number}",
        )
        assert (record.end_s >= 0).all(), what
        np.testing.assert_allclose(
            waits.running * jobs.gpus, jobs.duration_s * jobs.gpus + waits.lost_gpu_s, err_msg=what
        )
        np.testing.assert_allclose(waits.total(), record.end_s - jobs.submit_s, err_msg=what)
        begin, first, length = record.seats(stretches.row, stretches.from_s)
        for at, (from_s, to_s) in enumerate(zip(stretches.from_s, stretches.to_s, strict=True)):
            for k in range(begin[at], begin[at + 1]):
                on = set((np.arange(first[k], first[k] + length[k]) // 8).tolist())
                for window in setting.maintenance:
                    assert not (on & set(window.nodes) and from_s < window.to_s and to_s > window.from_s), (
                        what
                    )
        for row, from_s, to_s in record.away:
            assert not (
                (stretches.row == row) & (stretches.from_s < to_s) & (stretches.to_s > from_s)
            ).any(), what
        lost += float(waits.lost_gpu_s.sum())
    assert lost > 0


@pytest.mark.parametrize(
    "policy", [Easy(), Conservative(), SlurmBackfill()], ids=lambda one: type(one).__name__
)
def test_a_whole_run_decides_as_one_through_views_does(policy: BackfillPolicy) -> None:
    terms = Terms(placement="first-fit", restart_s=25.0, checkpoint_s=300.0)
    for number in range(CASES // 4):
        setting = failing(number)
        whole_as_by_views(policy, setting, terms, f"world {number}")


def drawn_failures(folder: Path, more: str, policy: str = "easy") -> forerun.Result:
    """The run of 60 jobs of an hour, one every 20 minutes, on six nodes that fail."""
    rows = [f"j{at},{1200 * at},3600,{4 if at % 3 else 8},7200" for at in range(60)]
    (folder / "jobs.csv").write_text("\n".join(("job_id,submit_s,duration_s,gpus,requested_s", *rows)) + "\n")
    (folder / "site.yaml").write_text(
        "domain: cluster\ntrace: {file: jobs.csv}\nmachines: {nodes: [{count: 6, gpus: 4}]}\n"
        f"policy: {{name: {policy}}}\nplacement: first-fit\n{more}"
    )
    return forerun.simulate(load(folder / "site.yaml"))


def test_nodes_fail_at_a_given_rate_by_the_seed_alone(tmp_path: Path) -> None:
    given = "failures: {node_mtbf_s: 20000, repair_s: 3000}\ncosts: {checkpoint_s: 900, restart_s: 30}\n"
    first = drawn_failures(tmp_path, given)
    jobs = first.tables["jobs"]
    assert jobs["preemptions"].sum() > 5 and np.isfinite(jobs["end_s"]).all()
    np.testing.assert_allclose(jobs["running_s"] * jobs["gpus"], 3600 * jobs["gpus"] + jobs["lost_gpu_s"])
    assert (jobs["lost_gpu_s"] <= jobs["preemptions"] * 900 * jobs["gpus"]).all()
    assert first.ledgers[0].parts["lost"] == pytest.approx(jobs["lost_gpu_s"].sum())
    again = drawn_failures(tmp_path, given).tables["jobs"]
    other = drawn_failures(tmp_path, given + "seed: 5\n").tables["jobs"]
    assert again["end_s"].tolist() == jobs["end_s"].tolist() != other["end_s"].tolist()


def test_more_nodes_leave_the_failures_of_others_as_they_are(tmp_path: Path) -> None:
    table = JobTable("made", drawn(1).jobs)
    given = Failures(node_mtbf_s=500.0, repair_s=100.0)
    few, many = (
        with_drawn_failures(Site(), given, table, Cluster.uniform(1, nodes, 4), 3) for nodes in (20, 40)
    )
    of_few = {at_s: nodes for at_s, nodes in many.failures.items() if nodes[0] < 20}
    assert of_few == few.failures
    expected = 20 * float(table.jobs.submit_s.max()) / (500 + 100)
    assert sum(map(len, few.failures.values())) == pytest.approx(expected, rel=0.25)


def test_a_log_has_a_rate_of_its_own_or_one_has_to_be_given(tmp_path: Path) -> None:
    events = "site|n1|2026-03-02T00:30:00|2026-03-02T01:30:00|DOWN|gone|root\n"
    on_a_site(tmp_path, LOG, events, "failures: {repair_s: 60}\n")
    table = JobTable("made", Jobs.of([0, 1000], [1, 1], [1, 1]))
    assert own_mtbf_s(Site(failures={5.0: (0, 1), 9.0: (1,)}), table, Cluster.uniform(1, 6, 4)) == 2000
    with pytest.raises(
        ForerunError, match=r"failures.node_mtbf_s: is not given, and jobs.csv shows no node that failed"
    ):
        drawn_failures(tmp_path, "failures: {repair_s: 60}\n")
    with pytest.raises(ForerunError, match="failures: is for policies that plan by requested times"):
        drawn_failures(tmp_path, "failures: {node_mtbf_s: 60}\n", "fifo")
