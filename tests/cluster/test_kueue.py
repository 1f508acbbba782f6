"""Kueue: quotas, cohorts and queues from YAML, Workloads as a log, and the order of admission against a reference."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.inputs.kueue import read_kueue
from forerun.cluster.inputs.limits import UNLIMITED
from forerun.core.errors import ForerunError, ScenarioError, TraceError
from forerun.core.scenarios import load
from forerun.core.trace.reader import read_trace, sniff
from forerun.core.trace.repair import RepairLog

QUEUES = """apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: a100}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: vision}
spec:
  cohort: research
  namespaceSelector: {}
  queueingStrategy: BestEffortFIFO
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: a100
      resources:
      - {name: cpu, nominalQuota: 100}
      - {name: nvidia.com/gpu, nominalQuota: "8", borrowingLimit: 4}
---
# nothing
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: nlp}
spec:
  cohort: research
  queueingStrategy: StrictFIFO
  preemption: {reclaimWithinCohort: Never, withinClusterQueue: Never}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: a100
      resources: [{name: nvidia.com/gpu, nominalQuota: 8, lendingLimit: 6}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: team, namespace: nlp-team}
spec: {clusterQueue: nlp}
"""
WORKLOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "Workload",
    "metadata": {"name": "job-train", "namespace": "nlp-team", "creationTimestamp": "2024-03-01T10:00:00Z"},
    "spec": {
        "queueName": "team", "priority": 100, "maximumExecutionTimeSeconds": 7200,
        "podSets": [
            {"name": "launcher", "count": 1, "template": {"spec": {"containers": [{"name": "c", "resources": {}}]}}},
            {"name": "worker", "count": 3, "template": {"spec": {
                "containers": [
                    {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "2", "cpu": "4"}}},
                    {"name": "d", "resources": {"limits": {"nvidia.com/gpu": 1}}},
                ],
                "initContainers": [{"name": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}],
            }}},
        ],
    },
    "status": {
        "admission": {"clusterQueue": "nlp"},
        "conditions": [
            {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2024-03-01T10:04:00Z"},
            {"type": "Admitted", "status": "True", "lastTransitionTime": "2024-03-01T10:05:00Z"},
            {"type": "Evicted", "status": "False", "lastTransitionTime": "2024-03-01T10:03:00Z"},
            {"type": "Finished", "status": "True", "lastTransitionTime": "2024-03-01T11:05:00Z", "reason": "Succeeded"},
        ],
    },
}  # fmt: skip


def written(folder: Path, text: str, name: str = "queues.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_queues_are_read(tmp_path: Path) -> None:
    read = read_kueue([written(tmp_path, QUEUES)])
    vision, nlp = read.queues
    assert (vision.name, vision.terms.cohort, vision.terms.strict) == ("vision", "research", False)
    assert (nlp.terms.strict, nlp.terms.tries_next) == (True, False)
    assert [(q.flavor, q.nominal, q.borrows, q.lends) for q in (*vision.quotas, *nlp.quotas)] == [
        ("a100", 8, 4, 8), ("a100", 8, UNLIMITED, 6),
    ]  # fmt: skip
    assert read.local == {"nlp-team/team": "nlp", "team": "nlp"}
    assert read.notes == ("not simulated: quotas of cpu of ClusterQueue vision",)
    cluster = read.cluster("", 100)
    assert [(one.name, one.count, one.gpus, one.gpu_type) for one in cluster.groups] == [
        ("a100", 1, 16, "a100")
    ]
    site = read.site(cluster)
    assert site.pools == {"research/a100": 14}
    assert [(rule.gpus, rule.own_gpus) for rule in site.rules] == [(12, 0), (UNLIMITED, 2)]
    assert [queue.nominal_gpus for queue in site.queues] == [{"a100": 8}, {"a100": 8}]


def test_a_list_and_json_are_the_same(tmp_path: Path) -> None:
    import yaml

    objects = [one for one in yaml.safe_load_all(QUEUES) if one]
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    as_json = written(tmp_path, json.dumps(listed), "queues.json")
    as_yaml = written(tmp_path, yaml.safe_dump(listed), "list.yaml")
    assert read_kueue([as_json]) == read_kueue([as_yaml]) == read_kueue([written(tmp_path, QUEUES)])
    newer = QUEUES.replace("v1beta1", "v1beta2").replace("cohort:", "cohortName:")
    assert read_kueue([written(tmp_path, newer)]) == read_kueue([as_json])


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("reclaimWithinCohort: Never", "reclaimWithinCohort: All",
         "queues.yaml:28:spec.preemption.reclaimWithinCohort: known: Never, LowerPriority, Any"),
        ("withinClusterQueue: Never", "withinClusterQueue: Lower", "known: Never, LowerPriority, LowerOrNewerEqualPriority"),
        ("withinClusterQueue: Never", "borrowWithinCohort: {policy: LowerPriority}",
         "borrowWithinCohort.policy: is 'LowerPriority' where reclaimWithinCohort is 'Never', which Kueue refuses"),
        ("reclaimWithinCohort: Never", "reclaimWithinCohort: Any, borrowWithinCohort: {policy: LowerPriority, "
         "maxPriorityThreshold: x}", "maxPriorityThreshold: a whole number is expected"),
        ("  namespaceSelector: {}\n", "  fairSharing: {weight: -2}\n", "spec.fairSharing.weight: a number from 0 is"),
        ("  namespaceSelector: {}\n", "  admissionChecks: [prov]\n",
         r"spec.admissionChecks: a list is not simulated; --ignore admission-checks \(machines: "),
        ("  namespaceSelector: {}\n", "  stopPolicy: Hold\n", "spec.stopPolicy: 'Hold' is not simulated; .*stop-policy"),
        ("spec: {clusterQueue: nlp}", "spec: {clusterQueue: nlp, stopPolicy: HoldAndDrain}",
         "queues.yaml:38:spec.stopPolicy: 'HoldAndDrain' is not simulated; .*stop-policy"),
        ("  namespaceSelector: {}\n", "  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}\n",
         "'UsageBasedAdmissionFairSharing' is not simulated; .*admission-fair-sharing"),
        ("apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: a100}",
         "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {name: research}\nspec: {parent: all}\n---\n"
         "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: all}\nspec: {parentName: research}",
         "the parents of Cohorts form a cycle: research -> all -> research"),
        ("apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: a100}",
         "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
         "fairSharing: {enable: true, preemptionStrategies: [Any]}",
         "preemptionStrategies: known: LessThanOrEqualToFinalShare, LessThanInitialShare"),
        ("StrictFIFO", "FIFO", "spec.queueingStrategy: known: BestEffortFIFO, StrictFIFO"),
        ('nominalQuota: "8"', "nominalQuota: many", "nominalQuota: a whole number from 0 is expected"),
        ('nominalQuota: "8", ', "", "nominalQuota: is missing"),
        ("lendingLimit: 6", "lendingLimit: 9", "lendingLimit: is 9, more than the nominal quota of 8"),
        ("  cohort: research\n  namespaceSelector", "  namespaceSelector", "borrowingLimit: is of a ClusterQueue in a co"),
        ("metadata: {name: nlp}", "metadata: {name: vision}", "ClusterQueue 'vision' stands twice"),
        ("metadata: {name: nlp}", "metadata: {}", "metadata.name: is empty"),
        ("spec: {clusterQueue: nlp}", "spec: [1]", "spec: an object is expected"),
        ("kind: ClusterQueue\nmetadata: {name: vision}", "kind: &a ClusterQueue\nmetadata: *a", "anchor &a is not allowed"),
        ("kind: ResourceFlavor", "kind: !!python/object:os.system x", "tag .* is not allowed"),
        ("kind: ResourceFlavor", "kind: [", "is not YAML"),
    ],
)  # fmt: skip
def test_what_is_not_simulated_or_wrong_is_named(tmp_path: Path, before: str, after: str, says: str) -> None:
    assert before in QUEUES
    with pytest.raises(ScenarioError, match=says):
        read_kueue([written(tmp_path, QUEUES.replace(before, after))])


def test_files_without_queues_say_how_to_print_them(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="kubectl get clusterqueues"):
        read_kueue([written(tmp_path, QUEUES.partition("---")[0])])


def test_workloads_are_jobs(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"kind": "List", "items": [WORKLOAD]}, indent=1), "workloads.json")
    assert sniff(path) == ("kueue",)
    trace = read_trace(path)
    assert trace["job_id"].tolist() == ["nlp-team/job-train"]
    assert [trace[name][0] for name in ("user", "account", "vc", "state")] == [
        "nlp-team",
        "team",
        "nlp",
        "Succeeded",
    ]
    assert [trace[name][0] for name in ("submit_s", "start_s", "end_s", "duration_s", "requested_s", "priority")] == [
        0, 300, 3900, 3600, 7200, 100,
    ]  # fmt: skip
    assert trace["gpus"][0] == 9


def test_workloads_in_yaml_with_other_objects_beside_them(tmp_path: Path) -> None:
    import yaml

    usage = json.loads(json.dumps(WORKLOAD))
    usage["status"]["admission"]["podSetAssignments"] = [
        {"name": "w", "resourceUsage": {"nvidia.com/gpu": "4"}}
    ]
    pending = json.loads(json.dumps(WORKLOAD))
    pending["metadata"]["name"] = "waits"
    pending["status"] = {"conditions": [{"type": "QuotaReserved", "status": "False"}]}
    log = RepairLog()
    text = yaml.safe_dump_all([usage, pending]) + "---\n" + QUEUES
    trace = read_trace(written(tmp_path, text), "kueue", repairs=log)
    assert trace["gpus"].tolist() == [4]
    assert {repair.rule: repair.count for repair in log.repairs} == {
        "workload that was evicted before, its last admission taken": 1,
        "object that is no Workload left out": 4,
        "job that never ran or has no end dropped": 1,
    }


def test_a_workload_asks_for_a_flavor_by_labels_of_nodes(tmp_path: Path) -> None:
    """The flavor of one that asks for none is where it happened to be."""

    def workload(name: str, selector: dict[str, str]) -> object:
        one = json.loads(json.dumps(WORKLOAD))
        one["metadata"]["name"] = name
        sets = one["spec"]["podSets"]
        for pods in sets:
            pods["template"]["spec"]["nodeSelector"] = selector
        one["status"]["admission"]["podSetAssignments"] = [
            {"name": pods["name"], "flavors": {"nvidia.com/gpu": "big"}} for pods in sets
        ]
        return one

    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "big"},
        "spec": {"nodeLabels": {"pool": "h100"}},
    }  # fmt: skip
    for beside, key in (([flavor], "pool"), ([], "nvidia.com/gpu.product")):
        items = [workload("a", {key: "h100"}), workload("b", {"disk": "ssd"}), *beside]
        path = written(tmp_path, json.dumps({"kind": "List", "items": items}), "w.json")
        assert read_trace(path)["gpu_type"].tolist() == ["big", ""]


def pod(requests: dict[str, object], *before: dict[str, object]) -> dict[str, object]:
    containers = [{"name": "c", "resources": {"requests": requests}}]
    return {"spec": {"containers": containers, "initContainers": list(before)}}


def needs(gpus: int, **more: object) -> dict[str, object]:
    return {"name": "i", "resources": {"requests": {"nvidia.com/gpu": gpus}}, **more}


@pytest.mark.parametrize(
    ("pod_sets", "admission", "gpus"),
    [
        # the launcher has no resources, and fewer workers than asked for were admitted
        ([("launcher", 1, pod({})), ("worker", 4, pod({"nvidia.com/gpu": 2}))],
         [{"name": "launcher", "count": 1}, {"name": "worker", "count": 3, "resourceUsage": {"nvidia.com/gpu": "6"}}], 6),
        ([("worker", 4, pod({"nvidia.com/gpu": 2}))], [{"name": "worker", "count": 3}], 6),
        # one pod set says what it uses, the other does not
        ([("a", 1, pod({"nvidia.com/gpu": 1})), ("b", 2, pod({"nvidia.com/gpu": 1}))],
         [{"name": "a", "count": 1, "resourceUsage": {"nvidia.com/gpu": "1"}}, {"name": "b", "count": 2}], 3),
        # a container that runs before the others, and one that runs beside them
        ([("a", 2, pod({"nvidia.com/gpu": 2}, needs(3)))], [], 6),
        ([("a", 2, pod({"nvidia.com/gpu": 2}, needs(1, restartPolicy="Always")))], [], 6),
        ([("a", 1, pod({"nvidia.com/gpu": 2}, needs(1, restartPolicy="Always"), needs(3)))], [], 4),
        # what is called GPUs, and what is not
        ([("a", 1, pod({"gpu": 1, "example.org/gpu": 2, "nvidia.com/gpumem": 4000, "cpu": "500m"}))], [], 3),
    ],
)  # fmt: skip
def test_gpus_are_those_of_the_admitted_pods(
    tmp_path: Path, pod_sets: list[tuple[str, int, object]], admission: list[object], gpus: int
) -> None:
    one = json.loads(json.dumps(WORKLOAD))
    one["spec"]["podSets"] = [
        {"name": name, "count": count, "template": template} for name, count, template in pod_sets
    ]
    one["status"]["admission"]["podSetAssignments"] = admission
    one["status"]["reclaimablePods"] = [
        {"name": pod_sets[-1][0], "count": 1}
    ]  # it held them until they ended
    assert read_trace(written(tmp_path, json.dumps(one), "w.json"), "kueue")["gpus"].tolist() == [gpus]


def condition(kind: str, status: bool, minute: int, reason: str = "") -> dict[str, str]:
    at = f"2024-03-01T{10 + minute // 60}:{minute % 60:02}:00Z"
    return {"type": kind, "status": str(status), "lastTransitionTime": at, "reason": reason}


def test_evictions_are_counted_and_the_last_admission_is_taken(tmp_path: Path) -> None:
    """What Kueue leaves behind: of each condition, its last change."""
    admitted = [condition("QuotaReserved", True, 30), condition("Admitted", True, 31)]
    done = condition("Finished", True, 61, "Succeeded")
    shapes = {
        "plain": [*admitted, done],
        "preempted": [condition("Evicted", False, 30, "QuotaReserved"), condition("Preempted", False, 30), *admitted, done],
        "requeued": [condition("Requeued", True, 20, "BackoffFinished"), *admitted, done],
        "waits-again": [condition("QuotaReserved", False, 20), condition("Admitted", False, 20),
                        condition("Evicted", True, 20, "Preempted"), condition("Requeued", True, 20)],
        "deleted": [condition("QuotaReserved", False, 20), condition("Evicted", True, 20, "Deactivated"), done],
        "waits": [condition("QuotaReserved", False, 1)],
        "runs": admitted,
    }  # fmt: skip
    items = []
    for name, conditions in shapes.items():
        one = json.loads(json.dumps(WORKLOAD))
        one["metadata"]["name"], one["status"]["conditions"] = name, conditions
        items.append(one)
    items[0]["status"]["schedulingStats"] = {"evictions": [{"reason": "Preempted", "count": 2}]}
    log = RepairLog()
    path = written(tmp_path, json.dumps({"kind": "List", "items": items}), "w.json")
    trace = read_trace(path, "kueue", repairs=log)
    assert trace["job_id"].tolist() == ["nlp-team/plain", "nlp-team/preempted", "nlp-team/requeued"]
    assert [trace[name].tolist() for name in ("start_s", "end_s")] == [[1860.0] * 3, [3660.0] * 3]
    assert {repair.rule: repair.count for repair in log.repairs} == {
        "workload that was evicted before, its last admission taken": 3,
        "workload that was evicted and not admitted again, whose earlier run the log does not have": 2,
        "job that never ran or has no end dropped": 4,
    }


def test_where_a_workload_ran_and_what_it_asked_of_its_nodes_is_noted(tmp_path: Path) -> None:
    one = json.loads(json.dumps(WORKLOAD))
    one["status"]["clusterName"] = "east"
    one["spec"]["podSets"][1]["topologyRequest"] = {"required": "cloud.provider.com/rack"}
    one["metadata"]["creationTimestamp"] = "2024-03-01T12:00:00+02:00"
    log = RepairLog()
    trace = read_trace(written(tmp_path, json.dumps(one), "w.json"), "kueue", repairs=log)
    assert trace["start_s"].tolist() == [300]
    assert [repair.rule for repair in log.repairs][1:] == [
        "workload that ran on another cluster (clusterName), taken as run on this one",
        "workload that asks for a topology, which is not simulated",
    ]


def test_a_local_queue_is_found_among_the_machines(tmp_path: Path) -> None:
    """A log that does not say the ClusterQueue: the file of queues does, by namespace."""
    one = json.loads(json.dumps(WORKLOAD))
    del one["status"]["admission"]
    written(tmp_path, json.dumps(one), "w.json")
    other = (
        QUEUES
        + "---\n"
        + "\n".join(QUEUES.splitlines()[-4:]).replace("nlp-team", "other").replace("nlp}", "vision}")
    )
    written(tmp_path, other)
    path = written(
        tmp_path, "domain: cluster\ntrace: w.json\nmachines: {file: queues.yaml}\npolicy: kueue\n", "c.yaml"
    )
    result = forerun.simulate(load(path))
    assert result.tables["jobs"]["first_start_s"].tolist() == [0]


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("metadata", "creationTimestamp"), "soon", "metadata.creationTimestamp: 'soon' is not a time"),
        (("spec", "priority"), "high", "spec.priority: a whole number is expected"),
        (("spec", "podSets"), {"count": 1}, "spec.podSets: a list is expected"),
        (
            ("spec", "podSets"),
            [{"count": "x"}],
            r"spec.podSets\[0\].count: a whole number from 0 is expected",
        ),
        (("metadata", "name"), "", "metadata.name: is empty"),
        (
            ("spec", "podSets", 0, "topologyRequest"),
            3,
            r"podSets\[0\].topologyRequest: an object is expected",
        ),
        (
            ("status", "admission"),
            {"podSetAssignments": [{"name": "w", "resourceUsage": 4}]},
            "an object is expected",
        ),
        (("status",), "done", "status: an object is expected"),
    ],
)
def test_what_is_wrong_with_a_workload_is_named(
    tmp_path: Path, path: tuple[str | int, ...], value: object, says: str
) -> None:
    changed = json.loads(json.dumps(WORKLOAD))
    part = changed
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(TraceError, match=says):
        read_trace(written(tmp_path, json.dumps(changed, indent=1), "w.json"), "kueue")


# ------------------------------------------------------------------------------------------- the order of admission


@dataclass(frozen=True)
class Job:
    queue: str
    submit: int
    seconds: int
    gpus: int
    priority: int


@dataclass(frozen=True)
class Quota:
    nominal: int
    borrows: int | None
    lends: int | None


@dataclass(frozen=True)
class Case:
    """Queues with a quota for each flavor, all in one cohort or alone, and their jobs by submission."""

    cohort: bool
    strict: dict[str, bool]
    tries_next: dict[str, bool]
    quotas: dict[str, dict[str, Quota]]
    jobs: tuple[Job, ...]


def drawn(number: int) -> Case:
    rng = np.random.default_rng(number)
    names = ["qa", "qb", "qc"][: int(rng.integers(1, 4))]
    flavors = ["f", "g"][: int(rng.integers(1, 3))]
    cohort = bool(rng.random() < 0.8)
    quotas: dict[str, dict[str, Quota]] = {}
    for name in names:
        quotas[name] = {}
        for flavor in rng.permutation(flavors).tolist():
            nominal = int(rng.integers(2, 7))
            borrows = int(rng.integers(0, 5)) if cohort and rng.random() < 0.5 else None
            lends = int(rng.integers(0, nominal + 1)) if cohort and rng.random() < 0.5 else None
            quotas[name][flavor] = Quota(nominal, borrows, lends)
    least = {name: max(quota.nominal for quota in of.values()) for name, of in quotas.items()}
    jobs = []
    for submit in np.sort(rng.integers(0, 40, int(rng.integers(1, 20)))).tolist():
        queue = str(rng.choice(names))
        size = int(rng.integers(1, least[queue] + 1))
        jobs.append(Job(queue, submit, int(rng.integers(1, 30)), size, int(rng.integers(0, 3))))
    return Case(
        cohort, {name: bool(rng.random() < 0.4) for name in names},
        {name: bool(rng.random() < 0.4) for name in names}, quotas, tuple(jobs),
    )  # fmt: skip


def may_have(case: Case, flavor: str, used: dict[str, int]) -> bool:
    """Whether queues may have so many GPUs of a flavor, by trying every amount that each could lend."""
    beyond, spare = 0, []
    for name, of in case.quotas.items():
        quota = of[flavor]
        more = max(0, used[name] - quota.nominal)
        if more and (not case.cohort or (quota.borrows is not None and more > quota.borrows)):
            return False
        beyond += more
        unused = max(0, quota.nominal - used[name])
        spare.append(range(min(unused, quota.nominal if quota.lends is None else quota.lends) + 1))
    return any(sum(lent) >= beyond for lent in itertools.product(*spare))


def fitting(case: Case, running: Sequence[tuple[float, int, str]], row: int) -> tuple[bool, str] | None:
    """Whether a job would borrow, and on which flavor it is admitted; None: on none now."""
    job, options = case.jobs[row], []
    for flavor in case.quotas[job.queue]:
        used = dict.fromkeys(case.quotas, 0)
        for _, other, of in running:
            if of == flavor:
                used[case.jobs[other].queue] += case.jobs[other].gpus
        used[job.queue] += job.gpus
        if may_have(case, flavor, used):
            options.append((used[job.queue] > case.quotas[job.queue][flavor].nominal, flavor))
    if not options:
        return None
    within = [option for option in options if not option[0]]
    return within[0] if within and case.tries_next[job.queue] else options[0]


def reference(case: Case) -> list[float]:
    """Starts by the rules of Kueue, written without `Limits`, `Tally` and the policy."""
    starts: dict[int, float] = {}
    running: list[tuple[float, int, str]] = []
    moments = {float(job.submit) for job in case.jobs}
    while moments:
        now = min(moments)
        moments.discard(now)
        running[:] = [one for one in running if one[0] > now]
        parked: set[int] = set()
        closed: set[str] = set()

        while True:
            heads = {}
            for row, job in sorted(enumerate(case.jobs), key=lambda one: (-one[1].priority, one[0])):
                waits = row not in starts and row not in parked and job.submit <= now
                if waits and job.queue not in closed:
                    heads.setdefault(job.queue, row)
            if not heads:
                break
            entries = []
            for queue, row in heads.items():
                option = fitting(case, running, row)
                if option is not None:
                    entries.append((option[0], -case.jobs[row].priority, row))
                elif case.strict[queue]:
                    closed.add(queue)
                else:
                    parked.add(row)
            for _, _, row in sorted(entries):
                if (option := fitting(case, running, row)) is not None:
                    starts[row] = now
                    running.append((now + case.jobs[row].seconds, row, option[1]))
                    moments.add(now + case.jobs[row].seconds)
    return [starts[row] for row in range(len(case.jobs))]


def scenario(folder: Path, case: Case, policy: str = "kueue") -> Path:
    parts = []
    for name, of in case.quotas.items():
        spec: dict[str, object] = {
            "queueingStrategy": "StrictFIFO" if case.strict[name] else "BestEffortFIFO",
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor" if case.tries_next[name] else "Borrow"},
            "resourceGroups": [{"flavors": [
                {"name": flavor, "resources": [
                    {"name": "nvidia.com/gpu", "nominalQuota": quota.nominal}
                    | ({} if quota.borrows is None else {"borrowingLimit": quota.borrows})
                    | ({} if quota.lends is None else {"lendingLimit": quota.lends})
                ]} for flavor, quota in of.items()
            ]}],
        }  # fmt: skip
        if case.cohort:
            spec["cohort"] = "all"
        parts.append(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "spec": spec,
            }
        )
    (folder / "queues.json").write_text(json.dumps({"kind": "List", "items": parts}))
    rows = [
        f"{at},{job.submit},{job.seconds},{job.gpus},{job.queue},{job.priority}"
        for at, job in enumerate(case.jobs)
    ]
    (folder / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,gpus,partition,priority\n" + "\n".join(rows) + "\n"
    )
    return written(
        folder,
        f"domain: cluster\ntrace: jobs.csv\nmachines: {{file: queues.json}}\npolicy: {policy}\n",
        "cluster.yaml",
    )


@pytest.mark.parametrize("block", range(4))
def test_admission_is_that_of_the_reference(tmp_path: Path, block: int) -> None:
    for number in range(30 * block, 30 * block + 30):
        case = drawn(number)
        result = forerun.simulate(load(scenario(tmp_path, case)))
        assert result.tables["jobs"]["first_start_s"].tolist() == reference(case), number


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill-unreserved", "srtf"])
def test_other_policies_keep_to_the_quotas(tmp_path: Path, policy: str) -> None:
    for number in range(500, 510):
        case = drawn(number)
        result = forerun.simulate(load(scenario(tmp_path, case, policy)))
        allocations = result.tables["allocations"]
        assert np.isfinite(result.tables["jobs"]["end_s"]).all()
        if len(next(iter(case.quotas.values()))) > 1:
            continue  # the table of allocations does not say which flavor a job is on
        for now in np.unique(allocations["from_s"]).tolist():
            used = dict.fromkeys(case.quotas, 0)
            there = (allocations["from_s"] <= now) & (allocations["to_s"] > now)
            for job, gpus in zip(allocations["job"][there], allocations["gpus"][there], strict=True):
                used[case.jobs[int(job)].queue] += int(gpus)
            assert may_have(case, next(iter(next(iter(case.quotas.values())))), used), (number, now)


def test_objects_beside_each_other_in_yaml_are_a_log_and_machines(tmp_path: Path) -> None:
    """Several documents in a file are no description of a scenario's section."""
    import yaml

    other = json.loads(json.dumps(WORKLOAD))
    other["metadata"]["name"] = "second"
    other["spec"]["podSets"][1]["count"] = 1
    for name in ("trace.yaml", "machines.yaml"):
        written(tmp_path, yaml.safe_dump_all([WORKLOAD, other]) + "---\n" + QUEUES, name)
    path = written(
        tmp_path,
        "domain: cluster\ntrace: trace.yaml\nmachines: machines.yaml\npolicy: kueue\n",
        "cluster.yaml",
    )
    # nlp has 8 GPUs and may borrow 8 of vision's: 9 for the first, 3 for the second
    assert forerun.simulate(load(path)).tables["jobs"]["first_start_s"].tolist() == [0, 0]


