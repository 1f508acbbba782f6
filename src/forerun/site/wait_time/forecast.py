"""Answers: what draws say, corrected by how far they were off for the jobs that started last.

Waits are compared on a logarithmic scale, log10(wait + a minute): being an hour off matters less after a day than after a
minute. An answer is a set of weighted waits. Some of the weight is on the median of the draws plus each recent error of such
medians, apart for an empty machine (where the draws start the job at once) and a busy one, where an error counts in
proportion to the square root of how much the draws differ now and differed then. The rest is on the waits of former jobs
that are alike. How much each has is what did best in the former answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from forerun.cluster.inputs.setting import Window
from forerun.core.errors import TraceError, UsageError
from forerun.core.rng import stream
from forerun.site.history import F64, I64, History, Mask
from forerun.site.inference import KnownAt
from forerun.site.machine import Pool, first_of
from forerun.site.wait_time.alike import Alike
from forerun.site.wait_time.situation import Question, Situation

_DAY_S: Final = 86_400.0
#: quantiles of an answer, and the pairs of them that are its intervals
LEVELS: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
INTERVALS: Final = {0.5: (3, 5), 0.8: (2, 6), 0.9: (1, 7), 0.95: (0, 8)}
#: draws of an answer, and of each former question
DRAWS: Final = 100
PAST_DRAWS: Final = 25
#: fewer former questions with a known start are no base for an answer, nor for one regime apart from the other
LEAST_PAST: Final = 40
#: the former questions looked at, and how many of their errors are used, those that became known last
RECENT: Final = 800
ERRORS: Final = 200
#: the shares of weight on former jobs that are alike; the former answers by whose loss another's is chosen, and how fast
SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
LEARNED: Final = 400
_RATE: Final = 1.0
#: the machine counts as empty where the median draw starts within so many seconds
AT_ONCE_S: Final = 60.0
#: places of equal waits, spread evenly
_GOLDEN: Final = 0.5 * (5.0**0.5 - 1.0)
#: the least spread of draws, on the logarithmic scale
_LEAST_SPREAD: Final = 0.1
#: former answers by which the levels of another are corrected, those of its partition where that has so many, and how many
#: answers that were what they promised count beside them
RELIABLE: Final = 400
LEAST_RELIABLE: Final = 100
_AS_PROMISED: Final = 100
#: the answers whose reliability is reported
JUDGED: Final = 200


def scale(wait_s: ArrayLike) -> F64:
    """Waits in seconds on the logarithmic scale, on which errors are measured."""
    scaled: F64 = np.log10(np.maximum(np.asarray(wait_s, np.float64), 0.0) + 60.0)
    return scaled


def unscale(scaled: ArrayLike) -> F64:
    """Seconds, from the logarithmic scale."""
    wait_s: F64 = np.maximum(10.0 ** np.asarray(scaled, np.float64) - 60.0, 0.0)
    return wait_s


@dataclass(frozen=True, slots=True)
class Distribution:
    """Weighted waits on the logarithmic scale.

    Parameters
    ----------
    points : float64[points], ascending.
    below : float64[points], the weight up to the middle of each, as a share of all.
    """

    points: F64
    below: F64

    @classmethod
    def of(cls, points: F64, weights: F64) -> Distribution:
        """From points in any order."""
        order = np.argsort(points, kind="stable")
        upto = np.cumsum(weights[order])
        return cls(points[order], (upto - 0.5 * weights[order]) / upto[-1])

    def quantiles(self, levels: Sequence[float]) -> F64:
        """float64[levels], on the logarithmic scale."""
        return np.interp(levels, self.below, self.points)

    def mixed(self, other: Distribution, share: float) -> Distribution:
        """With so much of the weight as another one has it, which is of the same points."""
        return replace(self, below=(1.0 - share) * self.below + share * other.below)

    def levels_of(self, wait: float) -> tuple[float, float]:
        """The least and the greatest level at which a wait lies, which differ if several points are equal to it."""
        first = int(np.searchsorted(self.points, wait, "left"))
        last = int(np.searchsorted(self.points, wait, "right")) - 1
        if last <= first:
            at = float(np.interp(wait, self.points, self.below, left=0.0, right=1.0))
            return at, at
        low = float(self.below[first]) if first else 0.0
        return low, float(self.below[last]) if last < len(self.points) - 1 else 1.0

    def corrected(self, reached: F64) -> Distribution:
        """With levels at which so many waits lie as they promise.

        Parameters
        ----------
        reached : float64[answers], the levels at which what came lay in former answers; few of them correct nothing.
        """
        count = len(reached)
        if count < LEAST_PAST:
            return self
        levels = np.array(LEVELS)
        real = (count * np.quantile(reached, levels) + _AS_PROMISED * levels) / (count + _AS_PROMISED)
        ends = np.concatenate([[0.0], real, [1.0]]), np.concatenate([[0.0], levels, [1.0]])
        return replace(self, below=np.interp(self.below, *ends))

    def share_within(self, wait_s: float) -> float:
        """The probability of a wait of at most so many seconds."""
        if wait_s < 0.0:
            return 0.0
        return float(np.interp(scale(wait_s), self.points, self.below, left=0.0, right=1.0))


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions about jobs of the log at their submission, in order, with what the draws said.

    Parameters
    ----------
    at_s, start_s : float64[questions], the submission and the start; nan: not known.
    middle, spread : float64[questions], median and standard deviation of the draws on the logarithmic scale.
    """

    at_s: F64
    start_s: F64
    middle: F64
    spread: F64

    @property
    def empty(self) -> Mask:
        """bool[questions], whether the machine counted as empty."""
        return np.asarray(self.middle <= scale(AT_ONCE_S))

    def wait(self) -> F64:
        """float64[questions], what came, on the logarithmic scale."""
        return np.where(np.isnan(self.start_s), np.nan, scale(self.start_s - self.at_s))

    def known_at(self, at_s: float, before: int) -> I64:
        """Of the last questions before one, those whose start is known at an instant, the latest known last."""
        first = max(before - RECENT, 0)
        known = first + np.flatnonzero(self.start_s[first:before] <= at_s)
        return known[np.argsort(self.start_s[known], kind="stable")]


