"""The Mooncake traces of LLM requests with their prefix blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from forerun.trace.objects import json_field, parse_json, read_objects
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.requests import arrival, output_tokens, prompt_tokens
from forerun.trace.rows import LARGEST_INT, TEXT, Field
from forerun.trace.source import Source
from forerun.trace.table import Trace
from forerun.trace.tabular import Rows

FIELDS = (
    arrival("ms", "timestamp"),
    prompt_tokens("input_length"),
    output_tokens("output_length"),
)
BLOCKS = Field(
    name="hash_ids",
    kind="text",
    meaning="blocks of the prompt in order, equal numbers for equal prefixes; separated by spaces",
)


class Mooncake(TraceReader, tag="mooncake", frozen=True, kw_only=True):
    """JSON Lines `{"timestamp": ms, "input_length", "output_length", "hash_ids": [...]}` [Qin et al.,
    FAST'25].
    """

    about = "Mooncake LLM requests with prefix blocks (JSON Lines, milliseconds)"
    makes = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        try:
            first = parse_json(head.lines[0]) if head.lines else None
        except ValueError:
            return False
        return isinstance(first, dict) and {"timestamp", "input_length", "output_length"} <= set(first)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints = Source(path, repairs=repairs), Complaints()
        requests: list[tuple[Any, ...]] = []
        for line, record in read_objects(source, complaints=complaints):
            values = [json_field(source, line, record, field, complaints) for field in FIELDS]
            requests.append((line, *values, _blocks(source, line, record, complaints)))
        complaints.finish()
        lines, *values, blocks = zip(*requests, strict=True)
        columns = {field.name: np.array(column) for field, column in zip(FIELDS, values, strict=True)}
        rows = Rows(source, complaints, lines, {**columns, "hash_ids": np.array(blocks, TEXT)})
        return rows.trace(self, (*FIELDS, BLOCKS))


def _blocks(source: Source, line: int, record: dict[str, Any], complaints: Complaints) -> str:
    blocks = record.get("hash_ids", [])
    if not isinstance(blocks, list):
        complaints.add(source.at(line, "hash_ids"), f"{shown(blocks)} is not a list of block numbers")
        return ""
    for block in blocks:
        if not isinstance(block, int) or isinstance(block, bool) or not 0 <= block <= LARGEST_INT:
            complaints.add(source.at(line, "hash_ids"), f"{shown(block)} is not a block number")
            return ""
    return " ".join(map(str, blocks))
