"""Tables: one row a request, or one row an iteration.

Requests: our own (`arrival_ms, prompt_tokens, output_tokens, ttft_ms, e2e_ms`, and `send_ms` where the client was late),
LMBenchmark's (one experiment a rate), BLIS's traces (version 2 and 3, in microseconds) and its shorter form with latencies
in seconds. Iterations: our own (`prefill_tokens, decodes, kv_tokens, took_ms`), and sampled steps of a traced vLLM, whose
time is that between the begins of steps, never the scheduler's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.trace.rows import Field, gathered, read_rows, spelled
from forerun.core.trace.source import Source
from forerun.serving.llm.calibration.experiment import Experiment, Steps, recorded

Columns = Mapping[str, NDArray[Any]]
#: tokens of a block in tables of steps that count blocks
BLOCK_TOKENS: Final = 16
#: instants in BLIS's shorter form, and what its traces call them: planned, sent, first token, last token
INSTANTS: Final = {
    "arrival_us": "arrival_time_us",
    "send_us": "send_time_us",
    "first_us": "first_chunk_time_us",
    "last_us": "last_chunk_time_us",
}


def _times(unit: str, *names: str, **others: Any) -> tuple[Field, ...]:
    return tuple(Field(name=name, unit=unit, **others) for name in names)


def _counts(*names: str, minimum: int = 1) -> tuple[Field, ...]:
    return tuple(Field(name=name, kind="int", minimum=minimum, whole_decimals=True) for name in names)


def read(source: Source, head: Sequence[str], known: str) -> list[Experiment | Steps]:
    """The experiments, or the steps, of a table.

    Parameters
    ----------
    source : the file, from its beginning.
    head : its first lines.
    known : what can be read, for the message about anything else.

    Raises TraceError with every row that is wrong, and for a table that is not known.
    """
    names = {name.strip().strip('"') for name in (head[0] if head else "").split(",")}
    for fields, made in _LAYOUTS:
        if all(names.intersection(field.headers) for field in fields if field.required):
            return made(source.name, gathered(read_rows(source, spelled(source, fields))).columns)
    shown = ", ".join(sorted(names)[:8])
    raise TraceError.at(source.name, f"is no table that is known: its columns are {shown}; {known}")


def _own(name: str, columns: Columns) -> list[Experiment | Steps]:
    arrival_ms = columns["arrival_ms"]
    sent_ms, tokens = columns.get("send_ms", arrival_ms), (columns["prompt_tokens"], columns["output_tokens"])
    return [recorded(name, arrival_ms, sent_ms, columns["ttft_ms"], columns["e2e_ms"], tokens)]


def _lmbenchmark(name: str, columns: Columns) -> list[Experiment | Steps]:
    """One experiment a rate. Its own file does not say the rate: instants are seconds since 1970, counts of tokens may be
    written 75.0."""
    rates = columns.get("qps", np.zeros(len(columns["launch_s"])))
    begin_s = 0.0 if "qps" in columns else columns["launch_s"].min()
    made: list[Experiment | Steps] = []
    for rate in np.unique(rates).tolist():
        own = {key: values[rates == rate] for key, values in columns.items()}
        launch_ms, ttft_ms = (own["launch_s"] - begin_s) * 1e3, own["ttft_s"] * 1e3
        tokens, e2e_ms = (own["prompt_tokens"], own["generation_tokens"]), ttft_ms + own["generation_s"] * 1e3
        part = f"{name}, {rate:g} requests/s" if "qps" in columns else name
        made.append(recorded(part, launch_ms, launch_ms, ttft_ms, e2e_ms, tokens))
    return made


def _blis_requests(name: str, columns: Columns) -> list[Experiment | Steps]:
    # The client counts tokens of the text, which some answers do not have.
    good = (columns["error"] == 0) & (columns["output_tokens"] >= 1) & (columns["input_tokens"] >= 1)
    good &= np.isfinite(columns["ttft_s"] + columns["e2e_s"])
    if not good.any():
        raise TraceError.at(name, "every request failed or has no tokens")
    own = {key: values[good] for key, values in columns.items()}
    tokens, arrival_ms = (own["input_tokens"], own["output_tokens"]), own["arrival_us"] / 1e3
    ttft_ms, e2e_ms = own["ttft_s"] * 1e3, own["e2e_s"] * 1e3
    notes = _left_out(int((~good).sum()))
    return [recorded(name, arrival_ms, arrival_ms, ttft_ms, e2e_ms, tokens, notes)]


def _blis_trace(name: str, columns: Columns) -> list[Experiment | Steps]:
    """Requests by instants in microseconds: planned, sent, first token, last token."""
    good = columns["ok"] == 1 if "ok" in columns else columns["status"] == "ok"
    good &= columns["output_tokens"] >= 1
    if not good.any():
        raise TraceError.at(name, "no request was answered")
    arrival, send, first, last = (columns[key][good].astype(np.float64) / 1e3 for key in INSTANTS)
    prompt = columns["input_tokens"]
    if "server_input_tokens" in columns and (columns["server_input_tokens"][good] > 0).all():
        prompt = columns["server_input_tokens"]
    tokens = (prompt[good], columns["output_tokens"][good])
    notes = _left_out(int((~good).sum()))
    return [recorded(name, arrival, send, first - send, last - send, tokens, notes)]


def _left_out(failed: int) -> list[str]:
    """A note of requests that have no times or no tokens; none if all have."""
    return [f"{failed} requests failed or have no tokens and are left out"] if failed else []


def _own_steps(name: str, columns: Columns) -> list[Experiment | Steps]:
    prefill, decodes, kv, took_ms = (
        columns[key].astype(np.float64) for key in ("prefill_tokens", "decodes", "kv_tokens", "took_ms")
    )
    return [Steps(name, prefill, decodes, kv, took_ms)]


def _vllm_steps(name: str, columns: Columns) -> list[Experiment | Steps]:
    """Sampled steps: the time between two begins over the steps between them, where both are alike enough to stand for
    those between: no prompt is processed, and nearly as many requests decode."""
    step, decodes = columns["step"].astype(np.float64), columns["n_decode"].astype(np.float64)
    passed = np.diff(step)
    took_ms = np.diff(columns["t_start_us"].astype(np.float64)) / 1e3 / np.where(passed > 0, passed, np.nan)
    usable = (passed > 0) & (took_ms > 0) & (np.abs(np.diff(decodes)) <= 0.1 * decodes[:-1] + 1)
    if not usable.any():
        raise TraceError.at(name, "no two steps follow each other")
    rows = np.flatnonzero(usable)

    def middle(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray((values[rows] + values[rows + 1]) / 2)

    kv = columns["kv_used_blocks"] * BLOCK_TOKENS
    notes = (
        f"{len(passed) - len(rows)} of {len(passed)} gaps between steps are left out; the others are taken to be alike",
    )
    prefill, decoding = middle(columns["prefill_tokens"]), middle(decodes)
    return [Steps(name, prefill, decoding, middle(kv), took_ms[rows], notes)]


_Made = Callable[[str, Columns], list[Experiment | Steps]]
#: the layouts, by the columns that they need
_LAYOUTS: Final[tuple[tuple[tuple[Field, ...], _Made], ...]] = (
    (
        (
            *_times("ms", "arrival_ms", "ttft_ms", "e2e_ms"),
            *_times("ms", "send_ms", required=False),
            *_counts("prompt_tokens", "output_tokens"),
        ),
        _own,
    ),
    (
        (
            *_times("rps", "qps", minimum=1e-9, required=False),
            *_times("s", "launch_s", spellings=("launch_time",)),
            *_times("s", "ttft_s", spellings=("ttft",)),
            *_times("s", "generation_s", spellings=("generation_time",)),
            *_counts("prompt_tokens", "generation_tokens"),
        ),
        _lmbenchmark,
    ),
    (
        (
            *_times("us", "arrival_us"),
            *_times("s", "ttft_s", "e2e_s", missing=("",)),
            *_counts("input_tokens", "output_tokens", "error", minimum=0),
        ),
        _blis_requests,
    ),
    (
        (
            *_times("us", *INSTANTS),
            *_counts("input_tokens", "output_tokens", "ok", minimum=0),
            Field(name="server_input_tokens", kind="int", minimum=0, required=False),
        ),
        _blis_trace,
    ),
    (
        (
            *(Field(name=name, unit="us", column=column) for name, column in INSTANTS.items()),
            *_counts("input_tokens", "output_tokens", minimum=0),
            Field(name="server_input_tokens", kind="int", minimum=0, required=False),
            Field(name="status", kind="text"),
        ),
        _blis_trace,
    ),
    (
        (
            *_counts("prefill_tokens", "decodes", "kv_tokens", minimum=0),
            *_times("ms", "took_ms", minimum=1e-9),
        ),
        _own_steps,
    ),
    (
        (
            *_counts("step", "n_prefill", "n_decode", "prefill_tokens", "kv_used_blocks", minimum=0),
            *_times("us", "t_start_us"),
        ),
        _vllm_steps,
    ),
)
