"""One answer: when a job would start, what it would wait for, and how reliable such answers were lately."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from forerun.site.history import F64
from forerun.site.kernels.play_on import KEPT_BACK, Draws
from forerun.site.wait_time import forecast as fc
from forerun.site.wait_time.classes import class_name
from forerun.site.wait_time.situation import Question, Situation

#: what is added from one line to the next of what a job waits for
CAUSES: Final = (
    "running jobs to end",
    "and jobs that wait already",
    "and jobs that come later",
    "and maintenance",
    "and as such forecasts were off",
)


@dataclass(frozen=True, slots=True)
class Covered:
    """How often intervals contained the start.

    Parameters
    ----------
    answers : how many answers are looked at.
    shares : by what the interval promises, how many did.
    """

    answers: int
    shares: dict[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolThen:
    """A pool at an instant.

    Parameters
    ----------
    name : whose GPUs, in words.
    unit : what jobs hold.
    gpus, free_gpus : in all, and free, in that unit.
    running_jobs, waiting_jobs : how many.
    kept_back_jobs : waiting ones that were passed over so often that something must keep them back.
    """

    name: str
    unit: str
    gpus: int
    free_gpus: int
    running_jobs: int
    waiting_jobs: int
    kept_back_jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartForecast:
    """When a job would start.

    Parameters
    ----------
    question : what was asked.
    at_s : when, in seconds since 1970.
    pool : whose nodes it needs.
    job_class : of the job, in words.
    empty : whether the draws start it at once.
    past : how many former questions with a known start there are.
    waits_s : by level, quantiles of the wait; empty: no answer.
    by_s, by_share : a wait, and the probability to start within it; None: not asked, or no answer.
    medians_s : by cause, the median wait if what stands in the lines so far were all.
    covered : the last answers, known by now; None: no answer.
    """

    question: Question
    at_s: float
    pool: PoolThen
    job_class: str
    empty: bool
    past: int
    waits_s: dict[float, float]
    by_s: float | None
    by_share: float | None
    medians_s: dict[str, float]
    covered: Covered | None

    @property
    def known(self) -> bool:
        """Whether there is an answer."""
        return bool(self.waits_s)

    def data(self) -> dict[str, Any]:
        """The answer as plain data."""
        return {
            "at_unix_s": self.at_s,
            "job": {
                self.pool.unit.lower(): self.question.gpus,
                "requested_s": self.question.requested_s,
                "class": self.job_class,
            },
            "pool": asdict(self.pool),
            "answer": self.known,
            "past_questions": self.past,
            "wait_quantiles_s": {f"{level:g}": wait_s for level, wait_s in self.waits_s.items()},
            "by": None if self.by_s is None else {"wait_s": self.by_s, "probability": self.by_share},
            "median_wait_s": self.medians_s,
            "reliability": None
            if self.covered is None
            else {
                "answers": self.covered.answers,
                "covered": {f"{level:g}": share for level, share in self.covered.shares.items()},
            },
        }


def answer(
    forecaster: fc.Forecaster,
    question: Question,
    by_s: float | None = None,
    *,
    most: int = fc.RECENT,
    said: Callable[[int, int], None] = lambda done, of: None,
) -> StartForecast:
    """When a job would start that is submitted at an instant.

    Parameters
    ----------
    forecaster : of the log.
    question : about the job.
    by_s : the probability to start within so many seconds is wanted, too (default: it is not).
    most : former questions that are asked (default: all that are used).
    said : gets how many former questions have been asked, and of how many.
    """
    situation = forecaster.situation(question)
    rows = forecaster.rows_like(question)[-most:]
    asked = forecaster.ask(rows, lambda done: said(done, len(rows)))
    draws = situation.draw(forecaster.rng(question), fc.DRAWS)
    waits = fc.scale(situation.waits_s(draws))
    middle, spread = fc.middle_and_spread(waits)
    answers = fc.Answers(forecaster, rows, asked)
    pair = fc.calibrated(asked, len(rows), question.at_s, middle, spread, forecaster.alike(question))
    calibrated = None
    if pair is not None:
        calibrated = answers.weighed(pair, question.at_s, len(rows))
        code = forecaster.code_of(question)
        calibrated = answers.corrected(calibrated, question.at_s, len(rows), code)
    causes = _causes(situation, draws, float(fc.unscale(middle)))
    queue = situation.queue
    return StartForecast(
        question=question,
        at_s=question.at_s + forecaster.log.origin_s,
        pool=PoolThen(
            name=forecaster.pool(question),
            unit=forecaster.log.unit,
            gpus=int(queue.gpus[0]),
            free_gpus=situation.free_gpus,
            running_jobs=len(queue.running_gpus),
            waiting_jobs=len(queue.waiting_gpus) - 1,
            kept_back_jobs=int(np.count_nonzero(situation.kept_back)),
        ),
        job_class=class_name(question.gpus, question.requested_s, forecaster.log.unit),
        empty=bool(middle <= fc.scale(fc.AT_ONCE_S)),
        past=len(asked.known_at(question.at_s, len(rows))),
        waits_s={}
        if calibrated is None
        else dict(zip(fc.LEVELS, fc.unscale(calibrated.quantiles(fc.LEVELS)).tolist(), strict=True)),
        by_s=by_s,
        by_share=None if calibrated is None or by_s is None else calibrated.share_within(by_s),
        medians_s={}
        if calibrated is None
        else dict(zip(CAUSES, [*causes, float(fc.unscale(calibrated.quantiles([0.5]))[0])], strict=True)),
        covered=None if calibrated is None else _covered(answers, question.at_s),
    )


def _causes(situation: Situation, draws: Draws, all_s: float) -> list[float]:
    """Median waits in seconds in the same draws, with more and more of what there is to wait for."""
    nobody = np.full_like(draws.waiting_work_s, KEPT_BACK)
    nobody[:, -1] = draws.waiting_work_s[:, -1]
    none = draws.block_first[:, :0]
    alone = draws._replace(block_first=none, block_last=none, block_shift_s=draws.block_shift_s[:, :0])
    parts = [
        situation.waits_s(alone._replace(waiting_work_s=nobody), windows=False),
        situation.waits_s(alone, windows=False),
    ]
    medians = [float(np.median(waits_s)) for waits_s in parts]
    if situation.windows:
        medians.append(float(np.median(situation.waits_s(draws, windows=False))))
    else:
        medians.append(all_s)
    return [*medians, all_s]


def _covered(answers: fc.Answers, at_s: float) -> Covered:
    """The last answers whose jobs have started by an instant, each as it was given."""
    asked = answers.asked
    judged = np.sort(asked.known_at(at_s, len(asked.at_s))[-fc.JUDGED :])
    return covered(answers.levels(judged))


def covered(levels: F64) -> Covered:
    """How many intervals contained what came.

    Parameters
    ----------
    levels : float64[answers, 2], the least and the greatest level at which what came lies in each; nan: not known.
    """
    levels = levels[np.isfinite(levels[:, 0])]
    count, inside = len(levels), inside_of(levels)
    return Covered(
        count, {promised: float(good.mean()) if count else np.nan for promised, good in inside.items()}
    )


def inside_of(levels: F64) -> dict[float, F64]:
    """By what each interval promises, float64[answers], how much of what came it contained; as for `covered`.

    If an answer gives what came a probability of its own, as it does to no wait at all on an empty machine, the part of its
    levels that lies within the interval counts: else an interval that is as wide as it should be would seem too wide.
    """
    ends = {promised: (fc.LEVELS[low], fc.LEVELS[high]) for promised, (low, high) in fc.INTERVALS.items()}
    return {
        promised: share_up_to(levels, high) - share_up_to(levels, low)
        for promised, (low, high) in ends.items()
    }


def share_up_to(levels: F64, level: float) -> F64:
    """float64[answers], the part of the levels at which what came lies that is not above one; as for `covered`."""
    low, high = levels.T
    part: F64 = np.clip((level - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    return np.where(high > low, part, low <= level)
