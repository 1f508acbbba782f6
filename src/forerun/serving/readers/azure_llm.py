"""The Azure LLM inference traces of 2023 and 2024."""

from __future__ import annotations

import numpy as np

from forerun.core.trace.requests import output_tokens, prompt_tokens
from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import Rows, TableReader

PROMPT = prompt_tokens("ContextTokens")
OUTPUT = output_tokens("GeneratedTokens")


class AzureLlm(TableReader, tag="azure_llm", frozen=True, kw_only=True):
    """CSV `TIMESTAMP,ContextTokens,GeneratedTokens`; lines end in CRLF and the last one may lack its end.

    Stamps have up to nine decimals (100 ns steps in the published files) and are taken as whole
    nanoseconds; arrivals are seconds since the first. CC-BY 4.0, Microsoft [Patel et al., Splitwise,
    ISCA'24; Stojkovic et al., DynamoLLM, HPCA'25].
    """

    about = "Azure LLM inference traces 2023/2024 (CSV, UTC stamps)"
    makes = "requests"
    signature = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    columns = (Field(name="stamp_ns", column="TIMESTAMP", kind="datetime", unit="ns"), PROMPT, OUTPUT)
    schema = (
        Field(name="arrival_s", unit="s", meaning="instant of arrival, from the first request on"),
        PROMPT,
        OUTPUT,
    )
    time = "arrival_s"
    crlf_usual = True

    def settle(self, rows: Rows) -> None:
        first_ns = int(rows["stamp_ns"].min())
        rows["arrival_s"] = (rows["stamp_ns"] - first_ns) / 1e9
        rows.facts["first_arrival"] = str(np.datetime64(first_ns, "ns"))
