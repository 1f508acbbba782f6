"""What a stage that runs a language model can hold, and what one of its iterations costs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from forerun.domains.serving.inputs.pipeline import Bools, Floats, Ints


@dataclass(frozen=True)
class Cost:
    """How long an iteration takes, in ms: by coefficients, or by tables.

    With tables both together are taken to cost prefill_ms[P] + decode_ms[D] - decode_ms[1], because the weights are read
    once.

    Parameters
    ----------
    terms : (a, b_p, b_d, b_k, c) of a + b_p P + b_d D + b_k K + c A with P prefill tokens, D decodes, K cached tokens
        of the decodes and A = sum of g (cached + g / 2) over the prefill chunks g.
    prefill_ms : float64[tokens + 1], of P prompt tokens alone, indices from 0; of length 1 where the terms count.
    decode_ms : float64[requests + 1], of D decodes alone, indices from 0; of length 1 where the terms count.
    """

    terms: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)
    prefill_ms: Floats = field(default_factory=lambda: np.zeros(1), repr=False)
    decode_ms: Floats = field(default_factory=lambda: np.zeros(1), repr=False)

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

    def iteration_ms(self, prefill: int, decodes: int, kv: int, attention: float) -> float:
        """The time of one iteration.

        Parameters
        ----------
        prefill : prompt tokens that it processes, in chunks of any requests.
        decodes : requests that process their latest token.
        kv : tokens that these have in the cache; without effect where tables count.
        attention : sum of g (cached + g / 2) over the prefill chunks g, in token pairs; without effect where tables count.
        """
        if self.tabled:
            taken_ms = float(self.decode_ms[decodes])
            if prefill:
                taken_ms = float(self.prefill_ms[prefill]) + (
                    taken_ms - float(self.decode_ms[1]) if decodes else 0.0
                )
            return taken_ms
        a, of_prefill, of_decode, of_kv, of_attention = self.terms
        return a + of_prefill * prefill + of_decode * decodes + of_kv * kv + of_attention * attention


@dataclass(frozen=True)
class LanguageModel:
    """What one replica can hold, how requests choose a replica, and the requests themselves.

    Parameters
    ----------
    max_seqs : requests that run at once.
    token_budget : tokens processed in one iteration.
    kv_blocks : blocks in the cache.
    block_tokens : tokens in a block.
    cost : how long an iteration takes.
    prompt, output : int64[queries], tokens by query.
    least_requests : a request goes to the replica with the fewest waiting or running (the lowest number of several);
        else in turn.
    ttft_slo_ms : objective for the time to first token (0: none).
    tpot_slo_ms : objective for the mean time between the tokens after it (0: none).
    keeps_iterations : a table of every iteration is made.
    """

    max_seqs: int
    token_budget: int
    kv_blocks: int
    block_tokens: int
    cost: Cost
    prompt: Ints = field(repr=False)
    output: Ints = field(repr=False)
    least_requests: bool = False
    ttft_slo_ms: float = 0.0
    tpot_slo_ms: float = 0.0
    keeps_iterations: bool = False

    @property
    def refused(self) -> Bools:
        """bool[queries]: the request can never fit into the cache, and is refused on arrival."""
        blocks = -(-(self.prompt + self.output) // self.block_tokens)
        return np.asarray(blocks > self.kv_blocks)
