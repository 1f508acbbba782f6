"""Files of measurements, recognised by their content.

A table (CSV, also compressed) has one row a request or one row an iteration; a JSON document is the result of a load
generator: `vllm bench serve`, SGLang's `bench_serving`, GuideLLM, inference-perf, genai-perf; a benchmark report of llm-d is
one of these in other words, in JSON or YAML. Records of AIPerf are JSON Lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forerun.core.errors import TraceError
from forerun.core.trace.documents import JsonDocument
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.source import Source
from forerun.serving.llm.calibration.experiment import Experiment, Steps
from forerun.serving.llm.calibration.readers import (
    aiperf,
    genai_perf,
    guidellm,
    inference_perf,
    llmd_report,
    serve_bench,
    tables,
)
from forerun.serving.llm.calibration.readers.values import YamlDocument

#: largest document that is read
MOST_BYTES: Final = 512 << 20

KNOWN: Final = (
    "known: tables of requests (arrival_ms, prompt_tokens, output_tokens, ttft_ms, e2e_ms; LMBenchmark; BLIS), tables of "
    "steps (prefill_tokens, decodes, kv_tokens, took_ms), results of vllm bench serve, SGLang bench_serving, GuideLLM, "
    "inference-perf, genai-perf, AIPerf and benchmark reports of llm-d"
)


def read_measurements(path: Path, *, seed: int = 0) -> Sequence[Experiment | Steps]:
    """The experiments in a file, in its order; or its table of steps.

    Parameters
    ----------
    path : the file.
    seed : of arrivals that the file does not list, only their rate (default 0).

    Raises TraceError naming file, line and field for what is not known, cut short or impossible.
    """
    source = Source(path, repairs=RepairLog())
    head = source.head(2)
    start = "".join(head).lstrip()
    if start and path.suffix.lower() in (".yaml", ".yml"):
        report = YamlDocument(path)
        if isinstance(report.value, dict) and llmd_report.is_report(report.value):
            return [llmd_report.read(report, seed)]
        raise TraceError.at(source.name, f"is no benchmark report of llm-d; {KNOWN}")
    if not start.startswith("{"):
        return tables.read(Source(path, repairs=RepairLog()), head, KNOWN)
    if aiperf.is_record(head[0]):
        return [aiperf.read(Source(path, repairs=RepairLog()))]
    document = _document(path, head)
    value = document.value
    if not isinstance(value, dict):
        raise TraceError.at(source.name, f"is no result of a benchmark; {KNOWN}")
    if isinstance(value.get("benchmarks"), list):
        return guidellm.read(document, seed)
    if "load_summary" in value and "successes" in value:
        return [inference_perf.read(document, seed)]
    if llmd_report.is_report(value):
        return [llmd_report.read(document, seed)]
    if genai_perf.is_summary(value):
        return [genai_perf.read(document, seed)]
    if serve_bench.is_result(value):
        return [serve_bench.read(document, seed)]
    raise TraceError.at(source.name, f"is no result of a benchmark that is known: {_keys(value)}; {KNOWN}")


def _document(path: Path, head: Sequence[str]) -> JsonDocument:
    """The JSON document of a file; of several lines that are one object each, the last: SGLang appends its results."""
    source = Source(path, repairs=RepairLog())
    if len(head) < 2 or not (head[0].rstrip().endswith("}") and head[1].startswith("{")):
        return JsonDocument.read(source, MOST_BYTES, infinite=True)
    last, at = "", 0
    for number, line in source.lines():
        if line.strip():
            last, at = line, number
    return JsonDocument(source, last, line=at, infinite=True)


def _keys(value: Mapping[str, Any]) -> str:
    names = list(value)
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"it has the keys {', '.join(names[:6])}{more}" if names else "it is empty"
