"""Why jobs waited, second by second, from a schedule that is over: of a run, or of the log itself.

A cause is the first test that fails, in the order of `CAUSES`, at each instant at which anything happens, until the next.
It follows from who had which GPUs when, and from the limits, nodes and maintenance of the site: whoever decided needs to say
nothing. A job that could start is behind those that had GPUs before it. If it would have had to end before one of them
began, on the same nodes, and the policy backfills, these GPUs were promised to that one; else it is the policy's order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.cluster.decider import Decider
from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.kernels import causes as ck
from forerun.cluster.engine.queue_arrays import away, pools_of
from forerun.cluster.inputs.arrays import BOOL, F64, I64, JobLabels, Jobs
from forerun.cluster.inputs.limits import UNLIMITED, array_rules, of_quotas
from forerun.cluster.inputs.reach import reach_of
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.inputs.slurm_conf import node_names
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policy import Allocator, Policy
from forerun.cluster.summary.past import Known, Recorded, held_from_s
from forerun.cluster.summary.spans import Spans, Stretch, Stretches

#: the causes in the order in which they are tested: as columns are named, what operators call them, and what they mean
CAUSES: Final = {
    "not_eligible": ("not eligible", "its begin, what it depends on or its array was in the way"),
    "held": ("held", "it was held"),
    "maintenance": ("maintenance", "maintenance took the nodes that it needs, for the time that it asks for"),
    "failed_nodes": ("failed nodes", "nodes that it needs had failed"),
    "limit": ("limits", "a limit of its user, account, QOS, partition or cohort was reached"),
    "gpu_type": (
        "GPU type",
        "GPUs of another type were free in its partition, none of the one that it asks for",
    ),
    "nodes_in_use": ("nodes in use", "others had the GPUs of the nodes that it may use"),
    "fragmentation": ("fragmentation", "enough GPUs were free, on no nodes that fit its shape"),
    "promised": ("promised to others", "enough was free, and promised to jobs ahead of it"),
    "order": ("the policy's order", "enough was free, and it was not its turn"),
}
#: the part of the GPUs that jobs of a log may have on nodes that it does not name
_UNLISTED: Final = 0.02
#: of those who have nodes, what a job's own partition and others are called
OWN: Final = "its own jobs"


@dataclass(frozen=True, slots=True)
class Waiting(Spans):
    """Stretches of waiting.

    Parameters
    ----------
    from_s, to_s, gpus : as of `Spans`; the fewest GPUs on which the job can start.
    row : the job.
    starts : whether it has GPUs then.
    """

    row: I64
    starts: BOOL


@dataclass(frozen=True, slots=True)
class Decided:
    """By what it was decided who has GPUs, as far as causes ask.

    Parameters
    ----------
    form : how GPUs of several nodes are enough for a job (`engine.kernels.causes`).
    backfills : whether jobs may pass those ahead of them if they do not delay them.
    by_reach : whether a job may use all nodes of its reach; else those of one GPU type.
    quota : GPUs of each user, in the order in which users come (default: no quotas).
    """

    form: int
    backfills: bool
    by_reach: bool
    quota: I64 | None = None

    @classmethod
    def by(cls, policy: Policy, terms: Terms, setting: Setting, *, named: bool = False) -> Decided:
        """By a policy in a run. named: whether nodes matter even where the placement is `anywhere`."""
        policy = policy.stands_for if isinstance(policy, Decider) else policy
        if not isinstance(policy, Allocator):  # published schedules have places of their own, and no limits
            return BY_COUNT
        plans, backfills = isinstance(policy, BackfillPolicy), getattr(policy, "backfills", False)
        quota = None if terms.quota is None or terms.quota[-1] else terms.quota[:-1]
        if plans and policy.places:
            return cls(ck.SHAPED, backfills, True, quota)
        counted = terms.placement == "consolidated" or (
            terms.placement == "anywhere" and not (policy.places or named)
        )
        form = ck.COUNTED if counted else ck.BLOCKS if terms.placement == "buddy" else ck.TOGETHER
        mixes = isinstance(policy, BackfillPolicy) and policy.compiles and not counted
        by_type = setting.profile or setting.profiles or (setting.limits and setting.limits.by_type)
        return cls(form, backfills, mixes and not by_type, quota)


#: by the number of GPUs alone
BY_COUNT: Final = Decided(ck.COUNTED, False, False)
#: of a log: whoever decided kept to the nodes of partitions
HISTORY: Final = Decided(ck.COUNTED, True, True)


@dataclass(frozen=True, slots=True)
class Caused(Stretch):
    """A stretch in which a job waited for one cause.

    Parameters
    ----------
    from_s, to_s : begin and end.
    cause : of `CAUSES`.
    because : the cause in words, with the limit or the job ahead.
    """

    because: str


@dataclass(frozen=True, slots=True)
class Causes:
    """Why jobs waited.

    Parameters
    ----------
    waited_s : float64[jobs, causes].
    partitions : the names of the partitions; empty: jobs of none.
    partition : int64[jobs], which one each job is of.
    limits, limited_s : names of limits, and float64[partitions, limits].
    owners : (partition, account, user) of those who have jobs.
    blamed_s : float64[partitions, owners], waiting for nodes in use, by who had them.
    behind_s : float64[2, partitions, owners], waiting for what is promised to others, and by the order, by who was ahead.
    fragmented_gpu_s : GPU time free while jobs waited for fragmentation.
    stretches : of the job that was asked about (default: none was).
    reach : bool[nodes], the nodes that it may use.
    """

    waited_s: F64
    partitions: tuple[str, ...]
    partition: I64
    limits: tuple[str, ...]
    limited_s: F64
    owners: tuple[tuple[str, str, str], ...]
    blamed_s: F64
    behind_s: F64
    fragmented_gpu_s: float
    stretches: tuple[Caused, ...] = ()
    reach: BOOL | None = None

    def columns(self) -> dict[str, F64]:
        """Seconds of each job, by cause."""
        return {name: self.waited_s[:, at] for at, name in enumerate(CAUSES)}

    def by_partition(self) -> dict[str, dict[str, float]]:
        """Seconds of waiting by partition and cause, those that occur; partitions with most waiting first."""
        sums = np.zeros((len(self.partitions), len(CAUSES)))
        np.add.at(sums, self.partition, self.waited_s)
        order = np.argsort(-sums.sum(axis=1), kind="stable").tolist()
        return {
            self.partitions[at]: {
                name: float(sums[at, c]) for c, name in enumerate(CAUSES) if sums[at, c] > 0
            }
            for at in order
            if sums[at].sum() > 0
        }

    def top(self, partition: str) -> tuple[str, float]:
        """The cause of most of the waiting of eligible jobs of a partition, in words, its share; empty: none waited."""
        by_cause = {
            cause: seconds
            for cause, seconds in self.by_partition().get(partition, {}).items()
            if cause != "not_eligible"
        }
        if not by_cause:
            return "", 0.0
        cause = max(by_cause, key=lambda one: by_cause[one])
        return self.in_words(partition, cause), by_cause[cause] / math.fsum(by_cause.values())

    def in_words(self, partition: str, cause: str) -> str:
        """A cause in a partition, with what or who it is most."""
        at, name = self.partitions.index(partition), CAUSES[cause][0]
        if cause == "limit":
            which = int(np.argmax(self.limited_s[at]))
            return f"limit {self.limits[which]}" if self.limited_s[at, which] > 0 else name
        if cause == "nodes_in_use":
            return f"{name}{self._shares(self.blamed_s[at], partition)}"
        if cause in ("promised", "order"):
            return f"{name}{self._ahead(self.behind_s[int(cause == 'order'), at])}"
        return name

    def _shares(self, seconds: F64, partition: str) -> str:
        """By whom nodes are in use."""
        whole = float(seconds.sum())
        if whole <= 0:
            return ""
        names = [owner[0] for owner in self.owners]
        parts = {
            OWN if name == partition else f"partition {name or 'none'}": math.fsum(
                seconds[at] for at, one in enumerate(names) if one == name
            )
            for name in dict.fromkeys(names)
        }
        most = sorted((name for name in parts if parts[name] > whole / 20), key=lambda name: -parts[name])
        said = ", ".join(f"{100 * parts[name] / whole:.0f} % by {name}" for name in most[:3] if len(most) > 1)
        return f"{', ' if said else ''}{said}{self._mostly(seconds, whole)}"

    def _mostly(self, seconds: F64, whole: float) -> str:
        """The user who has most of something, if one has a good part of it."""
        by_user: dict[str, float] = {}
        for (_, _, user), part in zip(self.owners, seconds.tolist(), strict=True):
            by_user[user] = by_user.get(user, 0.0) + part
        user = max(by_user, key=lambda one: by_user[one])
        if not user or len(by_user) < 2 or by_user[user] < whole / 4:
            return ""
        return f" ({100 * by_user[user] / whole:.0f} % by user {user})"

    def _ahead(self, seconds: F64) -> str:
        """Behind whose jobs."""
        at = int(np.argmax(seconds))
        if seconds[at] <= 0:
            return ""
        partition, _, user = self.owners[at]
        whose = " ".join(filter(None, (user and f"of user {user}", partition and f"in {partition}")))
        return f", mostly behind jobs {whose}" if whose else ""


def causes_of(
    setting: Setting,
    had: Stretches,
    waiting: Waiting,
    decided: Decided,
    *,
    seats: tuple[I64, I64, I64] | None = None,
    named: bool = False,
    held_s: F64 | None = None,
    focus: int = -1,
) -> Causes:
    """Why jobs waited.

    Parameters
    ----------
    setting : jobs, nodes, limits, maintenance.
    had : who had GPUs, and when.
    waiting : who waited.
    decided : by what.
    seats : the GPUs of `had`, as of `Record.seats` (default: not known).
    named : whether these are the very GPUs; else only their type is known (default: it is not).
    held_s : by job, from when on it is held; infinite: never (default: none).
    focus : a job whose stretches are noted (default: none).
    """
    site = _Site.of(setting, had, decided, seats, named=named)
    jobs, labels = setting.jobs, setting.jobs.labels or JobLabels.of(len(setting.jobs))
    partitions = {name: at for at, name in enumerate(dict.fromkeys(labels.partition))}
    owners = dict[tuple[str, str, str], int]()
    owner = [
        owners.setdefault(one, len(owners))
        for one in zip(labels.partition, labels.account, jobs.user, strict=True)
    ]
    group = np.array([partitions[name] for name in labels.partition], np.int64)
    limits, names, rules = _limits(setting, decided)
    gpus = jobs.gpus.copy()
    gpus[waiting.row] = waiting.gpus
    held_s = np.full(len(jobs), np.inf) if held_s is None else held_s
    asked = ck.Jobs(
        gpus=gpus,
        least=gpus
        if decided.form == ck.COUNTED
        else np.where(labels.asked_gpus > 0, labels.asked_gpus, gpus),
        wide=site.wide
        if decided.form == ck.SHAPED
        else np.where((site.each < 0) | (labels.nodes > 0), site.wide, 0),
        each=site.each,
        request=np.maximum(jobs.request_s, 1.0),
        classes_first=site.classes_first,
        classes=site.classes,
        kind=site.kind,
        held_from=held_s,
        group=group,
        owner=np.array(owner, np.int64),
    )
    schedule = site.schedule(had, waiting, held_s, setting.maintenance)
    if site.packs:
        ck.seat(schedule, site.nodes.free.copy())
    classes, waits = len(site.nodes.total), len(waiting.row)
    whole = int(setting.cluster.gpus)
    state = ck.State(
        waiting=np.zeros(waits + 1, np.int64),
        place=np.zeros(waits + 1, np.int64),
        waits=np.zeros(1, np.int64),
        cause=np.full(waits, -1),
        detail=np.full(waits, -1),
        since=np.zeros(waits),
        seen=np.full(waits, -1),
        until=np.zeros(waits),
        again=np.zeros(waits),
        by_class=np.zeros(waits, np.int64),
        blaming=np.zeros(classes, np.int64),
        share=np.zeros(classes),
        first=np.full(classes, -1),
        first_seen=np.full(classes, -1),
        queued=np.zeros(classes, np.int64),
        spread=np.zeros(1, np.int64),
        idle=np.full(1, whole),
    )
    noted = 2 * len(schedule.time) + 2 if focus >= 0 else 1
    found = ck.Found(
        waited=np.zeros((len(jobs), ck.CAUSES)),
        limited=np.zeros((len(partitions), max(len(names), 1))),
        blamed=np.zeros((classes, len(owners))),
        behind=np.zeros((2, len(partitions), len(owners))),
        fragmented=np.zeros(1),
        stretch=np.zeros((2, noted), np.int64),
        stretch_s=np.zeros((2, noted)),
        noted=np.zeros(1, np.int64),
    )
    if len(schedule.time):
        scratch = np.zeros(len(site.nodes.size), np.int64)
        ck.attribute(
            schedule, site.nodes, limits, asked, state, found, decided.form, decided.backfills, focus, scratch
        )
    found.waited[:, ck.NOT_ELIGIBLE] += labels.eligible_after_s
    blamed = np.zeros((len(partitions), len(owners)))
    of_class = np.zeros(classes, np.int64)
    for kind in range(len(site.classes_first) - 1):
        if len(mine := group[site.kind == kind]):
            of_class[site.classes[site.classes_first[kind] : site.classes_first[kind + 1]]] = mine[0]
    np.add.at(blamed, of_class, found.blamed)
    by_rule = {name: at for at, name in enumerate(dict.fromkeys(rules))}
    limited = np.zeros((len(partitions), len(by_rule)))
    np.add.at(limited.T, [by_rule[name] for name in rules], found.limited[:, : len(rules)].T)
    return Causes(
        waited_s=found.waited,
        partitions=tuple(partitions),
        partition=group,
        limits=tuple(by_rule),
        limited_s=limited,
        owners=tuple(owners),
        blamed_s=np.maximum(blamed, 0.0),
        behind_s=found.behind,
        fragmented_gpu_s=float(found.fragmented[0]),
        stretches=_stretches(found, jobs, names),
        reach=site.reach_of(focus) if focus >= 0 else None,
    )


def causes_of_log(setting: Setting, recorded: Recorded, known: Known, *, focus: int = -1) -> Causes:
    """Why the jobs of a log really waited, as far as it says who had GPUs when: those that started.

    Parameters
    ----------
    setting, recorded, known : of the run of these jobs: nodes and limits, what happened, and what is given of the site.
    focus : as of `causes_of`.
    """
    jobs, past = setting.jobs, recorded.jobs
    submit_s = jobs.submit_s.astype(np.float64)
    start_s = np.maximum(past.start_s, submit_s)
    started = np.isfinite(start_s)
    last_s = float(np.nanmax(np.append(past.end_s, start_s), initial=0.0)) + 1.0
    end_s = np.where(np.isfinite(past.end_s), past.end_s, last_s)
    ran, waited = np.flatnonzero(started & (end_s > start_s)), np.flatnonzero(started & (start_s > submit_s))
    ran, waited = (
        rows[np.lexsort((rows, at_s[rows]))] for rows, at_s in ((ran, start_s), (waited, submit_s))
    )
    had = Stretches(start_s[ran], end_s[ran], jobs.gpus[ran], ran)
    decided, seats = replace(HISTORY, backfills=known.policy != "slurm-builtin"), None
    if past.node_list is not None and known.nodes:
        seats = _listed(
            [past.node_list[row] for row in ran.tolist()], had.gpus, known.nodes, setting.cluster.node_gpus()
        )
    if seats is not None:
        decided = replace(decided, form=ck.SHAPED)
    return causes_of(
        setting,
        had,
        Waiting(submit_s[waited], start_s[waited], jobs.gpus[waited], waited, np.ones(len(waited), np.bool_)),
        decided,
        seats=seats,
        named=seats is not None,
        held_s=held_from_s(jobs, past),
        focus=focus,
    )


def _listed(
    lists: Sequence[str], gpus: I64, names: tuple[str, ...], size: I64
) -> tuple[I64, I64, I64] | None:
    """The GPUs of stretches whose nodes a log names, as of `Record.seats`; None if it does not name those of too many.

    A job has as many GPUs on each of its nodes, as far as these have them.
    """
    number, known = dict[str, int](), dict[str, list[int]]()
    for at, name in enumerate(names):
        number.setdefault(name.partition(":")[0], at)  # of several types, as the first
    for text in dict.fromkeys(lists):
        try:
            known[text] = [number[name] for name in node_names(text, len(names)) if name in number]
        except ValueError:
            known[text] = []
    nodes = [known[text] for text in lists]
    wide = np.array([len(mine) for mine in nodes], np.int64)
    if gpus[wide == 0].sum() > _UNLISTED * gpus.sum():
        return None
    node = np.array([one for mine in nodes for one in mine], np.int64)
    begin = np.concatenate(([0], np.cumsum(wide))).astype(np.int64)
    turn = np.arange(len(node)) - np.repeat(begin[:-1], wide)
    whole, rest = np.divmod(gpus, np.maximum(wide, 1))
    share = np.repeat(whole, wide) + (turn < np.repeat(rest, wide))
    first = np.concatenate(([0], np.cumsum(size)))[node]
    return begin, first.astype(np.int64), np.minimum(share, size[node]).astype(np.int64)


def _stretches(found: ck.Found, jobs: Jobs, names: list[str]) -> tuple[Caused, ...]:
    """What was noted of one job."""
    causes, stretches = list(CAUSES), []
    for at in range(int(found.noted[0])):
        cause, detail = causes[int(found.stretch[0, at])], int(found.stretch[1, at])
        because = CAUSES[cause][1]
        if detail >= 0:
            because += f": {names[detail]}" if cause == "limit" else f": job {jobs.id[detail]}"
        stretches.append(Caused(float(found.stretch_s[0, at]), float(found.stretch_s[1, at]), cause, because))
    return tuple(stretches)


def _limits(setting: Setting, decided: Decided) -> tuple[ck.Limits, list[str], tuple[str, ...]]:
    """Limits or quotas, the names of their groups with how much they allow, and those of their rules."""
    jobs, limits = setting.jobs, setting.limits
    types = len(set(setting.cluster.node_types()))
    if limits is None:
        quota = np.zeros(0, np.int64) if decided.quota is None else decided.quota
        users = {name: at for at, name in enumerate(dict.fromkeys(jobs.user))} if len(quota) else {}
        owner = [users[name] for name in jobs.user] if users else ()
        limits = of_quotas(quota, owner, types, [f"quota of {name}" for name in users])
    sets, set_of = dict[tuple[int, ...], int](), np.zeros((types, len(jobs)), np.int64)
    for number, of in enumerate(limits.groups_of if limits.names else ()):
        for row, groups in enumerate(of):
            set_of[number, row] = sets.setdefault(groups, len(sets))
    names = []
    for name, most, many in zip(limits.names, limits.gpus.tolist(), limits.jobs.tolist(), strict=True):
        allowed = [f"{most} GPUs"] * (most < UNLIMITED) + [f"{many} job{'s' * (many != 1)}"] * (
            many < UNLIMITED
        )
        names.append(f"{name} = {' and '.join(allowed)}" if allowed else name)
    arrays = () if jobs.labels is None else dict.fromkeys(jobs.labels.array)
    of_array = np.isin(limits.names, [rule.name for rule in array_rules(arrays)])
    count = len(limits.names)
    return (
        ck.Limits(
            set_of=set_of,
            first=np.cumsum([0, *map(len, sets)]).astype(np.int64),
            groups=np.array([group for one in sets for group in one], np.int64),
            most_gpus=limits.gpus,
            most_jobs=limits.jobs,
            own_gpus=limits.own_gpus,
            pool=limits.pool,
            pool_gpus=limits.pool_gpus,
            sort=np.where(of_array, ck.OF_ARRAY, ck.PLAIN),
            gpus=np.zeros(count, np.int64),
            jobs=np.zeros(count, np.int64),
            pooled=np.zeros(len(limits.pool_gpus), np.int64),
            largest=np.full(1, int(jobs.gpus.max(initial=1))),
            news=np.zeros(1, np.int64),
        ),
        names,
        limits.rules,
    )


@dataclass(frozen=True, slots=True)
class _Site:
    """The nodes as the pass counts them: the real ones, else all that are alike for every job together.

    Parameters
    ----------
    nodes : of the pass.
    size : int64[real nodes], GPUs of each.
    cell : int64[real nodes], which of these each real node is.
    reach : bool[classes, real nodes].
    kind, classes_first, classes : as of `kernels.causes.Jobs`.
    wide, each : `count` and `each` of `Reach`.
    packs : whether the nodes that jobs have are not known.
    seats : of the stretches of GPUs: where those of each begin, the node, the first GPU, and how many.
    """

    nodes: ck.Nodes
    size: I64
    cell: I64
    reach: BOOL
    kind: I64
    classes_first: I64
    classes: I64
    wide: I64
    each: I64
    packs: bool
    seats: tuple[I64, I64, I64, I64]

    @classmethod
    def of(
        cls,
        setting: Setting,
        had: Stretches,
        decided: Decided,
        seats: tuple[I64, I64, I64] | None,
        *,
        named: bool,
    ) -> _Site:
        """Of a setting; parameters as of `causes_of`."""
        jobs, cluster = setting.jobs, setting.cluster
        reach, size = reach_of(jobs, cluster), cluster.node_gpus()
        labels = jobs.labels or JobLabels.of(len(jobs))
        of_any = reach_of(replace(jobs, labels=replace(labels, gpu_type=("",) * len(jobs))), cluster)
        names = list(dict.fromkeys(cluster.node_types()))
        node_type = np.array([names.index(name) for name in cluster.node_types()], np.int64)
        by_node = None if seats is None or not named else seats_by_node(seats, size)
        confined = by_node is None or _keeps_to(reach.nodes[reach.kind[had.row]], by_node)
        sets, of_kind, wider = list[BOOL](), list[list[int]](), dict[int, int]()
        for row in np.unique(reach.kind, return_index=True)[1].tolist():
            inside = reach.nodes[reach.kind[row]] if confined else np.ones(len(size), np.bool_)
            own = [inside & (node_type == number) for number in range(len(names))]
            own = [one for one in own if one.any() and not decided.by_reach] or [inside]
            of_kind.append(list(range(len(sets), len(sets) + len(own))))
            sets += own
            whole = of_any.nodes[of_any.kind[row]]
            if confined and (whole & ~inside).any():
                wider |= dict.fromkeys(of_kind[-1], len(sets))
                sets.append(whole)
        masks = np.array(sets)
        cell = np.arange(len(size))
        if by_node is None:  # nodes that are alike for every job count together
            _, cell = np.unique(np.vstack((masks, node_type)), axis=1, return_inverse=True)
            cell = cell.reshape(-1)
        at = np.unique(cell, return_index=True)[1]
        nodes = _nodes(masks[:, at], np.bincount(cell, size).astype(np.int64), node_type[at], wider)
        if decided.form == ck.BLOCKS and by_node is not None:
            nodes = nodes._replace(taken=np.zeros(int(size.sum()), np.int64))
        first = np.cumsum([0, *map(len, of_kind)]).astype(np.int64)
        classes = np.array([c for one in of_kind for c in one], np.int64)
        packs = by_node is None
        if by_node is None:
            by_node = _anywhere(seats, nodes, reach.kind[had.row], of_kind, size, node_type)
        return cls(
            nodes,
            size,
            cell,
            masks,
            reach.kind,
            first,
            classes,
            reach.count,
            reach.each,
            packs,
            by_node,
        )

    def reach_of(self, row: int) -> BOOL:
        """bool[real nodes], those that a job may use."""
        kind = self.kind[row]
        mine = self.classes[self.classes_first[kind] : self.classes_first[kind + 1]]
        return np.asarray(self.reach[mine].any(axis=0))

    def schedule(
        self, had: Stretches, waiting: Waiting, held_s: F64, windows: Sequence[Window]
    ) -> ck.Schedule:
        """What happens, in order. Nodes that are away without announcement have failed."""
        size = self.size
        gpus = np.zeros((len(windows), len(self.nodes.size)), np.int64)
        for at, window in enumerate(windows):
            takes = np.where(away(window, size) > 0, size, 0)
            if not window.nodes and self.packs and takes.any():
                takes[np.flatnonzero(takes)[0]] -= max(int(takes.sum()) - window.gpus, 0)
            np.add.at(gpus[at], self.cell, takes)
        columns = {
            name: np.array([getattr(one, f"{name}_s") for one in windows], np.float64)
            for name in ("from", "to", "announced")
        }
        marks = np.unique(np.concatenate([*columns.values(), held_s[np.isfinite(held_s)]]))
        parts = (
            (had.to_s, ck.ENDS),
            (had.from_s, ck.BEGINS),
            (waiting.to_s, ck.LEAVES),
            (waiting.from_s, ck.COMES),
            (marks, ck.MARK),
        )
        time = np.concatenate([at_s for at_s, _ in parts])
        what = np.repeat([number for _, number in parts], [len(at_s) for at_s, _ in parts]).astype(np.int64)
        which = np.concatenate([np.arange(len(at_s)) for at_s, _ in parts])
        order = np.lexsort((which, what, time))
        first, node, gpu, count = self.seats
        return ck.Schedule(
            time=time[order],
            what=what[order],
            which=which[order],
            held_row=had.row,
            held_gpus=had.gpus,
            seat_first=first,
            seat_node=node,
            seat_gpu=gpu,
            seat_count=count.copy(),
            wait_row=waiting.row,
            wait_to=waiting.to_s,
            starts=waiting.starts.astype(np.int64),
            window_from=columns["from"],
            window_to=columns["to"],
            window_known=columns["announced"],
            window_failed=np.array([one.is_failure for one in windows], np.int64),
            window_gpus=gpus,
        )


def within(
    stretches: Stretches, seats: tuple[I64, I64, I64] | None, size: I64, reach: BOOL | None
) -> tuple[Stretches, int]:
    """Stretches of GPUs as far as these are of some nodes, and how many GPUs these nodes have.

    Parameters
    ----------
    stretches : of a run.
    seats : their GPUs, as of `Record.seats`; None: not known, and all count.
    size : int64[nodes], GPUs of each node.
    reach : bool[nodes], those that count (None: all).
    """
    if reach is None or reach.all() or seats is None:
        return stretches, int(size.sum())
    begin, node, _, count = seats_by_node(seats, size)
    so_far = np.concatenate(([0], np.cumsum(np.where(reach[node], count, 0))))
    gpus = so_far[begin[1:]] - so_far[begin[:-1]]
    return replace(stretches, gpus=gpus.astype(np.int64)), int(size[reach].sum())


def seats_by_node(seats: tuple[I64, I64, I64], size: I64) -> tuple[I64, I64, I64, I64]:
    """Runs of GPUs, each within a node: where those of each stretch begin, the node, the first GPU, and how many."""
    begin, first, count = seats
    edges = np.concatenate(([0], np.cumsum(size)))
    low, high = (np.searchsorted(edges, at, "right") - 1 for at in (first, first + count - 1))
    parts = high - low + 1
    run = np.repeat(np.arange(len(first)), parts)
    node = low[run] + np.arange(len(run)) - np.repeat(np.cumsum(parts) - parts, parts)
    gpu = np.maximum(first[run], edges[node])
    until = np.minimum((first + count)[run], edges[node + 1])
    at = np.concatenate(([0], np.cumsum(parts))).astype(np.int64)[begin]
    return at, node.astype(np.int64), gpu.astype(np.int64), (until - gpu).astype(np.int64)


def _keeps_to(reach: BOOL, by_node: tuple[I64, I64, I64, I64]) -> bool:
    """Whether stretches of GPUs are on nodes of their reach. reach: bool[stretches, nodes]."""
    begin, node, _, _ = by_node
    stretch = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    return bool(reach[stretch, node].all())


def _anywhere(
    seats: tuple[I64, I64, I64] | None,
    nodes: ck.Nodes,
    kind: I64,
    of_kind: list[list[int]],
    size: I64,
    node_type: I64,
) -> tuple[I64, I64, I64, I64]:
    """The cells that stretches of GPUs can be in, those that fewest classes share first, as of `seats_by_node`.

    Parameters
    ----------
    kind, of_kind : of each stretch, and the classes of each kind.
    """
    share = np.diff(nodes.class_first)
    types = np.full(len(kind), -1)
    if seats is not None and len(seats[1]):
        some = np.flatnonzero(np.diff(seats[0]) > 0)
        types[some] = node_type[np.searchsorted(np.cumsum(size), seats[1][seats[0][some]], "right")]
    known = dict[tuple[int, int], I64]()
    for key in set(zip(kind.tolist(), types.tolist(), strict=True)):
        inside = np.unique(
            np.concatenate(
                [nodes.member[nodes.member_first[c] : nodes.member_first[c + 1]] for c in of_kind[key[0]]]
            )
        )
        inside = inside[(key[1] < 0) | (nodes.node_type[inside] == key[1])]
        known[key] = inside[np.argsort(share[inside], kind="stable")]
    chosen = [known[key] for key in zip(kind.tolist(), types.tolist(), strict=True)]
    begin = np.cumsum([0, *map(len, chosen)]).astype(np.int64)
    node = np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
    return begin, node.astype(np.int64), np.zeros(len(node), np.int64), np.zeros(len(node), np.int64)


def _nodes(masks: BOOL, size: I64, node_type: I64, wider: dict[int, int]) -> ck.Nodes:
    """Empty nodes, and classes of them. masks: bool[classes, nodes]."""
    classes, top = len(masks), int(size.max(initial=0))
    levels = (masks[:, :, None] & (size[None, :, None] >= np.arange(top + 1))).sum(axis=1)
    in_class, member = np.nonzero(masks)
    of_node, class_of = np.nonzero(masks.T)
    return ck.Nodes(
        size=size,
        first_gpu=np.concatenate(([0], np.cumsum(size))).astype(np.int64),
        free=size.copy(),
        space=size.copy(),
        taken=np.zeros(0, np.int64),
        member_first=np.searchsorted(in_class, np.arange(classes + 1)).astype(np.int64),
        member=member.astype(np.int64),
        class_first=np.searchsorted(of_node, np.arange(len(size) + 1)).astype(np.int64),
        class_of=class_of.astype(np.int64),
        node_type=node_type,
        levels=levels.astype(np.int64),
        largest=np.where(masks, size, 0).max(axis=1).astype(np.int64),
        total=masks @ size,
        whole=masks.sum(axis=1).astype(np.int64),
        used=np.zeros(classes, np.int64),
        pool=pools_of(masks),
        wider=np.array([wider.get(c, -1) for c in range(classes)], np.int64),
        gpu_type=node_type[np.argmax(masks, axis=1)],
        version=np.zeros(classes, np.int64),
        low=np.zeros(len(size), np.int64),
        away=np.zeros(len(size), np.int64),
    )
