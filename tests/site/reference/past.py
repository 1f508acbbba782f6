"""What happened in a reference world, as the product's causes take a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.cluster.inputs.arrays import Cluster, JobLabels, Jobs, NodeGroup
from forerun.cluster.inputs.limits import UNLIMITED, LimitRule, resolved
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.summary.causes import CAUSES, Causes, Decided, Waiting, causes_of
from forerun.cluster.summary.spans import Stretches

from .scheduler import CAUSES as TESTED
from .scheduler import Attempt, Reference, World

#: the product's causes by what the reference calls them
NAMES = dict(zip(TESTED, CAUSES, strict=True))


@dataclass(frozen=True)
class Past:
    """The attempts of a world as jobs of a setting, one each, from when they are eligible; who had what, who waited.

    waits, ran : the attempts behind `waiting` and `had`, in order.
    """

    setting: Setting
    had: Stretches
    waiting: Waiting
    seats: tuple[np.ndarray, np.ndarray, np.ndarray]

    def causes(
        self, decided: Decided, focus: int = -1, *, named: bool = True, held_s: np.ndarray | None = None
    ) -> Causes:
        """What the product says."""
        return causes_of(
            self.setting, self.had, self.waiting, decided, seats=self.seats if named else None, named=named,
            held_s=held_s, focus=focus,
        )  # fmt: skip


def past_of(world: World, attempts: Sequence[Attempt]) -> Past:
    """The schedule that attempts are."""
    names = [node.name for node in world.nodes]
    size = np.array([node.gpus for node in world.nodes])
    first = np.concatenate(([0], np.cumsum(size)))
    cluster = Cluster(
        tuple(NodeGroup(node.name, 1, node.gpus, node.gpu_type) for node in world.nodes),
        partitions={part.name: tuple(names.index(one) for one in part.nodes) for part in world.partitions},
    )
    last_s = max(one.end_s for one in attempts if one.end_s is not None)
    count = len(attempts)
    eligible_s = [one.eligible_s if one.eligible_s is not None else one.end_s or last_s for one in attempts]
    labels = JobLabels.of(
        count,
        account=[one.job.account for one in attempts],
        partition=[",".join(one.job.partitions) for one in attempts],
        qos=[one.job.qos for one in attempts],
        nodes=[one.job.nodes for one in attempts],
        gpu_type=[one.job.gpu_type for one in attempts],
        exclusive=[one.job.exclusive for one in attempts],
        eligible_after_s=[at_s - one.submit_s for at_s, one in zip(eligible_s, attempts, strict=True)],
    )
    jobs = Jobs.of(
        eligible_s,
        [one.job.gpus for one in attempts],
        [one.job.run_s for one in attempts],
        id=[one.job.id for one in attempts],
        user=[one.job.user for one in attempts],
        requested_s=[one.job.request_s for one in attempts],
        labels=labels,
    )
    columns = {
        "user": jobs.user, "account": labels.account, "qos": labels.qos, "partition": labels.partition,
    }  # fmt: skip
    rules = [
        LimitRule(
            one.name, one.of, one.per, min(one.gpus, UNLIMITED), min(one.jobs, UNLIMITED),
            gpu_type=one.gpu_type, kind=one.kind, rank=one.rank,
        )
        for one in world.limits
    ]  # type: ignore[arg-type]  # fmt: skip
    limits = resolved(rules, {}, columns, tuple(dict.fromkeys(cluster.node_types()))) if rules else None  # type: ignore[arg-type]
    away = tuple(
        Window(one.from_s, one.to_s, 0, one.known_s, nodes=tuple(names.index(each) for each in one.nodes))
        for one in world.maintenance if one.nodes
    )  # fmt: skip
    away += tuple(
        Window(one.from_s, one.to_s, 0, one.from_s, nodes=(names.index(one.node),)) for one in world.failures
    )
    ran = [row for row, one in enumerate(attempts) if one.start_s is not None and one.end_s != one.start_s]
    places: list[Mapping[str, int]] = [attempts[row].place for row in ran]
    had = Stretches(
        np.array([attempts[row].start_s for row in ran], np.float64),
        np.array([attempts[row].end_s for row in ran], np.float64),
        np.array([sum(place.values()) for place in places], np.int64),
        np.array(ran, np.int64),
    )
    owner = np.full(int(size.sum()), -1)
    runs: dict[int, list[tuple[int, int]]] = {}
    for at_s, begins, number in sorted(
        [(float(had.from_s[at]), 1, at) for at in range(len(ran))]
        + [(float(had.to_s[at]), 0, at) for at in range(len(ran))]
    ):
        del at_s
        if not begins:
            owner[owner == number] = -1
            continue
        for name, gpus in places[number].items():
            node = names.index(name)
            free = first[node] + np.flatnonzero(owner[first[node] : first[node + 1]] < 0)[:gpus]
            assert len(free) == gpus
            owner[free] = number
            runs.setdefault(number, []).extend((int(gpu), 1) for gpu in free)
    lengths = [len(runs.get(at, ())) for at in range(len(ran))]
    flat = np.array([run for at in range(len(ran)) for run in runs.get(at, ())], np.int64).reshape(-1, 2)
    rows = [
        row for row, one in enumerate(attempts)
        if one.eligible_s is not None and (one.start_s if one.start_s is not None else one.end_s or last_s) > one.eligible_s
    ]  # fmt: skip
    waiting = Waiting(
        np.array([eligible_s[row] for row in rows], np.float64),
        np.array(
            [
                attempts[row].start_s if attempts[row].start_s is not None else attempts[row].end_s or last_s
                for row in rows
            ],
            np.float64,
        ),
        jobs.gpus[rows],
        np.array(rows, np.int64),
        np.array([attempts[row].start_s is not None for row in rows], np.bool_),
    )
    setting = Setting(jobs, cluster, None, 60, maintenance=away, limits=limits)
    begin = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return Past(setting, had, waiting, (begin, flat[:, 0], flat[:, 1]))


class Played(Reference):
    """A schedule that somebody else made, with why everybody waited. Who fits and does not start waits for the order.

    Parameters
    ----------
    world : in which it was made.
    made : its attempts, with when they were eligible, started and ended, and where.
    """

    def __init__(self, world: World, made: Sequence[Attempt]) -> None:
        super().__init__(world)
        self.made = made

    def run(self) -> list[Attempt]:
        """The attempts, in their order."""
        made = sorted(self.made, key=lambda one: one.submit_s)
        times = {at_s for one in made for at_s in (one.submit_s, one.eligible_s, one.start_s, one.end_s)}
        times |= {at_s for one in self.world.maintenance for at_s in (one.known_s, one.from_s, one.to_s)}
        times |= {at_s for one in self.world.failures for at_s in (one.from_s, one.to_s)}
        arrived = 0
        self.now_s = made[0].submit_s if made else 0
        for now_s in sorted(at_s for at_s in times if at_s is not None and at_s >= self.now_s):
            self._pass_time(now_s)
            for one in [one for one in self.running if one.end_s == now_s]:
                self.running.remove(one)
                self._count(one, -1)
            self.down = {one.node for one in self.world.failures if one.from_s <= now_s < one.to_s}
            while arrived < len(made) and made[arrived].submit_s <= now_s:
                self._submit(made[arrived])
                arrived += 1
            for one in [one for one in self.waiting if now_s in (one.start_s, one.end_s)]:
                self.waiting.remove(one)
                if one.start_s == now_s and one.end_s != now_s:
                    self.running.append(one)
                    self._count(one, 1)
            early = {
                id(one): "not eligible"
                for one in self.waiting
                if one.eligible_s is None or now_s < one.eligible_s
            }
            self._explain(early, self._book())
        return self.attempts
