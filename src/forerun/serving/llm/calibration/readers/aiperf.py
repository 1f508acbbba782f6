"""Records of AIPerf (`profile_export.jsonl`): a line a request, its instants in nanoseconds, each metric with its unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.trace.objects import json_number, parse_json, read_objects
from forerun.core.trace.repair import Complaints, shown
from forerun.core.trace.rows import Field
from forerun.core.trace.source import Source
from forerun.serving.llm.calibration.experiment import Experiment, recorded, sent_in_turn
from forerun.serving.llm.calibration.readers.values import UNITS

TIME: Final = Field(name="time", minimum=0)
TOKENS: Final = Field(name="tokens", kind="int", minimum=1, whole_decimals=True)
#: metrics that are read, in the order of a row
METRICS: Final = {
    "time_to_first_token": TIME,
    "request_latency": TIME,
    "input_sequence_length": TOKENS,
    "output_sequence_length": TOKENS,
}


def is_record(line: str) -> bool:
    """Whether a line is such a record."""
    try:
        value = parse_json(line)
    except ValueError:
        return False
    return isinstance(value, dict) and {"metadata", "metrics"} <= value.keys()


def read(source: Source) -> Experiment:
    """The experiment of a file: requests of the profiled phase that were answered.

    Raises TraceError for what is missing or impossible, and for units that are not known.
    """
    complaints, sent_ns, rows, failed, warming = Complaints(), [], [], 0, 0
    for line, record in read_objects(source, complaints=complaints):
        metadata, metrics = record.get("metadata"), record.get("metrics")
        if not isinstance(metadata, dict) or not isinstance(metrics, dict):
            complaints.add(source.at(line), "metadata and metrics {...} are needed")
        elif metadata.get("benchmark_phase", "profiling") != "profiling":
            warming += 1
        elif record.get("error") is not None or metadata.get("was_cancelled"):
            failed += 1
        else:
            try:
                rows.append([_value(metrics, name) for name in METRICS])
                sent_ns.append(_instant_ns(metadata.get("request_start_ns")))
            except ValueError as error:
                complaints.add(source.at(line), str(error))
    complaints.finish()
    if not rows:
        raise TraceError.at(source.name, "no request of the profiled phase was answered")
    ttft_ms, e2e_ms, prompt, output = np.array(rows).T
    # Nanoseconds since 1970 are too many for a double: they count from the first.
    sent_ms = (np.array(sent_ns) - min(sent_ns)) / 1e6
    left_out = {"failed or were cut off": failed, "warmed up": warming}
    notes = [f"{count} requests {why} and are left out" for why, count in left_out.items() if count]
    # Under a limit of requests under way all are wanted at once, and each is sent when another one ends.
    planned_ms = np.zeros(len(sent_ms)) if sent_in_turn(sent_ms, e2e_ms) else sent_ms
    return recorded(source.name, planned_ms, sent_ms, ttft_ms, e2e_ms, (prompt, output), notes)


def _instant_ns(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"request_start_ns: {shown(value)} is no instant in whole nanoseconds")
    return value


def _value(metrics: Mapping[str, Any], name: str) -> float:
    """A metric, times in ms. Raises ValueError."""
    found, field = metrics.get(name), METRICS[name]
    if not isinstance(found, dict):
        raise ValueError(f"{name} is missing; a streamed answer has it")
    units, unit = UNITS if field is TIME else {"tokens": 1.0}, found.get("unit")
    if not isinstance(unit, str) or unit not in units:
        raise ValueError(f"{name} is in {shown(unit)}; known: {', '.join(units)}")
    try:
        return json_number(field, found.get("value")) * units[unit]
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
