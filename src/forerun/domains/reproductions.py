"""All published results that the rooms can regenerate, by id."""

from __future__ import annotations

from forerun.domains import room_part, rooms
from forerun.errors import UnknownName
from forerun.result.reproduction import Reproduction


def reproductions() -> tuple[Reproduction, ...]:
    """Every reproduction of every room, in the rooms' order."""
    parts = (room_part(name, "reproduce") for name in rooms())
    return tuple(entry for part in parts if part is not None for entry in part.REPRODUCTIONS)


def reproduction(identifier: str) -> Reproduction:
    """The reproduction of an id. Raises UnknownName with what is known."""
    known = {entry.id: entry for entry in reproductions()}
    if identifier not in known:
        raise UnknownName.among("reproduction", identifier, known)
    return known[identifier]
