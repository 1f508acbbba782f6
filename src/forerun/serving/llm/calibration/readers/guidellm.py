"""Results of GuideLLM in all of its layouts: without metadata (2025), version 1 (0.5) and version 2 (0.8).

An item of `benchmarks` is an experiment. Its strategy says how requests were sent: one after the other, a constant number
at once, as fast as possible, or with a rate. Where all requests are listed their own times count, else the distributions
of the successful ones. The tool's time per output token contains the first token; its inter-token latency does not, and is
what is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.trace.documents import JsonDocument
from forerun.serving.inputs.pipeline import Floats, Ints
from forerun.serving.llm.calibration.experiment import Experiment, Load, latencies
from forerun.serving.llm.calibration.readers.values import (
    count,
    drawn_tokens,
    maybe,
    number,
    section,
    times,
    whole,
)
from forerun.serving.traces.request_rate import sent_ms as benchmark_ms

METRICS: Final = {
    "ttft": ("time_to_first_token_ms", 1.0),
    "tpot": ("inter_token_latency_ms", 1.0),
    "e2e": ("request_latency", 1e3),
}
QUANTILES: Final = {
    "min": 0.0, "p001": 0.001, "p01": 0.01, "p05": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9,
    "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0,
}  # fmt: skip
#: where quantiles are, and those of times
PERCENTILES: Final = {name: ("percentiles", name) for name in QUANTILES if name.startswith("p")}
SPELT: Final = PERCENTILES | {"p50": ("median",)}
VERSIONS: Final = (1, 2)
#: of listed requests, by layout: when each was sent, its first token (an instant, or how long after that), and its end
INSTANTS: Final = (
    ("start_time", "first_token_time", "end_time"),
    ("request_start_time", "time_to_first_token_ms", "request_end_time"),
)


def read(document: JsonDocument, seed: int) -> list[Experiment]:
    """The experiments of a result.

    Parameters
    ----------
    document : the result.
    seed : of gaps and of the order of lengths that are not listed.

    Raises TraceError for another version, and for what is missing or impossible.
    """
    metadata = document.value.get("metadata")
    if isinstance(metadata, dict) and metadata.get("version") not in VERSIONS:
        what = f"GuideLLM's layout {metadata.get('version')!r} is not known; known: none, 1, 2"
        raise document.error(what, "metadata", "version")
    items = document.value["benchmarks"]
    if not items:
        raise document.error("contains no benchmark", "benchmarks")
    return [_Item(document, number, seed).experiment() for number in range(len(items))]


class _Item:
    """One benchmark of a document.

    Parameters
    ----------
    document : the result.
    at : number of the benchmark.
    seed : of what is drawn.
    """

    def __init__(self, document: JsonDocument, at: int, seed: int) -> None:
        self._document, self._seed = document, seed
        self._place = ("benchmarks", at)
        item = section(document, *self._place)
        where = "args" if isinstance(item.get("args"), dict) else "config"
        self._strategy_place = (*self._place, where, "strategy")
        self._strategy: Mapping[str, Any] = section(document, *self._strategy_place)
        self._name = f"{document.source.name}, benchmark {at}"

    def experiment(self) -> Experiment:
        """The experiment. Raises TraceError."""
        document, place = self._document, self._place
        nested = section(document, *place).get("request_totals") is None
        totals = (*place, *(("metrics",) if nested else ()), "request_totals")
        served = count(document, *totals, "successful", least=0)
        if not served:
            raise document.error("no request succeeded", *totals, "successful")
        unserved = sum(count(document, *totals, key, least=0) for key in ("errored", "incomplete"))
        notes = [f"{unserved} requests failed or were cut off and are left out"] if unserved else []
        cap, rate_rps, shape = self._sending()
        rows = self._rows(served)
        if rows is None:
            metrics = (*place, "metrics")
            measured: dict[str, float] = {}
            places = ((*metrics, f"{which}_token_count", "successful") for which in ("prompt", "output"))
            tokens = drawn_tokens(document, served, self._seed, QUANTILES, places, spelt=PERCENTILES)
            for metric, (name, scale) in METRICS.items():
                measured |= times(document, metric, scale, *metrics, name, "successful", spelt=SPELT)
            send_ms = benchmark_ms(served, rate_rps, shape, self._seed)
            notes.append(
                "the file does not list all requests: lengths and arrivals are drawn like its distributions"
            )
        else:
            send_ms, tokens, measured = rows
            if cap is not None:
                send_ms = np.zeros(len(send_ms))
        measured["throughput_rps"] = number(
            document, *place, "metrics", "requests_per_second", "successful", "mean", least=1e-9
        )
        return Experiment(self._name, Load(send_ms, *tokens, cap), measured, tuple(notes))

    def _sending(self) -> tuple[int | None, float, float]:
        """Requests under way at most, rate a second, and shape of the gaps."""
        kind, place = self._strategy.get("type_"), self._strategy_place
        match kind:
            case "synchronous":
                return 1, math.inf, math.inf
            case "concurrent":
                key = "streams" if self._strategy.get("streams") is not None else "max_concurrency"
                return count(self._document, *place, key), math.inf, math.inf
            case "throughput":
                most = maybe(self._document, *place, "max_concurrency", least=1)
                return (None if most is None else round(most)), math.inf, math.inf
            case "constant" | "poisson":
                rate = number(self._document, *place, "rate", least=1e-9)
                return None, rate, 1.0 if kind == "poisson" else math.inf
        known = "synchronous, concurrent, throughput, constant, poisson"
        raise self._document.error(f"strategy {kind!r} is not known; known: {known}", *place, "type_")

    def _rows(self, served: int) -> tuple[Floats, tuple[Ints, Ints], dict[str, float]] | None:
        """When requests were sent, their tokens and latencies, if all successful ones are listed with them."""
        place = (*self._place, "requests", "successful")
        listed = section(self._document, *self._place, "requests").get("successful")
        if not isinstance(listed, list) or len(listed) != served:
            return None
        rows = [row if isinstance(row, dict) else {} for row in listed]
        for start, first, end in INSTANTS:
            needed = (start, first, end, "prompt_tokens", "output_tokens")
            if all(row.get(key) is not None for row in rows for key in needed):
                break
        else:
            return None
        columns = {
            key: np.array([number(self._document, *place, i, key) for i in range(served)]) for key in needed
        }
        order = np.argsort(columns[start], kind="stable")
        start_s, first_s, end_s = (columns[key][order] for key in (start, first, end))
        if first.endswith("_ms"):
            first_s = start_s + first_s / 1e3
        if (first_s < start_s).any() or (end_s < first_s).any():
            raise TraceError.at(self._name, "a request ends before its first token, or begins after it")
        prompt, output = (
            whole(self._document, columns[f"{which}_tokens"][order], f"{which} tokens", *place)
            for which in ("prompt", "output")
        )
        found = latencies((first_s - start_s) * 1e3, (end_s - start_s) * 1e3, output)
        return (start_s - start_s[0]) * 1e3, (prompt, output), found
