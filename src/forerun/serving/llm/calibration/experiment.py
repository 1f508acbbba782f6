"""A benchmark of a server: the load that a client sent, and the latencies that it saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forerun.core.errors import TraceError
from forerun.serving.inputs.pipeline import Floats, Ints

#: shares of requests whose quantiles are compared, by the name of the quantile
SHARES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
#: a client that sends later than it wants by so much holds requests back
LATE_MS: Final = 50.0
#: instants in tables are rounded by no more, where they have microseconds
ROUNDING_MS: Final = 0.002
#: an answer of less than this share of the median's tokens that takes more than this share of the median's time is odd, and
#: so is a client with more than this share of such answers
SHORT: Final = 0.5
USUAL: Final = 0.9
ODD: Final = 0.01
#: a client sends as another request ends if it waits for less than this share of the time that requests take
SOON: Final = 0.1
#: gaps are even whose deviation is less than this share of their mean
EVEN: Final = 0.1


@dataclass(frozen=True)
class Load:
    """What a client sends.

    Parameters
    ----------
    send_ms : float64[n], when it wants to send each request, ascending from 0.
    prompt, output : int64[n], tokens of the prompt and of the answer.
    most_in_flight : it holds a request back while so many are under way (None: it never does).
    """

    send_ms: Floats = field(repr=False)
    prompt: Ints = field(repr=False)
    output: Ints = field(repr=False)
    most_in_flight: int | None = None

    def __len__(self) -> int:
        return len(self.send_ms)


@dataclass(frozen=True)
class Experiment:
    """A load, and what was measured under it.

    Parameters
    ----------
    name : of the file, with its part where a file has several.
    load : what was sent.
    measured : by metric: `ttft`, `tpot` (mean time between the tokens of a request after its first) and `e2e`, as
        `ttft_mean_ms` or `ttft_p99_ms`; and `throughput_rps`.
    notes : what was assumed or left out.
    """

    name: str
    load: Load
    measured: Mapping[str, float]
    notes: tuple[str, ...] = ()

    @property
    def holds_back(self) -> bool:
        """Whether the client limited itself, so that latencies say nothing about the rate that it wanted."""
        return self.load.most_in_flight is not None

    @property
    def in_flight(self) -> float:
        """Requests under way on average, by Little's law; NaN where their latency is not known."""
        return self.measured.get("throughput_rps", np.nan) * self.measured.get("e2e_mean_ms", np.nan) / 1e3


@dataclass(frozen=True)
class Steps:
    """Iterations of a server, one a row.

    Parameters
    ----------
    name : of the file.
    prefill : float64[n], tokens of prompts that an iteration processed.
    decodes : float64[n], requests that processed their latest token.
    kv : float64[n], tokens of these requests in the cache.
    took_ms : float64[n], from the iteration's begin to the next one's.
    notes : what was assumed or left out.
    """

    name: str
    prefill: Floats = field(repr=False)
    decodes: Floats = field(repr=False)
    kv: Floats = field(repr=False)
    took_ms: Floats = field(repr=False)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.took_ms)


def latencies(ttft_ms: Floats, e2e_ms: Floats, output: Ints) -> dict[str, float]:
    """Means and quantiles of the latencies of requests.

    Parameters
    ----------
    ttft_ms, e2e_ms : float64[n], to the first and to the last token.
    output : int64[n], tokens of each answer.
    """
    several = output > 1
    columns = {
        "ttft": ttft_ms,
        "tpot": (e2e_ms - ttft_ms)[several] / (output[several] - 1),
        "e2e": e2e_ms,
    }
    made = {}
    for name, values in columns.items():
        if len(values):
            made[f"{name}_mean_ms"] = float(values.mean())
            quantiles = np.quantile(values, list(SHARES.values()))
            made |= {f"{name}_{share}_ms": float(value) for share, value in zip(SHARES, quantiles)}
    return made


def recorded(
    name: str,
    planned_ms: Floats,
    sent_ms: Floats,
    ttft_ms: Floats,
    e2e_ms: Floats,
    tokens: tuple[Ints, Ints],
    notes: Sequence[str] = (),
) -> Experiment:
    """An experiment with one row a request. Where the client sends late it is taken to hold requests back at the largest
    number under way that was seen.

    Parameters
    ----------
    name : of the experiment.
    planned_ms, sent_ms : float64[n], when the client wanted to send each request, and did.
    ttft_ms, e2e_ms : float64[n], from then to the first and to the last token.
    tokens : int64[n] each, of the prompt and of the answer.
    notes : what was left out (default: nothing).

    Raises TraceError for a first token that comes before its request is sent or after the last one.
    """
    wrong = np.flatnonzero((ttft_ms < 0) | (e2e_ms < ttft_ms))
    if len(wrong):
        what = f"{len(wrong)} requests end before their first token or have it before they are sent, the first is {wrong[0]}"
        raise TraceError.at(name, what)
    order = np.argsort(planned_ms, kind="stable")
    planned_ms, sent_ms, ttft_ms, e2e_ms = (
        column[order].astype(np.float64) for column in (planned_ms, sent_ms, ttft_ms, e2e_ms)
    )
    prompt, output = (column[order].astype(np.int64) for column in tokens)
    late_ms = sent_ms - sent_ms[0] - (planned_ms - planned_ms[0])
    cap = int(_under_way(sent_ms, e2e_ms).max()) if np.quantile(late_ms, 0.9) > LATE_MS else None
    span_s = float((sent_ms + e2e_ms).max() - sent_ms[0]) / 1e3
    measured = latencies(ttft_ms, e2e_ms, output) | {"throughput_rps": len(sent_ms) / span_s}
    said = list(notes)
    usual, usual_ms = np.median(output), np.median(e2e_ms)
    odd = float(np.mean((output < SHORT * usual) & (e2e_ms > USUAL * usual_ms)))
    if odd > ODD:
        said.append(
            f"{odd:.0%} of the answers have less than half of the usual {usual:.0f} tokens but take as long: does the "
            "client count tokens of the text, not of the server? Then times per token are wrong"
        )
    if cap is not None:
        said.append(
            f"the client sent up to {late_ms.max() / 1e3:.3g} s late, with at most {cap} requests under way"
        )
    return Experiment(name, Load(planned_ms - planned_ms[0], prompt, output, cap), measured, tuple(said))


def sent_in_turn(sent_ms: Floats, e2e_ms: Floats) -> bool:
    """Whether a client sends as others end: with at most n under way, each but the first n comes soon after the end that
    frees its place. Several under way at even gaps come at a rate, whatever ends meanwhile.

    Parameters
    ----------
    sent_ms, e2e_ms : float64[n], when each was sent, and from then to its last token.
    """
    begin_ms, end_ms = np.sort(sent_ms), np.sort(sent_ms + e2e_ms)
    most, gaps_ms = int(_under_way(sent_ms, e2e_ms).max()), np.diff(begin_ms)
    idle_ms = begin_ms[most:] - end_ms[:-most]
    if len(idle_ms) <= most or (most > 1 and float(gaps_ms.std()) < EVEN * float(gaps_ms.mean())):
        return False
    return float(np.median(idle_ms)) < SOON * float(np.median(e2e_ms))


def _under_way(sent_ms: Floats, e2e_ms: Floats) -> Ints:
    """int64[n]: requests under way as each is sent, itself included, in that order. One that is sent as another ends is not
    beside it, though tables round both."""
    begin_ms, end_ms = np.sort(sent_ms), np.sort(sent_ms + e2e_ms) - ROUNDING_MS
    return np.arange(1, len(begin_ms) + 1) - np.searchsorted(end_ms, begin_ms, side="right")