def calibrated(
    asked: Asked, before: int, at_s: float, middle: float, spread: float, alike: tuple[F64, F64]
) -> tuple[Distribution, Distribution] | None:
    """Two answers to a question, of the same points: by errors, and by jobs that are alike. None: too few are known.

    Parameters
    ----------
    asked : questions; those before number `before` are former ones.
    before : how many.
    at_s : the instant of the question.
    middle, spread : what the draws say, as in `Asked`.
    alike : waits in seconds of former jobs, and how alike they are.
    """
    known = asked.known_at(at_s, before)
    if len(known) < LEAST_PAST:
        return None
    empty = bool(middle <= scale(AT_ONCE_S))
    same = known[asked.empty[known] == empty]
    errors_of = (same if len(same) >= LEAST_PAST else known)[-ERRORS:]
    errors = asked.wait()[errors_of] - asked.middle[errors_of]
    if not empty:
        errors = errors * np.sqrt(spread / asked.spread[errors_of])
    points = np.concatenate([np.maximum(middle + errors, scale(0.0)), scale(alike[0])])
    by_errors = np.append(np.full(len(errors), 1.0 / len(errors)), np.zeros(len(alike[0])))
    by_alike = np.append(np.zeros(len(errors)), alike[1]) if len(alike[0]) else by_errors
    return Distribution.of(points, by_errors), Distribution.of(points, by_alike)


def middle_and_spread(draws: F64) -> tuple[float, float]:
    """Median and standard deviation of draws on the logarithmic scale; the latter has a least value."""
    return float(np.median(draws)), max(float(draws.std()), _LEAST_SPREAD)


