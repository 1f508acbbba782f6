"""What slurm.conf and the QOS of a site say of priorities, in a run: usage, weights, flags, and the plain scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.cluster.inputs.prepare import Inputs, prepare
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.core.errors import ScenarioError
from forerun.core.scenarios import load

CONF = """ClusterName=site
NodeName=n1 Gres=gpu:1 CPUs=8
PartitionName=p Nodes=ALL
PriorityWeightFairshare=1000
PriorityDecayHalfLife=1000-0
PriorityCalcPeriod=1
"""
HEADER = "JobID|User|Partition|QOS|Submit|Start|End|State|ElapsedRaw|AllocTRES|Timelimit"


def row(job: int, user: str, submit: int, runs: int, *, qos: str = "normal", billing: str = "") -> str:
    """A job of one GPU; when it ran in the log does not matter."""
    start = f"2025-01-01T{job:02}:30:00"
    end = f"2025-01-02T{job:02}:30:00"
    tres = f"cpu=4{billing and ',billing='}{billing},gres/gpu=1"
    return f"{job}|{user}|p|{qos}|2025-01-01T00:00:{submit:02}|{start}|{end}|COMPLETED|{runs}|{tres}|600"


def site(folder: Path, rows: list[str], policy: str, conf: str = CONF, qos: str = "") -> Path:
    (folder / "slurm.conf").write_text(conf)
    (folder / "jobs.txt").write_text("\n".join([HEADER, *rows, ""]))
    files = "{file: slurm.conf}"
    if qos:
        (folder / "qos.txt").write_text(qos)
        files = "{file: slurm.conf, site: [qos.txt]}"
    text = f"domain: cluster\ntrace: {{file: jobs.txt, format: sacct}}\nmachines: {files}\npolicy: {policy}\n"
    (folder / "scenario.yaml").write_text(text)
    return folder / "scenario.yaml"


def inputs_of(folder: Path, conf: str, policy: str = "{name: slurm-backfill, order: multifactor}") -> Inputs:
    return prepare(load(site(folder, [row(1, "ann", 0, 10)], policy, conf)))


def order_of(inputs: Inputs) -> Multifactor:
    order = inputs.policy.order  # type: ignore[attr-defined]
    assert isinstance(order, Multifactor)
    return order


@pytest.mark.parametrize("policy", ["slurm-backfill", "easy"])
@pytest.mark.parametrize(
    ("factor", "billing", "first"),
    [
        ("1", ("", ""), "bob"),
        ("0.1", ("", ""), "ann"),
        ("1", ("1", "10"), "ann"),
        ("0.5", ("10", "20"), "bob"),
    ],
)
def test_usage_is_what_jobs_are_billed_times_the_factor_of_their_qos(
    tmp_path: Path, policy: str, factor: str, billing: tuple[str, str], first: str
) -> None:
    """Ann has had the GPU for 10,000 s, then bob for 2,000 s: the next is who was charged less."""
    rows = [
        row(1, "ann", 0, 10_000, qos="low", billing=billing[0]),
        row(2, "bob", 10, 2000, billing=billing[1]),
        *(row(job, user, 20 + job, 100, billing=billing[1]) for job, user in ((3, "ann"), (4, "bob"))),
    ]
    qos = f"Name|Priority|UsageFactor\nnormal|0|1.0\nlow|0|{factor}\n"
    path = site(tmp_path, rows, f"{{name: {policy}, order: multifactor}}", qos=qos)
    jobs = forerun.simulate(load(path)).tables["jobs"]
    started = dict(zip(jobs["job"], jobs["first_start_s"], strict=True))
    assert started["2"] < min(started["3"], started["4"])
    assert ("ann" if started["3"] < started["4"] else "bob") == first


def test_weights_that_slurmctld_ignores_without_slurmdbd(tmp_path: Path) -> None:
    """As 22.05.8 prints: PriorityWeightAge can only be used with SlurmDBD, ignoring; likewise for fair shares."""
    conf = (
        CONF
        + "PriorityWeightAge=500\nPriorityWeightJobSize=7\nAccountingStorageType=accounting_storage/none\n"
    )
    inputs = inputs_of(tmp_path, conf)
    weights = order_of(inputs).weights
    assert (weights.age, weights.fairshare, weights.job_size) == (0, 0, 7)
    said = "without slurmdbd (AccountingStorageType): PriorityWeightAge, PriorityWeightFairshare"
    assert any(note.endswith(said) for note in inputs.notes)
    for storage in ("accounting_storage/slurmdbd", "slurmdbd"):
        kept = inputs_of(tmp_path, conf.replace("accounting_storage/none", storage))
        assert (order_of(kept).weights.age, order_of(kept).weights.fairshare) == (500, 1000)
    assert order_of(kept).count_s == 60, "PriorityCalcPeriod, in minutes"


def test_flags_that_are_not_followed_say_what_they_would_change(tmp_path: Path) -> None:
    flags = "PriorityFlags=ACCRUE_ALWAYS,CALCULATE_RUNNING,NO_FAIR_TREE,NO_NORMAL_PART,NEW_ONE\n"
    inputs = inputs_of(tmp_path, CONF + flags)
    note = next(note for note in inputs.notes if note.startswith("not simulated of priorities"))
    assert "PriorityFlags=ACCRUE_ALWAYS (jobs grow older before they are eligible)" in note
    assert "PriorityFlags=NO_NORMAL_PART (" in note and "PriorityFlags=NEW_ONE (not known here)" in note
    assert "CALCULATE_RUNNING" not in note and "NO_FAIR_TREE" not in note
    assert order_of(inputs).fairshare == "classic"


def test_what_partitions_charge_is_named_where_the_log_does_not_have_it(tmp_path: Path) -> None:
    conf = CONF.replace("Nodes=ALL", "Nodes=ALL TRESBillingWeights=CPU=1.0")
    assert any("TRESBillingWeights of partitions p" in note for note in inputs_of(tmp_path, conf).notes)
    path = site(tmp_path, [row(1, "ann", 0, 10, billing="4")], "{name: easy, order: multifactor}", conf)
    assert not any("TRESBillingWeights" in note for note in prepare(load(path)).notes)


def test_fair_shares_that_weigh_nothing_are_given(tmp_path: Path) -> None:
    """They are no gap between a setting and its site; shares that count there and not in the policy are one."""
    silent = CONF.replace("PriorityWeightFairshare=1000\n", "")
    assert inputs_of(tmp_path, silent, "easy").known.fair_share
    assert not inputs_of(tmp_path, CONF, "easy").known.fair_share
    assert inputs_of(tmp_path, CONF).known.fair_share
    bare = "NodeName=n1 Gres=gpu:1\nPartitionName=p Nodes=ALL\n"
    assert not inputs_of(tmp_path, bare, "easy").known.fair_share, "nodes alone do not say"


def test_the_plain_scheduler_goes_by_priority_and_passes_nobody(tmp_path: Path) -> None:
    """On a node of one GPU: a short job behind one of higher priority waits, though it would fit before maintenance."""
    conf = (
        CONF.replace("PriorityWeightFairshare=1000", "PriorityWeightQOS=1000")
        + "SchedulerType=sched/builtin\n"
    )
    qos = "Name|Priority\nhigh|10\nlow|1\n"
    rows = [
        row(1, "ann", 0, 1000, qos="low"),
        row(2, "ann", 5, 50, qos="low"),
        row(3, "bob", 9, 500, qos="high"),
    ]
    path = site(tmp_path, rows, "{name: slurm-builtin, order: multifactor}", conf, qos)
    result = forerun.simulate(load(path))
    starts = dict(zip(result.tables["jobs"]["job"], result.tables["jobs"]["first_start_s"], strict=True))
    assert starts["1"] < starts["3"] < starts["2"]
    assert result.lead["history"] and "site's policy" not in result.lead["history"], "it is the site's own"
    with pytest.raises(ScenarioError, match="is of plans, which sched/builtin does not make"):
        load(path, ["policy.bf_window=2d"])


@pytest.mark.parametrize("policy", ["slurm-builtin", "slurm-backfill"])
def test_a_job_that_does_not_fit_holds_up_its_own_partition(tmp_path: Path, policy: str) -> None:
    """Of two partitions of a node each; a plan lets the small one pass, as it ends in time."""
    conf = "NodeName=n[1-2] Gres=gpu:2\nPartitionName=p Nodes=n1\nPartitionName=q Nodes=n2\n"
    rows = [row(job, "u", job, seconds) for job, seconds in ((1, 1000), (2, 1000), (3, 10), (4, 10))]
    rows[1] = rows[1].replace("gres/gpu=1", "gres/gpu=2")
    rows[3] = rows[3].replace("|p|", "|q|")
    rows = [one.replace("|600", "|16") if one.startswith("3|") else one for one in rows]
    jobs = forerun.simulate(load(site(tmp_path, rows, policy, conf))).tables["jobs"]
    starts = dict(zip(jobs["job"], jobs["first_start_s"], strict=True))
    assert starts["4"] < 10
    assert (starts["3"] < 100) == (policy == "slurm-backfill")
    assert starts["2"] > 1000
