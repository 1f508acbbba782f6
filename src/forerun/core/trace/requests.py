"""Traces of requests: the columns that their formats share, and their arrivals in milliseconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.trace.rows import Field
from forerun.core.trace.table import Trace

#: how many milliseconds a time column's unit has, by the suffix of its name
SUFFIX_MS = {"_ms": 1.0, "_us": 1e-3, "_ns": 1e-6, "_s": 1e3, "_min": 6e4, "_h": 3.6e6}

#: names of the requests whose answers one follows, and how long after these it comes
AFTER = Field(
    name="after", kind="text", missing=("",), meaning="ids of the requests that it follows, between blanks"
)
PAUSE = Field(name="pause_s", unit="s", minimum=0, meaning="from the last of their answers until it comes")


def arrivals_ms(trace: Trace) -> NDArray[np.float64]:
    """Instants of arrival in milliseconds, ascending: float64[rows]; TraceError if the unit is not known."""
    for suffix, scale in SUFFIX_MS.items():
        if trace.time.endswith(suffix):
            instants: NDArray[np.float64] = trace.instants.astype(np.float64)
            return instants if scale == 1.0 else instants * scale
    raise TraceError.at(
        trace.kind, f"the unit of {trace.time} is not known; names end in {', '.join(SUFFIX_MS)}"
    )


def arrival(unit: str, column: str = "", meaning: str = "instant of arrival") -> Field:
    """The column of arrivals, `arrival_s` or `arrival_ms`, never negative, nor so late that it must be in another unit.

    Parameters
    ----------
    unit : of the file's values, which the column keeps: `s` or `ms`.
    column : what the file calls it (default: the same).
    meaning : for the schema of the trace (default: `instant of arrival`).
    """
    latest = 1e14 / SUFFIX_MS[f"_{unit}"]
    return Field(name=f"arrival_{unit}", column=column, unit=unit, minimum=0, maximum=latest, meaning=meaning)


def prompt_tokens(column: str = "") -> Field:
    """Tokens that go into a language model, called `column` in the file."""
    return _tokens("prompt_tokens", column, "tokens of the prompt")


def output_tokens(column: str = "") -> Field:
    """Tokens that a language model generates, called `column` in the file."""
    return _tokens("output_tokens", column, "tokens generated")


def _tokens(name: str, column: str, meaning: str) -> Field:
    return Field(name=name, column=column, kind="int", unit="tokens", minimum=0, meaning=meaning)
