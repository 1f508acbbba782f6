"""The Azure LLM inference traces of 2023 and 2024."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import RepairLog
from forerun.trace.requests import output_tokens, prompt_tokens
from forerun.trace.rows import Chunk, Field, gathered, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

STAMP = Field(name="stamp_ns", column="TIMESTAMP", kind="datetime", unit="ns")
ARRIVAL = Field(name="arrival_s", unit="s", meaning="instant of arrival, from the first request on")
PROMPT = prompt_tokens("ContextTokens")
OUTPUT = output_tokens("GeneratedTokens")


class AzureLlm(TraceReader, tag="azure_llm", frozen=True, kw_only=True):
    """CSV `TIMESTAMP,ContextTokens,GeneratedTokens`; lines end in CRLF and the last one may lack its end.

    Stamps have up to nine decimals (100 ns steps in the published files) and are taken as whole
    nanoseconds; arrivals are seconds since the first. CC-BY 4.0, Microsoft [Patel et al., Splitwise,
    ISCA'24; Stojkovic et al., DynamoLLM, HPCA'25].
    """

    about: ClassVar[str] = "Azure LLM inference traces 2023/2024 (CSV, UTC stamps)"
    makes: ClassVar[str] = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("TIMESTAMP", "ContextTokens", "GeneratedTokens")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs, crlf_usual=True)
        rows = gathered(read_rows(source, (STAMP, PROMPT, OUTPUT)))
        stamps = rows.columns["stamp_ns"]
        first = int(stamps.min())
        arrivals = {"arrival_s": (stamps - first) / 1e9}
        kept = {name: values for name, values in rows.columns.items() if name != "stamp_ns"}
        return self.table(
            source,
            repairs,
            (ARRIVAL, PROMPT, OUTPUT),
            Chunk(rows.lines, arrivals | kept),
            time="arrival_s",
            first_arrival=str(np.datetime64(first, "ns")),
        )
