"""The Mooncake traces of LLM requests with their prefix blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.requests import arrival, output_tokens, prompt_tokens
from forerun.trace.rows import LARGEST_INT, TEXT, Chunk, Field, json_field, parse_json, read_objects
from forerun.trace.source import Source
from forerun.trace.table import Trace

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

    about: ClassVar[str] = "Mooncake LLM requests with prefix blocks (JSON Lines, milliseconds)"
    makes: ClassVar[str] = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        try:
            first = parse_json(head.lines[0]) if head.lines else None
        except ValueError:
            return False
        return isinstance(first, dict) and {"timestamp", "input_length", "output_length"} <= set(first)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        complaints = Complaints()
        lines: list[int] = []
        values: dict[str, list[Any]] = {field.name: [] for field in (*FIELDS, BLOCKS)}
        for number, record in read_objects(source, complaints=complaints):
            lines.append(number)
            for field in FIELDS:
                values[field.name].append(json_field(source, number, record, field, complaints))
            values["hash_ids"].append(_blocks(source, number, record, complaints))
        complaints.finish()
        columns = {name: np.array(column) for name, column in values.items() if name != "hash_ids"}
        columns["hash_ids"] = np.array(values["hash_ids"], dtype=TEXT)
        rows = Chunk(np.array(lines, dtype=np.int64), columns)
        return self.table(source, repairs, (*FIELDS, BLOCKS), rows, time="arrival_ms")


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
