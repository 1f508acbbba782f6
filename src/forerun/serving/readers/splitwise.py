"""Requests as the Splitwise simulator writes them."""

from __future__ import annotations

from forerun.core.trace.requests import arrival, output_tokens, prompt_tokens
from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import Rows, TableReader


class Splitwise(TableReader, tag="splitwise", frozen=True, kw_only=True):
    """CSV with one request a line, in seconds; its number occurs once [Patel et al., Splitwise, ISCA'24]."""

    about = "LLM requests of the Splitwise simulator (CSV, seconds)"
    makes = "requests"
    signature = ("request_id", "arrival_timestamp", "prompt_size", "token_size")
    columns = (
        Field(name="request_id", kind="int", minimum=0, meaning="number of the request in its file"),
        Field(name="request_type", kind="int", meaning="kind of request, as the file numbers them"),
        Field(name="application_id", kind="int", meaning="application, as the file numbers them"),
        arrival("s", "arrival_timestamp"),
        Field(name="batch_size", kind="int", minimum=1, meaning="prompts in the request"),
        prompt_tokens("prompt_size"),
        output_tokens("token_size"),
    )
    time = "arrival_s"

    def settle(self, rows: Rows) -> None:
        rows.refuse_duplicates("request_id", rows["request_id"].tolist())
