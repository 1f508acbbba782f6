"""What no cell of a variant can do: requests that are late even alone, and the replicas that the work needs at the least.

A request that meets its limits is processed between its arrival and its deadline. So replicas that meet them work, between
the first arrival of some requests and the last of their deadlines, at least as long as these requests need together. What
they need does not depend on how prompts are cut into chunks: the pairs of tokens that attend to each other sum to p^2 / 2,
and iterations are at least as many as the tokens over the budget, the turns of requests over the seats, and the blocks that
they hold in each turn over the blocks there are. Where a draft proposes tokens, all are taken to be right, and what drafting
costs is left out. As many requests as may be late are left out, each time those that need
most.

Where clients wait for answers it is not known before what arrives when: then no work has a deadline, and requests are late
only where each that may begin a session is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from forerun.serving.inputs.inputs import Inputs
from forerun.serving.inputs.pipeline import SOURCE, Bools, Floats
from forerun.serving.llm.inputs.model import LanguageModel
from forerun.serving.llm.plan.space import Cell, Space, StageSpace, Variant, on_traffic
from forerun.serving.scenario.limits import may_miss
from forerun.serving.summary.clients import counted_inputs

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


class Bounds:
    """The bounds of all variants in one world; computed when they are first asked for.

    Sums over requests are shared by the variants for which they are the same.
    """

    def __init__(self, space: Space, inputs: Inputs) -> None:
        """Begin with none computed.

        Parameters
        ----------
        space : what may be chosen, with the costs of the world.
        inputs : the scenario's, on its traffic.
        """
        self.space, self.inputs = space, counted_inputs(inputs) if inputs.clients is None else inputs
        self._shared: dict[Hashable, Any] = {}
        self.allowed = allowed_late(space, self.inputs)
        self._windows = [] if inputs.clients else _windows(self.inputs.arrivals_ms, self.allowed)

    def excludes(self, cell: Cell) -> tuple[int, Bound] | None:
        """The number of a stage whose bound excludes a cell among those of the space, and the bound; None: nothing does."""
        for place, (stage, choice) in enumerate(zip(self.space.stages, cell)):
            bound = self.bound(stage, choice.variant)
            if bound is not None and bound.excludes(choice.replicas, self.allowed):
                return place, bound
        return None

    def load(self, cell: Cell) -> float:
        """The most that a stage of the cell has to do, over what its replicas can do in time."""
        bounds = (
            (self.bound(stage, choice.variant), choice) for stage, choice in zip(self.space.stages, cell)
        )
        return max((bound.needed / choice.replicas for bound, choice in bounds if bound), default=0.0)

    def bound(self, stage: StageSpace, variant: Variant) -> Bound | None:
        """The bound of a variant; None where requests do not come to the stage as they arrive, where others decode, or
        where none has a deadline."""
        found: Bound | None = self._once((stage.number, variant), lambda: self._computed(stage, variant))
        return found

    def _computed(self, stage: StageSpace, variant: Variant) -> Bound | None:
        own, limits = self.inputs.pipeline.stages[stage.number], stage.models[variant]
        assert own.llm is not None
        if limits.decode is not None:
            return None
        if [edge.parent for edge in own.edges] != [SOURCE] or not own.edges[0].always:
            return None
        llm = on_traffic(limits, own.llm)
        bounds = (self._of(stage.number, llm, whole) for whole in (True, False))
        return max((one for one in bounds if one is not None), key=lambda one: one.needed, default=None)

    def _of(self, number: int, llm: LanguageModel, whole: bool) -> Bound | None:
        """The bound from the deadlines of all tokens, or of the first; None where requests have none."""
        slo_ms = self.space.scenario.latency_limit_ms
        spans_ms = self._once(("span", number, whole, llm.limits), lambda: self._spans(llm, slo_ms, whole))
        if spans_ms is None:
            return None
        rules, whole_prompts = llm.rules, llm.shared is None
        by = (number, llm.kv_blocks, llm.block_tokens, rules.reserved, llm.speculation, whole_prompts)
        p, o, who = self._once(by, lambda: _tokens(llm))
        each_ms, costs = llm.cost.beside_ms, llm.cost.terms
        late = self._once(
            ("late", number, *who, each_ms, costs, llm.token_budget, llm.limits),
            lambda: self._late(llm, p, o, slo_ms),
        )
        of = (number, whole, *who)
        work_ms = self._sums(("work", *of, costs), lambda: _work_ms(llm, p, o, whole))
        turns = self._sums(("turns", *of, llm.token_budget), lambda: _turns(llm, p, o, whole))
        tokens = self._sums(("tokens", *of, llm.rules.counts_decodes), lambda: _processed(llm, p, o, whole))
        iterations = np.maximum(tokens / llm.token_budget, turns / llm.max_seqs)
        if llm.shared is None:
            blocks = self._sums(("held", *of), lambda: o * p + o * (o - 1) / 2 if whole else p)
            iterations = np.maximum(iterations, blocks / llm.block_tokens / llm.kv_blocks)
        needed = (work_ms + each_ms * iterations) / spans_ms
        if not needed.max(initial=0.0) > 0:
            return Bound(late, 0.0, 0, 0, whole)
        most = int(np.argmax(needed))
        return Bound(late, float(needed[most]), *self._windows[most], whole)

    def _late(self, llm: LanguageModel, p: Floats, o: Floats, slo_ms: float) -> int:
        """Requests that are late even alone, as many as are certainly sent."""
        late, clients = _late(llm, p, o, slo_ms), self.inputs.clients
        if clients is None:
            return int(np.count_nonzero(late))
        # Some request that follows none is sent in each session; which of all warm the system up is not known before.
        first = clients.waits == 0
        in_time = np.unique(clients.session[first & ~late])
        return clients.sessions - len(in_time) - (self.inputs.scenario.warm_up or 0)

    def _once(self, key: Hashable, made: Callable[[], Any]) -> Any:
        if key not in self._shared:
            self._shared[key] = made()
        return self._shared[key]

    def _sums(self, key: Hashable, made: Callable[[], Floats]) -> Floats:
        """float64[windows]: sums over the queries of each, without as many of the largest as may be late."""

        def sums() -> Floats:
            values = made()
            return np.array(
                [_without_most(values[first:last], self.allowed) for first, last in self._windows]
            )

        found: Floats = self._once(key, sums)
        return found

    def _spans(self, llm: LanguageModel, slo_ms: float, whole: bool) -> Floats | None:
        """float64[windows]: from the first arrival of each to the last deadline; None where a query has none."""
        arrivals_ms, after_ms = self.inputs.arrivals_ms, _deadlines(llm, slo_ms, whole)
        if not np.isfinite(after_ms).all():
            return None
        last_ms = arrivals_ms + after_ms
        spans = [last_ms[first:last].max() - arrivals_ms[first] for first, last in self._windows]
        return np.where(np.array(spans) > 0, spans, np.inf)


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


def _windows(arrivals_ms: Floats, allowed: int) -> list[tuple[int, int]]:
    """The first query and that behind the last of each window with more queries than may be late.

    Parameters
    ----------
    arrivals_ms : float64[queries], ascending.
    allowed : how many may be late.
    """
    begin_ms, end_ms = float(arrivals_ms[0]), float(arrivals_ms[-1])
    found: list[tuple[int, int]] = []
    for cut in range(CUTS):
        edges = np.searchsorted(arrivals_ms, np.linspace(begin_ms, end_ms, 2**cut + 1)[1:-1])
        found += pairwise([0, *edges.tolist(), len(arrivals_ms)])
    return [(first, last) for first, last in found if last - first > allowed]


def _deadlines(llm: LanguageModel, slo_ms: float, whole: bool) -> Floats:
    """float64[queries]: after the arrival, of the last token or of the first; infinite: there is none."""
    limit = {kind: limit_ms for kind, limit_ms, _ in llm.limits}
    ends_ms = min(slo_ms, limit.get("e2e", np.inf))
    first_ms, later_ms = limit.get("ttft", np.inf), min(limit.get("tpot", np.inf), limit.get("itl", np.inf))
    more = (llm.output - 1).astype(np.float64)
    if not whole:
        return np.full(len(more), min(first_ms, ends_ms))
    return np.minimum(ends_ms, first_ms + np.where(more > 0, later_ms, 0.0) * more)


def _tokens(llm: LanguageModel) -> tuple[Floats, Floats, tuple[Hashable, ...]]:
    """Tokens of prompts, and steps in which the answers come at the least; none of refused requests. With what both follow
    from, the requests given."""
    served = ~llm.refused
    steps = 1 + llm.least_steps
    prompt, output = (np.where(served, tokens, 0).astype(np.float64) for tokens in (llm.prompt, steps))
    return prompt, output, (served.tobytes(), llm.speculation, llm.shared is None)


def _work_ms(llm: LanguageModel, p: Floats, o: Floats, whole: bool) -> Floats:
    """float64[queries]: what each brings beside its iterations, of all tokens or of the first."""
    work_ms = _prefill_ms(llm, *_prefill(llm, p))
    return work_ms + _decode_ms(llm, p, o) if whole else work_ms


def _turns(llm: LanguageModel, p: Floats, o: Floats, whole: bool) -> Floats:
    """float64[queries]: iterations that each is in."""
    turns = np.ceil(_prefill(llm, p)[0] / llm.token_budget)
    return (turns + o - 1) * (o > 0) if whole else turns


def _processed(llm: LanguageModel, p: Floats, o: Floats, whole: bool) -> Floats:
    """float64[queries]: tokens that count in the budget, which may limit prompts alone."""
    prefill, _ = _prefill(llm, p)
    return (prefill + o - 1) * (o > 0) if whole and llm.rules.counts_decodes else prefill


def _prefill(llm: LanguageModel, p: Floats) -> tuple[Floats, Floats]:
    """Tokens of prompts that are processed, and pairs that attend to each other; a prefix cache may spare all but one."""
    return (p, p**2 / 2) if llm.shared is None else (np.minimum(p, 1.0), np.zeros(len(p)))


def _prefill_ms(llm: LanguageModel, prefill: Floats, pairs: Floats) -> Floats:
    _, of_prefill, _, _, of_attention = llm.cost.terms
    return of_prefill * prefill + of_attention * pairs


def _decode_ms(llm: LanguageModel, p: Floats, o: Floats) -> Floats:
    """What the decodes of each request take beyond their iterations.

    A request that is preempted emits its next token behind a second prefill instead; where that is not certain to take as
    long as a decode, nothing is counted.
    """
    _, of_prefill, of_decode, of_kv, _ = llm.cost.terms
    again = np.ones(len(p)) if llm.shared is not None else p + 1
    longer = (of_prefill * again >= of_decode + of_kv * p) & (
        (of_prefill >= of_kv) if llm.shared is None else (of_kv == 0)
    )
    more = np.maximum(o - 1, 0.0)
    return np.where(longer, of_decode * more + of_kv * (more * p + more * (more - 1) / 2), 0.0)


def _late(llm: LanguageModel, p: Floats, o: Floats, slo_ms: float) -> Bools:
    """bool[queries]: late even if it is alone on a replica, or refused."""
    prefill, pairs = _prefill(llm, p)
    first_ms = llm.cost.beside_ms * np.ceil(prefill / llm.token_budget) + _prefill_ms(llm, prefill, pairs)
    more = np.maximum(o - 1, 0.0)
    later_ms = llm.cost.beside_ms * more + _decode_ms(llm, p, o)
    mean_ms, gap_ms = later_ms / np.maximum(llm.output - 1, 1), later_ms / np.maximum(more, 1.0)
    least: dict[str, Floats] = {"ttft": first_ms, "tpot": mean_ms, "itl": gap_ms, "e2e": first_ms + later_ms}
    late = llm.refused | (least["e2e"] > slo_ms * (1 + ROUNDING))
    for kind, limit_ms, _ in llm.limits:
        late |= least[kind] > limit_ms * (1 + ROUNDING)
    return late


def _without_most(values: Floats, count: int) -> float:
    """The sum without the `count` largest."""
    if count == 0:
        return float(values.sum())
    return float(np.partition(values, len(values) - count)[: len(values) - count].sum())
