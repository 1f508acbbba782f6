"""The queue at an instant, and how it may go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.queue_arrays import anywhere, blank_queue
from forerun.cluster.inputs.setting import Window
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.wfp3 import Wfp3
from forerun.site.cases import overtakings
from forerun.site.history import F64, History
from forerun.site.kernels import play_on as kernel
from forerun.site.wait_time.classes import request_class

_HOUR_S: Final = 3600.0
_DAY_S: Final = 24 * _HOUR_S
#: draws end so long after the question; a later start counts as one then
HORIZON_S: Final = 14 * _DAY_S
#: later arrivals are those of former days, each drawn from the last six weeks
BLOCK_S: Final = _DAY_S
ARRIVALS_S: Final = 42 * _DAY_S
#: run times are drawn from so many jobs of the class that ended last, or of all classes where it has fewer than the least
RUNS: Final = 300
LEAST_RUNS: Final = 20
#: a job that so many were preferred to, each of them below it in every order and harder to place, is kept back in half of
#: the draws: the log does not say by what, nor until when
MISSES: Final = 3
#: only starts of the last week are looked at
MISSES_S: Final = 7 * _DAY_S
#: seconds by which a job is believed to go on that has outlived its request, and by which it goes on at most, where no
#: former one ever did
GRACE_S: Final = 60.0
LATEST_S: Final = 300.0
#: half of the draws for each: no log can tell orders of the queue apart
ORDERS: Final = (Fcfs.number, Wfp3.number)
#: EASY on GPUs of the pool, wherever they are
TERMS: Final = qs.Terms(rule=qs.ONCE, promises=1, grace_s=GRACE_S)
#: later arrivals of one draw
_MOST_ARRIVALS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Question:
    """When does a job start that is submitted at an instant?

    Parameters
    ----------
    at_s : the instant, on the history's clock.
    gpus : that it asks for, in the unit of the log.
    requested_s : its time limit.
    partition : that it is submitted to (default: not said).
    """

    at_s: float
    gpus: int
    requested_s: float
    partition: str = ""


class Situation:
    """The queue of a pool at an instant.

    Parameters
    ----------
    known : the jobs of the pool, as of the instant.
    question : about one more job, submitted at that instant.
    gpus : of the pool.
    windows : maintenance; what has not been announced is not used.
    """

    def __init__(self, known: History, question: Question, gpus: int, windows: Sequence[Window]) -> None:
        now_s = question.at_s
        self.question, self.known = question, known
        self.windows = [w for w in windows if w.announced_s <= now_s < w.to_s]
        requested_s = known.request_s(longest_s=question.requested_s)
        running = np.flatnonzero(known.running_at(now_s))
        waiting = np.flatnonzero(known.waiting_at(now_s))
        self.kept_back = overtakings(known, requested_s, 0.0, now_s - MISSES_S)[1][waiting] >= MISSES
        self._ratios = _Ratios(known, requested_s)
        past = np.flatnonzero(
            (known.submit_s >= max(known.complete_from_s, now_s - ARRIVALS_S))
            & (known.started | np.isnan(known.end_s))
        )
        ran_s = known.run_s[past]
        unknown = np.isnan(ran_s)
        ran_s[unknown] = self._ratios.middle(requested_s[past[unknown]]) * requested_s[past[unknown]]
        held = int(known.gpus[running].sum())
        self.free_gpus = max(gpus - held, 0)
        self.queue = kernel.Queue(
            now_s=np.array([now_s]),
            gpus=np.array([max(gpus, held, question.gpus)], np.int64),
            running_gpus=known.gpus[running],
            running_start_s=known.start_s[running],
            running_request_s=requested_s[running],
            waiting_gpus=np.append(known.gpus[waiting], np.int64(question.gpus)),
            waiting_submit_s=np.append(known.submit_s[waiting], now_s),
            waiting_request_s=np.append(requested_s[waiting], max(question.requested_s, 1.0)),
            past_gpus=known.gpus[past],
            past_submit_s=known.submit_s[past],
            past_request_s=requested_s[past],
            past_work_s=ran_s,
        )

    def draw(self, rng: np.random.Generator, draws: int) -> kernel.Draws:
        """Run times, later arrivals and who is kept back, so many times."""
        queue, now_s = self.queue, self.question.at_s
        elapsed = (now_s - queue.running_start_s) / queue.running_request_s
        running = rng.random((draws, len(queue.running_gpus)))
        ratio = self._ratios.draw(queue.running_request_s, elapsed, running)
        end_s = queue.running_start_s + ratio * queue.running_request_s
        waiting = rng.random((draws, len(queue.waiting_gpus)))
        work_s = self._ratios.draw(queue.waiting_request_s, np.zeros(waiting.shape[1]), waiting)
        work_s = np.maximum(work_s * queue.waiting_request_s, 1.0)
        back = np.append(self.kept_back, False) & (rng.random(waiting.shape) < 0.5)
        begin_s = max(self.known.complete_from_s, now_s - ARRIVALS_S)
        days = int((now_s - begin_s) // BLOCK_S)
        blocks = int(HORIZON_S / BLOCK_S) if days else 0
        from_s = now_s - (1 + rng.integers(0, max(days, 1), (draws, blocks))) * BLOCK_S
        return kernel.Draws(
            running_end_s=np.maximum(end_s, now_s + 1.0),
            waiting_work_s=np.where(back, kernel.KEPT_BACK, work_s),
            block_first=np.searchsorted(queue.past_submit_s, from_s),
            block_last=np.searchsorted(queue.past_submit_s, from_s + BLOCK_S),
            block_shift_s=now_s + BLOCK_S * np.arange(blocks) - from_s,
        )

    def waits_s(self, draws: kernel.Draws, *, windows: bool = True) -> F64:
        """float64[draws], how long the job waits in each draw, at most the horizon.

        Parameters
        ----------
        draws : what `draw` returned, or a part of it.
        windows : whether there is maintenance.
        """
        until_s = self.question.at_s + HORIZON_S
        arrays, begun = self.arrays(draws, self.windows if windows else ())
        start_s = np.empty(len(draws.running_end_s))
        share = -(-len(start_s) // len(ORDERS))
        for k, order in enumerate(ORDERS):
            part = slice(k * share, (k + 1) * share)
            some = draws._replace(**{name: column[part] for name, column in draws._asdict().items()})
            terms = TERMS._replace(order=order)
            kernel.play_on(arrays, terms, self.queue, some, begun, until_s, start_s[part])
        waits_s: F64 = np.minimum(start_s - self.question.at_s, HORIZON_S)
        return waits_s

    def arrays(self, draws: kernel.Draws, windows: Sequence[Window]) -> tuple[qs.Queue, kernel.Begun]:
        """Arrays for the queue to work in, reused by all draws."""
        queue, now_s = self.queue, self.question.at_s
        coming = (draws.block_last - draws.block_first).sum(axis=1).max(initial=0)
        jobs = len(queue.running_gpus) + len(queue.waiting_gpus) + min(int(coming), _MOST_ARRIVALS)
        total = int(queue.gpus[0])
        announced = [replace(w, gpus=w.gpus or total, announced_s=now_s, nodes=()) for w in windows]
        none, number = np.zeros(jobs, np.int64), np.arange(jobs + 1)
        blank = blank_queue(
            queue.gpus,
            anywhere(none + 1, queue.gpus),
            none + 1,
            (none + 1).astype(np.float64),
            announced,
            TERMS,
        )
        return blank, kernel.Begun(np.zeros(jobs), none.copy(), number, none)


class _Ratios:
    """How long jobs run for each second that they request, by class of the request.

    Parameters
    ----------
    known : whose jobs that have ended are looked at.
    requested_s : float64[jobs], above 0.
    """

    def __init__(self, known: History, requested_s: F64) -> None:
        ended = np.flatnonzero(np.isfinite(known.run_s))
        ended = ended[np.argsort(known.end_s[ended], kind="stable")]
        ratio, of = known.run_s[ended] / requested_s[ended], request_class(requested_s[ended])
        last = {c: ratio[of == c][-RUNS:] for c in range(int(of.max(initial=-1)) + 1)}
        self._all: F64 = np.sort(np.concatenate([*last.values(), np.ones(1)]))
        self._of = {c: np.sort(values) for c, values in last.items() if len(values) >= LEAST_RUNS}

    def draw(self, requested_s: F64, elapsed: F64, uniform: F64) -> F64:
        """float64[draws, jobs], of jobs that have run for `elapsed` of their request already.

        Parameters
        ----------
        requested_s, elapsed : float64[jobs].
        uniform : float64[draws, jobs], in [0, 1).
        """
        drawn = np.empty_like(uniform)
        of = request_class(requested_s)
        for c in np.unique(of).tolist():
            rows = np.flatnonzero(of == c)
            ratio = self._of.get(c, self._all)
            first = np.searchsorted(ratio, elapsed[rows], side="right")
            at = first + (uniform[:, rows] * (len(ratio) - first)).astype(np.int64)
            beyond = elapsed[rows] + uniform[:, rows] * LATEST_S / requested_s[rows]
            drawn[:, rows] = np.where(first < len(ratio), ratio[np.minimum(at, len(ratio) - 1)], beyond)
        return drawn

    def middle(self, requested_s: F64) -> F64:
        """float64[jobs], the median of each job's class."""
        of = request_class(requested_s).tolist()
        medians = {c: float(np.median(self._of.get(c, self._all))) for c in set(of)}
        return np.array([medians[c] for c in of], np.float64)
