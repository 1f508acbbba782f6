"""What came of a load, as columns, files and figures; and the simulation of the same load beside it."""

from __future__ import annotations

import csv
import functools
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.atomic_write import write_text
from forerun.domains.serving.calibration.experiment import Load
from forerun.domains.serving.calibration.knee import STEP, interval, saturating
from forerun.domains.serving.calibration.replay import replay
from forerun.domains.serving.engine.kernels.gaps import gap_quantile_ms
from forerun.domains.serving.inputs.llm.model import Cost, LanguageModel
from forerun.domains.serving.inputs.pipeline import Floats, Ints
from forerun.measure.llm.replaying import Answered
from forerun.result.tables import spreadsheet_safe
from forerun.rng import stream

#: what is measured: time to the first token, the mean between tokens after it, each between two, time to the last
KINDS: Final = ("ttft", "tpot", "itl", "e2e")
#: quantiles that are compared, by name
SHARES: Final[Mapping[str, float]] = {"p50": 0.5, "p99": 0.99}
#: draws for the interval of an error
RESAMPLES: Final = 200
#: share of the answers that must have come token by token, so that times between pieces are times between tokens
TOKEN_BY_TOKEN: Final = 0.99

REQUESTS: Final = "requests.csv"
FAILED: Final = "failed.csv"


@dataclass(frozen=True)
class Answers:
    """The requests that were answered, in the order they were sent; arrays by request. Instants in ms since the load began.

    Parameters
    ----------
    number : int64[n], in the load.
    arrival_ms, sent_ms : float64[n], when each was due, and was sent.
    first_ms, last_ms : float64[n], when the first and the last token came.
    prompt, output : int64[n], tokens, as the server counted them where it does.
    cached : int64[n], tokens of the prompt that the server's prefix cache had, where it says so.
    gaps_ms : times between the pieces of each answer.
    """

    number: Ints
    arrival_ms: Floats = field(repr=False)
    sent_ms: Floats = field(repr=False)
    first_ms: Floats = field(repr=False)
    last_ms: Floats = field(repr=False)
    prompt: Ints = field(repr=False)
    output: Ints = field(repr=False)
    cached: Ints = field(repr=False)
    gaps_ms: tuple[Floats, ...] = field(repr=False)

    @classmethod
    def of(cls, load: Load, answered: Sequence[Answered], *, counts: bool) -> Answers:
        """From what came of a load.

        Parameters
        ----------
        load : that was sent.
        answered : all requests that ended; those that failed are left out.
        counts : the server counts tokens; else prompts are taken to be as the load says, and a piece to be a token.
        """
        good = sorted((one for one in answered if not one.why), key=lambda one: (one.sent_ms, one.number))
        number = np.array([one.number for one in good], dtype=np.int64)
        prompt, output = load.prompt[number], np.array([len(one.token_ms) for one in good], dtype=np.int64)
        cached = np.zeros(len(good), dtype=np.int64)
        for row, one in enumerate(good):
            if counts and one.usage is not None:
                prompt[row] = max(1, one.usage.prompt_tokens)
                output[row] = max(1, one.usage.completion_tokens)
                cached[row] = one.usage.cached_tokens
        return cls(
            number,
            load.send_ms[number] - (load.send_ms[0] if len(load) else 0.0),
            np.array([one.sent_ms for one in good]),
            np.array([one.token_ms[0] for one in good]),
            np.array([one.token_ms[-1] for one in good]),
            prompt,
            output,
            cached,
            tuple(np.diff(one.token_ms) for one in good),
        )

    def __len__(self) -> int:
        return len(self.number)

    @property
    def lag_ms(self) -> Floats:
        """float64[n]: how much later than due each was sent."""
        return self.sent_ms - self.arrival_ms

    @functools.cached_property
    def pieces(self) -> Ints:
        """int64[n]: pieces that each answer came in."""
        return np.array([len(gaps) + 1 for gaps in self.gaps_ms], dtype=np.int64)

    @functools.cached_property
    def token_by_token(self) -> bool:
        """Whether answers came a token a piece, so that times between pieces are those between tokens."""
        return bool(np.mean(self.pieces == self.output) >= TOKEN_BY_TOKEN)

    @property
    def throughput_rps(self) -> float:
        """Requests answered a second, from the first that was sent to the last token."""
        return len(self) * 1e3 / float(self.last_ms.max() - self.sent_ms.min())

    def times_ms(self, rows: Ints) -> dict[str, Floats]:
        """The times of some requests by kind: one each, and all times between pieces together."""
        sent_ms, first_ms, last_ms = (column[rows] for column in (self.sent_ms, self.first_ms, self.last_ms))
        output = self.output[rows]
        several = output > 1
        times = {
            "ttft": first_ms - sent_ms,
            "tpot": (last_ms - first_ms)[several] / (output[several] - 1),
            "itl": np.concatenate([np.empty(0), *(self.gaps_ms[row] for row in rows.tolist())]),
            "e2e": last_ms - sent_ms,
        }
        if not self.token_by_token:
            del times["itl"]
        return {kind: values for kind, values in times.items() if len(values)}

    def write(self, path: Path) -> None:
        """The table that `forerun fit` reads, with what was asked for and how it came."""
        rows = zip(
            _shown(self.arrival_ms),
            _shown(self.sent_ms),
            self.prompt.tolist(),
            self.output.tolist(),
            _shown(self.first_ms - self.sent_ms),
            _shown(self.last_ms - self.sent_ms),
            self.pieces.tolist(),
            self.cached.tolist(),
            _shown([float(gaps.max(initial=0.0)) for gaps in self.gaps_ms]),
        )
        names = ("arrival_ms", "send_ms", "prompt_tokens", "output_tokens", "ttft_ms", "e2e_ms")
        _write_table(path, (*names, "pieces", "cached_tokens", "longest_gap_ms"), rows)


