"""What a stage that runs a language model can hold, and what one of its iterations costs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from forerun.serving.llm.policy.scheduling import Rules
from forerun.serving.llm.scenario.language_model import (
    FitRecord,
    Limit,
    Routing,
    Row,
    SpeculationSpec,
    Weighted,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Cost:
    """How long an iteration takes, in ms: by coefficients, or by tables.

    With tables both together are taken to cost prefill_ms[P] + decode_ms[D] - decode_ms[1], because the weights are read
    once.

    Parameters
    ----------
    terms : (a, b_p, b_d, b_k, c) of a + b_p max(0, P - h) + b_d D + b_k K + c A with P prefill tokens, D decodes, K cached
        tokens of the decodes and A = sum of g (cached + g / 2) over the prefill chunks g (default: all 0, for tables).
    prefill_ms : float64[tokens + 1], of P prompt tokens alone, indices from 0; of length 1 where the terms count.
    decode_ms : float64[requests + 1], of D decodes alone, indices from 0; of length 1 where the terms count.
    request_ms : of a request outside of iterations, before it joins the queue: network, tokens, client (default 0).
    hidden_prefill : h, prefill tokens of an iteration that take no time of their own, because it takes at least as long to
        read the weights; b_p h is at most a (default 0).
    launch_ms : an iteration with prompts or drafts, and with more than `launch_tokens` (default 0) in all, takes at least as
        long, in which its kernels are launched (default 0); without effect where tables count.
    fit : what is known of its errors, if it was fitted (default None: it was not).
    spread : what a draw adds to the logarithms of the coefficients (see `FitRecord`; default None: it cannot be drawn).
    """

    terms: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)
    prefill_ms: Floats = field(default_factory=lambda: np.zeros(1), repr=False)
    decode_ms: Floats = field(default_factory=lambda: np.zeros(1), repr=False)
    request_ms: float = 0.0
    hidden_prefill: float = 0.0
    launch_ms: float = 0.0
    launch_tokens: float = 0.0
    fit: FitRecord | None = field(default=None, repr=False)
    spread: tuple[Row, ...] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, values: Floats, fit: FitRecord | None = None, spread: tuple[Row, ...] | None = None) -> Cost:
        """By coefficients: those of `terms`, `request_ms` and `hidden_prefill`; where they follow, those of launches."""
        a, prefill, decode, kv, attention, *rest = values.tolist()
        beside = dict(zip(("request_ms", "hidden_prefill", "launch_ms", "launch_tokens"), rest))
        return cls((a, prefill, decode, kv, attention), **beside, fit=fit, spread=spread)

    @property
    def tabled(self) -> bool:
        """Whether the tables count, not the terms."""
        return len(self.decode_ms) > 1

    @property
    def least_ms(self) -> float:
        """A lower bound of every iteration's time."""
        if self.tabled:
            alone_ms = min(self.prefill_ms[1:].min(), self.decode_ms[1:].min())
            together_ms = self.prefill_ms[1:].min() + self.decode_ms[1:].min() - self.decode_ms[1]
            return float(min(alone_ms, together_ms))
        return self.terms[0]

    @property
    def beside_ms(self) -> float:
        """A lower bound of what an iteration takes beside its tokens, if every prefill token counts with b_p."""
        return self.least_ms if self.tabled else max(0.0, self.terms[0] - self.terms[1] * self.hidden_prefill)

    def iteration_ms(self, prefill: float, decodes: float, kv: float, attention: float) -> float:
        """The time of one iteration.

        Parameters
        ----------
        prefill : prompt tokens that it processes, in chunks of any requests.
        decodes : requests that process their latest token.
        kv : tokens that these have in the cache; without effect where tables count.
        attention : sum of g (cached + g / 2) over the prefill chunks g, in token pairs; without effect where tables count.
        """
        if self.tabled:
            taken_ms = float(self.decode_ms[round(decodes)])
            if prefill:
                taken_ms = float(self.prefill_ms[round(prefill)]) + (
                    taken_ms - float(self.decode_ms[1]) if decodes else 0.0
                )
            return taken_ms
        a, of_prefill, of_decode, of_kv, of_attention = self.terms
        shown = max(prefill - self.hidden_prefill, 0.0)
        taken_ms = a + of_prefill * shown + of_decode * decodes + of_kv * kv + of_attention * attention
        launched = prefill > 0 and prefill + decodes > self.launch_tokens
        return max(taken_ms, self.launch_ms) if launched else taken_ms

    def longer(self, factor: float) -> Cost:
        """With iterations that take so many times as long; tables stay."""
        a, prefill, decode, kv, attention = (factor * term for term in self.terms)
        return replace(self, terms=(a, prefill, decode, kv, attention), launch_ms=factor * self.launch_ms)


