"""Former jobs that are alike: as large and long, with as many before them in the queue."""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.site.history import F64, History
from forerun.site.wait_time.situation import HORIZON_S, Question

#: the jobs that started last, so many
MOST: Final = 2000
#: standard deviation, in powers of 2, of the normal curve by which likeness falls
WIDTH: Final = 0.7
#: the likeness of a job of another partition, as a factor, and the least likeness
_ELSEWHERE: Final = 1e-3
_LEAST: Final = 1e-6


class Alike:
    """The jobs of a pool, and how alike each was to a job when it was submitted.

    Jobs are alike if they ask for about as many GPUs and as much time, and if about as many waited in their partition that
    ask for no more GPUs, in all and among those that ask for no more time either: nearly any scheduler prefers these.

    Parameters
    ----------
    log : the jobs of the pool.
    """

    def __init__(self, log: History) -> None:
        self._log = log
        longest_s = np.fmax.accumulate(np.append(1.0, log.requested_s))[1:]
        self._request_s = np.where(np.isnan(log.requested_s), longest_s, np.maximum(log.requested_s, 1.0))
        self._gone_s = np.fmin(log.start_s, np.nan_to_num(log.end_s, nan=np.inf))
        began = np.flatnonzero(log.started)
        self._began = began[np.argsort(log.start_s[began], kind="stable")]
        jobs = zip(
            log.submit_s.tolist(),
            log.gpus.tolist(),
            self._request_s.tolist(),
            log.partition.codes.tolist(),
            strict=True,
        )
        self._regards = np.array([self._regard(row, *job) for row, job in enumerate(jobs)]).reshape(-1, 4)

    def _regard(self, before: int, at_s: float, gpus: int, request_s: float, code: int) -> F64:
        """In what jobs are compared, as powers of 2. before: the first so many jobs are there. code: of the partition."""
        log = self._log
        rows = slice(int(np.searchsorted(log.submit_s, at_s - HORIZON_S)), before)
        waits = (self._gone_s[rows] > at_s) & (log.gpus[rows] <= gpus) & (log.partition.codes[rows] == code)
        short = np.count_nonzero(waits & (self._request_s[rows] <= request_s))
        return np.log2(np.array([gpus, request_s, 1 + np.count_nonzero(waits), 1 + short], np.float64))

    def waits_s(self, question: Question, before: int, since_s: float) -> tuple[F64, F64]:
        """The waits of the jobs that had started last at the instant of a question, and how alike they are, in sum 1.

        Parameters
        ----------
        question : about the job.
        before : only the first so many jobs of the pool are there.
        since_s : only those submitted since then are looked at.
        """
        log, names = self._log, self._log.partition.names
        code = names.index(question.partition) if question.partition in names else -1
        regard = self._regard(before, question.at_s, question.gpus, max(question.requested_s, 1.0), code)
        known = int(np.searchsorted(log.start_s[self._began], question.at_s, side="right"))
        rows = self._began[max(known - MOST, 0) : known]
        rows = rows[(rows < before) & (log.submit_s[rows] >= since_s)]
        apart = ((self._regards[rows] - regard) ** 2).sum(axis=1)
        alike = np.exp(-0.5 * apart / WIDTH**2)
        alike[log.partition.codes[rows] != code] *= _ELSEWHERE
        alike += _LEAST
        return log.wait_s[rows], alike / alike.sum()
