"""The known bugs of the published simulators, each a switch.

A schedule runs as published (`compat`) unless a switch says `corrected`. `mode: corrected` turns all of them; each also
works alone. The table is known_bugs.json beside this file.
"""

from __future__ import annotations

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

#: what each switch is called when it keeps the published behaviour, and when not
MODES: Final = ("compat", "corrected")


def touching(schedule: str) -> tuple[str, ...]:
    """The switches that can change a schedule's outcome."""
    return tuple(name for name, switch in SWITCHES.items() if schedule in switch.touches)