@dataclass(frozen=True)
class Prefixes:
    """What prompts begin with, in segments that a prefix cache can share. By default there is no such cache.

    Parameters
    ----------
    start : int64[queries + 1], where each prompt's segments begin in `chains`.
    chains : int64[segments of all prompts], numbers from 0; a number stands for a segment with all that precede it.
    segment_blocks : blocks of the cache in a segment (default 1).
    answers : segments go on behind the prompts, over the answers, which later prompts continue (default: no).
    """

    start: Ints = field(repr=False)
    chains: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    segment_blocks: int = 1
    answers: bool = False

    @classmethod
    def none(cls, queries: int) -> Prefixes:
        """No prefix cache."""
        return cls(np.zeros(queries + 1, dtype=np.int64))

    @classmethod
    def of(cls, segments: Sequence[Sequence[int]], segment_blocks: int = 1) -> Prefixes:
        """From equal numbers for equal segments; prompts share them up to the first that differs.

        Parameters
        ----------
        segments : of each prompt, in order.
        segment_blocks : blocks of the cache in a segment (default 1).
        """
        numbers: dict[tuple[int, int], int] = {}
        chains = []
        for own in segments:
            before = -1
            for segment in own:
                before = numbers.setdefault((before, segment), len(numbers))
                chains.append(before)
        start = np.concatenate([[0], np.cumsum([len(own) for own in segments])]).astype(np.int64)
        return cls(start, np.array(chains, dtype=np.int64), segment_blocks)

    def rows(self, chosen: Ints) -> Prefixes:
        """Those of other prompts: of the rows chosen, in that order."""
        lengths = np.diff(self.start)[chosen]
        start = np.concatenate([[0], np.cumsum(lengths)])
        place = np.arange(start[-1]) + np.repeat(self.start[:-1][chosen] - start[:-1], lengths)
        return replace(self, start=start, chains=self.chains[place])

    @property
    def count(self) -> int:
        """How many different segments there are."""
        return int(self.chains.max(initial=-1)) + 1


@dataclass(frozen=True)
class HostMemory:
    """Where a replica moves the blocks of preempted requests.

    Parameters
    ----------
    blocks : that it stores.
    move_ms : to move a block there or back; the iteration in which that happens takes so much longer.
    """

    blocks: int
    move_ms: float


