"""Requests as the Splitwise simulator writes them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from forerun.trace.reader import Head, TraceReader, refuse_duplicates
from forerun.trace.repair import RepairLog
from forerun.trace.requests import arrival, output_tokens, prompt_tokens
from forerun.trace.rows import Field, gathered, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

FIELDS = (
    Field(name="request_id", kind="int", minimum=0, meaning="number of the request in its file"),
    Field(name="request_type", kind="int", meaning="kind of request, as the file numbers them"),
    Field(name="application_id", kind="int", meaning="application, as the file numbers them"),
    arrival("s", "arrival_timestamp"),
    Field(name="batch_size", kind="int", minimum=1, meaning="prompts in the request"),
    prompt_tokens("prompt_size"),
    output_tokens("token_size"),
)


class Splitwise(TraceReader, tag="splitwise", frozen=True, kw_only=True):
    """CSV with one request a line, in seconds; its number occurs once [Patel et al., Splitwise, ISCA'24]."""

    about: ClassVar[str] = "LLM requests of the Splitwise simulator (CSV, seconds)"
    makes: ClassVar[str] = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("request_id", "arrival_timestamp", "prompt_size", "token_size")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        rows = gathered(read_rows(source, FIELDS))
        ids, lines = rows.columns["request_id"].tolist(), rows.lines.tolist()
        refuse_duplicates(ids, lines, source, "request_id")
        return self.table(source, repairs, FIELDS, rows, time="arrival_s")
