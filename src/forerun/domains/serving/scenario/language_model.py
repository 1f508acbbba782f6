"""How a scenario describes a stage that runs a language model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from forerun.domains.serving.policies.chunked_prefill import ChunkedPrefill
from forerun.domains.serving.policy.scheduling import Scheduler, scheduler_policies
from forerun.scenario.numbers import Count, NotNegative, Positive
from forerun.scenario.spec import Input, Spec, chosen_from
from forerun.trace.reader import format_problems

Seats = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Blocks = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
BlockTokens = Annotated[int, msgspec.Meta(ge=1, le=65_536)]

#: how a request chooses a replica
Routing = Literal["round-robin", "least-requests", "longest-prefix", "prefix-affinity"]


class Coefficients(Spec, frozen=True, kw_only=True):
    """The time of an iteration, as a sum.

    a_ms: of every iteration.
    prefill_ms_per_token: per prefill token.
    decode_ms_per_seq: per decode.
    kv_ms_per_token: per cached token of the decodes.
    attn_ms_per_token2: per pair of tokens that attend to each other in prefills.
    """

    a_ms: Positive
    prefill_ms_per_token: NotNegative = 0.0
    decode_ms_per_seq: NotNegative = 0.0
    kv_ms_per_token: NotNegative = 0.0
    attn_ms_per_token2: NotNegative = 0.0


class Measured(Spec, frozen=True, kw_only=True):
    """Times of iterations from a file of measured medians.

    medians: the file (see `inputs.llm.medians`).
    model, hardware: as the file calls them.
    tensor_parallel: accelerators that the model is split over (default 1).
    """

    medians: Input
    model: str
    hardware: str
    tensor_parallel: Count = 1


class FixedTokens(Spec, frozen=True, kw_only=True):
    """Every request has the same number of tokens.

    prompt: tokens of the prompt.
    output: tokens of the answer.
    """

    prompt: Tokens
    output: Tokens


class DrawnTokens(Spec, frozen=True, kw_only=True):
    """Each request takes the tokens of a row, drawn with replacement, of a recorded trace of requests.

    drawn_from: the file.
    format: of the file (default: recognised).
    options: of the format's reader.
    """

    drawn_from: Input
    format: str = ""
    options: dict[str, Any] = {}

    def problems(self) -> list[tuple[str, str]]:
        """A format that exists."""
        return format_problems(self.format)


class ListedTokens(Spec, frozen=True, kw_only=True):
    """(prompt, output) tokens of each request, in order of arrival."""

    pairs: tuple[tuple[Tokens, Tokens], ...]


class RecordedPrefixes(Spec, frozen=True, kw_only=True):
    """Prompts begin alike as far as the trace's column `hash_ids` has equal numbers [Qin et al., FAST'25].

    id_tokens: tokens that a number stands for, 512 in the published traces.
    """

    id_tokens: Tokens


class DrawnPrefixes(Spec, frozen=True, kw_only=True):
    """Every prompt begins with one of several system prompts, drawn for each request.

    system_prompts: how many there are.
    system_tokens: tokens of each.
    skew: the k-th is drawn with a probability proportional to 1 / k^skew (default 0: all with the same).
    """

    system_prompts: Seats
    system_tokens: Tokens
    skew: NotNegative = 0.0


class Swap(Spec, frozen=True, kw_only=True):
    """Host memory that the blocks of preempted requests are moved to, instead of processing their tokens anew.

    Where it is full, a preempted request is processed anew. The iteration that moves blocks takes so much longer.

    host_blocks: blocks that the host memory of a replica stores.
    bandwidth_bytes_per_s: between the two memories.
    """

    host_blocks: Blocks
    bandwidth_bytes_per_s: Positive


class LanguageModelSpec(Spec, frozen=True, kw_only=True):
    """Memory and cost of one replica of a language model.

    max_seqs: requests that run at once.
    token_budget: tokens processed in one iteration.
    kv_blocks: blocks in the cache.
    block_tokens: tokens in a block (default 16).
    cost: time of an iteration.
    balance: how requests choose a replica: in turn (default); the one with the fewest; the one whose cache has most of the
        prompt, among those with a free seat, else that with the fewest; or the same for all that begin with one segment.
    tokens: where the requests' tokens come from; left out: the trace's columns.
    ttft_slo_ms: objective for the time to first token, besides the latency (0: none).
    tpot_slo_ms: objective for the mean time between the tokens after it (0: none).
    iterations: make a table of every iteration (default no).
    scheduler: which requests an iteration works on (default chunked-prefill).
    kv_token_bytes: keys and values of a token, which moving blocks is timed by (default 0: nothing is moved).
    swap: where the blocks of preempted requests go (left out: nowhere, their tokens are processed anew).
    prefix_cache: what prompts begin with, which the cache keeps for later requests (left out: nothing is kept).
    """

    max_seqs: Seats
    token_budget: Tokens
    kv_blocks: Blocks
    block_tokens: BlockTokens = 16
    cost: Coefficients | Measured
    balance: Routing = "round-robin"
    tokens: FixedTokens | DrawnTokens | ListedTokens | None = None
    ttft_slo_ms: NotNegative = 0.0
    tpot_slo_ms: NotNegative = 0.0
    iterations: bool = False
    prefix_cache: RecordedPrefixes | DrawnPrefixes | None = None
    scheduler: Annotated[Scheduler, chosen_from(scheduler_policies)] = msgspec.field(
        default_factory=ChunkedPrefill
    )
    kv_token_bytes: NotNegative = 0.0
    swap: Swap | None = None

    def problems(self) -> list[tuple[str, str]]:
        """Blocks that are moved have a size; prefixes are as the cache and the routing need them."""
        if self.swap is not None and not self.kv_token_bytes:
            what = "is needed to time what swap moves: 2 x layers x KV heads x head size x bytes of a value"
            return [("kv_token_bytes", what), *self._prefix_problems()]
        return self._prefix_problems()

    def _prefix_problems(self) -> list[tuple[str, str]]:
        """Routing by prefixes has prefixes; numbers of a trace stand for whole blocks of its own prompts."""
        if self.prefix_cache is None and self.balance in ("longest-prefix", "prefix-affinity"):
            return [("balance", f"{self.balance} needs a prefix cache: say prefix_cache")]
        if not isinstance(self.prefix_cache, RecordedPrefixes):
            return []
        where, tokens = "prefix_cache.id_tokens", self.prefix_cache.id_tokens
        found = []
        if tokens % self.block_tokens:
            found.append(
                (where, f"{tokens} tokens are no whole number of blocks of {self.block_tokens} tokens")
            )
        if self.tokens is not None:
            what = "the prompts do not come from the trace, so its prefixes do not apply; leave out tokens"
            found.append(("prefix_cache", what))
        return found
