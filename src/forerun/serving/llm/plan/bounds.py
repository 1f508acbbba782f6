"""What no cell of a variant can do: requests that are late even alone, and the replicas that the work needs at the least.

A request that meets its limits is processed between its arrival and its deadline. So replicas that meet them work, between
the first arrival of some requests and the last of their deadlines, at least as long as these requests need together. What
they need does not depend on how prompts are cut into chunks: the pairs of tokens that attend to each other sum to p^2 / 2,
and iterations are at least as many as the tokens over the budget, the turns of requests over the seats, and the blocks that
they hold in each turn over the blocks there are. Where a draft proposes tokens, all are taken to be right, and what drafting
costs is left out. As many requests as may be late are left out, each time those that need
most.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import SOURCE, Floats
from forerun.serving.llm.inputs.model import LanguageModel
from forerun.serving.llm.plan.space import Cell, Space, StageSpace, Variant, on_traffic
from forerun.serving.scenario.limits import may_miss

#: the trace is cut into 1, 2, 4, ... windows; this many times
CUTS: Final = 3
#: what rounding may take away from a bound, as a share of it
ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Bound:
    """What the requests of one trace ask of a variant.

    Parameters
    ----------
    late : requests that are late, or refused, whatever the number of replicas.
    needed : replicas that the work needs at the least; 0 where no work has a deadline.
    first, last : queries whose work that is: from `first` up to `last`, itself excluded.
    whole : the deadlines are those of all tokens (else: of the first).
    """

    late: int
    needed: float
    first: int
    last: int
    whole: bool

    def excludes(self, replicas: int, allowed: int) -> bool:
        """Whether so many replicas cannot do it.

        Parameters
        ----------
        allowed : requests that may be late.
        """
        return self.late > allowed or self.overworks(replicas)

    def overworks(self, replicas: int) -> bool:
        """Whether the work is more than so many replicas can do in time."""
        return replicas < self.needed * (1 - ROUNDING)


class Work(NamedTuple):
    """What requests need at the least, each array float64[queries].

    Parameters
    ----------
    linear_ms : work that each brings by itself.
    iterations : how many iterations each adds to: by its tokens over the budget, its turns over the seats, its blocks over
        the cache; each of the sums is a lower bound of the iterations.
    each_ms : of every iteration.
    """

    linear_ms: Floats
    iterations: tuple[Floats, ...]
    each_ms: float


class Bounds:
    """The bounds of all variants on some traffic; computed when they are first asked for."""

    def __init__(self, space: Space, inputs: Inputs) -> None:
        """Begin with none computed.

        Parameters
        ----------
        space : what may be chosen.
        inputs : the scenario's, on the traffic.
        """
        self.space, self.inputs = space, inputs
        self._known: dict[tuple[int, Variant], Bound | None] = {}
        self.allowed = allowed_late(space, inputs)

    def excludes(self, cell: Cell) -> tuple[int, Bound] | None:
        """The number of a stage whose bound excludes a cell among those of the space, and the bound; None: nothing does."""
        for place, (stage, choice) in enumerate(zip(self.space.stages, cell)):
            bound = self.bound(stage, choice.variant)
            if bound is not None and bound.excludes(choice.replicas, self.allowed):
                return place, bound
        return None

    def bound(self, stage: StageSpace, variant: Variant) -> Bound | None:
        """The bound of a variant; None where requests do not come to the stage as they arrive, where others decode, or
        where none has a deadline."""
        key = (stage.number, variant)
        if key not in self._known:
            self._known[key] = self._computed(stage, variant)
        return self._known[key]

    def _computed(self, stage: StageSpace, variant: Variant) -> Bound | None:
        own = self.inputs.pipeline.stages[stage.number]
        assert own.llm is not None
        if stage.models[variant].decode is not None:
            return None
        if [edge.parent for edge in own.edges] != [SOURCE] or not own.edges[0].always:
            return None
        llm = on_traffic(stage.models[variant], own.llm)
        slo_ms, arrivals_ms = self.space.scenario.latency_limit_ms, self.inputs.arrivals_ms
        bounds = [
            Bound(_late(llm, slo_ms), *_needed(arrivals_ms, after_ms, work, self.allowed), whole)
            for whole, after_ms, work in _deadlines(llm, slo_ms)
        ]
        return max(bounds, key=lambda bound: bound.needed, default=None)


def allowed_late(space: Space, inputs: Inputs) -> int:
    """Requests that may be late in a run that keeps all objectives, whichever each is late for."""
    queries = len(inputs.arrivals_ms)
    alone = (
        may_miss(wanted, queries)
        for stage in space.stages
        for _, _, wanted in next(iter(stage.models.values())).limits
        if wanted is not None
    )
    return space.scenario.allowed_misses(queries) + sum(alone)


def _deadlines(llm: LanguageModel, slo_ms: float) -> list[tuple[bool, Floats, Work]]:
    """(of all tokens, deadlines after the arrival, work due by then), for the last token and for the first."""
    limit = {kind: limit_ms for kind, limit_ms, _ in llm.limits}
    ends_ms = min(slo_ms, limit.get("e2e", np.inf))
    first_ms, later_ms = limit.get("ttft", np.inf), min(limit.get("tpot", np.inf), limit.get("itl", np.inf))
    more = (llm.output - 1).astype(np.float64)
    gap_ms = np.where(more > 0, later_ms, 0.0)
    last_ms = np.minimum(ends_ms, first_ms + gap_ms * more)
    of_first = np.full(len(more), min(first_ms, ends_ms))
    work = least_work(llm)
    found = [(True, last_ms, work)] if np.isfinite(last_ms).all() else []
    if np.isfinite(of_first).all():
        found.append((False, of_first, _first_token(llm)))
    return found


def least_work(llm: LanguageModel) -> Work:
    """What each request needs at the least for all of its tokens. Refused requests need nothing."""
    p, o = _tokens(llm)
    prefill, pairs = _prefill(llm, p)
    turns = (np.ceil(prefill / llm.token_budget) + o - 1) * (o > 0)
    # Where the budget limits prompts alone, decodes do not count.
    decodes = o - 1 if llm.rules.counts_decodes else np.zeros(len(o))
    iterations = [(prefill + decodes) * (o > 0) / llm.token_budget, turns / llm.max_seqs]
    if llm.shared is None:
        iterations.append((o * p + o * (o - 1) / 2) / llm.block_tokens / llm.kv_blocks)
    decode_ms = _decode_ms(llm, p, o)
    linear_ms = _prefill_ms(llm, prefill, pairs) + decode_ms
    return Work(linear_ms, tuple(iterations), llm.cost.beside_ms)


def _first_token(llm: LanguageModel) -> Work:
    """The same for the first tokens alone."""
    p, _ = _tokens(llm)
    prefill, pairs = _prefill(llm, p)
    turns = np.ceil(prefill / llm.token_budget)
    iterations = [prefill / llm.token_budget, turns / llm.max_seqs]
    if llm.shared is None:
        iterations.append(p / llm.block_tokens / llm.kv_blocks)
    return Work(_prefill_ms(llm, prefill, pairs), tuple(iterations), llm.cost.beside_ms)


def _tokens(llm: LanguageModel) -> tuple[Floats, Floats]:
    """Tokens of prompts, and steps in which the answers come at the least; none of refused requests."""
    served = ~llm.refused
    steps = 1 + llm.least_steps
    prompt, output = (np.where(served, tokens, 0).astype(np.float64) for tokens in (llm.prompt, steps))
    return prompt, output


def _prefill(llm: LanguageModel, p: Floats) -> tuple[Floats, Floats]:
    """Tokens of prompts that are processed, and pairs that attend to each other; a prefix cache may spare all but one."""
    return (p, p**2 / 2) if llm.shared is None else (np.minimum(p, 1.0), np.zeros(len(p)))


def _prefill_ms(llm: LanguageModel, prefill: Floats, pairs: Floats) -> Floats:
    if llm.cost.tabled:
        return np.zeros(len(prefill))
    _, of_prefill, _, _, of_attention = llm.cost.terms
    return of_prefill * prefill + of_attention * pairs


def _decode_ms(llm: LanguageModel, p: Floats, o: Floats) -> Floats:
    """What the decodes of each request take beyond their iterations.

    A request that is preempted emits its next token behind a second prefill instead; where that is not certain to take as
    long as a decode, nothing is counted.
    """
    if llm.cost.tabled:
        return np.zeros(len(p))
    _, of_prefill, of_decode, of_kv, _ = llm.cost.terms
    again = np.ones(len(p)) if llm.shared is not None else p + 1
    longer = (of_prefill * again >= of_decode + of_kv * p) & (
        (of_prefill >= of_kv) if llm.shared is None else (of_kv == 0)
    )
    more = np.maximum(o - 1, 0.0)
    return np.where(longer, of_decode * more + of_kv * (more * p + more * (more - 1) / 2), 0.0)


def _late(llm: LanguageModel, slo_ms: float) -> int:
    """Requests that are late even if they are alone on a replica, or refused."""
    p, o = _tokens(llm)
    prefill, pairs = _prefill(llm, p)
    first_ms = llm.cost.beside_ms * np.ceil(prefill / llm.token_budget) + _prefill_ms(llm, prefill, pairs)
    more = np.maximum(o - 1, 0.0)
    later_ms = llm.cost.beside_ms * more + _decode_ms(llm, p, o)
    mean_ms, gap_ms = later_ms / np.maximum(llm.output - 1, 1), later_ms / np.maximum(more, 1.0)
    least: dict[str, Floats] = {"ttft": first_ms, "tpot": mean_ms, "itl": gap_ms, "e2e": first_ms + later_ms}
    late = llm.refused | (least["e2e"] > slo_ms * (1 + ROUNDING))
    for kind, limit_ms, _ in llm.limits:
        late |= least[kind] > limit_ms * (1 + ROUNDING)
    return int(np.count_nonzero(late))


def _needed(arrivals_ms: Floats, after_ms: Floats, work: Work, allowed: int) -> tuple[float, int, int]:
    """(replicas, first, last): the window of the trace whose work needs most replicas.

    Parameters
    ----------
    arrivals_ms : float64[queries], ascending.
    after_ms : float64[queries], deadlines after the arrivals.
    work : of each query.
    allowed : how many may be late.
    """
    best = (0.0, 0, 0)
    begin_ms, end_ms = float(arrivals_ms[0]), float(arrivals_ms[-1])
    for cut in range(CUTS):
        edges = np.searchsorted(arrivals_ms, np.linspace(begin_ms, end_ms, 2**cut + 1)[1:-1])
        places = [0, *edges.tolist(), len(arrivals_ms)]
        for first, last in pairwise(places):
            if last - first <= allowed:
                continue
            rows = slice(first, last)
            span_ms = float((arrivals_ms[rows] + after_ms[rows]).max() - arrivals_ms[first])
            iterations = max(_without_most(each[rows], allowed) for each in work.iterations)
            work_ms = _without_most(work.linear_ms[rows], allowed) + work.each_ms * iterations
            if span_ms > 0 and work_ms / span_ms > best[0]:
                best = (work_ms / span_ms, first, last)
    return best


def _without_most(values: Floats, count: int) -> float:
    """The sum without the `count` largest."""
    if count == 0:
        return float(values.sum())
    return float(np.partition(values, len(values) - count)[: len(values) - count].sum())
