"""InferLine's cost minimiser: start feasible, then always the cheapest feasible step.

Source: Crankshaw et al., "InferLine: latency-aware provisioning and scaling for prediction serving pipelines", SoCC'20,
section 4. It trades one dear machine for several cheap ones and cannot go back, so it may end above the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.serving.plan.space import Choice, Configuration, Offer, Space

#: misses of a configuration, or None if there are more than allowed
Misses = Callable[[Sequence[Choice]], "int | None"]

#: replicas added to one stage before giving up
MOST_ADDED: Final = 400


@dataclass(frozen=True)
class Steps:
    """What an optimiser arrived at.

    Parameters
    ----------
    configuration : its answer (None: it has none).
    evaluations : configurations that it simulated.
    """

    configuration: Configuration | None
    evaluations: int


def greedy(space: Space, misses: Misses, order: Sequence[str] = ()) -> Steps:
    """The greedy minimiser.

    Parameters
    ----------
    space : what can be chosen, and the objective.
    misses : gives how many queries a configuration misses, None if more than allowed.
    order : names of the stages in the order they are tried (default: the space's); it decides between equal steps.
    """
    return _Greedy(space, misses, [space.names.index(name) for name in order or space.names]).run()


class _Greedy:
    """One run: the configuration is a list of choices by stage."""

    def __init__(self, space: Space, misses: Misses, order: Sequence[int]) -> None:
        self.space, self.misses, self.order = space, misses, order
        self.evaluations = 0

    def run(self) -> Steps:
        """Initialise, then take the first strictly cheapest feasible candidate until there is none."""
        now = self._initial()
        while now is not None:
            better = self._cheapest(
                candidate for stage in self.order for candidate in self._candidates(now, stage)
            )
            if better is None:
                break
            now = better
        return Steps(now, self.evaluations)

    def _cheapest(self, candidates: Iterable[Configuration]) -> Configuration | None:
        """The first strictly cheapest feasible candidate; None if none is feasible."""
        best, best_cost = None, math.inf
        for candidate in candidates:
            if self.space.whole_cost(candidate) < best_cost and self._feasible(candidate):
                best, best_cost = candidate, self.space.whole_cost(candidate)
        return best

    def _feasible(self, configuration: Configuration) -> bool:
        self.evaluations += 1
        return self.misses(configuration) is not None

    def _initial(self) -> Configuration | None:
        """Fastest hardware at batch 1, one replica; then replicas where throughput is least, until feasible."""
        space = self.space
        chosen = [min(offers, key=lambda offer: float(offer.table_ms[1])) for offers in space.offers]
        if space.longest_path_ms([float(offer.table_ms[1]) for offer in chosen]) > space.slo_ms:
            return None
        now = tuple(Choice(offer.hardware, 1, 1) for offer in chosen)
        for _ in range(MOST_ADDED):
            if self._feasible(now):
                return now
            least = min(self.order, key=lambda s: chosen[s].qps[1] * now[s].replicas)
            now = with_choice(now, least, now[least]._replace(replicas=now[least].replicas + 1))
        return None

    def _candidates(self, now: Configuration, stage: int) -> Iterator[Configuration]:
        yield from self._small_steps(now, stage)
        cheaper = self._on_cheaper_hardware(now, stage)
        if cheaper is not None:
            yield cheaper

    def _small_steps(self, now: Configuration, stage: int) -> Iterator[Configuration]:
        """A batch twice as large or more, and one replica less."""
        choice = now[stage]
        batches = self.space.offer(stage, choice.hardware).batches
        larger = next((batch for batch in batches if batch >= 2 * choice.max_batch), None)
        if larger is not None:
            yield with_choice(now, stage, choice._replace(max_batch=larger))
        if choice.replicas > 1:
            yield with_choice(now, stage, choice._replace(replicas=choice.replicas - 1))

    def _on_cheaper_hardware(self, now: Configuration, stage: int) -> Configuration | None:
        """The stage begun anew on the next cheaper hardware, the others left as they are; None unless cost falls."""
        offer = self._next_cheaper(stage, self.space.offer(stage, now[stage].hardware))
        if offer is None:
            return None
        begun = with_choice(now, stage, Choice(offer.hardware, 1, 1))
        for _ in range(MOST_ADDED):
            if self._feasible(begun):
                break
            begun = with_choice(begun, stage, begun[stage]._replace(replicas=begun[stage].replicas + 1))
        else:
            return None
        while (better := self._cheapest(self._small_steps(begun, stage))) is not None:
            begun = better
        return begun if self.space.whole_cost(begun) < self.space.whole_cost(now) else None

    def _next_cheaper(self, stage: int, offer: Offer) -> Offer | None:
        cheaper = [other for other in self.space.offers[stage] if other.price < offer.price]
        return max(cheaper, key=lambda other: other.price, default=None)


def with_choice(configuration: Configuration, stage: int, choice: Choice) -> Configuration:
    """The configuration with another choice for one stage.

    Parameters
    ----------
    configuration : by stage.
    stage : number of the stage.
    choice : what takes the place of its choice.
    """
    return (*configuration[:stage], choice, *configuration[stage + 1 :])
