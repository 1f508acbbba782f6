"""ClusterQueues of Kueue as machines and limits: quotas by flavor, cohorts that lend, and the order in which queues admit.

Format: Kueue's API, groups `kueue.x-k8s.io/v1beta1` and `v1beta2`. A ClusterQueue may use its nominal quota of a flavor and,
in a cohort, what others lend: at most its `borrowingLimit` beyond the nominal quota, and of each of the others at most its
`lendingLimit`. So a queue has `nominal - lendingLimit` for itself, and all lendable GPUs of a cohort are one pool. What this
cannot express is an error that names it: preemption, fair sharing, admission checks, trees of cohorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forerun.cluster.inputs.arrays import Cluster, NodeGroup
from forerun.cluster.inputs.files import cluster_of
from forerun.cluster.inputs.limits import UNLIMITED, LimitRule, QueueRule
from forerun.cluster.inputs.site import Site
from forerun.cluster.readers.kubernetes import KubeObject, read_objects
from forerun.cluster.readers.kueue import GPU_RESOURCES
from forerun.core.errors import InputError, Problem, ScenarioError, TraceError, known_names
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.source import Source

_GROUP: Final = "kueue.x-k8s.io/"
_STRATEGIES: Final = ("BestEffortFIFO", "StrictFIFO")
#: where a ClusterQueue asks for what is not simulated, and the values that ask for nothing
_UNKNOWN: Final[Mapping[tuple[str, ...], tuple[object, ...]]] = {
    ("preemption", "reclaimWithinCohort"): ("Never",),
    ("preemption", "withinClusterQueue"): ("Never",),
    ("preemption", "borrowWithinCohort", "policy"): ("Never",),
    ("fairSharing", "weight"): ("1", 1),
    ("admissionChecks",): ([],),
    ("admissionChecksStrategy", "admissionChecks"): ([],),
    ("stopPolicy",): ("None",),
    ("admissionScope", "admissionMode"): ("NoAdmissionFairSharing",),
}
_FUNGIBLE: Final = ("Borrow", "TryNextFlavor", "MayStopSearch")


@dataclass(frozen=True, slots=True)
class Quota:
    """The GPUs of one flavor that a ClusterQueue has.

    Parameters
    ----------
    flavor : the flavor.
    nominal : its own.
    borrows : at most beyond these (`UNLIMITED`: no limit).
    lends : at most to others.
    """

    flavor: str
    nominal: int
    borrows: int
    lends: int


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A ClusterQueue, as far as it is simulated.

    Parameters
    ----------
    name, cohort : its own, and that of its cohort (empty: none).
    strict : whether its first workload holds up those behind (`StrictFIFO`).
    tries_next : whether it tries the next flavor before it borrows.
    quotas : by flavor, in the order in which they are tried.
    """

    name: str
    cohort: str
    strict: bool
    tries_next: bool
    quotas: tuple[Quota, ...]


