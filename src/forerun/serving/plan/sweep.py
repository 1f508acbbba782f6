"""The sweep of the InferLine authors' later notebook: from plenty downwards, keeping every step that stays feasible."""

from __future__ import annotations

import math
from collections.abc import Sequence

from forerun.serving.plan.greedy import Misses, Steps, with_choice
from forerun.serving.plan.space import Choice, Configuration, Space


def sweep(
    space: Space, misses: Misses, order: Sequence[str] = (), *, rate_rps: float = 0.0, gate: bool = False
) -> Steps:
    """Begin with the dearest hardware, batch 1 and twice the replicas that the rate needs, then go down in rounds.

    A round tries, stage by stage, the next batch, one replica less, and the next cheaper hardware at the same batch;
    rounds end when one changes nothing.

    Parameters
    ----------
    space : what can be chosen, and the objective.
    misses : gives how many queries a configuration misses, None if more than allowed.
    order : names of the stages in the order they are tried (default: the space's).
    rate_rps : queries a second that the beginning must carry (default: 0: the trace's mean rate).
    gate : also demand that the P99 times of full batches fit into the objective along every path, as the notebook
        does, though batches seldom fill (default: no).
    """
    return _Sweep(space, misses, order or space.names, rate_rps, gate).run()


class _Sweep:
    def __init__(
        self, space: Space, misses: Misses, order: Sequence[str], rate_rps: float, gate: bool
    ) -> None:
        self.space, self.misses, self.gate = space, misses, gate
        self.order = [space.names.index(name) for name in order]
        self.rates = [(rate_rps or space.traffic.rate_rps) * share for share in space.shares]
        self.hardware = [sorted(offers, key=lambda offer: -offer.price) for offers in space.offers]
        self.evaluations = 0

    def run(self) -> Steps:
        """Rounds until nothing changes; no answer if the beginning is infeasible."""
        firsts = [offers[0] for offers in self.hardware]
        now = tuple(
            Choice(offer.hardware, 1, max(1, 2 * math.ceil(rate / offer.qps[1])))
            for offer, rate in zip(firsts, self.rates)
        )
        if not self._feasible(now):
            return Steps(None, self.evaluations)
        changed = True
        while changed:
            changed = False
            for stage in self.order:
                for step in range(3):
                    candidate = self._stepped(now, stage, step)
                    if candidate is not None and self._feasible(candidate):
                        now, changed = candidate, True
        return Steps(now, self.evaluations)

    def _stepped(self, now: Configuration, stage: int, step: int) -> Configuration | None:
        choice = now[stage]
        offer = self.space.offer(stage, choice.hardware)
        changed: Choice | None = None
        if step == 0:
            larger = next((batch for batch in offer.batches if batch > choice.max_batch), None)
            changed = choice._replace(max_batch=larger) if larger is not None else None
        elif step == 1:
            changed = choice._replace(replicas=choice.replicas - 1) if choice.replicas > 1 else None
        else:
            offers = self.hardware[stage]
            later = offers[offers.index(offer) + 1 :]
            if later and choice.max_batch in later[0].batches:
                changed = choice._replace(hardware=later[0].hardware)
        return None if changed is None else with_choice(now, stage, changed)

    def _feasible(self, configuration: Configuration) -> bool:
        offers = [self.space.offer(s, choice.hardware) for s, choice in enumerate(configuration)]
        for offer, choice, rate in zip(offers, configuration, self.rates):
            if rate > offer.qps[choice.max_batch] * choice.replicas:
                return False
        if self.gate:
            full = [offer.p99_ms[choice.max_batch] for offer, choice in zip(offers, configuration)]
            if self.space.longest_path_ms(full) > self.space.slo_ms:
                return False
        self.evaluations += 1
        return self.misses(configuration) is not None
