"""Requests to language models with their prefix blocks, in JSON Lines: Mooncake's traces and Qwen-Bailian's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.trace.objects import json_field, parse_json, read_objects
from forerun.core.trace.reader import Head, TraceReader
from forerun.core.trace.repair import Complaints, RepairLog, shown
from forerun.core.trace.requests import AFTER, PAUSE, arrival, output_tokens, prompt_tokens
from forerun.core.trace.rows import LARGEST_INT, TEXT, Field, out_of_range
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows

SIZES = (prompt_tokens("input_length"), output_tokens("output_length"))
REQUIRED = {"timestamp", "input_length", "output_length"}
BLOCKS = Field(
    name="hash_ids",
    kind="text",
    meaning="blocks of the prompt in order, equal numbers for equal prefixes; separated by spaces",
)
NAME = Field(name="id", kind="text", meaning="name of the request")
#: requests a second that no published trace of language models reaches in its mean
IMPLAUSIBLE_RPS = 100.0
#: requests from which a mean rate says something
FEWEST_REQUESTS = 10
UNITS = {"ms": "milliseconds", "s": "seconds"}


class _Prefixed(TraceReader, frozen=True, kw_only=True):
    """One request a line with the numbers of its prompt's blocks; a subclass says what its times are.

    known: keys of a line that are read, or that a simulation of single requests does not need. conversations: whether lines
    have `chat_id`. block_size: what a number stands for, as a note.
    """

    makes = "requests"
    known: ClassVar[frozenset[str]] = frozenset({*REQUIRED, "hash_ids"})
    conversations: ClassVar[bool] = False
    block_size: ClassVar[str] = ""

    @classmethod
    def recognises(cls, head: Head) -> bool:
        try:
            first = parse_json(head.lines[0]) if head.lines else None
        except ValueError:
            return False
        return (
            isinstance(first, dict) and first.keys() >= REQUIRED and ("chat_id" in first) == cls.conversations
        )

    def linked(self, at: int, record: dict[str, Any], before: dict[object, str]) -> tuple[str, str, float]:
        """The name of a request, the name of the one that it follows (empty: none), and how many seconds after its answer it
        comes (NaN: that is not known).

        Parameters
        ----------
        at : number of the request in the file.
        record : its line.
        before : by session its latest request, carried from line to line.
        """
        return str(at), "", math.nan

    def unit(self, rows: Rows, unknown: set[str]) -> Literal["s", "ms"]:
        """What the times are in; TraceError where the file does not say.

        Parameters
        ----------
        rows : with `arrival`, as the file has them.
        unknown : keys of the lines that the format does not have.
        """
        return "s"

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints = Source(path, repairs=repairs), Complaints()
        fields = (Field(name="arrival", column="timestamp", minimum=0), *SIZES)
        requests: list[tuple[Any, ...]] = []
        links: list[tuple[str, str, float]] = []
        before: dict[object, str] = {}
        keys: set[str] = set()
        for line, record in read_objects(source, complaints=complaints):
            values = [json_field(source, line, record, field, complaints) for field in fields]
            requests.append((line, *values, _blocks(source, line, record, complaints)))
            try:
                links.append(self.linked(len(links), record, before))
            except ValueError as error:
                complaints.add(source.at(line), str(error))
            keys |= record.keys()
        complaints.finish()
        lines, *values, blocks = zip(*requests, strict=True)
        columns = {field.name: np.array(column) for field, column in zip(fields, values, strict=True)}
        rows = Rows(source, complaints, lines, {**columns, "hash_ids": np.array(blocks, TEXT)})
        if any(after for _, after, _ in links):
            names, after, pause_s = zip(*links, strict=True)
            rows.refuse_duplicates("chat_id", names)
            rows["id"], rows[AFTER.name] = np.array(names, TEXT), np.array(after, TEXT)
            if not np.isnan(pause_s).all():
                rows[PAUSE.name] = np.nan_to_num(np.array(pause_s))
        unknown = keys - self.known
        unit = self.unit(rows, unknown)
        time = arrival(unit, "timestamp")
        rows[time.name] = rows["arrival"]
        if late := out_of_range(time, float(rows["arrival"].max())):
            raise TraceError.at(f"{source.name}:timestamp", late)
        unused = f"; {', '.join(map(shown, sorted(unknown)))} not used" if unknown else ""
        rows.facts |= {"time_unit": unit, "assumed": f"times in {UNITS[unit]}{self.block_size}{unused}"}
        return rows.trace(self, (time, *SIZES, BLOCKS, NAME, AFTER, PAUSE))


class Mooncake(_Prefixed, tag="mooncake", frozen=True, kw_only=True):
    """JSON Lines `{"timestamp": ms, "input_length", "output_length", "hash_ids": [...]}` [Qin et al.,
    FAST'25].

    time_unit: `ms` or `s`. Left out, times are milliseconds as in the published files, and a file that looks otherwise is
    refused: keys of another format, parts of a millisecond, seconds since 1970, or more than 100 requests a second.
    """

    time_unit: Literal["", "ms", "s"] = ""

    about = "Mooncake LLM requests with prefix blocks (JSON Lines, milliseconds)"
    known = _Prefixed.known | {"session_id", "delay"}

    def linked(self, at: int, record: dict[str, Any], before: dict[object, str]) -> tuple[str, str, float]:
        """Lines of one `session_id` follow each other, `delay` milliseconds after the answer."""
        session, delay_ms = record.get("session_id"), record.get("delay")
        if session is None:
            return str(at), "", math.nan
        if delay_ms is not None and not (isinstance(delay_ms, int | float) and 0 <= delay_ms < math.inf):
            raise ValueError(f"delay: {shown(delay_ms)} is no time in milliseconds, 0 or more")
        followed, before[str(session)] = before.get(str(session), ""), str(at)
        return str(at), followed, math.nan if delay_ms is None else delay_ms / 1e3

    def unit(self, rows: Rows, unknown: set[str]) -> Literal["s", "ms"]:
        if self.time_unit:
            return self.time_unit
        times = rows["arrival"]
        span_s = float(np.ptp(times)) / 1e3
        rate_rps = (len(times) - 1) / span_s if span_s else 0.0
        doubts = []
        if unknown:
            doubts.append(f"lines have {', '.join(map(shown, sorted(unknown)))}, unlike Mooncake's")
        if (times % 1).any():
            doubts.append(f"{times[np.argmax(times % 1 > 0)]:g} is not a whole number")
        if times.min() >= 1e9 and times.max() < 1e10:
            doubts.append(f"{times[0]:.0f} looks like seconds since 1970")
        if rate_rps > IMPLAUSIBLE_RPS and len(times) >= FEWEST_REQUESTS:
            doubts.append(f"{rate_rps:,.0f} requests a second would arrive if they are milliseconds")
        if doubts:
            what = f"seconds or milliseconds? {'; '.join(doubts)}. Name the format mooncake and time_unit, s or ms"
            raise TraceError.at(f"{rows.source.name}:timestamp", what)
        return "ms"


class QwenBailian(_Prefixed, tag="qwen_bailian", frozen=True, kw_only=True):
    """JSON Lines as Mooncake's, with `chat_id`: times are seconds, a number stands for 16 tokens [Wang et al., KVCache
    Cache in the Wild, ATC'25].

    Each turn of a conversation is a request of its own, at its recorded time; with `sessions: {follow: recorded}` it also
    waits for the answer before.
    """

    about = "Qwen-Bailian LLM requests with prefix blocks (JSON Lines, seconds)"
    known = _Prefixed.known | {"chat_id", "parent_chat_id", "turn", "type"}
    conversations = True
    block_size = ", 16 tokens a number of hash_ids"

    def linked(self, at: int, record: dict[str, Any], before: dict[object, str]) -> tuple[str, str, float]:
        """A line follows its `parent_chat_id`, -1: none."""
        names = record.get("chat_id"), record.get("parent_chat_id", -1)
        if not all(isinstance(name, int | str) and str(name).split() == [str(name)] for name in names):
            raise ValueError(f"chat_id: {shown(names[0])} and {shown(names[1])} are not names of requests")
        return str(names[0]), "" if names[1] == -1 else str(names[1]), math.nan


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