@dataclass(frozen=True, slots=True)
class Queues:
    """What files of Kueue describe.

    Parameters
    ----------
    queues : the ClusterQueues.
    local : LocalQueues by name, with and without their namespace, and the ClusterQueue of each.
    notes : what they say that is not simulated.
    """

    queues: tuple[ClusterQueue, ...]
    local: Mapping[str, str]
    notes: tuple[str, ...]

    def cluster(self, gpu_type: str) -> Cluster:
        """The machines: the nominal GPUs of all queues, a node a flavor. gpu_type: of the GPUs, if there is one flavor."""
        sizes: dict[str, int] = {}
        for queue in self.queues:
            for quota in queue.quotas:
                sizes[quota.flavor] = sizes.get(quota.flavor, 0) + quota.nominal
        there = {name: gpus for name, gpus in sizes.items() if gpus}
        if not there:
            raise ScenarioError.at("$.machines.file", "no ClusterQueue has a nominal quota of GPUs")
        alone = len(there) == 1
        return cluster_of(
            NodeGroup(name, 1, gpus, (gpu_type if alone and gpu_type else name))
            for name, gpus in there.items()
        )

    def site(self, cluster: Cluster) -> Site:
        """The limits of the queues. Raises ScenarioError for flavors that are no GPU type of the machines.

        cluster: the machines.
        """
        types = tuple(dict.fromkeys(cluster.node_types()))
        flavors = tuple(dict.fromkeys(quota.flavor for queue in self.queues for quota in queue.quotas))
        type_of = {flavor: flavor for flavor in flavors}
        if len(flavors) == 1 and len(types) == 1:
            type_of = {flavors[0]: types[0]}
        known = {name.lower(): name for name in types}
        unknown = [name for name in type_of.values() if name.lower() not in known]
        if unknown:
            raise ScenarioError(
                *(
                    Problem(
                        "$.machines",
                        f"no nodes have the gpu_type {name!r}, a flavor of the queues; {known_names(name, types)}",
                    )
                    for name in unknown
                )
            )
        rules, pools = [], dict[str, int]()
        for queue in self.queues:
            names = self._names(queue)
            quotas = {type_of[quota.flavor]: quota for quota in queue.quotas}
            for flavor, gpu_type in type_of.items():
                quota = quotas.get(gpu_type, Quota(flavor, 0, 0, 0))
                pool = f"{queue.cohort}/{flavor}" if queue.cohort else ""
                most = quota.nominal if not pool else min(UNLIMITED, quota.nominal + quota.borrows)
                rules.append(
                    LimitRule(
                        f"ClusterQueue {queue.name}" + (f", flavor {flavor}" if len(flavors) > 1 else ""),
                        {"partition": names}, gpus=most, gpu_type=gpu_type, pool=pool,
                        own_gpus=quota.nominal - quota.lends if pool else 0, nominal_gpus=quota.nominal,
                    )
                )  # fmt: skip
                if pool:
                    pools[pool] = pools.get(pool, 0) + quota.lends
        return Site(
            tuple(rules),
            pools,
            notes=self.notes,
            queues=tuple(
                QueueRule(
                    queue.name,
                    self._names(queue),
                    queue.strict,
                    queue.tries_next,
                    tuple(type_of[quota.flavor] for quota in queue.quotas),
                )
                for queue in self.queues
            ),
        )

    def _names(self, queue: ClusterQueue) -> frozenset[str]:
        """What a log may call a queue: by its own name, or by those of its LocalQueues."""
        return frozenset({queue.name, *(local for local, of in self.local.items() if of == queue.name)})


def is_kueue(path: Path) -> bool:
    """Whether a file of machines is YAML or JSON, as kubectl prints it."""
    return path.suffix.lower() in (".yaml", ".yml", ".json")


def read_kueue(paths: Sequence[Path]) -> Queues:
    """The queues in some files. Raises ScenarioError with all that is wrong or cannot be simulated."""
    reading = _Reading()
    for path in paths:
        try:
            objects = read_objects(Source(path, repairs=RepairLog(), name=path.name))
        except InputError as error:
            reading.problems += error.problems
            continue
        reading.read(objects)
    return reading.finish(", ".join(path.name for path in paths))


