"""Results of inference-perf: `stage_N_lifecycle_metrics.json`, one load stage, in seconds.

Its time per output token and time between tokens count two chunks a token in released versions, about half of the truth;
they are not read. The time between tokens follows from the means: (whole - first token) / (tokens - 1).
"""

from __future__ import annotations

from typing import Final

from forerun.core.trace.documents import JsonDocument
from forerun.serving.llm.calibration.experiment import LATE_MS, SHARES, Experiment, Load
from forerun.serving.llm.calibration.readers.values import count, drawn_tokens, maybe, number, section
from forerun.serving.traces.request_rate import sent_ms as benchmark_ms

#: quantiles that the tool writes, by their share
QUANTILES: Final = {
    "min": 0.0, "p0.1": 0.001, "p1": 0.01, "p5": 0.05, "p10": 0.1, "p25": 0.25, "median": 0.5,
    "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0,
}  # fmt: skip
LATENCY: Final = ("successes", "latency")


def read(document: JsonDocument, seed: int) -> Experiment:
    """The experiment of one stage.

    Parameters
    ----------
    document : the result of a stage.
    seed : of the order of lengths.

    Raises TraceError for what is missing or impossible, and for a summary of several stages, which has no rate.
    """
    if maybe(document, "load_summary", "requested_rate") is None:
        what = "has no rate: a summary over several stages; give the files stage_N_lifecycle_metrics.json"
        raise document.error(what, "load_summary")
    served = count(document, "successes", "count")
    failed = count(document, "failures", "count", least=0) if "failures" in document.value else 0
    sent_rps = number(document, "load_summary", "achieved_rate", least=1e-9)
    late_ms = number(document, "load_summary", "schedule_delay", "mean", least=-1e9) * 1e3
    measured = {"throughput_rps": number(document, "successes", "throughput", "requests_per_sec", least=1e-9)}
    for metric, name in (("ttft", "time_to_first_token"), ("e2e", "request_latency")):
        section(document, *LATENCY, name)
        for share in ("mean", *SHARES):
            key = "median" if share == "p50" else share
            measured[f"{metric}_{share}_ms"] = number(document, *LATENCY, name, key) * 1e3
    places = (("successes", f"{which}_len") for which in ("prompt", "output"))
    tokens = drawn_tokens(document, served, seed, QUANTILES, places)
    mean_output = number(document, "successes", "output_len", "mean", least=1)
    notes = ["gaps are taken to be constant"]
    if mean_output > 1:
        derived_ms = (measured["e2e_mean_ms"] - measured["ttft_mean_ms"]) / (mean_output - 1)
        measured["tpot_mean_ms"] = derived_ms
        own = maybe(document, *LATENCY, "time_per_output_token", "mean")
        if own is not None and abs(own * 1e3 / derived_ms - 1) > 0.2:
            notes.append(
                f"its time per output token, {own * 1e3:.3g} ms, is not used: whole minus first token over tokens gives "
                f"{derived_ms:.3g} ms (the tool counts two chunks a token)"
            )
    if failed:
        notes.append(f"{failed} requests failed and are left out")
    cap = None
    if late_ms > LATE_MS:
        cap = max(1, round(measured["throughput_rps"] * measured["e2e_mean_ms"] / 1e3))
        notes.append(
            f"the client sent {late_ms / 1e3:.3g} s late on average, with about {cap} requests under way"
        )
    load = Load(benchmark_ms(served, sent_rps, float("inf"), seed), *tokens, cap)
    return Experiment(document.source.name, load, measured, tuple(notes))
