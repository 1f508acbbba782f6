"""Results of `vllm bench serve` (and the script before it), and of SGLang's `bench_serving`: one flat object.

Both merge the user's metadata into the object, so no key is read that the generators do not write, and none of another
type. Percentiles depend on an option, times end to end may be absent. With `--save-detailed` (`--output-details`) lengths
and times of each request are there, in newer versions also when it was sent. Where it is not, gaps are drawn with the stated
rate, ramp-up and burstiness, as the generators draw them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from forerun.core.trace.documents import JsonDocument
from forerun.serving.inputs.pipeline import Floats, Ints
from forerun.serving.llm.calibration.experiment import SHARES, Experiment, Load, latencies
from forerun.serving.llm.calibration.readers.values import count, lengths, maybe, number, whole
from forerun.serving.traces.request_rate import ramp_rps
from forerun.serving.traces.request_rate import sent_ms as benchmark_ms

#: what the generators call a metric; SGLang calls the last one otherwise
NAMES: Final = {"ttft": ("ttft",), "tpot": ("tpot",), "e2e": ("e2el", "e2e_latency")}
DETAILS: Final = ("input_lens", "output_lens", "ttfts", "itls")


def is_result(value: Mapping[str, Any]) -> bool:
    """Whether an object is such a result."""
    return {"completed", "duration", "total_input_tokens", "total_output_tokens"} <= set(value)


def read(document: JsonDocument, seed: int) -> Experiment:
    """The experiment of a result.

    Parameters
    ----------
    document : the result.
    seed : of the gaps between requests.

    Raises TraceError for what is missing or impossible.
    """
    completed = count(document, "completed")
    rate_rps, notes = _finite(document, "request_rate"), []
    capped = document.value.get("max_concurrency") is not None and _finite(document, "max_concurrency")
    cap = count(document, "max_concurrency") if capped and math.isfinite(capped) else None
    burstiness = 1.0 if document.value.get("burstiness") is None else _finite(document, "burstiness")
    sent_ms: Floats | None = None
    measured = {"throughput_rps": completed / number(document, "duration", least=1e-9)}
    if all(isinstance(document.value.get(key), list) for key in DETAILS):
        tokens, found, failed, sent_ms = _details(document)
        measured |= found
    else:
        means = [
            number(document, f"total_{which}_tokens", least=1) / completed for which in ("input", "output")
        ]
        tokens = (lengths((), means[0], completed, seed), lengths((), means[1], completed, seed))
        measured |= _figures(document)
        failed = count(document, "num_prompts", least=0) - completed if "num_prompts" in document.value else 0
        notes.append("the file has no lengths of single requests: all are taken to have the mean")
    if failed > 0:
        notes.append(f"{failed} requests failed and are left out")
    # A client that holds requests back was asked to send them earlier: all at once, unless a rate is stated.
    at_once = cap is not None and math.isinf(rate_rps)
    if sent_ms is None or at_once:
        rates_rps, said = _ramp(document, len(tokens[0])) or (rate_rps, _drawn(rate_rps, burstiness))
        sent_ms = benchmark_ms(len(tokens[0]), rates_rps, burstiness, seed)
        notes.append(
            f"{said}, as far as the limit allows"
            if at_once
            else f"the file does not say when requests were sent: {said}"
        )
    order = np.argsort(sent_ms, kind="stable")
    load = Load(sent_ms[order], tokens[0][order], tokens[1][order], cap)
    return Experiment(document.source.name, load, measured, tuple(notes))


def _finite(document: JsonDocument, key: str) -> float:
    """A number above 0 that may be infinite, which vLLM writes as a text and SGLang as Python does."""
    found = document.value.get(key)
    return math.inf if found in ("inf", math.inf) else number(document, key, least=1e-9)


def _ramp(document: JsonDocument, n: int) -> tuple[Floats, str] | None:
    """The rate before each of n requests, where it was ramped up, with words for it; None where it was not."""
    kind = document.value.get("ramp_up_strategy")
    if kind is None:
        return None
    begin, end = (number(document, f"ramp_up_{which}_rps", least=1e-9) for which in ("start", "end"))
    if kind not in ("linear", "exponential"):
        raise document.error(f"{kind!r} is not known; known: linear, exponential", "ramp_up_strategy")
    return ramp_rps(
        kind, begin, end, n
    ), f"gaps are drawn for a {kind} ramp from {begin:g} to {end:g} requests/s"


def _figures(document: JsonDocument) -> dict[str, float]:
    """Means and quantiles that the file has."""
    found = {}
    for metric, names in NAMES.items():
        for share in ("mean", *SHARES):
            spelt = "median" if share == "p50" else share
            for name in names:
                value = maybe(document, f"{spelt}_{name}_ms")
                if value is not None:
                    found[f"{metric}_{share}_ms"] = value
    if "ttft_mean_ms" not in found:
        number(document, "mean_ttft_ms")
    return found


def _details(document: JsonDocument) -> tuple[tuple[Ints, Ints], dict[str, float], int, Floats | None]:
    """Tokens of the requests that were answered, their latencies, how many were not, and when they were sent, if listed."""
    columns = [document.value[key] for key in DETAILS]
    sizes = {len(column) for column in columns}
    if len(sizes) != 1 or sizes == {0}:
        counts = ", ".join(f"{key} {len(column)}" for key, column in zip(DETAILS, columns))
        raise document.error(f"lists of different or no length: {counts}; cut short?", DETAILS[0])
    rows = range(len(columns[0]))
    prompt, output, first_s = (
        np.array([number(document, key, i, most=1e9) for i in rows]) for key in DETAILS[:3]
    )
    for i, gaps in enumerate(columns[3]):
        if not isinstance(gaps, list):
            raise document.error(f"{gaps!r} is no list of times; cut short?", "itls", i)
    gaps_s = np.array(
        [sum(number(document, "itls", i, j) for j in range(len(gaps))) for i, gaps in enumerate(columns[3])]
    )
    good = (first_s > 0) & (output >= 1)
    if not good.any():
        raise document.error("no request was answered", "ttfts")
    tokens = (
        whole(document, prompt[good], "prompt tokens", "input_lens"),
        whole(document, output[good], "output tokens", "output_lens"),
    )
    first_ms, whole_ms = first_s[good] * 1e3, (first_s + gaps_s)[good] * 1e3
    found, failed = latencies(first_ms, whole_ms, tokens[1]), int(np.count_nonzero(~good))
    starts = document.value.get("start_times")
    if not isinstance(starts, list):
        return tokens, found, failed, None
    if len(starts) != len(rows):
        raise document.error(f"lists {len(starts)} for {len(rows)} requests; cut short?", "start_times")
    sent_ms = np.array([number(document, "start_times", i) for i in rows])[good] * 1e3
    return tokens, found, failed, sent_ms - sent_ms.min()


def _drawn(rate_rps: float, burstiness: float) -> str:
    if math.isinf(rate_rps):
        return "all at once"
    return f"gaps are drawn for {rate_rps:g} requests/s and a burstiness of {burstiness:g}"
