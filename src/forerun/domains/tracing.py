"""Traces in any room: which rooms make, fit and describe traces of their own."""

from __future__ import annotations

import functools

from forerun.domains import room_part, rooms
from forerun.errors import UnknownName
from forerun.trace.room import RoomTraces


@functools.cache
def trace_rooms() -> tuple[str, ...]:
    """The rooms with traces of their own: those with a module `traces`."""
    return tuple(name for name in rooms() if room_part(name, "traces") is not None)


def traces_of(room: str) -> RoomTraces:
    """What a room does with traces. Raises UnknownName with the rooms that do something."""
    if room not in trace_rooms():
        raise UnknownName.among("room with traces of its own", room, trace_rooms())
    part = room_part(room, "traces")
    assert part is not None
    found: RoomTraces = part.TRACES
    return found
