"""Benchmark reports of llm-d (versions 0.1, 0.2 and 0.2.1, YAML or JSON), which wrap what a load generator measured.

Units stand beside the figures. The time between tokens follows from the means, (whole - first token) / (tokens - 1): what
the report carries over from inference-perf counts two chunks a token. The rate is that of the report's load; where it does
not say one, requests come as often as they were served.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from forerun.serving.llm.calibration.experiment import Experiment, Load
from forerun.serving.llm.calibration.readers.values import (
    Described,
    count,
    drawn_tokens,
    maybe,
    number,
    times,
    unit_ms,
)
from forerun.serving.traces.request_rate import sent_ms as benchmark_ms

VERSIONS: Final = ("0.1", "0.2", "0.2.1")
#: quantiles that a report has, by their share
QUANTILES: Final = {
    "min": 0.0, "p0p1": 0.001, "p1": 0.01, "p5": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75,
    "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99p9": 0.999, "max": 1.0,
}  # fmt: skip


def is_report(value: Mapping[str, Any]) -> bool:
    """Whether an object is such a report."""
    return {"version", "scenario"} <= set(value) and bool({"metrics", "results"} & set(value))


def read(document: Described, seed: int) -> Experiment:
    """The experiment of a report.

    Parameters
    ----------
    document : the report.
    seed : of gaps and of the order of lengths.

    Raises TraceError for another version, and for what is missing or impossible.
    """
    version = str(document.value["version"])
    if version not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise document.error(f"a benchmark report {version!r} is not known; known: {known}", "version")
    place = ("metrics",) if version == "0.1" else ("results", "request_performance", "aggregate")
    served = count(document, *place, "requests", "total")
    unserved = sum(
        round(maybe(document, *place, "requests", key) or 0.0) for key in ("failures", "incomplete")
    )
    served -= unserved
    if served < 1:
        raise document.error("no request succeeded", *place, "requests", "total")
    notes = [f"{unserved} requests failed or were cut off and are left out"] if unserved else []
    measured = _figures(document, place)
    rate = ("requests_per_sec",) if version == "0.1" else ("request_rate", "mean")
    measured["throughput_rps"] = number(document, *place, "throughput", *rate, least=1e-9)
    places = ((*place, "requests", f"{which}_length") for which in ("input", "output"))
    tokens = drawn_tokens(document, served, seed, QUANTILES, places)
    notes += _derived(document, place, measured)
    rate_rps, cap, said = _sending(document, version, measured["throughput_rps"])
    notes.append(f"the report does not list requests: lengths are drawn like its distributions; {said}")
    load = Load(benchmark_ms(served, rate_rps, math.inf, seed), *tokens, cap)
    return Experiment(document.name, load, measured, tuple(notes))


def _figures(document: Described, place: tuple[str, ...]) -> dict[str, float]:
    """Means and quantiles of the times to the first and to the last token."""
    found: dict[str, float] = {}
    for metric, name in (("ttft", "time_to_first_token"), ("e2e", "request_latency")):
        where = (*place, "latency", name)
        found |= times(document, metric, unit_ms(document, "units", *where), *where, spelt={})
    return found


def _derived(document: Described, place: tuple[str, ...], measured: dict[str, float]) -> list[str]:
    """Put the mean time between tokens among the figures; with what there is to say of it."""
    tokens = number(document, *place, "requests", "output_length", "mean", least=1)
    rest_ms = measured["e2e_mean_ms"] - measured["ttft_mean_ms"]
    if tokens <= 1 or rest_ms <= 0:
        return ["the time between tokens does not follow from the report's means and is left out"]
    measured["tpot_mean_ms"] = rest_ms / (tokens - 1)
    return ["the time between tokens is derived from the means, gaps are taken to be constant"]


def _sending(document: Described, version: str, served_rps: float) -> tuple[float, int | None, str]:
    """Requests a second, requests under way at most, and what is assumed."""
    place = ("scenario", "load", "standardized")
    load = document.value["scenario"].get("load") if isinstance(document.value["scenario"], dict) else None
    given = load.get("standardized") if isinstance(load, dict) and version != "0.1" else None
    if isinstance(given, dict) and given.get("rate_qps") is not None:
        rate_rps = number(document, *place, "rate_qps", least=1e-9)
        return rate_rps, None, f"gaps are taken to be constant, for {rate_rps:g} requests/s"
    at_once = given.get("concurrency") if isinstance(given, dict) else None
    if at_once is not None and at_once != math.inf:
        cap = count(document, *place, "concurrency")
        return math.inf, cap, f"{cap} requests are under way at once"
    return (
        served_rps,
        None,
        f"no rate is stated, so requests come as they were served, {served_rps:g} a second",
    )
