"""When jobs of a site start: the forecasts of `forerun wait-time`, where those did well on its own log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forerun.core.errors import ForerunError
from forerun.site.history import History, read_history
from forerun.site.survey.files import Kind, SiteFile
from forerun.site.wait_time.answer import answer
from forerun.site.wait_time.backtest import back_test
from forerun.site.wait_time.forecast import Forecaster
from forerun.site.wait_time.situation import Question

#: the last jobs of a partition at whose submissions is asked, which say how good forecasts are
_ASKED: Final = 120


@dataclass(frozen=True, slots=True)
class Start:
    """When a job starts that is submitted at the end of a log.

    Parameters
    ----------
    even_odds_s, nine_in_ten_s : waits.
    answers : former ones that it was judged by.
    how : how good those were, in words.
    """

    even_odds_s: float
    nine_in_ten_s: float
    answers: int
    how: str


class Starts:
    """Forecasts at the end of a site's log.

    Parameters
    ----------
    files : of the site; the log that was used is one of them.
    zone : IANA name of the place of times without a zone; empty: UTC.
    """

    def __init__(self, files: Sequence[SiteFile], zone: str) -> None:
        self._log = max((one for one in files if one.kind is Kind.LOG), key=lambda one: bool(one.gave))
        self._zone = zone or "UTC"
        self._history: History | None = None

    def of(self, partition: str, gpus: int, requested_s: float) -> Start | str:
        """When a job starts, if such answers did well at the last jobs of its partition; else why that is not said.

        Parameters
        ----------
        partition, gpus, requested_s : of the job.
        """
        try:
            if self._history is None:
                self._history = read_history(self._log.path, self._log.format, unit="GPUs", zone=self._zone)
            log = self._history
            named = partition if partition in log.partition.names else ""
            forecaster = Forecaster(log, partition=named)
            tested = back_test(forecaster, most=_ASKED)
            if not tested.whole.good:
                return f"no forecast, as former ones did not do well: {tested.why}"
            found = answer(forecaster, Question(log.last_s, gpus, requested_s, named), most=_ASKED)
        except ForerunError as error:
            return f"no forecast: {error.problems[0].what}"
        if not found.known:
            return "no forecast, as too few jobs have started"
        covered = tested.whole.covered
        how = f"forecast at the log's end; {covered.shares[0.8]:.0%} of {covered.answers} starts were within 80 % intervals"
        return Start(found.waits_s[0.5], found.waits_s[0.9], covered.answers, how)
