"""Preemption by partitions or qualities of service, as Slurm has it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import I64, JobLabels
from forerun.cluster.inputs.setting import REQUEUE_S
from forerun.core.scenario.numbers import NotNegative
from forerun.core.scenario.spec import Spec

if TYPE_CHECKING:
    from forerun.cluster.engine.kernels.queue_state import Preemption as PreemptionArrays


class Preemption(Spec, frozen=True, kw_only=True):
    """Whose jobs may stop whose, where they do not fit otherwise.

    by: whether partitions or qualities of service (`qos`) say it. over: by the name of one, those whose jobs its jobs stop,
    the first of them first. cancels: those whose jobs end for good when they are stopped; others come again `requeue_s`
    later (default 121, as Slurm's do) and have lost their work, see `costs.checkpoint_s`. grace_s: how long its jobs run on
    that are to be stopped, by name (default: not at all). exempt_s: no job is stopped before it has run so long (default 0).
    """

    by: Literal["partition", "qos"]
    over: dict[str, tuple[str, ...]]
    cancels: tuple[str, ...] = ()
    grace_s: dict[str, Annotated[float, msgspec.Meta(ge=0)]] = {}
    exempt_s: NotNegative = 0.0
    requeue_s: NotNegative = REQUEUE_S

    def arrays(self, labels: JobLabels | None, jobs: I64, nodes: int, most: int) -> PreemptionArrays:
        """As the compiled queue has it, before any job is to be stopped.

        Parameters
        ----------
        labels, jobs : of the trace, and the rows of it that count.
        nodes, most : of the cluster, and how many jobs run at once at most.
        """
        from forerun.cluster.engine.kernels import queue_state as qs

        texts = (
            [""] * len(jobs) if labels is None else [getattr(labels, self.by)[job] for job in jobs.tolist()]
        )
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        names = [text.split(",") for text in numbers]
        turn: I64 = np.full((len(names), len(names)), -1)
        for mine, its_names in enumerate(names):
            lower = [other for name in its_names for other in self.over.get(name, ())]
            for other, others in enumerate(names):
                turn[mine, other] = min((lower.index(name) for name in others if name in lower), default=-1)
        return qs.Preemption(
            number=jobs.copy(),
            group=np.array([numbers[text] for text in texts], np.int64),
            turn=turn,
            grace_s=np.array([max(self.grace_s.get(name, 0.0) for name in group) for group in names]),
            again_s=np.array([math.inf if {*group} & {*self.cancels} else self.requeue_s for group in names]),
            exempt_s=np.full(1, float(self.exempt_s)),
            due_s=np.full(len(jobs), np.inf),
            due_for=np.zeros(len(jobs), np.int64),
            next_s=np.full(1, np.inf),
            served_s=np.full(len(jobs), -np.inf),
            those=np.zeros(most + 1, np.int64),
            kept=np.zeros(nodes, np.int64),
        )

    def problems(self) -> list[tuple[str, str]]:
        """A group that may stop itself, directly or through others: nothing says who goes first."""
        if (name := in_circle(self.over)) is None:
            return []
        stopped = ", ".join(self.over[name])
        return [("over", f"{self.by} {name} stops jobs of {stopped}, which may stop its own in turn")]


def in_circle(over: Mapping[str, Collection[str]]) -> str | None:
    """The first that may stop itself, directly or through others; None: there is none."""
    for name in over:
        reached, fresh = set[str](), set(over[name])
        while fresh:
            reached |= fresh
            fresh = {other for one in fresh for other in over.get(one, ())} - reached
        if name in reached:
            return name
    return None
