"""What could be otherwise at a site, as overrides of its scenario: what is tried first, and what each costs."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forerun.cluster.engine.run import Outcome
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.kueue import Kueue
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.core.scenario.spec import override, to_data

#: how many jobs all changes together simulate, unless more is asked for
MOST_JOBS: Final = 20_000
#: changes that are tried whatever that comes to
LEAST_TRIED: Final = 3
#: weights of priorities as Slurm writes them
_WEIGHTS: Final = {
    "age": "Age", "fairshare": "Fairshare", "job_size": "JobSize", "partition": "Partition", "qos": "QOS",
    "tres_gpu": "TRES",
}  # fmt: skip
#: whom a limit counts by itself, after its name
_PER: Final = re.compile(r" \([^()]*\)$")


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is otherwise.

    Parameters
    ----------
    name : in words.
    sets : values of the scenario by their paths.
    nodes : how many nodes it needs more than there are.
    """

    name: str
    sets: Mapping[str, Any]
    nodes: int = 0

    @property
    def overrides(self) -> list[str]:
        """As for `--set`."""
        return [override(path, value) for path, value in self.sets.items()]


def default_changes(base: Outcome, waiting: Sequence[str]) -> list[Change]:
    """The changes that are tried by themselves, one of each group in turn, the likeliest of each first.

    Parameters
    ----------
    base : the run of the site as it is.
    waiting : the partitions whose jobs wait, those first that wait longest together.
    """
    groups = (
        _limits(base),
        _nodes(base, waiting),
        _backfill(base),
        _weights(base),
        _moves(base, waiting),
        _quotas(base, waiting),
        _kueue(base),
    )
    found = itertools.chain.from_iterable(itertools.zip_longest(*groups))
    return [one for one in found if one is not None]


