"""What a room found, made into a profile that other rooms read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forerun.domains import room_part, rooms
from forerun.errors import UsageError
from forerun.scenario.arguments import require_scenario
from forerun.scenario.spec import Spec


def profile_of(scenario: Any, at: Sequence[int] = ()) -> Spec:
    """The profile that a scenario's room offers the others: a `Supply`, a `Power`.

    `at` are the points to make it at, in the room's own terms (readers, batch sizes). Raises UsageError for a room that
    offers nothing, and what the room raises.

    >>> power = forerun.profile_of(forerun.load(forerun.demo("energy").scenario))
    >>> power.gpu_type, len(power.points)
    ('gpu_a', 24)
    """
    require_scenario(scenario, "profile_of")
    part = room_part(scenario.domain, "offers")
    if part is None:
        known = ", ".join(name for name in rooms() if room_part(name, "offers") is not None)
        raise UsageError.at(scenario.domain, f"offers other rooms no profile; rooms that do: {known}")
    made: Spec = part.offer(scenario, at)
    return made
