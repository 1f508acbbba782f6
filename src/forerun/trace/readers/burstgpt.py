"""The BurstGPT trace of requests to ChatGPT and GPT-4."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import RepairLog
from forerun.trace.requests import arrival, output_tokens, prompt_tokens
from forerun.trace.rows import Chunk, Field, gathered, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

READ = (
    arrival("s", "Timestamp", meaning="instant of arrival, whole seconds"),
    Field(
        name="conversation_id",
        column="Session ID",
        kind="text",
        required=False,
        missing=("",),
        meaning="conversation the request belongs to, if any",
    ),
    Field(
        name="elapsed_s",
        column="Elapsed time",
        unit="s",
        minimum=0,
        required=False,
        missing=("",),
        meaning="time to the full answer",
    ),
    Field(name="model", column="Model", kind="text", meaning="model asked"),
    prompt_tokens("Request tokens"),
    output_tokens("Response tokens"),
    Field(name="total_tokens", column="Total tokens", kind="int", unit="tokens", minimum=0),
    Field(name="log_type", column="Log Type", kind="text", meaning="conversation or API"),
)
FAILED = Field(name="failed", meaning="no answer came: zero response tokens")


class BurstGpt(TraceReader, tag="burstgpt", frozen=True, kw_only=True):
    """CSV, with or without the session columns; a request without response tokens failed.

    failed: `keep` those requests, marked, or `drop` them. Totals that are not the sum of the two counts are
    ignored and counted. CC-BY 4.0 [Wang et al., BurstGPT, KDD'25].
    """

    failed: Literal["keep", "drop"] = "keep"

    about: ClassVar[str] = "BurstGPT requests (CSV, whole seconds)"
    makes: ClassVar[str] = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("Timestamp", "Request tokens", "Response tokens", "Log Type")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        rows = gathered(read_rows(source, READ))
        columns = dict(rows.columns)
        odd = np.flatnonzero(
            columns["prompt_tokens"] + columns["output_tokens"] != columns.pop("total_tokens")
        )
        wheres = [source.at(int(rows.lines[row]), "Total tokens") for row in odd[:3]]
        repairs.note_many("total is not the sum of request and response tokens, ignored", wheres, len(odd))
        columns["failed"] = columns["output_tokens"] == 0
        kept = ~columns["failed"] if self.failed == "drop" else np.ones(len(rows), dtype=bool)
        columns = {name: values[kept] for name, values in columns.items()}
        return self.table(
            source, repairs, (*READ, FAILED), Chunk(rows.lines[kept], columns), time="arrival_s"
        )
