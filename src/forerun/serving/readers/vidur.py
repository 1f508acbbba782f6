"""Requests as the Vidur simulator writes them."""

from __future__ import annotations

from forerun.core.trace.requests import arrival, output_tokens, prompt_tokens
from forerun.core.trace.tabular import TableReader


class Vidur(TableReader, tag="vidur", frozen=True, kw_only=True):
    """CSV `arrived_at,num_prefill_tokens,num_decode_tokens`, seconds [Agrawal et al., Vidur, MLSys'24]."""

    about = "LLM requests of the Vidur simulator (CSV, seconds)"
    makes = "requests"
    signature = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
    columns = (
        arrival("s", "arrived_at"),
        prompt_tokens("num_prefill_tokens"),
        output_tokens("num_decode_tokens"),
    )
    time = "arrival_s"
