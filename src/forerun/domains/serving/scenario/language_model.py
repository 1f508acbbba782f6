"""How a scenario describes a stage that runs a language model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from forerun.scenario.numbers import Count, NotNegative, Positive
from forerun.scenario.spec import Input, Spec
from forerun.trace.reader import format_problems

Seats = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Blocks = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
BlockTokens = Annotated[int, msgspec.Meta(ge=1, le=65_536)]


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


class LanguageModelSpec(Spec, frozen=True, kw_only=True):
    """Memory and cost of one replica of a language model.

    max_seqs: requests that run at once.
    token_budget: tokens processed in one iteration.
    kv_blocks: blocks in the cache.
    block_tokens: tokens in a block (default 16).
    cost: time of an iteration.
    balance: how requests choose a replica: in turn (default), or the one with the fewest.
    tokens: where the requests' tokens come from; left out: the trace's columns.
    ttft_slo_ms: objective for the time to first token, besides the latency (0: none).
    tpot_slo_ms: objective for the mean time between the tokens after it (0: none).
    iterations: make a table of every iteration (default no).
    """

    max_seqs: Seats
    token_budget: Tokens
    kv_blocks: Blocks
    block_tokens: BlockTokens = 16
    cost: Coefficients | Measured
    balance: Literal["round-robin", "least-requests"] = "round-robin"
    tokens: FixedTokens | DrawnTokens | ListedTokens | None = None
    ttft_slo_ms: NotNegative = 0.0
    tpot_slo_ms: NotNegative = 0.0
    iterations: bool = False
