"""How the log of a queue is read, and instants on its clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from forerun.site.history import History


@dataclass(frozen=True)
class Reading:
    """How to read a log.

    Parameters
    ----------
    format : of the log; empty: by its content.
    columns : where it deviates from its format, such as `requested_s=6`.
    zone : IANA name of the place of times without a zone.
    """

    format: str
    columns: tuple[str, ...]
    zone: str

    def read(self, path: Path) -> History:
        """The history in a file. Raises TraceError, UsageError."""
        from forerun.site.history import read_history

        return read_history(path, self.format, columns=self.columns, zone=self.zone)

    def place(self) -> ZoneInfo:
        """The place. Raises UsageError for one that does not exist."""
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        from forerun.core.errors import UsageError

        try:
            return ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise UsageError.at("--zone", f"no time zone {self.zone!r} is known here") from None

    def instant_s(self, option: str, text: str) -> float:
        """Seconds since 1970 of an instant as people write it: `2023-05-01T12:00`, also with a zone, or seconds since 1970.

        Parameters
        ----------
        option : that it is given to, for messages.
        text : the instant.

        Raises UsageError for anything else.
        """
        from datetime import datetime

        from forerun.core.errors import UsageError

        try:
            if text.isdecimal() and 8 < len(text) < 12:
                return float(text)
            when = datetime.fromisoformat(text)
            return (when if when.tzinfo else when.replace(tzinfo=self.place())).timestamp()
        except (ValueError, OverflowError):
            raise UsageError.at(
                option, f"{text!r} is no instant; write it as 2023-05-01T12:00 or in seconds since 1970"
            ) from None