def write_failed(path: Path, load: Load, answered: Sequence[Answered]) -> None:
    """A table of the requests that failed: when they were due and sent, what was asked for, what came, and why."""
    failed = sorted((one for one in answered if one.why), key=lambda one: one.number)
    rows = (
        (
            f"{load.send_ms[one.number] - load.send_ms[0]:.3f}",
            "" if np.isnan(one.sent_ms) else f"{one.sent_ms:.3f}",
            int(load.prompt[one.number]),
            int(load.output[one.number]),
            len(one.token_ms),
            spreadsheet_safe(one.why),
        )
        for one in failed
    )
    names = ("arrival_ms", "send_ms", "prompt_tokens", "output_tokens", "pieces", "why")
    _write_table(path, names, rows)


def reasons(answered: Sequence[Answered]) -> list[dict[str, Any]]:
    """Why requests failed, the most frequent reason first."""
    counted = Counter(one.why for one in answered if one.why)
    return [{"why": why, "requests": count} for why, count in counted.most_common()]


def latencies(answers: Answers) -> list[dict[str, Any]]:
    """Mean and quantiles of each kind of time, in ms."""
    rows = []
    for kind, values in answers.times_ms(np.arange(len(answers))).items():
        p50, p90, p99 = np.quantile(values, (0.5, 0.9, 0.99)).tolist()
        rows.append(
            {"time": kind, "mean_ms": float(values.mean()), "p50_ms": p50, "p90_ms": p90, "p99_ms": p99}
        )
    return rows


