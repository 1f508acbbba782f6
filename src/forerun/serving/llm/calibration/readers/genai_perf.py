"""Summaries of genai-perf (`profile_export_genai_perf.json`) and AIPerf (`profile_export_aiperf.json`).

A metric a key, each with its unit, mean and percentiles, and what the client was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from forerun.core.trace.documents import JsonDocument
from forerun.serving.llm.calibration.experiment import Experiment, Load
from forerun.serving.llm.calibration.readers.values import count, drawn_lengths, maybe, number, times, unit_ms
from forerun.serving.traces.request_rate import sent_ms

METRICS: Final = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "e2e": "request_latency",
}
#: tokens of prompts and of answers
TOKENS: Final = ("input_sequence_length", "output_sequence_length")
#: where versions say how many requests are under way, and how many are sent a second
STIMULI: Final = (("loadgen",), ("perf_analyzer", "stimulus"), ())
#: percentiles of lengths
QUANTILES: Final = {"min": 0.0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99, "max": 1.0}


def is_summary(value: Mapping[str, Any]) -> bool:
    """Whether an object is such a summary."""
    return all(isinstance(value.get(name), dict) for name in ("request_latency", *TOKENS))


def read(document: JsonDocument, seed: int) -> Experiment:
    """The experiment of a summary.

    Parameters
    ----------
    document : the summary.
    seed : of lengths and of the gaps between requests.

    Raises TraceError for what is missing or impossible.
    """
    served = count(document, "request_count", "avg")
    measured = {"throughput_rps": number(document, "request_throughput", "avg", least=1e-9)}
    for metric, name in METRICS.items():
        if name not in document.value:
            continue
        measured |= times(document, metric, unit_ms(document, "unit", name), name, spelt={"mean": ("avg",)})
    cap, rate_rps = (_asked(document, name) for name in ("concurrency", "request_rate"))
    if cap is None and rate_rps is None:
        raise document.error("neither concurrency nor request_rate is stated", "input_config")
    sending = (
        "gaps are drawn as of Poisson arrivals"
        if rate_rps
        else "all are sent at once, as far as the limit allows"
    )
    notes = [f"the file does not list requests: lengths are drawn like its distributions; {sending}"]
    errors = maybe(document, "error_request_count", "avg") or 0
    notes += [f"{errors:g} requests failed and are left out"] if errors else []
    prompt, output = (
        drawn_lengths(document, served, seed + at, QUANTILES, name, mean="avg")
        for at, name in enumerate(TOKENS)
    )
    load = Load(
        sent_ms(served, rate_rps or math.inf, 1.0, seed), prompt, output, None if cap is None else round(cap)
    )
    return Experiment(document.source.name, load, measured, tuple(notes))


def _asked(document: JsonDocument, name: str) -> float | None:
    """What the client was asked for; None if it was not."""
    for place in STIMULI:
        value = maybe(document, "input_config", *place, name, least=1e-9)
        if value is not None:
            return value
    return None
