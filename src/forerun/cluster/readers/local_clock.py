"""Wall-clock times of one place as UTC seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from forerun.core.errors import UsageError
from forerun.core.trace.repair import RepairLog, shown
from forerun.core.trace.rows import parse_instant

_ORDINARY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}")


@dataclass(slots=True)
class LocalClock:
    """Wall-clock times of one place as UTC seconds, its daylight-saving changes taken into account.

    The hour that an autumn night repeats is read as its first pass, unless that would end a run before its
    start; the hour a spring night skips is read an hour later. Both are counted.

    Parameters
    ----------
    zone : name of the place, as in the IANA database.
    repairs : where hours that are repeated or skipped are counted.
    """

    zone: str
    repairs: RepairLog
    _zone: Any = None

    def utc_s(self, text: str, where: str, not_before_s: float = -np.inf) -> float:
        """A wall-clock time as UTC seconds.

        Parameters
        ----------
        text : such as `2017-11-05 01:30:00`.
        where : its `file:line`, for the log of repairs.
        not_before_s : an earlier instant of the same run, which decides between two passes of an hour (default: none).

        ValueError says what is wrong with the text.
        """
        if not _ORDINARY.fullmatch(text):
            raise ValueError(f"{shown(text)} is not a time like 2017-11-05 01:30:00")
        parse_instant(text)
        local = datetime.fromisoformat(text).replace(tzinfo=self.place())
        first, second = local.timestamp(), local.replace(fold=1).timestamp()
        if first == second:
            return first
        if first > second:  # a skipped hour has no UTC time; reading it with the old offset moves it on
            self.repairs.note("wall-clock time in the hour skipped in spring, moved on an hour", where)
            return first
        self.repairs.note(
            "wall-clock time in the hour repeated in autumn, first pass taken unless it ends too early", where
        )
        return second if first < not_before_s else first

    def place(self) -> Any:
        """The zone. Raises UsageError if it is not known here."""
        if self._zone is None:
            from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

            try:
                self._zone = ZoneInfo(self.zone)
            except (ZoneInfoNotFoundError, ValueError):
                raise UsageError.at(
                    "timezone", f"no time zone {self.zone!r} is known here; the package tzdata has all"
                ) from None
        return self._zone
