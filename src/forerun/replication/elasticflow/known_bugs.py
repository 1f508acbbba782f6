"""The known bugs of the published simulators, each a switch.

The table is known_bugs.json beside this file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec


class Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One difference between the published code and what its paper says.

    Parameters
    ----------
    touches : the schedules whose outcome it can change.
    published, corrected : what happens without and with the switch.
    """

    touches: tuple[str, ...]
    published: str
    corrected: str


SWITCHES: Final = msgspec.json.decode(
    Path(__file__).with_name("known_bugs.json").read_bytes(), type=dict[str, Switch]
)


def touching(schedule: str) -> tuple[str, ...]:
    """The switches that can change a schedule's outcome."""
    return tuple(name for name, switch in SWITCHES.items() if schedule in switch.touches)


class Corrections:
    """The switches that are off the published behaviour in a run.

    Parameters
    ----------
    switches : their names (default: none).
    """

    def __init__(self, switches: Iterable[str] = ()) -> None:
        self.switches = frozenset(switches)

    def __contains__(self, switch: str) -> bool:
        assert switch in SWITCHES, switch
        return switch in self.switches
