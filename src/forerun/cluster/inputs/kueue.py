"""ClusterQueues of Kueue as machines and limits: quotas by flavor, cohorts that lend, and how queues admit and preempt.

Format: Kueue's API, groups `kueue.x-k8s.io/v1beta1` and `v1beta2`, and its `Configuration`. A ClusterQueue may use its
nominal quota of a flavor and, in a cohort, what others lend: at most its `borrowingLimit` beyond the nominal quota, and of
each of the others at most its `lendingLimit`. So a queue has `nominal - lendingLimit` for itself, and all lendable GPUs of
the tree of its cohorts, with those that the cohorts have themselves, are one pool. What of this would change the answer and
is not simulated is an error that names how to leave it out (`machines.ignore`); all else is noted, with the jobs it touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from forerun.cluster.inputs.arrays import Cluster, NodeGroup
from forerun.cluster.inputs.files import cluster_of
from forerun.cluster.inputs.limits import (
    UNLIMITED,
    Ignorable,
    LimitRule,
    QueueRule,
    QueueTerms,
    ShareStrategy,
)
from forerun.cluster.inputs.site import Site
from forerun.cluster.readers.kubernetes import KubeObject, read_objects
from forerun.cluster.readers.kueue import is_gpu
from forerun.core.errors import InputError, Problem, ScenarioError, TraceError, known_names
from forerun.core.scenario.text import parse_yaml_documents
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.source import Source

_GROUP: Final = "kueue.x-k8s.io/"
_CONFIGURATION: Final = "config.kueue.x-k8s.io/"
#: where a file asks for what is not simulated: by kind, the key, how to leave it out, and the values that ask for nothing
_LEFT_OUT: Final[Mapping[str, tuple[tuple[tuple[str, ...], Ignorable, tuple[object, ...]], ...]]] = {
    "ClusterQueue": (
        (("admissionChecks",), "admission-checks", ([],)),
        (("admissionChecksStrategy", "admissionChecks"), "admission-checks", ([],)),
        (("stopPolicy",), "stop-policy", ("None",)),
        (("admissionScope", "admissionMode"), "admission-fair-sharing", ("NoAdmissionFairSharing",)),
    ),
    "LocalQueue": ((("stopPolicy",), "stop-policy", ("None",)),),
}
#: keys of a ClusterQueue that are read, or say nothing about when a job of the log starts
_KNOWN: Final = frozenset({
    "resourceGroups", "cohort", "cohortName", "queueingStrategy", "namespaceSelector", "flavorFungibility", "preemption",
    "admissionChecks", "admissionChecksStrategy", "stopPolicy", "fairSharing", "admissionScope",
})  # fmt: skip
_WITHIN: Final = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
_RECLAIMS: Final = ("Never", "LowerPriority", "Any")
_STRATEGIES: Final[tuple[ShareStrategy, ...]] = get_args(ShareStrategy)


@dataclass(frozen=True, slots=True)
class Quota:
    """The GPUs of one flavor that a ClusterQueue or a cohort has.

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
    name : its own.
    terms : how it admits.
    quotas : by flavor, in the order in which they are tried.
    """

    name: str
    terms: QueueTerms
    quotas: tuple[Quota, ...]


@dataclass(frozen=True, slots=True)
class Queues:
    """What files of Kueue describe.

    Parameters
    ----------
    queues : the ClusterQueues.
    local : LocalQueues by name, with and without their namespace, and the ClusterQueue of each.
    notes : what they say that is not simulated.
    pools : GPUs of the cohorts themselves, by the root of each tree and flavor.
    left_out : what else is not simulated, with the names in the log's column `partition` whose jobs it touches.
    """

    queues: tuple[ClusterQueue, ...]
    local: Mapping[str, str]
    notes: tuple[str, ...]
    pools: Mapping[tuple[str, str], int]
    left_out: Mapping[str, Set[str]]

    def cluster(self, gpu_type: str, most_gpus: int) -> Cluster:
        """The machines: the GPUs of all queues and cohorts, a node a flavor. Raises ScenarioError for too many.

        gpu_type: if there is one flavor. most_gpus: at most.
        """
        sizes: dict[str, int] = {}
        for queue in self.queues:
            for quota in queue.quotas:
                sizes[quota.flavor] = sizes.get(quota.flavor, 0) + quota.nominal
        for (_, flavor), gpus in self.pools.items():
            if flavor in sizes:  # of others nobody may borrow
                sizes[flavor] += gpus
        there = {name: gpus for name, gpus in sizes.items() if gpus}
        if not there:
            raise ScenarioError.at("$.machines.file", "no ClusterQueue has a nominal quota of GPUs")
        if sum(there.values()) > most_gpus:
            what = f"the quotas are {sum(there.values()):.3g} GPUs, at most {most_gpus:,} are simulated; give the real nodes"
            raise ScenarioError.at(
                "$.machines.file", f"{what} (machines: {{nodes: [...], site: [queues.yaml]}})"
            )
        alone = len(there) == 1
        return cluster_of(
            NodeGroup(name, 1, gpus, (gpu_type if alone and gpu_type else name))
            for name, gpus in there.items()
        )

    def site(self, cluster: Cluster, partitions: Sequence[str] = ()) -> Site:
        """The limits of the queues. Raises ScenarioError for flavors that are no GPU type of the machines.

        cluster: the machines. partitions: of the jobs, for notes.
        """
        types = tuple(dict.fromkeys(cluster.node_types()))
        flavors = tuple(dict.fromkeys(quota.flavor for queue in self.queues for quota in queue.quotas))
        empty = {flavor for flavor in flavors if not any(self._lent(queue, flavor) for queue in self.queues)}
        type_of = {flavor: flavor for flavor in flavors if flavor not in empty or flavor in types}
        if len(type_of) == 1 and len(types) == 1:
            type_of = {next(iter(type_of)): types[0]}
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
            names, root = self.names(queue.name), queue.terms.cohort
            quotas = {quota.flavor: quota for quota in queue.quotas}
            for flavor, gpu_type in type_of.items():
                quota = quotas.get(flavor, Quota(flavor, 0, 0, 0))
                pool = f"{root}/{flavor}" if root else ""
                most = quota.nominal if not pool else min(UNLIMITED, quota.nominal + quota.borrows)
                rules.append(
                    LimitRule(
                        f"ClusterQueue {queue.name}" + (f", flavor {flavor}" if len(type_of) > 1 else ""),
                        {"partition": names}, gpus=most, gpu_type=gpu_type, pool=pool,
                        own_gpus=quota.nominal - quota.lends if pool else 0,
                    )
                )  # fmt: skip
                if pool:
                    pools.setdefault(pool, self.pools.get((root, flavor), 0))
                    pools[pool] += quota.lends
        touched = [
            f"{what} ({sum(name in names for name in partitions)} of {len(partitions)} jobs)"
            for what, names in self.left_out.items()
        ]
        return Site(
            tuple(rules),
            pools,
            notes=(*self.notes, *(f"not simulated: {what}" for what in touched)),
            queues=tuple(
                QueueRule(
                    queue.name,
                    self.names(queue.name),
                    queue.terms,
                    {type_of[one.flavor]: one.nominal for one in queue.quotas if one.flavor in type_of},
                )
                for queue in self.queues
            ),
        )

    def _lent(self, queue: ClusterQueue, flavor: str) -> int:
        """GPUs of a flavor that a queue has itself, or that its cohorts have."""
        own = sum(quota.nominal for quota in queue.quotas if quota.flavor == flavor)
        return own + self.pools.get((queue.terms.cohort, flavor), 0)

    def names(self, queue: str) -> frozenset[str]:
        """What a log may call a ClusterQueue: by its own name, or by those of its LocalQueues."""
        return frozenset({queue, *(local for local, of in self.local.items() if of == queue)})


def is_kueue(path: Path) -> bool:
    """Whether a file of machines is YAML or JSON, as kubectl prints it."""
    return path.suffix.lower() in (".yaml", ".yml", ".json")


def read_kueue(paths: Sequence[Path], ignore: Sequence[Ignorable] = (), gpus: Sequence[str] = ()) -> Queues:
    """The queues in some files. Raises ScenarioError with all that is wrong or cannot be simulated.

    ignore: what to leave out. gpus: the resources that are GPUs (default: those that are called so).
    """
    reading = _Reading(frozenset(ignore), gpus)
    for path in paths:
        try:
            objects = read_objects(Source(path, repairs=RepairLog(), name=path.name))
        except InputError as error:
            reading.problems += error.problems
            continue
        reading.read(objects)
    return reading.finish(", ".join(path.name for path in paths))


@dataclass(frozen=True, slots=True)
class _Cohort:
    """A cohort: where it stands, its parent, its quotas, and whether it has a weight of its own."""

    one: KubeObject
    parent: str
    quotas: tuple[Quota, ...]
    weighs: bool


class _Reading:
    """Gathers queues and problems from the objects of some files."""

    def __init__(self, ignore: Set[Ignorable], gpus: Sequence[str]) -> None:
        self.ignore, self.gpus = ignore, gpus
        self.objects: dict[str, KubeObject] = {}  # the ClusterQueues
        self.cohorts: dict[str, _Cohort] = {}
        self.local: dict[str, str] = {}
        self.plain: dict[str, set[str]] = {}
        self.notes: list[str] = []
        self.left_out: dict[
            str, set[str]
        ] = {}  # names of ClusterQueues, or of LocalQueues with their namespace
        self.topologies: set[str] = set()  # flavors that have one
        self.without: list[str] = []  # queues without a quota of GPUs
        self.resources: set[str] = set()  # what these have quotas of
        self.strategies: tuple[ShareStrategy, ...] | None = None  # None: no configuration says
        self.problems: list[Problem] = []

    def read(self, objects: Iterable[KubeObject]) -> None:
        """Take in the objects of one file."""
        for one in objects:
            try:
                if one.version.startswith(_GROUP):
                    self._take(one)
                elif one.version.startswith(_CONFIGURATION):
                    self._configure(one)
                elif one.kind == "ConfigMap":
                    data = one.get("data")
                    for text in data.values() if isinstance(data, dict) else ():
                        if isinstance(text, str) and _CONFIGURATION in text:
                            self.read(_within(one, text))
            except InputError as error:
                self.problems += error.problems

    def finish(self, files: str) -> Queues:
        """All of it. Raises ScenarioError for problems, and where there is no queue. files: names of all."""
        queues: list[ClusterQueue] = []
        for name, one in self.objects.items():
            try:
                queues.append(self._queue(one, name))
            except TraceError as error:
                self.problems += error.problems
        if self.without:
            names = ", ".join(sorted(self.without))
            self.notes.append(f"not simulated: ClusterQueues without a quota of GPUs: {names}")
        if not self.objects and not self.problems:
            what = "has no ClusterQueue; kubectl get clusterqueues,localqueues -A -o yaml prints them"
            if self.without:
                named = ", ".join(sorted(self.resources)) or "nothing"
                what = f"has no ClusterQueue with a quota of GPUs, but of {named}; trace: {{format: kueue, "
                what += "options: {resources: [NAME]}} says which are GPUs"
            self.problems.append(Problem(files, what))
        for local, of in self.local.items():
            if of not in self.without and of not in self.objects and not self.problems:
                self.notes.append(f"LocalQueue {local} belongs to ClusterQueue {of!r}, which no file has")
        if self.problems:
            raise ScenarioError(*self.problems[:20])
        for name, of_all in self.plain.items():
            if len(of_all) == 1 and name not in self.objects:  # else the name says nothing alone
                self.local[name] = next(iter(of_all))
        pools: dict[tuple[str, str], int] = {}
        for name, cohort in self.cohorts.items():
            for quota in cohort.quotas:
                key = self._root(name), quota.flavor
                pools[key] = pools.get(key, 0) + quota.nominal
        made = Queues(tuple(queues), self.local, tuple(self.notes), pools, {})
        left_out = {
            f"{what} of {', '.join(sorted(names))}": frozenset().union(*map(made.names, names))
            for what, names in self.left_out.items()
        }
        return Queues(made.queues, made.local, made.notes, pools, left_out)

    def _take(self, one: KubeObject) -> None:
        name = one.text("metadata", "name")
        if one.kind in ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort") and not name:
            raise one.fault("is empty", "metadata", "name")
        match one.kind:
            case "ClusterQueue":
                if name in self.objects:
                    raise one.fault(f"ClusterQueue {name!r} stands twice", "metadata", "name")
                resources = self._resources(one)
                if any(is_gpu(resource, self.gpus) for resource in resources):
                    self.objects[name] = one
                else:  # its other rules do not matter
                    self.without.append(name)
                    self.resources |= resources
            case "LocalQueue":
                of, namespace = one.text("spec", "clusterQueue"), one.text("metadata", "namespace")
                self.local[f"{namespace}/{name}"] = of
                self.plain.setdefault(name, set()).add(of)
                self._leave_out(one, f"{namespace}/{name}")
            case "ResourceFlavor":
                if one.text("spec", "topologyName"):
                    self.topologies.add(name)
            case "Cohort":
                self._cohort(one, name)

    def _resources(self, one: KubeObject) -> set[str]:
        """What a queue has quotas of."""
        return {
            one.text(*resource, "name")
            for group in one.items("spec", "resourceGroups")
            for flavor in one.items(*group, "flavors")
            for resource in one.items(*flavor, "resources")
        }

    def _cohort(self, one: KubeObject, name: str) -> None:
        if name in self.cohorts:
            raise one.fault(f"Cohort {name!r} stands twice", "metadata", "name")
        quotas = self._quotas(one, "its parents", set())
        parent = one.text("spec", "parent") or one.text("spec", "parentName")
        self.cohorts[name] = _Cohort(one, parent, quotas, _weight(one, "spec", "fairSharing", "weight") != 1)
        if any(quota.borrows < UNLIMITED or quota.lends < quota.nominal for quota in quotas):
            self._refuse(one, "borrowingLimit or lendingLimit of a Cohort", "cohort-limits", "spec")

    def _root(self, cohort: str) -> str:
        """The root of the tree of a cohort. Raises TraceError where there is none."""
        path = [cohort]
        while (at := self.cohorts.get(path[-1])) is not None and at.parent:
            if at.parent in path:
                loop = " -> ".join((*path[path.index(at.parent) :], at.parent))
                raise at.one.fault(f"the parents of Cohorts form a cycle: {loop}")
            path.append(at.parent)
        return path[-1]

    def _configure(self, one: KubeObject) -> None:
        """Whether queues share fairly, as the configuration of Kueue says."""
        given = one.get("fairSharing")
        enabled = isinstance(given, dict) and given.get("enable", True) is True
        listed = one.get("fairSharing", "preemptionStrategies") if enabled else None
        if not isinstance(listed, list | None) or any(name not in _STRATEGIES for name in listed or ()):
            raise one.fault(f"known: {', '.join(_STRATEGIES)}", "fairSharing", "preemptionStrategies")
        self.strategies = tuple(listed) if listed else _STRATEGIES if enabled else ()

    def _shares(self) -> tuple[ShareStrategy, ...]:
        """By which shares queues preempt; none: they do not share fairly.

        Without a configuration they do if somebody has a weight, or Kueue prints shares.
        """
        if self.strategies is None:
            weighs = [name for name, one in self.cohorts.items() if one.weighs] + [
                name
                for name, one in self.objects.items()
                if _weight(one, "spec", "fairSharing", "weight") != 1 or one.get("status", "fairSharing")
            ]
            self.strategies = _STRATEGIES if weighs else ()
            if weighs and "fair-sharing" not in self.ignore:
                self.notes.append(f"queues share fairly, as {weighs[0]} has a weight or a share of its own")
        return () if "fair-sharing" in self.ignore else self.strategies

    def _leave_out(self, one: KubeObject, name: str) -> None:
        """Refuse what is not simulated of an object, or leave it out by name. name: of the queue, for the jobs."""
        for path, key, harmless in _LEFT_OUT[one.kind]:
            value = one.get("spec", *path)
            if value not in (None, "", *harmless):
                self._refuse(one, _said(value), key, "spec", *path)
                self._note(f"{key} ({_said(value)})", name)

    def _refuse(self, one: KubeObject, what: str, key: Ignorable, *path: str) -> None:
        if key not in self.ignore:
            way = f"--ignore {key} (machines: {{ignore: [{key}]}}) leaves it out"
            raise one.fault(f"{what} is not simulated; {way}", *path)

    def _note(self, what: str, name: str) -> None:
        self.left_out.setdefault(what, set()).add(name)

    def _queue(self, one: KubeObject, name: str) -> ClusterQueue:
        self._leave_out(one, name)
        strategy = _one_of(one, ("BestEffortFIFO", "StrictFIFO"), "queueingStrategy")
        borrow, preempt = (
            _one_of(one, ("", usual, "TryNextFlavor", "MayStopSearch"), "flavorFungibility", key)
            for usual, key in (("Borrow", "whenCanBorrow"), ("Preempt", "whenCanPreempt"))
        )
        cohort = one.text("spec", "cohort") or one.text("spec", "cohortName")
        others: set[str] = set()
        quotas = self._quotas(one, cohort, others)
        if len({quota.flavor for quota in quotas}) < len(quotas):
            raise one.fault("has two resources of GPUs in one flavor", "spec", "resourceGroups")
        if others:
            self.notes.append(f"not simulated: quotas of {', '.join(sorted(others))} of ClusterQueue {name}")
        for quota in quotas:
            if quota.flavor in self.topologies:
                self._note(f"topology of flavor {quota.flavor}", name)
        for key in one.get("spec"):
            if key not in _KNOWN:
                self._note(str(key), name)
        root = self._root(cohort)
        within, reclaims, below = self._preemption(one)
        shares = self._shares()
        if root != cohort and (shares or reclaims != "Never"):
            self._note(f"levels of the cohorts below {root} in shares and preemption", name)
        if "preemption" in self.ignore and (within, reclaims) != ("Never", "Never"):
            self._note("preemption", name)
            within, reclaims, below = "Never", "Never", None
        terms = QueueTerms(
            cohort=root,
            strict=strategy == "StrictFIFO",
            tries_next=borrow == "TryNextFlavor",
            preempts_first=preempt in ("Preempt", "MayStopSearch"),
            within=within,
            reclaims=reclaims,
            borrows_below=below,
            strategies=shares,
            weight=_weight(one, "spec", "fairSharing", "weight"),
        )
        return ClusterQueue(name, terms, quotas)

    def _preemption(self, one: KubeObject) -> tuple[Any, Any, float | None]:
        """Whom a queue preempts: in itself, in its cohort, and there below which priority while it borrows."""
        within = _one_of(one, _WITHIN, "preemption", "withinClusterQueue")
        reclaims = _one_of(one, _RECLAIMS, "preemption", "reclaimWithinCohort")
        where = ("preemption", "borrowWithinCohort")
        policy = _one_of(one, ("Never", "LowerPriority"), *where, "policy")
        if policy == "Never":
            return within, reclaims, None
        if reclaims == "Never":
            what = f"is {policy!r} where reclaimWithinCohort is 'Never', which Kueue refuses"
            raise one.fault(what, "spec", *where, "policy")
        most = one.get("spec", *where, "maxPriorityThreshold")
        if most is not None and (isinstance(most, bool) or not isinstance(most, int)):
            raise one.fault("a whole number is expected", "spec", *where, "maxPriorityThreshold")
        return within, reclaims, float("inf") if most is None else most + 1.0

    def _quotas(self, one: KubeObject, cohort: str, others: set[str]) -> tuple[Quota, ...]:
        """The quotas of GPUs of a queue or cohort, by flavor. cohort: its own. others: other resources are added."""
        return tuple(
            quota
            for group in one.items("spec", "resourceGroups")
            for flavor in one.items(*group, "flavors")
            for resource in one.items(*flavor, "resources")
            if (quota := self._quota(one, flavor, resource, cohort, others)) is not None
        )

    def _quota(
        self,
        one: KubeObject,
        flavor: tuple[str | int, ...],
        resource: tuple[str | int, ...],
        cohort: str,
        others: set[str],
    ) -> Quota | None:
        """The quota of a resource; None if it is not GPUs."""
        if not is_gpu(kind := one.text(*resource, "name"), self.gpus):
            others.add(kind)
            return None
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
        return Quota(
            one.text(*flavor, "name"), nominal,
            UNLIMITED if borrows is None else borrows, nominal if lends is None else lends,
        )  # fmt: skip


def _one_of(one: KubeObject, known: tuple[str, ...], *path: str) -> str:
    """What a queue says of a key, if nothing the first of what is known. Raises TraceError for what is not known."""
    value = one.text("spec", *path) or known[0]
    if value not in known:
        raise one.fault(f"known: {', '.join(name for name in known if name)}", "spec", *path)
    return value


def _within(one: KubeObject, text: str) -> list[KubeObject]:
    """The objects in a text of a ConfigMap."""
    documents = parse_yaml_documents(text, name=one.where("data"))
    return [
        KubeObject(document.data, (), lambda *_: one.where("data"))
        for document in documents
        if isinstance(document.data, dict)
    ]


def _weight(one: KubeObject, *path: str) -> float:
    """A weight, as a number or a quantity such as `"500m"`; 1 if it is not there. Raises TraceError for others."""
    value = one.get(*path)
    milli = isinstance(value, str) and value.endswith("m")
    try:
        weight = 1.0 if value is None else float(value[:-1]) / 1000 if milli else float(value)
    except (TypeError, ValueError):
        weight = -1.0
    if isinstance(value, bool) or not 0 <= weight < float("inf"):
        raise one.fault("a number from 0 is expected", *path)
    return weight


def _said(value: Any) -> str:
    return "a list" if isinstance(value, list) and value else "an empty list" if value == [] else repr(value)