def tried(changes: list[Change], jobs: int, most: int) -> list[Change]:
    """Those of the changes that are simulated. most: so many (default 0: by the number of jobs)."""
    return changes[: most or max(LEAST_TRIED, MOST_JOBS // max(jobs, 1))]


def _limits(base: Outcome) -> Iterator[Change]:
    """Each limit of the site that is no partition: those first that are about most jobs."""
    limits = base.inputs.setting.limits
    if limits is None or limits.queues is not None:
        return
    names = [_PER.sub("", limits.names[at]) for of in limits.groups_of for job in of for at in job]
    jobs = Counter(name for name in names if not name.startswith("array "))  # a user's own wish
    partitions = {f"partition {name}" for name in base.inputs.setting.cluster.partitions}
    for name, _ in sorted(jobs.items(), key=lambda one: (-one[1], one[0])):
        if name not in partitions and not name.startswith("limits["):
            yield Change(f"without the limit {name}", {"machines.otherwise": {"without_limits": [name]}})


def _nodes(base: Outcome, waiting: Sequence[str]) -> Iterator[Change]:
    """A node more in each partition that waits."""
    partitions = base.inputs.setting.cluster.partitions
    for name in waiting:
        if partitions.get(name):
            sets = {"machines.otherwise": {"more_nodes": {name: 1}}}
            yield Change(f"one more node in {name}", sets, nodes=1)
    if not partitions and (nodes := to_data(base.inputs.scenario)["machines"].get("nodes")):
        (group, *others) = nodes
        count = max(1, group["count"] // 50) if group["gpus"] == 1 else 1
        more = [{**group, "count": group["count"] + count}, *others]
        what = f"{count} GPU{'s' * (count > 1)} more" if group["gpus"] == 1 else "one more node"
        yield Change(what, {"machines.nodes": more}, nodes=1)


def _backfill(base: Outcome) -> Iterator[Change]:
    """Backfilling and its parameters, as far as they can bind."""
    policy, jobs = base.inputs.policy, base.inputs.setting.jobs
    if isinstance(policy, Kueue):
        return
    if not isinstance(policy, BackfillPolicy) or not policy.backfills:
        yield Change("backfilling (sched/backfill)", {"policy": {"name": "slurm-backfill"}})
        return
    if isinstance(policy, SlurmBackfill):
        longest_s = float(jobs.requested_s[jobs.requested_s < np.inf].max(initial=0.0))
        most = int(base.record.events()[1].max(initial=0))
        if policy.bf_window_s and longest_s > policy.bf_window_s:
            minutes = int(np.ceil(longest_s / 60))
            yield Change(f"bf_window={minutes}, the longest request", {"policy.bf_window_s": 60.0 * minutes})
        if most > policy.bf_max_job_test:
            yield Change(f"bf_max_job_test={most}, the longest queue", {"policy.bf_max_job_test": most})
        if policy.bf_interval_s > 30:
            yield Change("bf_interval=30", {"policy.bf_interval_s": 30.0})


def _weights(base: Outcome) -> Iterator[Change]:
    """Each weight of a priority that counts, without it; then age alone."""
    policy = base.inputs.policy
    order = policy.order if isinstance(policy, BackfillPolicy) else None
    if not isinstance(order, Multifactor):
        return
    nothing = {"qos"} if not order.qos else set()  # no QOS has a priority that is weighed
    weights = {name: value for name, value in to_data(order.weights).items() if value and name not in nothing}
    for name in sorted(weights, key=lambda one: (one == "age", one != "fairshare", -weights[one])):
        rest = {other: value for other, value in weights.items() if other != name}
        if rest:
            yield Change(f"PriorityWeight{_WEIGHTS[name]}=0", {"policy.order.weights": rest})


def _moves(base: Outcome, waiting: Sequence[str]) -> Iterator[Change]:
    """A node of each partition that has some to itself, for the one that waits longest."""
    partitions = base.inputs.setting.cluster.partitions
    targets = [name for name in waiting if partitions.get(name)]
    of_node = Counter(node for nodes in partitions.values() for node in nodes)
    for to in targets[:1]:
        for name, nodes in partitions.items():
            own = [node for node in nodes if of_node[node] == 1 and node not in partitions[to]]
            if name != to and own and len(nodes) > 1:
                sets = {"machines.otherwise": {"moved_nodes": {name: {to: 1}}}}
                yield Change(f"one node of {name} is {to}'s instead", sets)


def _quotas(base: Outcome, waiting: Sequence[str]) -> Iterator[Change]:
    """For the queue of Kueue that waits longest, the GPUs of its largest job: of each that can spare them, and new ones."""
    limits, jobs = base.inputs.setting.limits, base.inputs.setting.jobs
    if limits is None or (queues := limits.queues) is None or jobs.labels is None:
        return
    number = dict(zip(jobs.labels.partition, queues.of, strict=True))
    to = next((number[name] for name in waiting if number.get(name, -1) >= 0), -1)
    if to < 0:
        return
    largest = np.zeros(len(queues.names), np.int64)
    np.maximum.at(largest, np.array(queues.of), jobs.gpus)
    gpus, name = int(largest[to]), queues.names[to]
    for other, nominal in enumerate(queues.nominal_gpus):
        both = sum(nominal.get(gpu_type, 0) for gpu_type in queues.nominal_gpus[to])
        if other != to and both - gpus >= largest[other]:
            what = f"{gpus} GPUs of the quota of {queues.names[other]} are {name}'s instead"
            yield Change(what, {"machines.otherwise": {"moved_quota": {queues.names[other]: {name: gpus}}}})
    yield Change(
        f"{gpus} GPUs more for {name}", {"machines.otherwise": {"more_quota": {name: gpus}}}, nodes=1
    )


def _kueue(base: Outcome) -> Iterator[Change]:
    """What queues of Kueue do to each other, without it."""
    if not isinstance(base.inputs.policy, Kueue):
        return
    given = list(base.inputs.scenario.machines.ignore or ())
    for name, what in (
        ("preemption", "no preemption between queues"),
        ("fair-sharing", "no fair sharing"),
    ):
        if name not in given:
            yield Change(what, {"machines.ignore": [*given, name]})
