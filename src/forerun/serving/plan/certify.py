"""Writing down why nothing cheaper will do, so that a checker who trusts nobody can see it.

The search prunes with laws that a checker need not know. Here every configuration cheaper than the plan is walked
through once more, stages near the source first, and each is cut off by a part whose forced misses are above what is
allowed; parts already written down cut off the most.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.serving.inputs.pipeline import SOURCE
from forerun.serving.plan.space import Choice, Configuration, Space
from forerun.serving.plan.stage_runs import StageRun, StageRuns
from forerun.serving.scenario import SOURCE_NAME

SCHEMA: Final = "forerun.serving.certificate/1"

#: who takes an edge, drawn or recorded, by (parent, stage) in edge order
Routing = Mapping[tuple[str, str], NDArray[np.bool_]]


def certificate(space: Space, plan: Configuration, routing: Routing | None = None) -> dict[str, Any]:
    """The certificate of a cheapest plan, as plain data.

    Parameters
    ----------
    space : what could be chosen, on the trace that the plan was made for.
    plan : the configuration that is said to be cheapest.
    routing : who takes each conditional edge (default: every edge is always taken).

    Raises AssertionError if the plan is not cheapest.
    """
    writer = _Writer(space, plan)
    writer.walk()
    misses = StageRuns(space, space.traffic).misses(plan)
    assert misses is not None, "the plan is not feasible"
    arrivals = np.ascontiguousarray(space.traffic.arrivals_ms, dtype="<f8")
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "trace": {
            "arrivals": space.traffic.queries,
            "arrival_ms_sha256": hashlib.sha256(arrivals.tobytes()).hexdigest(),
        },
        "slo_ms": space.slo_ms,
        "allowed_misses": space.allowed,
        "costs": {offer.hardware: offer.price for offers in space.offers for offer in offers},
        "max_replicas": space.max_replicas,
        "stages": [stage_data(space, s) for s in range(len(space.names))],
        "plan": space.named(plan),
        "cost": space.cost(plan),
        "misses": misses,
        "refuted": [
            {"stages": {space.names[s]: list(choice) for s, choice in part}, "misses_at_least": count}
            for part, count in writer.refuted.items()
        ],
    }
    if routing:
        columns = b"".join(column.astype(np.uint8).tobytes() for column in routing.values())
        content["routing_sha256"] = hashlib.sha256(columns).hexdigest()
    return content


def stage_data(space: Space, stage: int) -> dict[str, Any]:
    """What a certificate says of a stage: its parents, and what may be chosen at which cost of time."""
    return {
        "stage": space.names[stage],
        "parents": [SOURCE_NAME if p == SOURCE else space.names[p] for p in space.parents[stage]],
        "options": {offer.hardware: list(offer.batches) for offer in space.offers[stage]},
        "service_ms": {offer.hardware: offer.table_ms.tolist() for offer in space.offers[stage]},
    }


#: choices by stage number, ascending
PartKey = tuple[tuple[int, Choice], ...]


@dataclass
class _Writer:
    """Walks through everything cheaper than the plan.

    Parameters
    ----------
    space : what could be chosen.
    plan : the configuration that is said to be cheapest.
    refuted : parts that were written down, and their forced misses.
    """

    space: Space
    plan: Configuration
    refuted: dict[PartKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        space = self.space
        self._known = StageRuns(space, space.traffic, cut_short=False)
        depth: list[int] = []
        for parents in space.parents:
            depth.append(1 + max((depth[p] for p in parents if p != SOURCE), default=0))
        self._order = sorted(range(len(space.names)), key=lambda s: depth[s])
        least = [min(space.whole_price(offer) for offer in space.offers[s]) for s in self._order]
        self._rest = [sum(least[k:]) for k in range(len(least) + 1)]
        self._limit = space.whole_cost(self.plan)

    def walk(self) -> None:
        """Refute every cheaper configuration."""
        self._go(0, {}, {}, 0, 0)

    def _go(
        self, k: int, chosen: dict[int, Choice], outcomes: dict[int, StageRun], late: int, whole: int
    ) -> None:
        """Choose for one more stage, and write down each part that forces too many misses.

        Parameters
        ----------
        k : how many stages are chosen for, in the order near the source first.
        chosen, outcomes : by stage, its choice and the run of it.
        late : queries that are late at some stage chosen for: query q at bit q.
        whole : cost of what is chosen, in whole units.
        """
        assert k < len(self._order), f"{chosen} is cheaper than the plan and feasible"
        stage = self._order[k]
        parents = [None if p == SOURCE else outcomes[p] for p in self.space.parents[stage]]
        closure = self.space.closures[stage]
        for choice, price in self._affordable(stage, whole + self._rest[k + 1]):
            now = {**chosen, stage: choice}
            part = tuple((s, now[s]) for s in closure)
            if part in self.refuted:
                continue
            outcome = self._known.stage_run(stage, choice, parents)
            there = {**outcomes, stage: outcome}
            own = 0
            for s in closure:
                own |= there[s].late
            together = late | outcome.late
            if own.bit_count() > self.space.allowed:
                self.refuted[part] = own.bit_count()
            elif together.bit_count() > self.space.allowed:
                self.refuted[tuple(sorted(now.items()))] = together.bit_count()
            else:
                self._go(k + 1, now, there, together, whole + price)

    def _affordable(self, stage: int, rest: int) -> Iterator[tuple[Choice, int]]:
        """The choices that leave a configuration cheaper than the plan, and their price in whole units."""
        for offer in self.space.offers[stage]:
            for replicas in range(1, self.space.max_replicas + 1):
                price = self.space.whole_price(offer) * replicas
                if price + rest >= self._limit:
                    break
                for batch in offer.batches:
                    yield Choice(offer.hardware, batch, replicas), price
