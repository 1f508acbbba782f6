"""What can be chosen and written: the policies of the rooms, the schema of their scenario files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forerun.domains import room, rooms
from forerun.scenario.schema import scenario_schema


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy: its room, its kind (what plugins announce it under), its name in files, what it does in one sentence."""

    room: str
    kind: str
    name: str
    about: str


def policies(name: str = "") -> tuple[PolicyEntry, ...]:
    """The policies of a room, or of all. Raises UnknownName for a room that does not exist.

    >>> sorted({entry.kind for entry in forerun.policies("energy")})
    ['limit_policy', 'policy']
    """
    found = []
    for each in (name,) if name else rooms():
        for kind, registry in room(each).POLICIES.items():
            for policy in registry.names():
                about = (registry.get(policy).__doc__ or "").strip().split("\n\n")[0]
                found.append(PolicyEntry(each, kind, policy, " ".join(about.split())))
    return tuple(found)


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a room's scenario files. Raises UnknownName for a room that does not exist.

    >>> forerun.schema("energy")["properties"]["eta"]["default"]
    0.5
    """
    return scenario_schema(room(name).Scenario)