def test_a_job_of_no_queue_is_an_error(tmp_path: Path) -> None:
    case = drawn(1)
    path = scenario(tmp_path, case)
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,gpus,partition\na,0,9,1,other\nb,0,9,1,qa\n"
    )
    with pytest.raises(TraceError, match=r"jobs.csv:2: job a: asks for 1 GPUs; no ClusterQueue 'other'"):
        forerun.simulate(load(path))
    assert len(forerun.simulate(load(path, ["trace.larger=drop"])).tables["jobs"]["job"]) == 1


def test_queues_want_their_flavors(tmp_path: Path) -> None:
    path = scenario(tmp_path, drawn(1))
    plain = forerun.simulate(load(path, ["machines={nodes: [{count: 1, gpus: 8}]}"]))
    assert any("no ClusterQueue is given" in note for note in plain.notes)
    (tmp_path / "queues.yaml").write_text(QUEUES)
    machines = "machines={nodes: [{count: 2, gpus: 8, gpu_type: %s}, {count: 1, gpus: 8, gpu_type: T}], site: [queues.yaml]}"
    with pytest.raises(ForerunError, match="no nodes have the gpu_type 'a100'"):
        forerun.simulate(load(path, [machines % "v100"]))
    (tmp_path / "qos.txt").write_text("Name|Priority\nnormal|0\n")
    with pytest.raises(ForerunError, match="has files of Slurm beside Kueue's"):
        forerun.simulate(load(path, ["machines.site=[qos.txt]"]))
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,gpus,partition\na,0,9,8,team\nb,0,9,8,vision\n"
    )
    result = forerun.simulate(load(path, [machines % "A100"]))
    assert result.tables["jobs"]["first_start_s"].tolist() == [0, 0]