def compared(
    answers: Answers, llm: LanguageModel, replicas: int, most_in_flight: int | None, seed: int
) -> list[dict[str, Any]]:
    """What was measured beside a simulation of the requests that were answered, sent when they were sent.

    Parameters
    ----------
    answers : at least one.
    llm : the limits and costs that are believed, with the requests of the whole load.
    replicas : how many are believed.
    most_in_flight : requests that the client had under way at most; then it holds them back in the simulation too (None: it
        did not).
    seed : of the intervals.

    Returns a row a figure: measured, predicted, the error as a share of what was measured with a 95 % interval (blocks of
    consecutive requests drawn with replacement), where fitted costs say that measurements lie, and whether iterations 5 %
    longer or shorter change the prediction by half: then it is near saturation, says nothing, and is left out (None).
    """
    sent = answers.sent_ms if most_in_flight is None else answers.arrival_ms
    order = np.argsort(sent, kind="stable")
    load = Load(sent[order] - sent.min(), answers.prompt[order], answers.output[order], most_in_flight)
    rows = answers.number[order]
    own = replace(
        llm,
        prompt=load.prompt,
        output=load.output,
        ranks=None if llm.ranks is None else llm.ranks[rows],
        shared=None if llm.shared is None else llm.shared.rows(rows),
    )

    @functools.cache
    def at(factor: float) -> dict[str, float]:
        return _predicted(own, replicas, load, _scaled(llm.cost, factor))

    now, longer, shorter = at(1.0), at(1 + STEP), at(1 - STEP)
    drawn = _drawn(answers, seed)
    found = []
    for name, measured_ms in _figures(answers, np.arange(len(answers))).items():
        if name not in now:
            continue
        low, high = np.quantile([draw.get(name, measured_ms) for draw in drawn], (0.975, 0.025)).tolist()
        near = saturating(now[name], longer[name], shorter[name])
        row = {
            "figure": name,
            "measured_ms": measured_ms,
            "predicted_ms": None if near else now[name],
            "error": None if near else now[name] / measured_ms - 1,
            "error_low": None if near else now[name] / low - 1,
            "error_high": None if near else now[name] / high - 1,
        }
        fit = llm.cost.fit
        if fit is not None:
            row["low_ms"], row["high_ms"], _ = interval(name, at, fit, error=f"{name}_ms")
        found.append(row | {"saturating": near})
    return found


def _figures(answers: Answers, rows: Ints) -> dict[str, float]:
    """Quantiles of some requests by name, such as `ttft_p50`; those that are above 0."""
    found = {
        f"{kind}_{name}": float(np.quantile(values, share))
        for kind, values in answers.times_ms(rows).items()
        for name, share in SHARES.items()
    }
    return {name: value for name, value in found.items() if value > 0}


def _drawn(answers: Answers, seed: int) -> list[dict[str, float]]:
    """The figures of requests drawn with replacement, in blocks of consecutive ones."""
    n, rng = len(answers), stream(seed, "bootstrap")
    block = max(1, round(n ** (2 / 3)))
    made = []
    for _ in range(RESAMPLES):
        starts = rng.integers(0, n, size=-(-n // block))
        made.append(_figures(answers, ((starts[:, None] + np.arange(block)) % n).ravel()[:n]))
    return made


def _predicted(llm: LanguageModel, replicas: int, load: Load, cost: Cost) -> dict[str, float]:
    run = replay(llm, replicas, load, cost)
    figures = {
        f"{kind}_{name}": run.figures[f"{kind}_{name}_ms"]
        for kind in KINDS
        for name in SHARES
        if f"{kind}_{name}_ms" in run.figures
    }
    gaps = {f"itl_{name}": gap_quantile_ms(run.gaps, share) for name, share in SHARES.items()}
    return figures | {name: value for name, value in gaps.items() if value == value}


def _scaled(cost: Cost, factor: float) -> Cost:
    """The cost with iterations that take so much longer."""
    a, prefill, decode, kv, attention = (factor * term for term in cost.terms)
    return replace(
        cost,
        terms=(a, prefill, decode, kv, attention),
        prefill_ms=cost.prefill_ms * factor,
        decode_ms=cost.decode_ms * factor,
    )


def _shown(values: Floats | Sequence[float]) -> Iterator[str]:
    return (f"{value:.3f}" for value in np.asarray(values).tolist())


def _write_table(path: Path, names: Sequence[str], rows: Iterator[Sequence[object]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    write_text(path, text.getvalue())