def hashed(key: int, place: int) -> int:
    """A hash of 32 bits of a request's key and a place in its answer, -1 for its replica."""
    word = 2**32
    mixed = (key + place * 0x3C6EF372) % word
    for _ in range(3):
        mixed = (mixed ^ mixed // 2**16) * 0x45D9F3B % word
    return mixed ^ mixed // 2**16


@dataclass(frozen=True)
class DecodePool:
    """The replicas that decode where others prefill, and the way there.

    Parameters
    ----------
    replicas : how many there are.
    llm : their limits, costs and scheduling, with the same requests.
    send_ms_per_token : time that a transfer occupies the link of the replica that sends, for each token of the prompt.
    latency_ms : from then on until the request is there.
    """

    replicas: int
    llm: LanguageModel
    send_ms_per_token: float
    latency_ms: float

    @property
    def longest_ms(self) -> float:
        """What transfers take if all go over one link, one after another."""
        return self.latency_ms + self.send_ms_per_token * int(self.llm.prompt.sum())


@dataclass(frozen=True)
class LanguageModel:
    """What one replica can hold, how requests choose one and are scheduled, and the requests themselves.

    Parameters
    ----------
    max_seqs : requests that run at once.
    token_budget : tokens processed in one iteration.
    kv_blocks : blocks in the cache.
    block_tokens : tokens in a block.
    cost : how long an iteration takes.
    prompt, output : int64[queries], tokens by query.
    routing : how a request chooses a replica: in turn; the one with the fewest waiting or running (the lowest number of
        several); the one whose cache has most of its prompt, among those with a free seat, of several the one with the
        fewest; by the first segment of its prompt, in turn where there is none; by lot; or by scores (default: in turn).
    limits : the objectives that are stated (default: none).
    keeps_iterations : a table of every iteration is made.
    shared : what the prompts begin with, for the prefix cache (default None: there is no such cache).
    rules : what the scheduler does (default: as chunked-prefill).
    ranks : int64[queries], the class of each request, from 0, lower ones first (default None: there is one class).
    host : where preempted requests are swapped to (default None: they are processed anew).
    decode : the replicas that decode what these prefill (default None: these do both).
    speculation : how decodes are drafted (default None: they are not).
    keys : int64[queries], below 2^32, what it is drawn from by request whether drafts guess its tokens, and which replica it
        goes to (default: none, where neither is drawn).
    passed_ms : float64[queries], when a gateway has let each pass, NaN where it has not (default: none, where there is no
        gateway).
    warm_up : the first queries, whose times between tokens and drafts are not counted (default: none).
    """

    max_seqs: int
    token_budget: int
    kv_blocks: int
    block_tokens: int
    cost: Cost
    prompt: Ints = field(repr=False)
    output: Ints = field(repr=False)
    routing: Routing = "round-robin"
    limits: tuple[Limit, ...] = ()
    keeps_iterations: bool = False
    shared: Prefixes | None = field(default=None, repr=False)
    rules: Rules = field(default_factory=Rules)
    ranks: Ints | None = field(default=None, repr=False)
    host: HostMemory | None = None
    decode: DecodePool | None = None
    speculation: SpeculationSpec | None = None
    keys: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    passed_ms: Floats = field(default_factory=lambda: np.empty(0), repr=False)
    warm_up: int = 0

    def rows(self, chosen: Ints) -> LanguageModel:
        """The model with other requests: of the rows chosen, in that order. Drafts guess one that is chosen again anew."""
        keys = self.keys
        if len(keys):
            order = np.argsort(chosen, kind="stable")
            again = np.empty(len(chosen), dtype=np.int64)
            again[order] = np.arange(len(chosen)) - np.searchsorted(chosen[order], chosen[order])
            keys = (keys[chosen] + again * 0x61C88647) % 2**32
        return replace(
            self,
            prompt=self.prompt[chosen],
            output=self.output[chosen],
            shared=None if self.shared is None else self.shared.rows(chosen),
            ranks=None if self.ranks is None else self.ranks[chosen],
            keys=keys,
            passed_ms=self.passed_ms[chosen] if len(self.passed_ms) else self.passed_ms,
            decode=None if self.decode is None else replace(self.decode, llm=self.decode.llm.rows(chosen)),
        )

    def shares(self, replicas: int) -> Floats:
        """float64[replicas]: of the lots, how many fall on a replica and those before it, in weights."""
        weights = self.routing.weights if isinstance(self.routing, Weighted) else (1.0,)
        return np.cumsum(np.resize(np.array(weights), replicas))

    @property
    def least_steps(self) -> Ints:
        """int64[queries]: iterations that each needs for its answer behind the first token, at the least."""
        most = 1 if self.speculation is None else 1 + self.speculation.draft_tokens
        return np.asarray(-(-(self.output - 1) // most))

    @property
    def classes(self) -> int:
        """How many classes of requests there are."""
        return 1 if self.ranks is None else int(self.ranks.max(initial=0)) + 1

    @property
    def reserved_tokens(self) -> int:
        """A request has blocks for at least this long an answer from its admission on. 0: they are added one by one, or
        others decode."""
        if self.decode is not None:
            return 0
        match self.rules.reserved:
            case "nothing":
                return 0
            case "own answer":
                return 1
            case "longest answer":
                return int(self.output.max(initial=1))

    @property
    def prefixes(self) -> Prefixes:
        """What the prompts begin with; nothing without a prefix cache."""
        return Prefixes.none(len(self.prompt)) if self.shared is None else self.shared

    @property
    def whole_segments(self) -> Ints:
        """int64[queries]: segments at the beginning of each prompt that are whole, so that they can be shared; with those of
        answers that prompts continue."""
        prefixes = self.prefixes
        tokens = self.prompt + self.output if prefixes.answers else self.prompt
        return np.minimum(np.diff(prefixes.start), tokens // (prefixes.segment_blocks * self.block_tokens))

    @property
    def most_tokens(self) -> Ints:
        """int64[queries]: tokens that the cache must be able to store for each request."""
        if self.decode is not None:
            return np.asarray(self.prompt + 1)
        drafted = 0
        if self.speculation is not None and self.rules.drafts == "all":
            # The last iterations of an answer may store more than it takes.
            drafted = self.speculation.draft_tokens * (1 + self.rules.ahead) + self.rules.ahead
        return np.asarray(self.prompt + np.maximum(self.output, self.reserved_tokens) + drafted)

    @property
    def most_blocks(self) -> Ints:
        """int64[queries]: blocks that the cache must be able to store for each request."""
        return np.asarray(-(-self.most_tokens // self.block_tokens))

    @property
    def beyond_budget(self) -> Bools:
        """bool[queries]: the request can never fit into an iteration, where prompts are not cut."""
        whole = self.rules.prompts == "whole beside decodes"
        own = (self.prompt + self.output > self.token_budget) & whole
        return own if self.decode is None else own | self.decode.llm.beyond_budget

    @property
    def beyond_cache(self) -> Bools:
        """bool[queries]: the request can never fit into the cache."""
        own = self.most_blocks > self.kv_blocks
        return own if self.decode is None else own | self.decode.llm.beyond_cache

    @property
    def too_long(self) -> Bools:
        """bool[queries]: the request can never fit into the cache, or into an iteration."""
        return self.beyond_cache | self.beyond_budget

    @functools.cached_property
    def refused(self) -> Bools:
        """bool[queries]: the request can never fit, or comes to a full gateway, and is refused on arrival."""
        return self.too_long | np.isnan(self.passed_ms) if len(self.passed_ms) else self.too_long
