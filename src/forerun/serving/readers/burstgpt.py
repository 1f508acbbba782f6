"""The BurstGPT trace of requests to ChatGPT and GPT-4."""

from __future__ import annotations

from typing import Literal

from forerun.core.trace.requests import arrival, output_tokens, prompt_tokens
from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import Rows, TableReader

ARRIVAL = arrival("s", "Timestamp", meaning="instant of arrival, whole seconds")
SESSION = (
    Field(name="conversation_id", column="Session ID", kind="text", required=False, missing=("",),
          meaning="conversation the request belongs to, if any"),
    Field(name="elapsed_s", column="Elapsed time", unit="s", minimum=0, required=False, missing=("",),
          meaning="time to the full answer"),
)  # fmt: skip
MODEL = Field(name="model", column="Model", kind="text", meaning="model asked")
TOKENS = (prompt_tokens("Request tokens"), output_tokens("Response tokens"))
TOTAL = Field(name="total_tokens", column="Total tokens", kind="int", unit="tokens", minimum=0)
LOG_TYPE = Field(name="log_type", column="Log Type", kind="text", meaning="conversation or API")
FAILED = Field(name="failed", meaning="no answer came: zero response tokens")


class BurstGpt(TableReader, tag="burstgpt", frozen=True, kw_only=True):
    """CSV, with or without the session columns; a request without response tokens failed.

    failed: `keep` those requests, marked, or `drop` them. Totals that are not the sum of the two counts are
    ignored and counted. CC-BY 4.0 [Wang et al., BurstGPT, KDD'25].
    """

    failed: Literal["keep", "drop"] = "keep"

    about = "BurstGPT requests (CSV, whole seconds)"
    makes = "requests"
    signature = ("Timestamp", "Request tokens", "Response tokens", "Log Type")
    columns = (ARRIVAL, *SESSION, MODEL, *TOKENS, TOTAL, LOG_TYPE)
    schema = (ARRIVAL, *SESSION, MODEL, *TOKENS, LOG_TYPE, FAILED)
    time = "arrival_s"

    def settle(self, rows: Rows) -> None:
        odd = rows["prompt_tokens"] + rows["output_tokens"] != rows["total_tokens"]
        rows.note(odd, "total is not the sum of request and response tokens, ignored", "Total tokens")
        rows["failed"] = rows["output_tokens"] == 0
        if self.failed == "drop":
            rows.keep(~rows["failed"])