class _Reading:
    """Gathers queues and problems from the objects of some files."""

    def __init__(self) -> None:
        self.queues: dict[str, ClusterQueue] = {}
        self.local: dict[str, str] = {}
        self.plain: dict[str, set[str]] = {}
        self.notes: list[str] = []
        self.without: list[str] = []  # queues without a quota of GPUs
        self.problems: list[Problem] = []

    def read(self, objects: Iterable[KubeObject]) -> None:
        """Take in the objects of one file."""
        for one in objects:
            try:
                if one.version.startswith(_GROUP):
                    self._take(one)
            except TraceError as error:
                self.problems += error.problems

    def finish(self, files: str) -> Queues:
        """All of it. Raises ScenarioError for problems, and where there is no queue. files: names of all."""
        if self.without:
            names = ", ".join(sorted(self.without))
            self.notes.append(f"not simulated: ClusterQueues without a quota of GPUs: {names}")
        if not self.queues and not self.problems:
            has = f" with a quota of GPUs ({', '.join(GPU_RESOURCES[:2])})" if self.without else ""
            what = f"has no ClusterQueue{has}; kubectl get clusterqueues,localqueues -A -o yaml prints them"
            self.problems.append(Problem(files, what))
        for local, of in self.local.items():
            if of in self.without:
                continue
            if of not in self.queues and not self.problems:
                self.notes.append(f"LocalQueue {local} belongs to ClusterQueue {of!r}, which no file has")
        if self.problems:
            raise ScenarioError(*self.problems[:20])
        for name, of_all in self.plain.items():
            if len(of_all) == 1 and name not in self.queues:  # else the name says nothing alone
                self.local[name] = next(iter(of_all))
        return Queues(tuple(self.queues.values()), self.local, tuple(self.notes))

    def _take(self, one: KubeObject) -> None:
        name = one.text("metadata", "name")
        if one.kind in ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort") and not name:
            raise one.fault("is empty", "metadata", "name")
        match one.kind:
            case "ClusterQueue":
                if name in self.queues:
                    raise one.fault(f"ClusterQueue {name!r} stands twice", "metadata", "name")
                if (queue := self._queue(one, name)) is None:
                    self.without.append(name)
                else:
                    self.queues[name] = queue
            case "LocalQueue":
                of, namespace = one.text("spec", "clusterQueue"), one.text("metadata", "namespace")
                self.local[f"{namespace}/{name}"] = of
                self.plain.setdefault(name, set()).add(of)
            case "ResourceFlavor":
                if one.text("spec", "topologyName"):
                    self.notes.append(f"not simulated: topology of flavor {name}")
            case "Cohort":
                raise one.fault(
                    f"Cohort {name!r} has quotas or a parent of its own, which is not simulated; cohorts that only "
                    "ClusterQueues name are",
                )

    def _queue(self, one: KubeObject, name: str) -> ClusterQueue | None:
        """A queue; None for one without a quota of GPUs, whose other rules do not matter."""
        if not any(
            one.text(*resource, "name") in GPU_RESOURCES
            for group in one.items("spec", "resourceGroups")
            for flavor in one.items(*group, "flavors")
            for resource in one.items(*flavor, "resources")
        ):
            return None
        for path, harmless in _UNKNOWN.items():
            value = one.get("spec", *path)
            if value not in (None, "", *harmless):
                raise one.fault(
                    f"{_said(value)} is not simulated; {_said(harmless[0])} is: write that, or leave the key out, to "
                    "simulate without it",
                    "spec",
                    *path,
                )
        strategy = one.text("spec", "queueingStrategy") or _STRATEGIES[0]
        if strategy not in _STRATEGIES:
            raise one.fault(known_names(strategy, _STRATEGIES), "spec", "queueingStrategy")
        fungible = one.text("spec", "flavorFungibility", "whenCanBorrow") or _FUNGIBLE[0]
        if fungible not in _FUNGIBLE:
            raise one.fault(known_names(fungible, _FUNGIBLE), "spec", "flavorFungibility", "whenCanBorrow")
        cohort = one.text("spec", "cohort") or one.text("spec", "cohortName")
        quotas: list[Quota] = []
        others: set[str] = set()
        for group in one.items("spec", "resourceGroups"):
            for flavor in one.items(*group, "flavors"):
                quotas += self._quota(one, flavor, cohort, others)
        if len({quota.flavor for quota in quotas}) < len(quotas):
            raise one.fault("has two resources of GPUs in one flavor", "spec", "resourceGroups")
        if others:
            self.notes.append(f"not simulated: quotas of {', '.join(sorted(others))} of ClusterQueue {name}")
        return ClusterQueue(
            name, cohort, strategy == "StrictFIFO", fungible == "TryNextFlavor", tuple(quotas)
        )

    def _quota(
        self, one: KubeObject, flavor: tuple[str | int, ...], cohort: str, others: set[str]
    ) -> Iterable[Quota]:
        """The quota of GPUs that a flavor of a queue has, if it has one. others: other resources are added."""
        for resource in one.items(*flavor, "resources"):
            if (kind := one.text(*resource, "name")) not in GPU_RESOURCES:
                others.add(kind)
                continue
            nominal = one.count(*resource, "nominalQuota")
            borrows, lends = (one.count(*resource, key) for key in ("borrowingLimit", "lendingLimit"))
            for key, value in (("borrowingLimit", borrows), ("lendingLimit", lends)):
                if value is not None and not cohort:
                    raise one.fault("is of a ClusterQueue in a cohort", *resource, key)
            if nominal is None:
                raise one.fault("is missing", *resource, "nominalQuota")
            if lends is not None and lends > nominal:
                raise one.fault(
                    f"is {lends}, more than the nominal quota of {nominal}", *resource, "lendingLimit"
                )
            yield Quota(
                one.text(*flavor, "name"), nominal,
                UNLIMITED if borrows is None else borrows, nominal if lends is None else lends,
            )  # fmt: skip


def _said(value: Any) -> str:
    return "a list" if isinstance(value, list) and value else "an empty list" if value == [] else repr(value)
