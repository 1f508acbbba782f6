"""Requests of agents and chats as OpenTelemetry's spans tell them, in OTLP's JSON."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.trace.documents import JsonDocument
from forerun.core.trace.objects import read_objects
from forerun.core.trace.reader import Head, TraceReader
from forerun.core.trace.repair import Complaints, RepairLog, shown
from forerun.core.trace.requests import AFTER, PAUSE, arrival, output_tokens, prompt_tokens
from forerun.core.trace.rows import TEXT, Field
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows

#: operations that are requests to a model; an agent's span has the sum of its requests
REQUESTS = ("chat", "text_completion", "generate_content")
#: what the tokens of prompt and answer are called, now and in early versions
PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
NAME = Field(name="id", kind="text", meaning="id of the span")
#: largest document of one object
MOST_BYTES = 512 << 20


class _Span(NamedTuple):
    """A request: where it stands, what it belongs to, its name, its begin and end, and its tokens."""

    line: int
    session: str
    name: str
    begin_ns: int
    end_ns: int
    prompt: int
    output: int


class OtelGenAi(TraceReader, tag="otel_genai", frozen=True, kw_only=True):
    """OTLP in JSON, one export a line as the collector's file exporter writes it, or one document: spans with
    `gen_ai.usage.input_tokens` and `output_tokens` of the operations chat, text_completion and generate_content.

    Spans of one `gen_ai.conversation.id`, else of one trace, are a session. One follows those that had ended when it began,
    and that none of these followed; the time in between is its pause, in which tools work or a user thinks. Forks and
    joins come out of that.
    """

    about = "OpenTelemetry GenAI spans (OTLP JSON)"
    makes = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return "resourceSpans" in head.json_keys()

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source, complaints = Source(path, repairs=repairs), Complaints()
        spans = sorted(
            {span.name: span for span in _spans(source, complaints)}.values(), key=lambda span: span.begin_ns
        )
        complaints.finish()
        if not spans:
            what = f"has no span with {PROMPT[0]} and {OUTPUT[0]} of an operation {', '.join(REQUESTS)}"
            raise TraceError.at(source.name, what)
        sessions: dict[str, list[_Span]] = defaultdict(list)
        for span in spans:
            sessions[span.session].append(span)
        links = {name: link for own in sessions.values() for name, link in _links(own)}
        first_ns = spans[0].begin_ns
        columns = {
            "arrival_s": np.array([(span.begin_ns - first_ns) / 1e9 for span in spans]),
            "prompt_tokens": np.array([span.prompt for span in spans], dtype=np.int64),
            "output_tokens": np.array([span.output for span in spans], dtype=np.int64),
            "id": np.array([span.name for span in spans], TEXT),
            AFTER.name: np.array([links[span.name][0] for span in spans], TEXT),
            PAUSE.name: np.array([links[span.name][1] for span in spans]),
        }
        rows = Rows(source, complaints, [span.line for span in spans], columns)
        return rows.trace(self, (arrival("s"), prompt_tokens(), output_tokens(), NAME, AFTER, PAUSE))


def _links(spans: list[_Span]) -> Iterator[tuple[str, tuple[str, float]]]:
    """By span of a session, in order of their begins: the names of those that it follows, and the pause in seconds."""
    by_end = sorted(spans, key=lambda span: span.end_ns)
    ends_ns = [span.end_ns for span in by_end]
    latest_ns = list(accumulate((span.begin_ns for span in by_end), max))
    for span in spans:
        ended = bisect_right(ends_ns, span.begin_ns)
        before = by_end[bisect_right(ends_ns, latest_ns[ended - 1]) : ended] if ended else []
        pause_s = (span.begin_ns - max(one.end_ns for one in before)) / 1e9 if before else 0.0
        yield span.name, (" ".join(sorted(one.name for one in before)), pause_s)


def _spans(source: Source, complaints: Complaints) -> Iterator[_Span]:
    """Those that are requests to a model."""
    for line, export in _exports(source, complaints):
        for one in _below(export, "resourceSpans", "scopeSpans", "spans"):
            given = {str(each.get("key")): _value(each.get("value")) for each in _below(one, "attributes")}
            prompt, output = (
                next((given[name] for name in names if name in given), None) for names in (PROMPT, OUTPUT)
            )
            if prompt is None or output is None or given.get("gen_ai.operation.name", "chat") not in REQUESTS:
                continue
            try:
                begin_ns, end_ns, tokens, answer = (
                    int(number)
                    for number in (one["startTimeUnixNano"], one["endTimeUnixNano"], prompt, output)
                )
                session = str(given.get("gen_ai.conversation.id") or one["traceId"])
                # Names of spans that others follow stand between blanks.
                name = "".join(str(one["spanId"]).split())
                span = _Span(line, session, name, begin_ns, end_ns, tokens, answer)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                complaints.add(
                    source.at(line), f"a span has no whole number or no text where one is needed: {error}"
                )
                continue
            if not (
                0 <= span.begin_ns < span.end_ns <= 2**62
                and min(tokens, answer) >= 0
                and max(tokens, answer) < 2**53
            ):
                complaints.add(
                    source.at(line),
                    f"span {shown(span.name)} ends before it begins, or counts what cannot be",
                )
                continue
            yield span


def _exports(source: Source, complaints: Complaints) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects with spans, and the lines they begin in."""
    head = source.head(1)
    if head and head[0].rstrip().endswith("}"):
        yield from read_objects(source, complaints=complaints)
        return
    document = JsonDocument.read(source, MOST_BYTES).value
    if isinstance(document, dict):
        yield 1, document


def _below(value: Any, *keys: str) -> Iterator[dict[str, Any]]:
    """The objects of lists of lists."""
    if not keys:
        if isinstance(value, dict):
            yield value
        return
    items = value.get(keys[0]) if isinstance(value, dict) else None
    for item in items if isinstance(items, list) else []:
        yield from _below(item, *keys[1:])


def _value(value: Any) -> Any:
    """What an attribute says, whatever its type."""
    return next(iter(value.values()), None) if isinstance(value, dict) else None