class Forecaster:
    """Asks when jobs start, at any instant of a log, each time as of that instant.

    Parameters
    ----------
    log : the history.
    seed : of the draws.
    windows : maintenance that is announced (default: none); beside it only what comes back regularly is expected.
    partition : the pool is this partition's (default: partitions and sizes of jobs tell pools apart).
    gpus : of the pool (default 0: what was in use).

    Raises UsageError for a partition that the log does not have, TraceError for a log without requested times.
    """

    def __init__(
        self,
        log: History,
        *,
        seed: int = 0,
        windows: Sequence[Window] = (),
        partition: str = "",
        gpus: int = 0,
    ) -> None:
        if not np.isfinite(log.requested_s).any():
            what = "no job has a requested time, without which nobody knows what the scheduler plans with"
            raise TraceError.at(log.source, f"{what}; `--columns requested_s=NAME` names its column")
        if partition and partition not in log.partition.names:
            known = ", ".join(log.partition.names) or "none"
            raise UsageError.at("--job", f"the log has no partition {partition!r}; known: {known}")
        self.log, self.seed, self.windows = log, seed, tuple(windows)
        self.partition, self.gpus = partition, gpus
        self._days: dict[int, tuple[tuple[Pool, ...], float]] = {}
        self._asked: dict[int, tuple[float, float]] = {}
        self._of: dict[tuple[tuple[tuple[str, int], ...], int], tuple[I64, Alike]] = {}

    def _day(self, at_s: float) -> tuple[tuple[Pool, ...], float]:
        """The pools, and from when on the log is complete, by what was known when the day began."""
        day = int(np.floor(at_s / _DAY_S))
        if day not in self._days:
            inference = KnownAt(day * _DAY_S)
            known = inference.seen(self.log)
            pools = (Pool(name=self.partition, nodes=1, partition=self.partition),)
            self._days[day] = pools if self.partition else inference.pools(known)[0], known.complete_from_s
        return self._days[day]

    def _pool(self, question: Question) -> tuple[tuple[Pool, ...], int]:
        """The pools that were known when the day began, and which of them a job is in."""
        pools, ours = self._day(question.at_s)[0], question.partition
        takes = [
            ours in one.partition.split(",")
            if one.partition and not self.partition
            else question.gpus <= (one.most_gpus or question.gpus)
            for one in pools
        ]
        return pools, takes.index(True) if any(takes) else len(pools) - 1

    def apart(self, at_s: float) -> tuple[str, ...]:
        """The partitions with GPUs of their own, by what was known when the day began; none if one was chosen."""
        return () if self.partition else tuple(one.partition for one in self._day(at_s)[0] if one.partition)

    def pool(self, question: Question) -> str:
        """The pool of a job, by what was known when the day began, in words."""
        pools, number = self._pool(question)
        if name := self.partition or pools[number].partition:
            return f"partition {name}"
        if len(pools) == 1:
            return f"all {self.log.unit}"
        if pools[0].partition:
            return "the other partitions"
        most = pools[0].most_gpus
        return (
            f"jobs of {most + 1} {self.log.unit} and more"
            if number
            else f"jobs of up to {most} {self.log.unit}"
        )

    def _jobs(self, question: Question) -> tuple[I64, Alike]:
        """The jobs of the pool of one."""
        pools, number = self._pool(question)
        key = tuple((one.partition, one.most_gpus) for one in pools), number
        if key not in self._of:
            of = first_of([pool.takes(self.log) for pool in pools])
            rows = np.flatnonzero(of == number)
            self._of[key] = rows, Alike(self.log.of(rows))
        return self._of[key]

    def _there(self, question: Question, before: int | None) -> int:
        """How many jobs of the pool of one are there; as `situation` takes them."""
        came = int(np.searchsorted(self.log.submit_s, question.at_s, side="right"))
        return int(np.searchsorted(self._jobs(question)[0], came if before is None else min(came, before)))

    def alike(self, question: Question, before: int | None = None) -> tuple[F64, F64]:
        """The last waits in seconds of the pool's jobs, and how alike each job is to the one in question, in sum 1."""
        there, since_s = self._there(question, before), self._day(question.at_s)[1]
        return self._jobs(question)[1].waits_s(question, there, since_s)

    def known(self, question: Question, before: int | None = None) -> History:
        """The jobs of the pool of one, as of its instant; as `situation` takes them."""
        rows, at_s = self._jobs(question)[0][: self._there(question, before)], question.at_s
        return replace(self.log.of(rows).until(at_s), complete_from_s=self._day(at_s)[1])

    def situation(self, question: Question, before: int | None = None) -> Situation:
        """The queue at the instant of a question.

        Parameters
        ----------
        question : what is asked.
        before : only the first so many jobs of the log are there (default: all that have been submitted).
        """
        at_s = question.at_s
        known = self.known(question, before)
        inference = KnownAt(at_s)
        gpus = self.gpus or inference.gpus(known)[0]
        whole = max(gpus, int(known.gpus.max(initial=0)))
        return Situation(known, question, gpus, (*self.windows, *inference.windows(known, whole)))

    def rng(self, question: Question) -> np.random.Generator:
        """The random stream of a question, which depends on nothing but the seed and the question."""
        instant = f"{question.at_s + self.log.origin_s:.3f}"
        return stream(self.seed, "wait-time", instant, question.gpus, f"{question.requested_s:.3f}")

    def ask(self, rows: I64, said: Callable[[int], None] = lambda _: None) -> Asked:
        """Ask about jobs of the log at their submission.

        Parameters
        ----------
        rows : int64[questions], ascending.
        said : gets how many are done.
        """
        log = self.log
        middle, spread = np.empty(len(rows)), np.empty(len(rows))
        for k, row in enumerate(rows.tolist()):
            if row not in self._asked:
                situation = self.situation(self.question_of(row), row)
                draws = situation.draw(self.rng(situation.question), PAST_DRAWS)
                self._asked[row] = middle_and_spread(scale(situation.waits_s(draws)))
            middle[k], spread[k] = self._asked[row]
            said(k + 1)
        return Asked(log.submit_s[rows], log.start_s[rows], middle, spread)

    def code_of(self, question: Question) -> int:
        """The number of a job's partition in the log; -1: not known."""
        names = self.log.partition.names
        return names.index(question.partition) if question.partition in names else -1

    def question_of(self, row: int) -> Question:
        """The question at the submission of a job of the log."""
        log = self.log
        requested_s = float(log.requested_s[row])
        if np.isnan(requested_s):
            requested_s = float(log.of(slice(row + 1)).request_s(longest_s=_DAY_S)[-1])
        code = int(log.partition.codes[row])
        partition = log.partition.names[code] if code >= 0 else ""
        return Question(float(log.submit_s[row]), int(log.gpus[row]), requested_s, partition)

    def rows_like(self, question: Question) -> I64:
        """The jobs of the pool of one that were submitted before its instant and since the log is complete."""
        rows, at_s = self._jobs(question)[0], question.at_s
        submit_s = self.log.submit_s[rows]
        return rows[(submit_s >= self._day(at_s)[1]) & (submit_s <= at_s)]


