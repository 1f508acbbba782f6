"""Asks at every submission of a log, in order, and scores the answers when the jobs start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.result.numbers import format_number
from forerun.core.rng import stream
from forerun.core.version import VERSION
from forerun.site.history import F64, I64
from forerun.site.wait_time import forecast as fc
from forerun.site.wait_time import reference
from forerun.site.wait_time.answer import Covered, covered, inside_of, share_up_to
from forerun.site.wait_time.situation import Question

_DAY_S: Final = 86_400.0
#: a week from the log's first complete instant on: the draws need days to take arrivals from
BEGIN_S: Final = 7 * _DAY_S
FORTNIGHT_S: Final = 14 * _DAY_S
#: differences of errors are resampled in blocks of so many days, as neighbours are alike
BLOCK_DAYS: Final = 3.0
RESAMPLES: Final = 2000
_CONFIDENCE: Final = 0.95
#: an interval is what it promises if it contains the start this nearly as often, beside what chance explains
OFF: Final = 0.03
#: a partition whose answers are looked at by themselves has so many
OF_A_PARTITION: Final = 500


@dataclass(frozen=True, slots=True)
class Part:
    """How answers did in a part of them.

    Parameters
    ----------
    name : of the part.
    day : when it begins, in days since the log is complete; nan: it is no stretch of time.
    covered : how often each interval contained the start.
    errors : by interval, two standard errors of that share, from blocks of days.
    widths : by interval, its mean width on the scale log10(wait + a minute): 1 is a factor of ten.
    pinball, history, bounds : mean pinball loss of the answers, of the best class history, and of the bounds.
    """

    name: str
    day: float
    covered: Covered
    errors: dict[float, float]
    widths: dict[float, float]
    pinball: float
    history: float
    bounds: float

    @property
    def good(self) -> bool:
        """Whether intervals contain what they promise or more, and the loss, which counts widths, is below the history's."""
        return self.pinball < self.history and all(off >= -most for off, most in self.off)

    @property
    def off(self) -> tuple[tuple[float, float], ...]:
        """By promised share, how much more than that intervals contain, and by how much they may be off."""
        shares = self.covered.shares
        return tuple((shares[one] - one, OFF + error) for one, error in self.errors.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class BackTest:
    """How the answers at the submissions of a log did.

    Pinball losses are means over the levels of an answer, on the scale log10(wait + a minute).

    Parameters
    ----------
    source, sha256 : the log.
    pool : whose jobs were asked about, in words.
    asked, unanswered, unknown : jobs asked about; of these, without an answer, as too few had started before; and answered,
        with a start that the log does not tell.
    whole : all answers; regimes, partitions, fortnights : parts of them.
    best : the class history with the least loss, chosen afterwards.
    difference : mean loss of the answers less that of the best class history, and its confidence interval.
    reached : by level, the share of answers whose quantile was not exceeded, over all, then by regime.
    """

    source: str
    sha256: str
    pool: str
    asked: int
    unanswered: int
    unknown: int
    whole: Part
    regimes: tuple[Part, ...]
    partitions: tuple[Part, ...]
    fortnights: tuple[Part, ...]
    best: str
    difference: tuple[float, float, float]
    reached: dict[str, dict[float, float]]

    @property
    def ratio(self) -> float:
        """Loss of the answers over that of the best class history."""
        return self.whole.pinball / self.whole.history

    @property
    def why(self) -> str:
        """The result in a sentence."""
        shares = ", ".join(
            f"{share:.0%} at {promised:.0%}" for promised, share in self.whole.covered.shares.items()
        )
        _, low, high = self.difference
        clear = "less" if high < 0 else "more" if low > 0 else "not clearly different"
        return (
            f"of {self.whole.covered.answers} answers the intervals contained the start {shares}; their loss is "
            f"{self.ratio:.2f} of that of the best class history ({clear})"
        )

    def data(self) -> dict[str, Any]:
        """The back-test as the content of a measurement file, which `forerun report` shows."""
        difference, low, high = self.difference
        return {
            "format": "forerun.measurement/1",
            "domain": "cluster",
            "forerun": VERSION,
            "what": "wait-time",
            "answer": self.why,
            "notes": [
                "loss: pinball loss, mean over the quantiles of an answer, on the scale log10(wait + a minute)",
                "width: mean width of an interval on that scale, on which 1 is a factor of ten",
                f"best class history, chosen afterwards: {self.best}",
                f"difference of losses: {format_number(difference)}, 95 % interval {format_number(low)} to "
                f"{format_number(high)}, from blocks of {BLOCK_DAYS:g} days",
                "bounds: upper bounds on the quantiles with 95 % confidence, as QBETS makes them",
            ],
            "log": self.source,
            "log digest": self.sha256,
            "pool": self.pool,
            "jobs asked about": self.asked,
            "without an answer": self.unanswered,
            "start not known": self.unknown,
            "loss": self.whole.pinball,
            "loss of the best class history": self.whole.history,
            "loss of the bounds": self.whole.bounds,
            "loss over that of the best class history": self.ratio,
            "coverage": [_row(part) for part in (self.whole, *self.regimes, *self.partitions)],
            "fortnights": [{"day": part.day, **_row(part)} for part in self.fortnights],
            "reached": [
                {"answers": name, "level": level, "share": share}
                for name, levels in self.reached.items()
                for level, share in levels.items()
            ],
        }


def _row(part: Part) -> dict[str, Any]:
    return {
        "part": part.name,
        "answers": part.covered.answers,
        **{f"within {promised:.0%}": share for promised, share in part.covered.shares.items()},
        **{f"two standard errors at {promised:.0%}": error for promised, error in part.errors.items()},
        **{f"width at {promised:.0%}": width for promised, width in part.widths.items()},
        "loss": part.pinball,
        "class history": part.history,
        "bounds": part.bounds,
    }


def back_test(
    forecaster: fc.Forecaster,
    *,
    every: int = 1,
    most: int = 0,
    said: Callable[[int, int], None] = lambda done, of: None,
) -> BackTest:
    """Ask about the jobs of the largest pool of a log at their submissions.

    Parameters
    ----------
    forecaster : of the log.
    every : ask about each so manieth job only (default: all).
    most : ask about the last so many only (default 0: all).
    said : gets how many have been asked about, and of how many.

    Raises TraceError where too few jobs can be asked about.
    """
    log = forecaster.log
    work = np.nan_to_num(log.run_s) * log.gpus
    code = int(np.bincount(log.partition.codes + 1, work).argmax()) - 1
    busiest = log.partition.names[code] if code >= 0 else ""
    largest = Question(log.last_s, int(log.gpus.max()), 1.0, busiest)
    pool, jobs = forecaster.pool(largest), forecaster.rows_like(largest)
    rows = jobs[log.submit_s[jobs] >= log.complete_from_s + BEGIN_S][::every][-most:]
    asked = forecaster.ask(rows, lambda done: said(done, len(rows)))
    answers, every_one = fc.Answers(forecaster, rows, asked), np.arange(len(rows))
    quantiles, levels = answers.quantiles(every_one), answers.levels(every_one)
    wait = asked.wait()
    answered = np.isfinite(quantiles[:, 0])
    scored = np.flatnonzero(answered & np.isfinite(wait))
    if len(scored) < fc.LEAST_PAST:
        what = f"{len(scored)} answers can be scored, of {len(rows)} jobs asked about; {fc.LEAST_PAST} are needed"
        raise TraceError.at(log.source, what)
    loss = fc.pinball(quantiles, wait)[scored]
    histories = {
        name: fc.pinball(q, wait)[scored] for name, q in reference.class_histories(log, jobs, rows).items()
    }
    best = min(histories, key=lambda name: float(np.nanmean(histories[name])))
    history = histories[best]
    bounds = fc.pinball(reference.qbets(log, jobs, rows), wait)[scored]

    def part(name: str, among: I64, day: float = np.nan) -> Part:
        means = (float(np.nanmean(values[among])) for values in (loss, history, bounds))
        those = levels[scored[among]]
        inside = inside_of(those)
        errors = {one: _two_errors(good, at_s[among], forecaster.seed) for one, good in inside.items()}
        answer = quantiles[scored[among]]
        widths = {
            one: float((answer[:, high] - answer[:, low]).mean()) for one, (low, high) in fc.INTERVALS.items()
        }
        return Part(name, day, covered(those), errors, widths, *means)

    empty, at_s, of = asked.empty[scored], asked.at_s[scored], log.partition.codes[rows[scored]]
    everything = np.arange(len(scored))
    regimes = {
        name: np.flatnonzero(mask)
        for name, mask in (("busy machine", ~empty), ("empty machine", empty))
        if mask.any()
    }
    number = np.floor((at_s - log.complete_from_s) / FORTNIGHT_S).astype(np.int64)
    fortnights = []
    for k in np.unique(number).tolist():
        begins_s = log.origin_s + log.complete_from_s + k * FORTNIGHT_S
        date = np.datetime64(int(begins_s), "s").astype("datetime64[D]")
        fortnights.append(part(f"from {date}", np.flatnonzero(number == k), k * FORTNIGHT_S / _DAY_S))
    return BackTest(
        source=log.source,
        sha256=log.sha256,
        pool=pool,
        asked=len(rows),
        unanswered=int(np.count_nonzero(~answered)),
        unknown=int(np.count_nonzero(answered & np.isnan(wait))),
        whole=part("all", everything),
        regimes=tuple(part(name, among) for name, among in regimes.items()),
        partitions=tuple(
            part(f"partition {name}", np.flatnonzero(of == number))
            for number, name in enumerate(log.partition.names)
            if OF_A_PARTITION <= np.count_nonzero(of == number) < len(scored)
        ),
        fortnights=tuple(fortnights),
        best=best,
        difference=block_interval(loss - history, at_s, forecaster.seed),
        reached={
            name: {level: float(share_up_to(levels[scored[among]], level).mean()) for level in fc.LEVELS}
            for name, among in {"all": everything, **regimes}.items()
        },
    )


def _two_errors(inside: F64, at_s: F64, seed: int) -> float:
    """Two standard errors of the share of intervals that contained the start."""
    _, low, high = block_interval(inside, at_s, seed)
    return 0.5 * (high - low)


def block_interval(difference: F64, at_s: F64, seed: int) -> tuple[float, float, float]:
    """The mean of differences, and the ends of its confidence interval by the moving-block bootstrap.

    Parameters
    ----------
    difference : float64[answers], in order; nan: left out.
    at_s : float64[answers], when.
    seed : of the resampling.
    """
    known = np.isfinite(difference)
    difference, at_s = difference[known], at_s[known]
    count = len(difference)
    days = max(float(at_s[-1] - at_s[0]) / _DAY_S, 1.0)
    length = int(np.clip(round(count * BLOCK_DAYS / days), 1, count))
    blocks = -(-count // length)
    sums = np.concatenate([np.zeros(1), np.cumsum(difference)])
    rng = stream(seed, "wait-time differences")
    first = rng.integers(0, count - length + 1, (RESAMPLES, blocks))
    means = (sums[first + length] - sums[first]).sum(axis=1) / (blocks * length)
    tail = 0.5 * (1.0 - _CONFIDENCE)
    low, high = np.quantile(means, [tail, 1.0 - tail]).tolist()
    return float(difference.mean()), low, high
