"""Requests as the Vidur simulator writes them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import RepairLog
from forerun.trace.requests import arrival, output_tokens, prompt_tokens
from forerun.trace.rows import gathered, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

FIELDS = (
    arrival("s", "arrived_at"),
    prompt_tokens("num_prefill_tokens"),
    output_tokens("num_decode_tokens"),
)


class Vidur(TraceReader, tag="vidur", frozen=True, kw_only=True):
    """CSV `arrived_at,num_prefill_tokens,num_decode_tokens`, seconds [Agrawal et al., Vidur, MLSys'24]."""

    about: ClassVar[str] = "LLM requests of the Vidur simulator (CSV, seconds)"
    makes: ClassVar[str] = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("arrived_at", "num_prefill_tokens", "num_decode_tokens")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        rows = gathered(read_rows(source, FIELDS))
        return self.table(source, repairs, FIELDS, rows, time="arrival_s")
