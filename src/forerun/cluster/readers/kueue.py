"""Workloads of Kueue as a job log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forerun.cluster.readers.kubernetes import KubeObject, read_objects
from forerun.cluster.traces.job_logs import Gathered, JobReader, JobRows
from forerun.core.errors import TraceError
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import Complaints, RepairLog
from forerun.core.trace.rows import parse_instant
from forerun.core.trace.source import Source

#: the resources that are GPUs, unless a log says so
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")


def is_gpu(resource: str, named: Sequence[str] = ()) -> bool:
    """Whether a resource is GPUs: one of those named, or, if there are none, one that is called so."""
    if named:
        return resource in named
    return resource in GPU_RESOURCES or resource == "gpu" or resource.endswith("/gpu")


_WORKLOAD: Final = re.compile(r"kind[\"']?\s*:\s*[\"']?(?:Workload|WorkloadList)\b")
#: labels of nodes that say which GPUs they have, where no ResourceFlavor beside the workloads says it
_GPU_LABELS: Final = (
    "nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator", "karpenter.k8s.aws/instance-gpu-name",
)  # fmt: skip
_OTHERS: Final = "object that is no Workload left out"
_AGAIN: Final = "workload that was evicted before, its last admission taken"
_EVICTED: Final = "workload that was evicted and not admitted again, whose earlier run the log does not have"
_ELSEWHERE: Final = "workload that ran on another cluster (clusterName), taken as run on this one"
_TOPOLOGY: Final = "workload that asks for a topology, which is not simulated"


class Kueue(JobReader, tag="kueue", frozen=True, kw_only=True):
    """Workloads as `kubectl get workloads -A -o json` (or yaml) prints them, with other objects beside them or not.

    A job is submitted when its Workload is created, starts when it is admitted and ends when it is finished. Its GPUs are
    those that its admission counts, else the requests of the admitted pods, those that it gave back early among them. `user`
    is the namespace, `account` the LocalQueue, `vc` the ClusterQueue (`NAMESPACE/LOCALQUEUE` where the log does not say it).
    `gpu_type` is the flavor that a job has, or would have, if it asks for one by labels of nodes.
    Workloads that were not admitted or are not finished are dropped and counted; of one that was evicted, only the last
    admission is known. resources: which are GPUs, added up (default: those that are called so, such as nvidia.com/gpu).
    """

    resources: tuple[str, ...] = ()

    about = "Kueue workloads (YAML or JSON): kubectl get workloads -A -o json"
    clock = "UTC"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        text = "\n".join(head.lines)
        return "kueue.x-k8s.io/" in text and bool(_WORKLOAD.search(text))

    def gather(self, path: Path, repairs: RepairLog) -> Gathered:
        source, complaints, rows = Source(path, repairs=repairs), Complaints(), JobRows()
        queue_of: dict[tuple[str, str], str] = {}
        labels: dict[str, dict[str, Any]] = {}  # of the nodes of each flavor
        objects = read_objects(source)
        for one in objects:
            if one.kind == "LocalQueue":
                key = one.text("metadata", "namespace"), one.text("metadata", "name")
                queue_of[key] = one.text("spec", "clusterQueue")
            elif one.kind == "ResourceFlavor":
                labels[one.text("metadata", "name")] = _named(one, "spec", "nodeLabels")
        for number, one in enumerate(objects):
            if one.kind != "Workload" or not one.version.startswith("kueue.x-k8s.io/"):
                repairs.note(_OTHERS, f"{source.name}: object {number}")
                continue
            try:
                run = self._run(one, queue_of, f"{source.name}: object {number}", repairs)
                rows.add(number + 1, **run, gpu_type=self._type(one, labels))
            except TraceError as error:
                for problem in error.problems:
                    complaints.add(problem.where, problem.what)
        complaints.finish()
        if not rows.lines:
            raise TraceError.at(
                source.name, "contains no Workload; print the log with: kubectl get workloads -A -o json"
            )
        return Gathered(source, rows.lines, rows.columns())

    def _run(
        self, one: KubeObject, queue_of: dict[tuple[str, str], str], where: str, repairs: RepairLog
    ) -> dict[str, Any]:
        """The run of a Workload. where: for the log of repairs, which may be long."""
        namespace, local = one.text("metadata", "namespace"), one.text("spec", "queueName")
        name = one.text("metadata", "name")
        if not name:
            raise one.fault("is empty", "metadata", "name")
        conditions = {
            one.text(*at, "type"): at
            for at in one.items("status", "conditions")
            if one.text(*at, "status") == "True"
        }
        submit_s = _instant_s(one, "metadata", "creationTimestamp")
        admitted, finished = (conditions.get(kind) for kind in ("Admitted", "Finished"))
        admitted = admitted or conditions.get("QuotaReserved")
        nan = float("nan")
        known = {one.text(*at, "type") for at in one.items("status", "conditions")}
        again = one.get("status", "requeueState"), one.get("status", "schedulingStats", "evictions")
        if any(again) or known & {"Evicted", "Preempted", "Requeued"}:
            repairs.note(_AGAIN if admitted else _EVICTED, where)
        if one.text("status", "clusterName"):
            repairs.note(_ELSEWHERE, where)
        asked = [(*at, "topologyRequest") for at in one.items("spec", "podSets")]
        if any(one.get(*at, key) for at in asked for key in ("required", "preferred")):
            repairs.note(_TOPOLOGY, where)
        longest_s = one.count("spec", "maximumExecutionTimeSeconds")
        queue = one.text("status", "admission", "clusterQueue") or queue_of.get((namespace, local), "")
        if local and not queue:
            queue = f"{namespace}/{local}"  # files of queues may know it
        return {
            "job_id": f"{namespace}/{name}" if namespace else name,
            "user": namespace,
            "account": local,
            "vc": queue,
            "submit_s": submit_s,
            "start_s": _instant_s(one, *admitted, "lastTransitionTime") if admitted else nan,
            "end_s": _instant_s(one, *finished, "lastTransitionTime") if finished else nan,
            "gpus": self._gpus(one),
            "state": (one.text(*finished, "reason") if finished else "") or ("Finished" if finished else ""),
            "requested_s": float(longest_s) if longest_s else nan,
            "priority": _priority(one),
        }

    def _type(self, one: KubeObject, labels: Mapping[str, Mapping[str, Any]]) -> str:
        """The flavor of the GPUs that a Workload asks for; empty: it asks for none, or for several.

        labels: of the nodes of each flavor that the log has.
        """
        keys = {key for of in labels.values() for key in of} or set(_GPU_LABELS)
        given = {
            one.text(*at, "name"): flavor
            for at in one.items("status", "admission", "podSetAssignments")
            for resource, flavor in _named(one, *at, "flavors").items()
            if is_gpu(str(resource), self.resources)
        }
        types = set()
        for at in one.items("spec", "podSets"):
            selector = _named(one, *at, "template", "spec", "nodeSelector")
            asked = {key: value for key, value in selector.items() if key in keys}
            if not asked:
                continue
            fitting = [name for name, of in labels.items() if asked.items() <= of.items()]
            one_of = fitting if labels else sorted(map(str, asked.values()))
            alone = one_of[0] if len(one_of) == 1 else ""
            types.add(str(given.get(one.text(*at, "name"), alone)))
        return types.pop() if len(types) == 1 else ""

    def _gpus(self, one: KubeObject) -> float:
        """The GPUs of all pods of a Workload."""
        admitted = {one.text(*at, "name"): at for at in one.items("status", "admission", "podSetAssignments")}
        asked = {one.text(*at, "name"): at for at in one.items("spec", "podSets")}
        total = 0
        for name in admitted or asked:
            if name in admitted and one.get(*admitted[name], "resourceUsage") is not None:
                total += sum(self._of(one, *admitted[name], "resourceUsage").values())
            elif name in asked:
                pods = one.count(*admitted[name], "count") if name in admitted else None
                pods = one.count(*asked[name], "count") if pods is None else pods
                total += (1 if pods is None else pods) * self._of_pod(one, *asked[name], "template", "spec")
        return float(total)

    def _of_pod(self, one: KubeObject, *at: str | int) -> int:
        """The GPUs of a pod: all containers at once, or one that runs before them, beside those that run on (sidecars)."""
        beside, most = 0, 0
        for container in one.items(*at, "initContainers"):
            gpus = self._of_container(one, *container)
            if one.text(*container, "restartPolicy") == "Always":
                beside += gpus
            else:
                most = max(most, beside + gpus)
        return max(
            most, beside + sum(self._of_container(one, *each) for each in one.items(*at, "containers"))
        )

    def _of_container(self, one: KubeObject, *at: str | int) -> int:
        """The GPUs that a container asks for; a limit stands for a request that is left out, as in Kubernetes."""
        limits, requests = (self._of(one, *at, "resources", key) for key in ("limits", "requests"))
        return sum((limits | requests).values())

    def _of(self, one: KubeObject, *at: str | int) -> dict[str, int]:
        """The GPUs in a mapping of resources."""
        return {
            name: one.count(*at, name) or 0 for name in _named(one, *at) if is_gpu(str(name), self.resources)
        }


def _named(one: KubeObject, *at: str | int) -> dict[str, Any]:
    """An object of names and values; empty if it is not there."""
    named = one.get(*at)
    if not isinstance(named, dict | None):
        raise one.fault("an object is expected", *at)
    return named or {}


def _instant_s(one: KubeObject, *path: str | int) -> float:
    try:
        return parse_instant(one.text(*path)) / 1e9
    except ValueError as error:
        raise one.fault(str(error), *path) from None


def _priority(one: KubeObject) -> float:
    value = one.get("spec", "priority")
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int):
        raise one.fault("a whole number is expected", "spec", "priority")
    return float(value)
