"""Summaries of genai-perf (`profile_export_genai_perf.json`) and AIPerf (`profile_export_aiperf.json`).

A metric a key, each with its unit, mean and percentiles, and what the client was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from forerun.core.trace.documents import JsonDocument
from forerun.core.trace.repair import shown
from forerun.serving.llm.calibration.experiment import Experiment, Load
from forerun.serving.llm.calibration.readers.values import count, drawn_tokens, maybe, number, times, unit_ms
from forerun.serving.traces.request_rate import sent_ms

METRICS: Final = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "e2e": "request_latency",
}
#: where means are
MEAN: Final = {"mean": ("avg",)}
#: tokens of prompts and of answers
TOKENS: Final = ("input_sequence_length", "output_sequence_length")
#: where versions say how many requests are under way, and how many are sent a second
STIMULI: Final = (("loadgen",), ("perf_analyzer", "stimulus"), ())
#: how phases of newer versions send, each with its burstiness (None: the phase states it as its smoothness)
SENT: Final[Mapping[str, float | None]] = {
    "concurrency": 1.0,
    "poisson": 1.0,
    "constant": math.inf,
    "gamma": None,
}
#: what changes in a phase, without instants in a summary
UNREAD: Final = ("concurrency_ramp", "rate_ramp", "rate_series")
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
        measured |= times(document, metric, unit_ms(document, "unit", name), name, spelt=MEAN)
    cap, rate_rps, burstiness = _asked(document)
    sending = (
        "all are sent at once, as far as the limit allows"
        if math.isinf(rate_rps)
        else f"gaps are drawn for {rate_rps:g} requests/s and a burstiness of {burstiness:g}"
    )
    notes = [f"the file does not list requests: lengths are drawn like its distributions; {sending}"]
    errors = maybe(document, "error_request_count", "avg") or 0
    notes += [f"{errors:g} requests failed and are left out"] if errors else []
    places = ((name,) for name in TOKENS)
    tokens = drawn_tokens(document, served, seed, QUANTILES, places, spelt=MEAN)
    load = Load(sent_ms(served, rate_rps, burstiness, seed), *tokens, cap)
    return Experiment(document.source.name, load, measured, tuple(notes))


def _asked(document: JsonDocument) -> tuple[int | None, float, float]:
    """What the client was asked for: requests under way, requests a second (inf: all at once), and their burstiness."""
    asked = document.value.get("input_config")
    phases = asked.get("phases") if isinstance(asked, dict) else None
    place: tuple[str | int, ...] = ()
    burstiness = 1.0
    if phases is not None:
        place, burstiness = _phase(document, phases)
    places = [place] if place else STIMULI
    cap, rate_rps = (
        _first(document, places, *names) for names in (("concurrency",), ("request_rate", "rate"))
    )
    if cap is None and rate_rps is None:
        raise document.error("neither concurrency nor request_rate is stated", "input_config", *place)
    return None if cap is None else round(cap), rate_rps or math.inf, burstiness


def _phase(document: JsonDocument, phases: Any) -> tuple[tuple[str | int, ...], float]:
    """Where the one phase that was measured stands, and its burstiness. Raises TraceError for those of another kind."""
    measured = [
        at
        for at, one in enumerate(phases if isinstance(phases, list) else ())
        if isinstance(one, dict) and one.get("kind", one.get("name")) == "profiling"
    ]
    if len(measured) != 1:
        what = f"{len(measured)} phases were measured; a summary of one can be read, or records (profile_export.jsonl)"
        raise document.error(what, "input_config", "phases")
    place = ("phases", measured[0])
    phase = phases[measured[0]]
    kind, changing = phase.get("type"), [name for name in UNREAD if phase.get(name) is not None]
    if not isinstance(kind, str) or kind not in SENT or changing:
        what = f"{'; '.join(changing) or shown(kind)}: only the records say when requests were sent (profile_export.jsonl)"
        raise document.error(what, "input_config", *place)
    burstiness = SENT[kind]
    if burstiness is None:
        burstiness = maybe(document, "input_config", *place, "smoothness", least=1e-9) or 1.0
    return place, burstiness


def _first(document: JsonDocument, places: Sequence[tuple[str | int, ...]], *names: str) -> float | None:
    """The first number under a name that is there; None if none is."""
    found = (maybe(document, "input_config", *place, name, least=1e-9) for place in places for name in names)
    return next((value for value in found if value is not None), None)