def pinball(quantiles: F64, wait: ArrayLike) -> F64:
    """float64[answers], the mean over the levels; nan without an answer or a start.

    Parameters
    ----------
    quantiles : float64[answers, levels].
    wait : float64[answers], what came, or one for all.
    """
    levels = np.array(LEVELS)
    error = np.asarray(wait)[..., None] - quantiles
    loss: F64 = np.maximum(levels * error, (levels - 1.0) * error).mean(axis=-1)
    return loss


class Answers:
    """The answers to questions about jobs of a log, each from those before it.

    Parameters
    ----------
    forecaster : who asked.
    rows, asked : the questions, and what the draws said.

    Attributes
    ----------
    forecasts : of each question, before its levels are corrected; None: there is no answer.
    losses : float64[questions, shares], of an answer with each of `SHARES`; nan: not known, or there is none.
    reached : float64[questions], a level at which what came lies in it, of several by turns; nan likewise.
    """

    def __init__(self, forecaster: Forecaster, rows: I64, asked: Asked) -> None:
        self.asked, self.partition = asked, forecaster.log.partition.codes[rows]
        self.forecasts: list[Distribution | None] = []
        self.losses = np.full((len(rows), len(SHARES)), np.nan)
        self.reached = np.full(len(rows), np.nan)
        for number, (row, wait) in enumerate(zip(rows.tolist(), asked.wait().tolist(), strict=True)):
            question = forecaster.question_of(row)
            middle, spread = float(asked.middle[number]), float(asked.spread[number])
            alike = forecaster.alike(question, row)
            pair = calibrated(asked, number, question.at_s, middle, spread, alike)
            forecast = None if pair is None else self.weighed(pair, question.at_s, number)
            self.forecasts.append(forecast)
            if pair is not None and forecast is not None and np.isfinite(wait):
                each = np.array([pair[0].mixed(pair[1], share).quantiles(LEVELS) for share in SHARES])
                self.losses[number] = pinball(each, wait)
                low, high = forecast.levels_of(wait)
                self.reached[number] = low + number * _GOLDEN % 1.0 * (high - low)

    def weighed(self, pair: tuple[Distribution, Distribution], at_s: float, before: int) -> Distribution:
        """An answer with the share of each kind that did best in former answers. Parameters as for `calibrated`."""
        known = self.asked.known_at(at_s, before)
        losses = self.losses[known[np.isfinite(self.losses[known, 0])][-LEARNED:]].sum(axis=0)
        weights = np.exp(_RATE * (losses.min() - losses))
        return pair[0].mixed(pair[1], float(weights @ SHARES / weights.sum()))

    def corrected(self, forecast: Distribution, at_s: float, before: int, partition: int) -> Distribution:
        """A forecast with its levels corrected by the former answers that are known.

        Parameters
        ----------
        forecast : of the job.
        at_s : the instant of the question.
        before : questions that were asked before.
        partition : of the job, its number in the log; below 0: not known.
        """
        known = self.asked.known_at(at_s, before)
        known = known[np.isfinite(self.reached[known])]
        mine = known[self.partition[known] == partition]
        some = mine if len(mine) >= LEAST_RELIABLE else known
        return forecast.corrected(self.reached[some[-RELIABLE:]])

    def given(self, number: int) -> Distribution | None:
        """The answer to a question; None: there is none."""
        forecast = self.forecasts[number]
        if forecast is None:
            return None
        return self.corrected(forecast, float(self.asked.at_s[number]), number, int(self.partition[number]))

    def quantiles(self, which: I64) -> F64:
        """float64[which, levels], the answers to some questions; nan: none. which: their numbers."""
        given = (self.given(number) for number in which.tolist())
        none = np.full(len(LEVELS), np.nan)
        return np.array([none if one is None else one.quantiles(LEVELS) for one in given])

    def levels(self, which: I64) -> F64:
        """float64[which, 2], the least and the greatest level at which what came lies; nan: not known."""
        wait = self.asked.wait()
        levels = np.full((len(which), 2), np.nan)
        for k, number in enumerate(which.tolist()):
            given = self.given(number)
            if given is not None and np.isfinite(wait[number]):
                levels[k] = given.levels_of(float(wait[number]))
        return levels
