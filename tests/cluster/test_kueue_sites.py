"""Sites with the features of Kueue's own examples: simulated, or refused in one line that says why nothing could be."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.errors import ForerunError
from forerun.core.scenarios import load

SITES = Path(__file__).parent / "kueue_sites"
#: what a site's note says that is not simulated; with what is left out by name
USABLE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "admission_fair_sharing": (
        ("admission-fair-sharing",),
        ("admission-fair-sharing ('UsageBasedAdmissionFairSharing') of main (2 of 2 jobs)",),
    ),
    "cohort_tree": ((), ("levels of the cohorts below institute in shares and preemption of main, side (2 of 2 jobs)",)),
    "concurrent_admission": ((), ("quotas of cpu of ClusterQueue main", "concurrentAdmissionPolicy of main (2 of 2 jobs)")),
    "other_clusters": (
        ("admission-checks", "topology-requests"),
        (
            "quotas of cpu of ClusterQueue main",
            "admission-checks (a list) of main (2 of 2 jobs)",
            "topology of flavor racked of main (2 of 2 jobs)",
        ),
    ),
    "preemption": (("stop-policy",), ("quotas of cpu of ClusterQueue main", "stop-policy ('Hold') of side (0 of 2 jobs)")),
    "provisioning": (
        ("admission-checks",),
        ("quotas of cpu of ClusterQueue main", "admission-checks (a list) of main (2 of 2 jobs)"),
    ),
    "shared_credits": ((), ("quotas of gpu_credits of ClusterQueue main",)),
    "shared_devices": ((), ("quotas of nvidia.com/gpucores, nvidia.com/gpumem of ClusterQueue main",)),
    "topology": ((), ("quotas of cpu of ClusterQueue main", "topology of flavor racked of main (2 of 2 jobs)")),
    "vendors": ((), ("quotas of cpu, memory, pods of ClusterQueue main",)),
}  # fmt: skip
REFUSED = {
    "device_claims": "has no ClusterQueue with a quota of GPUs, but of gpu.vendor.org; trace: {format: kueue",
    "fallback": "has no ClusterQueue with a quota of GPUs, but of nothing",
    "one_queue": "has no ClusterQueue with a quota of GPUs, but of cpu, memory",
}


def scenario(folder: Path, name: str) -> Path:
    (folder / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,gpus,partition\na,0,100,2,lab/users\nb,5,50,2,users\n"
    )
    (folder / "s.yaml").write_text(
        f"domain: cluster\ntrace: jobs.csv\nmachines: {{file: {SITES / name}.yaml}}\npolicy: kueue\n"
    )
    return folder / "s.yaml"


def test_every_site_is_tried() -> None:
    assert {path.stem for path in SITES.iterdir()} == {*USABLE, *REFUSED}


@pytest.mark.parametrize("name", USABLE)
def test_a_site_is_simulated(tmp_path: Path, name: str) -> None:
    ignored, says = USABLE[name]
    path = scenario(tmp_path, name)
    needed = [key for key in ignored if key != "topology-requests"]
    for key in needed:
        with pytest.raises(ForerunError, match=f"is not simulated; --ignore {key}") as caught:
            forerun.simulate(load(path))
        assert len(caught.value.problems) == 1
    result = forerun.simulate(load(path, [f"machines.ignore=[{', '.join(ignored)}]"] if ignored else []))
    assert result.tables["jobs"]["first_start_s"].tolist() == [0, 5]
    said = [
        note.removeprefix("not simulated: ") for note in result.notes if note.startswith("not simulated: ")
    ]
    assert said == list(says)


@pytest.mark.parametrize("name", REFUSED)
def test_a_site_without_gpus_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ForerunError) as caught:
        forerun.simulate(load(scenario(tmp_path, name)))
    (problem,) = caught.value.problems
    assert REFUSED[name] in problem.what


def test_what_is_ignored_is_an_option(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(scenario(tmp_path, "provisioning"))
    assert command_line(["simulate", path, "-q"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert (
        "is not simulated; --ignore admission-checks (machines: {ignore: [admission-checks]}) leaves it out"
        in line
    )
    assert command_line(["simulate", path, "-q", "--ignore", "admission-checks"]) == 0
    capfd.readouterr()
    assert command_line(["simulate", path, "-q", "--ignore", "everything"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "machines.ignore" in line and "admission-checks" in line


def test_quotas_without_limit_want_the_real_nodes(tmp_path: Path) -> None:
    path = scenario(tmp_path, "topology")
    (tmp_path / "q.yaml").write_text(
        (SITES / "topology.yaml").read_text().replace("nominalQuota: 8", "nominalQuota: 80000000")
    )
    path.write_text(path.read_text().replace(f"file: {SITES / 'topology'}.yaml", "file: q.yaml"))
    with pytest.raises(
        ForerunError,
        match=r"the quotas are 8e\+07 GPUs, at most 1,000,000 are simulated; give the real nodes",
    ):
        forerun.simulate(load(path))
    nodes = "machines={nodes: [{count: 1, gpus: 8, gpu_type: racked}], site: [q.yaml]}"
    assert forerun.simulate(load(path, [nodes])).tables["jobs"]["first_start_s"].tolist() == [0, 5]
    with pytest.raises(ForerunError, match=r"ignore: is of Kueue's files"):
        load(path, ["machines={nodes: [{count: 1, gpus: 8}], ignore: [preemption]}"])


def test_preemption_and_fair_sharing_can_be_left_out(tmp_path: Path) -> None:
    path = scenario(tmp_path, "preemption")
    left_out = forerun.simulate(load(path, ["machines.ignore=[stop-policy, preemption]"]))
    assert "not simulated: preemption of main (2 of 2 jobs)" in left_out.notes
    path = scenario(tmp_path, "cohort_tree")
    assert any(
        "queues share fairly, as physics has a weight" in note for note in forerun.simulate(load(path)).notes
    )
    unshared = forerun.simulate(load(path, ["machines.ignore=[fair-sharing]"]))
    assert not any("share" in note for note in unshared.notes if "kueue" not in note)


def test_limits_of_a_cohort_can_be_left_out(tmp_path: Path) -> None:
    path = scenario(tmp_path, "cohort_tree")
    (tmp_path / "q.yaml").write_text(
        (SITES / "cohort_tree.yaml")
        .read_text()
        .replace("nominalQuota: 8", "nominalQuota: 8, lendingLimit: 2")
    )
    path.write_text(path.read_text().replace(str(SITES / "cohort_tree"), "q"))
    with pytest.raises(
        ForerunError, match="lendingLimit of a Cohort is not simulated; --ignore cohort-limits"
    ):
        forerun.simulate(load(path))
    assert forerun.simulate(load(path, ["machines.ignore=[cohort-limits]"])).notes


def test_gpus_of_another_name_are_named_by_the_log(tmp_path: Path) -> None:
    path = scenario(tmp_path, "device_claims")
    (tmp_path / "w.yaml").write_text(
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Workload\n"
        'metadata: {name: w, namespace: lab, creationTimestamp: "2025-03-01T10:00:00Z"}\n'
        "spec: {queueName: users}\nstatus:\n  admission:\n    clusterQueue: main\n"
        "    podSetAssignments: [{name: main, count: 1, resourceUsage: {gpu.vendor.org: 3}}]\n  conditions:\n"
        '  - {type: Admitted, status: "True", lastTransitionTime: "2025-03-01T10:05:00Z"}\n'
        '  - {type: Finished, status: "True", lastTransitionTime: "2025-03-01T11:05:00Z"}\n'
    )
    trace = "trace: {file: w.yaml, format: kueue, options: {resources: [gpu.vendor.org]}}"
    path.write_text(path.read_text().replace("trace: jobs.csv", trace))
    assert forerun.simulate(load(path)).tables["jobs"]["gpus"].tolist() == [3]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata:\n  manager.yaml: |\n    "
         "apiVersion: config.kueue.x-k8s.io/v1beta1\n    kind: Configuration\n    fairSharing: {enable: false}\n", False),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {}\n", True),
        ("", True),
    ],
)  # fmt: skip
def test_the_configuration_says_whether_queues_share_fairly(tmp_path: Path, more: str, says: bool) -> None:
    from forerun.cluster.inputs.kueue import read_kueue

    (tmp_path / "more.yaml").write_text(more or "# nothing\n")
    read = read_kueue([SITES / "cohort_tree.yaml", tmp_path / "more.yaml"])
    assert [bool(queue.terms.strategies) for queue in read.queues] == [says, says]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("apiVersion: v1\nkind: ConfigMap\ndata: [1]\n", ""),
        ("apiVersion: v1\nkind: ConfigMap\ndata: {a: 3, b: '[config.kueue.x-k8s.io/v1'}\n", "is not YAML"),
        ("apiVersion: config.kueue.x-k8s.io/v1\nkind: Configuration\nfairSharing: {preemptionStrategies: 3}\n", "known"),
        ("apiVersion: config.kueue.x-k8s.io/v1\nkind: Configuration\nfairSharing: [3]\n", ""),
        ("apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {name: physics}\n", "Cohort 'physics' stands twice"),
        ("apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {name: a}\nspec: 3\n", "an object is expected"),
        ("apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {name: a}\nspec: {fairSharing: {weight: .nan}}\n",
         "a number from 0 is expected|is not a number|nan"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_files_beside_the_queues_is_named(tmp_path: Path, more: str, says: str) -> None:
    from forerun.cluster.inputs.kueue import read_kueue

    (tmp_path / "more.yaml").write_text(more)
    files = [SITES / "cohort_tree.yaml", tmp_path / "more.yaml"]
    if not says:
        assert read_kueue(files).queues
        return
    with pytest.raises(ForerunError, match=says):
        read_kueue(files)
